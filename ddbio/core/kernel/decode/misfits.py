"""Turn the spans that fitted no column into the rescue column and its counts; parses none that is compact already."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddbio.core.kernel import state as st
from ddbio.core.kernel.decode import scratch
from ddbio.core.kernel.decode.assemble import SparseTexts
from ddbio.core.kernel.decode.rescue_rows import BESIDE_BYTES, GROUP_WIDTH, Found, Rescue, group_misfits, write_rescues
from ddbio.core.kernel.memory import PAD
from ddbio.core.rescue import DOES_NOT_FIT, OTHER_TYPE, UNKNOWN, MisfitLog
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    import numpy.typing as npt

    from ddbio.core.kernel.decode.scratch import Work
    from ddbio.core.kernel.decode.tables import Node
    from ddbio.core.reference import RowBuilder

_KIND_BITS = 8
_KIND_MASK = (1 << _KIND_BITS) - 1
_KINDS = {st.IS_UNKNOWN: UNKNOWN, st.IS_OTHER_TYPE: OTHER_TYPE, st.IS_UNFIT: DOES_NOT_FIT}


def name_paths(nodes: list[Node]) -> list[str]:
    """Return how each node is called in the count of misfits."""
    paths = [""] * len(nodes)
    for node in nodes[1:]:
        parent, path = nodes[node.parent], paths[node.parent]
        match parent.kind:
            case st.STRUCT:
                paths[node.number] = f"{path}.{node.name}" if parent.number else node.name
            case st.LIST:
                paths[node.number] = f"{path}[]"
            case st.MAP:
                paths[node.number] = f"{path}.*"
            case _:
                paths[node.number] = path
    return paths


class _Group(NamedTuple):
    """Say of misfits that are alike where their values stand in the rescue column; sorts as they do."""

    image: str
    """The name of the root, empty for items."""
    name: str
    root: int
    n_values: int
    n_bytes: int
    """What the values take."""
    is_dropped: bool

    def opening(self) -> tuple[bytes, bytes]:
        """Return what opens the root's object, if it has a name, and what stands before each value."""
        return (_quoted(self.image) + b":{" if self.root else b""), _quoted(self.name) + b":"


class Rescuer:
    """Write the rescue column of one schema's batches.

    Parameters
    ----------
    rows
        The reference for the members of each root: 0 for items, else an image of a change.
    """

    def __init__(self, nodes: list[Node], rows: dict[int, RowBuilder]) -> None:
        self._paths = name_paths(nodes)
        self._names = [node.name for node in nodes]
        self._parents = [node.parent for node in nodes]
        self._rows = rows

    def texts(self, work: Work, log: MisfitLog) -> SparseTexts:
        """Return the rescue text of each row that has one, and count the misfits in ``log``."""
        n_entries = int(work.state[st.MISFITS])
        misfits = work.misfits[: n_entries * st.MISFIT_WIDTH]
        order, numbers = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
        counts, slots = np.empty(n_entries * GROUP_WIDTH, np.int64), np.zeros(2 << n_entries.bit_length(), np.int64)
        n_groups, n_misfits, is_repeated = group_misfits(Found(work.data, misfits, order, numbers, counts, slots))
        order, known = order[:n_misfits], counts[: n_groups * GROUP_WIDTH].tolist()
        groups = [self._count(work, known[at : at + GROUP_WIDTH], log) for at in range(0, len(known), GROUP_WIDTH)]
        if any(group.is_dropped for group in groups):
            order = order[np.array([not group.is_dropped for group in groups])[numbers[order]]]
        if is_repeated:
            order = order[
                np.lexsort((_ranks(groups)[numbers[order]], misfits[order * st.MISFIT_WIDTH + st.MISFIT_ROW]))
            ]
        return _written(work.data, misfits, numbers, order, groups)

    def _count(self, work: Work, known: list[int], log: MisfitLog) -> _Group:
        """Count the misfits of a group in ``log``."""
        first, n_values, n_bytes = known
        place = first * st.MISFIT_WIDTH
        _, node, name_at, name_length, start, stop, bad, _ = work.misfits[place : place + st.MISFIT_WIDTH].tolist()
        name = self._names[node] if node >= 0 else work.data[name_at : name_at + name_length].tobytes().decode()
        root = self._parents[node] if node >= 0 else -1 - node
        is_null = bad & _KIND_MASK == st.IS_KEPT_NULL
        group = _Group(self._names[root], name, root, n_values, n_bytes, not is_null and name in self._rows[root].drop)
        if not is_null:
            self._log(group, node, bad, work.data[start:stop].tobytes().decode(), log)
        return group

    def _log(self, group: _Group, node: int, bad: int, first: str, log: MisfitLog) -> None:
        kind, bad_node, count = bad & _KIND_MASK, bad >> _KIND_BITS, group.n_values
        if node < 0:
            path = f"{group.image}.{group.name}" if group.root else group.name
        else:
            path = self._paths[bad_node] + (".*" if kind == st.IS_UNKNOWN else "")
            if node != bad_node or kind == st.IS_UNKNOWN:
                # The example is a part of the value: the reference knows which.
                self._rows[group.root].batch([{group.name: json.loads(first)}], log)
                count -= 1
        if count:
            log.add_texts(path, _KINDS[kind], first, count, is_dropped=group.is_dropped)


