"""What the name of the folder of compiled loops watches."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddbio.core.kernel import cache

HOME = Path(cache.__file__).parent


@pytest.mark.parametrize("path", sorted(cache.PLAIN_SOURCES))
def test_a_module_that_may_change_without_compiling_has_no_loop(path):
    """What is left out of the fingerprint exists, compiles nothing, and is imported by nothing that is compiled."""
    assert not re.search(r"^@(loop|inner|inlined)$", (HOME / path).read_text("utf-8"), re.MULTILINE)
    module = f"ddbio.core.kernel.{path.removesuffix('.py').replace('/', '.')}"
    package, _, name = module.rpartition(".")
    named = re.compile(rf"^from ({re.escape(module)} import|{re.escape(package)} import .*\b{name}\b)", re.MULTILINE)
    watched = {each for each in HOME.rglob("*.py") if each.relative_to(HOME).as_posix() not in cache.PLAIN_SOURCES}
    assert [each.name for each in watched if named.search(each.read_text("utf-8"))] == []


def test_a_compilation_is_told_once_and_only_if_it_is_ours():
    """Whoever waits for a loop to be compiled reads so once; functions of others are nobody's news here."""
    script = """
import numba
from ddbio.core.kernel.cache import LOOPS
numba.njit(lambda number: number + 1)(1)
print("theirs", flush=True)
LOOPS.append(numba.njit(lambda number: number - 1))
LOOPS[0](1), LOOPS[0](1.5)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    theirs, ours = done.stdout.splitlines()
    assert theirs == "theirs"
    assert re.fullmatch(r"compiling loops, .* (kept in \S+|in every process: .*)", ours)
