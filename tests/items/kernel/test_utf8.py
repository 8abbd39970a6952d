"""Detection of UTF-8, compared with Python and Arrow."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.text import broken_texts, is_utf8, load_utf8

# Both ends of every range of bytes that a table of UTF-8 distinguishes.
EDGES = [
    0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
    0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
]  # fmt: skip
PIECES = st.one_of(st.text(max_size=20).map(str.encode), st.binary(max_size=3), st.just(b"x" * 32))


def is_utf8_in_python(body):
    """Return whether Python decodes the bytes."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("before", [0, 31])
@pytest.mark.parametrize("after", [b"", b"a" * 32])
def test_all_pairs_of_bytes_are_decided_as_by_python(before, after):
    """Every sequence of up to two bytes, at any offset within a step, has Python's result."""
    for length in range(3):
        for sequence in itertools.product(range(256), repeat=length):
            body = b"a" * before + bytes(sequence) + after
            assert is_utf8(body) == is_utf8_in_python(body), body


@pytest.mark.parametrize("length", [3, 4])
def test_longer_sequences_are_decided_as_by_python(length):
    """Every sequence of three and four bytes at the edges of UTF-8's ranges has Python's result."""
    results = {bytes(sequence): is_utf8(bytes(sequence)) for sequence in itertools.product(EDGES, repeat=length)}
    assert results == {body: is_utf8_in_python(body) for body in results}


def test_every_character_is_utf8():
    """All characters, in one body and cut one byte short, have the right result."""
    characters = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])).encode()
    assert is_utf8(characters)
    assert not is_utf8(characters[:-1])
    assert not is_utf8(characters[1:].replace(b"a", b"\xed\xa0\x80"))


@given(st.lists(PIECES, max_size=12))
@example([b"x" * 31, "日".encode()])
@example([b"x" * 32, "\U0001f600".encode()[:3], b"x" * 32])
@example(["\U0001f600".encode() * 16, b"\x80"])
def test_any_bytes_are_decided_as_by_python(pieces):
    """Texts in all scripts and other bytes, of any length, have Python's result, also while they are copied."""
    body = b"".join(pieces)
    assert is_utf8(body) == is_utf8_in_python(body)
    assert is_utf8(memoryview(b"\xff" + body)[1:]) == is_utf8_in_python(body)
    target = np.full(8 + len(body) + PAD + 1, 0xFF, np.uint8)
    marks = np.zeros(len(target) // 8 + PAD, np.uint8)
    assert load_utf8(body, target, 8, marks) == is_utf8_in_python(body)
    if is_utf8_in_python(body):
        assert target.tobytes() == b"\xff" * 8 + body + b'"' * PAD + b"\xff"
        marked = np.unpackbits(marks, bitorder="little")[8 : 8 + len(body) + 1].tolist()
        assert marked == [int(byte in b'"\\' or byte < 32) for byte in body + b'"']


@given(st.lists(st.one_of(st.none(), PIECES), max_size=8), st.integers(0, 3))
@example([b"\xe6", b"\x97\xa5"], 0)
@example(["日".encode(), b"\x80", b""], 1)
def test_broken_texts_of_an_array_are_those_that_python_refuses(texts, start):
    """A text is UTF-8 by itself, not together with the next one."""
    plain = pa.array(texts, pa.large_binary()).slice(start)
    array = plain.view(pa.large_string())
    offsets = np.frombuffer(plain.buffers()[1] or bytes(8), np.int64)[plain.offset :][: len(plain) + 1]
    data = np.frombuffer(plain.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    wanted = [row for row, text in enumerate(texts[start:]) if text is not None and not is_utf8_in_python(text)]
    assert broken_texts(array, offsets, data) == wanted
