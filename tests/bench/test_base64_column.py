from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.pyarrow_json.base64_column import decode_base64_column
from ddbio.errors import DecodeError
from ddbio.items.attribute import decode_base64, encode_base64


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(0, 3))
def test_a_column_decodes_as_its_values_do(values, offset):
    """Every value survives a round trip, also nulls and slices."""
    texts = pa.array([None if value is None else encode_base64(value) for value in values], pa.string())
    decoded = decode_base64_column(texts.slice(offset))
    decoded.validate(full=True)
    assert decoded.to_pylist() == values[offset:]


@given(st.lists(st.text("ABz9+/=-_ \n\0é", max_size=9), max_size=3))
def test_a_column_refuses_what_a_value_refuses(texts):
    """Text that is not base64 is refused in a column exactly where it is refused alone."""

    def plainly():
        return [decode_base64(text) for text in texts]

    def as_column():
        return decode_base64_column(pa.array(texts, pa.string())).to_pylist()

    outcomes = []
    for decode in (plainly, as_column):
        try:
            outcomes.append(decode())
        except DecodeError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "text", ["YQ", "YQ=", "=YQ=", "YQ==YQ==", "Y===", "====", "AAAA=", "AAAA====", "YQ-_", "YQ= ", "YÿÿQ"]
)
def test_broken_base64_is_refused(text):
    """Missing or misplaced padding and other characters are refused, also among valid values."""
    with pytest.raises(DecodeError):
        decode_base64_column(pa.array(["YWJj", text, "YQ=="]))
    with pytest.raises(DecodeError, match="is not base64"):
        decode_base64(text)
