"""Keys computed from the values of some columns: equal values have the same key on any machine, other values do not.

The key is the SHA-256, as 64 hexadecimal digits, of each value in the order of the columns: a letter for its kind, the
number of its bytes, a colon and the bytes. Kinds are text ``S`` (UTF-8), numbers ``N`` (plain digits without exponent
and trailing zeros, so that 1, 1.0 and 1.00 are equal), binary ``B``, booleans ``Z``, dates ``D``, instants ``T`` (UTC,
in microseconds), local times ``L``, and null ``_`` without bytes. Column names do not matter. Floats are an error,
since their digits depend on the program that prints them. Nested values are an error, too.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError, SchemaError
from ddbio.items.kernel.arrays import plain_array
from ddbio.items.schema.arrow import is_binary, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NULL_PART = b"_0:"
ADVICE = "idempotency_key takes text, whole and decimal numbers, binary, booleans, dates and timestamps: cast it first"
_SECONDS = "%Y-%m-%dT%H:%M:%S"
_YEAR_DIGITS = 4


def idempotency_key(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> pa.Array[Any]:
    """Return a key for each row. Two keys are equal if and only if all the columns are equal.

    Raises
    ------
    OptionError
        If no column is given, or one that does not exist.
    SchemaError
        If a column is of floats or nested, or a timestamp finer than microseconds.
    """
    missing = [name for name in columns if rows.schema.names.count(name) != 1]
    if missing or not columns:
        raise OptionError(f"idempotency_key needs columns that exist exactly once: {missing or 'none'} was given")
    parts = [_parts(name, rows.column(name)) for name in columns]
    digests = [sha256(b"".join(row)).hexdigest() for row in zip(*parts, strict=True)]
    return pa.array(digests, pa.string())


def _parts(name: str, column: Any) -> list[bytes]:
    parts: list[bytes] = []
    for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        letter, contents = _contents(name, plain_array(array))
        parts += [
            NULL_PART if content is None else b"%s%d:%s" % (letter, len(content), content) for content in contents
        ]
    return parts


def _contents(name: str, column: Any) -> tuple[bytes, list[bytes | None]]:
    kind = column.type
    for fits, letter, convert in _KINDS:
        if fits(kind):
            try:
                return letter, [None if content is None else _bytes(content) for content in convert(column)]
            except pa.ArrowInvalid as error:
                raise SchemaError(f"column {name!r}: {error}; {ADVICE}") from error
    raise SchemaError(f"column {name!r} is of type {kind}: {ADVICE}")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _binaries(column: Any) -> list[Any]:
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _casts(column: Any) -> list[Any]:
    return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _days(column: Any) -> list[Any]:
    return [text and _signed(text) for text in _casts(column.cast(pa.date32()))]


def _signed(text: str) -> str:
    """Return a date with the sign that Spark writes before years of more than four digits."""
    return text if text[0] == "-" or text[_YEAR_DIGITS] == "-" else f"+{text}"


def _decimals(column: Any) -> list[Any]:
    return [None if value is None else _plain(format(value, "f")) for value in column.to_pylist()]


def _plain(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _times(column: Any, zone: str = "") -> list[Any]:
    # With microseconds, times are printed with six digits after the second.
    moments = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None))
    return [text and _signed(text) for text in pc.strftime(moments, _SECONDS + zone).to_pylist()]


_KINDS: tuple[tuple[Callable[[Any], bool], bytes, Callable[[Any], list[Any]]], ...] = (
    (lambda kind: is_text(kind) or pa.types.is_string_view(kind), b"S", _binaries),
    (pa.types.is_integer, b"N", _casts),
    (pa.types.is_decimal, b"N", _decimals),
    (
        lambda kind: is_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind),
        b"B",
        _binaries,
    ),
    (pa.types.is_boolean, b"Z", _casts),
    (pa.types.is_date, b"D", _days),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, b"T", partial(_times, zone="Z")),
    (pa.types.is_timestamp, b"L", _times),
    (pa.types.is_null, b"_", pa.Array.to_pylist),
)
