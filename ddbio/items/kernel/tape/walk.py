"""Walk of items that writes a tape: two words for each value, in the order of the data.

The first word of an entry is ``node << 16 | encoding << 8 | tag``. The second word depends on the tag:

================== ================================================================================================
S, B               position << 32 | length of the text without escapes
N                  the number times ten to the power of ``encoding - 1``; for 0 and ``NUMBER_TEXT`` its text like S
BOOL               1 or 0
NULL               0
SS, NS, BS, L, M   the position after the opening; the entries of the elements or members follow, then ``CLOSE``
``IN_SET`` + tag   an element of a set, like S, N, B
``ITEM``           the position of the item; the entries of its attributes follow, then ``CLOSE``
``CLOSE``          the position after the item, or after the content of the value
``NAME``           the name of the next value, like S, if several names share its node
``ODD``            the position of the next value << 32 | the position after its content, if the JSON is not compact
================== ================================================================================================

``fit.py`` replaces a value that does not fit its column by ``SKIP``, with the position of the entry after its content,
and a value of a column of JSON by ``JSON_TEXT``, with its text like S.

Images of changes are members of an item: each has the node of its root, the tag M, and its attributes as members.

The walk predicts that attributes have the same order and types as before.
"""

# Compiled code has neither exceptions nor tables of functions.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddbio.items.kernel.base64 import decoded_length, is_base64
from ddbio.items.kernel.codes import (
    BOOL,
    CHANGES,
    DELETED,
    DONE,
    ERROR,
    FULL,
    GROW_TAPE,
    HAS_LOOKUP,
    INSIDE,
    INSTANCE,
    IS_DELETED,
    ITEMS,
    MAX_ROWS,
    MAX_SKIPPED_DEPTH,
    N_PATHS,
    NAME_LENGTH,
    NAME_START,
    NAMES,
    NAMES_MASK,
    NULL,
    POSITION,
    ROWS,
    SS,
    TAPE,
    TIME,
    UNESCAPED,
    WRITE_TIME,
    B,
    L,
    M,
    N,
    S,
)
from ddbio.items.kernel.framing import close_document, open_document
from ddbio.items.kernel.jit import inlined, inner, int64, loop
from ddbio.items.kernel.memory import equal32_words, load64, out_of_line, peek, pointers, poke, rare
from ddbio.items.kernel.number import (
    LONGEST_NUMBER,
    MINUS,
    ZERO,
    canonical_digits,
    parse_number,
    plain_number,
    read_digits,
    unscaled,
)
from ddbio.items.kernel.skip import CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_OBJECT, end_of_object, read_literal
from ddbio.items.kernel.tape.changes import next_image
from ddbio.items.kernel.tape.paths import (
    BYTES,
    COUNTS,
    ELEMENT,
    FIRST,
    FOLLOWER,
    HEAD,
    IS_WIDE,
    KEEPS_POSITION,
    KEEPS_TEXT,
    LAST_SEEN,
    NAME_BYTES,
    NODE_BITS,
    NODE_WIDTH,
    OTHERS,
    PREFIX_BYTES,
    PREFIX_LENGTH,
    PREFIX_MASK,
    SCALE,
    TAG_LENGTH,
    TAG_MASK,
    TAG_WORD,
    WHOLE,
    WHOLE_LENGTH,
    WHOLE_MASK,
    Walk,
    find_path,
    insert_path,
    inside_value,
    other_type,
)
from ddbio.items.kernel.text import QUOTE, marked_end, read_text, skip_blank

IN_SET: Final = 10
JSON_TEXT: Final = 13
ITEM, CLOSE, NAME, ODD, SKIP = 16, 17, 18, 19, 20
TAG_BITS, ENCODING_BITS = 0xFF, 8
LENGTH_MASK: Final = 0xFFFFFFFF
NUMBER_TEXT: Final = 255
"""The encoding of a number that is canonical text."""

ENTRY_WORDS: Final = 2
SPARE_WORDS: Final = 32
"""The most words that are written to the tape before its end is checked again."""

