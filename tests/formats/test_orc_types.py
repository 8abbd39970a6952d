from __future__ import annotations

import random
import tracemalloc
import zlib

import pyorc
import pytest

from ddbio.formats.orc import unwritable_type
from ddbio.storage.local_store import LocalStore

ZEROS = zlib.compress(bytes(1 << 27), 1, wbits=-15)
KINDS = pyorc.CompressionKind


def written(folder, kind, codec, columns=1):
    """Return the unwritable type of a file of pyorc."""
    names = (random.Random(number).randbytes(500).hex() for number in range(columns))
    many = "".join(f",c{name}:int" for name in names)
    with (folder / "x.orc").open("wb") as file, pyorc.Writer(file, f"struct<v:{kind}{many}>", compression=codec):
        pass
    store = LocalStore(str(folder))
    return unwritable_type(store, next(iter(store.list())))


@pytest.mark.parametrize(
    ("kind", "unwritable", "codec"),
    [
        ("char(5)", "char", KINDS.NONE),
        ("varchar(5)", "varchar", KINDS.ZLIB),
        ("array<map<string,struct<c:char(1)>>>", "char", KINDS.SNAPPY),
        ("uniontype<int,varchar(2)>", "uniontype, varchar", KINDS.LZ4),
        ("uniontype<int,varchar(2)>", "uniontype, varchar", KINDS.ZSTD),
        ("struct<s:string,t:timestamp,d:decimal(10,2),b:tinyint>", "", KINDS.ZLIB),
    ],
    ids=str,
)
def test_types_are_found_with_every_codec(tmp_path, kind, unwritable, codec):
    """Nested types are found, too, and those in a footer that is longer than the first read."""
    assert written(tmp_path, kind, codec) == unwritable
    assert written(tmp_path, kind, codec, columns=100) == unwritable


@pytest.mark.parametrize(
    "data", [b"", b"ORC", b"\x00" * 100, b"\xff" * 100, b"ORC\x08\x80\x80\x80\x05\x05", b"\x0a\x09\x01"]
)
def test_a_damaged_footer_has_no_types(tmp_path, data):
    """Reading the rows raises the error."""
    (tmp_path / "x.orc").write_bytes(data)
    store = LocalStore(str(tmp_path))
    assert [unwritable_type(store, entry) for entry in store.list()] == [""]


def number(value):
    """Return a number in the encoding of Protocol Buffers."""
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


@pytest.mark.parametrize(
    ("footer", "facts"),
    [
        pytest.param(b"\x80" * 2_000_000, b"", id="a number of megabytes"),
        pytest.param(
            (len(ZEROS) << 1).to_bytes(3, "little") + ZEROS, b"\x10\x01\x18\x00", id="a block of no bytes that is large"
        ),
        pytest.param(b"\x0a\x00\x00abcde", b"\x10\x04\x18" + number(1 << 40), id="a block of a terabyte"),
        pytest.param(b"\x0a\x00\x00abcde", b"\x10\x04\x18" + number((1 << 63) - 1), id="a block beyond 64 bits"),
        pytest.param(b"\x0a\x00\x00abcde", b"\x10\x02\x18" + number(5), id="snappy that is none"),
    ],
)
def test_a_hostile_footer_takes_no_time_or_memory(tmp_path, footer, facts):
    """The size that a footer claims is not allocated, and a number has at most ten bytes."""
    script = b"\x08" + number(len(footer)) + facts
    (tmp_path / "x.orc").write_bytes(b"ORC" + footer + script + bytes([len(script)]))
    store = LocalStore(str(tmp_path))
    tracemalloc.start()
    try:
        assert [unwritable_type(store, entry) for entry in store.list()] == [""]
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    finally:
        tracemalloc.stop()
