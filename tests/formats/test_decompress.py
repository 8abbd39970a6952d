"""Inflating: complete lines, exact bytes, bounded memory, no bombs."""

import bz2
import collections
import gzip
import hashlib
import random
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import DecodeError
from ddbio.formats.decompress import BLOCK_BYTES, GzipReader, decompress, line_blocks
from ddbio.items import expansion


def pieces(data: bytes, size: int) -> list[bytes]:
    """Return data in pieces of ``size`` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 400), st.integers(1, 3))
def test_text_and_checksum_survive_any_cut(lines, size, members):
    """The text is complete and the MD5 is that of the file, for all pieces and numbers of members."""
    text = b"\n".join(lines)
    data = gzip.compress(text, mtime=0) * members
    reader = GzipReader(pieces(data, size), "f")
    assert b"".join(map(bytes, reader)) == text * members
    assert reader.md5() == hashlib.md5(data).digest()
    assert (reader.raw_bytes, reader.text_bytes) == (len(data), len(text) * members)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("text", [b"", b"a\nb", b"".join(b"%d%s\n" % (n, b"x" * (n % 500)) for n in range(40_000))])
def test_any_text_comes_in_blocks(pack, text):
    """Text, compressed or not, arrives completely, in blocks that end at line ends."""
    blocks = [bytes(block) for block in line_blocks(pieces(pack(text), 100_000), "f")]
    assert b"".join(blocks) == text
    assert all(block.endswith(b"\n") and len(block) <= 2 * BLOCK_BYTES for block in blocks[:-1])
    assert (len(blocks) > 2) == (len(text) > 3 * BLOCK_BYTES // 2)


def test_blocks_end_where_lines_end():
    """Every block but the last ends with a line, and is not much larger than it should be."""
    text = b"".join(b"%d%s\n" % (number, b"x" * (number % 500)) for number in range(40_000))
    blocks = [bytes(block) for block in GzipReader(pieces(gzip.compress(text), 10_000), "f")]
    assert b"".join(blocks) == text
    assert len(blocks) > 2
    assert all(block.endswith(b"\n") and len(block) <= 2 * BLOCK_BYTES for block in blocks)


def test_longest_lines_pass():
    """Lines of 20 MB, longer than any item's, arrive completely."""
    lines = [b"a" * 20_000_000 + b"\n", b"b" * 20_000_000 + b"\n"]
    assert b"".join(map(bytes, GzipReader(pieces(gzip.compress(b"".join(lines), 1), 1 << 20), "f"))) == b"".join(lines)


def test_line_beyond_any_item_is_refused():
    """A line that is longer than any item's ends the reading before all of it is in memory."""
    data = gzip.compress(b"\n" + b"a1b2" * 30_000_000, 1)
    with pytest.raises(DecodeError, match="f has a line"):
        list(GzipReader(pieces(data, 1 << 16), "f"))


def test_densest_item_passes():
    """Lines of one repeated letter, which deflate best of all items, pass in files of any size."""
    text = (b'{"Item":{"a":{"S":"' + b"a" * 380_000 + b'"}}}\n') * 250
    data = gzip.compress(text, 9)
    assert len(text) / len(data) > 850
    assert sum(map(len, GzipReader(pieces(data, 1 << 16), "f"))) == len(text)


def test_bomb_is_refused_in_little_memory(monkeypatch):
    """Text that inflates beyond the limit is refused, and never in memory."""
    monkeypatch.setattr(expansion, "FREE_BYTES", 1 << 20)
    deflater = zlib.compressobj(9, wbits=31)
    data = b"".join(deflater.compress(b"\n" * (1 << 20)) for _ in range(100)) + deflater.flush()
    assert 100 * (1 << 20) / len(data) > 1000
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="1000 times"):
            collections.deque(GzipReader(iter([data]), "f"), maxlen=0)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [0, 1, 5, 12, 30, -9, -1])
def test_file_that_ends_early_is_refused(cut):
    """A truncated gzip file is refused."""
    data = gzip.compress(b"some text\n" * 10)[:cut]
    with pytest.raises(DecodeError, match="f ends early"):
        list(GzipReader([data] if data else [], "f"))


@pytest.mark.parametrize("index", [0, 3, 15, -5])
def test_broken_file_is_refused(index):
    """A wrong byte in header, text or checksum is an error."""
    data = bytearray(gzip.compress(bytes(range(256)) * 4))
    data[index] ^= 0xFF
    with pytest.raises(DecodeError, match="f "):
        list(GzipReader([bytes(data)], "f"))


def test_rest_after_the_file_is_refused():
    """Bytes after the last member are not accepted."""
    with pytest.raises(DecodeError, match="f is not a gzip file"):
        list(GzipReader([gzip.compress(b"text") + b"rest of something else"], "f"))


def test_checksum_covers_bytes_that_were_not_inflated():
    """The MD5 is that of the complete file, even if reading ended early."""
    data = gzip.compress(b"x\n" * BLOCK_BYTES)
    reader = GzipReader(pieces(data, 100), "f")
    next(iter(reader))
    assert reader.md5() == hashlib.md5(data).digest()


def packed(codec: str, blocks: list[bytes]) -> bytes:
    """Return blocks compressed by a codec of this name."""
    if codec == "gzip":
        return gzip.compress(b"".join(blocks), 9)
    if codec == "bz2":
        return bz2.compress(b"".join(blocks))
    deflater = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(map(deflater.compress, blocks)) + deflater.flush()


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bz2"])
@pytest.mark.parametrize(("text", "message"), [(b"\n", "1000 times"), (b"a", "a line of more than|1000 times")])
def test_no_codec_expands_beyond_all_measure(monkeypatch, codec, text, message):
    """Empty lines, and a line without end, end the reading soon, both by lines and in one step."""
    monkeypatch.setattr(expansion, "FREE_BYTES", 4 << 20)
    monkeypatch.setattr("ddbio.formats.decompress.FREE_BYTES", 4 << 20)
    data = packed(codec, [text * (1 << 20)] * 100)
    with pytest.raises(DecodeError, match=message):
        collections.deque(line_blocks([data], "f", 16 << 20), maxlen=0)
    with pytest.raises(DecodeError, match="1000 times"):
        decompress(data, "f")


@pytest.mark.parametrize("codec", ["plain", "gzip", "zstd", "bz2"])
def test_a_line_has_a_largest_size_in_every_codec(codec):
    """A line above the limit is refused, with every compression."""
    chunks = [bytes(range(11, 256)) * 5000] * 8
    data = b"".join(chunks) if codec == "plain" else packed(codec, chunks)
    with pytest.raises(DecodeError, match="f has a line of more than 6000000 bytes"):
        collections.deque(line_blocks(pieces(data, 1 << 16), "f", 6_000_000), maxlen=0)
    assert sum(map(len, line_blocks(pieces(data, 1 << 16), "f", 16_000_000))) == sum(map(len, chunks))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bz2"])
def test_what_is_inflated_in_one_step_is_limited(monkeypatch, codec):
    """A file that can only be read completely may not exceed a size, at any ratio."""
    monkeypatch.setattr("ddbio.formats.decompress.MAX_UNSPLIT_BYTES", 3_000_000)
    monkeypatch.setattr("ddbio.formats.decompress.FREE_BYTES", 1_000_000)
    text = random.Random(1).randbytes(2_900_000)
    assert decompress(packed(codec, [text]), "f") == text
    with pytest.raises(DecodeError, match="3,000,000 bytes in one step: decompress it before"):
        decompress(packed(codec, [text, text]), "f")