_FRAME_CONTEXT, _FRAME_INSTANCE, _FRAME_STEP, _FRAME_LAST = range(4)
_FRAME_WIDTH = 4
STACK_LENGTH: Final = _FRAME_WIDTH * MAX_SKIPPED_DEPTH
_THREE_BYTES = 0xFFFFFF
_NULL_START = int.from_bytes(b'NULL":tr', "little")
_NULL_STOP = int.from_bytes(b"ue}", "little")
_NULL_LENGTH = len('NULL":true}')
_TRUE, _FALSE = int.from_bytes(b"true}", "little"), int.from_bytes(b"false}", "little")
_FIVE_BYTES, _SIX_BYTES = (1 << 40) - 1, (1 << 48) - 1
_NEXT_ELEMENT, _LAST_ELEMENT = int.from_bytes(b'",', "little"), int.from_bytes(b'"]', "little")
_CLOSE_OF_TEXT = int.from_bytes(b'"}', "little")
_TWO_BYTES = 0xFFFF
_LAST_BLANK = ord(" ")
_LONGEST_PLAIN = 16
_INT64_DIGITS = 19
_INT64_LIMIT = np.uint64(1 << 63)


@loop(Walk, int64, int64)
def walk_items(walk: Any, end: int, framing: int) -> Any:
    """Walk the items from the state's position on, in any framing but changes; return the status."""
    walk.state[NAMES_MASK] = len(walk.names) - 1
    return _walk_items(pointers(walk), end, framing, _sizes(walk), None)


@loop(Walk, int64)
def walk_changes(walk: Any, end: int) -> Any:
    """Walk the images of changes like ``walk_items`` walks items."""
    walk.state[NAMES_MASK] = len(walk.names) - 1
    return _walk_items(pointers(walk), end, CHANGES, _sizes(walk), CHANGES)


@loop(Walk, int64, int64)
def skip_item(walk: Any, end: int, framing: int) -> Any:
    """Skip the item at the state's position by counting brackets; it gets no attributes on the tape.

    Return the status: ``ERROR`` if the end of the item is not found.
    """
    return _skip_item(pointers(walk), end, framing, len(walk.tape))


@inner
def _skip_item(walk: Any, end: int, framing: int, tape_words: int) -> Any:
    data, state = walk.data, walk.state
    position, inside, at = state[POSITION], state[INSIDE], state[TAPE]
    if at + 2 * ENTRY_WORDS > tape_words:
        return GROW_TAPE
    if inside == 0 and framing != ITEMS:
        position, inside = open_document(data, position, framing, state)
    if position < 0 or inside < 0 or peek(data, position) != OPEN_OBJECT:
        return ERROR
    put(walk, at, ITEM, position)
    position = end_of_object(data, position, end)
    put(walk, at + ENTRY_WORDS, CLOSE, position)
    if position >= 0 and framing != ITEMS:
        position, inside = close_document(data, position, framing)
    if position < 0 or position > end:
        return ERROR
    state[TAPE], state[POSITION], state[INSIDE] = at + 2 * ENTRY_WORDS, position, inside
    state[ROWS] += 1
    return DONE


@inner
def _sizes(walk: Any) -> Any:
    return (
        len(walk.nodes) // NODE_WIDTH,
        len(walk.texts) - 2 * PREFIX_BYTES,
        len(walk.lookup) - 1,
        len(walk.tape) - SPARE_WORDS,
    )


@inner
def _walk_items(walk: Any, end: int, framing: int, sizes: Any, changes: Any) -> Any:
    """Walk by pointers; the branches for changes are compiled only if ``changes`` is not None."""
    data, state = walk.data, walk.state
    if state[HAS_LOOKUP] == 0:
        for node in range(1, state[N_PATHS]):
            insert_path(walk, node, sizes[2])
        state[HAS_LOOKUP] = 1
    position, inside = state[POSITION], state[INSIDE]
    while True:
        if inside == 0:
            position = skip_blank(data, position)
        state[POSITION], state[INSIDE], side = position, inside, state[UNESCAPED]
        if inside == 0 and position >= end:
            return DONE
        if state[ROWS] == state[MAX_ROWS]:
            return FULL
        if state[NAMES] * 4 > state[NAMES_MASK]:
            # The names of other items do not matter for this one.
            for slot in range(state[NAMES_MASK] + 1):
                poke(walk.names, slot, 0)
            state[NAMES] = 0
        if changes is not None:
            position, inside = _walk_change(walk, position, inside, end, sizes)
            if position < 0:
                state[UNESCAPED] = side
                return -position
            continue
        if inside == 0 and framing != ITEMS:
            position, inside = open_document(data, position, framing, state)
            if position < 0:
                return -position
            if inside < 0:
                inside = 0
                continue
        at = state[TAPE]
        if at > sizes[3]:
            return GROW_TAPE
        put(walk, at, ITEM, position)
        position, at = walk_item(walk, position, at + ENTRY_WORDS, 0, sizes)
        if position >= 0 and framing != ITEMS:
            position, inside = close_document(data, position, framing)
        if position < 0 or position > end:
            uncount_values(walk, state[TAPE], at)
            state[UNESCAPED] = side
            return -min(position, -ERROR)
        state[TAPE] = at
        state[ROWS] += 1


