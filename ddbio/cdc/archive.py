"""Archive of the items that the time to live has deleted, made from the log of a table's changes.

Each change is archived once.

The record of a batch is written first. It lists the changes of each hour that the batch archives. Its files follow, by
the month of expiry, with conditional writes. A run that reads a record whose files may be missing writes them again
from the log.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.aws.control_plane import describe_table, read_table_definition
from ddbio.cdc.batches import write_log_file
from ddbio.cdc.capture import capture, options_of_capture
from ddbio.cdc.log_jobs import has_old_images, jobs_in, jobs_of
from ddbio.cdc.log_order import (
    change_ids,
    distinct_changes,
    id_texts,
    in_order,
    in_time_order,
    last_of_each,
    within_times,
)
from ddbio.cdc.log_reader import streams_of_files
from ddbio.cdc.options import CaptureOptions
from ddbio.commit.committer import Claim
from ddbio.commit.contents import require_target
from ddbio.commit.snapshot import LiveFile, live_files
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.export.options import ExportReadOptions
from ddbio.export.read import read_export_batches
from ddbio.formats.log_columns import (
    ARCHIVE_COLUMNS,
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    EXPIRED_AT,
    INFERRED,
    LOG_COLUMNS,
    OLD_IMAGE,
    OLD_RESCUE,
    OPERATION,
    SEQUENCE,
)
from ddbio.formats.parquet_input import open_parquet, read_parquet
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.items.item_key import Fingerprints, key_columns, key_values
from ddbio.items.joined_items import joined_items
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import int64_array
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field
from ddbio.items.schema.own_names import beside, columns_of, is_own, item_fields
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.report import Clock, JobReport
from ddbio.jobs.stores import open_store
from ddbio.load.load import write_table
from ddbio.load.options import WriteOptions
from ddbio.options import connection_of, parse_options
from ddbio.options.parsing import fixed_options
from ddbio.scan.options import ScanOptions
from ddbio.scan.read import scan_batches
from ddbio.sources.data_files import is_data
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.cdc.options import ArchiveOptions, ArchiveRestoreOptions, ExpiredReadOptions
    from ddbio.jobs.estimate import Figures
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html: items that
# expired more than five years ago are never deleted.
_NEVER_SECONDS: Final = 5 * 365 * 86_400
_KEPT = (SEQUENCE, EVENT_ID, EVENT_TIME)
_ONLY_SECONDS = pa.timestamp("us", "UTC")
# The last second of the year 9999.
_MAX_SECONDS = 253_402_300_799.0
_MICROS = 1_000_000


def expiry_seconds(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> Any:
    """Return a column of expiry times in seconds as doubles. Only numbers count; other values are null.

    Raises
    ------
    OptionError
        If the column does not have a numeric type.
    """
    if not is_number(values.type):
        raise OptionError(f"a column of {values.type} has no expiry times: the time to live is a number of seconds")
    # Integers that a double cannot represent exactly are not realistic times, and no reason to fail.
    return values.cast(pa.float64(), safe=False)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column of a type has numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_expired(seconds: Any, at: Any) -> Any:
    """Return whether items with these expiry times are expired at a time, but not for more than five years.

    DynamoDB never deletes items that expired more than five years ago.
    """
    since = pc.subtract(at, float(_NEVER_SECONDS))
    return pc.fill_null(pc.and_(pc.less_equal(seconds, at), pc.greater(seconds, since)), False)  # noqa: FBT003 - the value


def expired_rows(rows: pa.Table, ttl: str | None, *, infers: bool) -> pa.Table:
    """Return the deletes by the time to live in the rows of a log, as items with the time at which they expired.

    Parameters
    ----------
    ttl
        The attribute with the expiry time; None uses the time of the delete instead.
    infers
        Whether to include deletes of expired items that the log does not mark as expired: replicas of a global table
        get the deletes of other Regions as ordinary ones.

    Raises
    ------
    OptionError
        If the rows have no old images, or no numeric value of that attribute.
    """
    if OLD_IMAGE not in rows.column_names:
        raise OptionError("the log has no old images, which an archive needs: capture with old_image")
    # Filter only once, at the end: each filter copies whole items.
    is_delete: Any = pc.equal(rows.column(OPERATION), pa.scalar("REMOVE"))
    has_image: Any = pc.is_valid(rows.column(OLD_IMAGE))
    times: Any = rows.column(EVENT_TIME).cast(_ONLY_SECONDS).cast(pa.int64())
    deleted_at: Any = pc.divide(times, _MICROS).cast(pa.float64())
    marked: Any = rows.column(EXPIRED)
    seconds: Any = deleted_at
    if ttl is not None:
        due = _expiry_of(rows, ttl)
        if infers:
            marked = pc.or_(marked, is_expired(due, deleted_at))
        is_time: Any = pc.and_(pc.greater_equal(due, pa.scalar(0.0)), pc.less_equal(due, pa.scalar(_MAX_SECONDS)))
        seconds = pc.if_else(is_time.fill_null(False), due, deleted_at)  # noqa: FBT003 - the value
    elif infers:
        raise OptionError("expired items are recognized by the attribute with the expiry time: give ttl")
    inferred = pc.and_not(marked, rows.column(EXPIRED))
    whole_seconds: Any = seconds.cast(pa.int64(), safe=False)
    at: Any = pc.multiply(whole_seconds, _MICROS).cast(_ONLY_SECONDS)
    # An older release may have an attribute column with the same name.
    own = [name for name in _KEPT if name in rows.column_names and is_own(rows.schema.field(name), LOG_COLUMNS)]
    expired = (
        rows.select([*own, OLD_IMAGE, OLD_RESCUE])
        .append_column(pa.field(EXPIRED_AT, _ONLY_SECONDS), at)
        .append_column(pa.field(INFERRED, pa.bool_()), inferred)
        .filter(pc.and_(pc.and_(is_delete, has_image), marked))
    )
    return _items(expired)


def without_image(rows: pa.Table) -> int:
    """Return the number of deletes by the time to live in the rows of a log whose old image is missing."""
    is_marked: Any = pc.and_(pc.equal(rows.column(OPERATION), pa.scalar("REMOVE")), rows.column(EXPIRED))
    if OLD_IMAGE in rows.column_names:
        is_marked = pc.and_(is_marked, pc.is_null(rows.column(OLD_IMAGE)))
    return int(pc.sum(is_marked).as_py() or 0)


def has_expiry(rows: pa.Table, ttl: str) -> bool:
    """Return whether rows of a log can have expiry times: a numeric column for the attribute, or rescued values."""
    field = _image_field(rows, ttl)
    return (field is not None and is_number(field.type)) or bool(pc.any(_is_rescued(rows, ttl)).as_py())


def without_attributes(items: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return items without some attributes. They are also removed from the rescue column."""
    items = items.drop_columns([field.name for field in items.schema if name_of_field(field) in names])
    column = items.schema.get_field_index(RESCUE_NAME)
    texts = [None if text is None else json.loads(text) for text in items.column(column).to_pylist()]
    if any(text is not None and not text.keys().isdisjoint(names) for text in texts):
        remaining = [{name: value for name, value in (text or {}).items() if name not in names} for text in texts]
        rescue = pa.array([compact_json(attributes) if attributes else None for attributes in remaining], pa.string())
        items = items.set_column(column, RESCUE_FIELD, rescue)
    return items


