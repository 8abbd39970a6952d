"""Compile the loops: decorators around numba's compiler.

``loop`` is for what Python calls, ``inner`` and ``inlined`` are for parts of loops. ``DDBIO_KERNEL_CHECKED=1`` builds
every load and store with array indexing and bounds checks.
"""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING, Any

import numba
from numba import _dynfunc
from numba.core import compiler, typed_passes
from numba.core import event as compiler_event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass

from ddbio.items.kernel.cache import LoopCache, cache_folder
from ddbio.items.kernel.compiling import COMPILATIONS

if TYPE_CHECKING:
    from collections.abc import Callable


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Hold what a part is lowered to, linked with the parts that it calls, and neither optimise nor run it."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(typed_passes.NativeLowering):  # type: ignore[misc]
    """Lower a part into a library of its own, and let others call it by that."""

    _name = "ddbio_part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower, and put an empty function where numba's own pass puts the executable one."""
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name = lowered.fndesc.qualname.split(".")[-1]
        kept_alive = (state.library,)
        placeholder = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "part", 0, lowered.env, kept_alive)
        state.targetctx.insert_user_function(placeholder, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=placeholder)
        return True


class PartCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """Compile as numba does without Python objects, up to the lowering."""

    def define_pipelines(self) -> list[Any]:
        """Return the one way of compiling a part."""
        builder = compiler.DefaultPassBuilder
        passes = PassManager("ddbio_part")
        for stage in (builder.define_untyped_pipeline, builder.define_typed_pipeline):
            passes.passes.extend(stage(self.state).passes)
        for each, why in builder.define_nopython_lowering_pipeline(self.state).passes:
            passes.add_pass(_PartLowering if each is typed_passes.NativeLowering else each, why)
        passes.finalize()
        return [passes]


CHECKED = os.environ.get("DDBIO_KERNEL_CHECKED") == "1"
"""Whether the loops are built with bounds checks: for tests, several times slower."""

_LOG = logging.getLogger("ddbio.kernel")

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": CHECKED,
    "no_cfunc_wrapper": True,
}
_PART_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": PartCompiler}


def inner(function: Callable[..., Any]) -> Any:
    """Compile a part of a loop; it is cached within the loops that call it."""
    return numba.njit(forceinline=False, **_PART_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of a loop into each loop that calls it, where a call would cost more than the part."""
    return numba.njit(forceinline=True, **_PART_OPTIONS)(function)


LOOPS: list[Any] = []
"""All loops that Python calls, of the modules imported so far."""


def loop(function: Callable[..., Any]) -> Any:
    """Compile a loop that Python calls, and cache it for the next process if there is a folder."""
    compiled = numba.njit(**_OPTIONS)(function)
    compiled._cache = LoopCache(function, compiled)  # noqa: SLF001 - numba's own cache is put there, too
    LOOPS.append(compiled)
    return compiled


class _Watch(compiler_event.Listener):  # type: ignore[misc]
    """Count loops that are compiled, and log once a process that they are, if they are not cached.

    Garbage is not collected meanwhile: nearly all that the compiler makes stays alive, and collecting takes a sixth of
    its time.
    """

    def __init__(self) -> None:
        self._has_said = False
        self._collects = False
        # A loop may be compiled while one that calls it is; numba's own lock keeps threads apart.
        self._depth = 0

    def on_start(self, event: Any) -> None:
        """Say so of one of our loops; what others compile is theirs to say."""
        if not any(event.data["dispatcher"] is each for each in LOOPS):
            return
        COMPILATIONS.begin()
        if not self._depth:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        if not self._has_said:
            self._has_said = True
            folder = cache_folder()
            kept = (
                "in every process: no folder to keep them is private and writable"
                if folder is None
                else f"kept in {folder}"
            )
            _LOG.warning("compiling loops, which can take half a minute; %s", kept)

    def on_end(self, event: Any) -> None:
        """Collect garbage again, if that was so; what failed to compile others may try."""
        dispatcher = event.data["dispatcher"]
        if any(dispatcher is each for each in LOOPS):
            COMPILATIONS.end()
            self._depth -= 1
            if self._collects and not self._depth:
                gc.enable()
            # Numba's own is_failed says the contrary of its name.
            if event._exc_details is not None and isinstance(dispatcher._cache, LoopCache):  # noqa: SLF001
                dispatcher._cache.release()  # noqa: SLF001


compiler_event.register("numba:compile", _Watch())