@inner
def _walk_change(walk: Any, position: int, inside: int, end: int, sizes: Any) -> Any:
    """Return the position after the change at ``position``, or a negative status, and its container."""
    state = walk.state
    at = state[TAPE]
    if at > sizes[3]:
        return -GROW_TAPE, inside
    put(walk, at, ITEM, position)
    at += ENTRY_WORDS
    while True:
        position, inside, is_end = next_image(walk, position, inside)
        if position < 0 or position > end:
            uncount_values(walk, state[TAPE], at)
            return min(position, -ERROR), inside
        if is_end:
            time = WRITE_TIME << NODE_BITS | 1 << ENCODING_BITS | N
            at = put_value(walk, at, time, state[TIME], WRITE_TIME * NODE_WIDTH)
            deleted = DELETED << NODE_BITS | BOOL
            at = put_value(walk, at, deleted, state[IS_DELETED], DELETED * NODE_WIDTH)
            put(walk, at, CLOSE, position)
            state[TAPE] = at + ENTRY_WORDS
            state[ROWS] += 1
        if inside <= 0:
            return position, inside
        at = put_value(walk, at, inside << NODE_BITS | M, position, inside * NODE_WIDTH)
        position, at = walk_item(walk, position, at, inside, sizes)
        if position < 0 or position > end:
            uncount_values(walk, state[TAPE], at)
            return min(position, -ERROR), inside


@inlined
def put(walk: Any, at: int, head: int, word: int) -> None:
    """Write an entry."""
    poke(walk.tape, at, head)
    poke(walk.tape, at + 1, word)


@inner
def uncount_values(walk: Any, first: int, stop: int) -> None:
    """Subtract the values between two positions of the tape from the counts."""
    rare()
    tape, nodes, at = walk.tape, walk.nodes, first
    while at < stop:
        head, word = peek(tape, at), peek(tape, at + 1)
        at += ENTRY_WORDS
        tag, record = head & TAG_BITS, (head >> NODE_BITS) * NODE_WIDTH
        if tag == SKIP:
            at = word
        if tag >= ITEM:
            continue
        if tag == JSON_TEXT:
            tag = S
        poke(nodes, record + COUNTS + tag, peek(nodes, record + COUNTS + tag) - 1)
        if tag >= IN_SET:
            tag -= IN_SET
        encoding, length = (head >> ENCODING_BITS) & 0xFF, word & LENGTH_MASK
        if tag == B:
            add_bytes(walk.nodes, record, -decoded_length(walk.data, word >> 32, length))
        elif tag == S or (tag == N and encoding == NUMBER_TEXT):
            add_bytes(walk.nodes, record, -length)
        elif tag == N and encoding == 0:
            add_bytes(walk.nodes, record, -LONGEST_NUMBER)


@inlined
def put_value(walk: Any, at: int, head: int, word: int, record: int) -> Any:
    """Write the entry of a value, and count it by its type; return the position of the next entry."""
    put(walk, at, head, word)
    count = record + COUNTS + (head & TAG_BITS)
    poke(walk.nodes, count, peek(walk.nodes, count) + 1)
    return at + ENTRY_WORDS


@inlined
def add_bytes(nodes: Any, record: int, n_bytes: int) -> None:
    """Count the bytes of a text."""
    poke(nodes, record + BYTES, peek(nodes, record + BYTES) + n_bytes)


