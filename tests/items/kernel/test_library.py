"""The library of compiled loops: its paths, its checks, and its build."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ddbio
from ddbio.items.kernel.compiler import build
from ddbio.items.kernel.declarations import LOOPS
from ddbio.items.kernel.hash.columns import add_words, sum_items
from ddbio.items.kernel.library import BUILD_COMMAND, CONSTANTS, FILE_NAME, LIBRARY
from ddbio.items.kernel.tape.sizes import measure_items

PACKAGE = Path(ddbio.__file__).parent
DECODE = """
import ddbio
from ddbio.items.kernel.library import LIBRARY
print(ddbio.from_dynamodb_json(b'{"n":{"N":"7"}}').to_pylist()[0]["n"], getattr(LIBRARY, "__file__", None))
"""

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="numba compiles the loops")


def run(script, *, path, cache, **environment):
    """Run a script with the package at a path."""
    variables = {"PYTHONPATH": str(path), "XDG_CACHE_HOME": str(cache), "PATH": os.defpath, **environment}
    return subprocess.run(
        [sys.executable, "-P", "-c", script], env=variables, capture_output=True, text=True, check=False, cwd=cache
    )


@pytest.fixture
def cache(tmp_path):
    """Return an empty folder for caches."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def archive(tmp_path):
    """Return the package as a zip archive."""
    path = tmp_path / "ddbio.zip"
    with zipfile.ZipFile(path, "w") as file:
        for source in PACKAGE.rglob("*"):
            if source.is_file() and "__pycache__" not in source.parts:
                file.write(source, source.relative_to(PACKAGE.parent))
    return path


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the package in a folder that looks like a clone of the project."""
    folder = tmp_path / "clone"
    shutil.copytree(PACKAGE, folder / "ddbio", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "hatch_build.py").touch()
    (folder / "ddbio/items/kernel" / FILE_NAME).touch()
    return folder


def test_the_library_has_all_declared_loops():
    """The library has each loop of each module, and no other name."""
    for path in (PACKAGE / "items/kernel").rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if "@loop(" in path.read_text("utf-8") and not module.endswith("kernel.jit"):
            importlib.import_module(module)
    loops = LOOPS
    assert len(loops) > 40
    assert all(callable(LIBRARY.loop(loop.name)) for loop in loops)
    with pytest.raises(KeyError, match=r"the library has no loop 'text\.no_such_loop'"):
        LIBRARY.loop("text.no_such_loop")


WORDS, FEW = np.arange(4, dtype=np.uint64), np.arange(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (sum_items, "takes more than 0 arguments"),
        (lambda: sum_items(WORDS, WORDS), "takes fewer arguments"),
        (lambda: sum_items([1, 2]), r"takes an array, not \[1, 2\]"),
        (lambda: sum_items(FEW), "contiguous array of type 'L', not array"),
        (lambda: sum_items(WORDS[::2]), "contiguous array of type 'L'"),
        (lambda: sum_items(WORDS.reshape(2, 2)), "contiguous array of type 'L'"),
        (lambda: sum_items(WORDS.astype(">u8")), "contiguous array of type 'L'"),
        (lambda: measure_items((FEW,), 0, FEW), "takes a"),
        (lambda: measure_items(FEW, 0, FEW), "takes a named tuple"),
        (lambda: add_words(WORDS, True, b"", 0, WORDS, False, WORDS), "takes an array, not b''"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    """An argument of another type is an error before any memory is read."""
    with pytest.raises(TypeError, match=message):
        call()


def test_invalid_numbers_are_refused():
    """The error of the conversion is passed on."""
    with pytest.raises(TypeError):
        add_words(WORDS, False, np.frombuffer(b"", np.uint8), "1", WORDS, False, WORDS)
    with pytest.raises(OverflowError):
        add_words(WORDS, False, np.frombuffer(b"", np.uint8), 1 << 64, WORDS, False, WORDS)


def test_a_zip_archive_carries_the_library(archive, cache):
    """It is extracted once, to a private folder of this user. A damaged file there is written again."""
    first = run(DECODE, path=archive, cache=cache)
    assert first.returncode == 0, first.stderr
    number, path = first.stdout.split()
    (library,) = (cache / "ddbio/kernel").iterdir()
    assert (number, path) == ("7", str(library))
    assert library.parent.stat().st_mode & 0o777 == 0o700
    assert library.read_bytes() == (PACKAGE / "items/kernel" / FILE_NAME).read_bytes()
    written = library.stat().st_mtime_ns
    assert run(DECODE, path=archive, cache=cache).stdout == first.stdout
    assert library.stat().st_mtime_ns == written
    library.write_bytes(library.read_bytes()[:-100] + bytes(100))
    assert run(DECODE, path=archive, cache=cache).stdout == first.stdout
    assert library.read_bytes() == (PACKAGE / "items/kernel" / FILE_NAME).read_bytes()


NEEDS_NUMBA = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba, which builds, is not here")
HIDE_NUMBA = "import sys\nsys.modules['numba'] = None\nimport importlib.util as u\nfind = u.find_spec\n"
HIDE_NUMBA += "u.find_spec = lambda name: None if name == 'numba' else find(name)\n"


def test_without_a_private_folder_the_library_is_extracted_for_one_process(archive, cache, tmp_path):
    """If others may write to the folders of caches and of temporary files, the process leaves no file there."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    cache.chmod(0o777)
    done = run(DECODE, path=archive, cache=cache, TMPDIR=str(shared))
    assert done.returncode == 0, done.stderr
    assert str(shared) in done.stdout.split()[1]
    assert not list(shared.glob("ddbio-*/_loops*"))


