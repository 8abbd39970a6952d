"""Verify that a lake table holds what the table holds, now or at a time, by digest and by what differs."""

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
    """Hold what a lake table held at a time.

    Attributes
    ----------
    at_us, margin_us
        The time in microseconds since 1970, and how far clocks may be apart.
    recent
        Keys that the version has changes of from behind the time, or from within the margin before it.
    unsettled
        The words of those keys of which nothing tells what they were.
    """

    items: LakeItems
    at_us: int
    margin_us: int
    recent: set[str] = field(default_factory=set)
    unsettled: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _states: list[pa.RecordBatch] = field(default_factory=list)

    def is_settled(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows are of items that have not changed since well before the time."""
        times = rows.column(TIME).fill_null(0).to_numpy()
        is_base = pc.equal(rows.column(VERSION), pa.scalar(BASE)).to_numpy(zero_copy_only=False)
        found: NDArray[np.bool_] = is_base | (times < self.at_us - self.margin_us)
        return found

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the other items as they were."""
        yield from self._rows

    def find_recent(self) -> None:
        """Find the keys of rows that are not settled, and keep their rows."""
        for batch in self.items.rows():
            recent = batch.filter(pa.array(~self.is_settled(batch)))
            if recent.num_rows:
                self.recent.update(map(str, recent.column(KEY).to_pylist()))
                self._add(recent)

    def read_log(self, uri: str, options: ConnectionOptions) -> bool:
        """Gather the states that a log has of recent keys; return whether it has all changes behind the base."""
        store = open_store(uri, options)
        log = open_log(store)
        shape, epochs = self.items.shape, list(self.items.epochs)
        if log.keys() != shape.keys:
            raise OptionError(f"the log {uri} has the key {log.keys()}, and the lake table {shape.keys}")
        columns, written = log_columns(log.schema()), log.written()
        names = item_columns(columns).names
        based_on = hour_folder((base_us(self.items) - LogChanges.slack_us) // _HOUR_US)
        expired = set[str]()

        def is_needless(hour: str) -> bool:
            expired.add(hour)
            return True

        # What was never applied is behind all that was.
        epochs += [each.name for each in log.lineages() if each.name not in epochs]
        for lineage, files in log.parts({}, written):
            epoch = epochs.index(lineage.name) + 1
            for batch in read_changes(store, files, columns, is_needless):
                keys = key_texts(batch.select(names), shape.keys)
                mine = batch.filter(pc.is_in(keys, value_set=self._keys()))
                if mine.num_rows:
                    self._add(rows_of_log(mine, shape, epoch))
        return not expired or max(expired) < based_on

    def read_versions(self) -> bool:
        """Gather the rows that older versions of the table have of recent keys; return whether all can be read."""
        keys, shape = self._keys(), self.items.shape
        buckets = set(buckets_of(keys, shape.buckets).to_pylist())
        files, is_whole = older_files(self.items)
        for each in (file for file in files if file.bucket in buckets):
            try:
                for batch in self.items.rows(None, [each]):
                    mine = batch.filter(pc.is_in(batch.column(KEY), value_set=keys))
                    if mine.num_rows:
                        self._add(mine)
            except NotFoundError:
                is_whole = False
        return is_whole

    def settle(self, source: Iterable[pa.RecordBatch], *, is_whole: bool) -> None:
        """Choose the state of each recent key: the one that the source has, if it is possible, or the likeliest.

        Parameters
        ----------
        source
            The items that the source has of recent keys, at least.
        is_whole
            Whether each key that has no state from before the time was not there.
        """
        hasher = RowHasher(Hashing(self.items.shape.keys, 1.0))
        wanted = dict[int, int]()
        for batch in source:
            rows = hasher.hashed(batch).rows
            wanted |= zip(rows.keys.tolist(), rows.items.tolist(), strict=True)
        states, chosen, unsettled = self._gathered(), list[int](), list[int]()
        if not states.num_rows:
            return
        items = states.select([field.name for field in self.items.item_schema]).cast(self.items.item_schema)
        hashed = [hasher.hashed(batch).rows for batch in items.combine_chunks().to_batches()]
        words = np.concatenate([each.keys for each in hashed]).tolist()
        images = np.concatenate([each.items for each in hashed]).tolist()
        times: list[Any] = states.column(TIME).to_pylist()
        deleted = states.column(DELETED).to_pylist()
        bases = pc.equal(states.column(VERSION), pa.scalar(BASE)).to_pylist()
        cut, last = self.at_us - self.margin_us, self.at_us + self.margin_us
        for places in _by_key(list(map(str, states.column(KEY).to_pylist()))):
            before = [each for each in places if bases[each] or times[each] < cut]
            possible = [*before[-1:], *(each for each in places if each not in before and times[each] <= last)]
            word = words[places[0]]
            if not before and not is_whole:
                unsettled.append(word)
                continue
            absent = not before or any(deleted[each] for each in possible)
            if word in wanted:
                match = [each for each in possible if not deleted[each] and images[each] == wanted[word]]
                if match:
                    chosen.append(match[-1])
                    continue
            elif absent:
                continue
            chosen += [each for each in possible if bases[each] or times[each] <= self.at_us][-1:]
        self._rows = states.take(pa.array(chosen, pa.int64())).combine_chunks().to_batches()
        self.unsettled = np.array(unsettled, np.uint64)

    def leave_out(self) -> None:
        """Take all recent keys for unsettled."""
        hasher = RowHasher(Hashing(self.items.shape.keys, 1.0))
        schema = self.items.item_schema
        words = [np.zeros(0, np.uint64)]
        for batch in self._states:
            columns: list[Any] = [batch.column(field.name) for field in schema]
            words.append(hasher.hashed(pa.RecordBatch.from_arrays(columns, schema=schema)).rows.keys)
        self.unsettled = np.unique(np.concatenate(words))

    def recent_words(self) -> Words:
        """Return the words of all recent keys."""
        self.leave_out()
        found, self.unsettled = self.unsettled, np.zeros(0, np.uint64)
        return found

    def _keys(self) -> Any:
        return pa.array(sorted(self.recent), pa.string())

    def _add(self, rows: pa.RecordBatch) -> None:
        """Keep rows of recent keys, whatever other columns they come with."""
        schema = pa.schema([*(each for each in OWN_FIELDS if each.name != BUCKET), *self.items.item_schema])
        columns: list[Any] = [rows.column(field.name) for field in schema]
        self._states.append(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _gathered(self) -> pa.Table:
        """Return the states of recent keys in the order of keys and versions, each once."""
        if not self._states:
            return pa.table({})
        found = pa.Table.from_batches(self._states)
        found = found.take(pc.sort_indices(found, sort_keys=[(KEY, "ascending"), (VERSION, "ascending")]))
        keys, versions = found.column(KEY).to_pylist(), found.column(VERSION).to_pylist()
        pairs = list(zip(keys, versions, strict=True))
        first = [place == 0 or pairs[place - 1] != pair for place, pair in enumerate(pairs)]
        return found.filter(pa.array(first, pa.bool_()))


def older_files(items: LakeItems) -> tuple[list[LakeFile], bool]:
    """Return the files that only older versions of a table have, and whether all versions since its first are there."""
    known, found, state = {each.path for each in items.state.files}, list[Any](), items.state
    while (version := items.table.before(state)) is not None:
        try:
            older = items.table.load(version)
        except NotFoundError:
            return found, False
        if older is None:
            return found, False
        for each in older.files:
            if each.path not in known:
                known.add(each.path)
                found.append(each)
        state = older
    return found, True


def base_us(items: LakeItems) -> int:
    """Return when the base load of a table began; 0 if it has none."""
    return items.table.position(items.state, BASE_LOAD)


def _by_key(keys: list[str]) -> Iterator[list[int]]:
    """Yield the places of each key, of keys in order."""
    start = 0
    for place in range(1, len(keys) + 1):
        if place == len(keys) or keys[place] != keys[start]:
            yield list(range(start, place))
            start = place


_LOG = logging.getLogger("ddbio.verify")
_MICROS = 1_000_000


@dataclass(frozen=True)
class VerifyReport(ValidationReport):
    """Say whether a lake table holds what the table holds, and what differs.

    The source is the table or its export, the target the lake table; the fields of both are as of a validation.

    Attributes
    ----------
    at
        Time as of which they were compared, in ISO 8601; null is now.
    version
        Version of the lake table that was read.
    tombstones
        Its rows of deleted items, which are left out.
    recent
        Items that have changed since shortly before the time: the log has told what they were.
    unsettled
        Those of them that nothing tells of; they were not compared.
    """

    at: str | None = None
    version: int = 0
    tombstones: int = 0
    recent: int = 0
    unsettled: int = 0


def verify(options: VerifyOptions) -> VerifyReport:
    """Return whether a table of a lake holds what the DynamoDB table holds, now or as of a time, and what differs.

    Raises
    ------
    NotFoundError
        If there is no such table, export or lake table.
    OptionError
        If a time is given and neither an export of it nor where one may go; or if the base of the lake table is newer.
    ExportIncompleteError
        If the export is damaged.
    """
    items = open_items(options.target, options, options.format, options.version)
    if options.at is None and not _is_export(options):
        side = LakeSide(options.target, items)
        return _report(validate(_validation(options), options.table, side), items, side, None, None)
    # What cannot be verified is told before an export is paid for.
    if options.log is not None:
        open_log(open_store(options.log, options))
    if options.at is not None:
        _require_base(options, items, options.at if _is_export(options) else options.at.replace(microsecond=0))
    folder = options.table if _is_export(options) else _export(options)
    at = _time_of(folder, options)
    # The service may cut the times of exports to whole seconds.
    if options.at is not None and abs(options.at - at) >= timedelta(seconds=1):
        raise OptionError(
            f"{folder} holds the state of {at.isoformat()}, not of {options.at.isoformat()}: leave at out"
        )
    _require_base(options, items, at)
    at_us = round(at.timestamp() * _MICROS)
    given = _validation(options)
    source = ExportWithout(folder, given, options)
    state = StateAt(items, at_us, round(options.margin_seconds * _MICROS))
    state.find_recent()
    if state.recent:
        _LOG.info("%s: %d items have changed since %s", options.target, len(state.recent), at.isoformat())
        _settle(options, state, source, items)
        source.without = state.unsettled
    side = LakeSide(options.target, items, state)
    return _report(validate(given, source, side), items, side, state, at)


def _require_base(options: VerifyOptions, items: LakeItems, at: datetime) -> None:
    """Refuse a time before the base of the lake table began."""
    if base_us(items) > round(at.timestamp() * _MICROS):
        began = datetime.fromtimestamp(base_us(items) / _MICROS, UTC)
        raise OptionError(
            f"the base of {options.target} was loaded at {began.isoformat()}, after {at.isoformat()}: what it held "
            "then is not there; verify it as of a later time"
        )


def _settle(options: VerifyOptions, state: StateAt, source: ExportWithout, items: LakeItems) -> None:
    """Find out what recent items were at the time; without a log nothing tells."""
    if options.log is None:
        state.leave_out()
        return
    words = state.recent_words()
    is_whole = state.read_log(options.log, options)
    if base_us(items):
        is_whole &= state.read_versions()
    reading = Reading(items.item_schema, items.key_types, "merge")

    def mine() -> Iterator[pa.RecordBatch]:
        for batch in source.batches(reading):
            is_mine = np.isin(key_words(batch, tuple(reading.keys)), words)
            if is_mine.any():
                yield batch.filter(pa.array(is_mine))

    state.settle(mine(), is_whole=is_whole)


def _validation(options: VerifyOptions) -> ValidateOptions:
    names = ("max_units", "max_seconds", "max_usd", "prices", "examples", "consistent", "rcu_per_second", "read_ratio")
    wanted: dict[str, Any] = {name: getattr(options, name) for name in names}
    given = {**connection_of(options), **wanted, "source": options.table, "target": options.target}
    return parse_options(ValidateOptions, given)


def _report(
    found: ValidationReport, items: LakeItems, side: LakeSide, state: StateAt | None, at: datetime | None
) -> VerifyReport:
    values = {field.name: getattr(found, field.name) for field in dataclasses.fields(ValidationReport)}
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
    return any(each.path == f"{SUMMARY}.json" for each in open_store(options.table, options).list(SUMMARY))


def _time_of(folder: str, options: VerifyOptions) -> datetime:
    text = open_export(folder, options).summary.export_time
    if text is None:
        raise OptionError(f"{folder} does not say of which time its items are: give a full export of the service")
    return datetime.fromisoformat(text)


def _export(options: VerifyOptions) -> str:
    """Ask the service for the full export as of the second of the time; the same again is the same export."""
    at = options.at
    if options.export_to is None or at is None:
        raise OptionError(
            "export_to is missing, an s3:// prefix for the full export as of that time; or give the folder of one that "
            "is there in place of the table"
        )
    at = at.replace(microsecond=0)
    token = hashlib.sha256(f"{options.table} {options.export_to} {at.isoformat()}".encode()).hexdigest()
    limits = {name: getattr(options, name) for name in ("max_seconds", "max_usd", "prices")}
    given = {**export_connection_of(options), **limits, "table": options.table, "dest": options.export_to}
    job = EXPORT.start(parse_options(ExportStartOptions, {**given, "at": at, "client_token": token}))
    waiting = {name: getattr(options, name) for name in ("wait_seconds", "poll_seconds")}
    done = EXPORT.wait(parse_options(WaitOptions, {**connection_of(options), **waiting, "arn": job.arn}))
    return done.uri or ""
