"""Runs targets, each in a fork of one process that has loaded the loops, and reports how each ended.

``python forked_targets.py '[["decode_target.py", "50000", "100"]]'``: a target replaces the allocation of arrays, and
may die of a segmentation fault, so it has its own process. Its imports are loaded only once for all targets.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Ended(NamedTuple):
    """End of a target: its exit code, or the negative number of a signal, and its output."""

    code: int
    written: str
    errors: str


def run(*runs: tuple[str, ...], checked: bool) -> dict[tuple[str, ...], Ended]:
    """Run targets with their arguments, all with the same build of the loops, and return their ends."""
    environment = {**os.environ, "DDBIO_KERNEL": str(checked_library())} if checked else dict(os.environ)
    command = [sys.executable, "-X", "faulthandler=0", __file__, json.dumps(runs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {target_run: Ended(*ended) for target_run, ended in zip(runs, json.loads(done.stdout), strict=True)}


def checked_library() -> Path:
    """Build the library whose loads and stores check bounds, unless it is current, and return its path."""
    path = FOLDER.parents[2] / "build" / "kernel" / "_loops_checked.so"
    command = [
        sys.executable,
        "-m",
        "ddbio.items.kernel.compiler",
        "--level",
        "checked",
        "--if-changed",
        "--output",
        str(path),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def run_in_fork(target: str, *arguments: str) -> Ended:
    """Run a target in a fork of this process, and wait for its end."""
    with tempfile.TemporaryFile("w+") as written, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(written.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = [target, *arguments]
            code = 1
            try:
                runpy.run_path(str(FOLDER / target), run_name="__main__")
                code = 0
            except BaseException:  # noqa: BLE001 - a fork never continues its parent's work
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        written.seek(0)
        errors.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), written.read(), errors.read())


def main() -> None:
    """Load the loops, and run the targets that the argument names."""
    sys.path.insert(0, str(FOLDER.parents[2]))
    sys.stdout.write(json.dumps([run_in_fork(*target_run) for target_run in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    main()