def _ranks(groups: list[_Group]) -> npt.NDArray[np.int64]:
    # UTF-8 sorts as the characters do.
    ranks = np.empty(len(groups), np.int64)
    ranks[sorted(range(len(groups)), key=groups.__getitem__)] = np.arange(len(groups))
    return ranks


def _written(
    data: npt.NDArray[np.uint8],
    misfits: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    groups: list[_Group],
) -> SparseTexts:
    places, texts, room = [], bytearray(), PAD
    for group in groups:
        outer, inner = group.opening()
        start = len(texts)
        texts += outer + inner
        places.append((group.root, start, start + len(outer), len(texts)))
        if not group.is_dropped:
            room += group.n_bytes + group.n_values * (len(outer) + len(inner) + BESIDE_BYTES)
    openings = scratch.allocate(len(texts) + PAD)
    openings[: len(texts)] = np.frombuffer(texts, np.uint8)
    text, rows, lengths = scratch.allocate(room), np.empty_like(order), np.empty_like(order)
    names = np.array(places, np.int64).ravel()
    n_rows, n_bytes = write_rescues(Rescue(data, misfits, numbers, order, names, openings, text, rows, lengths))
    return SparseTexts(rows[:n_rows], lengths[:n_rows], text[:n_bytes])


@functools.lru_cache(maxsize=4096)
def _quoted(name: str) -> bytes:
    return compact_json(name).encode()


def respell(work: Work) -> bool:
    """Write the values that were not compact beside the data, compact; return whether there was room."""
    if not work.state[st.ROUGH]:
        return True
    misfits = work.misfits[: int(work.state[st.MISFITS]) * st.MISFIT_WIDTH].reshape(-1, st.MISFIT_WIDTH)
    for number in np.flatnonzero(misfits[:, st.MISFIT_PLAIN] == 0):
        index, node, _, _, start, stop, kind, _ = misfits[number].tolist()
        text = compact_json(json.loads(work.data[start:stop].tobytes())).encode()
        side = int(work.state[st.SIDE])
        if side + len(text) > work.state[st.SIDE_END]:
            return False
        work.data[side : side + len(text)] = memoryview(text)
        if kind == st.TEXT_OF_VALUE:
            work.values[work.value_place[node] + index] = side << 32 | len(text)
        else:
            misfits[number, [st.MISFIT_START, st.MISFIT_STOP]] = side, side + len(text)
        work.state[st.SIDE] += len(text)
    return True
