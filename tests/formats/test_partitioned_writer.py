"""Rows by partition: other readers see the same values, files have their size, memory is bounded."""

from __future__ import annotations

import collections
import tempfile
from datetime import UTC
from pathlib import Path
from urllib.parse import unquote

import duckdb
import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.errors import TargetError
from ddbio.formats import partitioned_writer
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.partitions import PartitionBy, Partitioner, partitioning_of
from ddbio.formats.rolling_writer import FileOptions
from ddbio.storage.local_store import LocalStore
from ddbio.storage.paths import hive_partition
from ddbio.storage.staged import FileNaming

KIB = 1024
VALUES = st.one_of(
    st.none(),
    st.sampled_from(
        ["a/b", "a b", " ", "é日本 ☃", "100%", "%2F", "a=b", "x:y", "..", "'\"#*?\\{}[]^", "\t\n\x7f", "Ünï"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
)


def write(folder, batches, *texts, memory_bytes=64 * KIB * KIB, **options):
    """Write batches by partition into a folder; return the staged files."""
    store, schema = LocalStore(folder), batches[0].schema
    by = partitioning_of(PartitionBy(texts=texts), schema)
    writer = PartitionedWriter(store, FileNaming("job", 1), schema, FileOptions(**options), by, memory_bytes)
    for batch in batches:
        writer.write(batch)
    staged = writer.finish()
    for file in staged:
        store.complete(file)
    store.abort("job")
    return staged


@settings(max_examples=25, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=12))
def test_other_readers_see_the_values(values):
    """DuckDB, polars and pyarrow read the written value of each row, for all characters."""
    ids = [f"id-{number}" for number in range(len(values))]
    batch = pa.record_batch({"id": ids, "t": pa.array(values, pa.string())})
    wanted = sorted(zip(ids, values, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        staged = write(folder, [batch], "t")
        assert {file.partition["t"] for file in staged} == set(values)
        assert all(hive_partition(file.path) == file.partition for file in staged)
        files = ds.dataset(folder, partitioning=ds.partitioning(pa.schema([("t", pa.string())]), flavor="hive"))
        assert _rows(files.to_table(columns=["id", "t"])) == wanted
        read = pl.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True, hive_schema={"t": pl.String})
        assert _rows(read.select("id", "t").to_arrow()) == wanted
        sql = "select id, t from read_parquet($1, hive_partitioning = true, hive_types = {'t': varchar})"
        assert sorted(duckdb.execute(sql, [f"{folder}/**/*.parquet"]).fetchall()) == wanted


def _rows(table):
    return sorted(zip(table["id"].to_pylist(), table["t"].to_pylist(), strict=True))


def mixed(rows, seed=0, partitions=50):
    """Return rows of many partitions, a few of which have most rows."""
    rng = np.random.default_rng(seed)
    numbers = (rng.pareto(1.0, rows) * 3).astype(np.int64) % partitions
    payload = [bytes(content) for content in rng.integers(0, 256, (rows, 40), np.uint8)]
    return pa.record_batch(
        {"place": [f"p{number}" for number in numbers], "n": np.arange(rows) + rows * seed, "b": payload}
    )


@pytest.mark.parametrize(
    ("memory_bytes", "target_file_bytes", "file_format"),
    [
        (200 * KIB, 64 * KIB, "parquet"),
        (64 * KIB * KIB, 64 * KIB, "parquet"),
        (800 * KIB, 400 * KIB, "orc"),
        (800 * KIB, 400 * KIB, "avro"),
    ],
)
def test_files_have_their_size(tmp_path, memory_bytes, target_file_bytes, file_format):
    """At least 95 % of the bytes are in files within 15 % of the target, or in the last file of a partition."""
    batches = [mixed(4000, seed, partitions=50 if file_format == "parquet" else 4) for seed in range(20)]
    options = {"target_file_bytes": target_file_bytes, "format": file_format}
    staged = write(tmp_path, batches, "place", memory_bytes=memory_bytes, **options)
    assert sum(file.rows for file in staged) == 80_000
    if file_format == "parquet":
        assert sorted(ds.dataset(tmp_path).to_table()["n"].to_pylist()) == list(range(80_000))
    by_partition = collections.defaultdict(list)
    for file in staged:
        by_partition[file.partition["place"]].append(file.size_bytes)
    full = [size for sizes in by_partition.values() for size in sizes[:-1]]
    fitting = [size for size in full if abs(size - target_file_bytes) <= 0.15 * target_file_bytes]
    assert sum(fitting) >= 0.95 * sum(full)
    assert len(full) >= 5
    assert max(sum(size < 0.85 * target_file_bytes for size in sizes) for sizes in by_partition.values()) <= 1


def test_rows_that_wait_go_to_the_disk_and_come_back(tmp_path, monkeypatch):
    """With many partitions and little memory, rows wait in a temporary folder, which is deleted at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    tempfile.tempdir = None
    try:
        batches = [mixed(2000, seed, partitions=150) for seed in range(5)]
        staged = write(tmp_path / "out", batches, "place", memory_bytes=100 * KIB)
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        tempfile.tempdir = None
    wanted = collections.Counter(partition for batch in batches for partition in batch["place"].to_pylist())
    assert {file.partition["place"]: file.rows for file in staged} == dict(wanted)
    assert len(staged) == len(wanted)


class Even(Partitioner):
    """Partitioner that reports the rows of all partitions as alike."""

    is_even = True


class Remote:
    """Store that counts the open files of a folder."""

    def __init__(self, folder):
        self.store, self.open, self.most_open = LocalStore(folder), 0, 0

    def create(self, path):
        """Return a sink that is counted until it is finished."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        sink = self.store.create(path)
        finish = sink.finish

        def finished(rows):
            self.open -= 1
            return finish(rows)

        sink.finish = finished
        return sink


def even(rows, seed):
    """Return rows of sixteen partitions of about the same size."""
    numbers = np.arange(rows) + rows * seed
    payload = [bytes(content) for content in np.random.default_rng(seed).integers(0, 256, (rows, 40), np.uint8)]
    return pa.record_batch({"place": [f"p{number % 16}" for number in numbers], "n": numbers, "b": payload})


@pytest.mark.parametrize("is_local", [True, False])
def test_partitions_that_are_alike_are_written_as_rows_come(tmp_path, monkeypatch, is_local):
    """All partitions have an open file, no row is written twice, and uploads are open only while they are written."""
    chosen, spilled = [], []
    choose, spill = partitioned_writer.dictionary_columns, PartitionedWriter._spill
    monkeypatch.setattr(partitioned_writer, "dictionary_columns", lambda table: chosen.append(1) or choose(table))
    monkeypatch.setattr(PartitionedWriter, "_spill", lambda *arguments: spilled.append(1) or spill(*arguments))
    batches = [even(2000, seed) for seed in range(20)]
    schema, local = batches[0].schema, LocalStore(tmp_path)
    store = local if is_local else Remote(tmp_path)
    by = Even(partitioning_of(PartitionBy(texts=("place",)), schema), schema)
    writer = PartitionedWriter(store, FileNaming("job", 1), schema, FileOptions(), by, 500 * KIB)
    for batch in batches:
        writer.write(batch)
    staged = writer.finish()
    assert len(staged) == 16
    assert (len(chosen), spilled) == (1, [])
    if not is_local:
        # The remaining rows are written by four threads at the end.
        assert store.most_open <= 4
    for file in staged:
        local.complete(file)
    assert sorted(ds.dataset(tmp_path).to_table()["n"].to_pylist()) == list(range(40_000))
    assert min(pq.ParquetFile(path).num_row_groups for path in tmp_path.rglob("*.parquet")) > 1


def test_an_aborted_writer_of_partitions_that_are_alike_uploads_nothing(tmp_path, staged_left):
    """Incomplete files are deleted with the temporary folder."""
    batch = even(20_000, 0)
    by = Even(partitioning_of(PartitionBy(texts=("place",)), batch.schema), batch.schema)
    store = Remote(tmp_path)
    writer = PartitionedWriter(store, FileNaming("job", 1), batch.schema, FileOptions(), by, 500 * KIB)
    writer.write(batch)
    writer.abort()
    assert (store.most_open, staged_left(store.store)) == (0, [])


def test_a_partition_without_rows_is_a_file_of_the_null_partition(tmp_path):
    """A source without rows leaves a file with all columns, in a partition's folder."""
    schema = pa.schema([("t", pa.string()), ("n", pa.int64())])
    by = partitioning_of(PartitionBy(texts=("t",)), schema)
    writer = PartitionedWriter(LocalStore(tmp_path), FileNaming("job", 0), schema, FileOptions(), by)
    [staged] = writer.finish(keep_empty=True)
    assert staged.path.startswith("t=__HIVE_DEFAULT_PARTITION__/part-job-")
    assert (staged.partition, staged.rows) == ({"t": None}, 0)


def test_an_aborted_writer_leaves_nothing(tmp_path, staged_left):
    """Open files and waiting rows are discarded."""
    schema = mixed(1).schema
    by = partitioning_of(PartitionBy(texts=("place",)), schema)
    store = LocalStore(tmp_path / "out")
    writer = PartitionedWriter(store, FileNaming("job", 0), schema, FileOptions(), by, 64 * KIB)
    for seed in range(3):
        writer.write(mixed(3000, seed))
    writer.abort()
    assert staged_left(store) == []


def test_a_value_too_long_for_a_folder_is_an_error_of_the_target(tmp_path):
    """A value that is too long for a folder's name is refused with its text, before a file system refuses it."""
    with pytest.raises(TargetError, match="at most 255"):
        write(tmp_path, [pa.record_batch({"t": ["x" * 300], "n": [1]})], "t")
    assert [path for path in Path(tmp_path).rglob("*") if path.is_file()] == []


def _of_orc(folder):
    files = ds.dataset(
        folder, format="orc", partitioning=ds.partitioning(pa.schema([("t", pa.string())]), flavor="hive")
    )
    return _rows(files.to_table(columns=["id", "t"]))


def _of_text(reader):
    sql = f"select id, t from {reader}($1, hive_partitioning = true, hive_types = {{'t': varchar}})"
    return lambda folder: sorted(duckdb.execute(sql, [f"{folder}/**/*.*"]).fetchall())


def _of_avro(folder):
    rows = []
    for path in Path(folder).rglob("*.avro"):
        text = unquote(path.parent.name.removeprefix("t="))
        with path.open("rb") as file:
            rows += [
                (row["id"], None if text == "__HIVE_DEFAULT_PARTITION__" else text) for row in fastavro.reader(file)
            ]
    return sorted(rows)


READERS = {"orc": _of_orc, "csv": _of_text("read_csv"), "json": _of_text("read_json"), "avro": _of_avro}


@settings(max_examples=6, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from(sorted(READERS)))
def test_other_readers_see_the_values_of_every_format(values, name):
    """The other formats are read the same: ORC by pyarrow, text by DuckDB, Avro by fastavro."""
    ids, codec = [f"id-{number}" for number in range(len(values))], "gzip" if name == "avro" else None
    with tempfile.TemporaryDirectory() as folder:
        write(
            folder,
            [pa.record_batch({"id": ids, "t": pa.array(values, pa.string())})],
            "t",
            format=name,
            compression=codec,
        )
        assert READERS[name](folder) == sorted(zip(ids, values, strict=True))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1, max_size=6))
def test_other_readers_see_the_dates(instants):
    """Years, months and days of any time, also before 1970, are those that DuckDB computes."""
    rows = pa.record_batch({"at": pa.array([instant.isoformat() for instant in instants])})
    with tempfile.TemporaryDirectory() as folder:
        write(folder, [rows], "year(at)", "month(at)", "day(at)")
        sql = 'select "at", "year", "month", "day" from read_parquet($1, hive_partitioning = true)'
        rows_of_duckdb = duckdb.execute(sql, [f"{folder}/**/*.parquet"]).fetchall()
    wanted = [(instant.isoformat(), instant.year, instant.month, instant.day) for instant in instants]
    assert sorted((at, *map(int, parts)) for at, *parts in rows_of_duckdb) == sorted(wanted)
