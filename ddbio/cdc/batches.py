"""Numbered batches that write the changes of a table into its log, each exactly once, even if a process dies.

The record of a batch is written first, with a conditional write. It has the changes of each shard that belong to the
batch, and the names of its files. The files follow, also with conditional writes. A run that reads a record whose files
may be missing reads the same changes again and writes the same files.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_jobs import Columns, keep_columns, read_columns
from ddbio.cdc.log_order import sequences_of
from ddbio.cdc.log_rows import LogDecoder, LogRows, hour_folder, next_iterator
from ddbio.cdc.shards import LATEST, ExpiredError, TrimmedError, gap
from ddbio.commit.snapshot import read_history
from ddbio.errors import NotFoundError, TargetError
from ddbio.formats.log_columns import EVENT_ID, SEQUENCE
from ddbio.formats.parquet import parquet_bytes
from ddbio.formats.parquet_input import open_footer, read_parquet
from ddbio.items.item_key import Fingerprints, KeySet, key_fingerprints
from ddbio.items.kernel.arrays import bool_array
from ddbio.items.schema.arrow import tagged_field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from ddbio.cdc.lineages import TableStream
    from ddbio.cdc.log_jobs import BatchRecords
    from ddbio.cdc.shards import Lineage
    from ddbio.cdc.stream_kind import StreamSource
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore

    Decode: TypeAlias = Callable[[bytes], LogRows | None]

log = logging.getLogger("ddbio.capture")

_SEEN = "seen"
RECENT_CHANGES = 250_000
"""Number of recent event ids that are remembered, to drop changes that arrive again."""
_EVENT_IDS = pa.schema([tagged_field(EVENT_ID, pa.string(), "S")])
_MOMENT = 0.001
_REMEMBERED_BATCHES = 64
# The maximum number of batches of another capture that are searched for changes of some shards.
_SEARCHED_BATCHES = 1_000


@dataclass
class ShardRows:
    """Changes of one shard in a batch: those after one position, up to another."""

    after: str
    to: str
    rows: list[LogRows] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Sequence numbers of changes between these positions that arrived before, and are left out."""

    @property
    def count(self) -> int:
        """Number of changes."""
        return sum(batch.rows.num_rows for batch in self.rows)


