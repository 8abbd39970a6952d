"""Maker of samples of states and files that the samples of ``make.py`` lack, written by today's version.

There are interrupted jobs (a scan, a load, a commit), a log with a lost and healed range, a log of several leases, one
of the Lambda handler, one of delivered files, and a lake table with its log as ``bootstrap`` makes them. To make them
again, run this file. The samples are then of the version that runs it. Each is a folder below ``data/``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from ddbio.storage.meta import format_state  # noqa: E402 - found by the line above
from tests.conftest import FAKE_ENVIRONMENT  # noqa: E402 - the same
from tests.surface.jobs import run_jobs  # noqa: E402 - the same

DATA = Path(__file__).parent / "data"
PLACE = Path("/tmp/samples")
"""The folder of the jobs: some states contain its name."""

SAMPLES = {
    "healed": "log",
    "leased": "shared",
    "handled": "lambda",
    "replayed": "replayed",
    "stopped_scan": "stopped",
    "stopped_commit": "killed",
    "stopped_load": "state",
    "stopped_load_rows": "rows",
    "bootstrapped": "lake",
    "bootstrapped_log": "lakelog",
    "partitions": "parts",
    "import_files": "import",
}
"""The folders of the jobs by the names of their samples."""


def main() -> None:
    """Run the jobs, and copy what they wrote."""
    os.environ.update(FAKE_ENVIRONMENT)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    run_jobs(PLACE)
    for path in PLACE.rglob("_ddbio/*.claim.json"):
        # It contains the name of this machine.
        claim = json.loads(path.read_text("utf-8"))
        claim["owner"] |= {"host": "host", "system": None, "process": 1, "started": None}
        path.write_bytes(format_state({name: value for name, value in claim.items() if name != "crc32"}))
    for name, folder in SAMPLES.items():
        shutil.rmtree(DATA / name, ignore_errors=True)
        shutil.copytree(PLACE / folder, DATA / name)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
