"""Rewrites the snapshots of the public surface: ``python -m tests.surface``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.conftest import FAKE_ENVIRONMENT
from tests.surface.jobs import run_jobs
from tests.surface.shapes import format_lines, printed_lines
from tests.surface.snapshot import FOLDER, SNAPSHOTS


def main() -> None:
    """Collect and write all snapshots."""
    os.environ.update(FAKE_ENVIRONMENT)
    snapshots = {name: collect() for name, collect in SNAPSHOTS.items()}
    with tempfile.TemporaryDirectory() as folder:
        snapshots["printed.txt"] = printed_lines(run_jobs(Path(folder)))
        snapshots["files.txt"] = format_lines(Path(folder))
    for name, lines in snapshots.items():
        (FOLDER / name).write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
