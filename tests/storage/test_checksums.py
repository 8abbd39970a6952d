"""Checksums of each mebibyte, computed by writes and verified by reads; and those of S3, by their definition."""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddbio
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import folder_files
from ddbio.errors import DecodeError, TargetError
from ddbio.formats.manifests import look_up
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.schema.arrow import RESCUE_FIELD, normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.storage.checksums import BLOCK_BYTES, CRC_POLYNOMIALS, ChecksumSink, checked, checksum
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.staged import FileNaming
from ddbio.storage.states import add_checksum, has_valid_checksum

PATH = "part-job-00000-0-0000.csv"
SIZE_BYTES = 3 * BLOCK_BYTES + 100
TABLE = pa.table({"pk": [f"k{number}" for number in range(1000)], "n": pa.array(range(1000), pa.int64())})


class _Pieces(LocalStore):
    """Store whose pieces end anywhere, like those of S3."""

    def read_chunks(self, path):
        """Yield uneven pieces."""
        data = self.read(path)
        for start in range(0, len(data), 300_001):
            yield data[start : start + 300_001]


@pytest.fixture(params=[LocalStore, _Pieces])
def stored(request, tmp_path):
    """Return a store, an entry with checksums, and the bytes of its object."""
    store, data = request.param(tmp_path), random.Random(1).randbytes(SIZE_BYTES)
    sink = ChecksumSink(store.create(PATH))
    chance, at = random.Random(2), 0
    while at < SIZE_BYTES:
        step = chance.choice([1, 1000, 700_000, 2_500_000])
        at += sink.write(pa.py_buffer(data[at : at + step]) if step == 1000 else data[at : at + step])
    staged = sink.finish(0)
    store.complete(staged)
    return store, replace(next(store.list(PATH)), crc32=staged.crc32), data


