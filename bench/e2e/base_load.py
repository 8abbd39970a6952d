"""Scan a table into a lake table beside the same scan into plain Parquet; goal: ≥ 0.9 × its speed.

Both read the same pages with a given schema. The rows of a lake table have a key as text, a version and a bucket more,
and are written by bucket.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ddbio
from bench import data, decoders, serving
from bench.e2e import record

ITEMS = 400_000


def main() -> None:
    """Append one row: the speed of scans into lake tables as parts of that into Parquet, by CPU and by wall time."""
    arguments = record.parser("base_load")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--latency-seconds", type=float, default=0.005, help="of each answer of the service")
    asked = arguments.parse_args()
    table = serving.serve("orders", data.scaled(ITEMS), asked.latency_seconds)
    cpu: dict[str, list[float]] = {"parquet": [], "delta": [], "iceberg": []}
    wall: dict[str, list[float]] = {name: [] for name in cpu}
    with tempfile.TemporaryDirectory() as folder:
        # The first round compiles, imports and fills caches.
        for number in range(asked.rounds + 1):
            for table_format, seconds in cpu.items():
                place = Path(folder) / f"{table_format}-{number}"
                began = time.process_time(), time.perf_counter()
                scan(table, place, table_format)
                if number:
                    seconds.append(time.process_time() - began[0])
                    wall[table_format].append(time.perf_counter() - began[1])
                shutil.rmtree(place)
    serving.stop()
    figures: dict[str, Any] = {"items": table.count, "item_json_bytes": table.line_bytes}
    for name, seconds in (("cpu", cpu), ("wall", wall)):
        middle = {table_format: statistics.median(times) for table_format, times in seconds.items()}
        figures[f"{name}_seconds"] = record.rounded(middle)
        figures[f"{name}_speed_beside_parquet"] = record.rounded(
            {table_format: middle["parquet"] / middle[table_format] for table_format in ("delta", "iceberg")}
        )
    record.append("base_load", asked, figures)


def scan(table: serving.Table, place: Path, table_format: str) -> None:
    """Scan the table once."""
    report = ddbio.scan_to_files(
        table.name,
        place,
        format=table_format,
        endpoint_url=table.endpoint_url,
        engine="local",
        schema=decoders.schema_of("orders"),
    )
    assert report.rows == table.count


if __name__ == "__main__":
    main()
