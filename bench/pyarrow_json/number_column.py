"""Vectorised and exact cast of a column of number texts.

It raises for every notation in which Arrow's casts are lenient or wrong: hexadecimal, exponents, and more digits than a
decimal has, which wrap around silently. Then the reference decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.pyarrow_json.text_column import text_bytes, text_offsets
from ddbio.errors import DecodeError
from ddbio.items.number import MAX_DIGITS, canonical_number
from ddbio.items.schema.arrow import MAX_FLOAT32, is_decimal, is_float, is_text

_CANONICAL = r"\A(?:-?[1-9][0-9]*(?:\.[0-9]*[1-9])?|-?0\.[0-9]*[1-9]|0)\z"


def cast_numbers(texts: pa.StringArray, arrow_type: pa.DataType) -> pa.Array[Any]:
    """Return the numbers in ``arrow_type``; null stays null.

    Raises
    ------
    DecodeError, pyarrow.ArrowException
        If a text has another notation than plain decimal, or does not fit the type.
    """
    longest = int(np.diff(text_offsets(texts)).max(initial=0))
    if is_text(arrow_type):
        return _canonical_texts(texts, longest).cast(arrow_type)
    characters = text_bytes(texts)
    if longest > MAX_DIGITS or (len(characters) and not ord("-") <= characters.min() <= characters.max() <= ord("9")):
        raise DecodeError("a number that is not spelled plainly")
    if is_decimal(arrow_type):
        return _decimals(texts, arrow_type, longest)
    if is_float(arrow_type):
        return _floats(texts, arrow_type)
    return texts.cast(arrow_type)


def _canonical_texts(texts: pa.StringArray, longest: int) -> pa.StringArray:
    if longest <= MAX_DIGITS and pc.all(pc.match_substring_regex(texts, _CANONICAL), min_count=0).as_py():
        return texts
    return pa.array([None if text is None else canonical_number(text) for text in texts.to_pylist()], pa.string())


def _decimals(texts: pa.StringArray, arrow_type: Any, longest: int) -> pa.Array[Any]:
    # Arrow scales up before it checks the precision: with digits for both, nothing can wrap around.
    if longest + arrow_type.scale <= MAX_DIGITS:
        return texts.cast(arrow_type)
    roomy = pa.decimal256(2 * MAX_DIGITS, arrow_type.scale)
    return texts.cast(roomy).cast(arrow_type)


def _floats(texts: pa.StringArray, arrow_type: pa.DataType) -> pa.Array[Any]:
    numbers = texts.cast(pa.float64())
    largest = pc.max(pc.abs(numbers)).as_py() or 0.0
    if pa.types.is_float32(arrow_type) and largest > MAX_FLOAT32:
        raise DecodeError("a number beyond float32")
    return numbers.cast(arrow_type)