def flip(path, index=None):
    """Change one byte of a file, by default one in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if index is None else index] ^= 1
    # Published copies may be links to the file.
    path.unlink()
    path.write_bytes(data)


def test_each_mebibyte_has_its_crc32(stored):
    """There is a CRC-32 of each mebibyte and of the remainder, for any pieces."""
    _, entry, data = stored
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, SIZE_BYTES, BLOCK_BYTES)]
    assert base64.b64decode(entry.crc32) == b"".join(zlib.crc32(block).to_bytes(4, "big") for block in blocks)


def test_intact_objects_are_read_unchanged(stored):
    """Objects are read completely, in pieces and by any ranges, some of them twice."""
    store, entry, data = stored
    reader, chance = checked(store, entry), random.Random(3)
    assert reader.read(PATH) == b"".join(checked(store, entry).read_chunks(PATH)) == data
    reader = checked(store, entry)
    for _ in range(100):
        start, length = chance.randrange(SIZE_BYTES), chance.choice([1, 100, 100_000, 2_000_000, SIZE_BYTES])
        assert reader.read_range(entry, start, length) == data[start : start + length]


@pytest.mark.parametrize("index", [0, BLOCK_BYTES - 1, BLOCK_BYTES, SIZE_BYTES - 1])
def test_a_changed_byte_is_found_by_whoever_reads_its_block(stored, index):
    """The error names the file and the block; the contents of other blocks can be read."""
    store, entry, data = stored
    flip(Path(store.uri, PATH), index)
    begin = index // BLOCK_BYTES * BLOCK_BYTES
    end = min(begin + BLOCK_BYTES, SIZE_BYTES)
    message = f"{PATH} is damaged: its bytes {begin:,} to {end:,} are not those that were written"
    for read in (
        lambda reader: reader.read(PATH),
        lambda reader: list(reader.read_chunks(PATH)),
        lambda reader: reader.read_range(entry, begin, 1),
        lambda reader: reader.read_range(entry, end - 1, 10),
        lambda reader: reader.read_range(entry, 0, SIZE_BYTES),
    ):
        with pytest.raises(DecodeError, match=message):
            read(checked(store, entry))
    other = BLOCK_BYTES if begin == 0 else 0
    assert checked(store, entry).read_range(entry, other, 9) == data[other : other + 9]


@pytest.mark.parametrize("size", [0, BLOCK_BYTES - 1, BLOCK_BYTES, SIZE_BYTES - 1, SIZE_BYTES + 1, 5 * BLOCK_BYTES])
def test_an_object_that_became_shorter_or_longer_is_refused(stored, size):
    """The error is raised also if the object ends with a block."""
    store, entry, data = stored
    Path(store.uri, PATH).write_bytes((data + bytes(5 * BLOCK_BYTES))[:size])
    with pytest.raises(DecodeError, match="is damaged"):
        checked(store, entry).read(PATH)
    with pytest.raises(DecodeError, match="is damaged"):
        list(checked(store, entry).read_chunks(PATH))
    if size < SIZE_BYTES:
        with pytest.raises(DecodeError, match="is damaged"):
            checked(store, entry).read_range(entry, SIZE_BYTES - 2, 2)


def written(folder, name, compression=None):
    """Write rows as a job does, and return the path of the file."""
    store, schema = LocalStore(folder), normalize_schema(TABLE.schema)
    with publishing(Target(store=store, mode="error"), "job") as publish:
        writer = RollingWriter(store, FileNaming("job", 0), schema, FileOptions(format=name, compression=compression))
        for batch in TABLE.append_column(RESCUE_FIELD, pa.nulls(len(TABLE), pa.string())).to_batches():
            writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        publish(writer.finish(), CommitInfo(created_at="", source={}, schema=schema_to_json(schema)))
    return folder / folder_files(store).files[0].path


@pytest.mark.parametrize(
    ("name", "compression", "has_checksums"),
    [
        ("csv", "none", True),
        ("csv", "gzip", True),
        ("json", "zstd", True),
        ("dynamodb-json", "gzip", True),
        ("orc", "none", True),
        ("avro", "gzip", True),
        ("avro", "zstd", False),
        ("parquet", "none", False),
    ],
)
def test_manifests_have_the_checksums_that_formats_lack(tmp_path, name, compression, has_checksums):
    """Parquet, and Avro with some codecs, verify pages and blocks themselves."""
    written(tmp_path, name, compression)
    store = LocalStore(tmp_path)
    (entry,) = folder_files(store).files
    (file,) = read_state(store, manifest_path("job"))["files"]
    assert ("crc32" in file) == has_checksums
    assert look_up(store, [entry]).with_checksums(entry).crc32 == file.get("crc32")


def test_whoever_reads_rows_refuses_a_damaged_file(tmp_path):
    """Digests, validations, compactions and published copies raise; a copy under another name is another file."""
    source = tmp_path / "rows"
    path = written(source, "csv", "none")
    digest = ddbio.digest(source)
    ddbio.publish(source, tmp_path / "whole")
    flip(path)
    message = "is damaged: its bytes 0 to"
    for read in (
        lambda: ddbio.digest(source),
        lambda: ddbio.digest(path),
        lambda: ddbio.validate(TABLE, source, key="pk"),
        lambda: ddbio.compact(source, format="parquet"),
    ):
        with pytest.raises(DecodeError, match=message):
            read()
    ddbio.publish(source, tmp_path / "damaged")
    with pytest.raises(DecodeError, match=message):
        ddbio.digest(tmp_path / "damaged")
    assert ddbio.digest(tmp_path / "whole") == digest
    path.rename(tmp_path / "other.csv")
    assert ddbio.digest(tmp_path / "other.csv") != digest


def test_a_file_of_another_size_is_not_verified(tmp_path):
    """A user who adds a line to a text file does it on purpose."""
    path = written(tmp_path, "csv", "none")
    digest = ddbio.digest(tmp_path)
    path.write_bytes(path.read_bytes() + b'"new",1,\n')
    assert ddbio.digest(tmp_path) != digest


def test_manifests_of_older_releases_are_read(tmp_path):
    """They have no checksums, neither of files nor of themselves."""
    path = written(tmp_path, "csv", "none")
    manifest = tmp_path / manifest_path("job")
    text = manifest.read_text()
    without = text[: text.rindex(",\n")] + "\n}"
    manifest.write_text(without.replace('"crc32"', '"other"'))
    expected = ddbio.digest(tmp_path)
    flip(path, path.read_bytes().index(b"k500"))
    assert ddbio.digest(tmp_path) != expected


def test_a_damaged_manifest_is_an_error(tmp_path):
    """The manifest has the types of text: rows read without them would have other types."""
    written(tmp_path, "csv", "none")
    flip(tmp_path / manifest_path("job"))
    with pytest.raises(TargetError, match=r"job\.json is damaged"):
        ddbio.digest(tmp_path)


def test_the_checksum_of_a_text_detects_changes():
    """Any other byte before the checksum is detected; a text without a checksum is accepted."""
    text = add_checksum('{"a": [1, "é"]}')
    assert has_valid_checksum(text)
    assert has_valid_checksum(b'{"a": 1}')
    for index in range(text.index(b",\n")):
        assert not has_valid_checksum(text[:index] + bytes([text[index] ^ 4]) + text[index + 1 :])


def by_definition(algorithm, data):
    """Divide bit by bit."""
    polynomial, bits = CRC_POLYNOMIALS[algorithm]
    ones = state = (1 << bits) - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ polynomial * (state & 1)
    return (state ^ ones).to_bytes(bits // 8, "big")


@pytest.mark.parametrize(("algorithm", "check"), [("CRC32C", "e3069283"), ("CRC64NVME", "ae8b14860a799888")])
def test_the_published_check_value(algorithm, check):
    """The nine digits have the checksum of the catalogue of CRCs, and an empty text has an empty one."""
    assert checksum(algorithm, b"123456789").hex() == check
    assert not any(checksum(algorithm, b""))


@given(st.sampled_from(sorted(CRC_POLYNOMIALS)), st.binary(max_size=40))
def test_bytes_of_any_length(algorithm, data):
    """Complete words and the remaining bytes have the checksum of the definition, at any alignment."""
    assert checksum(algorithm, data) == by_definition(algorithm, data)
    assert checksum(algorithm, memoryview(b"x" + data)[1:]) == by_definition(algorithm, data)
