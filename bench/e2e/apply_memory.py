"""Take the peak of resident memory of ``ddbio apply``: a million changes for buckets as large as those of 100 M rows.

Goal: ≤ 1 GiB. As many buckets are there as are merged at a time, on one thread each; the others of a table would follow
them, and what is staged of them is no more than names. So the changes of all sixteen lie in these few, which is more
than each would have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import ddbio
from bench import serving
from bench.e2e import record
from bench.e2e.apply import BUCKETS, Log

_STEP = 1_000_000
_MEBIBYTE_KIB = 1024


def main() -> None:
    """Append one row: the memory of a process that merges, in Delta and Iceberg."""
    arguments = record.parser("apply_memory")
    arguments.add_argument("--rows", type=int, default=100_000_000, help="rows of the table that is meant")
    arguments.add_argument("--changes", type=int, default=1_000_000)
    arguments.add_argument("--at-once", type=int, default=min(4, os.cpu_count() or 1), help="buckets that are there")
    arguments.add_argument("--formats", nargs="+", default=["delta", "iceberg"])
    asked = arguments.parse_args()
    serving.isolate()
    count = asked.rows * asked.at_once // BUCKETS
    figures: dict[str, Any] = {"rows_there": count}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with get_context("spawn").Pool(1) as pool:
            pool.apply(build, (folder, count, asked.changes, asked.at_once, asked.formats))
        for table_format in asked.formats:
            figures |= {f"{key}_{table_format}": value for key, value in merge(folder, table_format).items()}
            assert figures[f"changes_{table_format}"] == asked.changes
    record.append("apply_memory", asked, figures)


def build(folder: Path, count: int, changes: int, buckets: int, formats: list[str]) -> None:
    """Make tables of one large file and a rest in each bucket, and a log with changes that they do not have."""
    log = Log(folder / "log")
    for start in range(0, count, _STEP):
        log.append(np.arange(start, min(start + _STEP, count)))
    for table_format in formats:
        place = folder / table_format
        ddbio.apply(log.folder, place, format=table_format, buckets=buckets)
        ddbio.maintain(place, format=table_format)
    log.append(np.sort(np.random.default_rng(1).choice(count, changes, replace=False)))


def merge(folder: Path, table_format: str) -> dict[str, Any]:
    """Run the command, and return its report's figures and the highest that its memory was."""
    command = [sys.executable, "-m", "ddbio", "apply", str(folder / "log"), str(folder / table_format)]
    process = subprocess.Popen([*command, "--format", table_format, "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return {
        "changes": report["changes"],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "seconds": report["seconds"],
        "peak_mebibytes": round(usage.ru_maxrss / _MEBIBYTE_KIB),
    }


if __name__ == "__main__":
    main()
