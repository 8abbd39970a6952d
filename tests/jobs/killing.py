"""Kill -9 of jobs immediately before each of their changes to folders, in forks of one process.

The changes are found by Python's audit events, so that the running code has no hooks or replacements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Kill: TypeAlias = Callable[..., str]

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}
DIGITS = re.compile("[0-9]{8}T[0-9]{6}Z_[0-9a-f]+|[0-9]+")
WHOLE = "ended 0"


@contextmanager
def killing(run: Callable[..., object]) -> Iterator[Kill]:
    """Start a process that runs a function of a module in forks, and return the function that requests kills.

    The function ``kill(moment, folders, *words)`` calls ``run(*words)`` in a fork. The fork dies before its change
    number ``moment`` to one of the folders or, if ``moment`` is a part of a name, before the first change of a matching
    name. The function returns that change, or ``WHOLE`` if the fork ended normally.
    """
    code = f"from {__name__} import serve; from {run.__module__} import {run.__name__} as run; serve(run)"
    command = [sys.executable, "-W", "ignore", "-c", code]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def kill(moment: int | str, folders: Sequence[Path], *words: object) -> str:
            stdin.write(json.dumps([moment, [*map(str, folders)], [*map(str, words)]]) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield kill
        stdin.close()


def serve(run: Callable[..., object]) -> None:
    """Fork a process for each input line, and print how it ended."""
    for line in sys.stdin:
        moment, folders, words = json.loads(line)
        heard, report = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                _die_at(moment, tuple(folders), report)
                run(*words)
                code = 0
            except BaseException as error:  # noqa: BLE001 - a fork never continues its parent's work
                sys.stderr.write(f"{error!r}\n")
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(report)
        name = os.read(heard, 4096).decode()
        os.close(heard)
        status = os.waitpid(child, 0)[1]
        sys.stdout.write((name or f"ended {os.waitstatus_to_exitcode(status)}") + "\n")
        sys.stdout.flush()


def _die_at(moment: int | str, folders: tuple[str, ...], report: int) -> None:
    left = [moment if isinstance(moment, int) else 1]

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event not in CHANGES and not (event == "open" and int(str(arguments[2] or 0)) & os.O_CREAT):
            return
        changed = arguments[1 if event in {"os.rename", "os.link"} else 0]
        if not isinstance(changed, str | bytes | os.PathLike):
            return
        path = os.fsdecode(changed)
        if not path.startswith(folders) or not (isinstance(moment, int) or moment in path):
            return
        left[0] -= 1
        if left[0] == 0:
            os.write(report, f"{event} {DIGITS.sub('N', os.path.relpath(path, folders[0]))}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def strike(kill: Kill, make: Callable[[int], tuple], check: Callable[..., None], *named: str) -> Counter[str]:
    """Kill a job before its first change, its second, and so on until it ends. Return the number of kills per change.

    Files are renamed concurrently, so that a change may have another number in the next run: each of the changes is
    also killed once by its name.

    Parameters
    ----------
    make
        Creates the input of a job, and returns the folders and the words of ``kill``. It gets a new number each time.
    check
        Checks the state after a killed job, with the same words.
    """
    struck: Counter[str] = Counter()

    def is_struck(moment: int | str) -> bool:
        folders, *words = make(sum(struck.values()))
        name = kill(moment, folders, *words)
        if name != WHOLE:
            assert not name.startswith("ended"), name
            check(*words)
            struck[name] += 1
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        return name != WHOLE

    assert any(not is_struck(number) for number in range(1, 200)), struck
    for name in named:
        assert is_struck(name), (name, struck)
    return struck
