"""Type checkers accept right calls of the public functions, and find each mistake in wrong ones."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
RIGHT, WRONG = SAMPLES / "right_calls.py", SAMPLES / "wrong_calls.py"
ROOT = Path(__file__).parents[2]
SAMPLED = [RIGHT.relative_to(ROOT), WRONG.relative_to(ROOT)]


def mypy(folder):
    """Return the files and lines in which mypy finds an error."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder), *SAMPLED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return {(Path(path), int(line)) for path, line in re.findall(r"^(.+?):(\d+): error", done.stdout, re.MULTILINE)}


def pyright(_):
    """Return the files and lines in which pyright, of the package that brings its own Node.js, finds an error."""
    command = [Path(sys.executable).with_name("basedpyright"), "--pythonpath", sys.executable, "--level", "error"]
    done = subprocess.run([*command, "--outputjson", *SAMPLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {(Path(each["file"]).relative_to(ROOT), each["range"]["start"]["line"] + 1) for each in found}


@pytest.mark.parametrize("check", [mypy, pyright], ids=["mypy --strict", "pyright"])
def test_mistakes_in_calls_are_found(check, tmp_path):
    """An unknown name, a wrong type, a missing argument are errors in their lines; nothing else is."""
    lines = WRONG.read_text("utf-8").splitlines()
    wanted = {(WRONG.relative_to(ROOT), number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wanted) == 15
    assert check(tmp_path) == wanted
