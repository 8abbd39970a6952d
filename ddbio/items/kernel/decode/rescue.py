"""Rescue column from the spans of misfits, and their counts by path and kind.

Misfits are grouped by attribute and kind. A value in compact JSON is copied and never parsed.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.items.json_text import compact_json
from ddbio.items.kernel import codes, memory
from ddbio.items.kernel.codes import (
    MISFIT_KIND,
    MISFIT_NAME,
    MISFIT_NAME_LENGTH,
    MISFIT_NODE,
    MISFIT_ROW,
    MISFIT_START,
    MISFIT_STOP,
    MISFIT_WIDTH,
)
from ddbio.items.kernel.decode.output import RowTexts
from ddbio.items.kernel.jit import inner, loop
from ddbio.items.kernel.memory import PAD, copy_bytes, peek, pointers, poke
from ddbio.items.kernel.skip import CLOSE_OBJECT, COMMA, OPEN_OBJECT
from ddbio.items.kernel.text import hash_text, same_text
from ddbio.items.rescue import DOES_NOT_FIT, OTHER_TYPE, UNKNOWN, MisfitLog

if TYPE_CHECKING:
    import numpy.typing as npt

    from ddbio.items.kernel.decode.tables import Node
    from ddbio.items.kernel.tape.fit import Fit
    from ddbio.items.reference import RowBuilder

GROUP_FIRST, GROUP_COUNT, GROUP_BYTES = range(3)
GROUP_WIDTH = 3
"""Fields of a group: its first misfit, the number of its misfits, and the bytes of their values."""

NAME_ROOT, NAME_OUTER, NAME_INNER, NAME_STOP = range(4)
NAME_WIDTH = 4
"""Positions of the text before the values of a group: the name of the root, if it has one, and of the attribute."""

OVERHEAD_BYTES = 4
"""The most bytes of punctuation per name and value."""

_MIX, _HALF = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


class MisfitGroups(NamedTuple):
    """Misfits of a block, and the arrays in which they are grouped."""

    data: npt.NDArray[np.uint8]
    misfits: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    """The numbers of the entries that are misfits."""
    group: npt.NDArray[np.int64]
    """The group of each misfit, by its number."""
    groups: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    """Zeros; their number is a power of two and larger than that of misfits."""


class Rescue(NamedTuple):
    """Input and output arrays of the rescue texts."""

    data: npt.NDArray[np.uint8]
    misfits: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    """The rescued misfits, sorted by row, root and name."""
    names: npt.NDArray[np.int64]
    name_text: npt.NDArray[np.uint8]
    text: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


@loop(MisfitGroups)
def group_misfits(arrays: Any) -> Any:
    """Group misfits by attribute, kind and node.

    Return the numbers of groups and of misfits, and whether a row has several misfits.
    """
    return _group_misfits(pointers(arrays), len(arrays.order), len(arrays.slots) - 1)


@inner
def _group_misfits(f: Any, n_entries: int, mask: int) -> Any:
    n_groups, n_misfits, last_row, is_repeated = 0, 0, -1, False
    for number in range(n_entries):
        entry = number * MISFIT_WIDTH
        slot = np.int64(_hash(f, entry) >> _HALF) & mask
        while True:
            group = peek(f.slots, slot) - 1
            if group < 0:
                group = n_groups
                n_groups += 1
                poke(f.slots, slot, n_groups)
                poke(f.groups, group * GROUP_WIDTH + GROUP_FIRST, number)
                poke(f.groups, group * GROUP_WIDTH + GROUP_COUNT, 0)
                poke(f.groups, group * GROUP_WIDTH + GROUP_BYTES, 0)
                break
            if _is_alike(f, entry, peek(f.groups, group * GROUP_WIDTH + GROUP_FIRST) * MISFIT_WIDTH):
                break
            slot = (slot + 1) & mask
        poke(f.order, n_misfits, number)
        poke(f.group, number, group)
        n_misfits += 1
        counts = group * GROUP_WIDTH
        n_bytes = peek(f.misfits, entry + MISFIT_STOP) - peek(f.misfits, entry + MISFIT_START)
        poke(f.groups, counts + GROUP_COUNT, peek(f.groups, counts + GROUP_COUNT) + 1)
        poke(f.groups, counts + GROUP_BYTES, peek(f.groups, counts + GROUP_BYTES) + n_bytes)
        row = peek(f.misfits, entry + MISFIT_ROW)
        is_repeated |= row == last_row
        last_row = row
    return n_groups, n_misfits, is_repeated


@inner
def _name_length(f: Any, entry: int) -> Any:
    # The node identifies an attribute of the schema.
    return peek(f.misfits, entry + MISFIT_NAME_LENGTH) if peek(f.misfits, entry + MISFIT_NODE) < 0 else 0


@inner
def _hash(f: Any, entry: int) -> Any:
    name = hash_text(f.data, peek(f.misfits, entry + MISFIT_NAME), _name_length(f, entry))
    where = (peek(f.misfits, entry + MISFIT_KIND) << 24) + peek(f.misfits, entry + MISFIT_NODE)
    return (name ^ np.uint64(where)) * _MIX


@inner
def _is_alike(f: Any, entry: int, other: int) -> Any:
    length = _name_length(f, entry)
    return (
        peek(f.misfits, entry + MISFIT_NODE) == peek(f.misfits, other + MISFIT_NODE)
        and peek(f.misfits, entry + MISFIT_KIND) == peek(f.misfits, other + MISFIT_KIND)
        and length == _name_length(f, other)
        and same_text(
            f.data, peek(f.misfits, entry + MISFIT_NAME), f.data, peek(f.misfits, other + MISFIT_NAME), length
        )
    )


@loop(Rescue)
def write_rescues(rescue: Any) -> Any:
    """Write an object for each row with a rescued misfit; return the number of such rows, and the bytes.

    ``text`` has space for every name and value, for ``OVERHEAD_BYTES`` more for each, and for ``PAD``.
    """
    return _write_rescues(pointers(rescue), len(rescue.order))


@inner
def _write_rescues(r: Any, n_rescued: int) -> Any:
    n_rows, at, begin, row, root = 0, 0, 0, -1, 0
    for index in range(n_rescued):
        number = peek(r.order, index)
        entry, name = number * MISFIT_WIDTH, peek(r.group, number) * NAME_WIDTH
        position = peek(r.names, name + NAME_OUTER)
        if peek(r.misfits, entry + MISFIT_ROW) != row:
            row, begin = peek(r.misfits, entry + MISFIT_ROW), at
            poke(r.text, at, OPEN_OBJECT)
        elif peek(r.names, name + NAME_ROOT) != root:
            poke(r.text, at, CLOSE_OBJECT)
            at += 1
            poke(r.text, at, COMMA)
        else:
            position = peek(r.names, name + NAME_INNER)
            poke(r.text, at, COMMA)
        root = peek(r.names, name + NAME_ROOT)
        at = copy_bytes(r.text, at + 1, r.name_text, position, peek(r.names, name + NAME_STOP) - position)
        start = peek(r.misfits, entry + MISFIT_START)
        at = copy_bytes(r.text, at, r.data, start, peek(r.misfits, entry + MISFIT_STOP) - start)
        if index + 1 < n_rescued and peek(r.misfits, peek(r.order, index + 1) * MISFIT_WIDTH + MISFIT_ROW) == row:
            continue
        for _ in range(1 if root == 0 else 2):
            poke(r.text, at, CLOSE_OBJECT)
            at += 1
        poke(r.rows, n_rows, row)
        poke(r.lengths, n_rows, at - begin)
        n_rows += 1
    return n_rows, at


_KIND_BITS = 8
_KIND_MASK = (1 << _KIND_BITS) - 1
_KINDS = {codes.IS_UNKNOWN: UNKNOWN, codes.IS_OTHER_TYPE: OTHER_TYPE, codes.IS_UNFIT: DOES_NOT_FIT}


def name_paths(nodes: list[Node]) -> list[str]:
    """Return the path of each node, as in the counts of misfits."""
    paths = [""] * len(nodes)
    for node in nodes[1:]:
        parent, path = nodes[node.parent], paths[node.parent]
        match parent.kind:
            case codes.STRUCT:
                paths[node.number] = f"{path}.{node.name}" if parent.number else node.name
            case codes.LIST:
                paths[node.number] = f"{path}[]"
            case codes.MAP:
                paths[node.number] = f"{path}.*"
            case _:
                paths[node.number] = path
    return paths


class _Group(NamedTuple):
    """Group of similar misfits. Groups sort like their values in the rescue column."""

    image: str
    """The name of the root; empty for items."""
    name: str
    root: int
    n_values: int
    n_bytes: int
    """The bytes of the values."""
    is_dropped: bool

    def opening(self) -> tuple[bytes, bytes]:
        """Return the text that opens the object of the root, if it has a name, and the text before each value."""
        return (_quoted(self.image) + b":{" if self.root else b""), _quoted(self.name) + b":"


class Rescuer:
    """Writer of the rescue column for the batches of one schema.

    Parameters
    ----------
    rows
        The reference for the members of each root: 0 for items, else the image of a change.
    """

    def __init__(self, nodes: list[Node], rows: dict[int, RowBuilder]) -> None:
        self._paths = name_paths(nodes)
        self._names = [node.name for node in nodes]
        self._parents = [node.parent for node in nodes]
        self._rows = rows

    def texts(self, fit: Fit, log: MisfitLog) -> RowTexts:
        """Return the rescue texts of rows, and count the misfits in ``log``."""
        n_entries = int(fit.state[codes.MISFITS])
        misfits = fit.misfits[: n_entries * codes.MISFIT_WIDTH]
        order, numbers = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
        counts, slots = np.empty(n_entries * GROUP_WIDTH, np.int64), np.zeros(2 << n_entries.bit_length(), np.int64)
        n_groups, n_misfits, is_repeated = group_misfits(MisfitGroups(fit.data, misfits, order, numbers, counts, slots))
        order, fields = order[:n_misfits], counts[: n_groups * GROUP_WIDTH].tolist()
        groups = [self._count(fit, fields[at : at + GROUP_WIDTH], log) for at in range(0, len(fields), GROUP_WIDTH)]
        if any(group.is_dropped for group in groups):
            order = order[np.array([not group.is_dropped for group in groups])[numbers[order]]]
        if is_repeated:
            order = order[
                np.lexsort((_ranks(groups)[numbers[order]], misfits[order * codes.MISFIT_WIDTH + codes.MISFIT_ROW]))
            ]
        return _written(fit.data, misfits, numbers, order, groups)

    def _count(self, fit: Fit, fields: list[int], log: MisfitLog) -> _Group:
        """Count the misfits of a group in ``log``."""
        first, n_values, n_bytes = fields
        entry = first * codes.MISFIT_WIDTH
        _, node, name_at, name_length, start, stop, bad, _ = fit.misfits[entry : entry + codes.MISFIT_WIDTH].tolist()
        name = self._names[node] if node >= 0 else fit.data[name_at : name_at + name_length].tobytes().decode()
        root = self._parents[node] if node >= 0 else -1 - node
        is_null = bad & _KIND_MASK == codes.IS_NULL
        group = _Group(self._names[root], name, root, n_values, n_bytes, not is_null and name in self._rows[root].drop)
        if not is_null:
            self._log(group, node, bad, fit.data[start:stop].tobytes().decode(), log)
        return group

    def _log(self, group: _Group, node: int, bad: int, first: str, log: MisfitLog) -> None:
        kind, bad_node, count = bad & _KIND_MASK, bad >> _KIND_BITS, group.n_values
        if node < 0:
            path = f"{group.image}.{group.name}" if group.root else group.name
        else:
            path = self._paths[bad_node] + (".*" if kind == codes.IS_UNKNOWN else "")
            if node != bad_node or kind == codes.IS_UNKNOWN:
                # The misfit is a part of the value, which the reference finds.
                self._rows[group.root].batch([{group.name: json.loads(first)}], log)
                count -= 1
        if count:
            log.add_texts(path, _KINDS[kind], first, count, is_dropped=group.is_dropped)


def image_items(fit: Fit) -> tuple[int, RowTexts]:
    """Return the images of changes from a scan under a schema without attributes.

    Return the number of images that have attributes, and for each row its images as adjacent items, in the order of
    their nodes.
    """
    n_entries = int(fit.state[codes.MISFITS])
    table = fit.misfits[: n_entries * MISFIT_WIDTH].reshape(-1, MISFIT_WIDTH).copy()
    # Each image of a change becomes a row. The root of an attribute without a node in the schema is -1 - its node.
    table[:, MISFIT_ROW] = table[:, MISFIT_ROW] * (codes.OLD_IMAGE + 1) - 1 - table[:, MISFIT_NODE]
    misfits = table.ravel()
    numbers = np.empty(n_entries, np.int64)
    counts, slots = np.empty(n_entries * GROUP_WIDTH, np.int64), np.zeros(2 << n_entries.bit_length(), np.int64)
    n_groups, *_ = group_misfits(MisfitGroups(fit.data, misfits, np.empty_like(numbers), numbers, counts, slots))
    groups = []
    for first, n_values, n_bytes in counts[: n_groups * GROUP_WIDTH].reshape(-1, GROUP_WIDTH).tolist():
        start, length = table[first, [MISFIT_NAME, MISFIT_NAME_LENGTH]].tolist()
        name = fit.data[start : start + length].tobytes().decode()
        groups.append(_Group("", name, 0, n_values, n_bytes, is_dropped=False))
    images = _written(fit.data, misfits, numbers, np.argsort(table[:, MISFIT_ROW], kind="stable"), groups)
    rows, firsts = np.unique(images.rows // (codes.OLD_IMAGE + 1), return_index=True)
    lengths = np.add.reduceat(images.lengths, firsts) if len(rows) else images.lengths
    return len(images.rows), RowTexts(rows, lengths, images.data)


def _ranks(groups: list[_Group]) -> npt.NDArray[np.int64]:
    # UTF-8 sorts like the characters.
    ranks = np.empty(len(groups), np.int64)
    ranks[sorted(range(len(groups)), key=groups.__getitem__)] = np.arange(len(groups))
    return ranks


def _written(
    data: npt.NDArray[np.uint8],
    misfits: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    groups: list[_Group],
) -> RowTexts:
    positions, texts, n_bytes = [], bytearray(), PAD
    for group in groups:
        outer, inner = group.opening()
        start = len(texts)
        texts += outer + inner
        positions.append((group.root, start, start + len(outer), len(texts)))
        if not group.is_dropped:
            n_bytes += group.n_bytes + group.n_values * (len(outer) + len(inner) + OVERHEAD_BYTES)
    openings = memory.allocate(len(texts) + PAD)
    openings[: len(texts)] = np.frombuffer(texts, np.uint8)
    text, rows, lengths = memory.allocate(n_bytes), np.empty_like(order), np.empty_like(order)
    names = np.array(positions, np.int64).ravel()
    n_rows, n_bytes = write_rescues(Rescue(data, misfits, numbers, order, names, openings, text, rows, lengths))
    return RowTexts(rows[:n_rows], lengths[:n_rows], text[:n_bytes])


@functools.lru_cache(maxsize=4096)
def _quoted(name: str) -> bytes:
    return compact_json(name).encode()
