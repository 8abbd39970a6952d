"""Build of the library: compile each loop for each level of processors, and link the objects.

Builds are reproducible: the same sources, numba, LLVM and Zig give the same bytes. Zig's linker also links libraries
for other platforms, so aarch64 needs no machine of that kind.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddbio.errors import KernelError
from ddbio.items.kernel.library import FILE_NAME, sources

if TYPE_CHECKING:
    from ddbio.items.kernel.compiler.objects import CompiledLoop

GLUE = Path(__file__).with_name("loops.c")
HOST, ALL, CHECKED = "host", "all", "checked"
"""Values in addition to the names of levels: this processor's level, all levels, or a test build that checks bounds."""

_COMPILERS = ("llvmlite", "numba", "ziglang")


class Level(NamedTuple):
    """A set of instructions."""

    name: str
    cpu: str
    """LLVM's name for a processor that has the instructions."""
    condition: str
    """A C expression that is true if the processor has the instructions."""


class Platform(NamedTuple):
    """An operating system and a family of processors."""

    triple: str
    zig_target: str
    levels: tuple[Level, ...]
    """From the lowest to the highest. The library has each loop for each level."""
    wheel_tag: str


def _x86_64(number: int) -> Level:
    return Level(f"v{number}", f"x86-64-v{number}", f"x86_64_level() >= {number}")


_ARM = (Level("v8", "generic", "1"),)
_GLIBC = "manylinux_2_17_{0}.manylinux2014_{0}"

PLATFORMS = {
    "linux-x86_64": Platform(
        "x86_64-unknown-linux-gnu",
        "x86_64-linux-gnu.2.17",
        (_x86_64(2), _x86_64(3), _x86_64(4)),
        _GLIBC.format("x86_64"),
    ),
    "darwin-arm64": Platform("arm64-apple-macosx11.0.0", "aarch64-macos.11.0", _ARM, "macosx_11_0_arm64"),
    "linux-aarch64": Platform("aarch64-unknown-linux-gnu", "aarch64-linux-gnu.2.17", _ARM, _GLIBC.format("aarch64")),
}


def host_platform() -> str:
    """Return the name of this machine's platform, whether or not ``PLATFORMS`` has it."""
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        return f"linux-musl-{machine}"
    return f"{sys.platform}-{machine}"


def build(name: str, path: Path, level: str, processes: int | None = None) -> None:
    """Build the library of a platform.

    Parameters
    ----------
    name
        A key of ``PLATFORMS``.
    level
        The name of a level, ``host``, ``all`` or ``checked``.
    processes
        The number of processes that compile; one per processor by default.

    Raises
    ------
    KernelError
        There is no such platform, or a compiler is not installed.
    """
    check_compilers()
    chosen, target = levels_of(name, level), PLATFORMS[name]
    mark, began = mark_of(name, chosen), time.time()
    with tempfile.TemporaryDirectory() as folder:
        compiled = {
            target_level.name: _compile_all(target, target_level, processes or os.cpu_count() or 1)
            for target_level in chosen
        }
        objects = []
        for loop in (loop for loops in compiled.values() for loop in loops):
            objects.append(Path(folder, f"{loop.symbol}.o"))
            objects[-1].write_bytes(loop.content)
        Path(folder, "table.h").write_text(_table(chosen, compiled, mark), "utf-8")
        shutil.copy(GLUE, folder)
        library = _link(target, Path(folder), objects)
        if mark_of(name, chosen) != mark:
            raise KernelError("the sources of the loops were changed while they were compiled: build them again")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Processes that have loaded an older library keep its file.
        moved = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.copy(library, moved)
        os.utime(moved, (began, began))
        moved.replace(path)


def check_compilers() -> None:
    """Check that the compilers are installed.

    Raises
    ------
    KernelError
        A compiler is not installed.
    """
    for module in _COMPILERS:
        if importlib.util.find_spec(module) is None:
            raise KernelError(f"{module}, which builds the loops, is not installed: pip install 'ddbio[jit]'")


def levels_of(name: str, level: str) -> list[Level]:
    """Return the levels of processors to build for.

    Raises
    ------
    KernelError
        There is no such platform, or it has no such level.
    """
    if name not in PLATFORMS:
        raise KernelError(
            f"no library can be built for {name}, only for {', '.join(PLATFORMS)}: numba compiles the loops there"
        )
    target = PLATFORMS[name]
    if level == HOST:
        level = _host_level(target) if name == host_platform() else ALL
    if level == CHECKED:
        return [target.levels[0]._replace(name=CHECKED)]
    chosen = [candidate for candidate in target.levels if level in {candidate.name, ALL}]
    if not chosen:
        raise KernelError(
            f"{name} has no level {level}: it has {', '.join(candidate.name for candidate in target.levels)}"
        )
    return chosen


