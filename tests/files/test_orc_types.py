from __future__ import annotations

import pyorc
import pytest

from ddbio.files.local_store import LocalStore
from ddbio.files.orc_types import unwritable_type

KINDS = pyorc.CompressionKind


def written(folder, kind, codec, columns=1):
    """Return what is found of a file of pyorc."""
    many = "".join(f",column_{number}:int" for number in range(columns))
    with (folder / "x.orc").open("wb") as file, pyorc.Writer(file, f"struct<v:{kind}{many}>", compression=codec):
        pass
    store = LocalStore(str(folder))
    return unwritable_type(store, next(iter(store.list())))


@pytest.mark.parametrize("codec", [KINDS.NONE, KINDS.ZLIB, KINDS.SNAPPY, KINDS.LZ4, KINDS.ZSTD], ids=str)
@pytest.mark.parametrize(("kind", "found"), [
    ("char(5)", "char"),
    ("varchar(5)", "varchar"),
    ("array<map<string,struct<c:char(1)>>>", "char"),
    ("uniontype<int,varchar(2)>", "uniontype, varchar"),
    ("struct<s:string,t:timestamp,d:decimal(10,2),b:tinyint>", ""),
])  # fmt: skip
def test_types_are_found_with_every_codec(tmp_path, kind, found, codec):
    """Nested ones, too, and in a footer that is longer than what is read first."""
    assert written(tmp_path, kind, codec) == found
    assert written(tmp_path, kind, codec, columns=3000) == found


@pytest.mark.parametrize(
    "data", [b"", b"ORC", b"\x00" * 100, b"\xff" * 100, b"ORC\x08\x80\x80\x80\x05\x05", b"\x0a\x09\x01"]
)
def test_a_damaged_footer_tells_nothing(tmp_path, data):
    """Who reads the rows says what is wrong."""
    (tmp_path / "x.orc").write_bytes(data)
    store = LocalStore(str(tmp_path))
    assert [unwritable_type(store, entry) for entry in store.list()] == [""]
