"""Verification that a lake table has the same items as its DynamoDB table, now or as of a time."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_reader import open_log, read_changes
from ddbio.cdc.log_rows import hour_folder
from ddbio.errors import NotFoundError, OptionError
from ddbio.export.exports import EXPORT
from ddbio.export.options import ExportStartOptions, WaitOptions
from ddbio.formats.export_manifest import SUMMARY
from ddbio.formats.lake_columns import BUCKET, DELETED, KEY, OWN_FIELDS, TIME, VERSION
from ddbio.items.key_hashes import key_words
from ddbio.jobs.stores import open_store
from ddbio.lake.changes import LogChanges
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.keys import BASE, buckets_of, key_texts
from ddbio.lake_formats.rows import item_columns, log_columns, rows_of_log
from ddbio.lake_formats.table import BASE as BASE_LOAD
from ddbio.options import connection_of, export_connection_of, parse_options
from ddbio.sources.export_source import open_export
from ddbio.validation.comparison import ValidationReport
from ddbio.validation.lake_side import ExportWithout, LakeSide
from ddbio.validation.options import ValidateOptions
from ddbio.validation.sides import Reading
from ddbio.validation.sums import Hashing, RowHasher
from ddbio.validation.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.lake.options import VerifyOptions
    from ddbio.lake_formats.items import LakeItems

_HOUR_US = 3_600_000_000

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ddbio.items.key_hashes import Words
    from ddbio.lake_formats.items import LakeItems
    from ddbio.lake_formats.table import LakeFile
    from ddbio.options import ConnectionOptions


@dataclass
class StateAt:
    """The items of a lake table as of a time.

    Attributes
    ----------
    at_us, margin_us
        The time in microseconds since 1970, and the tolerance for clock differences.
    recent
        Keys with changes after the time, or within the margin before it.
    unsettled
        The key words of recent items whose state at the time is unknown.
    """

    items: LakeItems
    at_us: int
    margin_us: int
    recent: set[str] = field(default_factory=set)
    unsettled: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _states: list[pa.RecordBatch] = field(default_factory=list)

    def is_settled(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the mask of rows whose items were last changed before the margin."""
        times = rows.column(TIME).fill_null(0).to_numpy()
        is_base = pc.equal(rows.column(VERSION), pa.scalar(BASE)).to_numpy(zero_copy_only=False)
        mask: NDArray[np.bool_] = is_base | (times < self.at_us - self.margin_us)
        return mask

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the recent items as of the time."""
        yield from self._rows

    def find_recent(self) -> None:
        """Find the keys of unsettled rows, and store these rows."""
        for batch in self.items.rows():
            recent = batch.filter(pa.array(~self.is_settled(batch)))
            if recent.num_rows:
                self.recent.update(map(str, recent.column(KEY).to_pylist()))
                self._add(recent)

    def read_log(self, uri: str, options: ConnectionOptions) -> bool:
        """Collect the states of recent keys in a log; return whether the log has all changes since the base load."""
        store = open_store(uri, options)
        log = open_log(store)
        shape, epochs = self.items.shape, list(self.items.epochs)
        if log.keys() != shape.keys:
            raise OptionError(f"the log {uri} has the key {log.keys()}, but the lake table has {shape.keys}")
        columns, written = log_columns(log.schema()), log.written()
        names = item_columns(columns).names
        based_on = hour_folder((base_us(self.items) - LogChanges.slack_us) // _HOUR_US)
        expired = set[str]()

        def note_missing_hour(hour: str) -> bool:
            expired.add(hour)
            return True

        # Streams that were never applied follow all applied ones.
        epochs += [lineage.name for lineage in log.lineages() if lineage.name not in epochs]
        for lineage, files in log.parts({}, written):
            epoch = epochs.index(lineage.name) + 1
            for batch in read_changes(store, files, columns, note_missing_hour):
                keys = key_texts(batch.select(names), shape.keys)
                selected = batch.filter(pc.is_in(keys, value_set=self._keys()))
                if selected.num_rows:
                    self._add(rows_of_log(selected, shape, epoch))
        return not expired or max(expired) < based_on

    def read_versions(self) -> bool:
        """Collect the rows of recent keys in older versions of the table; return whether all versions can be read."""
        keys, shape = self._keys(), self.items.shape
        buckets = set(buckets_of(keys, shape.buckets).to_pylist())
        files, is_whole = older_files(self.items)
        for older_file in (file for file in files if file.bucket in buckets):
            try:
                for batch in self.items.rows(None, [older_file]):
                    selected = batch.filter(pc.is_in(batch.column(KEY), value_set=keys))
                    if selected.num_rows:
                        self._add(selected)
            except NotFoundError:
                is_whole = False
        return is_whole

    def settle(self, source: Iterable[pa.RecordBatch], *, is_whole: bool) -> None:
        """Choose the state of each recent key: the state of the source if it is possible, else the most likely one.

        Parameters
        ----------
        source
            The items of the source that include all recent keys.
        is_whole
            Whether the collected states are complete, so that a key without an older state did not exist at the time.
        """
        hasher = RowHasher(Hashing(self.items.shape.keys, 1.0))
        source_items = dict[int, int]()
        for batch in source:
            rows = hasher.hashed(batch).rows
            source_items |= zip(rows.keys.tolist(), rows.items.tolist(), strict=True)
        states, chosen, unsettled = self._gathered(), list[int](), list[int]()
        if not states.num_rows:
            return
        items = states.select([field.name for field in self.items.item_schema]).cast(self.items.item_schema)
        hashed = [hasher.hashed(batch).rows for batch in items.combine_chunks().to_batches()]
        words = np.concatenate([hashed_rows.keys for hashed_rows in hashed]).tolist()
        images = np.concatenate([hashed_rows.items for hashed_rows in hashed]).tolist()
        times: list[Any] = states.column(TIME).to_pylist()
        deleted = states.column(DELETED).to_pylist()
        bases = pc.equal(states.column(VERSION), pa.scalar(BASE)).to_pylist()
        cut, last = self.at_us - self.margin_us, self.at_us + self.margin_us
        for indices in _by_key(list(map(str, states.column(KEY).to_pylist()))):
            before = [index for index in indices if bases[index] or times[index] < cut]
            possible = [*before[-1:], *(index for index in indices if index not in before and times[index] <= last)]
            word = words[indices[0]]
            if not before and not is_whole:
                unsettled.append(word)
                continue
            absent = not before or any(deleted[index] for index in possible)
            if word in source_items:
                match = [index for index in possible if not deleted[index] and images[index] == source_items[word]]
                if match:
                    chosen.append(match[-1])
                    continue
            elif absent:
                continue
            chosen += [index for index in possible if bases[index] or times[index] <= self.at_us][-1:]
        self._rows = states.take(pa.array(chosen, pa.int64())).combine_chunks().to_batches()
        self.unsettled = np.array(unsettled, np.uint64)

    def mark_unsettled(self) -> None:
        """Mark all recent keys as unsettled."""
        hasher = RowHasher(Hashing(self.items.shape.keys, 1.0))
        schema = self.items.item_schema
        words = [np.zeros(0, np.uint64)]
        for batch in self._states:
            columns: list[Any] = [batch.column(field.name) for field in schema]
            words.append(hasher.hashed(pa.RecordBatch.from_arrays(columns, schema=schema)).rows.keys)
        self.unsettled = np.unique(np.concatenate(words))

    def recent_words(self) -> Words:
        """Return the words of all recent keys."""
        self.mark_unsettled()
        words, self.unsettled = self.unsettled, np.zeros(0, np.uint64)
        return words

    def _keys(self) -> Any:
        return pa.array(sorted(self.recent), pa.string())

    def _add(self, rows: pa.RecordBatch) -> None:
        """Store rows of recent keys, without other columns."""
        schema = pa.schema([*(field for field in OWN_FIELDS if field.name != BUCKET), *self.items.item_schema])
        columns: list[Any] = [rows.column(field.name) for field in schema]
        self._states.append(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _gathered(self) -> pa.Table:
        """Return the distinct states of recent keys, ordered by key and version."""
        if not self._states:
            return pa.table({})
        states = pa.Table.from_batches(self._states)
        states = states.take(pc.sort_indices(states, sort_keys=[(KEY, "ascending"), (VERSION, "ascending")]))
        keys, versions = states.column(KEY).to_pylist(), states.column(VERSION).to_pylist()
        pairs = list(zip(keys, versions, strict=True))
        first = [index == 0 or pairs[index - 1] != pair for index, pair in enumerate(pairs)]
        return states.filter(pa.array(first, pa.bool_()))


def older_files(items: LakeItems) -> tuple[list[LakeFile], bool]:
    """Return the files that only older versions of a table have, and whether all versions can be read."""
    paths, files, state = {file.path for file in items.state.files}, list[Any](), items.state
    while (version := items.table.before(state)) is not None:
        try:
            older = items.table.load(version)
        except NotFoundError:
            return files, False
        if older is None:
            return files, False
        for file in older.files:
            if file.path not in paths:
                paths.add(file.path)
                files.append(file)
        state = older
    return files, True


def base_us(items: LakeItems) -> int:
    """Return the start of the base load of a table; 0 without a base."""
    return items.table.position(items.state, BASE_LOAD)


def _by_key(keys: list[str]) -> Iterator[list[int]]:
    """Yield the indices of each key in a sorted list of keys."""
    start = 0
    for index in range(1, len(keys) + 1):
        if index == len(keys) or keys[index] != keys[start]:
            yield list(range(start, index))
            start = index


_LOG = logging.getLogger("ddbio.verify")
_MICROS = 1_000_000


@dataclass(frozen=True)
class VerifyReport(ValidationReport):
    """Result of the comparison of a lake table with a DynamoDB table.

    The source is the table or its export, and the target is the lake table; the fields are those of a validation.

    Attributes
    ----------
    at
        Time as of which they were compared, in ISO 8601; null means now.
    version
        Version of the lake table that was read.
    tombstones
        Rows of deleted items in the lake table, which are left out.
    recent
        Items that changed after the time, or shortly before it; their state at the time comes from the log.
    unsettled
        Recent items whose state is unknown; they were not compared.
    """

    at: str | None = None
    version: int = 0
    tombstones: int = 0
    recent: int = 0
    unsettled: int = 0


def verify(options: VerifyOptions) -> VerifyReport:
    """Compare a lake table with its DynamoDB table, now or as of a time, and return the differences.

    Raises
    ------
    NotFoundError
        If there is no such table, export or lake table.
    OptionError
        If ``at`` is set without an export or ``export_to``; or if the base of the lake table is newer.
    ExportIncompleteError
        If the export is damaged.
    """
    items = open_items(options.target, options, options.format, options.version)
    if options.at is None and not _is_export(options):
        side = LakeSide(options.target, items)
        return _report(validate(_validation(options), options.table, side), items, side, None, None)
    # Invalid inputs are reported before an export is paid for.
    if options.log is not None:
        open_log(open_store(options.log, options))
    if options.at is not None:
        _require_base(options, items, options.at if _is_export(options) else options.at.replace(microsecond=0))
    folder = options.table if _is_export(options) else _export(options)
    at = _time_of(folder, options)
    # The service may truncate the times of exports to whole seconds.
    if options.at is not None and abs(options.at - at) >= timedelta(seconds=1):
        raise OptionError(
            f"{folder} has the state of {at.isoformat()}, not of {options.at.isoformat()}: omit the option at"
        )
    _require_base(options, items, at)
    at_us = round(at.timestamp() * _MICROS)
    validation = _validation(options)
    source = ExportWithout(folder, validation, options)
    state = StateAt(items, at_us, round(options.margin_seconds * _MICROS))
    state.find_recent()
    if state.recent:
        _LOG.info("%s: %d items have changed since %s", options.target, len(state.recent), at.isoformat())
        _settle(options, state, source, items)
        source.without = state.unsettled
    side = LakeSide(options.target, items, state)
    return _report(validate(validation, source, side), items, side, state, at)


def _require_base(options: VerifyOptions, items: LakeItems, at: datetime) -> None:
    """Raise if the time is before the base load of the lake table."""
    if base_us(items) > round(at.timestamp() * _MICROS):
        began = datetime.fromtimestamp(base_us(items) / _MICROS, UTC)
        raise OptionError(
            f"the base of {options.target} was loaded at {began.isoformat()}, after {at.isoformat()}: an older state "
            "is not stored; verify it as of a later time"
        )


def _settle(options: VerifyOptions, state: StateAt, source: ExportWithout, items: LakeItems) -> None:
    """Determine the state of recent items at the time; without a log they stay unsettled."""
    if options.log is None:
        state.mark_unsettled()
        return
    words = state.recent_words()
    is_whole = state.read_log(options.log, options)
    if base_us(items):
        is_whole &= state.read_versions()
    reading = Reading(items.item_schema, items.key_types, "merge")

    def recent_batches() -> Iterator[pa.RecordBatch]:
        for batch in source.batches(reading):
            is_recent = np.isin(key_words(batch, tuple(reading.keys)), words)
            if is_recent.any():
                yield batch.filter(pa.array(is_recent))

    state.settle(recent_batches(), is_whole=is_whole)


def _validation(options: VerifyOptions) -> ValidateOptions:
    names = ("max_units", "max_seconds", "max_usd", "prices", "examples", "consistent", "rcu_per_second", "read_ratio")
    named_options: dict[str, Any] = {name: getattr(options, name) for name in names}
    values = {**connection_of(options), **named_options, "source": options.table, "target": options.target}
    return parse_options(ValidateOptions, values)


def _report(
    validation: ValidationReport, items: LakeItems, side: LakeSide, state: StateAt | None, at: datetime | None
) -> VerifyReport:
    values = {field.name: getattr(validation, field.name) for field in dataclasses.fields(ValidationReport)}
    return VerifyReport(
        **values,
        at=None if at is None else at.isoformat(),
        version=items.state.version,
        tombstones=side.deleted,
        recent=0 if state is None else len(state.recent),
        unsettled=0 if state is None else len(state.unsettled),
    )


def _is_export(options: VerifyOptions) -> bool:
    if options.table.startswith("arn:") or "/" not in options.table:
        return False
    return any(entry.path == f"{SUMMARY}.json" for entry in open_store(options.table, options).list(SUMMARY))


def _time_of(folder: str, options: VerifyOptions) -> datetime:
    summary = open_export(folder, options).summary
    if summary.filtered:
        raise OptionError(f"{folder} is filtered: verify against an export of all items and attributes")
    text = summary.export_time
    if text is None:
        raise OptionError(f"{folder} does not contain the time of its items: use a full export of the service")
    return datetime.fromisoformat(text)


def _export(options: VerifyOptions) -> str:
    """Return the full export as of the time, in whole seconds; the same call again returns the same export."""
    at = options.at
    if options.export_to is None or at is None:
        raise OptionError(
            "export_to is missing: set it to an s3:// prefix for the full export as of that time, or pass the folder "
            "of an existing full export as the table"
        )
    at = at.replace(microsecond=0)
    token = hashlib.sha256(f"{options.table} {options.export_to} {at.isoformat()}".encode()).hexdigest()
    limits = {name: getattr(options, name) for name in ("max_seconds", "max_usd", "prices")}
    values = {**export_connection_of(options), **limits, "table": options.table, "dest": options.export_to}
    job = EXPORT.start(parse_options(ExportStartOptions, {**values, "at": at, "client_token": token}))
    waiting = {name: getattr(options, name) for name in ("wait_seconds", "poll_seconds")}
    done = EXPORT.wait(parse_options(WaitOptions, {**connection_of(options), **waiting, "arn": job.arn}))
    return done.uri or ""