def _is_rescued(rows: pa.Table, ttl: str) -> Any:
    """Return a mask of the old images that may have an attribute in their rescue column."""
    return pc.match_substring(rows.column(OLD_RESCUE), json.dumps(ttl, ensure_ascii=False))


def _expiry_of(rows: pa.Table, ttl: str) -> Any:
    """Return the expiry times of old images in seconds, from the column of the attribute or from the rescue column."""
    images, is_rescued = rows.column(OLD_IMAGE), _is_rescued(rows, ttl)
    field = _image_field(rows, ttl)
    is_found = bool(pc.any(is_rescued).as_py())
    if field is None and not is_found:
        raise OptionError(f"no item of the log has the attribute {ttl!r}")
    own: Any = pa.nulls(rows.num_rows, pa.float64())
    if field is not None and (is_number(field.type) or not is_found):
        own = expiry_seconds(pc.struct_field(images, field.name))
    if not is_found:
        return own
    texts = pc.if_else(is_rescued, rows.column(OLD_RESCUE), None).to_pylist()
    return pc.coalesce(own, pa.array([_number_of(text, ttl) for text in texts], pa.float64()))


def _image_field(rows: pa.Table, attribute: str) -> pa.Field[Any] | None:
    """Return the field of an attribute in the old images, or None if there is none."""
    fields: list[pa.Field[Any]] = list(rows.schema.field(OLD_IMAGE).type)
    return next((field for field in fields if name_of_field(field) == attribute), None)


