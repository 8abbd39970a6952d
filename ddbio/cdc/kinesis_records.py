"""Turn records of Kinesis data streams into rows of the log."""

from __future__ import annotations

import json
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_rows import LogDecoder, LogRows, expired_records, strings
from ddbio.errors import DecodeError
from ddbio.items.kernel.arrays import offsets_of
from ddbio.items.kernel.members import Openings
from ddbio.items.stream_records import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Records(NamedTuple):
    """Hold the records of a reply, as arrays: their numbers in the shard, and their data, each with a line's end."""

    numbers: Any
    texts: Any

    def of(self, table: str) -> Records:
        """Return the records of the changes of a table; others are of other tables, or of other producers."""
        return self.keep([own_change(text, table) is not None for text in self.texts.to_pylist()])

    def keep(self, kept: Sequence[bool] | pa.Array[Any]) -> Records:
        """Return some of the records."""
        mask = kept if isinstance(kept, pa.Array) else pa.array(kept, pa.bool_())
        return Records(self.numbers.filter(mask), self.texts.filter(mask))

    @property
    def joined(self) -> memoryview:
        """All records behind each other."""
        ends = offsets_of(self.texts)
        return memoryview(self.texts.buffers()[2])[int(ends[0]) : int(ends[-1])]


_DATA, _OBJECT = b'"Data"', ord("{")
_NUMBER_AND_DATA = Openings((b"SequenceNumber", b"Data"), base64=1)
_KINESIS_MEMBERS = Openings((b"eventName", b"eventID", b"tableName", b"principalId"))


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
        if _DATA not in body:
            return None
        records = records_of(body)
        if not len(records.numbers):
            return None
        found = self._quick_rows(records)
        if found is None:
            likely = [_seems_own(text, self._table) for text in records.texts.to_pylist()]
            found = self._quick_rows(records.keep(likely)) or self._parsed_rows(records)
        rows, kept = found
        last, foreign = str(records.numbers[-1]), len(records.numbers) - len(kept.texts)
        return LogRows(rows.rows, rows.hours, last, kept.texts, foreign)

    def _quick_rows(self, records: Records) -> tuple[LogRows, Records] | None:
        """Return the rows of the table, and their records; None if not all are changes as the service writes them."""
        members = _members_of(records) if len(records.texts) else None
        if members is None:
            return None
        is_own: Any = pc.equal(members[2], pa.scalar(self._table))
        if not pc.all(is_own).as_py():
            records, members[:2] = records.keep(is_own), [each.filter(is_own) for each in members[:2]]
        try:
            expired = expired_records(bytes(records.joined)) if len(members[3]) else None
            return self._rows_of(records, members[0], members[1], expired), records
        except DecodeError:
            # What another producer wrote may look like changes.
            return None

    def _parsed_rows(self, records: Records) -> tuple[LogRows, Records]:
        changes = [own_change(text, self._table) for text in records.texts.to_pylist()]
        records = records.keep([each is not None for each in changes])
        own = [each for each in changes if each is not None]
        operations, ids = (_texts_of(own, name) for name in ("eventName", "eventID"))
        return self._rows_of(records, operations, ids, expired_records(bytes(records.joined))), records

    def _rows_of(self, records: Records, operations: Any, ids: Any, expired: NDArray[np.bool_] | None) -> LogRows:
        if len(records.texts):
            return self._rows(records.joined, [operations, records.numbers, ids], expired)
        nothing: list[Any] = [pa.nulls(0, each.type) for each in self.schema]
        return LogRows(pa.RecordBatch.from_arrays(nothing, schema=self.schema), np.zeros(0, np.int64), "")


def _members_of(records: Records) -> list[Any] | None:
    """Return operations, ids, tables and principals, where each record has its own of the first three."""
    found = _KINESIS_MEMBERS.find(records.joined)
    is_whole = found is not None and all(len(each) == len(records.texts) for each in found[:3])
    begins = np.frombuffer(records.joined, np.uint8)[offsets_of(records.texts)[:-1] - offsets_of(records.texts)[0]]
    return found if is_whole and (begins == _OBJECT).all() else None


def _seems_own(text: bytes, table: str) -> bool:
    """Return False for what is no change of the table for sure."""
    return text.lstrip()[:1] == b"{" and b'"dynamodb"' in text and table.encode() in text


def own_change(text: bytes, table: str) -> dict[str, Any] | None:
    """Return the change of a table that a record is; None if it is of another table, or something else.

    Other producers may write anything into a data stream: other JSON, bytes, and many records as one, as the Kinesis
    Producer Library does.
    """
    if not _seems_own(text, table):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_change = isinstance(record, dict) and isinstance(record.get("dynamodb"), dict)
    return record if is_change and table_of(record) == table else None


def _texts_of(records: Sequence[dict[str, Any]], name: str) -> Any:
    """Return a member of each record as an array.

    Raises
    ------
    DecodeError
        If a record has no such text.
    """
    found = [each.get(name) for each in records]
    if not all(isinstance(each, str) for each in found):
        raise DecodeError(f"a change of {records[0].get('tableName')!r} in the data stream has no {name}")
    return pa.array(found, pa.string())
