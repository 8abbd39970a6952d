"""Peak resident memory of ``ddbio apply``: a million changes for buckets as large as those of 100 million rows.

Goal: ≤ 1 GiB. As many of the 16 buckets are full as are merged at a time, on one thread each; the others have only the
changed rows. In a table with only full buckets the others would follow these, and the staging of a bucket is only a few
names. The changes are spread over all 16. In a second case, the same number of changes is only in the full buckets.
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
from zlib import crc32

import numpy as np

import ddbio
from bench import serving
from bench.e2e import record
from bench.e2e.apply import BUCKETS, Log

_STEP = 1_000_000
_MEBIBYTE_KIB = 1024


def main() -> None:
    """Append a row: the memory of a process that merges, in Delta and Iceberg."""
    arguments = record.parser("apply_memory")
    arguments.add_argument("--rows", type=int, default=100_000_000, help="rows of the table that is meant")
    arguments.add_argument("--changes", type=int, default=1_000_000)
    arguments.add_argument("--at-once", type=int, default=min(4, os.cpu_count() or 1), help="buckets that are full")
    arguments.add_argument("--formats", nargs="+", default=["delta", "iceberg"])
    asked = arguments.parse_args()
    serving.isolate()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with get_context("spawn").Pool(1) as pool:
            parameters = (folder, asked.rows, asked.changes, asked.at_once, asked.formats)
            figures["rows_there"], log = pool.apply(build, parameters)
            for suffix in ("", "_skewed"):
                if suffix:
                    pool.apply(append_skewed, (log, asked.rows, asked.changes, asked.at_once))
                for table_format in asked.formats:
                    merged = merge(folder, table_format)
                    assert merged["changes"] == asked.changes
                    figures |= {f"{key}_{table_format}{suffix}": value for key, value in merged.items()}
    record.append("apply_memory", asked, figures)


def build(folder: Path, count: int, changes: int, full: int, formats: list[str]) -> tuple[int, Log]:
    """Create tables, and a log with new changes. Return the number of rows of the tables, and the log."""
    log, rows, left = Log(folder / "log"), 0, dict.fromkeys(range(BUCKETS), changes // BUCKETS)
    changed = []
    for start in range(0, count, _STEP):
        numbers = np.arange(start, min(start + _STEP, count))
        buckets = buckets_of(numbers)
        kept = buckets < full
        for bucket, wanted in left.items():
            positions = np.flatnonzero(buckets == bucket)[:wanted]
            kept[positions] = True
            changed.append(numbers[positions])
            left[bucket] -= len(positions)
        log.append(numbers[kept])
        rows += int(kept.sum())
    for table_format in formats:
        path = folder / table_format
        ddbio.apply(log.folder, path, format=table_format, buckets=BUCKETS)
        ddbio.maintain(path, format=table_format)
    log.append(np.sort(np.concatenate(changed)))
    return rows, log


def append_skewed(log: Log, count: int, changes: int, full: int) -> None:
    """Append changes of the first rows of the full buckets."""
    chosen, left = list[np.ndarray[Any, Any]](), changes
    for start in range(0, count, _STEP):
        numbers = np.arange(start, min(start + _STEP, count))
        changed = numbers[buckets_of(numbers) < full][:left]
        chosen.append(changed)
        left -= len(changed)
        if not left:
            break
    log.append(np.concatenate(chosen))


def buckets_of(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the buckets of rows."""
    return np.fromiter((crc32(key_of(number)) % BUCKETS for number in numbers.tolist()), np.int64, len(numbers))


def key_of(number: int) -> bytes:
    """Return the key of a row in the lake table."""
    return f"S:customer#{number % 50_000:06}|S:order#{number:09}".encode()


def merge(folder: Path, table_format: str) -> dict[str, Any]:
    """Run the command, and return its report's figures and its peak memory."""
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