@inlined
def walk_item(walk: Any, position: int, at: int, root: int, sizes: Any) -> Any:
    """Return the positions after the item at ``position`` and on the tape; the former may be a negative status.

    ``root`` is the node whose members are the attributes.
    """
    data, nodes, state, stack = walk.data, walk.nodes, walk.state, walk.stack
    marks, tape = walk.marks, walk.tape
    if peek(data, position) != OPEN_OBJECT:
        return -ERROR, at
    position = skip_blank(data, position + 1)
    if peek(data, position) == CLOSE_OBJECT:
        put(walk, at, CLOSE, position + 1)
        return position + 1, at + ENTRY_WORDS
    state[INSTANCE] += 1
    # The elements of a list share a node: each element is a separate instance because of this step.
    context, instance, step, depth = root, state[INSTANCE], 0, 0
    last = root * NODE_WIDTH + FIRST
    record = peek(nodes, last)
    while True:
        # Does the data match the prediction?
        is_done, is_known = False, False
        while at <= sizes[3]:
            mask = peek(nodes, record + WHOLE_MASK)
            if (
                equal32_words(data, position, nodes, record) & mask != mask
                or peek(nodes, record + LAST_SEEN) == instance
            ):
                break
            head = peek(nodes, record + HEAD)
            tag, start = head & TAG_BITS, position + peek(nodes, record + WHOLE_LENGTH)
            if tag > BOOL:
                position, is_known = start, True
                break
            if tag == BOOL:
                word = np.int64(load64(data, start))
                is_true = word & _FIVE_BYTES == _TRUE
                # One branch for both values: their order is not predictable.
                if ((word & _FIVE_BYTES) - _TRUE) * ((word & _SIX_BYTES) - _FALSE) != 0:
                    break
                word, stop = np.int64(is_true), start + 4 - is_true
            else:
                stop = marked_end(marks, start)
                if np.int64(load64(data, stop)) & _TWO_BYTES != _CLOSE_OF_TEXT:
                    break
                word, encoding = _simple_content(data, nodes, tag, start, stop, record)
                if encoding < 0:
                    break
                head |= encoding << ENCODING_BITS
            poke(tape, at, head)
            poke(tape, at + 1, word)
            at += ENTRY_WORDS
            count = record + COUNTS + tag
            poke(nodes, count, peek(nodes, count) + 1)
            poke(nodes, record + LAST_SEEN, instance)
            instance += step
            last = record + FOLLOWER
            record = peek(nodes, last)
            position = stop + 2
            if peek(data, position) != COMMA:
                is_done = True
                break
            position += 1
        if not is_done:
            if at > sizes[3]:
                return -GROW_TAPE, at
            # Find the node and the type of the value.
            odd, is_open, follower = 0, True, -1
            if not is_known:
                same = equal32_words(data, position, nodes, record)
                mask = peek(nodes, record + PREFIX_MASK)
                if same & mask == mask:
                    position += peek(nodes, record + PREFIX_LENGTH)
                    if peek(nodes, record + KEEPS_POSITION):
                        odd = position - 2
                elif step:
                    odd = skip_blank(data, position)
                    position = inside_value(data, odd)
                    if position < 0:
                        return position, at
                else:
                    second = peek(nodes, record + FOLLOWER)
                    mask = peek(nodes, second + PREFIX_MASK)
                    if equal32_words(data, position, nodes, second) & mask == mask:
                        record = second
                        continue
                    begin = position
                    record, position = find_path(walk, position, context, instance, sizes)
                    if position < 0:
                        return position, at
                    if peek(nodes, record + NAME_BYTES) == OTHERS:
                        # The follower in another map predicts nothing.
                        put(walk, at, NAME, state[NAME_START] << 32 | state[NAME_LENGTH])
                        at += ENTRY_WORDS
                        follower = last
                    else:
                        poke(nodes, last, record)
                        mask = peek(nodes, record + PREFIX_MASK)
                        if equal32_words(data, begin, nodes, record) & mask == mask:
                            position = begin
                            continue
                    if peek(data, position - 2) != OPEN_OBJECT or peek(nodes, record + KEEPS_POSITION):
                        odd = _value_start(data, position)
                word = np.int64(load64(data, position))
                if word & peek(nodes, record + TAG_MASK) == peek(nodes, record + TAG_WORD):
                    tag = peek(nodes, record + HEAD) & TAG_BITS
                    position += peek(nodes, record + TAG_LENGTH)
                elif (
                    odd == 0
                    and word == _NULL_START
                    and np.int64(load64(data, position + 8)) & _THREE_BYTES == _NULL_STOP
                ):
                    tag = NULL
                    position += _NULL_LENGTH
                    is_open = False
                else:
                    begin = position
                    tag, position = other_type(walk, position, record, sizes)
                    if position < 0:
                        return position, at
                    if odd == 0 and (tag == NULL or position - begin != peek(nodes, record + TAG_LENGTH)):
                        odd = begin - 2
            if step == 0 and peek(nodes, record + LAST_SEEN) == instance:
                return -ERROR, at
            poke(nodes, record + LAST_SEEN, instance)
            instance += step
            last = record + FOLLOWER if follower < 0 else follower
            head = peek(nodes, record + HEAD) & ~TAG_BITS | tag
            # Write the content.
            if tag >= L:
                if odd > 0:
                    put(walk, at, ODD, odd << 32)
                    at += ENTRY_WORDS
                at = put_value(walk, at, head, position, record)
                byte = peek(data, position)
                if byte <= _LAST_BLANK:
                    position = skip_blank(data, position)
                    byte = peek(data, position)
                if byte != (CLOSE_ARRAY if tag == L else CLOSE_OBJECT):
                    if depth == MAX_SKIPPED_DEPTH:
                        return -ERROR, at
                    context, instance, step, last, record, depth = _enter(
                        walk, record, context, instance, step, last, depth
                    )
                    continue
                position += 1
                put(walk, at, CLOSE, position)
                at += ENTRY_WORDS
            elif tag == N:
                position, at = _put_number(walk, position, at, head, record, odd)
            elif tag <= B:
                position, at = _put_text(walk, position, at, head, record, odd)
            elif tag >= SS and odd == 0:
                at = put_value(walk, at, head, position, record)
                element = head - SS + IN_SET
                position, at, is_whole = _put_elements(
                    data, marks, nodes, tape, position, at, element, record, sizes[3]
                )
                if not is_whole:
                    position, at = _put_remaining(walk, position, at, element, record, sizes)
            elif is_open:
                position, at = _put_rare(walk, position, at, head, record, odd, sizes)
            else:
                at = put_value(walk, at, head, 0, record)
            if position < 0:
                return position, at
            if is_open:
                if peek(data, position) != CLOSE_OBJECT:
                    position = skip_blank(data, position)
                    if peek(data, position) != CLOSE_OBJECT:
                        return -ERROR, at
                position += 1
        # Read the next token.
        while True:
            byte = peek(data, position)
            if byte == COMMA:
                position += 1
                break
            if byte == (CLOSE_ARRAY if step else CLOSE_OBJECT):
                position += 1
                put(walk, at, CLOSE, position)
                at += ENTRY_WORDS
                if depth == 0:
                    return position, at
                if at > sizes[3]:
                    return -GROW_TAPE, at
                depth -= 1
                frame = depth * _FRAME_WIDTH
                context = peek(stack, frame + _FRAME_CONTEXT)
                instance = peek(stack, frame + _FRAME_INSTANCE)
                step = peek(stack, frame + _FRAME_STEP)
                last = peek(stack, frame + _FRAME_LAST)
                if peek(data, position) != CLOSE_OBJECT:
                    position = skip_blank(data, position)
                    if peek(data, position) != CLOSE_OBJECT:
                        return -ERROR, at
                position += 1
                continue
            after = skip_blank(data, position)
            if after == position:
                return -ERROR, at
            position = after
        record = peek(nodes, last)


