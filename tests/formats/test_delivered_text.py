"""Text as Firehose compresses it, and detection of other formats."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import zipfile

import pyarrow as pa
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.delivered_text import delivered_head, delivered_text

TEXT = b"".join(b'{"eventName":"INSERT","n":%d}' % number for number in range(20_000))


def blocks(data, size):
    """Yield blocks of raw Snappy."""
    for start in range(0, len(data), size):
        yield bytes(pa.Codec("snappy").compress(data[start : start + size]))


def java(data):
    """Return the stream of snappy-java, which Firehose calls Snappy."""
    parts = (struct.pack(">i", len(block)) + block for block in blocks(data, 32 << 10))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(parts)


def hadoop(data, size=100_000):
    """Return Hadoop's blocks of several parts."""
    text = b""
    for start in range(0, len(data), 2 * size):
        part = data[start : start + 2 * size]
        text += struct.pack(">i", len(part))
        text += b"".join(struct.pack(">i", len(block)) + block for block in blocks(part, size))
    return text


def framed(data):
    """Return the stream of Google's framing, with a chunk to be skipped and one that is not compressed."""
    text = b"\xff\x06\x00\x00sNaPpY\xfe\x02\x00\x00xx\x01\x05\x00\x00\0\0\0\0" + data[:1]
    for block in blocks(data[1:], 64 << 10):
        text += b"\x00" + (len(block) + 4).to_bytes(3, "little") + b"\0\0\0\0" + block
    return text


def zipped(data):
    """Return an archive of one entry."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("4f3c", data)
    return out.getvalue()


FORMATS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "ZIP": zipped,
    "java": java,
    "hadoop": hadoop,
    "framed": framed,
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", [TEXT, TEXT[:29]], ids=["long", "short"])
def test_text_comes_whole(form, text):
    """Text is read in every format, also from the head, unless only the complete object can be decompressed."""
    data = FORMATS[form](text)
    assert delivered_text(data, "o") == text
    head = delivered_head(data[:5000], "o", 1000)
    needs_complete_object = form in {"ZIP", "java", "hadoop", "framed"} or (form == "bzip2" and len(data) > 5000)
    assert head is None if needs_complete_object else text.startswith(head[:29])


@pytest.mark.parametrize("cut", [7, 30, 5000])
@pytest.mark.parametrize("form", ["gzip", "ZIP", "java", "hadoop", "framed"])
def test_what_ends_early_is_refused(form, cut):
    """Truncated objects are refused with their name."""
    with pytest.raises(DecodeError, match=r"^year/o is not a whole (gzip|ZIP|Snappy) file"):
        delivered_text(FORMATS[form](TEXT)[:-cut], "year/o")


@pytest.mark.parametrize(
    "data",
    [
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 6) + b"\xff\xff\xff\xff\x0fx",
        b"\xff\x06\x00\x00sNaPpY\x02\x01\x00\x00x",
        b"\x00\x00\x00\x09\x00\x00\x00\x05hello",
        b"\x00",
        b"PK\x03\x04" + bytes(40),
    ],
    ids=["bomb", "unknown chunk", "no blocks", "one byte", "no archive"],
)
def test_what_is_damaged_is_refused(data):
    """A length that no compression reaches is refused."""
    with pytest.raises(DecodeError, match="o is not a whole"):
        delivered_text(data, "o")


@pytest.mark.parametrize(
    ("data", "path", "name"),
    [
        (b"a,b\n1,2\n", "o.csv", "CSV"),
        (gzip.compress(b"a,b\n1,2\n"), "in/o.csv.gz", "CSV"),
        (b"Obj\x01\x04", "o", "Avro"),
        (b"ARROW1\x00\x00", "o", "an Arrow file"),
        (b"\xfd7zXZ\x00", "o.xz", "xz"),
    ],
    ids=["CSV", "CSV in gzip", "Avro", "Arrow", "xz"],
)
def test_other_formats_are_named(data, path, name):
    """Other formats are refused by name, for the head of an object and for all of it."""
    for read in (lambda: delivered_text(data, path), lambda: delivered_head(data, path, 1000)):
        with pytest.raises(DecodeError, match=f"^{path} is {name}: changes are read from JSON"):
            read()
    assert delivered_text(b'{"a":1}', "o.csv") == b'{"a":1}'
