"""What the name of the folder of compiled loops watches."""

from __future__ import annotations

import re
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