def test_a_request_for_missing_numba_is_an_error(checkout, cache):
    """The variable that selects numba is one error without it."""
    done = run(HIDE_NUMBA + DECODE, path=checkout, cache=cache, DDBIO_KERNEL="jit")
    assert "KernelError: DDBIO_KERNEL=jit needs numba, which is not installed" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("system", "machine", "libc", "name"),
    [
        ("linux", "x86_64", "glibc", "linux-x86_64"),
        ("linux", "aarch64", "glibc", "linux-aarch64"),
        ("darwin", "arm64", "", "darwin-arm64"),
        ("linux", "x86_64", "", "linux-musl-x86_64"),
        ("darwin", "x86_64", "", "darwin-x86_64"),
    ],
)
def test_the_platform_of_this_machine(monkeypatch, system, machine, libc, name):
    """A wheel's platform is that of the system, the processor and the C library."""
    monkeypatch.setattr(build.sys, "platform", system)
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    monkeypatch.setattr(build.platform, "libc_ver", lambda: (libc, "2.36"))
    assert build.host_platform() == name
    assert (name in build.PLATFORMS) is (libc == "glibc" or machine == "arm64")


def test_without_library_and_numba_one_error_has_the_remedy(checkout, cache):
    """The message names the command that builds the library, and its requirements."""
    (checkout / "ddbio/items/kernel" / FILE_NAME).unlink()
    done = run(HIDE_NUMBA + DECODE, path=checkout, cache=cache)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ddbio.errors.KernelError: there is no library of compiled loops for this platform")
    assert BUILD_COMMAND in last
    assert "pip install 'ddbio[jit]'" in last


def test_a_library_that_cannot_be_loaded_is_one_error(checkout, cache):
    """A library for another kind of processor is an error. The message has the reason."""
    library = checkout / "ddbio/items/kernel" / FILE_NAME
    library.write_bytes(b"no library")
    done = run(HIDE_NUMBA + DECODE, path=checkout, cache=cache)
    assert "KernelError: the library of compiled loops cannot be loaded: " in done.stderr.splitlines()[-1]


def test_a_selected_library_that_is_missing_is_an_error(checkout, cache):
    """Numba does not replace the library that the variable names."""
    done = run(DECODE, path=checkout, cache=cache, DDBIO_KERNEL="/no/such/library.so")
    assert "KernelError" in done.stderr.splitlines()[-1]
    assert "/no/such/library.so" in done.stderr.splitlines()[-1]


