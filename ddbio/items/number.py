"""Validation and exact canonical text of DynamoDB numbers.

A number has at most 38 significant digits and a magnitude from 1E-130 to 9.99E+125, or is zero. Nothing is rounded: a
number beyond these limits is a DecodeError. ``kernel/number.py`` has the same rules, compiled.
"""

from __future__ import annotations

import re
from typing import Any

from ddbio.errors import DecodeError

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.DataTypes.Number
MAX_DIGITS = 38
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html#HowItWorks.DataTypes.Number
MIN_EXPONENT, MAX_EXPONENT = -130, 125

_CANONICAL = re.compile(r"-?[1-9][0-9]*(?:\.[0-9]*[1-9])?|-?0\.[0-9]*[1-9]|0")
_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_LONGEST_EXPONENT = 18
_LONGEST_QUOTED = 60


def canonical_number(text: str) -> str:
    """Return the canonical text of a number, as the service stores it: plain decimal, no exponent, no extra zeros.

    Zero is ``0`` regardless of its exponent. The service refuses zeros with some exponents, so no stored item has them.

    Parameters
    ----------
    text
        Any text that DynamoDB accepts: ``+1``, ``001``, ``1e3``, ``.5``.

    Raises
    ------
    DecodeError
        The text is not a number, has more than 38 significant digits, or is outside 1E-130 … 9.99E+125.
    """
    if len(text) <= MAX_DIGITS and _CANONICAL.fullmatch(text):
        return text
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise DecodeError(f"{quoted(text)} is not a DynamoDB number")
    sign, integer, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (integer + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "0"
    if len(significant) > MAX_DIGITS:
        raise DecodeError(f"{quoted(text)} has more than {MAX_DIGITS} significant digits")
    if len(exponent.lstrip("+-").lstrip("0")) > _LONGEST_EXPONENT:
        raise DecodeError(f"{quoted(text)} is outside 1E{MIN_EXPONENT} to 9.99E+{MAX_EXPONENT}")
    # The value is 0.significant x 10^point.
    point = len(digits) - len(fraction) + int(exponent)
    if not MIN_EXPONENT <= point - 1 <= MAX_EXPONENT:
        raise DecodeError(f"{quoted(text)} is outside 1E{MIN_EXPONENT} to 9.99E+{MAX_EXPONENT}")
    return ("-" if sign == "-" else "") + _plain(significant, point)


def _plain(significant: str, point: int) -> str:
    if point <= 0:
        return "0." + "0" * -point + significant
    if point >= len(significant):
        return significant + "0" * (point - len(significant))
    return significant[:point] + "." + significant[point:]


def quoted(value: Any) -> str:
    """Return a value as error messages quote it: its ``repr``, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTED else text[: _LONGEST_QUOTED - 1] + "…"
