from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.errors import TargetError
from ddbio.formats import rolling_writer
from ddbio.formats.file_format import WriterOptions
from ddbio.formats.orc import OrcFileWriter
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.storage.staged import FileNaming, StagedFile

MIB = 1024 * 1024


class MemoryStore:
    """Store of staged files in memory, which fails after a number of bytes if one is given."""

    def __init__(self, fails_after_bytes=None):
        self.files = {}
        self.aborted = []
        self.left = fails_after_bytes

    def create(self, path):
        """Return a sink in memory."""
        return MemorySink(self, path)


class MemorySink:
    """Sink that keeps one file's bytes in its store."""

    def __init__(self, store, path):
        self.store, self.path, self.data, self.closed = store, path, bytearray(), False

    def write(self, data):
        """Append bytes, or fail like a full disk."""
        if self.path in self.store.aborted:
            return len(data)
        if self.store.left is not None:
            self.store.left -= len(data)
            if self.store.left < 0:
                raise TargetError("disk full", "memory")
        self.data += data
        return len(data)

    def finish(self, rows):
        """Pass the bytes to the store."""
        self.store.files[self.path] = bytes(self.data)
        return StagedFile(self.path, len(self.data), rows, {})

    def abort(self):
        """Record the abort."""
        self.store.aborted.append(self.path)


def read(store):
    """Return the rows of all files."""
    return pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in store.files.values()])


def write(store, batches, **options):
    """Write batches as one task; return the staged files."""
    writer = RollingWriter(store, FileNaming("job", 3, 1), batches[0].schema, FileOptions(**options))
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def test_rows_come_back_with_their_metadata(make_store, flights):
    """Rows are read back equal, including the fields' DynamoDB types."""
    store = make_store()
    [staged] = write(store, [flights.slice(0, 100), flights.slice(100)])
    store.complete(staged)
    back = pq.read_table(pa.BufferReader(store.read(staged.path)))
    assert back.equals(pa.Table.from_batches([flights]), check_metadata=True)
    assert back.schema.field("origin").metadata == {b"ddb:type": b"S"}
    assert staged.rows == flights.num_rows
    assert staged.size_bytes == next(store.list()).size_bytes


@pytest.mark.parametrize(
    ("compression", "extension", "codec"),
    [
        ("zstd", "zstd.parquet", "ZSTD"),
        ("snappy", "snappy.parquet", "SNAPPY"),
        ("gzip", "gz.parquet", "GZIP"),
        ("lz4", "lz4raw.parquet", "LZ4"),
        ("none", "parquet", "UNCOMPRESSED"),
    ],
)
def test_names_have_the_codec(flights, compression, extension, codec):
    """The extension is Spark's own for the actual codec of the pages.

    Spark fails to filter by some LZ4_RAW dictionaries, so these files have none; other codecs keep theirs.
    """
    store = MemoryStore()
    [staged] = write(store, [flights], compression=compression)
    assert staged.path == f"part-job-00003-1-0000.{extension}"
    group = pq.ParquetFile(pa.BufferReader(store.files[staged.path])).metadata.row_group(0)
    assert group.column(0).compression == codec
    assert group.column(1).has_dictionary_page == (codec != "LZ4")


def test_files_carry_what_readers_skip_by(flights):
    """Every column has statistics and a page index, so that engines can skip pages."""
    store = MemoryStore()
    [staged] = write(store, [flights])
    group = pq.ParquetFile(pa.BufferReader(store.files[staged.path])).metadata.row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        assert column.statistics.has_min_max
        assert column.has_column_index
        assert column.has_offset_index


