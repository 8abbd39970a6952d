"""Run ``ddbio demo`` like a user: real flights, Spark, an embedded S3, a budget of 400 units per second."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.e2e import record

_KEPT = (
    "engine", "segments", "tasks", "lanes", "items", "rows", "rescued", "seconds", "cpu_seconds", "wire_bytes",
    "rcu_asked_per_second", "rcu_consumed", "rcu_peak_10s_ratio", "validated",
)  # fmt: skip


def main() -> None:
    """Append a row."""
    arguments = record.parser("demo")
    arguments.add_argument("--limit", type=int, help="only so many flights")
    asked = arguments.parse_args()
    flags = ["--limit", str(asked.limit)] if asked.limit else []
    command = [sys.executable, "-m", "ddbio", "demo", "--json", *flags]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    record.append("demo", asked, figures_of(report))


def figures_of(report: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a demo's report, and the derived speeds."""
    assert report["validated"]
    megabytes = report["wire_bytes"] / 1e6
    return {
        **{name: report[name] for name in _KEPT},
        "megabytes_per_second": round(megabytes / report["seconds"], 2),
        "megabytes_per_cpu_second": round(megabytes / report["cpu_seconds"], 2),
        "file_bytes": [file["bytes"] for file in report["files"]],
    }


if __name__ == "__main__":
    main()