class ChangeLog:
    """Batches of one capture. Not thread-safe.

    Parameters
    ----------
    records
        The records of its batches, in the folder of the log.
    stream
        The stream of the table.
    keys
        The table's key attributes.
    infer
        Returns the columns of items, inferred from the first changes.

    Attributes
    ----------
    number
        The number of the last batch.
    lineage
        The number of the lineage of the next batches.
    records, files
        The numbers of changes and files that this run has written.
    foreign
        The number of stream records that this run left out. They belong to other tables or other producers.
    """

    def __init__(
        self,
        records: BatchRecords,
        stream: TableStream,
        keys: tuple[str, ...],
        infer: Callable[[bytes], pa.Schema],
        *,
        old_image: bool = False,
        compression: Compression = "zstd",
    ) -> None:
        self._records, self._state, self._keys, self._infer = records, records.state, keys, infer
        self._old_image, self._compression = old_image, compression
        self._table, self._kind, self._recent = stream.table, stream.kind, KeySet(RECENT_CHANGES)
        self.lineage, self._last_at = 1, 0.0
        self._decoder: LogDecoder | None = None
        self.number = self.records = self.files = self.foreign = 0
        if (columns := read_columns(self._state)) is not None:
            self._use(columns)

    @property
    def job_id(self) -> str:
        """Job id under which the batches are written."""
        return self._state.job_id

    def declare(self, schema: pa.Schema) -> None:
        """Use these columns of items from now on."""
        self._use(keep_columns(self._state, Columns(schema, self._keys), replaces=True))

    def decode(self, body: bytes) -> LogRows | None:
        """Return the rows of a reply. Unless columns were declared, the first changes of the capture determine them."""
        if self._decoder is None:
            if b'"SequenceNumber"' not in body:
                return None
            changes, foreign = self._kind.changes_in(body, self._table)
            if not changes:
                self.foreign += foreign
                return None
            self.choose_columns(changes)
        rows = None if self._decoder is None else self._decoder.decode(body)
        self.foreign += 0 if rows is None else rows.foreign
        return rows

    def fresh(self, rows: LogRows) -> tuple[LogRows, list[str]]:
        """Return the rows that did not arrive before, and the sequence numbers of the others."""
        if not self._kind.has_event_ids:
            return rows, []
        is_new = self._recent.add(fingerprints_of_ids(rows.rows.column(EVENT_ID)))
        if is_new.all():
            return rows, []
        return rows.keep(is_new), [
            str(number) for number in rows.rows.column(1).filter(bool_array(~is_new)).to_pylist()
        ]

    def silent_since(self) -> float | None:
        """Return the time up to which an earlier run has read all changes; None if it was not recorded."""
        noted = self._state.read(_SEEN)
        return None if noted is None else float(noted["at"])

    def note_seen(self, at: float) -> None:
        """Record that all changes up to a time were read."""
        self._state.put(_SEEN, {"at": at})

    def choose_columns(self, body: bytes) -> None:
        """Infer the columns from some changes, if they are not stored yet."""
        if self._decoder is None:
            self._use(keep_columns(self._state, Columns(self._infer(body), self._keys)))

    def resume(self, source: StreamSource, started_at: float) -> dict[str, Any] | None:
        """Return the record of the last batch after all its files are written; None if there is no batch.

        If another process resumes the capture at the same time, it writes the next record, and this process fails at
        that record.

        Raises
        ------
        GapError
            If its changes were trimmed in the meantime.
        """
        record = self._records.last()
        self.number = 0 if record is None else record["batch"]
        self._last_at = 0.0 if record is None else float(record.get("at", 0.0))
        try:
            return self._finish(record, source, started_at)
        finally:
            self.remember(self._records)

    def _finish(self, record: dict[str, Any] | None, source: StreamSource, started_at: float) -> dict[str, Any] | None:
        """Write the files of the last batch if they may be missing. Return the record of the batch."""
        if record is None or self._records.committed >= self.number:
            return record
        log.info("batch %d is incomplete: its changes are read again", self.number)
        parts = {
            shard_id: _read_again(source, shard_id, part, self.decode, started_at)
            for shard_id, part in record["shards"].items()
        }
        tables = self._tables(self.number, parts)
        if {path: table.num_rows for path, table in tables.items()} != {
            file["path"]: file["rows"] for file in record["files"]
        }:
            raise TargetError(f"batch {self.number} of {self._state.store.uri} was read again and has other changes")
        # A compaction may have replaced files of the batch.
        history = read_history(self._state.store)
        self._write(tables, frozenset(path for snapshot in history for path in snapshot.removed))
        return record

    def remember(self, records: BatchRecords, shards: Collection[str] | None = None) -> None:
        """Remember the event ids of the last changes that a capture has written, if changes have event ids.

        Parameters
        ----------
        records
            The records of its batches.
        shards
            Only batches that have changes of these shards.
        """
        last = records.last() if self._kind.has_event_ids else None
        newest, row_count, batches = list[Fingerprints](), 0, 0
        for record in () if last is None else _backwards(records, last["batch"]):
            if shards is not None and not record["shards"].keys() & shards:
                continue
            batches += 1
            for file in record["files"]:
                try:
                    data = self._state.store.read(file["path"])
                except NotFoundError:
                    # It is not written yet, or a compaction has replaced it.
                    continue
                newest.append(
                    fingerprints_of_ids(read_parquet(pa.BufferReader(data), [EVENT_ID]).column(0).combine_chunks())
                )
                row_count += file["rows"]
            if row_count >= RECENT_CHANGES or batches >= _REMEMBERED_BATCHES:
                break
        for fingerprints in reversed(newest):
            self._recent.add(fingerprints)

    def append(
        self, parts: Mapping[str, ShardRows], lineage: Lineage, gaps: Iterable[str] = (), *, at: float = 0.0
    ) -> None:
        """Write a batch of changes, and the positions after them.

        Parameters
        ----------
        at
            The time of day.

        Raises
        ------
        TargetError
            If another process writes this log under the same job id.
        """
        number = self.number + 1
        tables = self._tables(number, parts)
        if gaps := list(gaps):
            # Changes before the gap must have an earlier time, regardless of the service's clock.
            at = max(at, self._last_at + _MOMENT)
        record: dict[str, Any] = {
            "batch": number,
            "shards": {
                shard_id: {"after": part.after, "to": part.to, "records": part.count}
                | ({"dropped": part.dropped} if part.dropped else {})
                for shard_id, part in parts.items()
            },
            "positions": dict(lineage.positions),
            "files": [{"path": path, "rows": table.num_rows} for path, table in tables.items()],
            "gaps": gaps,
            # The time is not earlier than the changes, regardless of the clock of this machine.
            "at": max([at, *(rows.last_time for part in parts.values() for rows in part.rows)]),
        } | ({"lineage": self.lineage} if self.lineage > 1 else {})
        if not self._records.add(number, record):
            raise TargetError(
                f"another process writes the log {self._state.store.uri} as job {self._state.job_id}: it has written "
                f"batch {number}",
                self._state.store.uri,
            )
        self.number, self._last_at = number, record["at"]
        self._write(tables)
        # Release the memory of the batch until the next one is full.
        tables.clear()
        pa.default_memory_pool().release_unused()

    def _tables(self, number: int, parts: Mapping[str, ShardRows]) -> dict[str, pa.Table]:
        """Return the files of a batch: one for each hour, with the changes of each shard in order."""
        hours = defaultdict[int, list[LogRows]](list)
        for rows_of_shard in (rows for part in parts.values() for rows in part.rows):
            for hour, rows_of_hour in rows_of_shard.of_hours():
                hours[hour].append(rows_of_hour)
        job_id = self._state.job_id
        return {
            f"{hour_folder(hour)}{job_id}-{number:012}.parquet": self._table_of(number, parts_of_hour)
            for hour, parts_of_hour in sorted(hours.items())
        }

    def _table_of(self, number: int, parts: list[LogRows]) -> pa.Table:
        rows = pa.Table.from_batches([part.rows for part in parts])
        if not self._kind.has_event_ids:
            return rows
        texts: Any = pa.chunked_array([part.texts for part in parts], pa.binary())
        column = rows.schema.get_field_index(SEQUENCE)
        numbers = sequences_of(rows, texts, self._keys, number)
        return rows.set_column(column, rows.schema.field(column), pa.chunked_array([numbers]))

    def _write(self, tables: Mapping[str, pa.Table], written: frozenset[str] = frozenset()) -> None:
        store = self._state.store
        for path, table in tables.items():
            if path in written:
                continue
            write_log_file(store, path, table, self._compression)
            self.files += 1
        self.records += sum(table.num_rows for table in tables.values())
        self._records.commit(self.number)

    def _use(self, columns: Columns) -> None:
        self._decoder = self._kind.decoder(columns.schema, self._keys, self._table, old_image=self._old_image)


