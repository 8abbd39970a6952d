"""Turn records of a Kinesis data stream into rows of the log; leave out changes that came before."""

from __future__ import annotations

import json
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.core.capture.columns import EVENT_ID
from ddbio.core.capture.log_rows import LogDecoder, LogRows, expired_records, strings
from ddbio.core.kernel.arrays import bool_array, offsets_of, spans_of
from ddbio.core.kernel.members import Openings
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray


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


_DATA = b'"Data"'
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
        if _DATA not in body:
            return None
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
