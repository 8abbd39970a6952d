"""Kill -9 of jobs right before each of the changes that they make to folders, in forks of one process.

The changes are found as Python audits them, so that nothing is hooked or replaced in the code that runs.
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
    """Start a process that runs a function of a module in forks; return how it is asked.

    The function ``kill(moment, places, *words)`` calls ``run(*words)`` in a fork, which dies before its change of the
    number ``moment`` to one of the folders ``places`` or, where ``moment`` is a part of a name, before the first change
    of a name that has it. It returns which change that was, or ``WHOLE`` if the fork came to its end.
    """
    code = f"from {__name__} import serve; from {run.__module__} import {run.__name__} as run; serve(run)"
    command = [sys.executable, "-W", "ignore", "-c", code]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def kill(moment: int | str, places: Sequence[Path], *words: object) -> str:
            stdin.write(json.dumps([moment, [*map(str, places)], [*map(str, words)]]) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield kill
        stdin.close()


def serve(run: Callable[..., object]) -> None:
    """Fork a process for each line that is read; print how it ended."""
    for line in sys.stdin:
        moment, places, words = json.loads(line)
        heard, told = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                _die_at(moment, tuple(places), told)
                run(*words)
                code = 0
            except BaseException as error:  # noqa: BLE001 - a fork never goes on with its parent's work
                sys.stderr.write(f"{error!r}\n")
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(told)
        name = os.read(heard, 4096).decode()
        os.close(heard)
        status = os.waitpid(child, 0)[1]
        sys.stdout.write((name or f"ended {os.waitstatus_to_exitcode(status)}") + "\n")
        sys.stdout.flush()


def _die_at(moment: int | str, places: tuple[str, ...], told: int) -> None:
    left = [moment if isinstance(moment, int) else 1]

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event not in CHANGES and not (event == "open" and int(str(arguments[2] or 0)) & os.O_CREAT):
            return
        changed = arguments[1 if event in {"os.rename", "os.link"} else 0]
        if not isinstance(changed, str | bytes | os.PathLike):
            return
        path = os.fsdecode(changed)
        if not path.startswith(places) or not (isinstance(moment, int) or moment in path):
            return
        left[0] -= 1
        if left[0] == 0:
            os.write(told, f"{event} {DIGITS.sub('N', os.path.relpath(path, places[0]))}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def strike(kill: Kill, make: Callable[[int], tuple], check: Callable[..., None], *named: str) -> Counter[str]:
    """Kill a job before its first change, its second, and so on until it ends; return how often each was struck.

    Files are renamed side by side, so that a change need not have its number in the next run: each of the named ones
    is struck once more, by its name.

    Parameters
    ----------
    make
        Makes what a job works on; returns the folders and the words of ``kill``. It is given a new number each time.
    check
        Checks what a killed job has left, given the same words.
    """
    struck: Counter[str] = Counter()

    def is_struck(moment: int | str) -> bool:
        places, *words = make(sum(struck.values()))
        name = kill(moment, places, *words)
        if name != WHOLE:
            assert not name.startswith("ended"), name
            check(*words)
            struck[name] += 1
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
        return name != WHOLE

    assert any(not is_struck(number) for number in range(1, 200)), struck
    for name in named:
        assert is_struck(name), (name, struck)
    return struck
