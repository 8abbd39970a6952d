"""Stored types of Parquet: how to write rows with the same types again, and a comparison of the facts in footers.

The statistics of a footer come from the program that wrote the file. They reveal a value that Arrow reads wrongly,
which
reading the new file with Arrow again would not.
"""

from __future__ import annotations

import functools
import io
import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.formats.parquet_input import is_in_old_calendar

_NUMBERS = {"INT32", "INT64", "FLOAT", "DOUBLE", "BOOLEAN"}
_UINT64 = (1 << 64) - 1
# These add nothing to the stored type.
_SIGNED = ({"Type": "Int", "bitWidth": 32, "isSigned": True}, {"Type": "Int", "bitWidth": 64, "isSigned": True})


@dataclass(frozen=True)
class StoredTypes:
    """Options that write rows with the Parquet types that their columns had.

    Attributes
    ----------
    options
        Options of ``pyarrow.parquet.ParquetWriter``.
    is_in_old_calendar
        Whether the file's metadata marks old dates as those of the Julian calendar.
    unwritable
        The reason why Arrow does not write the same types; empty if it does.
    """

    options: tuple[tuple[str, bool], ...] = ()
    is_in_old_calendar: bool = False
    unwritable: str = ""


AS_ARROW = StoredTypes()
"""Arrow's default types."""


def stored_types(opened: pq.ParquetFile) -> StoredTypes:
    """Return the options that write the rows of an open file with the same types."""
    leaves = tuple(_leaves(opened))
    options, unwritable = _written_as(leaves, opened.schema_arrow.serialize().to_pybytes())
    return StoredTypes(options, is_in_old_calendar(opened.metadata.metadata), unwritable)


class _Leaf(NamedTuple):
    path: str
    stored: str
    """The physical type."""
    meaning: str
    """The logical type."""
    length: int
    levels: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.stored} {self.meaning}" if self.meaning else self.stored


def _leaves(opened: pq.ParquetFile) -> list[_Leaf]:
    schema: Any = opened.schema
    columns = (schema.column(index) for index in range(len(schema)))
    return [
        _Leaf(
            *(column.path, column.physical_type, _logical_type(column), column.length),
            (column.max_definition_level, column.max_repetition_level),
        )
        for column in columns
    ]


def _logical_type(column: Any) -> str:
    logical_type = json.loads(column.logical_type.to_json())
    properties = {name: value for name, value in logical_type.items() if not name.endswith("converted_type")}
    if properties in _SIGNED or properties["Type"] == "None":
        return ""
    return " ".join(f"{value}" if name == "Type" else f"{name}={value}" for name, value in properties.items())


@functools.lru_cache(maxsize=64)
def _written_as(leaves: tuple[_Leaf, ...], schema: bytes) -> tuple[tuple[tuple[str, bool], ...], str]:
    """Return the options that make Arrow write a schema as these leaves, and the reason if it cannot."""
    needed = {
        "use_deprecated_int96_timestamps": any(leaf.stored == "INT96" for leaf in leaves),
        "store_decimal_as_integer": any(_is_whole_decimal(leaf) for leaf in leaves),
        "write_time_adjusted_to_utc": any(
            leaf.meaning.startswith("Time ") and "isAdjustedToUTC=True" in leaf.meaning for leaf in leaves
        ),
    }
    options = {name: True for name, is_needed in needed.items() if is_needed}
    sink: Any = io.BytesIO()
    try:
        pq.ParquetWriter(sink, pa.ipc.read_schema(pa.py_buffer(schema)), **options).close()  # type: ignore[arg-type]
    except (pa.ArrowException, TypeError) as error:
        # An older Arrow lacks some of these options.
        return (), f"Arrow does not write its types: {error}"
    written = _leaves(pq.ParquetFile(sink))
    if len(written) != len(leaves):
        return (), f"its columns have {len(leaves)} leaves, and Arrow would write {len(written)}"
    for old, new in zip(leaves, written, strict=True):
        if old[1:] != new[1:]:
            return (), f"column {old.path} is stored as {old}, and Arrow would write {new}"
    return tuple(options.items()), ""


def _is_whole_decimal(leaf: _Leaf) -> bool:
    return leaf.meaning.startswith("Decimal") and leaf.stored in {"INT32", "INT64"}


@dataclass
class FooterFacts:
    """Totals of the facts in footers about columns that are not repeated."""

    _valid: dict[str, int | None] = field(default_factory=dict)
    _least: dict[str, Any] = field(default_factory=dict)
    _greatest: dict[str, Any] = field(default_factory=dict)

    def add(self, footer: pq.FileMetaData) -> None:
        """Add a file with the same types as the previous ones."""
        schema: Any = footer.schema
        columns = [schema.column(index) for index in range(footer.num_columns)]
        flat = [index for index, column in enumerate(columns) if not column.max_repetition_level]
        for group in range(footer.num_row_groups):
            chunks = footer.row_group(group)
            # Writers record no statistics for a row group without rows.
            for index in flat if chunks.num_rows else ():
                self._add(columns[index], chunks.column(index))

    def _add(self, column: Any, chunk: Any) -> None:
        path, statistics = column.path, chunk.statistics
        has_count = statistics is not None and statistics.has_null_count
        valid = chunk.num_values - statistics.null_count if has_count else None
        self._valid[path] = _combine(self._valid.get(path, 0), valid, int.__add__)
        if valid == 0:
            return
        ends: tuple[Any, Any] = None, None
        if statistics is not None and statistics.has_min_max and column.physical_type in _NUMBERS:
            ends = statistics.min_raw, statistics.max_raw
            if "isSigned=false" in str(column.logical_type):
                ends = ends[0] & _UINT64, ends[1] & _UINT64
            if any(isinstance(end, float) and math.isnan(end) for end in ends):
                ends = None, None
        self._least[path] = _combine(self._least.get(path, ends[0]), ends[0], min)
        self._greatest[path] = _combine(self._greatest.get(path, ends[1]), ends[1], max)

    def difference(self, other: FooterFacts) -> str:
        """Return the first fact that differs, or an empty text; a fact that one of them lacks is not a difference."""
        facts = (
            ("values", self._valid, other._valid),
            ("as the least value", self._least, other._least),
            ("as the greatest value", self._greatest, other._greatest),
        )
        for what, mine, theirs in facts:
            for path, value in mine.items():
                other_value = theirs.get(path, 0 if what == "values" else None)
                if None not in {value, other_value} and value != other_value:
                    return f"column {path} has {value} {what}, and then {other_value}"
        return ""


def _combine(first: Any, added: Any, join: Any) -> Any:
    """Return two facts as one, or None if one of them is unknown."""
    return None if first is None or added is None else join(first, added)
