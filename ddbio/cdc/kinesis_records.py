"""Conversion of Kinesis data stream records into rows of the log."""

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
    """Records of a reply as arrays: their sequence numbers in the shard, and their data. Each has a line end."""

    numbers: Any
    texts: Any

    def of(self, table: str) -> Records:
        """Return the records that are changes of a table. The stream can have other tables and other producers."""
        return self.keep([own_change(text, table) is not None for text in self.texts.to_pylist()])

    def keep(self, selection: Sequence[bool] | pa.Array[Any]) -> Records:
        """Return the records that a mask selects."""
        mask = selection if isinstance(selection, pa.Array) else pa.array(selection, pa.bool_())
        return Records(self.numbers.filter(mask), self.texts.filter(mask))

    @property
    def joined(self) -> memoryview:
        """All records, concatenated."""
        ends = offsets_of(self.texts)
        return memoryview(self.texts.buffers()[2])[int(ends[0]) : int(ends[-1])]


_DATA, _OBJECT = b'"Data"', ord("{")
_NUMBER_AND_DATA = Openings((b"SequenceNumber", b"Data"), base64=1)
_KINESIS_MEMBERS = Openings((b"eventName", b"eventID", b"tableName", b"principalId"))


def records_of(body: bytes) -> Records:
    """Return the records of a reply of GetRecords."""
    members = _NUMBER_AND_DATA.find(body)
    if members is not None and len(members[0]) == len(members[1]) > 0:
        return Records(*members)
    # The text has whitespace that the service does not write.
    listed = json.loads(body)["Records"]
    texts = [a2b_base64(record["Data"]).replace(b"\n", b" ") + b"\n" for record in listed]
    return Records(strings([record["SequenceNumber"].encode() for record in listed]), pa.array(texts, pa.binary()))


class KinesisDecoder(LogDecoder):
    """Decoder of Kinesis replies to rows of the log.

    The rows have the sequence numbers of the shard until they are written.

    Parameters
    ----------
    table
        The table whose changes are decoded. Records of other tables are left out.
    """

    has_event_ids = True

    def __init__(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool = False) -> None:
        super().__init__(schema, keys, old_image=old_image)
        self._table = table

    def decode(self, body: bytes) -> LogRows | None:
        """Return one row per change of the table, in order. Returns None if the reply has no record.

        Raises
        ------
        DecodeError
            If the body is not a reply of GetRecords.
        """
        if _DATA not in body:
            return None
        records = records_of(body)
        if not len(records.numbers):
            return None
        decoded = self._quick_rows(records)
        if decoded is None:
            likely = [_seems_own(text, self._table) for text in records.texts.to_pylist()]
            decoded = self._quick_rows(records.keep(likely)) or self._parsed_rows(records)
        rows, own_records = decoded
        last, foreign = str(records.numbers[-1]), len(records.numbers) - len(own_records.texts)
        return LogRows(rows.rows, rows.hours, last, own_records.texts, foreign)

    def _quick_rows(self, records: Records) -> tuple[LogRows, Records] | None:
        """Return the rows of the table and their records; None if a record lacks the usual layout of the service."""
        members = _members_of(records) if len(records.texts) else None
        if members is None:
            return None
        is_own: Any = pc.equal(members[2], pa.scalar(self._table))
        if not pc.all(is_own).as_py():
            records, members[:2] = records.keep(is_own), [member.filter(is_own) for member in members[:2]]
        try:
            expired = expired_records(bytes(records.joined)) if len(members[3]) else None
            return self._rows_of(records, members[0], members[1], expired), records
        except DecodeError:
            # Records of another producer may look like changes.
            return None

    def _parsed_rows(self, records: Records) -> tuple[LogRows, Records]:
        changes = [own_change(text, self._table) for text in records.texts.to_pylist()]
        records = records.keep([change is not None for change in changes])
        own = [change for change in changes if change is not None]
        operations, ids = (_texts_of(own, name) for name in ("eventName", "eventID"))
        return self._rows_of(records, operations, ids, expired_records(bytes(records.joined))), records

    def _rows_of(self, records: Records, operations: Any, ids: Any, expired: NDArray[np.bool_] | None) -> LogRows:
        if len(records.texts):
            return self._rows(records.joined, [operations, records.numbers, ids], expired)
        nothing: list[Any] = [pa.nulls(0, field.type) for field in self.schema]
        return LogRows(pa.RecordBatch.from_arrays(nothing, schema=self.schema), np.zeros(0, np.int64), "")


def _members_of(records: Records) -> list[Any] | None:
    """Return operations, ids, tables and principals; None if a record lacks one of the first three."""
    members = _KINESIS_MEMBERS.find(records.joined)
    is_whole = members is not None and all(len(values) == len(records.texts) for values in members[:3])
    begins = np.frombuffer(records.joined, np.uint8)[offsets_of(records.texts)[:-1] - offsets_of(records.texts)[0]]
    return members if is_whole and (begins == _OBJECT).all() else None


def _seems_own(text: bytes, table: str) -> bool:
    """Return False if a record is certainly not a change of the table."""
    return text.lstrip()[:1] == b"{" and b'"dynamodb"' in text and table.encode() in text


def own_change(text: bytes, table: str) -> dict[str, Any] | None:
    """Return the change of the table in a record, or None if the record is something else.

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
    """Return one member of each record as an array.

    Raises
    ------
    DecodeError
        If a record does not have the member as a string.
    """
    texts = [record.get(name) for record in records]
    if not all(isinstance(text, str) for text in texts):
        raise DecodeError(f"a change of {records[0].get('tableName')!r} in the data stream has no {name}")
    return pa.array(texts, pa.string())
