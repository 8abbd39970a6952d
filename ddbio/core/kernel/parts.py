"""Compile the parts of loops to what loops link, not to machine code of their own.

Numba optimises every function that it compiles together with all that it calls, makes machine code of it and wrappers
for Python. Of a part, which only compiled functions call, all that is thrown away: the loop is optimised as a whole.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core import compiler, typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass


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
        """Lower, and stand an empty function where numba's own pass puts the executable one."""
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name = lowered.fndesc.qualname.split(".")[-1]
        kept_alive = (state.library,)
        stand_in = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "part", 0, lowered.env, kept_alive)
        state.targetctx.insert_user_function(stand_in, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=stand_in)
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
