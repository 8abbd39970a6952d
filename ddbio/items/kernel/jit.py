"""Decorators of the functions that run as machine code: loops, which Python calls, and their parts.

The build compiles all loops into one library (``kernel/compiler``). Here the decorator replaces a loop by the function
of that library: its Python source stays unused, and neither numba nor LLVM is imported. Without a library, numba
compiles each loop at its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.items.kernel.declarations import LOOPS, Loop, Scalar
from ddbio.items.kernel.library import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.items.kernel.declarations import ArgumentType

int8, int32, int64 = Scalar("int8"), Scalar("int32"), Scalar("int64")
uint8, uint16, uint32, uint64 = Scalar("uint8"), Scalar("uint16"), Scalar("uint32"), Scalar("uint64")
boolean = Scalar("bool")

_PACKAGE = __name__.rpartition(".")[0] + "."


def loop(*arguments: ArgumentType) -> Callable[[Callable[..., Any]], Any]:
    """Mark a function that Python calls, and declare the types of its arguments.

    An array may be read-only if the loop only reads it. A named tuple has only arrays, declared by its annotations.
    """

    def declare(function: Callable[..., Any]) -> Any:
        name = f"{function.__module__.removeprefix(_PACKAGE)}.{function.__name__}"
        declared = Loop(name, function, arguments)
        LOOPS.append(declared)
        return _numba().compiled_loop(declared) if LIBRARY is None else LIBRARY.loop(name)

    return declare


def inner(function: Callable[..., Any]) -> Any:
    """Mark a part of loops."""
    return _numba().inner(function) if LIBRARY is None else function


def inlined(function: Callable[..., Any]) -> Any:
    """Mark a part that is copied into each loop that calls it, because a call would cost more than the part."""
    return _numba().inlined(function) if LIBRARY is None else function


def intrinsic(name: str) -> Any:
    """Return a processor instruction by its name, for parts of loops; None if the loops are in a library."""
    if LIBRARY is not None:
        return None
    from ddbio.items.kernel.compiler import intrinsics  # noqa: PLC0415 - a library needs no numba

    return getattr(intrinsics, name)


def _numba() -> Any:
    from ddbio.items.kernel.compiler import parts  # noqa: PLC0415 - a library needs no numba

    return parts
