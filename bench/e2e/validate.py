"""Validate a table against the files of its scan, compared with that scan alone; goal: ≤ 1.15 × its CPU time.

A validation that finds one changed value and names its key is also timed: it reads both sides once more.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ddbio
from bench import data, pairs, serving
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 1_000_000
SCAN, STREAM, VALIDATE, ONE_CHANGED = "scan to files", "scan to batches", "validate", "validate, one value changed"


def main() -> None:
    """Append a row."""
    arguments = record.parser("validate")
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    table = serving.serve("orders", data.scaled(ITEMS))
    with tempfile.TemporaryDirectory() as home:
        figures = measure(table, Path(home), asked.rounds)
    serving.stop()
    record.append("validate", asked, figures)


def measure(table: serving.Table, home: Path, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds of each method, and the ratio of the validation to the scan."""
    unchanged, changed = home / "whole", home / "changed"
    scan(table, unchanged)
    key = change_one(unchanged, changed)
    check(table, unchanged, changed, key)
    seconds = pairs.interleave(ways(table, home), rounds, collecting=True)
    return {
        "items": table.count,
        "item_json_bytes": table.line_bytes,
        "cpu_seconds": {name: [round(run_seconds, 3) for run_seconds in taken] for name, taken in seconds.items()},
        "times_the_scan": round(1 / pairs.speed_ratio(seconds, VALIDATE, SCAN), 3),
        "times_the_scan_one_changed": round(1 / pairs.speed_ratio(seconds, ONE_CHANGED, SCAN), 3),
        "times_the_scan_to_batches": round(1 / pairs.speed_ratio(seconds, VALIDATE, STREAM), 3),
    }


def ways(table: serving.Table, home: Path) -> dict[str, Callable[[], object]]:
    """Return the compared methods, all on the same items."""
    at = {"endpoint_url": table.endpoint_url}
    return {
        SCAN: lambda: scan(table, home / "again"),
        STREAM: lambda: sum(batch.num_rows for batch in ddbio.scan_batches(table.name, **at)),
        VALIDATE: lambda: ddbio.validate(table.name, home / "whole", **at),
        ONE_CHANGED: lambda: ddbio.validate(table.name, home / "changed", **at),
    }


def scan(table: serving.Table, folder: Path) -> None:
    """Scan the table into files."""
    ddbio.scan_to_files(table.name, folder, mode="overwrite", engine="local", endpoint_url=table.endpoint_url)


def change_one(unchanged: Path, changed: Path) -> dict[str, str]:
    """Copy the files, change one number in the middle of one file, and return the key of its row."""
    shutil.copytree(unchanged, changed)
    path = min(changed.rglob("*.parquet"))
    rows = pq.read_table(path)
    index = next(number for number, field in enumerate(rows.schema) if pa.types.is_integer(field.type))
    middle = rows.num_rows // 2
    mask = pa.array(number == middle for number in range(rows.num_rows))
    column = rows.column(index)
    other = pa.scalar((column[middle].as_py() or 0) ^ 1, column.type)
    rows = rows.set_column(index, rows.schema.field(index), pc.if_else(mask, other, column))
    pq.write_table(rows, path)
    names = [part.partition(":")[0] for part in data.KEYS["orders"].split(",")]
    return {name: str(rows.column(name)[middle].as_py()) for name in names}


def check(table: serving.Table, unchanged: Path, changed: Path, key: dict[str, str]) -> None:
    """Assert that equal sides are equal, and that the changed value is found with its key."""
    equal = ddbio.validate(table.name, unchanged, endpoint_url=table.endpoint_url)
    assert equal.equal
    assert equal.source_rows == equal.target_rows == table.count
    report = ddbio.validate(table.name, changed, endpoint_url=table.endpoint_url)
    assert (report.missing, report.extra, report.different) == (0, 0, 1)
    assert {name: next(iter(value.values())) for name, value in report.examples[0].key.items()} == key


if __name__ == "__main__":
    main()
