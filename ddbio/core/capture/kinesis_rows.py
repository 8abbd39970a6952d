"""Turn records of a Kinesis data stream into rows of the log; leave out changes that came before."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.core.capture.columns import EVENT_ID
from ddbio.core.capture.log_rows import LogDecoder, LogRows, expired_records, strings
from ddbio.core.kernel.arrays import bool_array, offsets_of
from ddbio.core.kernel.members import Openings
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Records(NamedTuple):
    """Hold the records of a reply, as arrays: their numbers in the shard, and their data, each with a line's end."""

    numbers: Any
    texts: Any

    def of(self, table: str) -> Records:
        """Return the records of the changes of a table."""
        own = own_record(table)
        kept = bool_array(np.array([own in text for text in self.texts.to_pylist()], np.bool_))
        return Records(self.numbers.filter(kept), self.texts.filter(kept))

    @property
    def joined(self) -> memoryview:
        """All records behind each other."""
        ends = offsets_of(self.texts)
        return memoryview(self.texts.buffers()[2])[int(ends[0]) : int(ends[-1])]


_NUMBER_AND_DATA = Openings((b"SequenceNumber", b"Data"), base64=1)
_MEMBERS = Openings((b"eventName", b"eventID", b"tableName", b"principalId"))


def records_of(body: bytes) -> Records:
    """Return the records of a reply of GetRecords."""
    found = _NUMBER_AND_DATA.find(body)
    if found is not None and len(found[0]) == len(found[1]) > 0:
        return Records(*found)
    # Blanks that the service does not send.
    listed = json.loads(body)["Records"]
    texts = [a2b_base64(each["Data"]).replace(b"\n", b" ") + b"\n" for each in listed]
    return Records(strings([each["SequenceNumber"].encode() for each in listed]), pa.array(texts, pa.binary()))


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
        self._table = table

    def decode(self, body: bytes) -> LogRows | None:
        """Return a row per change of the table, in their order; None if there is no record at all.

        Raises
        ------
        DecodeError
            If the body is no reply of GetRecords.
        """
        records = records_of(body)
        if not len(records.numbers):
            return None
        last, members = str(records.numbers[-1]), _members_of(records)
        if members is None or not self._owns_all(members[2]):
            records = records.of(self._table)
            members = _members_of(records) if len(records.texts) else None
        if not len(records.texts):
            nothing: list[Any] = [pa.nulls(0, each.type) for each in self.schema]
            return LogRows(pa.RecordBatch.from_arrays(nothing, schema=self.schema), np.zeros(0, np.int64), last)
        joined = records.joined
        if members is None:
            parsed = [json.loads(each) for each in records.texts.to_pylist()]
            operations, ids = (strings([each[name].encode() for each in parsed]) for name in ("eventName", "eventID"))
            expired = expired_records(bytes(joined))
        else:
            operations, ids = members[:2]
            expired = expired_records(bytes(joined)) if len(members[3]) else None
        rows = self._rows(joined, [operations, records.numbers, ids], expired)
        return LogRows(rows.rows, rows.hours, last, records.texts)

    def _owns_all(self, tables: Any) -> bool:
        ends, name = offsets_of(tables), self._table.encode()
        if not np.array_equal(np.diff(ends), np.full(len(tables), len(name))):
            return False
        return bytes(tables.buffers()[2]) == name * len(tables)


def _members_of(records: Records) -> list[Any] | None:
    """Return operations, ids, tables and principals, where each record has its own of the first three."""
    found = _MEMBERS.find(records.joined)
    is_whole = found is not None and all(len(each) == len(records.texts) for each in found[:3])
    return found if is_whole else None


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
        return rows.keep(kept), [str(each) for each in rows.rows.column(1).filter(bool_array(~kept)).to_pylist()]
