"""Reads many inputs in a child process with little memory, and names the input that ends it, hangs it or is misread.

The child makes each input from a number, so that its parent can make the last one again and save it. Its arguments are
``KIND FIRST COUNT SECONDS``, ``KIND save NUMBER PATH``, ``KIND PATH…``, or ``corpus``.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MEMORY_BYTES = 2 << 30
FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
# Limits of the processor time and the time of one input, which has kilobytes.
_CPU_SECONDS, _SECONDS = 20, 120
# Arrow's pool and glibc reserve more than half of all possible addresses without using them.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}


class FoundError(AssertionError):
    """The effect of an input, and the path at which it is saved."""


def run(kind: str, first: int, count: int, seconds: float, saved: Path) -> int:
    """Read ``count`` inputs from the first number on, or for the given time. Return their number.

    Raises
    ------
    FoundError
        An input was misread, or ended the process.
    """
    done = _python(kind, str(first), str(count), str(seconds))
    numbers = done.stdout.split()
    if done.returncode:
        number = numbers[-1] if numbers else "none"
        path = saved / f"{kind}-{number}"
        _python(kind, "save", number, str(path))
        raise FoundError(f"{kind} {number}, saved as {path}: exit code {done.returncode}: {done.stderr[-3000:]}")
    return len(numbers)


def run_corpus() -> int:
    """Read every input of the corpus. Return their number.

    Raises
    ------
    FoundError
        An input was misread, or ended the process.
    """
    done = _python("corpus")
    names = done.stdout.split()
    if done.returncode:
        raise FoundError(f"{names[-1] if names else 'none'}: exit code {done.returncode}: {done.stderr[-3000:]}")
    return len(names)


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler=1", __file__, *words]
    env = {**os.environ, **_ENVIRONMENT}
    return subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", check=False)


def _read_inputs(inputs: Iterable[tuple[str, str, bytes, random.Random]]) -> None:
    """Read inputs, and print the name of each before it is read."""
    from inputs import KINDS  # noqa: PLC0415 - the parent does not need it

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, kind, data, chance in inputs:
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        # Their signals end this process even inside a loop.
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS)
        KINDS[kind].read(data, chance)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _make_input(kind: str, number: int) -> tuple[bytes, random.Random]:
    from inputs import KINDS  # noqa: PLC0415 - the parent does not need it

    chance = random.Random(number)
    return KINDS[kind].make(chance), chance


def _numbered_inputs(
    kind: str, first: int, count: int, seconds: float
) -> Iterator[tuple[str, str, bytes, random.Random]]:
    end = time.monotonic() + seconds
    for number in itertools.islice(itertools.count(first), count):
        if time.monotonic() > end:
            return
        yield str(number), kind, *_make_input(kind, number)


def _corpus_inputs() -> Iterator[tuple[str, str, bytes, random.Random]]:
    for path in sorted(CORPUS.glob("*/*")):
        yield f"{path.parent.name}/{path.name}", path.parent.name, path.read_bytes(), random.Random(0)


def main(kind: str, *words: str) -> None:
    """Run the mode of the arguments, which the module describes."""
    sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]
    match words:
        case ():
            _read_inputs(_corpus_inputs())
        case ("save", number, path):
            Path(path).write_bytes(_make_input(kind, int(number))[0])
        case (first, count, seconds) if first.isdecimal():
            _read_inputs(_numbered_inputs(kind, int(first), int(count), float(seconds)))
        case paths:
            _read_inputs((path, kind, Path(path).read_bytes(), random.Random(0)) for path in paths)


if __name__ == "__main__":
    main(*sys.argv[1:])
