"""Status of a capture and verification of its log: positions, files, gaps, and the chain of images."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.gaps import HEALS, captures_in, find_gaps, shard_of
from ddbio.cdc.lineages import lineage_number, lineages_of
from ddbio.cdc.log_jobs import CAPTURE, BatchRecords, folder_of, jobs_of, number_log, read_columns
from ddbio.cdc.log_order import change_ids, distinct_changes, have_operation, order_of, within_times
from ddbio.cdc.log_reader import FileLineages, streams_of_files
from ddbio.cdc.log_rows import hour_of, next_iterator
from ddbio.cdc.shards import END, FIRST, HORIZON, TrimmedError
from ddbio.cdc.stream_registry import kind_of
from ddbio.commit.committer import LEASE_SECONDS
from ddbio.commit.snapshot import live_files, log_job_of, read_history
from ddbio.formats.log_columns import EVENT_TIME, HEALED_BY, LOG_COLUMNS, OLD_IMAGE, OLD_RESCUE, SEQUENCE
from ddbio.formats.parquet_input import open_footer, open_parquet
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import Fingerprints, key_columns, key_rows, key_values
from ddbio.items.key_hashes import row_sums
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.items.schema.own_names import is_own, item_fields
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.report import Clock, JobReport, Report
from ddbio.jobs.stores import open_store
from ddbio.storage.meta import claim_path
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    _Words: TypeAlias = NDArray[np.uint64]
    from collections.abc import Iterator, Mapping

    from ddbio.cdc.gaps import Gap
    from ddbio.cdc.options import CaptureStatusOptions, CaptureVerifyOptions
    from ddbio.cdc.shards import Shard
    from ddbio.cdc.stream_kind import StreamKind, StreamSource
    from ddbio.storage.job_state import JobState
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

_NOTHING = np.zeros(2, np.uint64)
_UNKNOWN = ~_NOTHING


@dataclass(frozen=True)
class ChainBreak:
    """A change whose old image differs from the new image of the change before it. A change between the two is lost.

    Attributes
    ----------
    since, until
        The time of the previous change, and the time of this change.
    """

    key: dict[str, Any]
    sequence: str
    since: datetime
    until: datetime


@dataclass
class ImageChains:
    """Hashes of the rows of a log, added in parts, to detect changes before which another one is missing.

    Not detected: the loss of the last changes of an item in a stream, and a loss before a row without an old image.
    Changes that the service merged are not reported as lost.

    Attributes
    ----------
    keys
        The key attributes.
    """

    keys: Sequence[str]
    _hashes: list[tuple[_Words, _Words, _Words, NDArray[np.int64]]] = field(default_factory=list)
    """Of each part: the item hashes, the hashes of the new and the old images, and the lineage."""
    _named: list[pa.Table] = field(default_factory=list)
    _changes: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table, lineage: int = 1) -> None:
        """Add rows, in any order. Only hashes of their images are kept.

        An ``INSERT`` has no old image. If another change lacks its old image, only its new image is compared.

        Parameters
        ----------
        lineage
            The number of their stream in the log. Sequence numbers can be compared within one stream only.
        """
        images: Any = rows.column(OLD_IMAGE).combine_chunks() if OLD_IMAGE in rows.column_names else None
        fields = (
            {} if images is None else dict(zip((field.name for field in images.type), images.flatten(), strict=True))
        )
        attributes = [item_field.name for item_field in item_fields(rows.schema, LOG_COLUMNS)]
        items, new = _hashes(rows.select(attributes), self.keys)
        new[have_operation(rows, "REMOVE")] = _NOTHING
        old = np.where(have_operation(rows, "INSERT")[:, None], _NOTHING, _UNKNOWN)
        if images is not None:
            columns = pa.table(fields, schema=pa.schema([rows.schema.field(name) for name in fields]))
            _, old_hashes = _hashes(columns.append_column(rows.schema.field(RESCUE_NAME), rows.column(OLD_RESCUE)), ())
            old = np.where(pc.is_valid(images).to_numpy(zero_copy_only=False)[:, None], old_hashes, old)
        self._hashes.append((items, new, old, np.full(len(old), lineage, np.int64)))
        self._named.append(key_rows(rows.select(attributes), self.keys))
        self._changes.append(rows.select([SEQUENCE, EVENT_TIME]))

    def broken(self) -> list[ChainBreak]:
        """Return the changes before which a change is missing, in the order of their sequence numbers."""
        if not self._named:
            return []
        rows = pa.concat_tables(self._changes, promote_options="permissive")
        items, new, old, lineages = (np.concatenate(parts) for parts in zip(*self._hashes, strict=True))
        numbered = order_of(rows)
        # The sort is stable: within an item of a stream, the rows keep the order of their sequence numbers.
        order = numbered[np.lexsort((lineages[numbered], items[numbered]))]
        before, after = order[:-1], order[1:]
        begun = old[after]
        differs = (begun != new[before]).any(axis=1) & (begun != _UNKNOWN).any(axis=1)
        is_broken = (items[after] == items[before]) & (lineages[after] == lineages[before]) & differs
        before, after = before[is_broken], after[is_broken]
        order = order_of(rows.take(pa.array(after)))
        before, after = before[order], after[order]
        chosen, times = rows.take(pa.array(after)), rows.column(EVENT_TIME)
        sequences: list[Any] = chosen.column(SEQUENCE).to_pylist()
        since: list[Any] = times.take(pa.array(before)).to_pylist()
        until: list[Any] = chosen.column(EVENT_TIME).to_pylist()
        return [ChainBreak(*fields) for fields in zip(self._keys_of(after), sequences, since, until, strict=True)]

    def _keys_of(self, rows: NDArray[np.uint64]) -> list[dict[str, Any]]:
        """Return the keys of some rows. Each part has its own types."""
        row_keys, ends = [dict[str, Any]()] * len(rows), np.cumsum([part.num_rows for part in self._named])
        parts = np.searchsorted(ends, rows.astype(np.int64), "right")
        for part in np.unique(parts).tolist():
            indices, named = np.flatnonzero(parts == part), self._named[part]
            inside = rows[indices].astype(np.int64) - (ends[part] - named.num_rows)
            for chosen, columns in key_columns(named.take(pa.array(inside)), self.keys):
                values = zip(*key_values(columns), strict=True)
                for index, key in zip(indices[chosen].tolist(), values, strict=True):
                    row_keys[index] = dict(zip(self.keys, key, strict=True))
        return row_keys


def _hashes(rows: pa.Table, keys: Sequence[str]) -> tuple[_Words, _Words]:
    """Return one word of each row's key, and two words of its item."""
    digest, names, items = ColumnDigest(keys), list[Any](), list[Any]()
    for batch in rows.to_batches():
        sums = row_sums(digest, batch, keys)
        items.append(sums.items)
        names.append(np.zeros(0, np.uint64) if sums.keys is None else sums.keys)
    return np.concatenate(names), np.concatenate(items).copy()


