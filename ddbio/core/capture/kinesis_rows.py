"""Turn records of a Kinesis data stream into rows of the log; leave out changes that came before."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.core.capture.columns import EVENT_ID
from ddbio.core.capture.log_rows import LogDecoder, LogRows, expired_records, texts_behind
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Records(NamedTuple):
    """Hold the records of a reply: their numbers in the shard, and their data."""

    numbers: list[bytes]
    texts: list[bytes]


def records_of(body: bytes) -> Records:
    """Return the records of a reply of GetRecords."""
    numbers, data = texts_behind(body, b'"SequenceNumber":"'), texts_behind(body, b'"Data":"')
    if not numbers or len(numbers) != len(data):
        # Blanks that the service does not send.
        found = json.loads(body)["Records"]
        numbers, data = ([each[name].encode() for each in found] for name in ("SequenceNumber", "Data"))
    texts = [a2b_base64(each.replace(b"\\", b"") if b"\\" in each else each) for each in data]
    return Records(numbers, [each.replace(b"\n", b" ") if b"\n" in each else each for each in texts])


class KinesisDecoder(LogDecoder):
    """Decode replies of Kinesis to rows of the log; until they are written, their sequence numbers are the shard's.

    Parameters
    ----------
    table
        The table whose changes are decoded; records of other tables are left out.
    """

    has_event_ids = True

    def __init__(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool = False) -> None:
        super().__init__(schema, keys, old_image=old_image)
        self._own = own_record(table)

    def decode(self, body: bytes) -> LogRows | None:
        """Return a row per change of the table, in their order; None if there is no record at all.

        Raises
        ------
        DecodeError
            If the body is no reply of GetRecords.
        """
        numbers, texts = records_of(body)
        if not numbers:
            return None
        last = numbers[-1].decode()
        mine = [self._own in each for each in texts]
        if not all(mine):
            numbers, texts = ([each for each, own in zip(all_, mine, strict=True) if own] for all_ in (numbers, texts))
        if not texts:
            nothing: list[Any] = [pa.nulls(0, each.type) for each in self.schema]
            return LogRows(pa.RecordBatch.from_arrays(nothing, schema=self.schema), np.zeros(0, np.int64), last)
        joined = b"\n".join(texts)
        operations, ids = (texts_behind(joined, opening) for opening in (b'"eventName":"', b'"eventID":"'))
        if not len(operations) == len(ids) == len(texts):
            parsed = [json.loads(each) for each in texts]
            operations, ids = ([each[name].encode() for each in parsed] for name in ("eventName", "eventID"))
        rows = self._rows(joined, [operations, numbers, ids], expired_records(joined))
        return LogRows(rows.rows, rows.hours, last, tuple(texts))


def own_record(table: str) -> bytes:
    """Return what a record of a change of this table has in it, and no other one."""
    return f'"tableName":{compact_json(table)}'.encode()


class Recent:
    """Hold the ids of the last changes, by which one that comes again is known.

    Parameters
    ----------
    count
        How many changes are remembered.
    """

    def __init__(self, count: int) -> None:
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._count = count

    def add(self, ids: Iterable[str]) -> None:
        """Remember changes."""
        for each in ids:
            self.is_new(each)

    def is_new(self, event_id: str) -> bool:
        """Remember a change, and return whether it did not come before."""
        if event_id in self._ids:
            return False
        self._ids.add(event_id)
        self._order.append(event_id)
        if len(self._order) > self._count:
            self._ids.remove(self._order.popleft())
        return True

    def fresh(self, rows: LogRows) -> tuple[LogRows, list[str]]:
        """Return the rows that did not come before, and the shard's numbers of the others."""
        kept = np.array([self.is_new(str(each)) for each in rows.rows.column(EVENT_ID).to_pylist()], np.bool_)
        if kept.all():
            return rows, []
        return rows.keep(kept), [str(each) for each in rows.rows.column(1).filter(pa.array(~kept)).to_pylist()]