def mark_of(name: str, levels: list[Level]) -> str:
    """Return the text in a library that identifies its sources, its platform and its levels."""
    return f"ddbio sources {source_digest()} for {name} {' '.join(level.name for level in levels)}"


def is_current(path: Path, mark: str) -> bool:
    """Return whether a library has this mark."""
    return path.is_file() and mark.encode() + b"\0" in path.read_bytes()


def source_digest() -> str:
    """Return a digest of the sources and of the versions of the compilers."""
    digest = hashlib.sha256(repr([version(name) for name in _COMPILERS]).encode())
    for source in sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()


def own_library() -> Path:
    """Return the path at which ddbio looks for its library."""
    return GLUE.parents[1] / FILE_NAME


def _host_level(target: Platform) -> str:
    """Return the highest level that this processor supports."""
    from llvmlite import binding  # noqa: PLC0415 - only builds need it

    has = binding.get_host_cpu_features()
    needs = {
        "v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
        "v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    }
    names = [level.name for level in target.levels if all(map(has.get, needs.get(level.name, ())))]
    return names[-1]


def _compile_all(target: Platform, level: Level, processes: int) -> list[CompiledLoop]:
    """Compile all loops in several processes. Numba reads its target processor from the environment."""
    is_checked = level.name == CHECKED
    # Numba runs here: for another family of processors it must optimise for "generic".
    cpu = level.cpu if target.triple.startswith(platform.machine()) else "generic"
    settings = {
        "DDBIO_KERNEL": "jit",
        "DDBIO_KERNEL_CHECKED": "1" if is_checked else "0",
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": "",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            names = pool.submit(_names_of_loops).result()
            futures = [pool.submit(_compile, name, target.triple, level) for name in names]
            return [future.result() for future in futures]
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _names_of_loops() -> list[str]:
    from ddbio.items.kernel.compiler.objects import import_loops  # noqa: PLC0415 - in a process with its own settings

    return sorted(loop.name for loop in import_loops())


def _compile(name: str, triple: str, level: Level) -> CompiledLoop:
    from ddbio.items.kernel.compiler.objects import Target, compile_loop, import_loops  # noqa: PLC0415 - see above

    (loop,) = (loop for loop in import_loops() if loop.name == name)
    return compile_loop(loop, Target(triple, level.cpu, level.name))


def _table(levels: list[Level], compiled: dict[str, list[CompiledLoop]], mark: str) -> str:
    """Return the C source with the table of the loops and the selection of the level."""
    names = [level.name for level in levels]
    lines = [f"int32_t {loop.symbol}(int64_t *);" for loops in compiled.values() for loop in loops]
    quoted = ", ".join(f'"{name}"' for name in names)
    lines += [
        f"static const char *const level_names[] = {{{quoted}}};",
        f'#define LEVELS "{" or ".join(names)}"',
        f'static const char sources[] = "{mark}";',
        "static struct loop loops[] = {",
    ]
    for versions in zip(*compiled.values(), strict=True):
        functions = ", ".join(loop.symbol for loop in versions)
        loop = versions[0]
        lines.append(f'    {{"{loop.name}", "{loop.arguments}", "{loop.result}", {{{functions}}}}},')
    loops = next(iter(compiled.values()))
    # An array takes two words: its address and its length. The result overwrites the arguments.
    n_words = [sum(2 - (code in "nNt") for code in loop.arguments if code not in "()") for loop in loops]
    n_words += [len(loop.result) for loop in loops]
    lines += ["};", f"enum {{ N_LOOPS = {len(loops)}, MAX_WORDS = {max(n_words)} }};", "static int best_level(void) {"]
    lines += [f"    if ({levels[index].condition}) return {index};" for index in reversed(range(len(levels)))]
    return "\n".join([*lines, "    return -1;", "}", ""])


def _link(target: Platform, folder: Path, objects: list[Path]) -> Path:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target.zig_target]
    if "macos" in target.zig_target:
        command += ["-undefined", "dynamic_lookup"]
    command += ["-shared", "-O2", "-s", "-fvisibility=hidden", GLUE.name]
    library = folder / FILE_NAME
    command += [*(file.name for file in objects), "-o", library.name]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - of this file
    if process.returncode:
        raise KernelError(f"the library cannot be linked: {process.stderr.strip()}")
    return library
