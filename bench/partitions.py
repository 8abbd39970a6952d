"""Record batches to Parquet files in 100 partitions: the partitioned writer compared with pyarrow's."""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from bench import data
from bench.files import PAGE_ITEMS, ROUNDS, batches_of, write_rolling
from bench.pairs import interleave, speed_ratio
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.partitions import PartitionBy, partitioning_of
from ddbio.formats.rolling_writer import FileOptions
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

ITEMS = 600_000
PARTITIONS = 100


class PartitionedFiles:
    timer = time.process_time
    timeout = 600

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.batches = partitioned_batches(data.scaled(ITEMS))
        self.check()

    def teardown(self) -> None:
        self.folder.cleanup()

    @staticmethod
    @functools.cache
    def check() -> None:
        import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, which would delay other benchmarks

        batches = partitioned_batches(data.scaled(ITEMS))
        wanted = pa.Table.from_batches(batches).group_by("place").aggregate([([], "count_all")]).sort_by("place")
        for write in (write_partitioned, write_dataset):
            with tempfile.TemporaryDirectory() as folder:
                write(folder, batches)
                hive = ds.partitioning(pa.schema([("place", pa.string())]), flavor="hive")
                table = ds.dataset(folder, format="parquet", partitioning=hive).to_table(columns=["place"])
                assert table.group_by("place").aggregate([([], "count_all")]).sort_by("place").equals(wanted)

    def time_partitioned_writer(self) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
            write_partitioned(folder, self.batches)

    def time_floor(self) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
            write_dataset(folder, self.batches)

    def time_one_folder(self) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
            write_rolling(folder, self.batches, "zstd")

    def track_rows_per_cpu_second(self) -> float:
        seconds = interleave({"ours": self.time_partitioned_writer}, ROUNDS)
        return data.scaled(ITEMS) / sorted(seconds["ours"])[ROUNDS // 2]

    def track_ratio_to_floor(self) -> float:
        seconds = interleave({"ours": self.time_partitioned_writer, "floor": self.time_floor}, ROUNDS)
        return speed_ratio(seconds, "ours", "floor")

    def track_ratio_to_one_folder(self) -> float:
        seconds = interleave({"ours": self.time_partitioned_writer, "floor": self.time_one_folder}, ROUNDS)
        return speed_ratio(seconds, "ours", "floor")

    track_rows_per_cpu_second.unit = "rows/s"  # type: ignore[attr-defined]
    track_ratio_to_floor.unit = "x"  # type: ignore[attr-defined]
    track_ratio_to_one_folder.unit = "x"  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1)
def partitioned_batches(count: int) -> list[pa.RecordBatch]:
    """Return orders as the batches of a scan, each row in one of 100 cities, unsorted."""
    batches = batches_of("orders", count)
    names = pa.array([f"place-{number * 7919 % PARTITIONS:03d}" for number in range(PAGE_ITEMS)])
    return [batch.append_column("place", names[: batch.num_rows]) for batch in batches]


def write_partitioned(folder: str, batches: list[pa.RecordBatch]) -> None:
    """Write like a task of a scan, and complete the files."""
    store, schema = LocalStore(folder), batches[0].schema
    partitioning = partitioning_of(PartitionBy(texts=("place",)), schema)
    writer = PartitionedWriter(store, FileNaming("bench", 0), schema, FileOptions(), partitioning)
    for batch in batches:
        writer.write(batch)
    for staged in writer.finish():
        store.complete(staged)
    store.abort("bench")


def write_dataset(folder: str, batches: list[pa.RecordBatch]) -> None:
    """Write the same rows with pyarrow only, gathered: by default each batch becomes row groups of a few rows."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas, which would delay other benchmarks

    ds.write_dataset(
        pa.RecordBatchReader.from_batches(batches[0].schema, batches),
        Path(folder),
        format="parquet",
        partitioning=["place"],
        partitioning_flavor="hive",
        max_open_files=PARTITIONS,
        min_rows_per_group=100_000,
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
        use_threads=False,
    )
