"""Turn the spans that fitted no column into the rescue column and its counts; parses none that is compact already."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from ddbio.core.kernel import state as st
from ddbio.core.rescue import DOES_NOT_FIT, OTHER_TYPE, UNKNOWN, MisfitLog, UnfitError
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from ddbio.core.kernel.scratch import Work
    from ddbio.core.kernel.tables import Node
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

    def texts(self, work: Work, log: MisfitLog) -> dict[int, bytes]:
        """Return the rescue text of each row that has one, and count the misfits in ``log``."""
        rescued: dict[int, dict[int, list[tuple[str, bytes]]]] = {}
        counted: dict[tuple[Any, int], UnfitError] = {}
        data = memoryview(work.data.data)
        for row, node, name_at, name_length, start, stop, bad, plain in _entries(work):
            kind = bad & _KIND_MASK
            if kind == st.TEXT_OF_VALUE:
                continue
            name = self._names[node] if node >= 0 else str(data[name_at : name_at + name_length], "utf-8")
            raw = bytes(data[start:stop])
            root = self._parents[node] if node >= 0 else -1 - node
            is_dropped = kind != st.IS_KEPT_NULL and name in self._rows[root].drop
            if not is_dropped:
                rescued.setdefault(row, {}).setdefault(root, []).append((name, raw if plain else _compact(raw)))
            if kind == st.IS_KEPT_NULL:
                continue
            key = (name, node) if node < 0 else (bad, node)
            known = counted.get(key)
            if known is not None:
                log.add(known, is_dropped=is_dropped)
            else:
                counted[key] = self._count_first(name, node, bad, json.loads(raw), log)
        return {row: self._text(roots) for row, roots in rescued.items()}

    def _text(self, roots: dict[int, list[tuple[str, bytes]]]) -> bytes:
        items = roots.get(0)
        if items is not None:
            return _object(items)
        return _object([(self._names[root], _object(values)) for root, values in roots.items()])

    def _count_first(self, name: str, node: int, bad: int, value: Any, log: MisfitLog) -> UnfitError:
        """Count one value, and return what counts the next of its path and kind."""
        kind, bad_node = bad & _KIND_MASK, bad >> _KIND_BITS
        root = self._parents[node] if node >= 0 else -1 - node
        if node >= 0:
            path = self._paths[bad_node] + (".*" if kind == st.IS_UNKNOWN else "")
        else:
            path = f"{self._names[root]}.{name}" if root else name
        unfit = UnfitError(path, _KINDS[kind], value)
        if node < 0 or (node == bad_node and kind != st.IS_UNKNOWN):
            log.add(unfit, is_dropped=name in self._rows[root].drop)
        else:
            # The example is a part of the value: the reference knows which.
            self._rows[root].batch([{name: value}], log)
        return unfit


def _entries(work: Work) -> list[list[int]]:
    count = int(work.state[st.MISFITS])
    entries: list[list[int]] = work.misfits[: count * st.MISFIT_WIDTH].reshape(-1, st.MISFIT_WIDTH).tolist()
    return entries


def _compact(raw: bytes) -> bytes:
    return compact_json(json.loads(raw)).encode()


def _object(values: list[tuple[str, bytes]]) -> bytes:
    if len(values) > 1:
        # UTF-8 sorts as the characters do.
        values.sort()
    return b"{" + b",".join([b"%s:%s" % (_quoted(name), value) for name, value in values]) + b"}"


@functools.lru_cache(maxsize=4096)
def _quoted(name: str) -> bytes:
    return compact_json(name).encode()


def respell(work: Work) -> bool:
    """Write the JSON texts that were not compact beside the data, compact; return whether there was room."""
    kinds = work.misfits[st.MISFIT_KIND : int(work.state[st.MISFITS]) * st.MISFIT_WIDTH : st.MISFIT_WIDTH]
    if not (kinds == st.TEXT_OF_VALUE).any():
        return True
    for index, node, _, _, start, stop, kind, _ in _entries(work):
        if kind != st.TEXT_OF_VALUE:
            continue
        text = _compact(work.data[start:stop].tobytes())
        side = int(work.state[st.SIDE])
        if side + len(text) > work.state[st.SIDE_END]:
            return False
        work.data[side : side + len(text)] = memoryview(text)
        work.values[work.value_place[node] + index] = side << 32 | len(text)
        work.state[st.SIDE] += len(text)
    return True
