"""Turn records of Kinesis data streams into rows of the log, and remember changes that came before."""

from __future__ import annotations

import json
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_rows import LogDecoder, LogRows, expired_records, strings
from ddbio.errors import DecodeError
from ddbio.formats.log_columns import EVENT_ID
from ddbio.items.kernel.arrays import bool_array, offsets_of, spans_of
from ddbio.items.kernel.members import Openings
from ddbio.items.stream_records import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

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


_Marks: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint64]]"
_WORD_BYTES = 8
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_SHIFTS = (np.uint64(29), np.uint64(32))


class Recent:
    """Hold 128 bits of a hash of the ids of the last changes, by which one that comes again is known.

    Parameters
    ----------
    count
        How many changes are remembered at least.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # The oldest first; each is sorted.
        self._blocks: list[_Marks] = []

    def add(self, ids: pa.Array[Any]) -> None:
        """Remember changes."""
        self.are_new(ids)

    def are_new(self, ids: pa.Array[Any]) -> NDArray[np.bool_]:
        """Remember changes, and return which did not come before."""
        high, low = _marks_of(ids)
        known = np.zeros(len(ids), np.bool_)
        for block in self._blocks:
            known |= _are_within(block, high, low)
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        known[order[1:][(high[1:] == high[:-1]) & (low[1:] == low[:-1])]] = True
        new = ~known[order]
        if new.any():
            self._blocks.append((high[new], low[new]))
            self._settle()
        return ~known

    def _settle(self) -> None:
        """Merge neighbours that are about as large, and forget the oldest changes."""
        blocks, most = self._blocks, max(1, self._count // 4)
        while len(blocks) > 1 and len(blocks[-2][0]) < 2 * len(blocks[-1][0]) <= most:
            (high, low), (newer_high, newer_low) = blocks.pop(-2), blocks.pop()
            high, low = np.concatenate([high, newer_high]), np.concatenate([low, newer_low])
            order = np.lexsort((low, high))
            blocks.append((high[order], low[order]))
        while sum(len(each[0]) for each in blocks[1:]) >= self._count:
            del blocks[0]

    def fresh(self, rows: LogRows) -> tuple[LogRows, list[str]]:
        """Return the rows that did not come before, and the shard's numbers of the others."""
        kept = self.are_new(rows.rows.column(EVENT_ID))
        if kept.all():
            return rows, []
        return rows.keep(kept), [str(each) for each in rows.rows.column(1).filter(bool_array(~kept)).to_pylist()]


def _marks_of(ids: pa.Array[Any]) -> _Marks:
    """Return two words for each text, which differ for texts that differ."""
    data, ends = spans_of(ids)
    lengths = np.diff(ends)
    width = -(-int(lengths.max(initial=1)) // _WORD_BYTES) * _WORD_BYTES
    texts = np.zeros((len(ids), width), np.uint8)
    texts[np.arange(width) < lengths[:, None]] = data[ends[0] : ends[-1]]
    marks = [lengths.astype(np.uint64) * factor for factor in _FACTORS]
    for begin, word in zip(range(0, width, _WORD_BYTES), texts.view(np.uint64).T, strict=True):
        for place, (factor, shift) in enumerate(zip(_FACTORS, _SHIFTS, strict=True)):
            mixed = (marks[place] ^ word) * factor
            # Longer texts beside it change nothing.
            marks[place] = np.where(lengths > begin, mixed ^ mixed >> shift, marks[place])
    return marks[0], marks[1]


def _are_within(block: _Marks, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.bool_]:
    highs, lows = block
    places = np.searchsorted(highs, high)
    found = np.zeros(len(high), np.bool_)
    while True:
        # Those with the same first word are neighbours.
        at = np.minimum(places, len(highs) - 1)
        same = (places < len(highs)) & (highs[at] == high)
        found |= same & (lows[at] == low)
        if not (same & ~found).any():
            return found
        places = places + 1
