"""What names kept loops, where they are kept, and who may load them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import numba
import numpy as np
import pytest

import ddbio
from ddbio.items.kernel import cache

PACKAGE = Path(ddbio.__file__).parent

CONTENTS = """
import ddbio, sys
from ddbio.advice import warm
from ddbio.items.kernel.cache import source_digest
from ddbio.items.kernel.jit import LOOPS
assert ddbio.__file__.startswith(sys.argv[1]), ddbio.__file__
for loop in LOOPS:
    print(loop.__module__, loop.__name__, source_digest(loop))
"""

SAMPLE = """
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import peek

@inner
def twice(data):
    return 2 * peek(data, 0)

@loop
def double(data):
    return twice(data)
"""

DOUBLE = """
import numpy as np
from sample import double
print(double(np.array([21])), sum(double._cache_misses.values()), sum(double._cache_hits.values()))
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Return an archive with a module that has a loop."""
    path = tmp_path_factory.mktemp("sample") / "sample.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sample.py", SAMPLE)
    return path


def python(script: str, *arguments: str, package: Path = PACKAGE, **environment: str) -> str:
    """Return what a script writes that runs in a process of its own, with the package of that folder or archive."""
    found = os.pathsep.join([str(package.parent), environment.pop("SAMPLE", "")])
    environment = {**os.environ, "PYTHONPATH": found, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/").stdout


def contents(package: Path) -> dict[str, str]:
    """Return the content of every loop as the package of that folder or archive has it."""
    lines = python(CONTENTS, str(package.parent), package=package).splitlines()
    return {f"{module} {name}": content for module, name, content in map(str.split, lines)}


@pytest.fixture(scope="module")
def here():
    """Return the content of every loop of this installation."""
    return contents(PACKAGE)


def copied(folder: Path) -> Path:
    """Return a copy of the package."""
    return Path(shutil.copytree(PACKAGE, folder / "ddbio", ignore=shutil.ignore_patterns("__pycache__")))


def zipped(package: Path) -> Path:
    """Return a path within an archive of the package, which Python finds by the path of the archive."""
    archive = shutil.make_archive(str(package.parent / "packed"), "zip", package.parent, "ddbio")
    return Path(archive) / "ddbio"


def test_loops_are_named_by_what_they_are_compiled_from_wherever_they_are_installed(tmp_path, here):
    """Another folder and an archive hold the same loops; comments and docstrings are no part of them."""
    package = copied(tmp_path)
    packed = zipped(package)
    lines = package / "items" / "kernel" / "lines.py"
    lines.write_text("# A comment.\n" + re.sub(r'    """.*"""\n', '    """Do."""\n', lines.read_text("utf-8")), "utf-8")
    assert here
    assert contents(package) == contents(packed) == here


def test_an_edit_changes_the_loops_that_it_reaches_and_no_others(tmp_path, here):
    """A constant of one part is in the name of every loop that calls the part, however deep."""
    package = copied(tmp_path)
    number = package / "items" / "kernel" / "number.py"
    was = number.read_text("utf-8")
    number.write_text(re.sub(r"^_TEN = .*$", "_TEN = np.uint64(11)", was, flags=re.MULTILINE), "utf-8")
    assert number.read_text("utf-8") != was
    there = contents(package)
    changed = {name for name in here if here[name] != there[name]}
    assert "ddbio.items.kernel.tape.walk walk_items" in changed
    assert "ddbio.items.kernel.lines join_rows" not in changed


def test_the_module_of_a_part_is_part_of_the_name():
    """A part that moved to another module is compiled anew, since what was compiled names the old one."""

    def double(number):
        return 2 * number

    moved = FunctionType(double.__code__, double.__globals__)
    moved.__module__ = "elsewhere"
    assert cache.source_digest(moved) != cache.source_digest(double)


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
    assert cache._describe_type(numba.typeof(One(array, array))) != cache._describe_type(
        numba.typeof(Other(array, array))
    )


def test_what_one_installation_compiled_another_loads(tmp_path, sample):
    """A loop is compiled once, and then loaded by a copy elsewhere and from an archive."""
    cache = str(tmp_path / "cache")
    assert python(DOUBLE, SAMPLE=str(sample), XDG_CACHE_HOME=cache).split()[1:] == ["1", "0"]
    package = copied(tmp_path)
    for each in (package, zipped(package)):
        assert python(DOUBLE, package=each, SAMPLE=str(sample), XDG_CACHE_HOME=cache) == "42 0 1\n"


def test_a_damaged_file_is_compiled_anew(tmp_path, sample):
    """A file whose digest does not fit is not run, but replaced."""
    python(DOUBLE, SAMPLE=str(sample), XDG_CACHE_HOME=str(tmp_path))
    (kept,) = (tmp_path / "ddbio" / "kernel").glob("*.nbc")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    assert python(DOUBLE, SAMPLE=str(sample), XDG_CACHE_HOME=str(tmp_path)) == "42 1 0\n"
    assert list(kept.parent.glob("*.nbc")) == [kept]
    assert python(DOUBLE, SAMPLE=str(sample), XDG_CACHE_HOME=str(tmp_path)) == "42 0 1\n"


def test_portable_loops_are_loaded_without_compiling(tmp_path, sample):
    """What was compiled for every processor of a kind is loaded by a process that compiles for its own."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    build = f"""