@pytest.mark.parametrize(
    ("target_file_bytes", "compression", "batch_rows"),
    [
        # Each pair of values occurs together.
        (MIB // 2, "zstd", 500),
        (MIB // 2, "none", 40_000),
        (MIB, "zstd", 40_000),
        (MIB, "none", 500),
        (3 * MIB, "zstd", 500),
        (3 * MIB, "none", 40_000),
    ],
)
def test_files_land_on_the_target_size(target_file_bytes, compression, batch_rows):
    """Every file except the last is within 15 % of the target, for any size of batches and any codec."""
    random = np.random.default_rng(7)
    batches = [
        pa.record_batch(
            {
                "id": np.arange(batch_rows),
                "group": pa.array(random.integers(0, 50, batch_rows)).cast(pa.string()),
                "noise": random.integers(0, 2**40, batch_rows),
            }
        )
        for _ in range(1_000_000 // batch_rows)
    ]
    store = MemoryStore()
    staged = write(store, batches, target_file_bytes=target_file_bytes, compression=compression)
    assert len(staged) > 2
    for file in staged[:-1]:
        assert 0.85 <= file.size_bytes / target_file_bytes <= 1.15
    assert sum(file.rows for file in staged) == 1_000_000
    assert read(store).equals(pa.Table.from_batches(batches))


@pytest.mark.parametrize("file_format", ["orc", "avro", "csv", "json", "dynamodb-json"])
@pytest.mark.parametrize("distinct", [1000, 1 << 40])
def test_every_format_lands_on_the_target_size(file_format, distinct):
    """Every file except the last is within 15 % of the target, although compressors and stripes buffer bytes."""
    random = np.random.default_rng(7)
    rows, target_file_bytes = (25_000 if file_format == "avro" else 60_000), 128 * 1024
    noise = random.integers(0, distinct, (2, rows))
    batch = pa.record_batch({"word": pa.array(noise[0]).cast(pa.string()), "noise": noise[1], "id": np.arange(rows)})
    batches = [batch.slice(start, 3000) for start in range(0, rows, 3000)]
    staged = write(MemoryStore(), batches, target_file_bytes=target_file_bytes, format=file_format)
    for file in staged[:-1]:
        assert 0.85 <= file.size_bytes / target_file_bytes <= 1.15
    assert len(staged) > 1
    assert staged[-1].size_bytes <= 1.15 * target_file_bytes


def test_a_finished_orc_file_leaves_no_writer():
    """The library's writer keeps some 15 MiB after it is closed, and references ours: both are freed."""
    rows = pa.table({"n": [1]})
    sink = MemorySink(MemoryStore(), "part-job-00000-1-0000.orc")
    writer = OrcFileWriter(sink, rows.schema, WriterOptions("zstd", MIB, rows))
    writer.write_group(rows)
    writer.finish()
    alive = weakref.ref(writer)
    del writer
    gc.collect()
    assert alive() is None


def test_row_groups_are_bounded(flights, monkeypatch):
    """A row group has at most its share of bytes and rows, even if one batch is larger."""
    monkeypatch.setattr(rolling_writer, "_ROW_GROUP_ROWS", 3000)
    store = MemoryStore()
    [staged] = write(store, [flights])
    metadata = pq.ParquetFile(pa.BufferReader(store.files[staged.path])).metadata
    assert {metadata.row_group(n).num_rows for n in range(metadata.num_row_groups - 1)} == {3000}
    monkeypatch.setattr(rolling_writer, "_ROW_GROUP_BYTES", 100_000)
    [staged] = write(store, [flights])
    metadata = pq.ParquetFile(pa.BufferReader(store.files[staged.path])).metadata
    assert metadata.num_row_groups == -(-flights.nbytes // 100_000)


def test_no_rows_stage_nothing(make_store, flights):
    """A task without rows stages no file, and empty batches do not count as rows."""
    store = make_store()
    assert write(store, [flights.slice(0, 0), flights.slice(0, 0)]) == []
    assert list(store.list("")) == []


def test_an_empty_file_can_be_kept(flights):
    """A writer without rows stages one file with the columns if requested, and no extra file if there were rows."""
    store = MemoryStore()
    writer = RollingWriter(store, FileNaming("job", 0), flights.schema, FileOptions())
    [staged] = writer.finish(keep_empty=True)
    assert staged.rows == 0
    assert read(store).schema.equals(flights.schema, check_metadata=True)
    writer = RollingWriter(store, FileNaming("job", 1), flights.schema, FileOptions())
    writer.write(flights)
    assert [file.rows for file in writer.finish(keep_empty=True)] == [flights.num_rows]


def test_each_file_chooses_its_dictionaries():
    """Values that repeat in a file's first rows have a dictionary, others have none, nested or not."""
    unique = pa.array([f"o-{number:09d}" for number in range(60_000)])
    same = pa.array(["EWR"] * 60_000)
    batches = [
        pa.record_batch({"key": key, "map": pa.StructArray.from_arrays([value], ["s"])})
        for key, value in [(unique, same), (same, unique)]
    ]
    store = MemoryStore()
    staged = write(store, batches, compression="none", target_file_bytes=unique.nbytes)
    assert len(staged) > 1
    dictionaries = []
    for file in (staged[0], staged[-1]):
        group = pq.ParquetFile(pa.BufferReader(store.files[file.path])).metadata.row_group(0)
        dictionaries.append([group.column(number).has_dictionary_page for number in range(2)])
    assert dictionaries == [[False, True], [True, False]]
    assert read(store).equals(pa.Table.from_batches(batches))


def test_abort_discards_the_open_file(make_store, flights, staged_left):
    """An aborted writer leaves nothing staged of the file it was writing."""
    store = make_store()
    writer = RollingWriter(store, FileNaming("job", 0), flights.schema, FileOptions(target_file_bytes=4 * MIB))
    for _ in range(3):
        writer.write(flights)
    writer.abort()
    writer.abort()
    assert len(staged_left(store)) == len(writer._staged)
    store.abort("job")
    assert staged_left(store) == []


def test_an_error_of_the_store_is_unchanged(flights):
    """The store's own error passes through the Parquet writer unchanged, and abort works after it."""
    store = MemoryStore(fails_after_bytes=1000)
    writer = RollingWriter(store, FileNaming("job", 0), flights.schema, FileOptions())
    writer.write(flights)
    with pytest.raises(TargetError, match="disk full") as full:
        writer.finish()
    assert full.value.uri == "memory"
    writer.abort()
    assert store.aborted == [FileNaming("job", 0).path(0, "zstd.parquet")]


def write_and_finish(writer, rows):
    """Write rows several times."""
    for _ in range(10):
        writer.write_group(rows)
    writer.finish()


class Interruption(KeyboardInterrupt):
    """Interruption while a sink writes."""


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("error", [TargetError("disk full", "memory"), OSError(28, "No space left"), Interruption()])
@pytest.mark.parametrize("calls", [0, 1, 2, 5, 20])
def test_an_error_of_a_sink_passes_through_orc_unchanged(calls, error, compression):
    """An error of the sink, at any time, is raised unchanged and does not end the process; abort works after it."""
    store = MemoryStore()
    sink = MemorySink(store, "part.orc")
    take, left = sink.write, iter(range(calls))

    def write_or_fail(data):
        if store.aborted or next(left, None) is not None:
            return take(data)
        raise error

    sink.write = write_or_fail
    rows = pa.table({"n": np.random.default_rng(1).random(100_000)})
    writer = OrcFileWriter(sink, rows.schema, WriterOptions(compression, 256 * 1024, rows))
    with pytest.raises(type(error)) as raised:
        write_and_finish(writer, rows)
    assert raised.value is error
    writer.abort()
    writer.abort()
    assert set(store.aborted) == {"part.orc"}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=12), st.integers(1, 20_000))
def test_no_row_is_lost_or_moved(sizes, target_file_bytes):
    """The files have all rows in their order, for any batches and target."""
    start, batches = 0, [pa.record_batch({"n": pa.array([], pa.int64())})]
    for size in sizes:
        batches.append(pa.record_batch({"n": pa.array(range(start, start + size), pa.int64())}))
        start += size
    store = MemoryStore()
    staged = write(store, batches, target_file_bytes=target_file_bytes)
    assert sum(file.rows for file in staged) == start
    if start:
        assert read(store)["n"].to_pylist() == list(range(start))


def test_a_schema_that_no_file_can_have_leaves_no_sink():
    """If the writer refuses the columns, the sink is aborted immediately."""
    store, schema = MemoryStore(), pa.schema([("a", pa.month_day_nano_interval())])
    writer = RollingWriter(store, FileNaming("job", 0), schema, FileOptions())
    with pytest.raises(pa.ArrowException):
        writer.finish(keep_empty=True)
    assert store.aborted
    assert not store.files
