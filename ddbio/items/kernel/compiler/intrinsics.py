"""Machine code for memory access: loads, stores and comparisons that numba has no function for.

Only the compiler imports this module. The checked build indexes arrays instead.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ddbio.items.kernel.compiler.parts import inner
from ddbio.items.kernel.library import CHECKED

_BYTE, _WORD, _WIDE = ir.IntType(8), ir.IntType(64), 32
_VECTOR = ir.VectorType(_BYTE, _WIDE)
_NONE = ir.Constant(_WORD, 0)


def _address(context: Any, builder: Any, holder_type: Any, holder: Any, index: Any) -> Any:
    if isinstance(holder_type, types.Array):
        holder = context.make_array(holder_type)(context, builder, holder).data
    return cgutils.gep(builder, holder, index)


def _raw_pointers(_typing: Any, arrays: Any) -> Any:
    pointed = types.NamedTuple([types.CPointer(array.dtype) for array in arrays], arrays.instance_class)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = zip(signature.args[0], cgutils.unpack_tuple(builder, args[0]), strict=True)
        data = [context.make_array(array_type)(context, builder, array).data for array_type, array in values]
        return context.make_tuple(builder, signature.return_type, data)

    return pointed(arrays), generate


def _checked_pointers(arrays: Any) -> Any:
    return arrays


def _at(context: Any, builder: Any, signature: Any, args: Any, first: int, as_type: Any) -> Any:
    pointer = _address(context, builder, signature.args[first], args[first], args[first + 1])
    return builder.bitcast(pointer, ir.PointerType(as_type))


def _splat(value: int) -> Any:
    return ir.Constant(_VECTOR, [value] * _WIDE)


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(_WIDE)), _WORD)


def _raw_load64(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_at(context, builder, signature, args, 0, _WORD), align=1)

    return types.uint64(array, types.intp), generate


def _raw_equal32(_typing: Any, left: Any, _left_index: Any, right: Any, _right_index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.load(_at(context, builder, signature, args, 0, _VECTOR), align=1)
        other = builder.load(_at(context, builder, signature, args, 2, _VECTOR), align=1)
        return _mask(builder, builder.icmp_unsigned("==", one, other))

    return types.int64(left, types.intp, right, types.intp), generate


def _specials(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    text = builder.load(_at(context, builder, signature, args, 0, _VECTOR), align=1)
    quote = builder.icmp_unsigned("==", text, _splat(ord('"')))
    backslash = builder.icmp_unsigned("==", text, _splat(ord("\\")))
    control = builder.icmp_unsigned("<", text, _splat(ord(" ")))
    return builder.bitcast(builder.or_(builder.or_(quote, backslash), control), ir.IntType(_WIDE))


def _raw_mark32(_typing: Any, array: Any, _index: Any, marks: Any, _place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        specials = _specials(context, builder, signature, args)
        builder.store(specials, _at(context, builder, signature, args, 2, ir.IntType(_WIDE)), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, marks, types.intp), generate


def _raw_special32(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        specials = builder.zext(_specials(context, builder, signature, args), _WORD)
        # A bit after the lanes: without a special character the result is the number of lanes.
        specials = builder.or_(specials, ir.Constant(_WORD, 1 << _WIDE))
        return builder.cttz(specials, ir.Constant(ir.IntType(1), 1))

    return types.int64(array, types.intp), generate


def _raw_base64_32(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = builder.load(_at(context, builder, signature, args, 0, _VECTOR), align=1)

        def between(first: str, last: str) -> Any:
            return builder.icmp_unsigned("<", builder.sub(text, _splat(ord(first))), _splat(ord(last) - ord(first) + 1))

        ranges = [between("A", "Z"), between("a", "z"), between("/", "9")]
        ranges.append(builder.icmp_unsigned("==", text, _splat(ord("+"))))
        return _mask(builder, functools.reduce(builder.or_, ranges))

    return types.int64(array, types.intp), generate


def _raw_is_ascii35(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, *_, last = _shifted_loads(context, builder, signature, args)
        beyond = builder.icmp_signed("<", builder.or_(first, last), _splat(0))
        return builder.icmp_signed("==", _mask(builder, beyond), _NONE)

    return types.boolean(array, types.intp), generate


def _raw_is_utf8_32(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        third, second, before, byte = _shifted_loads(context, builder, signature, args)
        both, either = builder.and_, builder.or_

        def compared(relation: str, lanes: Any, value: int) -> Any:
            return builder.icmp_unsigned(relation, lanes, _splat(value))

        # A byte must be a continuation byte if and only if one of the three before it requires that.
        is_continuation = builder.icmp_signed("<", byte, _splat(0xC0))
        must_continue = either(
            compared(">=", before, 0xC0), either(compared(">=", second, 0xE0), compared(">=", third, 0xF0))
        )
        # Overlong encodings, halves of surrogate pairs, codes after the last character.
        bit_5, bits_54 = both(byte, _splat(0x20)), both(byte, _splat(0x30))
        faults = (
            builder.xor(is_continuation, must_continue),
            compared("==", both(byte, _splat(0xFE)), 0xC0),
            compared(">=", byte, 0xF5),
            both(compared("==", before, 0xE0), compared("==", bit_5, 0)),
            both(compared("==", before, 0xED), compared("!=", bit_5, 0)),
            both(compared("==", before, 0xF0), compared("==", bits_54, 0)),
            both(compared("==", before, 0xF4), compared("!=", bits_54, 0)),
        )
        return builder.icmp_signed("==", _mask(builder, functools.reduce(either, faults)), _NONE)

    return types.boolean(array, types.intp), generate


def _shifted_loads(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """Load thirty-two bytes from the index, and from one, two and three bytes before it."""
    pointer = _address(context, builder, signature.args[0], args[0], args[1])
    starts = (builder.gep(pointer, [ir.Constant(_WORD, shift)]) for shift in (-3, -2, -1, 0))
    return [builder.load(builder.bitcast(start, ir.PointerType(_VECTOR)), align=1) for start in starts]


def _raw_copy32(_typing: Any, target: Any, _target_index: Any, source: Any, _source_index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_at(context, builder, signature, args, 2, _VECTOR), align=1)
        builder.store(value, _at(context, builder, signature, args, 0, _VECTOR), align=1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


def _raw_peek(_typing: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, signature.args[0], args[0], args[1]))
        return context.cast(builder, value, signature.args[0].dtype, types.int64)

    return types.int64(array, types.intp), generate


def _raw_poke(_typing: Any, array: Any, _index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stored = context.cast(builder, args[2], signature.args[2], signature.args[0].dtype)
        builder.store(stored, _address(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


def _raw_store64_reversed(_typing: Any, array: Any, _index: Any, _word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.bswap(args[2]), _at(context, builder, signature, args, 0, _WORD), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), generate


def _raw_out_of_line(_typing: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


def _raw_rare(_typing: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.function.attributes.add("noinline")
        builder.function.attributes.add("cold")
        return context.get_dummy_value()

    return types.void(), generate


def _raw_lowest_bit(_typing: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _checked_load64(array: Any, index: Any) -> Any:
    word = types.uint64(0)
    for offset in range(8):
        word |= types.uint64(peek(array, index + offset)) << types.uint64(8 * offset)
    return word


def _checked_store64_reversed(array: Any, index: Any, word: Any) -> None:
    for offset in range(8):
        poke(array, index + offset, word >> types.uint64(56 - 8 * offset) & types.uint64(0xFF))


def _checked_equal32(left: Any, left_index: Any, right: Any, right_index: Any) -> Any:
    mask = 0
    for offset in range(_WIDE):
        if peek(left, left_index + offset) == peek(right, right_index + offset):
            mask |= 1 << offset
    return mask


def _checked_equal32_words(left: Any, left_index: Any, words: Any, word_index: Any) -> Any:
    mask = 0
    for offset in range(_WIDE):
        if peek(left, left_index + offset) == (peek(words, word_index + (offset >> 3)) >> 8 * (offset & 7)) & 0xFF:
            mask |= 1 << offset
    return mask


def _checked_base64_32(array: Any, index: Any) -> Any:
    mask = 0
    for offset in range(_WIDE):
        byte = peek(array, index + offset)
        if 65 <= byte <= 90 or 97 <= byte <= 122 or 47 <= byte <= 57 or byte == 43:  # noqa: PLR2004 - A-Z, a-z, /-9, +
            mask |= 1 << offset
    return mask


def _checked_mark32(array: Any, index: Any, marks: Any, position: Any) -> None:
    for group in range(_WIDE // 8):
        mask = 0
        for bit in range(8):
            byte = peek(array, index + 8 * group + bit)
            if byte in (34, 92) or byte < 32:  # noqa: PLR2004 - quote, backslash, control
                mask |= 1 << bit
        poke(marks, position + group, mask)


def _checked_special32(array: Any, index: Any) -> Any:
    first = _WIDE
    for offset in range(_WIDE):
        byte = peek(array, index + offset)
        if first == _WIDE and (byte in (34, 92) or byte < 32):  # noqa: PLR2004 - quote, backslash, control
            first = offset
    return first


def _checked_is_ascii35(array: Any, index: Any) -> Any:
    seen = 0
    for position in range(index - 3, index + _WIDE):
        seen |= peek(array, position)
    return seen < 128  # noqa: PLR2004 - ASCII


def _checked_is_utf8_32(array: Any, index: Any) -> Any:
    for position in range(index, index + _WIDE):
        third, second, before, byte = (
            peek(array, position - 3), peek(array, position - 2), peek(array, position - 1), peek(array, position),
        )  # fmt: skip
        if (0x80 <= byte < 0xC0) != (before >= 0xC0 or second >= 0xE0 or third >= 0xF0):  # noqa: PLR2004 - continuation
            return False
        if byte in (0xC0, 0xC1) or byte >= 0xF5:  # noqa: PLR2004 - never the first byte of a character
            return False
        if (before == 0xE0 and byte < 0xA0) or (before == 0xF0 and byte < 0x90):  # noqa: PLR2004 - overlong
            return False
        if (before == 0xED and byte >= 0xA0) or (before == 0xF4 and byte >= 0x90):  # noqa: PLR2004 - not a character
            return False
    return True


def _checked_copy32(target: Any, target_index: Any, source: Any, source_index: Any) -> None:
    for offset in range(_WIDE):
        poke(target, target_index + offset, peek(source, source_index + offset))


def _checked_peek(array: Any, index: Any) -> Any:
    if index < 0:
        raise IndexError
    return types.int64(array[index])


def _checked_poke(array: Any, index: Any, value: Any) -> None:
    if index < 0:
        raise IndexError
    array[index] = value


def _multiply_fold(_typing: Any, _one: Any, _other: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        folded = builder.xor(product, builder.lshr(product, ir.Constant(wide, 64)))
        return builder.trunc(folded, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


pointers: Any = inner(_checked_pointers) if CHECKED else intrinsic(_raw_pointers)
out_of_line: Any = intrinsic(_raw_out_of_line)
rare: Any = intrinsic(_raw_rare)
lowest_bit: Any = intrinsic(_raw_lowest_bit)
peek: Any = inner(_checked_peek) if CHECKED else intrinsic(_raw_peek)
poke: Any = inner(_checked_poke) if CHECKED else intrinsic(_raw_poke)
load64: Any = inner(_checked_load64) if CHECKED else intrinsic(_raw_load64)
store64_reversed: Any = inner(_checked_store64_reversed) if CHECKED else intrinsic(_raw_store64_reversed)
equal32: Any = inner(_checked_equal32) if CHECKED else intrinsic(_raw_equal32)
equal32_words: Any = inner(_checked_equal32_words) if CHECKED else intrinsic(_raw_equal32)
special32: Any = inner(_checked_special32) if CHECKED else intrinsic(_raw_special32)
base64_32: Any = inner(_checked_base64_32) if CHECKED else intrinsic(_raw_base64_32)
mark32: Any = inner(_checked_mark32) if CHECKED else intrinsic(_raw_mark32)
is_ascii35: Any = inner(_checked_is_ascii35) if CHECKED else intrinsic(_raw_is_ascii35)
is_utf8_32: Any = inner(_checked_is_utf8_32) if CHECKED else intrinsic(_raw_is_utf8_32)
copy32: Any = inner(_checked_copy32) if CHECKED else intrinsic(_raw_copy32)
multiply_fold: Any = intrinsic(_multiply_fold)
