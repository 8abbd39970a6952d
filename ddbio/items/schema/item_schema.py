"""Hold the schema of a table's items: what samples showed, and the columns that a person declared instead.

An ``ItemSchema`` can be merged, compared, saved and edited; ``to_arrow`` returns its columns. A value that fits no
column is rescued when items are read.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.items.schema.arrow import RESCUE_FIELD, format_schema, normalize_schema
from ddbio.items.schema.column import declared_by, fields_of
from ddbio.items.schema.evolution import Evolution, compare
from ddbio.items.schema.file import (
    ARROW_VERSION,
    item_schema_from_json,
    item_schema_to_json,
    parse_schema,
    schema_from_json,
)
from ddbio.items.schema.shape import (
    NOTHING_DECLARED,
    NOTHING_SEEN,
    Declared,
    Shape,
    infer_shape,
    join_declared,
    join_items,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddbio.items.attribute import Item


_TEXTS_KEPT = 16


@dataclass(frozen=True, slots=True, repr=False)
class ItemSchema:
    """Describe items; accepted as ``schema=`` here, and by every library that reads Arrow's C schema."""

    seen: Shape = NOTHING_SEEN
    """What samples showed: the shape of a map."""
    declared: Declared = NOTHING_DECLARED
    """Which columns a person or an Arrow schema declared."""
    _arrow: list[pa.Schema] = field(default_factory=list, init=False, compare=False)
    """The columns, once made."""

    @classmethod
    def of_items(cls, items: Iterable[Item]) -> ItemSchema:
        """Return the schema that these items show.

        Raises
        ------
        DecodeError
            An item is not DynamoDB JSON.
        """
        return cls(infer_shape(items))

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> ItemSchema:
        """Return a schema that declares these columns and has no samples.

        Raises
        ------
        SchemaError
            A field has an Arrow type that DynamoDB has no exact form for.
        """
        columns = list(normalize_schema(schema))[:-1]
        return cls(NOTHING_SEEN, Declared(members=declared_by(columns)))

    @classmethod
    def from_json(cls, text: str) -> ItemSchema:
        """Return the schema of a file that ``to_json`` wrote or a person edited: an edited column is a declared one.

        Raises
        ------
        SchemaError
            The text is no such file, or of another version.
        """
        seen, declared = item_schema_from_json(text)
        schema = cls(seen, declared)
        schema.to_arrow()
        return schema

    @property
    def item_count(self) -> int:
        """Return the number of items in the largest sample."""
        return self.seen.tags.get("M", 0)

    def to_arrow(self) -> pa.Schema:
        """Return a column per attribute, in the order first seen, and ``_rescue`` as the last.

        Raises
        ------
        SchemaError
            A declared column has no such type.
        """
        if not self._arrow:
            columns = pa.schema([*fields_of(self.seen, self.declared), RESCUE_FIELD])
            # Inferred columns are normalised already.
            self._arrow.append(columns if self.declared == NOTHING_DECLARED else normalize_schema(columns))
        return self._arrow[0]

    def to_json(self) -> str:
        """Return the JSON text of a file to save, edit and read back; the same schema gives the same text."""
        return item_schema_to_json(self.seen, self.declared)

    def merge(self, other: ItemSchema) -> ItemSchema:
        """Return what both know, whatever the order, grouping and number of merges.

        Raises
        ------
        SchemaError
            They declare different columns for one attribute, or the other is no ItemSchema.
        """
        _require_schema(other)
        return ItemSchema(join_items(self.seen, other.seen), join_declared(self.declared, other.declared))

    def project(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the schema of these attributes alone, in this order."""
        seen = {name: replace(self.seen.members[name], place=place)
                for place, name in enumerate(attributes) if name in self.seen.members}  # fmt: skip
        declared = {name: replace(self.declared.members[name], place=place)
                    for place, name in enumerate(attributes) if name in self.declared.members}  # fmt: skip
        return ItemSchema(replace(self.seen, members=seen), replace(self.declared, members=declared))

    def diff(self, other: ItemSchema) -> Evolution:
        """Return how the other schema differs: new and missing attributes, new types, changed columns.

        Raises
        ------
        SchemaError
            The other is no ItemSchema.
        """
        _require_schema(other)
        return compare((self.seen, self.declared), (other.seen, other.declared))

    def __arrow_c_schema__(self) -> Any:
        """Return Arrow's C schema of the columns."""
        return self.to_arrow().__arrow_c_schema__()

    def __str__(self) -> str:
        """Return the columns as a printed table."""
        return format_schema(self.to_arrow())

    def __repr__(self) -> str:
        """Return the numbers of attributes and items seen."""
        return f"<ItemSchema of {len(self.to_arrow()) - 1} attributes, {self.item_count} items seen>"


def arrow_schema_of(given: Any) -> pa.Schema:
    """Return the columns of an ItemSchema, an Arrow schema, an object that exports one, or the JSON text of either.

    Raises
    ------
    SchemaError
        It is none of these, or a column has no such type.
    """
    if isinstance(given, pa.Schema):
        return normalize_schema(given)
    if isinstance(given, ItemSchema):
        # Names that hold a NUL are cut when they pass through Arrow's C schema.
        return given.to_arrow()
    if isinstance(given, str):
        return _of_text(given)
    if hasattr(given, "__arrow_c_schema__"):
        return normalize_schema(pa.schema(given))
    raise SchemaError(f"a {type(given).__name__} is no schema: give an ItemSchema, a pyarrow.Schema or its JSON text")


@functools.lru_cache(maxsize=_TEXTS_KEPT)
def _of_text(text: str) -> pa.Schema:
    return schema_from_json(text) if _is_arrow_text(text) else ItemSchema.from_json(text).to_arrow()


def _require_schema(other: object) -> None:
    if not isinstance(other, ItemSchema):
        raise SchemaError(f"a {type(other).__name__} is no ItemSchema: make one by from_arrow or from_json")


def _is_arrow_text(text: str) -> bool:
    try:
        document = parse_schema(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("version") == ARROW_VERSION