def _number_of(text: str | None, name: str) -> float | None:
    """Return an attribute in the text of a rescue column if it is a number, or None."""
    number = None if text is None else json.loads(text).get(name, {}).get("N")
    return None if number is None else float(number)


def _items(rows: pa.Table) -> pa.Table:
    """Return the old images as items, with the columns that identify their changes, and with their times."""
    images: Any = rows.column(OLD_IMAGE).combine_chunks()
    fields: list[pa.Field[Any]] = list(rows.schema.field(OLD_IMAGE).type)
    columns: list[Any] = images.flatten() if rows.num_rows else [pa.array([], field.type) for field in fields]
    own = [name for name in rows.column_names if name not in {OLD_IMAGE, OLD_RESCUE}]
    return pa.Table.from_arrays(
        [*(rows.column(name) for name in own), *columns, rows.column(OLD_RESCUE)],
        schema=pa.schema([*(rows.schema.field(name) for name in own), *beside(fields, ARCHIVE_COLUMNS), RESCUE_FIELD]),
    )


def months_of(rows: pa.Table) -> dict[str, pa.Table]:
    """Return rows by the folder of the month in which they expired."""
    months: Any = pc.floor_temporal(rows.column(EXPIRED_AT), unit="month")
    starts = sorted(pc.unique(months).to_pylist())
    parts = [rows] if len(starts) == 1 else [rows.filter(pc.equal(months, pa.scalar(at, months.type))) for at in starts]
    return {f"year={at:%Y}/month={at:%m}/": part for at, part in zip(starts, parts, strict=True)}