_MAX_EXAMPLES = 20
# Empty replies are normal even if a shard has more records.
_EMPTY_REPLIES = 4
# Maximum difference between the clock of a capture and the service's clock.
_CLOCK_SECONDS = 900


@dataclass(frozen=True)
class CaptureStatus(Report):
    """Status of a capture.

    Attributes
    ----------
    dest, job_id
        The log and the capture.
    stream
        The stream that it reads.
    running
        Whether its claim was renewed recently.
    batches
        The number of batches.
    unfinished
        Batches whose files may be missing. The next run writes them.
    last_batch_seconds
        The age of the last batch; None if there is none.
    open_shards, ended_shards
        The numbers of shards that are read, and of shards that were read to their end.
    positions
        The position of each shard that is read.
    lag_seconds
        The age of the first change that is not captured yet; 0 if there is none, None if the stream was not read.
    lost_shards
        Shards whose changes were trimmed before they were captured. The next run stops with a gap.
    """

    dest: str
    job_id: str
    stream: str
    running: bool
    batches: int
    unfinished: int
    last_batch_seconds: float | None
    open_shards: int
    ended_shards: int
    positions: dict[str, str]
    lag_seconds: float | None
    lost_shards: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CaptureVerifyReport(JobReport):
    """Result of the verification of a log.

    Attributes
    ----------
    dest, job_ids
        The log, and the jobs that write it.
    is_whole
        Whether nothing is missing, and all files belong to batches or compactions.
    batches, records, files
        Batches, their changes, and the existing files.
    rows
        Rows of the files.
    missing
        Files of finished batches that do not exist, and were not replaced by a compaction.
    unknown
        Files that belong to no batch and no compaction.
    wrong
        Files whose number of rows differs from the record of their batch.
    jumps
        Batches that do not start where the previous one of the shard ended, or whose number is missing.
    gaps
        Positions at which changes were lost, as the capture recorded them, that are not healed.
    healed_gaps
        Gaps that were healed.
    repeated
        Changes that are in the log more than once.
    lost
        Changes before which another change of the same item is missing; None if the log has no old images, or
        ``images`` is off. A loss before a change without an old image is not detected.
    healed
        Such changes whose gap is healed: the log has the result of the lost changes, but not each of them.
    examples
        Some of the changes in ``lost``.
    """

    dest: str
    job_ids: tuple[str, ...]
    is_whole: bool
    batches: int
    records: int
    files: int
    rows: int
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    wrong: tuple[str, ...]
    jumps: tuple[str, ...]
    gaps: tuple[str, ...]
    healed_gaps: int
    repeated: int
    lost: int | None
    healed: int | None
    examples: tuple[str, ...]


