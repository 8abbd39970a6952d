"""Keep rows that could not be written where somebody can mend them, or fail at the first; write none again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ddbio.errors import PartialWriteError
from ddbio.ops.staging import new_job_id
from ddbio.ops.target import open_store

if TYPE_CHECKING:
    from ddbio.core.rejected import RejectedRow
    from ddbio.options import WriteOptions

_FILE_BYTES = 8 * 1024 * 1024


class Rejects:
    """Collect rejected rows as lines of JSON: ``row``, ``rule``, ``reason``, ``item``; without a place, fail."""

    def __init__(self, options: WriteOptions) -> None:
        self._store = None if options.reject_to is None else open_store(options.reject_to, options)
        self._table = options.table
        self._job_id = new_job_id()
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._files = 0

    def add(self, rows: list[RejectedRow]) -> None:
        """Keep some rows.

        Raises
        ------
        PartialWriteError
            If there is no place for them.
        """
        if self._store is None:
            first = rows[0]
            raise PartialWriteError(
                f"row {first.row} cannot be written to table {self._table!r}: {first.rule}: {first.reason}; mend it, "
                "or give reject_to to write the others"
            )
        for row in rows:
            head = json.dumps({"row": row.row, "rule": row.rule, "reason": row.reason}, ensure_ascii=False)[:-1]
            line = f'{head},"item":{row.item}}}\n'.encode()
            self._lines.append(line)
            self._size_bytes += len(line)
        if self._size_bytes >= _FILE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write what is still in memory."""
        if self._store is not None and self._lines:
            self._store.put(f"rejects-{self._job_id}-{self._files:04d}.jsonl", b"".join(self._lines))
            self._files += 1
            self._lines, self._size_bytes = [], 0
