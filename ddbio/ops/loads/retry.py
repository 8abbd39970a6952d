"""Try the rows again that earlier loads rejected; what has been tried is moved aside, and nothing is deleted unread."""

from __future__ import annotations

import io
import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ddbio.core.attribute import check_item
from ddbio.core.decode import from_dynamodb_json
from ddbio.core.loads.rejected import RejectedRow
from ddbio.core.text.json_text import compact_json
from ddbio.errors import DecodeError, NotFoundError
from ddbio.ops.job.target import open_store
from ddbio.ops.loads.lanes import Milestone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from ddbio.core.loads.write_plan import WritePlan
    from ddbio.lake.store import ObjectStore
    from ddbio.ops.loads.lanes import Feed
    from ddbio.options import LoadOptions

RETRIED = "_retried"
"""Folder beside rejects for those whose rows were tried again."""


def rejected_batches(options: LoadOptions, plan: WritePlan, keep: Callable[[], None]) -> Iterator[Feed]:
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
        yield from _rows_of(path, store.read(path), apart=plan.nulls_matter)
        yield Milestone(partial(_move_aside, store, path, keep))


def _rows_of(path: str, data: bytes, *, apart: bool) -> Iterator[pa.RecordBatch | RejectedRow]:
    try:
        items = []
        for row, item in _parsed(path, data):
            if _is_legal(item):
                items.append(item)
            else:
                yield row
        # A column that only other rows have must not become a null of this one, where nulls remove attributes.
        for _, group in itertools.groupby(items, lambda item: sorted(item) if apart else None):
            lines = "\n".join(map(compact_json, group)).encode()
            # There NULL stands for a null; anywhere else it is a value.
            yield from_dynamodb_json(lines, nulls="merge" if apart else "keep")
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"{path} holds no rejects: {error}", uri=path) from error


def _parsed(path: str, data: bytes) -> list[tuple[RejectedRow, Any]]:
    if path.endswith(".parquet"):
        found = pq.read_table(io.BytesIO(data)).to_pylist()
        items = [json.loads(row["item"]) for row in found]
    else:
        found = [json.loads(line) for line in data.splitlines() if line.strip()]
        items = [row["item"] for row in found]
    return [
        (RejectedRow(row["row"], row["rule"], row["reason"], compact_json(item)), item)
        for row, item in zip(found, items, strict=True)
    ]


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
