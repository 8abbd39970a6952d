"""Rewrite a folder of many small Parquet files as few, compared with a plain read and write of the same bytes by
pyarrow.

Both run on one thread, in turns. Goals: the rewriting alone ≥ 0.85 of the plain method, a task's memory ≤ 256 MiB. The
comparison of digests, which reads the new files again, is reported separately.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench import data, pairs
from bench.e2e import processes, record
from bench.files import batches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES, ROWS = 100, 6_000
REWRITE, VERIFIED, BARE = "ddbio.compact, rows counted", "ddbio.compact, digests compared", "pyarrow read + write"


def main() -> None:
    """Append a row: CPU seconds of all three methods, and a task's peak memory."""
    arguments = record.parser("compact")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        rows = write_small_files(source, asked.shape)
        with get_context("spawn").Pool(1) as pool:
            growth = pool.apply(peak_growth, (source, Path(folder, "memory")))
        figures = measure(source, Path(folder), asked.rounds)
    record.append("compact", asked, {"rows": rows, "task_growth_mebibytes": growth, **figures})


def write_small_files(folder: Path, shape: data.Shape) -> int:
    """Write files as many small tasks do. Return the number of their rows."""
    folder.mkdir()
    table = pa.Table.from_batches(batches_of(shape, data.scaled(ROWS * 10)))
    step = max(1, table.num_rows // 10)
    for number in range(FILES):
        part = table.slice(number % 10 * step, step)
        pq.write_table(part, folder / f"{number:04}.zstd.parquet", compression="zstd")
    return FILES * step


def measure(source: Path, dest: Path, rounds: int) -> dict[str, Any]:
    """Return the seconds of each method, and their speed relative to the plain method."""
    size_bytes = sum(path.stat().st_size for path in source.iterdir())
    ways = {
        REWRITE: functools.partial(compact, verify="rows"),
        VERIFIED: functools.partial(compact, verify="digest"),
        BARE: bare,
    }
    seconds: pairs.Seconds = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in pairs.turned(list(seconds), number):
            with copied(source, dest) as folder:
                taken = pairs.interleave({name: functools.partial(ways[name], folder)}, 1)[name]
            # The first round warms up.
            seconds[name] += taken if number else []
    return {
        "file_bytes": size_bytes,
        "cpu_seconds": {name: [round(time, 3) for time in times] for name, times in seconds.items()},
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, size_bytes), 1),
        "share_of_bare": record.rounded({name: pairs.speed_ratio(seconds, name, BARE) for name in (REWRITE, VERIFIED)}),
    }


def compact(folder: Path, *, verify: Any) -> None:
    """Compact as one task, and check the count."""
    report = ddbio.compact(folder, tasks=1, engine="local", verify=verify)
    assert (report.files_before, report.digest_before) == (FILES, report.digest_after)
    assert report.rows == sum(pq.read_metadata(path).num_rows for path in ddbio.list_files(folder).paths)


def bare(folder: Path) -> None:
    """Read each file and write its rows into one, with pyarrow only."""
    paths = sorted(folder.glob("*.parquet"))
    with pq.ParquetWriter(folder / "whole.parquet", pq.read_schema(paths[0]), compression="zstd") as writer:
        for path in paths:
            writer.write_table(pq.read_table(path, use_threads=False))


def peak_growth(source: Path, folder: Path) -> float:
    """Return the growth of a process in MiB during its first compaction."""
    shutil.copytree(source, folder)
    processes.reset_peak()
    before = processes.resident_mebibytes()
    ddbio.compact(folder, tasks=1, engine="local")
    return round(processes.peak_mebibytes() - before, 1)


@contextlib.contextmanager
def copied(source: Path, copy: Path) -> Iterator[Path]:
    """Create a copy of a folder with links."""
    folder = copy / "copy"
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).hardlink_to(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
