"""Try the rows again that earlier loads rejected; what has been tried is moved aside, and nothing is deleted unread."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ddbio.core.attribute import check_item
from ddbio.core.decode import from_dynamodb_json
from ddbio.core.loads.encode import raw_item_reader, takes_raw_items
from ddbio.core.loads.rejects import RejectedRow
from ddbio.core.text.json_text import compact_json
from ddbio.errors import DecodeError, NotFoundError
from ddbio.ops.job.storage import open_store
from ddbio.ops.loads.scheduler import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from ddbio.core.loads.plan import WritePlan
    from ddbio.core.raw_items import RawItems
    from ddbio.files.object_store import ObjectStore
    from ddbio.ops.loads.scheduler import WriteInput
    from ddbio.options import LoadOptions

RETRIED = "_retried"
"""Folder beside rejects for those whose rows were tried again."""


def rejected_batches(options: LoadOptions, plan: WritePlan, keep: Callable[[], None]) -> Iterator[WriteInput]:
    """Yield the rows of all rejects under the source; a file is moved aside when each of its rows was tried.

    A row that is still no legal DynamoDB JSON is rejected again as it is.

    Parameters
    ----------
    keep
        Called before a file is moved, to have written what was rejected again.

    Raises
    ------
    NotFoundError
        If there are no rejects.
    DecodeError
        If a file of that name holds none.
    """
    store = open_store(options.source, options)
    paths = sorted(entry.path for entry in store.list("rejects-"))
    if not paths:
        raise NotFoundError(f"{options.source} holds no rejects: name the folder that was given as reject_to")
    for path in paths:
        yield from _rows_of(path, store.read(path), plan)
        yield Checkpoint(partial(_move_aside, store, path, keep))


def _rows_of(path: str, data: bytes, plan: WritePlan) -> Iterator[pa.RecordBatch | RawItems | RejectedRow]:
    try:
        for columns, group in itertools.groupby(_parsed(path, data), lambda pair: _columns_of(pair[1], plan)):
            if columns is None:
                yield from (_again(row, item, plan) for row, item in group)
                continue
            lines = "\n".join(compact_json(item) for _, item in group).encode()
            if takes_raw_items(plan):
                yield from raw_item_reader(plan).read(lines, "items")
            else:
                # Where nulls remove attributes NULL stands for a null.
                yield from_dynamodb_json(lines, nulls="merge")
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"{path} holds no rejects: {error}", uri=path) from error


def _columns_of(item: Any, plan: WritePlan) -> tuple[str, ...] | None:
    """Return what items must share to become one batch; None for one that becomes none.

    A column that only other rows have must not become a null of this one, where nulls remove attributes.
    """
    if not _is_legal(item) or _lack(item, plan) is not None:
        return None
    return tuple(sorted(item)) if plan.nulls_matter else ()


def _again(row: RejectedRow, item: Any, plan: WritePlan) -> RejectedRow:
    lack = _lack(item, plan) if _is_legal(item) else None
    return row if lack is None else replace(row, rule=lack[0], reason=lack[1])


def _parsed(path: str, data: bytes) -> list[tuple[RejectedRow, Any]]:
    if path.endswith(".parquet"):
        found = pq.read_table(io.BytesIO(data)).to_pylist()
        items = [json.loads(row["item"]) for row in found]
    else:
        found = [json.loads(line) for line in data.splitlines() if line.strip()]
        items = [row["item"] for row in found]
    # A file has its rows in the order in which they were rejected.
    pairs = sorted(zip(found, items, strict=True), key=lambda pair: pair[0]["row"])
    return [(RejectedRow(row["row"], row["rule"], row["reason"], compact_json(item)), item) for row, item in pairs]


def _lack(item: Mapping[str, Any], plan: WritePlan) -> tuple[str, str] | None:
    """Return why a row could not even be a column's: rows that all lack a key, or all have one of another type."""
    for name, tag in plan.key_types:
        found = item.get(name, {"NULL": True})
        if "NULL" in found:
            return "key_missing", f"{name}: the key is missing: every item needs it"
        if tag not in found:
            return "key_type", f"{name}: a key of type {tag} cannot be {compact_json(found)}"
    if plan.operation_by is not None and plan.operation_by not in item:
        return "operation", f"the row has no {plan.operation_by!r}: write put, delete, update"
    if plan.newer_by is not None and plan.newer_by not in item:
        return "newer_by", "the row has no value to compare by newer_by"
    return None


def _is_legal(item: Any) -> bool:
    try:
        check_item(item)
    except DecodeError:
        return False
    return True


def _move_aside(store: ObjectStore, path: str, keep: Callable[[], None]) -> None:
    keep()
    store.put(f"{RETRIED}/{path}", store.read(path))
    store.delete([path])
