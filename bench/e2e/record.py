"""Rows of figures with their provenance: code, machine, versions, data."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench import data

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "e2e"

_PACKAGES = ("awswrangler", "boto3", "botocore", "numba", "numpy", "pyarrow", "pyspark")


class _Parser(argparse.ArgumentParser):
    """Parser that refuses, before any measurement, a row that could not be reproduced."""

    def parse_args(self, *words: Any, **options: Any) -> Any:
        asked = super().parse_args(*words, **options)
        # A part of a row is not a row.
        asked.dry_run |= bool(getattr(asked, "only", ""))
        if not asked.dry_run and is_dirty():
            self.error("the tree has changes, of which no row is kept: commit them, or give --dry-run")
        return asked


def parser(case: str) -> argparse.ArgumentParser:
    """Return a parser for a case, with the flags of all cases."""
    made = _Parser(prog=".".join(filter(None, ["python -m bench.e2e", case])))
    made.add_argument("--dry-run", action="store_true", help="print the row, append nothing")
    return made


def append(case: str, arguments: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Append a row to the case's file and print it."""
    parameters = {name: value for name, value in vars(arguments).items() if name != "dry_run"}
    row = {"case": case, "parameters": parameters, "figures": figures, **provenance()}
    line = json.dumps(row, ensure_ascii=False)
    if not arguments.dry_run:
        RESULTS.mkdir(parents=True, exist_ok=True)
        with (RESULTS / f"{case}.jsonl").open("a", encoding="utf-8") as rows:
            rows.write(line + "\n")
    sys.stdout.write(line + "\n")


def provenance() -> dict[str, Any]:
    """Return the conditions of a figure, in addition to the parameters of its case."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD") or None,
        "dirty": is_dirty(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        # Above the number of cores, other processes were computing too.
        "load_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "java": _java_version(),
        **{name: _version(name) for name in _PACKAGES},
        "seed": data.SEED,
        "scale": data.scale(),
    }


def is_dirty() -> bool:
    """Return whether the tree has changes, except the rows and README, which shows them."""
    return bool(_git("status", "--porcelain", "--", ".", ":!results", ":!README.md"))


def rounded(figures: dict[str, float], digits: int = 3) -> dict[str, float]:
    """Return the figures rounded to a useful precision."""
    return {name: round(value, digits) for name, value in figures.items()}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def _java_version() -> str | None:
    home = os.environ.get("JAVA_HOME")
    try:
        command = [f"{home}/bin/java" if home else "java", "-version"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r'version "([^"]+)"', result.stderr)
    return match[1] if match else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