from pathlib import Path
from ddbio.items.kernel import cache
cache.use_cache_folder(Path({str(folder)!r}))
"""
    assert python(build + DOUBLE, SAMPLE=str(sample), **cache.portable_environment()) == "42 1 0\n"
    empty = str(tmp_path / "empty")
    assert python(DOUBLE, SAMPLE=str(sample), XDG_CACHE_HOME=empty, DDBIO_KERNEL_DIR=str(folder)) == "42 0 1\n"
    package = copied(tmp_path)
    shutil.copytree(folder, package / "_kernel")
    for each in (package, zipped(package)):
        assert python(DOUBLE, package=each, SAMPLE=str(sample), XDG_CACHE_HOME=empty) == "42 0 1\n"


def test_a_named_folder_that_others_write_is_not_used(tmp_path, sample):
    """The folder that the environment names is checked as the user's own is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    script = "import sys; sys.stderr = sys.stdout\n" + DOUBLE
    said = python(script, SAMPLE=str(sample), XDG_CACHE_HOME=str(tmp_path), DDBIO_KERNEL_DIR=str(folder))
    assert f"DDBIO_KERNEL_DIR {folder} is not used" in said


def test_big_endian_processors_are_refused():
    """The loops load and store words: another order of their bytes would change values."""
    script = (
        "import sys, numba\n"
        "sys.byteorder = 'big'\n"
        "try:\n    import ddbio.items.kernel.cache\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert "little-endian" in python(script)


def test_nobody_else_can_put_a_loop_into_a_private_folder(tmp_path):
    """Every folder on the way belongs to the user or root, and others write none of them but a sticky one."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert cache.is_private(folder)
    folder.parent.chmod(0o777)
    assert not cache.is_private(folder)
    folder.parent.chmod(0o1777)
    assert cache.is_private(folder)
    folder.chmod(0o1777)
    assert not cache.is_private(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder.parent)
    assert not cache.is_private(tmp_path / "link" / "b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_a_folder_below_what_another_user_owns_is_not_private(tmp_path):
    """Who owns a folder on the way can put another in its place."""
    folder = tmp_path / "theirs" / "ours"
    folder.mkdir(parents=True)
    os.chown(folder.parent, 65534, 65534)
    assert not cache.is_private(folder)


def test_loops_are_kept_in_the_first_private_folder(tmp_path):
    """Where others can write the user's cache folder, the temporary one is taken; where neither is private, none."""
    shared, temporary = tmp_path / "shared", tmp_path / "temporary"
    for folder in (shared, temporary):
        folder.mkdir()
    shared.chmod(0o777)
    script = "from ddbio.items.kernel.cache import cache_folder; print(cache_folder())"
    found = python(script, XDG_CACHE_HOME=str(shared), TMPDIR=str(temporary)).strip()
    assert found == str(temporary / f"ddbio-{os.getuid()}" / "ddbio" / "kernel")
    temporary.chmod(0o777)
    assert python(script, XDG_CACHE_HOME=str(shared), TMPDIR=str(temporary)).strip() == "None"


def test_of_two_processes_one_compiles_and_the_other_waits(tmp_path, sample):
    """Who begins second loads what the first leaves; both answer."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(sample)}
    both = [
        subprocess.Popen([sys.executable, "-c", DOUBLE], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate(timeout=300)[0] for process in both) == ["42 0 1\n", "42 1 0\n"]
    assert len(list(tmp_path.rglob("*.nbc"))) == 1


def test_a_loop_that_cannot_be_compiled_stops_no_other_process(tmp_path):
    """Whoever fails to compile a loop lets others try, though it goes on."""
    script = """
import fcntl, pathlib, sys
from ddbio.items.kernel.jit import loop
@loop
def broken(data):
    return data.no_such_thing
try:
    broken(1)
except Exception as error:
    (lock,) = pathlib.Path(sys.argv[1]).rglob("*.lock")
    fcntl.flock(lock.open("wb"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(type(error).__name__)
"""
    assert python(script, str(tmp_path), XDG_CACHE_HOME=str(tmp_path)) == "TypingError\n"


def test_garbage_is_collected_again_once_loops_are_compiled(tmp_path):
    """The collector rests while a loop is compiled, one that another calls too, and works again after that."""
    script = """
import gc
from ddbio.items.kernel.jit import loop

@loop
def called(x):
    return x + 1

@loop
def calls(x):
    return called(x) * 2

assert calls(1) == 4 and gc.isenabled()
gc.disable()
assert calls(1.5) == 5.0 and not gc.isenabled()
"""
    (tmp_path / "loops.py").write_text(script)
    subprocess.run(
        [sys.executable, str(tmp_path / "loops.py")], check=True, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    )
