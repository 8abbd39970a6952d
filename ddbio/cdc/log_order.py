"""Order of the rows of a log, and identity of changes."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.formats.log_columns import ARCHIVE_COLUMNS, EVENT_ID, EVENT_TIME, LOG_COLUMNS, OPERATION, SEQUENCE
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import Fingerprints, KeyGroups, key_fingerprints
from ddbio.items.kernel.arrays import int64_array, int64_values
from ddbio.items.schema.own_names import is_own, item_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import TypeAlias

    from numpy.typing import NDArray

    Change: TypeAlias = Mapping[str, Any]

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

_DIGITS = "_digits"


def order_of(rows: pa.Table) -> NDArray[np.uint64]:
    """Return the indices of rows in the order of their sequence numbers, which are digits of different lengths."""
    numbers = rows.select([SEQUENCE])
    digits = numbers.append_column(_DIGITS, pc.binary_length(rows.column(SEQUENCE)))
    indices: Any = pc.sort_indices(digits, sort_keys=[(_DIGITS, "ascending"), (SEQUENCE, "ascending")])
    order: NDArray[np.uint64] = indices.to_numpy()
    return order


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their sequence numbers."""
    order: Any = order_of(rows)
    return rows if (order[1:] > order[:-1]).all() else rows.take(pa.array(order))


def in_time_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their times. Rows with the same time are in the order of their sequence numbers.

    Use this for rows of several streams, as their sequence numbers cannot be compared.
    """
    rows = in_order(rows)
    times: Any = rows.column(EVENT_TIME)
    order: Any = pc.sort_indices(times)
    return rows.take(order)


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each item. The order of the rows is kept.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    items = KeyGroups(key_fingerprints(rows, keys))
    if len(items.starts) == rows.num_rows:
        return rows
    return rows.take(int64_array(np.sort(items.rows[items.starts + items.counts - 1])))


def event_micros(rows: pa.Table) -> NDArray[np.int64]:
    """Return the times of changes in microseconds since 1970."""
    times: Any = rows.column(EVENT_TIME).cast(pa.timestamp("us", "UTC"))
    return np.concatenate([np.zeros(0, np.int64), *map(int64_values, times.chunks)])


def within_times(rows: RowsT, since: datetime | None, until: datetime | None, column: str = EVENT_TIME) -> RowsT:
    """Return the rows from ``since`` on and before ``until``. None means no bound."""
    for bound, keeps in ((since, pc.greater_equal), (until, pc.less)):
        if bound is not None:
            rows = rows.filter(keeps(rows.column(column), pa.scalar(bound, pa.timestamp("us", "UTC"))))
    return rows


def have_operation(rows: pa.Table, operation: str) -> NDArray[np.bool_]:
    """Return a mask of the changes with an operation."""
    operations: Any = rows.column(OPERATION)
    mask: NDArray[np.bool_] = pc.equal(operations, pa.scalar(operation)).to_numpy().astype(bool)
    return mask


def item_words(rows: pa.Table) -> NDArray[np.uint64]:
    """Return two hash words for each row. Equal items have equal words."""
    digest = ColumnDigest()
    words = [digest.add_rows(batch).items for batch in rows.to_batches()]
    return np.concatenate([np.zeros((0, 2), np.uint64), *words])


_SETS = ("SS", "NS", "BS")
_TIME_DIGITS, _BATCH_DIGITS, _RANK_DIGITS = 16, 12, 6
_ZERO = ord("0")


def sequences_of(
    rows: pa.Table,
    records: pa.ChunkedArray[Any] | Callable[[int], Change],
    keys: Sequence[str],
    batch: int,
    *,
    by_rank: bool = False,
) -> pa.Array[Any]:
    """Return a sequence number for each change of a batch. It orders the changes of each item.

    A number has the time in microseconds, the number of the batch, and a rank among changes of the item with the same
    time.

    Parameters
    ----------
    records
        The record of each row as JSON, or a function that returns the member ``dynamodb`` of a row's record.
    by_rank
        Rank among the changes of all items with the same time, so that no two changes have the same number.
    """

    def change_of(row: int) -> Change:
        if isinstance(records, pa.ChunkedArray):
            change: Change = json.loads(records[row].as_py())["dynamodb"]
            return change
        return records(row)

    times = event_micros(rows)
    ranks = _ranks_of(times) if by_rank else np.zeros(rows.num_rows, np.int64)
    for tied in _tied(rows, change_of, keys, times):
        ranks[tied] = np.sort(ranks[tied]) if by_rank else np.arange(len(tied))
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


def _ranks_of(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each time among equal ones."""
    order = np.argsort(times, kind="stable")
    numbers = np.arange(len(times))
    firsts = np.maximum.accumulate(np.where(np.diff(times[order], prepend=times[order][:1] - 1) != 0, numbers, 0))
    ranks = np.empty(len(times), np.int64)
    ranks[order] = np.minimum(numbers - firsts, 10**_RANK_DIGITS - 1)
    return ranks


def _print(numbers: NDArray[np.int64], digits: NDArray[np.uint8]) -> None:
    for position in reversed(range(digits.shape[1])):
        numbers, last = np.divmod(numbers, 10)
        digits[:, position] = last + _ZERO