def in_key_range(rows: pa.Table, keys: Sequence[str], first: Sequence[Any], last: Sequence[Any]) -> pa.Table:
    """Return the rows whose key is between two keys, both included.

    A shorter key matches all keys that start with it.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    lowest, highest, is_in_range = list(first), list(last), np.zeros(rows.num_rows, np.bool_)
    for indices, columns in key_columns(rows, keys):
        row_keys = [list(key) for key in zip(*key_values(columns), strict=True)]
        is_in_range[indices] = [lowest <= key[: len(lowest)] and key[: len(highest)] <= highest for key in row_keys]
    return rows.filter(pa.array(is_in_range))


_KIND, _DONE = "archive", "done"
_COLUMNS = [OPERATION, SEQUENCE, EVENT_ID, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE]
# No attribute has this name.
_CHANGE = ""
_ROW_TYPES: dict[str, pa.DataType] = {
    SEQUENCE: pa.string(),
    _CHANGE: pa.string(),
    EVENT_TIME: pa.timestamp("us", "UTC"),
}
_NO_ROWS = pa.schema(_ROW_TYPES).empty_table()
# How changes are identified. Hours that were read with another identification are read again.
_MARKED_BY = "change ids"


@dataclass(frozen=True, kw_only=True)
class ArchiveReport(JobReport):
    """Result of an archive run.

    Attributes
    ----------
    source, dest
        The log, and the folder of the archive.
    job_id
        The id of the archive. A later run with the same id resumes it.
    items
        Items that this run archived.
    inferred
        The number of these items that the log does not mark as deleted by the time to live.
    lost
        Items that the time to live has deleted in the hours that this run has read, and whose old images are missing:
        the log was captured without old images then.
    files
        Files that this run wrote.
    hours
        Hours of the log that had new items.
    """

    source: str
    dest: str
    job_id: str
    items: int
    inferred: int
    files: int
    hours: int
    lost: int = 0


@dataclass(frozen=True, kw_only=True)
class ArchiveRestoreReport(JobReport):
    """Result of restoring archived items into a table.

    Attributes
    ----------
    source, table
        The archive and the table.
    items
        Items that were chosen, each in its state when it last expired.
    written
        Items that were written.
    skipped
        Items that the table has, and that were not changed.
    wcu_consumed
        Write units the service charged.
    actual
        Units, seconds and USD of the writes.
    """

    source: str
    table: str
    items: int
    written: int
    skipped: int
    wcu_consumed: float = 0.0
    actual: Figures | None = None


@dataclass
class Archiver:
    """The log, the archive, and the archived parts of the log. Errors are those of :func:`archive`.

    Attributes
    ----------
    batch_bytes
        The size in Arrow format from which gathered items are written as a batch.
    items, inferred, files
        The counts of this run.
    lost
        Deletes by the time to live without an old image, in the hours that this run has read.
    """

    log: ObjectStore
    state: JobState
    ttl: str | None
    infers: bool = False
    compression: Compression = "zstd"
    batch_bytes: int = 128 * 1024 * 1024
    number: int = 0
    items: int = 0
    inferred: int = 0
    files: int = 0
    lost: int = 0
    knows_ttl: bool = False
    """Whether this run has seen a numeric value of the attribute."""
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By hour: the live files when it was last read, and the batches that archived changes of it."""
    _last_written: tuple[int, frozenset[str]] = (0, frozenset())

    def run(self) -> int:
        """Archive the new items. Return the number of hours of the log that had some."""
        self._resume()
        hours = defaultdict[str, list[LiveFile]](list)
        for file in live_files(self.log).files:
            hours[file.path.rpartition("/")[0]].append(file)
        rows_by_hour, marks, count = dict[str, pa.Table](), dict[str, str](), 0
        for hour, files in sorted(hours.items()):
            mark = _mark(files)
            if self.seen.get(hour, {}).get("mark") == mark:
                continue
            marks[hour], rows = mark, self._new_rows(hour, files)
            if rows.num_rows:
                rows_by_hour[hour], count = rows, count + 1
            if sum(table.nbytes for table in rows_by_hour.values()) >= self.batch_bytes:
                self._append(rows_by_hour, marks)
                rows_by_hour, marks = {}, {}
        self._append(rows_by_hour, marks)
        return count

    def _new_rows(self, hour: str, files: Sequence[LiveFile]) -> pa.Table:
        """Return the expired items of an hour that are not archived yet."""
        rows, lost = self._rows(files)
        self.lost += lost
        for number in self.seen.get(hour, {}).get("batches", []):
            rows = rows.filter(pa.array(~self._archived_in(rows, hour, number)))
        return rows

    def _rows(self, files: Sequence[LiveFile]) -> tuple[pa.Table, int]:
        """Return the expired items of an hour with the identities of their changes, and the number without an image."""
        tables, paths, lost = list[pa.Table](), list[str](), 0
        for file in files:
            read = open_parquet(pa.BufferReader(self.log.read(file.path)))
            columns = [name for name in _COLUMNS if name in read.schema_arrow.names]
            rows = read.read(columns=columns)
            lost += without_image(rows)
            if OLD_IMAGE not in columns:
                # It was written before the log had old images.
                continue
            # Before the time to live was turned on, no item had the attribute.
            ttl = self.ttl if self.ttl is not None and has_expiry(rows, self.ttl) else None
            self.knows_ttl |= ttl is not None
            tables.append(expired_rows(rows, ttl, infers=self.infers and ttl is not None))
            paths.append(file.path)
        if not tables:
            return _NO_ROWS, lost
        rows = joined_items(tables)
        ids, ends = change_ids(rows), np.cumsum([table.num_rows for table in tables])
        # During a compaction, the old files may exist next to the new ones.
        indices, numbers = distinct_changes(
            ids, lambda row: self._streams.get(paths[int(np.searchsorted(ends, row, "right"))])
        )
        identities = id_texts(Fingerprints(ids.high[indices], ids.low[indices]))
        texts = [
            f"{text}+{number}" if number else text for text, number in zip(identities, numbers.tolist(), strict=True)
        ]
        return in_order(rows.take(int64_array(indices)).append_column(_CHANGE, pa.array(texts, pa.string()))), lost

    @functools.cached_property
    def _streams(self) -> dict[str, str]:
        """The stream of each file of the log. Computed only on demand: few logs need it."""
        return streams_of_files(self.log)

    def _archived_in(self, rows: pa.Table, hour: str, number: int) -> NDArray[np.bool_]:
        """Return a mask of the expired items of an hour that a batch has."""
        record = self.state.read(_name(number)) or {}
        if "changes" in record:
            return _is_in(rows.column(_CHANGE), record["changes"].get(hour, []))
        # Older versions recorded only sequence numbers, and archived one change for each. The files of the batch have
        # it.
        is_archived = _is_in(rows.column(SEQUENCE), record.get("hours", {}).get(hour, []))
        if is_archived.any() and (written := self._written(number)):
            is_archived &= np.array([id_text in written for id_text in id_texts(change_ids(_bare(rows)))], np.bool_)
        return is_archived

    def _written(self, number: int) -> frozenset[str]:
        """Return the changes in the files of a batch, or an empty set if the files do not exist any more."""
        if self._last_written[0] != number:
            name, store = f"/{self.state.job_id}-{number:012}.parquet", self.state.store
            paths = [file.path for file in live_files(store).files if file.path.endswith(name)]
            tables = [read_parquet(pa.BufferReader(store.read(path))) for path in paths]
            self._last_written = number, frozenset(text for rows in tables for text in id_texts(change_ids(rows)))
        return self._last_written[1]

    def _append(self, rows_by_hour: Mapping[str, pa.Table], marks: Mapping[str, str]) -> None:
        """Archive rows by their hours as a batch, and record the hours as read."""
        if rows_by_hour:
            if self.ttl is not None and not self.number and not self.knows_ttl:
                raise OptionError(
                    f"no item of the log {self.log.uri} has the attribute {self.ttl!r} as a number: give with ttl the "
                    "attribute with the expiry time, or archive the folder of the log without ttl, which uses the "
                    "time of each delete"
                )
            number = self.number + 1
            hours = {hour: rows.column(SEQUENCE).to_pylist() for hour, rows in rows_by_hour.items()}
            changes = {hour: rows.column(_CHANGE).to_pylist() for hour, rows in rows_by_hour.items()}
            if not self.state.put_once(_name(number), {"batch": number, "hours": hours, "changes": changes}):
                raise TargetError(f"another process archives into {self.state.store.uri} as job {self.state.job_id}")
            self.number = number
            self._write(number, list(rows_by_hour.values()))
        for hour, mark in marks.items():
            entry = self.seen.setdefault(hour, {"batches": []})
            entry["mark"] = mark
            entry["batches"] += [self.number] if hour in rows_by_hour else []
        if marks:
            self.state.put(_DONE, {"batch": self.number, "hours": self.seen})

    def _resume(self) -> None:
        """Read the archived state. Write the files of incomplete batches again."""
        done = self.state.read(_DONE) or {"batch": 0, "hours": {}}
        self.number, self.seen = done["batch"], done["hours"]
        while (record := self.state.read(_name(self.number + 1))) is not None:
            self.number += 1
            tables, live = list[pa.Table](), live_files(self.log).files
            for hour, sequences in record["hours"].items():
                files = [file for file in live if file.path.rpartition("/")[0] == hour]
                rows = self._recorded(self._rows(files)[0], record, hour) if files else None
                if rows is None or rows.num_rows != len(sequences):
                    raise TargetError(
                        f"batch {self.number} of {self.state.store.uri} is incomplete, and changes of {hour} are "
                        f"missing in the log {self.log.uri}"
                    )
                tables.append(rows)
                entry = self.seen.setdefault(hour, {"batches": []})
                entry["batches"] += [self.number]
                entry.pop("mark", None)
            self._write(self.number, tables)

    def _recorded(self, rows: pa.Table, record: Mapping[str, Any], hour: str) -> pa.Table:
        """Return the expired items of an hour that are in the record of a batch."""
        if "changes" in record:
            return rows.filter(pa.array(_is_in(rows.column(_CHANGE), record["changes"][hour])))
        # Older versions archived the last change with each sequence number.
        rows = rows.filter(pa.array(_is_in(rows.column(SEQUENCE), record["hours"][hour])))
        last = {sequence: index for index, sequence in enumerate(rows.column(SEQUENCE).to_pylist())}
        return rows.take(pa.array(list(last.values()), pa.int64()))

    def _write(self, number: int, tables: Sequence[pa.Table]) -> None:
        rows = _bare(joined_items(tables))
        for month, part in months_of(rows).items():
            path, store = f"{month}{self.state.job_id}-{number:012}.parquet", self.state.store
            write_log_file(store, path, part, self.compression)
            self.files += 1
        self.items += rows.num_rows
        self.inferred += pc.sum(rows.column(INFERRED)).as_py() or 0


