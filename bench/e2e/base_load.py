"""Scan a table into a lake table, compared with the same scan into plain Parquet; goal: ≥ 0.9 × its speed.

Both read the same pages with a given schema. Rows of a lake table also have a key as text, a version and a bucket, and
are written by bucket. Each scan runs over all rows and over a third of them. The rate is that of the remaining rows, as
for every row of a large table. One-time work of a load, such as opening a file per bucket and committing, is only in
the speed over all rows.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ddbio
from bench import data, decoders, pairs, serving
from bench.e2e import record

ITEMS = 600_000
# As in ``bench.e2e.verbs``.
PART = 3
FORMATS = ("parquet", "delta", "iceberg")


def main() -> None:
    """Append a row: the speed of scans into lake tables relative to Parquet, by CPU and by wall time."""
    arguments = record.parser("base_load")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--latency-seconds", type=float, default=0.005, help="of each answer of the service")
    asked = arguments.parse_args()
    count = data.scaled(ITEMS)
    tables = {
        size: serving.serve("orders", rows, asked.latency_seconds)
        for size, rows in (("whole", count), ("part", max(1, count // PART)))
    }
    record.append("base_load", asked, measure(tables, asked.rounds))
    serving.stop()


def measure(tables: dict[str, serving.Table], rounds: int) -> dict[str, Any]:
    """Return the seconds of each format and size, and speed and rate relative to Parquet."""
    runs = [(table_format, size) for table_format in FORMATS for size in tables]
    taken: dict[str, dict[tuple[str, str], list[float]]] = {
        clock: {run: [] for run in runs} for clock in ("cpu", "wall")
    }
    with tempfile.TemporaryDirectory() as folder:
        # The first round compiles, imports and fills caches.
        for number in range(rounds + 1):
            for table_format, size in runs:
                dest = Path(folder, f"{table_format}-{size}-{number}")
                began = time.process_time(), time.perf_counter()
                scan(tables[size], dest, table_format)
                ended = time.process_time(), time.perf_counter()
                if number:
                    for seconds, before, after in zip(taken.values(), began, ended, strict=True):
                        seconds[table_format, size].append(after - before)
                shutil.rmtree(dest)
    all_rows = tables["whole"]
    figures: dict[str, Any] = {
        "items": all_rows.count,
        "part_items": tables["part"].count,
        "item_json_bytes": all_rows.line_bytes,
    }
    for clock, seconds in taken.items():
        for size in tables:
            name = f"{clock}_seconds" if size == "whole" else f"{size}_{clock}_seconds"
            figures[name] = record.rounded(
                {table_format: statistics.median(seconds[table_format, size]) for table_format in FORMATS}
            )
        # In a tiny run the noise may exceed the rows.
        beyond = {
            table_format: [
                max(a - b, 0.001)
                for a, b in zip(seconds[table_format, "whole"], seconds[table_format, "part"], strict=True)
            ]
            for table_format in FORMATS
        }
        whole_runs = {table_format: seconds[table_format, "whole"] for table_format in FORMATS}
        for what, runs_of in (("rate", beyond), ("speed", whole_runs)):
            # Within a round the machine has the same speed.
            figures[f"{clock}_{what}_beside_parquet"] = record.rounded(
                {table_format: pairs.speed_ratio(runs_of, table_format, "parquet") for table_format in FORMATS[1:]}
            )
    return figures


def scan(table: serving.Table, dest: Path, table_format: str) -> None:
    """Scan the table once."""
    report = ddbio.scan_to_files(
        table.name,
        dest,
        format=table_format,
        endpoint_url=table.endpoint_url,
        engine="local",
        schema=decoders.schema_of("orders"),
    )
    assert report.rows == table.count


if __name__ == "__main__":
    main()