@inlined
def _enter(walk: Any, record: int, context: int, instance: int, step: int, last: int, depth: int) -> Any:
    """Push the current container, and enter the list or map at ``record``; return its context and its prediction."""
    nodes, stack, frame = walk.nodes, walk.stack, depth * _FRAME_WIDTH
    poke(stack, frame + _FRAME_CONTEXT, context)
    poke(stack, frame + _FRAME_INSTANCE, instance)
    poke(stack, frame + _FRAME_STEP, step)
    poke(stack, frame + _FRAME_LAST, last)
    if peek(nodes, record + HEAD) & TAG_BITS == M:
        walk.state[INSTANCE] += 1
        last = record + FIRST
        return record // NODE_WIDTH, walk.state[INSTANCE], 0, last, peek(nodes, last), depth + 1
    context = peek(nodes, record + ELEMENT)
    record = context * NODE_WIDTH
    return context, peek(nodes, record + LAST_SEEN) + 1, 1, record + FOLLOWER, record, depth + 1


@inlined
def _simple_content(data: Any, nodes: Any, tag: int, start: int, stop: int, record: int) -> Any:
    """Count a text, number or base64 that ends at ``stop``; return its word and encoding, which is -1 if unusual."""
    word = start << 32 | (stop - start)
    if tag == N:
        negative = np.int64(peek(data, start) == MINUS)
        first = start + negative
        if stop == first or stop - first > _LONGEST_PLAIN:
            return word, -1
        value, scale = plain_number(data, first, stop - first)
        if scale < 0 or value < np.uint64(negative):
            return word, -1
        n_integer = stop - first - scale - (scale > 0) - (peek(data, first) == ZERO)
        is_new_maximum = n_integer > peek(nodes, record + WHOLE) or scale > peek(nodes, record + SCALE)
        if is_new_maximum and note_digits(nodes, record, n_integer, scale):
            add_bytes(nodes, record, stop - start)
            return word, NUMBER_TEXT
        return (np.int64(value) ^ -negative) + negative, 1 + scale
    n_bytes = stop - start
    if tag == B:
        if not is_base64(data, start, n_bytes):
            return word, -1
        n_bytes = decoded_length(data, start, n_bytes)
    add_bytes(nodes, record, n_bytes)
    return word, 0