def fingerprints_of_ids(event_ids: Any) -> Fingerprints:
    """Return the fingerprint of each event id."""
    return key_fingerprints(pa.RecordBatch.from_arrays([event_ids], schema=_EVENT_IDS), [EVENT_ID])


def _backwards(records: BatchRecords, last: int) -> Iterator[dict[str, Any]]:
    """Yield the records of the last batches, the newest first."""
    for end in range(last, max(0, last - _SEARCHED_BATCHES), -_REMEMBERED_BATCHES):
        block = records.between(max(1, end - _REMEMBERED_BATCHES + 1), end)
        yield from (record for record in reversed(block) if record is not None)


def write_log_file(store: ObjectStore, path: str, rows: pa.Table, compression: Compression) -> None:
    """Write a file if it does not exist. Raises if it exists with another number of rows.

    Raises
    ------
    TargetError
        With the path of the file.
    """
    if store.put_if_absent(path, parquet_bytes(rows, compression)):
        return
    (entry,) = (file for file in store.list(path) if file.path == path)
    row_count = open_footer(store, entry).metadata.num_rows
    if row_count != rows.num_rows:
        raise TargetError(
            f"{store.uri}/{path} has {row_count} changes, and its batch {rows.num_rows}: another program wrote it; "
            "move it away",
            store.uri,
        )


def _read_again(
    source: StreamSource, shard_id: str, part: Mapping[str, Any], decode: Decode, started_at: float
) -> ShardRows:
    """Read the changes of a batch again from a shard, and return them."""
    after, to, count = part["after"], part["to"], part["records"]
    shard = next((shard for shard in source.shards() if shard.shard_id == shard_id), None)
    shard_rows = ShardRows(after, to)
    if shard is None:
        raise gap(source.name, shard_id, after)
    try:
        position = after
        iterator: str | None = source.iterator(shard, position)
        while iterator is not None and not (position.isdecimal() and int(position) >= int(to)):
            try:
                body = source.begin(iterator).result() or b""
            except ExpiredError:
                iterator = source.iterator(shard, position)
                continue
            iterator, rows = next_iterator(body), decode(body)
            if rows is None:
                continue
            if position == LATEST:
                rows = rows.since(started_at)
            if rows.rows.num_rows or position != LATEST:
                shard_rows.rows.append(rows)
                position = rows.to
    except TrimmedError:
        raise gap(source.name, shard_id, after) from None
    if shard_rows.rows:
        shard_rows.rows[-1] = shard_rows.rows[-1].until(to)
    shard_rows.rows = [_without(rows, part.get("dropped", ())) for rows in shard_rows.rows]
    if shard_rows.count != count:
        raise gap(source.name, shard_id, after)
    return shard_rows


def _without(rows: LogRows, numbers: Sequence[str]) -> LogRows:
    """Return the rows except those with some sequence numbers of the shard."""
    if not numbers:
        return rows
    is_excluded: Any = pc.is_in(rows.rows.column(1), pa.array(numbers, pa.string()))
    return rows.keep(~is_excluded.to_numpy(zero_copy_only=False))
