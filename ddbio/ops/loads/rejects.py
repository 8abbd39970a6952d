"""Keep rows that could not be written where somebody can mend them, or fail at the first; write none again."""

from __future__ import annotations

import dataclasses
import json
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.errors import PartialWriteError
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from ddbio.core.loads.rejects import RejectedRow
    from ddbio.options import WriteOptions

_FILE_BYTES = 8 * 1024 * 1024
_NAMES = ("row", "file", "file_row", "rule", "reason", "item")
_FIELDS: list[pa.Field[Any]] = [pa.field(name, pa.int64() if "row" in name else pa.string()) for name in _NAMES]


class Rejects:
    """Collect rejected rows in files of lines of JSON or of Parquet; without a place for them, fail.

    The files of a job are ``rejects-<job_id>-<began>-<random>-<number>``: no run and no task meets another's, and
    sorted by name they are in the order in which their rows were tried.
    """

    def __init__(self, options: WriteOptions, job_id: str, first_row: int = 0) -> None:
        self._store = None if options.reject_to is None else open_store(options.reject_to, options)
        self._table, self._format, self._most = options.table, options.reject_format, options.max_rejects
        began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        self._name = f"rejects-{job_id}-{began}-{secrets.token_hex(4)}"
        self._first_row = first_row
        self.uri = None if self._store is None else self._store.uri
        self.count = 0
        self._rows: list[RejectedRow] = []
        self._size_bytes = 0
        self._files = 0

    def add(self, rows: list[RejectedRow]) -> None:
        """Keep some rows.

        Raises
        ------
        PartialWriteError
            If there is no place for them, or they are too many; these are kept.
        """
        rows = [dataclasses.replace(row, row=row.row + self._first_row) for row in rows]
        if self._store is None:
            first = rows[0]
            raise PartialWriteError(
                f"row {first.row} cannot be written to table {self._table!r}{_place(first)}: {first.rule}: "
                f"{first.reason}; mend it, or give reject_to to write the others"
            )
        self.count += len(rows)
        self._rows += rows
        self._size_bytes += sum(len(row.item) + len(row.reason) for row in rows)
        if self._size_bytes >= _FILE_BYTES:
            self.flush()
        check_rejects(self.count, self._most, self._table, self.uri)

    def flush(self) -> None:
        """Write what is still in memory."""
        if self._store is None or not self._rows:
            return
        data = _parquet(self._rows) if self._format == "parquet" else b"".join(map(reject_line, self._rows))
        ending = "parquet" if self._format == "parquet" else "jsonl"
        self._store.put(f"{self._name}-{self._files:06d}.{ending}", data)
        self._files += 1
        self._rows, self._size_bytes = [], 0


def check_rejects(count: int, most: int | None, table: str, uri: str | None) -> None:
    """Refuse more rejected rows than were allowed.

    Raises
    ------
    PartialWriteError
        If they are more.
    """
    if most is not None and count > most:
        told = f"{count} rows cannot be written to table {table!r}, and max_rejects is {most}: mend them in {uri}"
        raise PartialWriteError(told, rejected=count, rejects_uri=uri)


def reject_line(row: RejectedRow) -> bytes:
    """Return a rejected row as the line of a file of rejects."""
    head = json.dumps({name: getattr(row, name) for name in _NAMES[:-1]}, ensure_ascii=False)[:-1]
    return f'{head},"item":{row.item}}}\n'.encode()


def _place(row: RejectedRow) -> str:
    if row.file is None:
        return ""
    return f" ({row.file})" if row.file_row is None else f" ({row.file}, row {row.file_row})"


def _parquet(rows: list[RejectedRow]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist([dataclasses.asdict(row) for row in rows], pa.schema(_FIELDS)), sink, compression="zstd"
    )
    return sink.getvalue().to_pybytes()
