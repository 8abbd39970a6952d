"""Members are found at all positions, and only members."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items.kernel.members import Marks, Openings


@pytest.mark.parametrize("size", range(20))
def test_base64_of_any_length_is_decoded(size):
    """Values of each length after whole words are unchanged, and any other character is refused."""
    data = bytes(range(250, 250 - size, -1))
    text = base64.b64encode(data)
    (decoded,) = Openings((b"Data",), base64=0).find(b'{"Data":"' + text + b'"}')
    assert decoded.to_pylist() == [data + b"\n"]
    for position in range(len(text)):
        for byte in (b"-", b"\n", b"\x80"):
            broken = text[:position] + byte + text[position + 1 :]
            assert Openings((b"Data",), base64=0).find(b'{"Data":"' + broken + b'"}') is None


TEXTS = (b"ab", b"abc", b"ba" + b"c" * 30, b"\x80\xff\x80", b"abababab", b"ababababc")


@given(
    st.lists(st.sampled_from([*TEXTS, b"a", b"b", b"c", b"\x80", b"." * 31, b"ba" + b"c" * 29]), max_size=40),
    st.integers(0, 70),
)
def test_the_occurring_marks_are_found(parts, before):
    """They are found at any position, between any texts, and not if the text ends within one."""
    text = b"-" * before + b"".join(parts)
    assert Marks(*TEXTS).find(text) == {text_ for text_ in TEXTS if text_ in text}
