"""Find the values of Arrow arrays that no text can hold: broken UTF-8, dates and times without a form in ISO 8601."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddbio.core.kernel.encode.times import form_of, is_time
from ddbio.core.kernel.utf8 import is_utf8

NOT_UTF8 = "the text is not UTF-8"

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS = 86_400
# The first day of the year 0 and the last of the year 9999: years between have four digits.
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896
_FIRST_BITS, _GOES_ON = 0xC0, 0x80
_INT64 = np.iinfo(np.int64)


def broken_texts(array: Any, offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> list[int]:
    """Return which entries are not UTF-8.

    Parameters
    ----------
    array
        Texts with offsets.
    offsets
        Where each begins, and where the last ends.
    data
        All their bytes, from the first offset on.
    """
    if not len(data) or data.view(np.int8).min() >= 0:
        return []
    starts = offsets[: np.searchsorted(offsets, offsets[-1])] - offsets[0]
    # Texts side by side are UTF-8 where all their bytes are, and none begins within a character.
    if is_utf8(data) and not (data[starts] & _FIRST_BITS == _GOES_ON).any():
        return []
    texts = array.cast(pa.large_binary()).to_pylist()
    return [entry for entry, text in enumerate(texts) if text is not None and not _is_utf8(text)]


def _is_utf8(text: bytes) -> bool:
    # For one short text Python's own check is quicker to call.
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def unfit_times(array: Any, options: Any) -> tuple[list[int], str]:
    """Return which entries have no form, and what to tell of them; none, where the array holds no times."""
    given = array.type
    if not is_time(given) or pa.types.is_duration(given) or not len(array):
        return [], ""
    counts: npt.NDArray[np.int64] = _counts(array)
    unfit = np.zeros(len(array), np.bool_)
    if pa.types.is_date64(given):
        unfit = counts % (_DAY_SECONDS * _PER_SECOND["ms"]) != 0
    if form_of(given, options) == "iso":
        first, last = _range(given)
        unfit |= (counts < first) | (counts > last)
    return (np.flatnonzero(unfit).tolist(), _message(given)) if unfit.any() else ([], "")


def _message(given: Any) -> str:
    if pa.types.is_time(given):
        return "it is no time of a day"
    what = "no whole day within" if pa.types.is_date(given) else "not within"
    return f"it is {what} the years 0000 to 9999"


def _counts(array: Any) -> Any:
    is_short = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
    return array.view(pa.int32() if is_short else pa.int64()).fill_null(0).to_numpy().astype(np.int64, copy=False)


def _range(given: Any) -> tuple[int, int]:
    if pa.types.is_date32(given):
        return _FIRST_DAY, _LAST_DAY
    per_day = _DAY_SECONDS * _PER_SECOND["ms" if pa.types.is_date64(given) else given.unit]
    if pa.types.is_time(given):
        return 0, per_day - 1
    return max(_FIRST_DAY * per_day, int(_INT64.min)), min((_LAST_DAY + 1) * per_day - 1, int(_INT64.max))
