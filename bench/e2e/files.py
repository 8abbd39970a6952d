"""Write the batches of a scan as files of each format, compared with the library, and their layout for 1, 2 and 4
tasks.

Goals: Parquet and ORC ≥ 0.85 of pyarrow's writer, which writes the same batches with the same settings to a file; 100
partitions ≥ 0.7 of ``pyarrow.dataset``, which writes the same rows into the same folders.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from bench import data, pairs, partitions
from bench.e2e import record
from bench.files import batches_of
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.formats.row_files import read_batches
from ddbio.items.digest_columns import digest_of_batches
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming, StoredObject

if TYPE_CHECKING:
    from ddbio.storage.staged import StagedFile

ITEMS = 60_000
FORMATS = ("parquet", "orc", "avro", "csv", "json")
TASKS = (1, 2, 4)
MIB = 1024 * 1024
TARGET_BYTES, REPEATS = 4 * MIB, 24
# Small files of the layout report are below this share of the target.
SMALL_RATIO = 0.5
OURS, FLOOR, ONE_FOLDER = "ddbio", "bare library", "ddbio into one folder"


def main() -> None:
    """Append a row."""
    arguments = record.parser("files")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--target-bytes", type=int, default=TARGET_BYTES, help="of the files whose layout is shown")
    arguments.add_argument("--repeats", type=int, default=REPEATS, help="how often a layout has each batch")
    arguments.add_argument("--tasks", type=int, nargs="+", default=TASKS)
    asked = arguments.parse_args()
    batches = batches_of(asked.shape, data.scaled(ITEMS))
    figures: dict[str, Any] = {"items": data.scaled(ITEMS), "arrow_bytes": sum(batch.nbytes for batch in batches)}
    with tempfile.TemporaryDirectory() as folder:
        figures["writing"] = {name: measure(name, batches, folder, asked.rounds) for name in FORMATS}
    figures["partitioned"] = partitioned(asked.rounds)
    figures["layout"] = {
        name: {str(tasks): layout(name, batches * asked.repeats, asked.target_bytes, tasks) for tasks in asked.tasks}
        for name in FORMATS
    }
    record.append("files", asked, figures)


def measure(name: str, batches: list[pa.RecordBatch], folder: str, rounds: int) -> dict[str, Any]:
    """Return the speed of one format, in bytes of Arrow, and relative to its floor if there is one."""
    check(name, batches, folder)
    ways = {OURS: partial(write, name, batches, folder, 256 * MIB)}
    if name in FLOORS:
        ways[FLOOR] = partial(FLOORS[name], batches, Path(folder, f"floor.{name}"))
    seconds = pairs.interleave(ways, rounds)
    size_bytes = sum(batch.nbytes for batch in batches)
    stored = sum(file.size_bytes for file in write(name, batches, folder, 256 * MIB))
    figures: dict[str, Any] = {
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, size_bytes), 1),
        "stored_bytes": stored,
    }
    if name in FLOORS:
        figures["times_as_fast_as"] = record.rounded({FLOOR: pairs.speed_ratio(seconds, OURS, FLOOR)})
    return figures


def partitioned(rounds: int) -> dict[str, Any]:
    """Return the speed of writing 100 partitions, relative to pyarrow doing the same, and to one folder."""
    case = partitions.PartitionedFiles()
    case.setup()
    ways = {OURS: case.time_partitioned_writer, FLOOR: case.time_floor, ONE_FOLDER: case.time_one_folder}
    seconds = pairs.interleave(ways, rounds)
    case.teardown()
    size_bytes = sum(batch.nbytes for batch in case.batches)
    return {
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, size_bytes), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, OURS, name) for name in (FLOOR, ONE_FOLDER)}
        ),
    }


def layout(name: str, batches: list[pa.RecordBatch], target_bytes: int, tasks: int) -> dict[str, Any]:
    """Return number and sizes of the files of a number of tasks. The last file of a task may be small."""
    with tempfile.TemporaryDirectory() as folder:
        written = [write(name, batches[task::tasks], folder, target_bytes, task) for task in range(tasks)]
    sizes, full = ([file.size_bytes for files in written for file in files[:stop]] for stop in (None, -1))

    def near(sizes_: list[int]) -> float:
        within = sum(size for size in sizes_ if abs(size - target_bytes) <= 0.15 * target_bytes)
        return round(within / max(1, sum(sizes_)), 3)

    return {
        "files": len(sizes),
        "median_bytes": int(statistics.median(sizes)),
        "small_file_ratio": round(sum(size < SMALL_RATIO * target_bytes for size in sizes) / len(sizes), 3),
        "bytes_near_target_ratio": near(sizes),
        "bytes_near_target_ratio_but_for_last_files": near(full),
    }


def write(name: str, batches: list[pa.RecordBatch], folder: str, target_bytes: int, task: int = 0) -> list[StagedFile]:
    """Write like a task of a scan. Return the staged files."""
    options = FileOptions(format=name, target_file_bytes=target_bytes)
    writer = RollingWriter(LocalStore(folder), FileNaming("bench", task), batches[0].schema, options)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def write_parquet(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write with pyarrow only."""
    with pq.ParquetWriter(path, batches[0].schema, compression="zstd") as writer:
        writer.write_table(pa.Table.from_batches(batches))


def write_orc(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write with pyarrow only."""
    with pyarrow.orc.ORCWriter(path, compression="zstd") as writer:
        writer.write(pa.Table.from_batches(batches))


def write_json(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write with Python's library, which represents decimals and binary only as text."""
    with path.open("w") as file:
        for batch in batches:
            file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())


FLOORS = {"parquet": write_parquet, "orc": write_orc, "json": write_json}


def check(name: str, batches: list[pa.RecordBatch], folder: str) -> None:
    """Raise unless the files contain the rows."""
    store = LocalStore(folder)
    [staged] = write(name, batches, folder, 256 * MIB)
    store.complete(staged)
    stored = StoredObject(staged.path, staged.size_bytes, crc32=staged.crc32)
    digest = digest_of_batches(read_batches(store, stored, batches[0].schema))
    assert digest == digest_of_batches(batches)
    store.delete([staged.path])


if __name__ == "__main__":
    main()