def archive(options: ArchiveOptions) -> ArchiveReport:
    """Archive the items that the time to live has deleted, from the log of a table's changes. Each is archived once.

    Raises
    ------
    NotFoundError
        If the log or the table does not exist.
    OptionError
        If the log has no old images, or no expired item has the attribute.
    TargetError
        If another process archives under this job id.
    """
    clock, ttl, log = Clock(), options.ttl, options.log or options.source
    if options.log is not None:
        spec = dynamodb_spec(options)
        ttl = ttl or read_table_definition(spec, options.source)[1]
        capture_options = {"table": options.source, "dest": options.log, "available_now": True, "old_image": True}
        capture_options |= options_of_capture(open_store(log, options))
        capture(parse_options(CaptureOptions, {**connection_of(options), **capture_options, "s3_storage_class": None}))
    store = open_store(log, options)
    if not any(map(has_old_images, jobs_of(store))):
        raise OptionError(
            f"the log {store.uri} has no old images, which an archive needs: 'ddbio archive TABLE --log LOG', or "
            "'ddbio capture --old-image', captures them from now on"
        )
    job_id = options.job_id or f"archive_{hashlib.sha256(store.uri.encode()).hexdigest()[:12]}"
    target = open_store(options.dest, options)
    require_target(target)
    state = JobState(target, job_id, _KIND)
    identity = {"log": store.uri, "ttl": ttl, **fixed_options(options, without=("source", "dest", "log", "ttl"))}
    state.start_as(identity)
    with Claim(state.store, job_id, "append").held():
        job = Archiver(store, state, ttl, options.infer, options.compression)
        try:
            hours = job.run()
        except OptionError:
            if not job.number:
                # Nothing is archived yet: the next run may have other options.
                state.forget()
            raise
    return ArchiveReport(
        source=store.uri,
        dest=options.dest,
        job_id=job_id,
        items=job.items,
        inferred=job.inferred,
        lost=job.lost,
        files=job.files,
        hours=hours,
        **clock.times(),
    )


