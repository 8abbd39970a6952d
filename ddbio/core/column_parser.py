"""Parse DynamoDB JSON by columns: ``pyarrow.json`` under an explicit schema of tagged values, tags taken off after.

Refuses, by raising, everything the plain reference would not read the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from ddbio.core.rescue import null_value, rescue_text
from ddbio.core.tagged import null_flags, null_paths_of, tagged_struct, untag
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from ddbio.core.attribute import Item
    from ddbio.core.framing import Framing


class ColumnParser:
    """Parse pieces of text into record batches of one schema; learns where NULL occurs, for each place costs time."""

    def __init__(self, schema: pa.Schema, *, keep_nulls: bool) -> None:
        self._schema = schema
        self._keep_nulls = keep_nulls
        self._fields = [schema.field(index) for index in range(len(schema) - 1)]
        self._null_paths: frozenset[str] = frozenset()
        self._wide = tagged_struct(self._fields, "", null_paths=None)
        self._narrow = tagged_struct(self._fields, "", self._null_paths)

    @property
    def usable(self) -> bool:
        """Return whether the schema can be parsed so: it has a column, and none of JSON text or arbitrary keys."""
        return self._wide is not None

    def batch(self, piece: pa.Buffer, framing: Framing) -> pa.RecordBatch:
        """Return a row per item of UTF-8 text that has an item and no ``null``.

        Raises
        ------
        DecodeError, pyarrow.ArrowException
            Something in the piece is for the plain reference: a misfit, another spelling, broken.
        """
        try:
            columns, n_items = _parse(piece, framing, self._narrow)
        except pa.ArrowInvalid:
            columns, n_items = _parse(piece, framing, self._wide)
            self._learn_null_paths(columns)
        arrays = [
            untag(column, field, keep_nulls=self._keep_nulls)
            for column, field in zip(columns, self._fields, strict=True)
        ]
        rescue = self._kept_nulls(columns, n_items) if self._keep_nulls else pa.nulls(n_items, pa.string())
        return pa.RecordBatch.from_arrays([*arrays, rescue], schema=self._schema)

    def _learn_null_paths(self, columns: list[pa.StructArray]) -> None:
        for column, field in zip(columns, self._fields, strict=True):
            self._null_paths = self._null_paths.union(null_paths_of(column, field, f".{field.name}"))
        self._narrow = tagged_struct(self._fields, "", self._null_paths)

    def _kept_nulls(self, columns: list[pa.StructArray], n_items: int) -> pa.Array[Any]:
        rescued: dict[int, Item] = {}
        for column, field in zip(columns, self._fields, strict=True):
            flags = null_flags(column)
            if flags is not None:
                for row in np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist():
                    rescued.setdefault(row, {})[field.name] = null_value()
        texts: list[str | None] = [None] * n_items
        for row, item in rescued.items():
            texts[row] = rescue_text(item)
        return pa.array(texts, pa.string())


def _parse(piece: pa.Buffer, framing: Framing, tagged: Any) -> tuple[list[Any], int]:
    """Return the tagged columns of the items and how many items there are."""
    parsed_type = {"page": [("Items", pa.list_(tagged))], "export": [("Item", tagged)], "items": list(tagged)}
    table = pj.read_json(
        pa.BufferReader(piece),  # type: ignore[arg-type] # the stubs lack Arrow's own files
        read_options=pj.ReadOptions(use_threads=False, block_size=piece.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(parsed_type[framing]), unexpected_field_behavior="error"
        ),
    )
    parsed: list[Any] = [column.combine_chunks() for column in table.columns]
    if framing == "items":
        return parsed, table.num_rows
    if framing == "page" and table.num_rows != 1:
        raise DecodeError("not exactly one page")
    items = parsed[0].values if framing == "page" else parsed[0]
    if parsed[0].null_count or items.null_count:
        raise DecodeError("a line or page without items")
    return [items.field(index) for index in range(tagged.num_fields)], len(items)
