"""Order the changes of one item that have the same time, by their images: each begins with what the last one left."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.formats.log_columns import EVENT_TIME
from ddbio.items.item_key import KeyGroups, key_fingerprints
from ddbio.items.kernel.arrays import int64_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    Change: TypeAlias = Mapping[str, Any]

_SETS = ("SS", "NS", "BS")
_TIME_DIGITS, _BATCH_DIGITS, _RANK_DIGITS = 16, 12, 6
_ZERO = ord("0")


def sequences_of(
    rows: pa.Table,
    records: pa.ChunkedArray[Any] | Callable[[int], Change],
    keys: Sequence[str],
    batch: int,
    *,
    by_place: bool = False,
) -> pa.Array[Any]:
    """Return a number for each change of a batch, by which the changes of an item are in their order.

    It has the time in microseconds, the number of the batch, and the place among changes of the item at this time.

    Parameters
    ----------
    records
        The record of each row as JSON, or a function that returns what ``dynamodb`` holds in the record of a row.
    by_place
        Count the place among the changes of all items at this time, so that no two changes have the same number.
    """

    def change_of(row: int) -> Change:
        if isinstance(records, pa.ChunkedArray):
            change: Change = json.loads(records[row].as_py())["dynamodb"]
            return change
        return records(row)

    times = _micros(rows)
    ranks = _places(times) if by_place else np.zeros(rows.num_rows, np.int64)
    for tied in _tied(rows, change_of, keys, times):
        ranks[tied] = np.sort(ranks[tied]) if by_place else np.arange(len(tied))
    if not len(times) or times.min() < 0 or times.max() >= 10**_TIME_DIGITS:
        numbers = zip(times.tolist(), ranks.tolist(), strict=True)
        return pa.array([f"{at:0{_TIME_DIGITS}}{batch:0{_BATCH_DIGITS}}{rank:0{_RANK_DIGITS}}" for at, rank in numbers])
    width = _TIME_DIGITS + _BATCH_DIGITS + _RANK_DIGITS
    digits = np.empty((len(times), width), np.uint8)
    _print(times, digits[:, :_TIME_DIGITS])
    digits[:, _TIME_DIGITS:-_RANK_DIGITS] = np.frombuffer(f"{batch:0{_BATCH_DIGITS}}".encode(), np.uint8)
    _print(ranks, digits[:, -_RANK_DIGITS:])
    ends = np.arange(0, width * len(times) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(digits.data)]
    return pa.Array.from_buffers(pa.string(), len(times), buffers)


def _places(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each time among those that are the same."""
    order = np.argsort(times, kind="stable")
    numbers = np.arange(len(times))
    firsts = np.maximum.accumulate(np.where(np.diff(times[order], prepend=times[order][:1] - 1) != 0, numbers, 0))
    places = np.empty(len(times), np.int64)
    places[order] = np.minimum(numbers - firsts, 10**_RANK_DIGITS - 1)
    return places


def _micros(rows: pa.Table) -> NDArray[np.int64]:
    column: Any = rows.column(EVENT_TIME)
    return np.concatenate([int64_values(each) for each in column.chunks])


def _print(numbers: NDArray[np.int64], digits: NDArray[np.uint8]) -> None:
    for place in reversed(range(digits.shape[1])):
        numbers, last = np.divmod(numbers, 10)
        digits[:, place] = last + _ZERO


def _tied(
    rows: pa.Table, change_of: Callable[[int], Change], keys: Sequence[str], times: NDArray[np.int64]
) -> Iterator[list[int]]:
    """Yield the places of changes of one item that have the same time, in the order that their images tell."""
    ordered = np.sort(times)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    items = KeyGroups(key_fingerprints(rows, keys))
    codes = np.repeat(np.arange(len(items.counts)), items.counts)
    # Stable: the changes of an item at one time stay as they came.
    order = items.rows[np.lexsort((times[items.rows], codes))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (codes[1:] != codes[:-1]) | (times[order[1:]] != times[order[:-1]])
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    left, left_at = "", -1
    for start, end in np.stack([starts, ends])[:, ends - starts > 1].T.tolist():
        places = order[start:end].tolist()
        changes = map(change_of, places)
        images = [(_canonical(each.get("OldImage")), _canonical(each.get("NewImage"))) for each in changes]
        state = None
        if start and codes[start] == codes[start - 1]:
            # What the change of the item before these ones left, or the last of the chain before.
            state = left if left_at == start else _canonical(change_of(int(order[start - 1])).get("NewImage"))
        chain = chain_order(images, state)
        yield [places[index] for index in chain]
        left, left_at = images[chain[-1]][1], end


def chain_order(changes: Sequence[tuple[str, str]], state: str | None = None) -> list[int]:
    """Return the order in which each change begins with what the one before left; the given order if there is none.

    Parameters
    ----------
    changes
        What each found and left.
    state
        What was there before, if that is known: it tells where an item began that came back to what it was.
    """
    leaving, balance = defaultdict[str, list[int]](list), defaultdict[str, int](int)
    for place in reversed(range(len(changes))):
        before, after = changes[place]
        leaving[before].append(place)
        balance[before] += 1
        balance[after] -= 1
    # A path over all edges of a graph, by Hierholzer.
    usual = changes[0][0] if state is None or state not in leaving else state
    start = next((each for each, more in balance.items() if more > 0), usual)
    stack, path = [(start, -1)], list[int]()
    while stack:
        at, edge = stack[-1]
        if leaving[at]:
            place = leaving[at].pop()
            stack.append((changes[place][1], place))
        else:
            stack.pop()
            path.append(edge)
    order = path[-2::-1]
    follows = all(changes[one][1] == changes[two][0] for one, two in itertools.pairwise(order))
    return order if follows and len(order) == len(changes) else list(range(len(changes)))


def _canonical(item: Any) -> str:
    return "" if item is None else json.dumps({name: _ordered(value) for name, value in item.items()}, sort_keys=True)


def _ordered(value: dict[str, Any]) -> dict[str, Any]:
    ((tag, content),) = value.items()
    if tag in _SETS:
        return {tag: sorted(content)}
    if tag == "L":
        return {tag: [_ordered(each) for each in content]}
    return {tag: {name: _ordered(each) for name, each in content.items()}} if tag == "M" else value