@inner
def note_digits(nodes: Any, record: int, n_integer: int, scale: int) -> Any:
    """Record the digits of a number if they are the most so far; return whether the path keeps the text of numbers."""
    rare()
    if peek(nodes, record + KEEPS_TEXT):
        return True
    poke(nodes, record + WHOLE, max(n_integer, peek(nodes, record + WHOLE)))
    poke(nodes, record + SCALE, max(scale, peek(nodes, record + SCALE)))
    return False


@inner
def _value_start(data: Any, position: int) -> Any:
    """Return the position of the brace that opens the value whose type is at ``position``."""
    position -= 1
    while peek(data, position) != OPEN_OBJECT:
        position -= 1
    return position


@inner
def _put_text(walk: Any, position: int, at: int, head: int, record: int, odd: int) -> Any:
    """Write the entry of a text, also with escapes or in JSON that is not compact."""
    rare()
    begin = position
    start, length, position = read_text(walk.data, position, walk.state)
    if position < 0:
        return position, at
    n_bytes = length
    if head & TAG_BITS == B:
        if not is_base64(walk.data, start, length):
            return -ERROR, at
        n_bytes = decoded_length(walk.data, start, length)
    if odd > 0 or start != begin:
        put(walk, at, ODD, (odd if odd > 0 else begin - len('{"S":"')) << 32 | position)
        at += ENTRY_WORDS
    add_bytes(walk.nodes, record, n_bytes)
    return position, put_value(walk, at, head, start << 32 | length, record)


@inner
def _put_number(walk: Any, position: int, at: int, head: int, record: int, odd: int) -> Any:
    """Write the entry of a number in any notation, and count its digits."""
    rare()
    data, nodes, digits = walk.data, walk.nodes, walk.digits
    negative = np.int64(peek(data, position) == MINUS)
    value, stop = read_digits(data, position + negative)
    n_integer = stop - position - negative
    is_short = odd == 0 and 0 < n_integer <= _INT64_DIGITS and value < _INT64_LIMIT and peek(data, stop) == QUOTE
    if is_short and peek(data, position + negative) != ZERO and peek(nodes, record + KEEPS_TEXT) == 0:
        poke(nodes, record + WHOLE, max(n_integer, peek(nodes, record + WHOLE)))
        return stop + 1, put_value(
            walk, at, head | 1 << ENCODING_BITS, (np.int64(value) ^ -negative) + negative, record
        )
    begin = position
    start, length, position = read_text(data, position, walk.state)
    if position < 0:
        return position, at
    n_integer, scale = canonical_digits(data, start, start + length)
    # A quote follows the text of a number, unless the text had escapes.
    encoding, is_wide = NUMBER_TEXT if n_integer >= 0 and start == begin else 0, True
    if n_integer < 0 or (scale == 0 and n_integer <= _INT64_DIGITS):
        is_number, negative, count, n_integer = parse_number(data, start, start + length, digits)
        if not is_number:
            return -ERROR, at
        scale = count - n_integer
        is_wide = scale > 0 or n_integer > _INT64_DIGITS
        if not is_wide:
            _, magnitude = unscaled(digits, count, n_integer, 0)
            is_wide = magnitude > _INT64_LIMIT or (magnitude == _INT64_LIMIT and not negative)
    if odd > 0 or start != begin:
        put(walk, at, ODD, (odd if odd > 0 else begin - len('{"N":"')) << 32 | position)
        at += ENTRY_WORDS
    add_bytes(walk.nodes, record, length if encoding == NUMBER_TEXT else LONGEST_NUMBER)
    at = put_value(walk, at, head | encoding << ENCODING_BITS, start << 32 | length, record)
    if peek(nodes, record + KEEPS_TEXT):
        return position, at
    if n_integer > peek(nodes, record + WHOLE):
        poke(nodes, record + WHOLE, n_integer)
    if scale > peek(nodes, record + SCALE):
        poke(nodes, record + SCALE, scale)
    if is_wide:
        poke(nodes, record + IS_WIDE, 1)
    return position, at


