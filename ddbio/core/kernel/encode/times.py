"""Write Arrow's dates and times as texts or as whole numbers with a scale, exactly; refuses calendar intervals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError

_EXPONENTS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_MULTIPLES = {"d": 1, "s": 86_400, "ms": 86_400_000}
_LONGEST_COUNT = 19


def is_time(arrow_type: Any) -> bool:
    """Return whether Arrow keeps the type as a date, a time of day, a moment or a duration."""
    return (pa.types.is_temporal(arrow_type) and not pa.types.is_interval(arrow_type)) or pa.types.is_duration(
        arrow_type
    )


def form_of(arrow_type: Any, options: Any) -> str:
    """Return the form that the options ask for: ``iso`` or a unit."""
    if pa.types.is_timestamp(arrow_type):
        return str(options.timestamps)
    if pa.types.is_date(arrow_type):
        return str(options.dates)
    return str(options.durations if pa.types.is_duration(arrow_type) else options.times)


def scale_of(arrow_type: Any, options: Any) -> int:
    """Return how many decimal places the count of the column's unit has in the asked unit; negative for zeros."""
    form = form_of(arrow_type, options)
    if form == "iso" or pa.types.is_date(arrow_type):
        return 0
    return _EXPONENTS[arrow_type.unit] - _EXPONENTS[form]


def time_array(array: Any, options: Any) -> Any:
    """Return texts or counts for an array of dates or times, any other array as it is."""
    given = array.type
    if not is_time(given):
        return array
    form = form_of(given, options)
    if form != "iso":
        return _counts(array, form)
    if pa.types.is_timestamp(given):
        if given.tz is not None:
            array = array.cast(pa.timestamp(given.unit, "UTC"))
        return pc.replace_substring(array.cast(pa.string()), " ", "T")
    if pa.types.is_duration(given):
        return pc.binary_join_element_wise("PT", *_seconds(array.cast(pa.int64()), _EXPONENTS[given.unit]), "S", "")
    return array.cast(pa.date32() if pa.types.is_date(given) else given).cast(pa.string())


def _counts(array: Any, form: str) -> Any:
    given = array.type
    if pa.types.is_date(given):
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply_checked(days, _DAY_MULTIPLES[form])
    return array.cast(pa.int32()).cast(pa.int64()) if pa.types.is_time32(given) else array.cast(pa.int64())


def _seconds(counts: Any, places: int) -> list[Any]:
    """Return the sign, and the digits before and behind the point, of counts of 10^-``places``."""
    whole = counts.cast(pa.decimal128(_LONGEST_COUNT, 0))
    sign = pc.if_else(pc.less(counts, pa.scalar(0)), "-", "")
    digits = pc.utf8_lpad(pc.abs(whole).cast(pa.string()), places + 1, "0")
    if not places:
        return [sign, digits]
    return [sign, pc.utf8_slice_codeunits(digits, 0, -places), ".", pc.utf8_slice_codeunits(digits, -places)]


def refuse_interval(path: str, arrow_type: Any) -> None:
    """Raise SchemaError if the type is a calendar interval."""
    if pa.types.is_interval(arrow_type):
        raise SchemaError(f"{path}: an Arrow {arrow_type} has months and days of no fixed length: write text instead")
