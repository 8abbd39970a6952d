"""Make one key of the values of some columns: the same for equal values wherever it is made, and for no others.

The key is the SHA-256, as 64 hexadecimal digits, of each value in the order of the columns: a letter for its kind, the
number of its bytes, a colon and the bytes. Kinds are text ``S`` (UTF-8), numbers ``N`` (plain, without exponent and
superfluous zeros: 1, 1.0 and 1.00 are one), binary ``B``, booleans ``Z``, days ``D``, instants ``T`` (UTC, in
microseconds), local times ``L``, and null ``_`` without bytes. Names are no part of it. Refuses floats, whose spelling
is nobody's, and nested values.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NULL_PART = b"_0:"
ADVICE = "idempotency_key takes text, whole and decimal numbers, binary, booleans, dates and timestamps: cast it first"
_SECONDS = "%Y-%m-%dT%H:%M:%S"


def idempotency_key(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> pa.Array[Any]:
    """Return a key for each row: equal exactly where all the columns are equal.

    Raises
    ------
    OptionError
        If no column is named, or one that is not there.
    SchemaError
        If a column is of floats or nested, or a timestamp finer than microseconds.
    """
    missing = [name for name in columns if name not in rows.schema.names]
    if missing or not columns:
        raise OptionError(f"idempotency_key needs columns that are there: {missing or 'none'} was named")
    parts = [_parts(name, rows.column(name)) for name in columns]
    digests = [sha256(b"".join(row)).hexdigest() for row in zip(*parts, strict=True)]
    return pa.array(digests, pa.string())


def _parts(name: str, column: Any) -> list[bytes]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    letter, contents = _contents(name, column)
    return [NULL_PART if each is None else b"%s%d:%s" % (letter, len(each), each) for each in contents]


def _contents(name: str, column: Any) -> tuple[bytes, list[bytes | None]]:
    kind = column.type
    for fits, letter, convert in _KINDS:
        if fits(kind):
            try:
                return letter, [None if each is None else _bytes(each) for each in convert(column)]
            except pa.ArrowInvalid as error:
                raise SchemaError(f"column {name!r}: {error}; {ADVICE}") from error
    raise SchemaError(f"column {name!r} is of type {kind}: {ADVICE}")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _texts(column: Any) -> list[Any]:
    return column.to_pylist()  # type: ignore[no-any-return]


def _casts(column: Any) -> list[Any]:
    return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _decimals(column: Any) -> list[Any]:
    return [None if value is None else _plain(format(value, "f")) for value in column.to_pylist()]


def _plain(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _instants(column: Any) -> list[Any]:
    return _times(column, "Z")


def _times(column: Any, zone: str = "") -> list[Any]:
    # As microseconds, times are printed with six digits after the second.
    moments = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None))
    return pc.strftime(moments, _SECONDS + zone).to_pylist()  # type: ignore[no-any-return]


_KINDS: tuple[tuple[Callable[[Any], bool], bytes, Callable[[Any], list[Any]]], ...] = (
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), b"S", _texts),
    (pa.types.is_integer, b"N", _casts),
    (pa.types.is_decimal, b"N", _decimals),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), b"B", _texts),
    (pa.types.is_boolean, b"Z", _casts),
    (pa.types.is_date, b"D", lambda column: _casts(column.cast(pa.date32()))),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, b"T", _instants),
    (pa.types.is_timestamp, b"L", _times),
    (pa.types.is_null, b"_", _texts),
)
