"""Note which attributes have values, and of which types, while rows pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field, normalize_schema, tag_of_field
from ddbio.validation.comparison import ColumnDifference

if TYPE_CHECKING:
    from collections.abc import Mapping


class ColumnsSeen:
    """Hold the type of each column that had a value."""

    def __init__(self) -> None:
        self.types: dict[str, tuple[str, str]] = {}
        self._schema: pa.Schema | None = None
        self._waiting: dict[int, tuple[str, tuple[str, str]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Note the columns of some rows."""
        if self._schema is None or batch.schema is not self._schema:
            if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
                self._waiting = {
                    place: (name_of_field(field), (_tag_of(field), str(field.type)))
                    for place, field in enumerate(batch.schema)
                    if field.name != RESCUE_NAME
                }
            self._schema = batch.schema
        found = [place for place in self._waiting if batch.column(place).null_count < batch.num_rows]
        for place in found:
            name, types = self._waiting.pop(place)
            self.types.setdefault(name, types)

    def merge(self, types: Mapping[str, tuple[str, str]]) -> None:
        """Add what another process has noted."""
        for name, each in types.items():
            self.types.setdefault(name, each)


def differing_columns(source: ColumnsSeen, target: ColumnsSeen) -> tuple[ColumnDifference, ...]:
    """Return the attributes that only one side has values of, and those of another type of DynamoDB."""
    names = {*source.types, *target.types}
    pairs = ((name, source.types.get(name), target.types.get(name)) for name in sorted(names))
    return tuple(
        ColumnDifference(name, _shown(one), _shown(other))
        for name, one, other in pairs
        if one is None or other is None or one[0] != other[0]
    )


def _tag_of(field: pa.Field[Any]) -> str:
    try:
        return tag_of_field(normalize_schema(pa.schema([field])).field(0))
    except SchemaError:
        # A time or another type that writing turns into text.
        return "S"


def _shown(types: tuple[str, str] | None) -> str | None:
    return None if types is None else f"{types[0]} ({types[1]})"
