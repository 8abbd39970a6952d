"""Declarations of the functions in the compiled library: the loops, and the types of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Array:
    """Type of a contiguous array with one dimension."""

    name: str
    """NumPy's name of the element type."""


@dataclass(frozen=True)
class Scalar:
    """Type of a number; with ``[:]`` the type of an array of such numbers."""

    name: str

    def __getitem__(self, dimension: slice) -> Array:
        """Return the type of an array."""
        del dimension
        return Array(self.name)


ArgumentType: TypeAlias = Scalar | Array | type
"""The type of an argument: a number, an array, or a named tuple of arrays."""


class Loop(NamedTuple):
    """Function in the compiled library that Python calls."""

    name: str
    """Its module within the kernel and its function name, such as ``tape.walk.walk_items``."""
    function: Callable[..., Any]
    arguments: tuple[ArgumentType, ...]


LOOPS: list[Loop] = []
"""The loops of all modules imported so far."""
