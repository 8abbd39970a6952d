"""What names kept loops, where they are kept, and who may load them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

import ddbio
from ddbio.core.kernel import store

PACKAGE = Path(ddbio.__file__).parent

CONTENTS = """
import ddbio, sys
from ddbio.core import warm
from ddbio.core.kernel import arrange
from ddbio.core.kernel.cache import LOOPS
from ddbio.core.kernel.store import content_of
assert ddbio.__file__.startswith(sys.argv[1]), ddbio.__file__
for loop in LOOPS:
    print(loop.__module__, loop.__name__, content_of(loop))
"""

ARRANGE = """
import numpy as np
from ddbio.core.kernel.arrange import arrange
out, starts = np.zeros(64, np.uint8), np.zeros(2, np.int64)
texts, offsets = np.frombuffer(b"ab", np.uint8).copy(), np.array([0, 1, 2], np.int64)
arrange(texts, offsets, np.array([1, 0], np.int64), np.zeros(0, np.uint8), out, starts)
print(bytes(out[:1]), sum(arrange._cache_misses.values()), sum(arrange._cache_hits.values()))
"""


def python(script: str, *arguments: str, package: Path = PACKAGE, **environment: str) -> str:
    """Return what a script writes that runs in a process of its own, with the package of that folder or archive."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/").stdout


def contents(package: Path) -> dict[str, str]:
    """Return the content of every loop as the package of that folder or archive has it."""
    lines = python(CONTENTS, str(package.parent), package=package).splitlines()
    return {f"{module} {name}": content for module, name, content in map(str.split, lines)}


def copied(folder: Path) -> Path:
    """Return a copy of the package."""
    return Path(shutil.copytree(PACKAGE, folder / "ddbio", ignore=shutil.ignore_patterns("__pycache__")))


def zipped(package: Path) -> Path:
    """Return a path within an archive of the package, which Python finds by the path of the archive."""
    archive = shutil.make_archive(str(package.parent / "packed"), "zip", package.parent, "ddbio")
    return Path(archive) / "ddbio"


def test_loops_are_named_by_what_they_are_compiled_from_wherever_they_are_installed(tmp_path):
    """Another folder and an archive hold the same loops; comments and docstrings are no part of them."""
    package = copied(tmp_path)
    here = contents(PACKAGE)
    packed = zipped(package)
    rows = package / "core" / "kernel" / "rows.py"
    rows.write_text("# A comment.\n" + re.sub(r'    """.*"""\n', '    """Do."""\n', rows.read_text("utf-8")), "utf-8")
    assert here
    assert contents(package) == contents(packed) == here


def test_an_edit_changes_the_loops_that_it_reaches_and_no_others(tmp_path):
    """A constant of one part is in the name of every loop that calls the part, however deep."""
    package = copied(tmp_path)
    number = package / "core" / "kernel" / "number.py"
    was = number.read_text("utf-8")
    number.write_text(re.sub(r"^_TEN = .*$", "_TEN = np.uint64(11)", was, flags=re.MULTILINE), "utf-8")
    assert number.read_text("utf-8") != was
    here, there = contents(PACKAGE), contents(package)
    changed = {name for name in here if here[name] != there[name]}
    assert "ddbio.core.kernel.decode.scan scan" in changed
    assert "ddbio.core.kernel.rows join_rows" not in changed


def test_names_of_fields_are_part_of_the_name():
    """Two tuples of arrays that differ by the order of their fields alone are not taken for one another."""

    class One(NamedTuple):
        a: np.ndarray
        b: np.ndarray

    class Other(NamedTuple):
        b: np.ndarray
        a: np.ndarray

    Other.__qualname__ = One.__qualname__
    array = np.zeros(1)
    assert store._spell_type(numba.typeof(One(array, array))) != store._spell_type(numba.typeof(Other(array, array)))


def test_what_one_installation_compiled_another_loads(tmp_path):
    """A loop is compiled once, and then loaded by a copy elsewhere and from an archive."""
    cache = str(tmp_path / "cache")
    assert python(ARRANGE, XDG_CACHE_HOME=cache).split()[1:] == ["1", "0"]
    package = copied(tmp_path)
    for each in (package, zipped(package)):
        assert python(ARRANGE, package=each, XDG_CACHE_HOME=cache) == "b'b' 0 1\n"


def test_a_damaged_file_is_compiled_anew(tmp_path):
    """A file whose digest does not fit is not run, but replaced."""
    python(ARRANGE, XDG_CACHE_HOME=str(tmp_path))
    (kept,) = (tmp_path / "ddbio" / "kernel").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    assert python(ARRANGE, XDG_CACHE_HOME=str(tmp_path)) == "b'b' 1 0\n"
    assert [each.name for each in kept.parent.iterdir()] == [kept.name]
    assert python(ARRANGE, XDG_CACHE_HOME=str(tmp_path)) == "b'b' 0 1\n"


def test_portable_loops_are_loaded_without_compiling(tmp_path):
    """What was compiled for every processor of a kind is loaded by a process that compiles for its own."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    build = f"from ddbio.core.kernel import store\nfrom pathlib import Path\nstore.keep_in(Path({str(folder)!r}))\n"
    assert python(build + ARRANGE, **store.portable_environment()) == "b'b' 1 0\n"
    empty = str(tmp_path / "empty")
    assert python(ARRANGE, XDG_CACHE_HOME=empty, DDBIO_KERNEL_DIR=str(folder)) == "b'b' 0 1\n"
    package = copied(tmp_path)
    shutil.copytree(folder, package / "_kernel")
    for each in (package, zipped(package)):
        assert python(ARRANGE, package=each, XDG_CACHE_HOME=empty) == "b'b' 0 1\n"


def test_a_named_folder_that_others_write_is_not_used(tmp_path):
    """The folder that the environment names is checked as the user's own is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    script = "import sys; sys.stderr = sys.stdout\n" + ARRANGE
    said = python(script, XDG_CACHE_HOME=str(tmp_path), DDBIO_KERNEL_DIR=str(folder))
    assert f"DDBIO_KERNEL_DIR {folder} is not used" in said


def test_nobody_else_can_put_a_loop_into_a_private_folder(tmp_path):
    """Every folder on the way belongs to the user or root, and others write none of them but a sticky one."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert store.is_private(folder)
    folder.parent.chmod(0o777)
    assert not store.is_private(folder)
    folder.parent.chmod(0o1777)
    assert store.is_private(folder)
    folder.chmod(0o1777)
    assert not store.is_private(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder.parent)
    assert not store.is_private(tmp_path / "link" / "b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_a_folder_below_what_another_user_owns_is_not_private(tmp_path):
    """Who owns a folder on the way can put another in its place."""
    folder = tmp_path / "theirs" / "ours"
    folder.mkdir(parents=True)
    os.chown(folder.parent, 65534, 65534)
    assert not store.is_private(folder)


def test_loops_are_kept_in_the_first_private_folder(tmp_path):
    """Where others can write the user's cache folder, the temporary one is taken; where neither is private, none."""
    shared, temporary = tmp_path / "shared", tmp_path / "temporary"
    for folder in (shared, temporary):
        folder.mkdir()
    shared.chmod(0o777)
    script = "from ddbio.core.kernel.store import kept_folder; print(kept_folder())"
    found = python(script, XDG_CACHE_HOME=str(shared), TMPDIR=str(temporary)).strip()
    assert found == str(temporary / f"ddbio-{os.getuid()}" / "ddbio" / "kernel")
    temporary.chmod(0o777)
    assert python(script, XDG_CACHE_HOME=str(shared), TMPDIR=str(temporary)).strip() == "None"
