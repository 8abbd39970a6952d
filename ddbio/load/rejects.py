"""Files of rejected rows, in which they can be corrected, and reading them for a retry.

Without ``reject_to`` the first rejected row ends the job. Rejects that were retried are moved, never deleted unread.
"""

from __future__ import annotations

import itertools
import json
import secrets
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import DecodeError, NotFoundError, PartialWriteError
from ddbio.formats.parquet_input import read_parquet
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.jobs.rejected_rows import COLUMNS, RejectedRow, reject_line, rejected_again
from ddbio.jobs.stores import open_store
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import raw_item_reader, takes_raw_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddbio.items.raw_items import RawItems
    from ddbio.load.options import LoadOptions, WriteOptions
    from ddbio.load.plan import WritePlan
    from ddbio.storage.object_store import ObjectStore

    _Reject: TypeAlias = tuple[RejectedRow, Any, RejectedRow | None]

RETRIED = "_retried"
"""Folder next to rejects for files whose rows were retried."""

_FILE_BYTES = 8 * 1024 * 1024
_NUMBERS = {"row", "file_row", "line"}
_FIELDS: list[pa.Field[Any]] = [pa.field(name, pa.int64() if name in _NUMBERS else pa.string()) for name in COLUMNS]


class RejectWriter:
    """Writer of rejected rows to files of JSON lines or Parquet. It raises if ``reject_to`` is not given.

    The files of a job are named ``rejects-<job_id>-<start>-<random>-<number>``, so that runs and tasks do not overwrite
    each other's files, and the names sort in the order in which the rows were tried.
    """

    def __init__(self, options: WriteOptions, job_id: str, first_row: int = 0) -> None:
        self._store = None if options.reject_to is None else open_store(options.reject_to, options)
        self._table, self._format, self._most = options.table, options.reject_format, options.max_rejects
        start = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        self._name = f"rejects-{job_id}-{start}-{secrets.token_hex(4)}"
        self._first_row = first_row
        self.uri = None if self._store is None else self._store.uri
        self.count = 0
        self._rows: list[RejectedRow] = []
        self._size_bytes = 0
        self._files = 0

    def add(self, rows: list[RejectedRow]) -> None:
        """Add some rows.

        Raises
        ------
        PartialWriteError
            If ``reject_to`` is not given, or there are more than ``max_rejects``. In the latter case these are written.
        """
        rows = [replace(row, row=row.row + self._first_row) for row in rows]
        if self._store is None:
            first = rows[0]
            raise PartialWriteError(
                f"row {first.row} cannot be written to table {self._table!r}{_origin_text(first)}: {first.rule}: "
                f"{first.reason}; fix it, or give reject_to to write the others"
            )
        self.count += len(rows)
        self._rows += rows
        self._size_bytes += sum(len(row.item) + len(row.reason) for row in rows)
        if self._size_bytes >= _FILE_BYTES:
            self.flush()
        check_rejects(self.count, self._most, self._table, self.uri)

    def flush(self) -> None:
        """Write the rows that are still in memory."""
        if self._store is None or not self._rows:
            return
        data = _parquet(self._rows) if self._format == "parquet" else b"".join(map(reject_line, self._rows))
        ending = "parquet" if self._format == "parquet" else "jsonl"
        self._store.put(f"{self._name}-{self._files:06d}.{ending}", data)
        self._files += 1
        self._rows, self._size_bytes = [], 0


def check_rejects(count: int, most: int | None, table: str, uri: str | None) -> None:
    """Raise if there are more rejected rows than allowed.

    Raises
    ------
    PartialWriteError
        If there are more.
    """
    if most is not None and count > most:
        message = f"{count} rows cannot be written to table {table!r}, and max_rejects is {most}: fix them in {uri}"
        raise PartialWriteError(message, rejected=count, rejects_uri=uri)


def read_rejects(
    options: LoadOptions, plan: WritePlan, flush: Callable[[], None]
) -> Iterator[pa.RecordBatch | RawItems | RejectedRow | Checkpoint]:
    """Yield the rows of all rejects in the source. A file is moved when each of its rows was tried.

    A row that is still not valid DynamoDB JSON is rejected again with its old reason.

    Parameters
    ----------
    flush
        Writes the rows that were rejected again. Called before a file is moved.

    Raises
    ------
    NotFoundError
        If there are no rejects.
    DecodeError
        If a file with such a name has other content.
    """
    store = open_store(options.source, options)
    paths = sorted(entry.path for entry in store.list("rejects-"))
    if not paths:
        raise NotFoundError(f"{options.source} holds no rejects: give the folder that was used as reject_to")
    for path in paths:
        yield from _rows_of(path, store.read(path), plan)
        yield Checkpoint(partial(_move, store, path, flush))


def _rows_of(path: str, data: bytes, plan: WritePlan) -> Iterator[pa.RecordBatch | RawItems | RejectedRow]:
    def columns_of(reject: _Reject) -> tuple[str, ...] | None:
        """Return the columns that the rows of one batch share.

        If nulls matter, a missing column must not become a null.
        """
        _, item, again = reject
        return None if again is not None else tuple(sorted(item)) if plan.nulls_matter else ()

    try:
        for columns, group in itertools.groupby(_parse(path, data, plan), columns_of):
            if columns is None:
                yield from (again for _, _, again in group if again is not None)
                continue
            lines = "\n".join(compact_json(item) for _, item, _ in group).encode()
            if takes_raw_items(plan):
                yield from raw_item_reader(plan).read(lines, "items")
            else:
                # If nulls remove attributes, NULL stands for a null.
                yield from_dynamodb_json(lines, nulls="merge")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError(f"{path} holds no rejects: {error}", uri=path) from error


def _parse(path: str, data: bytes, plan: WritePlan) -> list[_Reject]:
    """Return each row, its item, and the row to reject again if the item cannot be converted to columns."""
    if path.endswith(".parquet"):
        rejects = read_parquet(pa.BufferReader(data)).to_pylist()
        items = [json.loads(row["item"]) for row in rejects]
    else:
        rejects = [json.loads(line) for line in data.splitlines() if line.strip()]
        items = [row["item"] for row in rejects]
    # A file has its rows in the order in which they were rejected, not in the order of the source.
    pairs = sorted(zip(rejects, items, strict=True), key=lambda pair: pair[0]["row"])
    rows = [RejectedRow(reject["row"], reject["rule"], reject["reason"], compact_json(item)) for reject, item in pairs]
    return [(row, item, rejected_again(row, item, plan)) for row, (_, item) in zip(rows, pairs, strict=True)]


def _move(store: ObjectStore, path: str, flush: Callable[[], None]) -> None:
    flush()
    store.put(f"{RETRIED}/{path}", store.read(path))
    store.delete([path])


def _origin_text(row: RejectedRow) -> str:
    if row.file is None:
        return ""
    if row.line is not None:
        return f" ({row.file}, line {row.line})"
    return f" ({row.file})" if row.file_row is None else f" ({row.file}, row {row.file_row})"


def _parquet(rows: list[RejectedRow]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([asdict(row) for row in rows], pa.schema(_FIELDS))
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()
