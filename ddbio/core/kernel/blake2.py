"""Sum the blake2b-128 digests of many texts, eight at a time in the lanes of vectors; refuses nothing.

Follows RFC 7693: unkeyed, 16 bytes of output. A text takes a lane until it ends, then the next one follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import load64, peek

_LANES = 8
_BLOCK_BYTES = 128
_BLOCK_WORDS = 16
_STATE_WORDS = 8
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, _LANES)

# https://www.rfc-editor.org/rfc/rfc7693#section-2.6
_START = (
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
)  # fmt: skip
# https://www.rfc-editor.org/rfc/rfc7693#section-2.7
_SIGMA = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
# https://www.rfc-editor.org/rfc/rfc7693#section-3.1
_COLUMNS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
# https://www.rfc-editor.org/rfc/rfc7693#section-2.1
_ROTATIONS = (32, 24, 16, 63)
_ROUNDS = 12

_PARAMETERS = np.uint64(0x01010000 ^ 16)
_FIRST_STATE = np.array(_START, np.uint64)
_FIRST_STATE[0] ^= _PARAMETERS
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_SWAPS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


def _compress_lanes(_typing: Any, _state: Any, _block: Any, _counts: Any, _finals: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(signature.args, args, strict=True)
        state, block, counts, finals = (context.make_array(kind)(context, builder, array).data for kind, array in pairs)

        def place(data: Any, word: int) -> Any:
            return builder.bitcast(cgutils.gep(builder, data, word * _LANES), ir.PointerType(_VECTOR))

        def load(data: Any, word: int) -> Any:
            return builder.load(place(data, word), align=8)

        before = [load(state, word) for word in range(_STATE_WORDS)]
        message = [load(block, word) for word in range(_BLOCK_WORDS)]
        mixed = before + [ir.Constant(_VECTOR, [word] * _LANES) for word in _START]
        mixed[12] = builder.xor(mixed[12], load(counts, 0))
        mixed[14] = builder.xor(mixed[14], load(finals, 0))
        for number in range(_ROUNDS):
            _round(builder, mixed, message, _SIGMA[number % len(_SIGMA)])
        for word in range(_STATE_WORDS):
            after = builder.xor(before[word], builder.xor(mixed[word], mixed[word + 8]))
            builder.store(after, place(state, word), align=8)
        return context.get_dummy_value()

    return types.void(_state, _block, _counts, _finals), generate


def _round(builder: Any, mixed: list[Any], message: list[Any], order: tuple[int, ...]) -> None:
    for step, (a, b, c, d) in enumerate(_COLUMNS):
        for half in range(2):
            mixed[a] = builder.add(builder.add(mixed[a], mixed[b]), message[order[2 * step + half]])
            mixed[d] = _rotated(builder, builder.xor(mixed[d], mixed[a]), _ROTATIONS[2 * half])
            mixed[c] = builder.add(mixed[c], mixed[d])
            mixed[b] = _rotated(builder, builder.xor(mixed[b], mixed[c]), _ROTATIONS[2 * half + 1])


def _rotated(builder: Any, value: Any, bits: int) -> Any:
    right = builder.lshr(value, ir.Constant(_VECTOR, [bits] * _LANES))
    return builder.or_(right, builder.shl(value, ir.Constant(_VECTOR, [64 - bits] * _LANES)))


_compress: Any = intrinsic(_compress_lanes)


@loop
def sum_digests(data: Any, offsets: Any) -> Any:
    """Return the two words, high first, of the sum modulo 2**128 of the texts' digests; ``data`` is padded."""
    state = np.zeros(_STATE_WORDS * _LANES, np.uint64)
    block = np.zeros(_BLOCK_WORDS * _LANES, np.uint64)
    counts, finals = np.zeros(_LANES, np.uint64), np.zeros(_LANES, np.uint64)
    starts, stops = np.zeros(_LANES, np.int64), np.zeros(_LANES, np.int64)
    # A lane without a text stands at -1.
    places = np.full(_LANES, -1)
    high, low = np.uint64(0), np.uint64(0)
    n_texts = len(offsets) - 1
    taken = 0
    alive = min(n_texts, _LANES)
    for lane in range(alive):
        _begin(lane, offsets, taken, state, starts, places, stops)
        taken += 1
    while alive > 0:
        for lane in range(_LANES):
            if places[lane] >= 0:
                _take_block(lane, data, places[lane], stops[lane], block)
                reached = min(places[lane] + _BLOCK_BYTES, stops[lane])
                counts[lane] = np.uint64(reached - starts[lane])
                finals[lane] = _ALL if reached == stops[lane] else np.uint64(0)
                places[lane] = reached
        _compress(state, block, counts, finals)
        for lane in range(_LANES):
            if places[lane] >= 0 and places[lane] == stops[lane]:
                part = _swapped(state[_LANES + lane])
                low += part
                high += _swapped(state[lane]) + np.uint64(low < part)
                if taken < n_texts:
                    _begin(lane, offsets, taken, state, starts, places, stops)
                    taken += 1
                else:
                    places[lane] = -1
                    alive -= 1
    return high, low


@inner
def _begin(  # noqa: PLR0913, PLR0917 - compiled code has no objects
    lane: int, offsets: Any, number: int, state: Any, starts: Any, places: Any, stops: Any
) -> None:
    starts[lane] = places[lane] = offsets[number]
    stops[lane] = offsets[number + 1]
    for word in range(_STATE_WORDS):
        state[word * _LANES + lane] = _FIRST_STATE[word]


@inner
def _take_block(lane: int, data: Any, place: int, stop: int, block: Any) -> None:
    rest = stop - place
    if rest >= _BLOCK_BYTES:
        for word in range(_BLOCK_WORDS):
            block[word * _LANES + lane] = load64(data, place + 8 * word)
        return
    whole = rest >> 3
    for word in range(whole):
        block[word * _LANES + lane] = load64(data, place + 8 * word)
    for word in range(whole, _BLOCK_WORDS):
        block[word * _LANES + lane] = 0
    value = np.uint64(0)
    for index in range(rest & 7):
        value |= np.uint64(peek(data, place + 8 * whole + index)) << np.uint64(8 * index)
    if rest & 7:
        block[whole * _LANES + lane] = value


@inner
def _swapped(word: Any) -> Any:
    eight, sixteen, half = np.uint64(8), np.uint64(16), np.uint64(32)
    word = ((word >> eight) & _SWAPS[0]) | ((word & _SWAPS[0]) << eight)
    word = ((word >> sixteen) & _SWAPS[1]) | ((word & _SWAPS[1]) << sixteen)
    return (word >> half) | (word << half)