def _tied(
    rows: pa.Table, change_of: Callable[[int], Change], keys: Sequence[str], times: NDArray[np.int64]
) -> Iterator[list[int]]:
    """Yield the row indices of changes of one item with the same time, in the order that their images imply."""
    ordered = np.sort(times)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    items = KeyGroups(key_fingerprints(rows, keys))
    codes = np.repeat(np.arange(len(items.counts)), items.counts)
    # The sort is stable: the changes of an item with the same time keep their order.
    order = items.rows[np.lexsort((times[items.rows], codes))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (codes[1:] != codes[:-1]) | (times[order[1:]] != times[order[:-1]])
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    left, left_at = "", -1
    for start, end in np.stack([starts, ends])[:, ends - starts > 1].T.tolist():
        indices = order[start:end].tolist()
        changes = map(change_of, indices)
        images = [(_canonical(change.get("OldImage")), _canonical(change.get("NewImage"))) for change in changes]
        state = None
        if start and codes[start] == codes[start - 1]:
            # The new image of the previous change of the item, or of the last change of the previous chain.
            state = left if left_at == start else _canonical(change_of(int(order[start - 1])).get("NewImage"))
        chain = chain_order(images, state)
        yield [indices[index] for index in chain]
        left, left_at = images[chain[-1]][1], end


def chain_order(changes: Sequence[tuple[str, str]], state: str | None = None) -> list[int]:
    """Return the order in which each old image equals the previous new image, or the given order if there is none.

    Parameters
    ----------
    changes
        The old and the new image of each change.
    state
        The state before the changes, if it is known. It determines the start if an item has returned to an earlier
        state.
    """
    leaving, balance = defaultdict[str, list[int]](list), defaultdict[str, int](int)
    for index in reversed(range(len(changes))):
        before, after = changes[index]
        leaving[before].append(index)
        balance[before] += 1
        balance[after] -= 1
    # Find a path over all edges of a graph, with Hierholzer's algorithm.
    usual = changes[0][0] if state is None or state not in leaving else state
    start = next((image for image, more in balance.items() if more > 0), usual)
    stack, path = [(start, -1)], list[int]()
    while stack:
        at, edge = stack[-1]
        if leaving[at]:
            index = leaving[at].pop()
            stack.append((changes[index][1], index))
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
        return {tag: [_ordered(element) for element in content]}
    return {tag: {name: _ordered(element) for name, element in content.items()}} if tag == "M" else value


def change_ids(rows: pa.Table, keys: Sequence[str] = ()) -> Fingerprints:
    """Return a 128-bit identity for each row. Rows of the same change have the same identity.

    A change from Kinesis has an event id. Any other has a sequence number, which is unique within its stream. Rows do
    not record their stream, and a log may have several streams with equal numbers. The time of the change and the key
    of its item distinguish such changes. If these are also equal, the files of the log determine the stream: see
    :func:`distinct_changes`.

    Parameters
    ----------
    rows
        Rows of a log, or items with ``_sequence`` and ``_event_time``, and possibly ``_event_id``.
    keys
        The key attributes. Without them the whole item is used.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    numbers: Any = rows.column(SEQUENCE)
    if EVENT_ID in rows.column_names and is_own(rows.schema.field(EVENT_ID), LOG_COLUMNS):
        numbers = pc.coalesce(rows.column(EVENT_ID), numbers)
    times: Any = rows.column(EVENT_TIME).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    change = pa.table({"number": numbers.cast(pa.string()), "time": times})
    ids = key_fingerprints(change, change.column_names)
    items = key_fingerprints(rows, keys) if keys else _of_items(rows)
    # Sums of hashes are hashes. Sums of unsigned words wrap.
    return Fingerprints(ids.high + items.high, ids.low + items.low)


def _of_items(rows: pa.Table) -> Fingerprints:
    names = [item_field.name for item_field in item_fields(rows.schema, LOG_COLUMNS | ARCHIVE_COLUMNS)]
    high, low = item_words(rows.select(names)).T
    return Fingerprints(high, low)


def distinct_changes(
    ids: Fingerprints, stream_of: Callable[[int], str | None]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one row of each change, in order, and its number among the changes with the same identity, from 0 on.

    Rows with the same identity are one change, unless they are known to belong to several streams.

    Parameters
    ----------
    ids
        The identity of each row.
    stream_of
        Returns the stream of a row, or None if it is unknown. It is only called for rows whose identity repeats.
    """
    groups = KeyGroups(ids)
    first_rows, numbers = groups.rows[groups.starts].tolist(), [0] * len(groups.starts)
    for group in np.flatnonzero(groups.counts > 1).tolist():
        start = groups.starts[group]
        rows = groups.rows[start : start + groups.counts[group]].tolist()
        count = max(1, len({stream for row in rows if (stream := stream_of(row)) is not None}))
        first_rows += rows[1:count]
        numbers += range(1, count)
    order = np.argsort(first_rows)
    return np.array(first_rows, np.int64)[order], np.array(numbers, np.int64)[order]


def id_texts(ids: Fingerprints) -> list[str]:
    """Return identities as text."""
    return [f"{high:016x}{low:016x}" for high, low in zip(ids.high.tolist(), ids.low.tolist(), strict=True)]
