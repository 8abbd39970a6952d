"""Compilation of loops to object files: one function per loop, called with the address of its arguments.

The arguments are 64-bit words: an address and a length for each array, and the value of each number. The function
returns 0 or an error code, which only the checked build has, and overwrites the arguments with its result.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import binding, ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.np.arrayobj import populate_array

import ddbio.items.kernel
from ddbio.items.kernel.compiler.parts import arrays_of, compile_for_library
from ddbio.items.kernel.declarations import LOOPS, Array, Scalar

if TYPE_CHECKING:
    from ddbio.items.kernel.declarations import ArgumentType, Loop

binding.initialize_all_targets()
binding.initialize_all_asmprinters()

_WORD, _INDEX = ir.IntType(64), ir.IntType(32)
_ARRAY_CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "uint16": "H", "int32": "i", "uint32": "I", "int64": "l", "uint64": "L",
}  # fmt: skip
_NUMBER_CODES = {"bool": "t", "int64": "n", "uint64": "N"}


class CompiledLoop(NamedTuple):
    """A loop as an object file."""

    name: str
    symbol: str
    arguments: str
    """A character per argument, as ``loops.c`` reads them."""
    result: str
    """A character per number of the result."""
    content: bytes


class Target(NamedTuple):
    """A kind of processor."""

    triple: str
    cpu: str
    """LLVM's name for it."""
    prefix: str
    """The prefix of the symbols of its functions."""


def import_loops() -> list[Loop]:
    """Import all modules with loops, and return the loops."""
    for module in pkgutil.walk_packages(ddbio.items.kernel.__path__, f"{ddbio.items.kernel.__name__}."):
        if not module.ispkg and not re.search(r"\.(compiler|_loops)\b", module.name):
            importlib.import_module(module.name)
    return LOOPS


def compile_loop(loop: Loop, target: Target) -> CompiledLoop:
    """Compile a loop for a kind of processor.

    Numba optimises for the processor in ``NUMBA_CPU_NAME``, which must be of the same kind.
    """
    compiled = compile_for_library(loop)
    symbol = f"{target.prefix}_{loop.name.replace('.', '_')}"
    with global_compiler_lock:
        library = compiled.target_context.codegen().create_library(symbol)
        module = library.create_ir_module(symbol)
        result = _add_entry(module, symbol, compiled)
        library.add_ir_module(module)
        library.add_linking_library(compiled.library)
        library.finalize()
    text = str(library._final_module)  # noqa: SLF001 - numba has no public access to a library's code
    arguments = "".join(_code(argument) for argument in loop.arguments)
    return CompiledLoop(loop.name, symbol, arguments, result, _emit(text, symbol, target))


def _code(argument: ArgumentType) -> str:
    if isinstance(argument, Scalar):
        return _NUMBER_CODES[argument.name]
    if isinstance(argument, Array):
        return _ARRAY_CODES[argument.name]
    return f"({''.join(_ARRAY_CODES[array.name] for array in arrays_of(argument))})"


def _add_entry(module: Any, symbol: str, compiled: Any) -> str:
    """Add the function that unpacks the arguments and calls the loop; return the type codes of its result."""
    context, described = compiled.target_context, compiled.fndesc
    function = ir.Function(module, ir.FunctionType(_INDEX, [_WORD.as_pointer()]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    (words,) = function.args
    n_taken = 0

    def take() -> Any:
        nonlocal n_taken
        n_taken += 1
        return builder.load(builder.gep(words, [_INDEX(n_taken - 1)]))

    def value_of(argument: Any) -> Any:
        if isinstance(argument, types.NamedTuple):
            return context.make_tuple(builder, argument, [value_of(array) for array in argument.types])
        if not isinstance(argument, types.Array):
            word = take()
            return builder.icmp_unsigned("!=", word, _WORD(0)) if argument == types.boolean else word
        address, length = take(), take()
        element = context.get_data_type(argument.dtype)
        size = _WORD(context.get_abi_sizeof(element))
        array = context.make_array(argument)(context, builder)
        data = builder.inttoptr(address, element.as_pointer())
        populate_array(array, data=data, shape=[length], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()  # noqa: SLF001 - numba's own name for it

    values = [value_of(argument) for argument in compiled.signature.args]
    callee = context.declare_function(module, described)
    status, result = context.call_conv.call_function(builder, callee, described.restype, described.argtypes, values)
    codes = ""
    for value, value_type in _numbers_of(context, builder, described.restype, result):
        word = builder.zext(value, _WORD) if value_type == types.boolean else value
        builder.store(word, builder.gep(words, [_INDEX(len(codes))]))
        codes += _NUMBER_CODES[value_type.name]
    builder.ret(status.code)
    return codes


def _numbers_of(context: Any, builder: Any, value_type: Any, value: Any) -> list[tuple[Any, Any]]:
    """Return the numbers of a result, each with its type."""
    if value_type == types.none:
        return []
    if isinstance(value_type, types.BaseTuple):
        numbers = [(builder.extract_value(value, index), element_type) for index, element_type in enumerate(value_type)]
    else:
        numbers = [(value, value_type)]
    return [
        (context.cast(builder, number, number_type, types.int64), types.int64)
        if isinstance(number_type, types.Literal)
        else (number, number_type)
        for number, number_type in numbers
    ]


def _emit(text: str, symbol: str, target: Target) -> bytes:
    """Return the object file of a module whose only public symbol is that of the entry."""
    module = binding.parse_assembly(text)
    module.triple = target.triple
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, opt=3, reloc="pic", codemodel="default"
    )
    module.data_layout = str(machine.target_data)
    module.get_function(symbol).visibility = "hidden"
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != symbol:
            value.linkage = "internal"
    return bytes(machine.emit_object(module))