def restore_archived(options: ArchiveRestoreOptions) -> ArchiveRestoreReport:
    """Restore archived items into a table, each in its state when it last expired.

    Raises
    ------
    NotFoundError
        If the archive or the table does not exist.
    """
    clock, store = Clock(), open_store(options.source, options)
    table = describe_table(dynamodb_spec(options), options.table)
    keys = [name for name, _ in table.key_types]
    types = dict(table.key_types)
    first, last = (
        [_key_value(text, types[name]) for name, text in zip(keys, bound or (), strict=False)]
        for bound in (options.from_key, options.to_key)
    )
    jobs = jobs_in(store, _KIND)
    if not jobs:
        raise NotFoundError(f"{store.uri}: the folder has no archive")
    drops = [ttl for job in jobs if (ttl := (job.head() or {}).get("ttl")) is not None]
    tables = list[pa.Table]()
    for file in live_files(store).files:
        rows = read_parquet(pa.BufferReader(store.read(file.path)))
        rows = within_times(rows, options.since, options.until, EXPIRED_AT)
        if first or last:
            rows = in_key_range(rows, keys, first, last)
        if rows.num_rows:
            tables.append(rows)
    report = None
    if tables:
        rows = last_of_each(in_time_order(joined_items(tables)), keys)
        rows = rows.select([item_field.name for item_field in item_fields(rows.schema, ARCHIVE_COLUMNS)])
        rows = without_attributes(rows, drops if options.ttl == "drop" else ())
        same = ("table", "mode", "wcu_per_second", "max_units", "max_seconds", "max_usd", "prices", "compute")
        chosen = {name: getattr(options, name) for name in same}
        report = write_table(rows, parse_options(WriteOptions, {**connection_of(options), **chosen}))
    return ArchiveRestoreReport(
        source=store.uri,
        table=options.table,
        items=report.rows if report else 0,
        written=report.written if report else 0,
        skipped=report.skipped if report else 0,
        **clock.times(),
        wcu_consumed=report.wcu_consumed if report else 0.0,
        actual=report.actual if report else None,
    )


