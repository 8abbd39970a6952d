"""Write the batches of a scan as files of each format: beside the bare library, and how they lie for 1, 2 and 4 tasks.

Goal: Parquet and ORC ≥ 0.85 of pyarrow's own writer, which writes the same batches with the same settings to a file.
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

from bench import data, pairs
from bench.e2e import record
from bench.files import batches_of
from ddbio.core.digest_columns import digest_of_batches
from ddbio.core.staged import FileNaming
from ddbio.files.local_store import LocalStore
from ddbio.files.rolling_writer import FileOptions, RollingWriter
from ddbio.files.row_files import read_batches

if TYPE_CHECKING:
    from ddbio.core.staged import StagedFile

ITEMS = 60_000
FORMATS = ("parquet", "orc", "avro", "csv", "json")
TASKS = (1, 2, 4)
TARGET_BYTES = 1024 * 1024
# What the layout report calls small: less than this part of the target.
SMALL_RATIO = 0.5
OURS, FLOOR = "ddbio", "bare library"


def main() -> None:
    """Append one row."""
    arguments = record.parser("files")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--rounds", type=int, default=7)
    asked = arguments.parse_args()
    batches = batches_of(asked.shape, data.scaled(ITEMS))
    figures: dict[str, Any] = {"items": data.scaled(ITEMS), "arrow_bytes": sum(batch.nbytes for batch in batches)}
    with tempfile.TemporaryDirectory() as folder:
        figures["writing"] = {name: measure(name, batches, folder, asked.rounds) for name in FORMATS}
        figures["layout"] = {name: {str(tasks): layout(name, batches, folder, tasks) for tasks in TASKS}
                             for name in FORMATS}  # fmt: skip
    record.append("files", asked, figures)


def measure(name: str, batches: list[pa.RecordBatch], folder: str, rounds: int) -> dict[str, Any]:
    """Return the speed of one format, in bytes of Arrow, beside its floor if there is one."""
    check(name, batches, folder)
    ways = {OURS: partial(write, name, batches, folder, 256 * TARGET_BYTES)}
    if name in FLOORS:
        ways[FLOOR] = partial(FLOORS[name], batches, Path(folder, f"floor.{name}"))
    seconds = pairs.interleave(ways, rounds)
    size_bytes = sum(batch.nbytes for batch in batches)
    stored = sum(file.size_bytes for file in write(name, batches, folder, 256 * TARGET_BYTES))
    found: dict[str, Any] = {
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, size_bytes), 1),
        "stored_bytes": stored,
    }
    if name in FLOORS:
        found["times_as_fast_as"] = record.rounded({FLOOR: pairs.speed_ratio(seconds, OURS, FLOOR)})
    return found


def layout(name: str, batches: list[pa.RecordBatch], folder: str, tasks: int) -> dict[str, Any]:
    """Return how many files so many tasks make, and of which sizes."""
    files = [file for task in range(tasks) for file in write(name, batches[task::tasks], folder, TARGET_BYTES, task)]
    sizes = [file.size_bytes for file in files]
    within = sum(size for size in sizes if abs(size - TARGET_BYTES) <= 0.15 * TARGET_BYTES)
    return {
        "files": len(sizes),
        "median_bytes": int(statistics.median(sizes)),
        "small_file_ratio": round(sum(size < SMALL_RATIO * TARGET_BYTES for size in sizes) / len(sizes), 3),
        "bytes_near_target_ratio": round(within / sum(sizes), 3),
    }


def write(name: str, batches: list[pa.RecordBatch], folder: str, target_bytes: int, task: int = 0) -> list[StagedFile]:
    """Write as a task of a scan does; return the staged files."""
    options = FileOptions(format=name, target_file_bytes=target_bytes)
    writer = RollingWriter(LocalStore(folder), FileNaming("bench", task), batches[0].schema, options)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def write_parquet(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write by pyarrow alone."""
    with pq.ParquetWriter(path, batches[0].schema, compression="zstd") as writer:
        writer.write_table(pa.Table.from_batches(batches))


def write_orc(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write by pyarrow alone."""
    with pyarrow.orc.ORCWriter(path, compression="zstd") as writer:
        writer.write(pa.Table.from_batches(batches))


def write_json(batches: list[pa.RecordBatch], path: Path) -> None:
    """Write by Python's own library, which has no form for decimals and binary but their text."""
    with path.open("w") as file:
        for batch in batches:
            file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())


FLOORS = {"parquet": write_parquet, "orc": write_orc, "json": write_json}


def check(name: str, batches: list[pa.RecordBatch], folder: str) -> None:
    """Refuse figures of files that do not hold the rows."""
    store = LocalStore(folder)
    [staged] = write(name, batches, folder, 256 * TARGET_BYTES)
    store.complete(staged)
    found = digest_of_batches(read_batches(store, staged.path, batches[0].schema))
    assert found == digest_of_batches(batches)
    store.delete([staged.path])


if __name__ == "__main__":
    main()
