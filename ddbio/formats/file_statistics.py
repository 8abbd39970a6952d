"""Statistics of the columns of one file while it is written: nulls, least and greatest value, as values of JSON."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, name_of_field

if TYPE_CHECKING:
    from collections.abc import Iterable

# Longer values would make a manifest large, and no reader skips files by so much text.
_MOST_BYTES = 256
_CUT_CHARACTERS = 128
_LAST_CHARACTER = "\U0010ffff"


class FileStatistics:
    """Gather the statistics of some columns of one file.

    Parameters
    ----------
    schema
        Schema of the rows.
    attributes
        The attributes whose columns are looked at; those without a column are passed over.
    columns
        Columns by their own names, of a lake table. Their long texts are cut to a lower and an upper bound.
    """

    def __init__(self, schema: pa.Schema, attributes: Iterable[str] = (), columns: Iterable[str] = ()) -> None:
        wanted, self._columns = set(attributes), frozenset(columns)
        self._places = [
            place
            for place, field in enumerate(schema)
            if field.name in self._columns or (field.name != RESCUE_NAME and name_of_field(field) in wanted)
        ]
        self._fields = [schema.field(place) for place in self._places]
        self._nulls = [0] * len(self._places)
        self._ends: list[pa.Array[Any] | None] = [None] * len(self._places)

    def add(self, table: pa.Table) -> None:
        """Count the rows of a table in."""
        for number, place in enumerate(self._places):
            column = table.column(place)
            self._nulls[number] += column.null_count
            if _is_ordered(self._fields[number]) and column.null_count < len(column):
                found: Any = pc.min_max(column)
                ends = [pa.repeat(found[name], 1) for name in ("min", "max")]
                known = self._ends[number]
                self._ends[number] = pa.concat_arrays([*([] if known is None else [known]), *ends])

    def to_dict(self) -> dict[str, dict[str, Any]] | None:
        """Return ``nulls``, ``min`` and ``max`` by attribute, or by column; None if no column was looked at.

        ``min`` and ``max`` are null if all values are, if the column has no order, such as numbers held as text, or if
        one of them is too long. Decimals are text, times ISO 8601, bytes base64.
        """
        found = {}
        for field, nulls, ends in zip(self._fields, self._nulls, self._ends, strict=True):
            least = greatest = None
            if ends is not None:
                both: Any = pc.min_max(ends)
                least, greatest = both["min"].as_py(), both["max"].as_py()
                if field.name in self._columns and isinstance(least, str):
                    least, greatest = _lower_bound(least), _upper_bound(greatest)
                else:
                    least, greatest = _plain(least), _plain(greatest)
            known = least is not None and greatest is not None
            found[field.name if field.name in self._columns else name_of_field(field)] = {
                "nulls": nulls,
                "min": least if known else None,
                "max": greatest if known else None,
            }
        return found or None


def _lower_bound(text: str) -> str:
    return text[:_CUT_CHARACTERS]


def _upper_bound(text: str) -> str:
    """Return a short text that is not less than a text in the order of code points, which is that of UTF-8."""
    end = _CUT_CHARACTERS
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER


def _is_ordered(field: pa.Field[Any]) -> bool:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # As text 10 comes before 9.
        return (field.metadata or {}).get(DDB_TYPE, b"S") == b"S"
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ) and not pa.types.is_duration(kind)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it, or None if it cannot or should not."""
    if isinstance(value, str):
        return value if len(value.encode()) <= _MOST_BYTES else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if len(value) <= _MOST_BYTES else None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
