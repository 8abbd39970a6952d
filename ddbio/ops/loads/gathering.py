"""Join small batches of many files or row groups, so that write batches are full; hold back no more than that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.core.batch_size import batch_bytes
from ddbio.core.loads.packing import MOST_WRITES
from ddbio.core.raw_items import RawItems, joined_items
from ddbio.ops.loads.crew import Milestone
from ddbio.ops.loads.lanes import CHUNK_BYTES, filling_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.core.loads.write_plan import WritePlan

    Rows: TypeAlias = pa.RecordBatch | RawItems | Milestone


def full_rows(plan: WritePlan) -> int:
    """Return how many rows fill the lanes' write batches, but not more than the budget writes in about a second."""
    full = filling_rows(plan)
    return full if plan.wcu_per_second is None else min(full, max(plan.lanes * MOST_WRITES, int(plan.wcu_per_second)))


def gather(feed: Iterable[Rows], rows: int) -> Iterator[Rows]:
    """Yield the same rows in their order, in batches of so many at least; a milestone waits for the rows before it."""
    held: list[Any] = []
    milestones: list[Milestone] = []
    for each in feed:
        if isinstance(each, Milestone):
            milestones.append(each)
        else:
            if held and not _can_join(held[0], each):
                yield from _joined(held, milestones)
            held.append(each)
        if not held or _is_full(held, rows):
            yield from _joined(held, milestones)
    yield from _joined(held, milestones)


def _can_join(one: pa.RecordBatch | RawItems, other: pa.RecordBatch | RawItems) -> bool:
    if isinstance(one, RawItems) or isinstance(other, RawItems):
        return type(one) is type(other)
    return one.schema.equals(other.schema, check_metadata=True)


def _is_full(held: list[Any], rows: int) -> bool:
    return sum(each.num_rows for each in held) >= rows or sum(map(_bytes, held)) >= CHUNK_BYTES


def _bytes(rows: pa.RecordBatch | RawItems) -> int:
    return rows.nbytes if isinstance(rows, RawItems) else batch_bytes(rows)


def _joined(held: list[Any], milestones: list[Milestone]) -> Iterator[Rows]:
    if held and isinstance(held[0], RawItems):
        yield joined_items(held)
    elif held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)  # type: ignore[attr-defined]
    yield from milestones
    held.clear()
    milestones.clear()