def capture_status(options: CaptureStatusOptions) -> list[CaptureStatus]:
    """Return the status of each capture that writes a log: positions, batches, and whether it runs.

    Raises
    ------
    NotFoundError
        If the log has no capture.
    """
    store = open_store(options.dest, options)
    states = captures_in(store)
    # Processes that share a stream have a part of its shards each.
    all_shards = frozenset(shard for state in states for shard in _last_record(state).get("positions", {}))
    chosen = captures_in(store, options.job_id)
    return [_status(options, store, state, all_shards) for state in chosen]


def _last_record(state: JobState) -> dict[str, Any]:
    """Return the record of the last batch of a capture, or an empty one if there is no batch."""
    return BatchRecords(state).last() or {}


def _status(
    options: CaptureStatusOptions, store: ObjectStore, state: JobState, all_shards: frozenset[str]
) -> CaptureStatus:
    records, record = BatchRecords(state), _last_record(state)
    positions: dict[str, str] = record.get("positions", {})
    number = record.get("batch", 0)
    claims = [claim.modified_at for claim in store.list(claim_path(state.job_id))]
    others = all_shards - positions.keys()
    lineages = lineages_of(state)
    stream = lineages[max(1, lineage_number(record)) - 1].stream if lineages else ""
    lag, lost = (None, ()) if options.offline else _stream_state(options, stream, positions, others)
    now = time.time()
    return CaptureStatus(
        dest=store.uri,
        job_id=state.job_id,
        stream=stream,
        running=any(now - renewed_at < LEASE_SECONDS for renewed_at in claims),
        batches=number,
        unfinished=max(0, number - records.committed),
        last_batch_seconds=round(max(0.0, now - records.written_at(record)), 3) if number else None,
        open_shards=sum(position != END for position in positions.values()),
        ended_shards=sum(position == END for position in positions.values()),
        positions={shard: position for shard, position in positions.items() if position != END},
        lag_seconds=lag,
        lost_shards=lost,
    )


def _stream_state(
    options: CaptureStatusOptions, arn: str, positions: dict[str, str], others: frozenset[str]
) -> tuple[float, tuple[str, ...]]:
    """Return the age of the first change that is not captured, and the shards with lost changes."""
    lag, lost = 0.0, list[str]()
    kind = kind_of(arn)
    with contextlib.closing(kind.open(dynamodb_spec(options), arn)) as source:
        shards = {shard.shard_id: shard for shard in source.shards()}
        lost += [shard_id for shard_id, position in positions.items() if position != END and shard_id not in shards]
        for shard_id, shard in shards.items():
            # No change of a new shard is captured yet.
            position = positions.get(shard_id, FIRST if positions else HORIZON)
            if position == END or shard_id in others:
                continue
            try:
                oldest = _first_time(source, kind, shard, position)
            except TrimmedError:
                lost.append(shard_id)
                continue
            lag = lag if oldest is None else max(lag, time.time() - oldest)
    return round(lag, 3), tuple(sorted(lost))


