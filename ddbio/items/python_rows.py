"""Conversion of Python dictionaries to Arrow tables, and of Python values to attribute values."""

from __future__ import annotations

import datetime as dt
import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, EncodeError, SchemaError
from ddbio.items.attribute import decode_base64, encode_base64
from ddbio.items.json_text import compact_json
from ddbio.items.number import MAX_EXPONENT, canonical_number, quoted
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, is_attribute_name, nulls_field, tagged_field
from ddbio.items.schema.column import column_names
from ddbio.items.time_columns import declare_formats

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue
    from ddbio.items.schema.times import TimeFormat

_MISSING = {"NAType", "NaTType"}
_DAYS = {"Y", "M", "W", "D"}


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: ``None``, ``pd.NA``, ``pd.NaT`` or the ``NaT`` of numpy."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def attribute_value(value: Any) -> AttributeValue:
    """Return the exact attribute value of a Python value. It does not depend on other values.

    Dates and times are ISO 8601 text as for Arrow columns: with microseconds, or nanoseconds if the value has some, and
    in UTC if it has a zone. Missing values are omitted from mappings and NULL in lists.

    Raises
    ------
    SchemaError
        DynamoDB has no type for the value.
    """
    convert = _SCALARS.get(type(value))
    return convert(value) if convert is not None else _value_of_other_type(value)


def _value_of_other_type(value: Any) -> AttributeValue:  # noqa: C901, PLR0911, PLR0912 - one branch a type
    if is_missing(value):
        return {"NULL": True}
    match value:
        case enum.Enum():
            return attribute_value(value.value)
        case np.generic():
            return _numpy_value(value)
        case np.ndarray():
            return (
                attribute_value(value[()])
                if value.ndim == 0
                else {"L": [attribute_value(element) for element in value]}
            )
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
            return {
                "M": {_name(name): attribute_value(member) for name, member in value.items() if not is_missing(member)}
            }
        case AbstractSet():
            return _set(value)
        case Sequence():
            return {"L": [attribute_value(element) for element in value]}
    if type(value).__module__ == "boto3.dynamodb.types":
        return attribute_value(value.value)
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "as_py"):
        return attribute_value(value.as_py())
    raise SchemaError(f"{type(value).__name__} {quoted(value)}")


def _integer(value: int) -> AttributeValue:
    # Python refuses to print an int of more than 4,300 digits. DynamoDB's limit is far lower.
    if abs(value) >= 10 ** (MAX_EXPONENT + 1):
        raise SchemaError(f"an int of {value.bit_length()} bits")
    return {"N": str(value)}


def _decimal_text(value: Decimal) -> str:
    try:
        return canonical_number(str(value))
    except DecodeError:
        # The check of the number raises the error with the cause.
        return str(value)


def _numpy_value(value: Any) -> AttributeValue:
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
        converted = value.astype(f"datetime64[{unit}]")
        if converted == value and converted.astype(value.dtype) == value:
            return str(converted)
    raise SchemaError(f"datetime64 {quoted(value)}")


def _datetime_text(value: dt.datetime) -> str:
    zone = ""
    if value.utcoffset() is not None:
        value, zone = value.astimezone(dt.UTC).replace(tzinfo=None), "Z"
    # Only pandas has nanoseconds.
    return value.isoformat(timespec="nanoseconds" if getattr(value, "nanosecond", 0) else "microseconds") + zone


def _duration_text(microseconds: int, nanoseconds: int) -> str:
    count, digits = (microseconds * 1000 + nanoseconds, 9) if nanoseconds else (microseconds, 6)
    seconds, fraction = divmod(abs(count), 10**digits)
    return f"PT{'-' if count < 0 else ''}{seconds}.{fraction:0{digits}d}S"


def _name(name: Any) -> str:
    if isinstance(name, str):
        return str.__str__(name)
    raise SchemaError(f"a name that is no text: {quoted(name)}")


