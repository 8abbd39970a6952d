"""Answer small calls by the plain reference as long as the loops that they need are not compiled.

Compiling takes ten seconds, which a call of some kilobytes is not worth: a process has its first megabyte answered by
the reference, and compiles for what comes after it. Loops that are in the cache, or shipped, are loaded and used. A
call is answered by one of both, never by parts of each, and both give the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ddbio.items.kernel.cache import NotCompiledError, without_compiling

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

MOST_BYTES = 1 << 20
"""How much a process has answered by the plain reference, which takes about a tenth of a second for it."""


class FirstCalls:
    """Choose who answers the calls of a process."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes

    def answer(
        self,
        n_bytes: int,
        by_loops: Callable[..., _Answer],
        plainly: Callable[..., _Answer | None],
        *arguments: Any,
    ) -> _Answer:
        """Return what the loops answer, or the reference if it is as many bytes, and the loops are not compiled.

        Parameters
        ----------
        plainly
            Takes the same arguments; returns None where only the loops know the answer.
        """
        if n_bytes > self._left_bytes:
            return by_loops(*arguments)
        try:
            return without_compiling(by_loops, *arguments)
        except NotCompiledError:
            answer = plainly(*arguments)
        if answer is None:
            return by_loops(*arguments)
        # Threads may answer somewhat more together.
        self._left_bytes -= n_bytes
        return answer


FIRST_CALLS = FirstCalls(MOST_BYTES)
"""Those of this process."""
