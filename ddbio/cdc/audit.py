"""The status of a capture, and the verification of its log: positions, files, gaps, and the chain of images."""

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
    """Name a change whose old image is not what the change before it left: a change between them is lost.

    Attributes
    ----------
    since, until
        When the change before it was made, and when it was itself.
    """

    key: dict[str, Any]
    sequence: str
    since: datetime
    until: datetime


@dataclass
class ImageChains:
    """Gather what the rows of a log hash to, part by part, and find the changes behind which one is missing.

    What this cannot see is the loss of the last changes of an item in a stream, and a loss before a row whose old image
    is not known. Changes that the service merged are no loss.

    Attributes
    ----------
    keys
        The key attributes.
    """

    keys: Sequence[str]
    _hashes: list[tuple[_Words, _Words, _Words, NDArray[np.int64]]] = field(default_factory=list)
    """Of each part: its items, what each change left and what it began with, and the lineage."""
    _named: list[pa.Table] = field(default_factory=list)
    _changes: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table, lineage: int = 1) -> None:
        """Add rows, in any order; of their images only hashes are kept.

        An ``INSERT`` has nothing before it. What another change without an old image began with is not known; what it
        left is.

        Parameters
        ----------
        lineage
            The place of their stream among those of the log: sequence numbers can be compared within one only.
        """
        images: Any = rows.column(OLD_IMAGE).combine_chunks() if OLD_IMAGE in rows.column_names else None
        fields = {} if images is None else dict(zip((each.name for each in images.type), images.flatten(), strict=True))
        attributes = [each.name for each in item_fields(rows.schema, LOG_COLUMNS)]
        items, new = _hashes(rows.select(attributes), self.keys)
        new[have_operation(rows, "REMOVE")] = _NOTHING
        old = np.where(have_operation(rows, "INSERT")[:, None], _NOTHING, _UNKNOWN)
        if images is not None:
            columns = pa.table(fields, schema=pa.schema([rows.schema.field(name) for name in fields]))
            _, known = _hashes(columns.append_column(rows.schema.field(RESCUE_NAME), rows.column(OLD_RESCUE)), ())
            old = np.where(pc.is_valid(images).to_numpy(zero_copy_only=False)[:, None], known, old)
        self._hashes.append((items, new, old, np.full(len(old), lineage, np.int64)))
        self._named.append(key_rows(rows.select(attributes), self.keys))
        self._changes.append(rows.select([SEQUENCE, EVENT_TIME]))

    def broken(self) -> list[ChainBreak]:
        """Return the changes behind which one is missing, in the order of the rows' numbers."""
        if not self._named:
            return []
        rows = pa.concat_tables(self._changes, promote_options="permissive")
        items, new, old, lineages = (np.concatenate(each) for each in zip(*self._hashes, strict=True))
        numbered = order_of(rows)
        # Stable: within an item of a stream the rows stay in the order of their numbers.
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
        return [ChainBreak(*each) for each in zip(self._keys_of(after), sequences, since, until, strict=True)]

    def _keys_of(self, rows: NDArray[np.uint64]) -> list[dict[str, Any]]:
        """Return the keys of some rows; each part has its own types."""
        found, ends = [dict[str, Any]()] * len(rows), np.cumsum([each.num_rows for each in self._named])
        parts = np.searchsorted(ends, rows.astype(np.int64), "right")
        for part in np.unique(parts).tolist():
            places, named = np.flatnonzero(parts == part), self._named[part]
            inside = rows[places].astype(np.int64) - (ends[part] - named.num_rows)
            for chosen, columns in key_columns(named.take(pa.array(inside)), self.keys):
                values = zip(*key_values(columns), strict=True)
                for place, key in zip(places[chosen].tolist(), values, strict=True):
                    found[place] = dict(zip(self.keys, key, strict=True))
        return found


def _hashes(rows: pa.Table, keys: Sequence[str]) -> tuple[_Words, _Words]:
    """Return a word of the key of each row, and two of the item."""
    digest, names, items = ColumnDigest(keys), list[Any](), list[Any]()
    for batch in rows.to_batches():
        sums = row_sums(digest, batch, keys)
        items.append(sums.items)
        names.append(np.zeros(0, np.uint64) if sums.keys is None else sums.keys)
    return np.concatenate(names), np.concatenate(items).copy()


