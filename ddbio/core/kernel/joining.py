"""Join printed texts to canonical lists, sets, maps and items; refuses nothing.

The loops keep to the manner of ``printing``. What they join lies in ``out`` already, each text with a comma before it:
the first comma gives way to the last byte of ``before``.
"""

# Compiled code has neither exceptions nor objects.
# ruff: noqa: FBT001, PLR0913, PLR0917

from __future__ import annotations

from typing import Any

import numpy as np

from ddbio.core.kernel.cache import inner, loop
from ddbio.core.kernel.memory import PAD, load64, peek, poke
from ddbio.core.kernel.printing import FULL, put


@inner
def _is_before(data: Any, offsets: Any, one: int, other: int) -> Any:
    """Return whether a text comes before another by their bytes, or by their places where they are equal."""
    left, right = offsets[one], offsets[other]
    left_stop, right_stop = offsets[one + 1], offsets[other + 1]
    common = left + min(left_stop - left, right_stop - right)
    while left + 8 <= common and load64(data, left) == load64(data, right):
        left += 8
        right += 8
    while left < common:
        difference = peek(data, left) - peek(data, right)
        if difference != 0:
            return difference < 0
        left += 1
        right += 1
    if left_stop - left != right_stop - right:
        return left == left_stop
    return one < other


@inner
def _are_equal(data: Any, offsets: Any, one: int, other: int) -> Any:
    size = offsets[one + 1] - offsets[one]
    if offsets[other + 1] - offsets[other] != size:
        return False
    place = 0
    while place < size and peek(data, offsets[one] + place) == peek(data, offsets[other] + place):
        place += 1
    return place == size


@inner
def _sort(order: Any, first: int, stop: int, data: Any, offsets: Any) -> None:
    """Put the numbers ``first`` … ``stop`` in the order of their texts, by Shell's sort."""
    count = stop - first
    for index in range(count):
        order[index] = first + index
    gap = 1
    while gap * 3 + 1 < count:
        gap = gap * 3 + 1
    while gap > 0:
        for index in range(gap, count):
            moved, hole = order[index], index
            while hole >= gap and _is_before(data, offsets, moved, order[hole - gap]):
                order[hole] = order[hole - gap]
                hole -= gap
            order[hole] = moved
        gap //= 3


@loop
def join_lists(
    bounds: Any, texts: Any, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Join the texts from ``bounds[row]`` to ``bounds[row + 1]`` in their order."""
    for row in range(len(ends) - 1):
        ends[row] = at
        place = texts[bounds[row]]
        size = texts[bounds[row + 1]] - place
        if at + len(before) + len(after) + len(absent) + size > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        if size > 0:
            opening = peek(out, at - 1)
            stop = put(out, at - 1, out, place, size)
            poke(out, at - 1, opening)
            at = stop
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at


@loop
def join_sorted(
    bounds: Any, keys: Any, key_offsets: Any, texts: Any, values: Any, is_map: bool,
    valid: Any, before: Any, after: Any, absent: Any, out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Join the texts, each with its value, in the order of their keys; in a map the last of equal keys counts."""
    longest = 0
    for row in range(len(ends) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    order = np.empty(longest, np.int64)
    for row in range(len(ends) - 1):
        ends[row] = at
        first, stop = bounds[row], bounds[row + 1]
        size = texts[stop] - texts[first] + values[stop] - values[first]
        if at + len(before) + len(after) + len(absent) + size > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD)
        if stop > first:
            _sort(order, first, stop, keys, key_offsets)
            at -= 1
            start, opening = at, peek(out, at)
            for index in range(stop - first):
                entry = order[index]
                if is_map and index + 1 < stop - first and _are_equal(keys, key_offsets, entry, order[index + 1]):
                    continue
                at = put(out, at, out, texts[entry], texts[entry + 1] - texts[entry])
                at = put(out, at, out, values[entry], values[entry + 1] - values[entry])
            poke(out, start, opening)
        at = put(out, at, after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at


@loop
def join_members(
    members: Any, firsts: Any, lasts: Any, extras: Any, ranks: Any, valid: Any, before: Any, after: Any, absent: Any,
    out: Any, at: int, limit: int, ends: Any,
) -> Any:  # fmt: skip
    """Join a text of each member, and in between the extra ones of the row, from its first up to its last.

    An extra text of rank ``2 * n`` comes before member ``n``, one of rank ``2 * n + 1`` in its place.
    """
    n_members = members.shape[0]
    has_extras = len(firsts) > 0
    for row in range(len(ends) - 1):
        ends[row] = at
        size = len(before) + len(after) + len(absent)
        for member in range(n_members):
            size += members[member, row + 1] - members[member, row]
        extra, last_extra = (firsts[row], lasts[row]) if has_extras else (0, 0)
        if extra < last_extra:
            size += extras[last_extra] - extras[extra]
        if at + size > limit:
            return FULL
        if len(valid) > 0 and not valid[row]:
            at = put(out, at, absent, 0, len(absent) - PAD)
            continue
        at = put(out, at, before, 0, len(before) - PAD) - 1
        start, opening = at, peek(out, at)
        for member in range(n_members):
            replaced = False
            while extra < last_extra and ranks[extra] <= 2 * member + 1:
                at = put(out, at, out, extras[extra], extras[extra + 1] - extras[extra])
                replaced |= ranks[extra] == 2 * member + 1
                extra += 1
            if not replaced:
                at = put(out, at, out, members[member, row], members[member, row + 1] - members[member, row])
        while extra < last_extra:
            at = put(out, at, out, extras[extra], extras[extra + 1] - extras[extra])
            extra += 1
        poke(out, start, opening)
        at = put(out, max(at, start + 1), after, 0, len(after) - PAD)
    ends[len(ends) - 1] = at
    return at