def _first_time(source: StreamSource, kind: StreamKind, shard: Shard, position: str) -> float | None:
    """Return the time of the first change after a position, or None if several replies are empty."""
    iterator: str | None = source.iterator(shard, position)
    for _ in range(_EMPTY_REPLIES):
        if iterator is None:
            return None
        body = source.begin(iterator).result() or b""
        match = kind.record_time.search(body)
        if match is not None:
            return float(match[1])
        iterator = next_iterator(body)
    return None


@dataclass
class _Batches:
    """Records of the batches of a log's jobs."""

    batches: int = 0
    records: int = 0
    files: dict[str, int] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    jumps: list[str] = field(default_factory=list)

    def read(self, state: JobState) -> None:
        """Add the batches of one job."""
        records = BatchRecords(state)
        committed = records.committed
        ends, last, lineage = dict[str, str](), 0, 1
        for record in records.all():
            number = record["batch"]
            if state.kind != CAPTURE:
                self.records += sum(file["rows"] for file in record["files"])
            if number != last + 1:
                self.jumps.append(f"{state.job_id}: batch {last + 1} is missing")
            if lineage_number(record) != lineage:
                # Another stream may have shards with the same names.
                lineage, ends = lineage_number(record), {}
            for text in record["gaps"]:
                # The shard continues after the gap, possibly in a later batch.
                ends.pop(shard_of(text), None)
            for shard, part in record["shards"].items():
                before = ends.get(shard)
                if before is not None and part["after"] != before:
                    self.jumps.append(
                        f"{state.job_id}: batch {number} has {shard} after {part['after']}, not after {before}"
                    )
                self.records += part["records"]
                ends[shard] = part["to"]
            for text in record["files"]:
                self.files[text["path"]] = text["rows"]
                self.written_at[text["path"]] = record.get("at", math.inf)
                if number > committed:
                    self.unfinished.add(text["path"])
            last = number
        self.batches += last


def verify_capture(options: CaptureVerifyOptions) -> CaptureVerifyReport:
    """Compare the files of a log with the records of its batches, and count lost changes.

    Raises
    ------
    NotFoundError
        If the log or the job does not exist.
    """
    clock, store = Clock(), open_store(options.dest, options)
    number_log(store)
    jobs = jobs_of(store, options.job_id)
    states = [job for job in jobs if HEALS not in (job.head() or {})]
    noted = _Batches()
    for state in jobs:
        noted.read(state)
    named = {path: rows for path, rows in noted.files.items() if _is_within(options, path)}
    spared = noted.unfinished
    if options.since is not None:
        # All changes of a file are older than the file.
        earliest = options.since.timestamp() - _CLOCK_SECONDS
        spared |= {path for path, at in noted.written_at.items() if at < earliest}
    history = read_history(store)
    replaced = {path for snapshot in history for path in snapshot.removed}
    compacted_files = {path for snapshot in history for path in snapshot.added}
    live = {file.path for file in live_files(store).files}
    entries = {entry.path: entry for entry in store.list() if entry.path in live and _is_within(options, entry.path)}
    counts, has_images = dict[str, int](), False
    for path, entry in entries.items():
        footer = open_footer(store, entry)
        counts[path] = footer.metadata.num_rows
        has_images |= OLD_IMAGE in footer.schema_arrow.names
    ids = {state.job_id for state in jobs if state.kind == CAPTURE}
    committed = {path for path in (history[-1].paths if history else ()) if _is_within(options, path)}
    missing = sorted({*_missing(named, counts, spared.union(replaced)), *(committed - entries.keys())})
    others = entries.keys() - named.keys() - compacted_files
    unknown = sorted(path for path in others if log_job_of(path) in ids)
    wrong = sorted(path for path, rows in counts.items() if named.get(path, rows) != rows)
    gaps = find_gaps([state for state in states if state.kind == CAPTURE])
    audited: dict[str, Any] = {"repeated": 0, "lost": None, "healed": None, "examples": ()}
    if options.images:
        # Captures of older versions do not store the keys.
        keys = next((columns.keys for columns in map(read_columns, states) if columns is not None and columns.keys), ())
        chains = ImageChains(keys) if keys and has_images else None
        audited |= _audit(options, keys, chains, store, [entries[path] for path in sorted(entries)], gaps.healed)
    span = options.since or datetime.min.replace(tzinfo=UTC), options.until or datetime.max.replace(tzinfo=UTC)
    lost_at = [text for gap in gaps.gaps if gap.has(*span) for text in gap.places]
    return CaptureVerifyReport(
        dest=store.uri,
        job_ids=tuple(sorted(state.job_id for state in states)),
        is_whole=not (missing or unknown or wrong or noted.jumps or lost_at or audited["repeated"] or audited["lost"]),
        batches=noted.batches,
        records=noted.records,
        files=len(entries),
        rows=sum(counts.values()),
        missing=tuple(missing),
        unknown=tuple(unknown),
        wrong=tuple(wrong),
        jumps=tuple(noted.jumps),
        gaps=tuple(lost_at),
        healed_gaps=len(gaps.healed),
        **audited,
        **clock.times(),
    )


