"""Report the layout of 10,000 Parquet files, compared with pyarrow reading each footer; goal: ≤ 20 s on one core."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from bench import data, pairs
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Callable

FILES, PARTITIONS, ROWS = 10_000, 100, 200
LAYOUT, FOOTERS = "layout", "pyarrow read_metadata"


def main() -> None:
    """Append a row."""
    arguments = record.parser("layout")
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    # The goal is for one core.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as home:
        record.append("layout", asked, measure(Path(home), data.scaled(FILES), asked.rounds))


def measure(home: Path, count: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of the report and of the footers alone."""
    paths = write_files(home, count)
    check(home, paths)
    ways: dict[str, Callable[[], object]] = {
        LAYOUT: lambda: ddbio.layout(home),
        FOOTERS: lambda: [pq.read_metadata(path).num_rows for path in paths],
    }
    seconds = pairs.interleave(ways, rounds, collecting=True)
    return {
        "files": len(paths),
        "cpu_seconds": {name: [round(run_seconds, 3) for run_seconds in taken] for name, taken in seconds.items()},
        "times_the_footers": round(1 / pairs.speed_ratio(seconds, LAYOUT, FOOTERS), 3),
    }


def write_files(home: Path, count: int) -> list[Path]:
    """Write ``count`` small files into partitions."""
    rows = pa.Table.from_batches([ddbio.from_dynamodb_json(data.export_lines("orders", ROWS))])
    paths = [home / f"day={number % PARTITIONS}" / f"rows-{number:05}.parquet" for number in range(count)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows, path, compression="zstd")
    return paths


def check(home: Path, paths: list[Path]) -> None:
    """Assert that the report has every file, row and byte."""
    report = ddbio.layout(home)
    assert report.files == report.row_groups == len(paths)
    assert report.rows == sum(pq.read_metadata(path).num_rows for path in paths)
    assert report.bytes == sum(path.stat().st_size for path in paths)


if __name__ == "__main__":
    main()