@inner
def _put_rare(walk: Any, position: int, at: int, head: int, record: int, odd: int, sizes: Any) -> Any:
    """Write the entries of a boolean, a NULL, or a set in JSON that is not compact."""
    rare()
    data = walk.data
    tag = head & TAG_BITS
    if tag in (BOOL, NULL):
        position = skip_blank(data, position)
        literal = read_literal(data, position)
        if literal < 0 or (tag == NULL and literal == 0):
            return -ERROR, at
        position += 5 - literal
        if odd > 0:
            put(walk, at, ODD, odd << 32 | position)
            at += ENTRY_WORDS
        return position, put_value(walk, at, head, literal if tag == BOOL else 0, record)
    put(walk, at, ODD, odd << 32)
    at = put_value(walk, at + ENTRY_WORDS, head, position, record)
    return _put_remaining(walk, position, at, head - SS + IN_SET, record, sizes)


@inner
def _put_elements(
    data: Any, marks: Any, nodes: Any, tape: Any, position: int, at: int, element: int, record: int, limit: int
) -> Any:
    """Write the entries of a set's elements; return the positions after them, and whether the set is complete."""
    out_of_line()
    tag = (element & TAG_BITS) - IN_SET
    count = record + COUNTS + IN_SET + tag
    while at <= limit and peek(data, position) == QUOTE:
        stop = marked_end(marks, position + 1)
        after = np.int64(load64(data, stop)) & _TWO_BYTES
        if after not in (_NEXT_ELEMENT, _LAST_ELEMENT):
            break
        word, encoding = _simple_content(data, nodes, tag, position + 1, stop, record)
        if encoding < 0:
            break
        poke(tape, at, element | encoding << ENCODING_BITS)
        poke(tape, at + 1, word)
        at += ENTRY_WORDS
        poke(nodes, count, peek(nodes, count) + 1)
        position = stop + 2
        if after == _LAST_ELEMENT:
            poke(tape, at, CLOSE)
            poke(tape, at + 1, position)
            return position, at + ENTRY_WORDS, True
    return position, at, False


@inner
def _put_remaining(walk: Any, position: int, at: int, element: int, record: int, sizes: Any) -> Any:
    """Write the entries of the remaining elements of a set, in any JSON."""
    rare()
    data = walk.data
    # The position is after the opening bracket, or after a comma, which another element must follow.
    is_before = peek(data, position - 1) == COMMA
    position = skip_blank(data, position)
    is_before = is_before or peek(data, position) != CLOSE_ARRAY
    while is_before or peek(data, position) != CLOSE_ARRAY:
        if at > sizes[3]:
            return -GROW_TAPE, at
        if not is_before:
            if peek(data, position) != COMMA:
                return -ERROR, at
            position = skip_blank(data, position + 1)
        is_before = False
        if peek(data, position) != QUOTE:
            return -ERROR, at
        position, at = _put_element(walk, position + 1, at, element, record)
        if position < 0:
            return position, at
        position = skip_blank(data, position)
    put(walk, at, CLOSE, position + 1)
    return position + 1, at + ENTRY_WORDS


@inner
def _put_element(walk: Any, position: int, at: int, element: int, record: int) -> Any:
    """Write the entry of an element of a set: a text with escapes, or a number that is not canonical."""
    out_of_line()
    if element & TAG_BITS == IN_SET + N:
        return _put_number(walk, position, at, element, record, 0)
    start, length, position = read_text(walk.data, position, walk.state)
    if position < 0:
        return position, at
    n_bytes = length
    if element & TAG_BITS == IN_SET + B:
        if not is_base64(walk.data, start, length):
            return -ERROR, at
        n_bytes = decoded_length(walk.data, start, length)
    add_bytes(walk.nodes, record, n_bytes)
    return position, put_value(walk, at, element, start << 32 | length, record)
