"""Order the changes of one item that have the same time, by their images: each begins with what the last one left."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

_SETS = ("SS", "NS", "BS")
_TIME_DIGITS, _BATCH_DIGITS, _RANK_DIGITS = 16, 12, 6


def sequences_of(rows: pa.Table, texts: Sequence[bytes], keys: Sequence[str], batch: int) -> pa.Array[Any]:
    """Return a number for each change of a batch, by which the changes of an item are in their order.

    It has the time in microseconds, the number of the batch, and the place among changes of the item at this time.
    """
    times = rows.column(EVENT_TIME).combine_chunks().cast(pa.int64())
    ranks = _ranks(rows, texts, keys)
    parts: list[Any] = [
        pc.utf8_lpad(times.cast(pa.string()), _TIME_DIGITS, "0"),
        pa.scalar(f"{batch:0{_BATCH_DIGITS}}"),
        pc.utf8_lpad(pa.array(ranks).cast(pa.string()), _RANK_DIGITS, "0"),
        "",
    ]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*parts)
    return joined


def _ranks(rows: pa.Table, texts: Sequence[bytes], keys: Sequence[str]) -> Any:
    ranks = np.zeros(rows.num_rows, np.int64)
    by = [EVENT_TIME, *keys]
    places = pa.array(np.arange(rows.num_rows))
    groups: Any = rows.select(by).append_column("place", places).group_by(by).aggregate([("place", "list")])
    found = groups.column("place_list").combine_chunks()
    lengths: Any = pc.list_value_length(found)
    tied = found.filter(pa.array(lengths.to_numpy() > 1))
    for group in tied.to_pylist():
        by_key = defaultdict[str, list[tuple[int, Any]]](list)
        for place in group:
            change = json.loads(texts[place])["dynamodb"]
            by_key[_canonical(change["Keys"])].append((place, change))
        for changes in by_key.values():
            images = [(_canonical(each.get("OldImage")), _canonical(each.get("NewImage"))) for _, each in changes]
            before = _state_before(rows, texts, keys, changes[0][0])
            for rank, index in enumerate(chain_order(images, before)):
                ranks[changes[index][0]] = rank
    return ranks


def _state_before(rows: pa.Table, texts: Sequence[bytes], keys: Sequence[str], place: int) -> str | None:
    """Return what the last change of an item before some time left, if it is in the same batch."""
    times = rows.column(EVENT_TIME).cast(pa.int64()).to_numpy()
    earlier = times < times[place]
    for key in keys:
        same: Any = pc.equal(rows.column(key), rows.column(key)[place])
        earlier &= same.fill_null(False).to_numpy()  # noqa: FBT003 - Arrow's own
    if not earlier.any():
        return None
    last = int(np.flatnonzero(earlier)[np.argmax(times[earlier])])
    return _canonical(json.loads(texts[last])["dynamodb"].get("NewImage"))


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
