"""Write columns as plain JSON: a line per row, or a text per value. What JSON readers would change is text.

A number is a JSON number if it is an integer, a float, or a decimal column of at most 15 digits, which every double
keeps; wider decimals are text, and binary is base64. What is null is left out of objects, and ``null`` in lists.
"""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import EncodeError
from ddbio.items.encode import EncodeOptions
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import entries_of
from ddbio.items.kernel.encode.fields import is_time, time_array
from ddbio.items.schema.arrow import is_binary, is_decimal, is_float, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

# The stubs do not know what nested arrays have.
_Array: TypeAlias = Any

MOST_DOUBLE_DIGITS = 15
"""A double keeps every decimal of so many digits."""

_AS_ISO = EncodeOptions()
_SPECIAL = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"


def json_lines(batch: pa.RecordBatch) -> _Array:
    """Return the row of each line as a JSON object, by the names of the columns.

    Raises
    ------
    EncodeError
        If a float is no number.
    """
    return _objects(zip(batch.schema.names, batch.columns, strict=True), batch.num_rows)


def json_texts(array: _Array) -> _Array:
    """Return the JSON text of each value, null where that is null.

    Raises
    ------
    EncodeError
        If a float is no number.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        inside = _objects(
            ((kind.field(place).name, array.field(place)) for place in range(kind.num_fields)), len(array)
        )
        return _where_valid(array, inside)
    if pa.types.is_map(kind):
        offsets, keys, items = entries_of(array, array.keys, array.items)
        members = _joined(_quoted(keys, ""), json_texts(items).fill_null("null"), separator=":")
        return _around("{", _lists_of(array, offsets, members), "}")
    if is_list(kind):
        offsets, values = entries_of(array, array.values)
        return _around("[", _lists_of(array, offsets, json_texts(values).fill_null("null")), "]")
    return _scalars(array, "")


def base64_texts(array: _Array) -> _Array:
    """Return the base64 text of each binary value."""
    texts = [None if value is None else base64.b64encode(value) for value in array.to_pylist()]
    return pa.array(texts, pa.binary()).cast(pa.string())


def time_texts(array: _Array) -> _Array:
    """Return the ISO 8601 text of each time."""
    return time_array(array, _AS_ISO)


def _number_texts(array: _Array) -> _Array:
    texts: Any = array.cast(pa.string())
    if is_decimal(array.type) and array.type.scale > 0:
        # The scale is the column's: zeros behind the last digit are no part of a number.
        texts = pc.replace_substring_regex(texts, r"\.([0-9]*[1-9])?0*$", r".\1")
        texts = pc.utf8_rtrim(texts, ".")
    return texts


def _objects(members: Iterable[tuple[str, _Array]], count: int) -> _Array:
    texts = [_member(name, values) for name, values in members]
    if not texts:
        return pa.array(["{}"] * count, pa.string())
    if all(text.null_count for text in texts):
        # pyarrow 25 leaves out rows of which all is skipped.
        found = functools.reduce(pc.or_, (text.is_valid() for text in texts))
        texts[0] = pc.if_else(found, texts[0], "")
    return _around("{", pc.binary_join_element_wise(*texts, ",", null_handling="skip"), "}")


def _member(name: str, values: _Array) -> _Array:
    prefix = compact_json(name) + ":"
    if values.type.num_fields:
        return _around(prefix, json_texts(values), "")
    return _scalars(values, prefix)


def _scalars(values: _Array, prefix: str) -> _Array:
    kind = values.type
    if is_binary(kind):
        return _around(f'{prefix}"', base64_texts(values), '"')
    if is_text(kind) or is_time(kind):
        return _quoted(time_texts(values), prefix)
    if is_float(kind) and pc.all(pc.is_finite(values)).as_py() is False:
        raise EncodeError("a float that is no number has no form in JSON")
    texts = _number_texts(values)
    if is_decimal(kind) and kind.precision > MOST_DOUBLE_DIGITS:
        return _around(f'{prefix}"', texts, '"')
    return _around(prefix, texts, "") if prefix else texts


def _quoted(texts: _Array, prefix: str) -> _Array:
    return _around(f'{prefix}"', _escaped(texts.cast(pa.string())), '"')


def _escaped(texts: _Array) -> _Array:
    if not _occurs(pc.match_substring_regex(texts, _SPECIAL)):
        return texts
    for sign in '\\"':
        texts = pc.replace_substring(texts, sign, f"\\{sign}")
    if _occurs(pc.match_substring_regex(texts, _CONTROL)):
        for code in range(0x20):
            if _occurs(pc.match_substring(texts, chr(code))):
                texts = pc.replace_substring(texts, chr(code), compact_json(chr(code))[1:-1])
    return texts


def _occurs(found: Any) -> bool:
    return bool(pc.any(found).as_py())


def _around(before: str, texts: _Array, after: str) -> _Array:
    if not before and not after:
        return texts
    return pc.binary_join_element_wise(before, texts, after, "")


def _joined(first: _Array, second: _Array, *, separator: str) -> _Array:
    return pc.binary_join_element_wise(first, second, separator)


def _where_valid(array: _Array, texts: _Array) -> _Array:
    if not array.null_count:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _lists_of(array: _Array, offsets: NDArray[np.int64], texts: _Array) -> _Array:
    """Return the texts of each list's elements, joined."""
    lists: Any = pa.LargeListArray
    mask = array.is_null() if array.null_count else None
    return pc.binary_join(lists.from_arrays(pa.array(offsets), texts, mask=mask), ",")