def test_a_changed_source_makes_the_library_stale(checkout, cache):
    """In a clone a library older than its sources is not loaded. In an installation times are ignored."""
    source = checkout / "ddbio/items/kernel/text.py"
    library = checkout / "ddbio/items/kernel" / FILE_NAME
    os.utime(source, (library.stat().st_mtime + 1,) * 2)
    stale = run(HIDE_NUMBA + DECODE, path=checkout, cache=cache)
    assert "the library of compiled loops is older than their source" in stale.stderr.splitlines()[-1]
    (checkout / "hatch_build.py").unlink()
    assert run(HIDE_NUMBA + DECODE, path=checkout, cache=cache).stdout.split()[0] == "7"


@NEEDS_NUMBA
def test_the_digest_of_the_sources_is_in_the_library(tmp_path):
    """A build is skipped if nothing changed. Another text is not a current library."""
    library = PACKAGE / "items/kernel" / FILE_NAME
    mark = build.mark_of(build.host_platform(), build.levels_of(build.host_platform(), build.HOST))
    assert mark == LIBRARY.SOURCES
    assert build.is_current(library, mark)
    (tmp_path / FILE_NAME).write_bytes(library.read_bytes().replace(build.source_digest().encode(), b"0" * 64))
    assert not build.is_current(tmp_path / FILE_NAME, mark)
    assert not build.is_current(tmp_path / "missing.so", mark)
    assert not build.is_current(library, build.mark_of("linux-aarch64", build.levels_of("linux-aarch64", build.ALL)))


def test_loops_use_constants_of_known_modules_only():
    """Modules outside the kernel whose constants are compiled in are among those that make the library stale."""
    used = set()
    for path in (PACKAGE / "items/kernel").rglob("*.py"):
        text = path.read_text("utf-8")
        if not re.search(r"^@(loop|inner|inlined)\b", text, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and re.match(r"ddbio\.items\.(?!kernel)", node.module or ""):
                used |= {node.module for alias in node.names if alias.name.isupper()}
    assert used == {"ddbio.items." + name.removesuffix(".py").replace("/", ".") for name in CONSTANTS}


@NEEDS_NUMBA
def test_the_command_refuses_unknown_targets(tmp_path):
    """An unknown platform or level is one line that names the known ones."""
    command = [sys.executable, "-m", "ddbio.items.kernel.compiler", "--output", str(tmp_path / "library.so")]
    for words, text in (
        (("--platform", "plan9-mips"), "no library can be built for plan9-mips, only for linux-x86_64"),
        (("--level", "v9"), "has no level v9"),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
        assert done.returncode == 1
        assert text in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@NEEDS_NUMBA
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_build_has_the_same_bytes_again(tmp_path):
    """Two builds of all levels are equal. Those for other platforms are also linked here."""
    command = [sys.executable, "-m", "ddbio.items.kernel.compiler", "--platform"]
    for name in ("one", "other"):
        subprocess.run([*command, "linux-x86_64", "--level", "all", "--output", tmp_path / name], check=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    for name in ("linux-aarch64", "darwin-arm64"):
        subprocess.run([*command, name, "--output", tmp_path / name], check=True)
    # https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html: e_machine, here EM_AARCH64
    assert int.from_bytes((tmp_path / "linux-aarch64").read_bytes()[18:20], "little") == 183
    # The magic number of Mach-O for 64 bits, in <mach-o/loader.h> of macOS.
    assert int.from_bytes((tmp_path / "darwin-arm64").read_bytes()[:4], "little") == 0xFEEDFACF


@NEEDS_NUMBA
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_numba_compiles_the_same_loops():
    """Without a library, the differential tests pass with numba's code."""
    names = ("test_differential.py", "test_changes.py", "test_utf8.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [str(Path(__file__).with_name(name)) for name in names]
    environment = os.environ | {"DDBIO_KERNEL": "jit"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
