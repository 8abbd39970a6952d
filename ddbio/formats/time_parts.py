"""Times in columns of any type (ISO 8601, seconds or finer units since 1970), and their parts."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.items.schema.arrow import is_decimal, is_float, is_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.options.format_names import TimeUnit

PARTS: dict[str, Callable[[Any], Any]] = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}
"""The parts of a time, each with the function that extracts it."""

_MICROS = pa.timestamp("us")
_ISO = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?)?$"
)
_ZONED = r"(Z|[T ].*[+-]\d\d(:?\d\d)?)$"
_NUMBER = r"^-?\d{1,18}(\.\d*)?$"
# The years 1 to 9999, which ISO 8601 writes in four digits.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Numbers of smaller magnitude have that unit: 10**11 seconds are in the year 5138, 10**11 milliseconds in 1973.
_BELOW = {"s": 10**11, "ms": 10**14, "us": 10**17}
_DATE_CHARACTERS = 10
# From 2037 on Arrow ignores daylight saving time; the standard library does not. No zone changes within a quarter hour.
_LAST_RULE, _QUARTER = 2_114_380_800_000_000, 900_000_000


def local_times(values: pa.Array[Any], unit: TimeUnit, zone: str, *, text_is_iso: bool = True) -> Any:
    """Return the times of a column as local times of a zone, in microseconds; null if a value is not a time.

    Parameters
    ----------
    values
        Text, numbers, dates or timestamps. With ``auto``, text is ISO 8601. Numbers below 10**11 are seconds, below
        10**14
        milliseconds, below 10**17 microseconds, others nanoseconds; the sign is ignored.
    zone
        Name of the time zone. Text and timestamps without a zone are already local times of it.
    text_is_iso
        Whether ``auto`` reads text as ISO 8601, or as numbers.
    """
    kind = values.type
    if pa.types.is_date(kind):
        return pc.cast(values, _MICROS)
    if pa.types.is_timestamp(kind):
        micros = pc.cast(values, pa.timestamp("us", kind.tz), safe=False)
        return micros if kind.tz is None else _in_zone(pc.cast(micros, pa.timestamp("us", "UTC")), zone)
    if is_text(kind) and (unit == "iso" or (unit == "auto" and text_is_iso)):
        return _of_text(values, zone)
    numbers, is_number = _whole_numbers(values)
    counts, is_time = _micros(numbers, unit)
    mask: Any = ~(is_number & is_time)
    instants: Any = pa.array(counts, pa.int64(), mask=mask)
    return _in_zone(instants.cast(pa.timestamp("us", "UTC")), zone)


def _in_zone(instants: Any, zone: str) -> Any:
    if zone == "UTC":
        return pc.cast(instants, _MICROS)
    local: Any = pc.local_timestamp(pc.cast(instants, pa.timestamp("us", zone)))
    micros = np.asarray(pc.fill_null(pc.cast(instants, pa.int64()), 0))
    far = np.flatnonzero(micros >= _LAST_RULE)
    if not len(far):
        return local
    shifted, own = np.asarray(pc.fill_null(pc.cast(local, pa.int64()), 0)).copy(), ZoneInfo(zone)
    quarters, quarter_indices = np.unique(micros[far] // _QUARTER, return_inverse=True)
    offsets = [_offset(quarter * (_QUARTER // 10**6), own) for quarter in quarters.tolist()]
    shifted[far] = micros[far] + np.array(offsets, np.int64)[quarter_indices]
    unknown: Any = np.asarray(pc.is_null(instants))
    return pc.cast(pa.array(shifted, pa.int64(), mask=unknown), _MICROS)


def _offset(seconds: int, zone: ZoneInfo) -> int:
    """Return the offset of a zone at an instant, in microseconds."""
    try:
        local = datetime.fromtimestamp(seconds, zone)
    except (ValueError, OverflowError):
        # The last hours of the year 9999, in zones where that year has ended.
        return 0
    return (local.utcoffset() or timedelta()) // timedelta(microseconds=1)


def _of_text(values: pa.Array[Any], zone: str) -> Any:
    text = pc.cast(values, pa.string())
    # Nearly always all values have the same format, which Arrow reads in one call.
    try:
        if text.null_count < len(text) and pc.match_substring_regex(text.drop_null()[:1], _ZONED)[0].as_py():
            return _in_zone(pc.cast(text, pa.timestamp("us", "UTC")), zone)
        return pc.cast(text, _MICROS)
    except pa.ArrowInvalid:
        pass
    text = _only(text, pc.match_substring_regex(text, _ISO))
    days: Any = pc.dictionary_encode(pc.utf8_slice_codeunits(text, 0, _DATE_CHARACTERS))
    exists = pa.array([_is_day(day) for day in days.dictionary.to_pylist()], pa.bool_())
    text = _only(text, pc.take(exists, days.indices))
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONED)
    own = _in_zone(pc.cast(_only(text, zoned), pa.timestamp("us", "UTC")), zone)
    return pc.coalesce(own, pc.cast(_only(text, pc.invert(zoned)), _MICROS))


def _only(text: pa.Array[Any], condition: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), text, pa.scalar(None, pa.string()))  # noqa: FBT003 - a value


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _whole_numbers(values: pa.Array[Any]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]:
    """Return the numbers, rounded down, and whether each of them is valid."""
    kind = values.type
    counts: Any = values
    if is_text(kind):
        counts = _only(pc.cast(counts, pa.string()), pc.match_substring_regex(counts, _NUMBER))
        rounds = pc.match_substring_regex(counts, r"^-.*\.\d*[1-9]")
        counts = pc.cast(pc.replace_substring_regex(counts, r"\..*", ""), pa.int64())
        counts = pc.subtract(counts, pc.cast(rounds, pa.int64()))
    elif is_decimal(kind):
        # A decimal below 10**18 fits into 64 bits.
        small = pc.less(pc.abs(counts), pa.scalar(10**18).cast(pa.decimal128(19, 0)))
        counts = pc.if_else(small, pc.floor(counts), pa.scalar(None, kind)).cast(pa.int64())
    elif is_float(kind):
        small = pc.less(pc.abs(counts), pa.scalar(1e18))
        counts = pc.if_else(small, pc.floor(counts), pa.scalar(None, kind)).cast(pa.int64())
    elif pa.types.is_uint64(kind):
        counts = pc.if_else(pc.less(counts, pa.scalar(1 << 63, kind)), counts, pa.scalar(None, kind)).cast(pa.int64())
    else:
        counts = pc.cast(counts, pa.int64())
    is_valid = np.asarray(pc.is_valid(counts))
    return np.asarray(pc.fill_null(counts, 0)), is_valid


def _micros(
    numbers: np.ndarray[Any, np.dtype[np.int64]], unit: TimeUnit
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]:
    """Return microseconds since 1970, and whether each is within the years 1 to 9999."""
    if unit in _PER_SECOND:
        per_second = np.full(len(numbers), _PER_SECOND[unit])
    else:
        size = np.abs(numbers)
        sizes = [size < most for most in _BELOW.values()]
        per_second = np.select(sizes, [_PER_SECOND[name] for name in _BELOW], _PER_SECOND["ns"])
    seconds = numbers // per_second
    is_time = (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND)
    micros = np.where(is_time, seconds, 0) * 1_000_000 + numbers % per_second * 1_000_000 // per_second
    return micros, is_time