_SHOWN = 20
# Replies without records are normal where there are more.
_EMPTY_REPLIES = 4
# How far the clock of a capture and that of the service may be apart.
_CLOCK_SECONDS = 900


@dataclass(frozen=True)
class CaptureStatus(Report):
    """How a capture stands.

    Attributes
    ----------
    dest, job_id
        The log and the capture.
    stream
        The stream that it reads.
    running
        Whether its claim was renewed lately.
    batches
        Batches so far.
    unfinished
        Batches whose files may be missing; the next run writes them.
    last_batch_seconds
        How long ago the last batch was written; None if there is none.
    open_shards, ended_shards
        Shards that are read, and those that were read to their end.
    positions
        The position of each shard that is read.
    lag_seconds
        How old the first change is that is not captured yet; 0 if there is none, None if the stream was not asked.
    lost_shards
        Shards of which changes are gone that were not captured: the next run ends with a gap.
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
    """What a verification of a log found.

    Attributes
    ----------
    dest, job_ids
        The log, and the jobs that write it.
    is_whole
        Whether nothing is missing, and nothing is there that no batch has.
    batches, records, files
        Batches, their changes, and the files that are there.
    rows
        Rows of the files.
    missing
        Files of finished batches that are gone, and were not replaced by a compaction.
    unknown
        Files that no batch and no compaction names.
    wrong
        Files with another number of rows than their batch says.
    jumps
        Batches that do not begin where an earlier one of the shard ended, or whose number is missing.
    gaps
        Places at which changes were gone, as the capture noted them, that are not healed.
    healed_gaps
        Gaps that were healed.
    repeated
        Changes that are there more than once.
    lost
        Changes before which one of the same item is missing; None if the log has no old images, or ``images`` is off.
        Before a change whose old image is not in the log none can be missed.
    healed
        Likewise, where the gap between the two is healed: what the item became is there, not each change.
    examples
        Some of those that are lost.
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
    """Return how each capture stands that writes a log: positions, batches, whether it runs.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    store = open_store(options.dest, options)
    states = captures_in(store)
    # Processes that share a stream have a part of its shards each.
    known = frozenset(shard for state in states for shard in _last_record(state).get("positions", {}))
    chosen = captures_in(store, options.job_id)
    return [_status(options, store, state, known) for state in chosen]


def _last_record(state: JobState) -> dict[str, Any]:
    """Return the record of the last batch of a capture, or nothing if there is none."""
    return BatchRecords(state).last() or {}


def _status(options: CaptureStatusOptions, store: ObjectStore, state: JobState, known: frozenset[str]) -> CaptureStatus:
    records, record = BatchRecords(state), _last_record(state)
    positions: dict[str, str] = record.get("positions", {})
    number = record.get("batch", 0)
    claims = [each.modified_at for each in store.list(claim_path(state.job_id))]
    others = known - positions.keys()
    lineages = lineages_of(state)
    stream = lineages[max(1, lineage_number(record)) - 1].stream if lineages else ""
    lag, lost = (None, ()) if options.offline else _stream_state(options, stream, positions, others)
    now = time.time()
    return CaptureStatus(
        dest=store.uri,
        job_id=state.job_id,
        stream=stream,
        running=any(now - each < LEASE_SECONDS for each in claims),
        batches=number,
        unfinished=max(0, number - records.committed),
        last_batch_seconds=round(max(0.0, now - records.written_at(record)), 3) if number else None,
        open_shards=sum(each != END for each in positions.values()),
        ended_shards=sum(each == END for each in positions.values()),
        positions={shard: each for shard, each in positions.items() if each != END},
        lag_seconds=lag,
        lost_shards=lost,
    )


def _stream_state(
    options: CaptureStatusOptions, arn: str, positions: dict[str, str], others: frozenset[str]
) -> tuple[float, tuple[str, ...]]:
    """Return how old the first change is that is not captured, and the shards of which some are gone."""
    lag, lost = 0.0, list[str]()
    kind = kind_of(arn)
    with contextlib.closing(kind.open(dynamodb_spec(options), arn)) as source:
        shards = {each.shard_id: each for each in source.shards()}
        lost += [each for each, position in positions.items() if position != END and each not in shards]
        for shard_id, shard in shards.items():
            # One that was not seen yet has everything to come.
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
    """Return when the first change behind a position was made, or None if there seems to be none."""
    iterator: str | None = source.iterator(shard, position)
    for _ in range(_EMPTY_REPLIES):
        if iterator is None:
            return None
        body = source.begin(iterator).result() or b""
        found = kind.record_time.search(body)
        if found is not None:
            return float(found[1])
        iterator = next_iterator(body)
    return None


@dataclass
class _Batches:
    """Gather what the batches of the jobs of a log say."""

    batches: int = 0
    records: int = 0
    files: dict[str, int] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    jumps: list[str] = field(default_factory=list)

    def read(self, state: JobState) -> None:
        """Take the batches of one job."""
        records = BatchRecords(state)
        committed = records.committed
        ends, last, lineage = dict[str, str](), 0, 1
        for record in records.all():
            number = record["batch"]
            if state.kind != CAPTURE:
                self.records += sum(each["rows"] for each in record["files"])
            if number != last + 1:
                self.jumps.append(f"{state.job_id}: batch {last + 1} is missing")
            if lineage_number(record) != lineage:
                # Another stream may have shards of the same names.
                lineage, ends = lineage_number(record), {}
            for each in record["gaps"]:
                # The shard goes on behind the gap, perhaps in a later batch.
                ends.pop(shard_of(each), None)
            for shard, part in record["shards"].items():
                before = ends.get(shard)
                if before is not None and part["after"] != before:
                    self.jumps.append(
                        f"{state.job_id}: batch {number} has {shard} behind {part['after']}, not behind {before}"
                    )
                self.records += part["records"]
                ends[shard] = part["to"]
            for each in record["files"]:
                self.files[each["path"]] = each["rows"]
                self.written_at[each["path"]] = record.get("at", math.inf)
                if number > committed:
                    self.unfinished.add(each["path"])
            last = number
        self.batches += last


def verify_capture(options: CaptureVerifyOptions) -> CaptureVerifyReport:
    """Compare the files of a log with the records of its batches, and count changes that are lost.

    Raises
    ------
    NotFoundError
        If there is no log, or no such job.
    """
    clock, store = Clock(), open_store(options.dest, options)
    number_log(store)
    jobs = jobs_of(store, options.job_id)
    states = [each for each in jobs if HEALS not in (each.head() or {})]
    noted = _Batches()
    for state in jobs:
        noted.read(state)
    named = {path: rows for path, rows in noted.files.items() if _is_within(options, path)}
    spared = noted.unfinished
    if options.since is not None:
        # A file holds no change that is newer than itself.
        earliest = options.since.timestamp() - _CLOCK_SECONDS
        spared |= {path for path, at in noted.written_at.items() if at < earliest}
    history = read_history(store)
    replaced = {path for each in history for path in each.removed}
    made = {path for each in history for path in each.added}
    live = {each.path for each in live_files(store).files}
    entries = {each.path: each for each in store.list() if each.path in live and _is_within(options, each.path)}
    counts, has_images = dict[str, int](), False
    for path, entry in entries.items():
        footer = open_footer(store, entry)
        counts[path] = footer.metadata.num_rows
        has_images |= OLD_IMAGE in footer.schema_arrow.names
    ids = {state.job_id for state in jobs if state.kind == CAPTURE}
    committed = {path for path in (history[-1].paths if history else ()) if _is_within(options, path)}
    missing = sorted({*_missing(named, counts, spared.union(replaced)), *(committed - entries.keys())})
    others = entries.keys() - named.keys() - made
    unknown = sorted(each for each in others if log_job_of(each) in ids)
    wrong = sorted(path for path, rows in counts.items() if named.get(path, rows) != rows)
    gaps = find_gaps([each for each in states if each.kind == CAPTURE])
    audited: dict[str, Any] = {"repeated": 0, "lost": None, "healed": None, "examples": ()}
    if options.images:
        # Of captures by older versions the keys are not known.
        keys = next((each.keys for each in map(read_columns, states) if each is not None and each.keys), ())
        chains = ImageChains(keys) if keys and has_images else None
        audited |= _audit(options, keys, chains, store, [entries[path] for path in sorted(entries)], gaps.healed)
    span = options.since or datetime.min.replace(tzinfo=UTC), options.until or datetime.max.replace(tzinfo=UTC)
    places = [place for each in gaps.gaps if each.has(*span) for place in each.places]
    return CaptureVerifyReport(
        dest=store.uri,
        job_ids=tuple(sorted(state.job_id for state in states)),
        is_whole=not (missing or unknown or wrong or noted.jumps or places or audited["repeated"] or audited["lost"]),
        batches=noted.batches,
        records=noted.records,
        files=len(entries),
        rows=sum(counts.values()),
        missing=tuple(missing),
        unknown=tuple(unknown),
        wrong=tuple(wrong),
        jumps=tuple(noted.jumps),
        gaps=tuple(places),
        healed_gaps=len(gaps.healed),
        **audited,
        **clock.times(),
    )


def _missing(named: Mapping[str, int], counts: Mapping[str, int], spared: set[str]) -> Iterator[str]:
    """Yield the files of batches that are gone; not those of hours that have as many rows in files of a compaction.

    A vacuum deletes the versions that say what a compaction has replaced.
    """
    left, compacted = Counter[str](), set[str]()
    for path, rows in counts.items():
        if path not in named and job_of(path):
            compacted.add(folder_of(path))
            left[folder_of(path)] += rows
    gone = named.keys() - counts.keys() - spared
    for path in gone:
        left[folder_of(path)] -= named[path]
    yield from (each for each in gone if folder_of(each) not in compacted or left[folder_of(each)] < 0)


def _audit(
    options: CaptureVerifyOptions,
    keys: Sequence[str],
    chains: ImageChains | None,
    store: ObjectStore,
    entries: list[StoredObject],
    healed: Sequence[Gap],
) -> dict[str, Any]:
    """Return for the report how many changes repeat, and, by chains of images, before which ones one is missing."""
    found, ids, paths = dict[str, Any](), list[Fingerprints](), list[str]()
    lineages = None if chains is None else FileLineages(store)
    for path, rows in _row_groups(options, store, entries):
        is_healed = HEALED_BY in rows.column_names and is_own(rows.schema.field(HEALED_BY), LOG_COLUMNS)
        own = rows.filter(pc.is_null(rows.column(HEALED_BY))) if is_healed else rows
        ids.append(change_ids(own, keys))
        paths.append(path)
        if chains is not None and lineages is not None:
            chains.add(rows, lineages.of(path))
    if ids:
        ends = np.cumsum([len(each.high) for each in ids])
        # Few logs have a change twice.
        streams = functools.cache(functools.partial(streams_of_files, store))
        every = Fingerprints.joined(ids)
        changes, _ = distinct_changes(every, lambda row: streams().get(paths[int(np.searchsorted(ends, row, "right"))]))
        found["repeated"] = len(every.high) - len(changes)
    if chains is None:
        return found
    breaks = chains.broken()
    lost = [each for each in breaks if not any(gap.has(each.since, each.until) for gap in healed)]
    examples = tuple(f"{each.key} at {each.sequence}" for each in lost[:_SHOWN])
    return {**found, "lost": len(lost), "healed": len(breaks) - len(lost), "examples": examples}


def _row_groups(
    options: CaptureVerifyOptions, store: ObjectStore, entries: list[StoredObject]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield paths and rows of files that are within the options' times, group by group: what is held is one file."""
    for entry in entries:
        read = open_parquet(pa.BufferReader(store.read(entry.path)))
        for group in range(read.num_row_groups):
            rows = within_times(read.read_row_group(group), options.since, options.until)
            if rows.num_rows:
                yield entry.path, rows


def _is_within(options: CaptureVerifyOptions, path: str) -> bool:
    """Return whether the hour of a file reaches into the options' times."""
    hour = hour_of(path)
    if hour is None:
        return True
    is_before = options.since is not None and hour + timedelta(hours=1) <= options.since
    return not is_before and (options.until is None or hour < options.until)