def _set(value: AbstractSet[Any]) -> AttributeValue:
    elements = [attribute_value(element) for element in value]
    tags = {next(iter(element)) for element in elements}
    if len(tags) > 1 or not tags <= {"S", "N", "B"}:
        raise SchemaError(f"a set of {' and '.join(sorted(tags))}")
    # The encoder refuses an empty set: DynamoDB has none.
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
    list: lambda value: {"L": [attribute_value(element) for element in value]},
}


# Arrow stores these types exactly; int only if all values fit in 64 bits.
_NATIVE: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_TYPES: dict[str, pa.DataType] = {"S": pa.string(), "N": pa.string(), "B": pa.binary(), "BOOL": pa.bool_()}
NO_FORMATS: Mapping[str, TimeFormat | None] = {}


def python_rows(
    rows: Sequence[Mapping[Any, Any]],
    formats: Mapping[str, TimeFormat | None] = NO_FORMATS,
    *,
    names_nulls: bool = False,
) -> pa.Table:
    """Return a table with one row per dictionary. A name that a dictionary lacks is null, which means missing.

    A value that DynamoDB cannot store, or an invalid attribute name, refuses only its row when the row is encoded.

    Parameters
    ----------
    formats
        The formats of times, by attribute.
    names_nulls
        Whether to add the column of ``nulls_field``, which distinguishes null from missing.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names if is_attribute_name(name)}
    if len(columns) < len(names) or not names:
        # No column can have such a name. The encoder refuses rows with such a name in the rescue column.
        invalid = [_invalid_members(row) for row in rows]
        rescued = columns.get(RESCUE_NAME, [None] * len(rows))
        columns[RESCUE_NAME] = [
            _json(own).decode() if own else text for own, text in zip(invalid, rescued, strict=True)
        ]
    table = python_columns(columns, formats)
    if not names_nulls:
        return table
    field = nulls_field(table.schema)
    nulls = [
        [name for name, value in row.items() if is_missing(value) and is_attribute_name(name)] or None for row in rows
    ]
    return table.append_column(field, pa.array(nulls, field.type))


def python_columns(
    columns: Mapping[str, Iterable[Any]], formats: Mapping[str, TimeFormat | None] = NO_FORMATS
) -> pa.Table:
    """Return a table of columns by name. See :func:`python_rows`.

    Raises
    ------
    SchemaError
        If a name is not text, or the columns are not lists of the same length.
    """
    fields_and_arrays = [python_column(name, _require_list(name, values), formats) for name, values in columns.items()]
    try:
        return pa.table(
            [array for _, array in fields_and_arrays], schema=pa.schema([field for field, _ in fields_and_arrays])
        )
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(f"the columns make no table: {error}") from error


def item_columns(items: Sequence[Mapping[str, Any]], more: Iterable[str] = ()) -> pa.RecordBatch:
    """Return items as columns of JSON, whose values the encoder checks row by row. The items may be invalid.

    Parameters
    ----------
    more
        Names that get a column even if no item has them.
    """
    all_names = itertools.chain(itertools.chain.from_iterable(items), more)
    names = column_names([name for name in dict.fromkeys(all_names) if is_attribute_name(name)])
    fields = [tagged_field(column, pa.string(), "JSON", attribute=name) for name, column in names.items()]
    texts = [[_json(_canonical(item[name])) if name in item else None for item in items] for name in names]
    others = [{name: value for name, value in item.items() if name not in names} for item in items]
    if any(others):
        fields.append(RESCUE_FIELD)
        texts.append([_json(members) if members else None for members in others])
    columns: list[Any] = [pa.array(column, pa.string()) for column in texts]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _canonical(value: Any) -> Any:
    """Return an attribute value with canonical numbers: the service refuses zeros with some exponents."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    match value:
        case {"N": str(text)}:
            with suppress(DecodeError):
                return {"N": canonical_number(text)}
        case {"NS": list(texts)}:
            numbers = [_canonical({"N": text}) for text in texts]
            return {"NS": [number["N"] for number in numbers]}
        case {"L": list(elements)}:
            return {"L": [_canonical(element) for element in elements]}
        case {"M": dict(members)}:
            return {"M": {name: _canonical(member) for name, member in members.items()}}
    return value


