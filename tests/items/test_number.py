"""Validation and exact canonical text of numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import DecodeError
from ddbio.items.number import canonical_number


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("+1", "1"),
        ("001", "1"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("5.", "5"),
        ("1.10", "1.1"),
        ("1000.0", "1000"),
        ("-0", "0"),
        ("-0.00", "0"),
        ("0e-400", "0"),
        ("1e125", "1" + "0" * 125),
        ("1e-130", "0." + "0" * 129 + "1"),
        ("9" * 38 + "e88", "9" * 38 + "0" * 88),
        ("0" * 50 + "1.5", "1.5"),
        ("1e" + "0" * 30 + "5", "100000"),
        ("1E-" + "0" * 30 + "1", "0.1"),
    ],
)
def test_a_number_has_one_canonical_text(text, canonical):
    """Every text of a number has the same canonical text."""
    assert canonical_number(text) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "+", ".", "e5", "1e", " 1", "1 ", "1\n", "NaN", "Infinity", "1_0", "0x1", "\u0661", "--1", "1.2.3", "1,5"],
)
def test_no_number_is_refused(text):
    """A text that DynamoDB does not accept as a number is refused. The message quotes it."""
    with pytest.raises(DecodeError, match="is not a DynamoDB number"):
        canonical_number(text)


@pytest.mark.parametrize("text", ["1" * 39, "1." + "1" * 38])
def test_39_digits_are_refused(text):
    """A number of more than 38 significant digits is refused, not rounded."""
    with pytest.raises(DecodeError, match="38 significant digits"):
        canonical_number(text)


@pytest.mark.parametrize("text", ["1e126", "-1e126", "1e-131", "1e99999999999999999999999"])
def test_numbers_out_of_range_are_refused(text):
    """A number beyond DynamoDB's magnitudes is refused."""
    with pytest.raises(DecodeError, match="is outside 1E-130"):
        canonical_number(text)


@given(st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_the_canonical_text_keeps_the_value(text):
    """The canonical text is the same number, and its own canonical text."""
    try:
        canonical = canonical_number(text)
    except DecodeError:
        return
    assert Decimal(canonical) == Decimal(text)
    assert canonical_number(canonical) == canonical
