"""Serialize one Python value as the attribute value that DynamoDB stores for it.

This takes what the standard library, boto3, numpy, pandas and polars hand out. A value without an exact form in
DynamoDB is a ``SchemaError``; a number that DynamoDB refuses stays as it is written, and whoever checks it refuses it.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.attribute import encode_base64
from ddbio.items.number import MAX_EXPONENT, canonical_number, quoted

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue

_MISSING = {"NAType", "NaTType"}
_DAYS = {"Y", "M", "W", "D"}


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: ``None``, ``pd.NA``, ``pd.NaT``, and the ``NaT`` of numpy."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def attribute_value(value: Any) -> AttributeValue:
    """Return the attribute value of a Python value: exact, and the same whatever stands beside it.

    Dates and times are ISO 8601 text as in columns of Arrow: with microseconds, with nanoseconds where a value has
    some, in UTC if it has a zone. What is missing is left out of a mapping and is NULL in a list.

    Raises
    ------
    SchemaError
        DynamoDB has no type for the value.
    """
    found = _SCALARS.get(type(value))
    return found(value) if found is not None else _other(value)


def _other(value: Any) -> AttributeValue:  # noqa: C901, PLR0911, PLR0912 - one branch a type
    if is_missing(value):
        return {"NULL": True}
    match value:
        case enum.Enum():
            return attribute_value(value.value)
        case np.generic():
            return _of_numpy(value)
        case np.ndarray():
            return attribute_value(value[()]) if value.ndim == 0 else {"L": [attribute_value(each) for each in value]}
        case int():
            return _integer(int(value))
        case float():
            return {"N": repr(float(value))}
        case Decimal():
            return {"N": _decimal_text(value)}
        case UUID():
            return {"S": str(value)}
        case str():
            return {"S": str.__str__(value)}
        case bytes() | bytearray() | memoryview():
            return {"B": encode_base64(bytes(value))}
        case dt.datetime():
            return {"S": _datetime_text(value)}
        case dt.date():
            return {"S": value.isoformat()}
        case dt.time():
            return {"S": value.isoformat(timespec="microseconds")}
        case dt.timedelta():
            return {"S": _duration_text(value // dt.timedelta(microseconds=1), getattr(value, "nanoseconds", 0))}
        case Mapping():
            return {"M": {_name(name): attribute_value(each) for name, each in value.items() if not is_missing(each)}}
        case AbstractSet():
            return _set(value)
        case Sequence():
            return {"L": [attribute_value(each) for each in value]}
    if type(value).__module__ == "boto3.dynamodb.types":
        return attribute_value(value.value)
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "as_py"):
        return attribute_value(value.as_py())
    raise SchemaError(f"{type(value).__name__} {quoted(value)}")


def _integer(value: int) -> AttributeValue:
    # Python refuses to print an int of more than 4,300 digits; DynamoDB refuses it far earlier.
    if abs(value) >= 10 ** (MAX_EXPONENT + 1):
        raise SchemaError(f"an int of {value.bit_length()} bits")
    return {"N": str(value)}


def _decimal_text(value: Decimal) -> str:
    try:
        return canonical_number(str(value))
    except DecodeError:
        # Whoever checks it says why.
        return str(value)


def _of_numpy(value: Any) -> AttributeValue:
    if isinstance(value, np.datetime64):
        return {"S": _numpy_text(value)}
    if isinstance(value, np.timedelta64):
        count = value.astype("timedelta64[ns]")
        if count.astype(value.dtype) != value:
            raise SchemaError(f"timedelta64 {quoted(value)}")
        return {"S": _duration_text(*divmod(int(count.astype("i8")), 1000))}
    plain = value.item()
    if isinstance(plain, np.generic):
        raise SchemaError(f"{type(value).__name__} {quoted(value)}")
    return attribute_value(plain)


def _numpy_text(value: Any) -> str:
    if np.datetime_data(value.dtype)[0] in _DAYS:
        return str(value.astype("datetime64[D]"))
    for unit in ("us", "ns"):
        found = value.astype(f"datetime64[{unit}]")
        if found == value and found.astype(value.dtype) == value:
            return str(found)
    raise SchemaError(f"datetime64 {quoted(value)}")


def _datetime_text(value: dt.datetime) -> str:
    zone = ""
    if value.utcoffset() is not None:
        value, zone = value.astimezone(dt.UTC).replace(tzinfo=None), "Z"
    # Only pandas has nanoseconds.
    return value.isoformat(timespec="nanoseconds" if getattr(value, "nanosecond", 0) else "microseconds") + zone


def _duration_text(microseconds: int, nanoseconds: int) -> str:
    count, digits = (microseconds * 1000 + nanoseconds, 9) if nanoseconds else (microseconds, 6)
    whole, rest = divmod(abs(count), 10**digits)
    return f"PT{'-' if count < 0 else ''}{whole}.{rest:0{digits}d}S"


def _name(name: Any) -> str:
    if isinstance(name, str):
        return str.__str__(name)
    raise SchemaError(f"a name that is no text: {quoted(name)}")


def _set(value: AbstractSet[Any]) -> AttributeValue:
    elements = [attribute_value(element) for element in value]
    tags = {next(iter(element)) for element in elements}
    if len(tags) > 1 or not tags <= {"S", "N", "B"}:
        raise SchemaError(f"a set of {' and '.join(sorted(tags))}")
    # The encoder refuses an empty one: DynamoDB has none.
    tag = next(iter(tags), "S")
    return {f"{tag}S": sorted(element[tag] for element in elements)}


_SCALARS: dict[type, Any] = {
    str: lambda value: {"S": value},
    int: _integer,
    bool: lambda value: {"BOOL": value},
    float: lambda value: {"N": repr(value)},
    Decimal: lambda value: {"N": _decimal_text(value)},
    type(None): lambda _: {"NULL": True},
    bytes: lambda value: {"B": encode_base64(value)},
    list: lambda value: {"L": [attribute_value(each) for each in value]},
}