def python_column(
    name: str, values: list[Any], formats: Mapping[str, TimeFormat | None] = NO_FORMATS
) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return a column of values. See :func:`python_rows`."""
    types, time_format = set(map(type, values)) - {type(None)}, formats.get(name)
    if len(types) == 1:
        # Some values do not fit: an int of more than 64 bits, or a text with half of a surrogate pair.
        with suppress(pa.ArrowException, OverflowError, UnicodeError, EncodeError):
            value_type = types.pop()
            if time_format is not None and value_type in {dt.datetime, dt.date}:
                return _times(name, values, time_format)
            if time_format is None and value_type in _NATIVE:
                return pa.field(name, _NATIVE[value_type]), pa.array(values, _NATIVE[value_type])
    return _column_of_values(
        name, [None if is_missing(value) else _value_or_error(name, value, time_format) for value in values]
    )


def _times(name: str, values: list[Any], time_format: TimeFormat) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return times as text or numbers in their format."""
    zones = {getattr(value, "tzinfo", None) is None for value in values if value is not None}
    if len(zones) > 1:
        raise EncodeError(f"{name}: some times have a zone", 0, name, "time")
    unit: Any = "ns" if any(getattr(value, "nanosecond", 0) for value in values) else "us"
    is_date = any(type(value) is dt.date for value in values)
    arrow_type = pa.date32() if is_date else pa.timestamp(unit, None if True in zones else "UTC")
    batch = declare_formats(pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], [name]), {name: time_format})
    return batch.schema.field(0), batch.column(0)


def _value_or_error(name: str, value: Any, time_format: TimeFormat | None) -> AttributeValue:
    """Return the attribute value of a value.

    If DynamoDB cannot store it, return an invalid number with the error as text.
    """
    try:
        if time_format is None:
            return attribute_value(value)
        if not isinstance(value, dt.date):
            return {"N": f"{type(value).__name__} {quoted(value)} is no time"}
        return {time_format.tag: str(_times(name, [value], time_format)[1][0].as_py())}
    except (SchemaError, EncodeError) as error:
        return {"N": str(error)}
    except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError):
        return {"N": f"{type(value).__name__} {quoted(value)}"}


def _invalid_members(row: Mapping[Any, Any]) -> dict[str, AttributeValue] | None:
    members = {name: value for name, value in row.items() if not is_attribute_name(name)}
    return {
        name if isinstance(name, str) else "": _value_or_error("", value, None) for name, value in members.items()
    } or None


def _json(value: Any) -> bytes:
    # Half of a surrogate pair remains an escape, which the encoder refuses.
    return compact_json(value).encode(errors="backslashreplace")


def _require_list(name: Any, values: Any) -> list[Any]:
    if not isinstance(name, str):
        raise SchemaError(f"column {name!r}: a name is text")
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise SchemaError(
            f"column {name!r} is a {type(values).__name__}, not a list of values: give one row as a list of one "
            "dictionary, [{…}]"
        )
    return list(values)


def _column_of_values(name: str, values: list[AttributeValue | None]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return attribute values as a column of their type, or of JSON if they have several types or are nested."""
    tags = set(itertools.chain.from_iterable(filter(None, values)))
    tag = tags.pop() if len(tags) == 1 else "JSON" if tags else "NULL"
    if tag == "NULL":
        return pa.field(name, pa.null()), pa.nulls(len(values))
    if tag in _TYPES:
        contents = [None if value is None else value[tag] for value in values]
        if tag == "B":
            contents = [None if content is None else decode_base64(content) for content in contents]
        with suppress(UnicodeError):
            return tagged_field(name, _TYPES[tag], tag), pa.array(contents, _TYPES[tag])
    texts = [None if value is None else _json(value) for value in values]
    return tagged_field(name, pa.string(), "JSON"), pa.array(texts, pa.string())