def _missing(named: Mapping[str, int], counts: Mapping[str, int], spared: set[str]) -> Iterator[str]:
    """Yield the missing files of batches, except those of hours whose rows a compaction has moved to other files.

    A vacuum deletes the versions that record the files replaced by a compaction, so this compares numbers of rows.
    """
    surplus, compacted = Counter[str](), set[str]()
    for path, rows in counts.items():
        if path not in named and job_of(path):
            compacted.add(folder_of(path))
            surplus[folder_of(path)] += rows
    gone = named.keys() - counts.keys() - spared
    for path in gone:
        surplus[folder_of(path)] -= named[path]
    yield from (path for path in gone if folder_of(path) not in compacted or surplus[folder_of(path)] < 0)


def _audit(
    options: CaptureVerifyOptions,
    keys: Sequence[str],
    chains: ImageChains | None,
    store: ObjectStore,
    entries: list[StoredObject],
    healed: Sequence[Gap],
) -> dict[str, Any]:
    """Return the fields ``repeated``, ``lost``, ``healed`` and ``examples`` of the report."""
    fields, ids, paths = dict[str, Any](), list[Fingerprints](), list[str]()
    lineages = None if chains is None else FileLineages(store)
    for path, rows in _row_groups(options, store, entries):
        is_healed = HEALED_BY in rows.column_names and is_own(rows.schema.field(HEALED_BY), LOG_COLUMNS)
        own = rows.filter(pc.is_null(rows.column(HEALED_BY))) if is_healed else rows
        ids.append(change_ids(own, keys))
        paths.append(path)
        if chains is not None and lineages is not None:
            chains.add(rows, lineages.of(path))
    if ids:
        ends = np.cumsum([len(part.high) for part in ids])
        # Few logs have a change twice.
        streams = functools.cache(functools.partial(streams_of_files, store))
        every = Fingerprints.joined(ids)
        changes, _ = distinct_changes(every, lambda row: streams().get(paths[int(np.searchsorted(ends, row, "right"))]))
        fields["repeated"] = len(every.high) - len(changes)
    if chains is None:
        return fields
    breaks = chains.broken()
    lost = [
        chain_break
        for chain_break in breaks
        if not any(gap.has(chain_break.since, chain_break.until) for gap in healed)
    ]
    examples = tuple(f"{chain_break.key} at {chain_break.sequence}" for chain_break in lost[:_MAX_EXAMPLES])
    return {**fields, "lost": len(lost), "healed": len(breaks) - len(lost), "examples": examples}


def _row_groups(
    options: CaptureVerifyOptions, store: ObjectStore, entries: list[StoredObject]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the path and the rows of each row group within the options' times. Only one file is in memory."""
    for entry in entries:
        read = open_parquet(pa.BufferReader(store.read(entry.path)))
        for group in range(read.num_row_groups):
            rows = within_times(read.read_row_group(group), options.since, options.until)
            if rows.num_rows:
                yield entry.path, rows


def _is_within(options: CaptureVerifyOptions, path: str) -> bool:
    """Return whether the hour of a file overlaps with the options' times."""
    hour = hour_of(path)
    if hour is None:
        return True
    is_before = options.since is not None and hour + timedelta(hours=1) <= options.since
    return not is_before and (options.until is None or hour < options.until)
