"""Compilation of loops and their parts by numba.

``DDBIO_KERNEL_CHECKED=1`` builds every load and store with array indexing and bounds checks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numba
from numba import _dynfunc, types
from numba.core import compiler, typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass

from ddbio.items.kernel.declarations import Array, Scalar
from ddbio.items.kernel.library import CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.items.kernel.declarations import ArgumentType, Loop


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The lowered code of a part, linked with the parts that it calls. It is neither optimised nor run."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(typed_passes.NativeLowering):  # type: ignore[misc]
    """Pass that lowers a part into a separate library, which callers link."""

    _name = "ddbio_part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the part, and add an empty function instead of the executable one of numba's pass."""
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
    """Compiler in numba's nopython mode that stops after lowering."""

    def define_pipelines(self) -> list[Any]:
        """Return the only pipeline for a part."""
        builder = compiler.DefaultPassBuilder
        passes = PassManager("ddbio_part")
        for stage in (builder.define_untyped_pipeline, builder.define_typed_pipeline):
            passes.passes.extend(stage(self.state).passes)
        for compiler_pass, reason in builder.define_nopython_lowering_pipeline(self.state).passes:
            passes.add_pass(_PartLowering if compiler_pass is typed_passes.NativeLowering else compiler_pass, reason)
        passes.finalize()
        return [passes]


_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": CHECKED,
    "no_cfunc_wrapper": True,
}
_PART_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": PartCompiler}
_LIBRARY_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "_nrt": False}
"""Without numba's runtime, a loop that allocates memory fails to compile."""


def inner(function: Callable[..., Any]) -> Any:
    """Compile a part of loops."""
    return numba.njit(forceinline=False, **_PART_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part that is copied into each loop that calls it."""
    return numba.njit(forceinline=True, **_PART_OPTIONS)(function)


def compiled_loop(loop: Loop) -> Any:
    """Compile a loop at its first call from Python."""
    return numba.njit(**_OPTIONS)(loop.function)


def compile_for_library(loop: Loop) -> Any:
    """Compile a loop for its declared types, and return numba's result."""
    dispatcher = numba.njit(**_LIBRARY_OPTIONS)(loop.function)
    dispatcher.compile(tuple(numba_type(argument) for argument in loop.arguments))
    (result,) = dispatcher.overloads.values()
    return result


def numba_type(argument: ArgumentType) -> Any:
    """Return numba's type of an argument."""
    if isinstance(argument, Scalar):
        return types.boolean if argument.name == "bool" else getattr(types, argument.name)
    if isinstance(argument, Array):
        return types.Array(numba_type(Scalar(argument.name)), 1, "C")
    return types.NamedTuple([numba_type(array) for array in arrays_of(argument)], argument)


def arrays_of(named_tuple: type) -> list[Array]:
    """Return the types of the arrays in a named tuple, from its annotations."""
    annotations = named_tuple.__annotations__.values()
    matches = [
        re.search(r"NDArray\[np\.(\w+?)_?\]", str(getattr(text, "__forward_arg__", text))) for text in annotations
    ]
    return [Array(match[1]) for match in matches if match is not None]
