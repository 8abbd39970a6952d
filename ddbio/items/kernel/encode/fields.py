"""Mapping of Arrow schemas to fields with a DynamoDB type; dates and times are written as texts or counts, exactly.

Types that DynamoDB cannot represent exactly are refused, such as calendar intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError
from ddbio.items.schema.arrow import (
    DDB_TYPE,
    RESCUE_FIELD,
    RESCUE_NAME,
    SETS,
    is_item_bytes,
    is_list,
    is_nulls,
    is_text,
    normalize_field,
    require_unique,
)


def plain_fields(schema: pa.Schema, options: Any) -> tuple[list[pa.Field[Any]], dict[str, int]]:
    """Return normalised fields, with the rescue column last, and the decimal places of counts of time by path.

    Raises
    ------
    SchemaError
        DynamoDB has no such type, a name occurs twice, or an option names a set that does not exist.
    """
    require_unique(list(schema), "schema")
    scales: dict[str, int] = {}
    fields = []
    has_rescue = False
    for name in options.sets:
        if name not in schema.names:
            raise SchemaError(
                f"{name}: named in sets, but there is no such column: known are {', '.join(schema.names)}"
            )
    for field in schema:
        if field.name == RESCUE_NAME and is_text(_plain_type(field.type, field.name, options, scales)):
            has_rescue = True
            continue
        if is_item_bytes(field) or is_nulls(field):
            continue
        plain = _plain_field(field, field.name, options, scales)
        if field.name in options.sets and DDB_TYPE not in (field.metadata or {}):
            plain = _as_set(plain)
        fields.append(normalize_field(plain, field.name))
    return [*fields, RESCUE_FIELD] if has_rescue else fields, scales


def _plain_field(field: pa.Field[Any], path: str, options: Any, scales: dict[str, int]) -> pa.Field[Any]:
    return pa.field(field.name, _plain_type(field.type, path, options, scales), metadata=field.metadata)


def _plain_type(arrow_type: Any, path: str, options: Any, scales: dict[str, int]) -> pa.DataType:  # noqa: C901, PLR0911 - one line a type
    types = pa.types
    refuse_interval(path, arrow_type)
    if is_time(arrow_type):
        scales[path] = scale_of(arrow_type, options)
        return pa.string() if format_of(arrow_type, options) == "iso" else pa.int64()
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _plain_type(arrow_type.storage_type, path, options, scales)
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return _plain_type(arrow_type.value_type, path, options, scales)
    if types.is_map(arrow_type):
        key = _plain_type(arrow_type.key_type, path, options, scales)
        return pa.map_(key, _plain_field(arrow_type.item_field, f"{path}.*", options, scales))  # type: ignore[call-overload, no-any-return] # stubs lack fields
    if types.is_nested(arrow_type) and hasattr(arrow_type, "value_field"):
        return pa.list_(_plain_field(arrow_type.value_field, f"{path}[]", options, scales))
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return pa.struct([_plain_field(member, f"{path}.{member.name}", options, scales) for member in members])
    if types.is_string_view(arrow_type):
        return pa.string()
    if types.is_binary_view(arrow_type) or types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if types.is_float16(arrow_type):
        return pa.float32()
    if types.is_decimal(arrow_type) and not types.is_decimal256(arrow_type):
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    return arrow_type  # type: ignore[no-any-return]


def _as_set(field: pa.Field[Any]) -> pa.Field[Any]:
    if not is_list(field.type):
        raise SchemaError(f"{field.name}: named in sets, but it is an Arrow {field.type}: only lists become sets")
    element = normalize_field(field.type.field(0).with_name("element"), f"{field.name}[]")
    tag = (element.metadata or {})[DDB_TYPE].decode() + "S"
    if tag not in SETS:
        raise SchemaError(f"{field.name}: named in sets, but DynamoDB has sets of text, numbers and binary only")
    return field.with_metadata({**(field.metadata or {}), DDB_TYPE: tag.encode()})  # type: ignore[dict-item] # stubs


_EXPONENTS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_MULTIPLES = {"d": 1, "s": 86_400, "ms": 86_400_000}
_LONGEST_COUNT = 19


def is_time(arrow_type: Any) -> bool:
    """Return whether the type is a date, a time of day, a timestamp or a duration."""
    return (pa.types.is_temporal(arrow_type) and not pa.types.is_interval(arrow_type)) or pa.types.is_duration(
        arrow_type
    )


def format_of(arrow_type: Any, options: Any) -> str:
    """Return the format of a type in the options: ``iso`` or a unit."""
    if pa.types.is_timestamp(arrow_type):
        return str(options.timestamps)
    if pa.types.is_date(arrow_type):
        return str(options.dates)
    return str(options.durations if pa.types.is_duration(arrow_type) else options.times)


def scale_of(arrow_type: Any, options: Any) -> int:
    """Return the decimal places that convert the unit of a column to that of the options; negative to append zeros."""
    time_format = format_of(arrow_type, options)
    if time_format == "iso" or pa.types.is_date(arrow_type):
        return 0
    return _EXPONENTS[arrow_type.unit] - _EXPONENTS[time_format]


def time_array(array: Any, options: Any) -> Any:
    """Convert an array of dates or times to texts or counts; return other arrays unchanged."""
    arrow_type = array.type
    if not is_time(arrow_type):
        return array
    time_format = format_of(arrow_type, options)
    if time_format != "iso":
        return _counts(array, time_format)
    if pa.types.is_timestamp(arrow_type):
        if arrow_type.tz is not None:
            array = array.cast(pa.timestamp(arrow_type.unit, "UTC"))
        return pc.replace_substring(array.cast(pa.string()), " ", "T")
    if pa.types.is_duration(arrow_type):
        return pc.binary_join_element_wise(
            "PT", *_seconds(array.cast(pa.int64()), _EXPONENTS[arrow_type.unit]), "S", ""
        )
    return array.cast(pa.date32() if pa.types.is_date(arrow_type) else arrow_type).cast(pa.string())


def _counts(array: Any, time_format: str) -> Any:
    arrow_type = array.type
    if pa.types.is_date(arrow_type):
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, _DAY_MULTIPLES[time_format])
    return array.cast(pa.int32()).cast(pa.int64()) if pa.types.is_time32(arrow_type) else array.cast(pa.int64())


def _seconds(counts: Any, decimals: int) -> list[Any]:
    """Return the sign, and the digits before and after the point, of counts of 10^-``decimals`` seconds."""
    integers = counts.cast(pa.decimal128(_LONGEST_COUNT, 0))
    sign = pc.if_else(pc.less(counts, pa.scalar(0)), "-", "")
    digits = pc.utf8_lpad(pc.abs(integers).cast(pa.string()), decimals + 1, "0")
    if not decimals:
        return [sign, digits]
    return [sign, pc.utf8_slice_codeunits(digits, 0, -decimals), ".", pc.utf8_slice_codeunits(digits, -decimals)]


def refuse_interval(path: str, arrow_type: Any) -> None:
    """Raise SchemaError if the type is a calendar interval."""
    if pa.types.is_interval(arrow_type):
        raise SchemaError(f"{path}: an Arrow {arrow_type} has months and days of no fixed length: write text instead")


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS = 86_400
# The first day of the year 0 and the last day of the year 9999: years in this range have four digits.
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896
_INT64 = np.iinfo(np.int64)


def unfit_times(array: Any, options: Any) -> tuple[list[int], str]:
    """Return the entries that have no text format, and the message about them; none if they are not times."""
    arrow_type = array.type
    if not is_time(arrow_type) or pa.types.is_duration(arrow_type) or not len(array):
        return [], ""
    counts: npt.NDArray[np.int64] = _raw_counts(array)
    unfit = np.zeros(len(array), np.bool_)
    if pa.types.is_date64(arrow_type):
        unfit = counts % (_DAY_SECONDS * _PER_SECOND["ms"]) != 0
    if format_of(arrow_type, options) == "iso":
        first, last = _range(arrow_type)
        unfit |= (counts < first) | (counts > last)
    return (np.flatnonzero(unfit).tolist(), _message(arrow_type)) if unfit.any() else ([], "")


def _message(arrow_type: Any) -> str:
    if pa.types.is_time(arrow_type):
        return "it is no time of a day"
    what = "no whole day within" if pa.types.is_date(arrow_type) else "not within"
    return f"it is {what} the years 0000 to 9999"


def _raw_counts(array: Any) -> Any:
    is_short = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
    return array.view(pa.int32() if is_short else pa.int64()).fill_null(0).to_numpy().astype(np.int64, copy=False)


def _range(arrow_type: Any) -> tuple[int, int]:
    if pa.types.is_date32(arrow_type):
        return _FIRST_DAY, _LAST_DAY
    per_day = _DAY_SECONDS * _PER_SECOND["ms" if pa.types.is_date64(arrow_type) else arrow_type.unit]
    if pa.types.is_time(arrow_type):
        return 0, per_day - 1
    return max(_FIRST_DAY * per_day, int(_INT64.min)), min((_LAST_DAY + 1) * per_day - 1, int(_INT64.max))