def read_expired(options: ExpiredReadOptions) -> pa.Table:
    """Return the items of a table or an export that are expired and not deleted yet, as one Arrow table.

    Raises
    ------
    OptionError
        If the attribute with the expiry time is unknown, or it is not a number.
    """
    return read_expired_batches(options).read_all()


def read_expired_batches(options: ExpiredReadOptions) -> RecordBatchStream:
    """Return the same items as :func:`read_expired`, as a stream of batches.

    Raises
    ------
    OptionError
        If the attribute with the expiry time is unknown, or it is not a number.
    """
    ttl, shared = options.ttl, {**connection_of(options), "schema": options.schema}
    if is_data(options.source):
        if ttl is None:
            raise OptionError("an export has no setting for the time to live: give ttl")
        batches = read_export_batches(parse_options(ExportReadOptions, {**shared, "source": options.source}))
    else:
        ttl = ttl or read_table_definition(dynamodb_spec(options), options.source)[1]
        if ttl is None:
            raise OptionError(f"the time to live of table {options.source!r} is off: give ttl")
        more = {"table": options.source, "rcu_per_second": options.rcu_per_second}
        batches = scan_batches(parse_options(ScanOptions, {**shared, **more}))
    (column,) = columns_of(batches.schema, [ttl])
    if column not in batches.schema.names:
        raise OptionError(f"no item of {options.source} has the attribute {ttl!r}")
    at = (options.at or datetime.now(UTC)).timestamp()
    return RecordBatchStream(batches.schema, _expired(batches, column, at))


def _expired(batches: RecordBatchStream, column: str, at: float) -> Generator[pa.RecordBatch, None, None]:
    with batches:
        for batch in batches:
            kept = batch.filter(is_expired(expiry_seconds(batch.column(column)), at))
            if kept.num_rows:
                yield kept


def _is_in(texts: Any, values: Sequence[str]) -> NDArray[np.bool_]:
    mask: Any = pc.is_in(texts, pa.array(values, pa.string()))
    flags: NDArray[np.bool_] = mask.to_numpy().astype(bool)
    return flags


def _bare(rows: pa.Table) -> pa.Table:
    """Return rows in the format of the archive's files."""
    return rows.drop_columns([name for name in rows.column_names if name in {EVENT_ID, _CHANGE}])


def _name(number: int) -> str:
    return f"{number:012}"


def _mark(files: Sequence[LiveFile]) -> str:
    text = " ".join([_MARKED_BY, *sorted(f"{file.path}:{file.size_bytes}" for file in files)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _key_value(text: str, tag: str) -> Any:
    return Decimal(text) if tag == "N" else text.encode() if tag == "B" else text
