"""Reader of the log of a table's changes, by the records of its batches, up to the batches whose files are written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.lineages import LogLineage, lineage_number, lineages_of
from ddbio.cdc.log_jobs import (
    CAPTURE,
    HOURS,
    BatchRecords,
    Columns,
    NumberedFiles,
    folder_of,
    has_old_images,
    jobs_of,
    lineages_in,
    number_files,
    read_columns,
)
from ddbio.cdc.log_rows import log_schema
from ddbio.cdc.stream_registry import kind_of, kind_of_job
from ddbio.commit.snapshot import live_files
from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.formats.log_columns import LOG_COLUMNS, OLD_IMAGE, OLD_RESCUE
from ddbio.formats.parquet_input import open_parquet
from ddbio.formats.registry import is_row_file
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, name_of_field
from ddbio.items.schema.own_names import is_own, item_fields
from ddbio.lake_formats.rows import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddbio.storage.job_state import JobState
    from ddbio.storage.object_store import ObjectStore


def fitted_log(
    batch: pa.RecordBatch, names: Sequence[str | None], columns: pa.Schema, others: Sequence[str] = ()
) -> pa.RecordBatch:
    """Return rows in other columns. A value that does not fit the type of its column is moved to the rescue column.

    Parameters
    ----------
    names
        The batch's name of each column; None if the batch lacks the column, which is then null.
    columns
        The columns, with the rescue column.
    others
        Attributes of the batch that have no column. They are moved to the rescue column.

    Raises
    ------
    SchemaError
        If a column that is not an attribute has values of another type.
    """
    arrays, differ = dict[str, Any](), set[str]()
    for target, name in zip(columns, names, strict=True):
        array = pa.nulls(len(batch), target.type) if name is None else _cast(batch, name, target)
        if array is None:
            differ.add(target.name)
        arrays[target.name] = array
    lost = [name for name in others if batch.column(name).null_count < len(batch)]
    if differ - {OLD_IMAGE} or lost:
        known_names = {*lost, *(name for name in names if name is not None)}
        items = [
            item_field.name for item_field in item_fields(batch.schema, LOG_COLUMNS) if item_field.name in known_names
        ]
        wanted_items = pa.schema(
            [item_field for item_field in item_fields(columns, LOG_COLUMNS) if item_field.name != RESCUE_NAME]
        )
        fitted_items = fitted(batch.select(items), wanted_items)
        arrays |= dict(zip(fitted_items.schema.names, fitted_items.columns, strict=True))
    if OLD_IMAGE in differ:
        arrays |= _fitted_images(batch, columns.field(OLD_IMAGE).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)


def _cast(batch: pa.RecordBatch, name: str, target: pa.Field[Any]) -> Any:
    """Return a column in another type, or None if the cast would change a value or one does not fit."""
    field, array = batch.schema.field(name), batch.column(name)
    is_attribute = not is_own(target, LOG_COLUMNS)
    if field.type != target.type and (target.name == OLD_IMAGE or (is_attribute and not _is_alike(field, target))):
        return None
    if is_attribute and _tag(field) != _tag(target):
        return None
    try:
        return array.cast(target.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if not is_attribute:
            raise SchemaError(f"{target.name}: {error}") from error
        return None


def _is_alike(field: pa.Field[Any], target: pa.Field[Any]) -> bool:
    """Return whether a cast between two types of columns either keeps each value or fails."""
    kinds = [
        "number" if pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        else "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind)
        else "bytes" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        else None
        for kind in (field.type, target.type)
    ]  # fmt: skip
    return kinds[0] is not None and kinds[0] == kinds[1]


def _tag(field: pa.Field[Any]) -> bytes | None:
    return (field.metadata or {}).get(DDB_TYPE)


def _fitted_images(batch: pa.RecordBatch, target: Any) -> dict[str, Any]:
    """Return the old images of rows in other columns, with the rescue column for values that do not fit."""
    images: Any = batch.column(OLD_IMAGE)
    items = dict(zip((field.name for field in images.type), images.flatten(), strict=True))
    fields = [batch.schema.field(name) for name in items] + [batch.schema.field(RESCUE_NAME)]
    fitted_images = fitted(
        pa.RecordBatch.from_arrays([*items.values(), batch.column(OLD_RESCUE)], schema=pa.schema(fields)),
        pa.schema(list(target)),
    )
    *columns, rescue = fitted_images.columns
    new_images = pa.StructArray.from_arrays(columns, fields=list(target), mask=pc.is_null(images))
    return {OLD_IMAGE: new_images, OLD_RESCUE: pc.if_else(pc.is_null(images), pa.scalar(None, pa.string()), rescue)}


_READERS = 16
# Greater than all hours.
_NO_HOUR = "~"
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class LogFile:
    """File of a log, and its number of changes."""

    path: str
    rows: int


class CapturedLog:
    """Reader of the batches of the jobs that write one folder. Picklable if the store is.

    A position has a number for each job: that of the last batch that was read.
    """

    def __init__(self, store: ObjectStore, jobs: Sequence[JobState]) -> None:
        self._store = store
        self._states = {state.job_id: state for state in jobs}
        self._records = {job_id: BatchRecords(state) for job_id, state in self._states.items()}
        self._numbered = {
            job_id: NumberedFiles(records) for job_id, records in self._records.items() if records.state.kind != CAPTURE
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the log.

        Raises
        ------
        NotFoundError
            If no change was captured yet.
        """
        fields: dict[str, pa.Field[Any]] = {}
        for state, (items, keys) in self._columns():
            has_ids = kind_of_job(state.head() or {}).has_event_ids
            columns = log_schema(items, keys, old_image=has_old_images(state), event_id=has_ids)
            fields |= {column.name: column for column in columns if column.name not in fields}
        rescue = fields.pop(RESCUE_NAME)
        return pa.schema([*fields.values(), rescue])

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table of the log.

        Raises
        ------
        NotFoundError
            If no change was captured yet.
        """
        _, columns = next(self._columns())
        return columns.keys

    def _columns(self) -> Iterator[tuple[JobState, Columns]]:
        """Yield the jobs whose columns are stored. Raises if there is none."""
        is_empty = True
        for state in self._states.values():
            if (columns := read_columns(state)) is not None:
                is_empty = False
                yield state, columns
        if is_empty:
            raise NotFoundError(f"the log {self._store.uri} has no columns yet: no change was captured")

    def heads(self) -> dict[str, dict[str, Any]]:
        """Return the head of each job, with its stream and its start."""
        return {job_id: state.head() or {} for job_id, state in self._states.items()}

    def lineages(self) -> list[LogLineage]:
        """Return the lineages of the log, in the order in which captures started to read them."""
        return lineages_in(self._states.values())

    def lineages_of(self, job_id: str) -> list[LogLineage]:
        """Return the lineages of one capture, in order."""
        return lineages_of(self._states[job_id])

    def written(self) -> dict[str, int]:
        """Return the position after all batches whose files are written. New files without a record get one."""
        number_files(self._store, self._numbered, self.lineages() if self._numbered else [])
        return {
            job_id: self._numbered[job_id].number if job_id in self._numbered else records.committed
            for job_id, records in self._records.items()
        }

    def first(self) -> dict[str, int]:
        """Return the position before the first batch of each job that has a file which has not expired."""
        position, oldest = dict[str, int](), oldest_hour(self._store)
        for job_id, last in self.written().items():
            position[job_id] = 0
            for record in self._between(job_id, 1, last):
                if any(folder_of(file["path"]) >= oldest for file in record["files"]):
                    break
                position[job_id] = record["batch"]
        return position

    def recorded(self) -> dict[str, int]:
        """Return the position after all batches that have a record, including one whose files may still be missing."""
        last = {job_id: (records.last() or {"batch": 0})["batch"] for job_id, records in self._records.items()}
        return last | {job_id: number for job_id, number in self.written().items() if job_id in self._numbered}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the position after a number of changes from another position. It is at least one batch further."""
        position, remaining = dict(start), records
        for job_id, last in end.items():
            for number in range(start.get(job_id, 0) + 1, last + 1):
                record = self._require_record(job_id, number, self._records[job_id].read(number))
                count = sum(file["rows"] for file in record["files"])
                if remaining < count and remaining < records:
                    return position
                position[job_id], remaining = number, remaining - count
        return position

    def files(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogFile]:
        """Return the files of the batches after one position, up to another, in order."""
        return [file for _, files in self.parts(start, end) for file in files]

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[tuple[LogLineage, list[LogFile]]]:
        """Return the same files by the lineages of each job. Sequence numbers can be compared within one lineage."""
        parts, lineages = (
            list[tuple[LogLineage, list[LogFile]]](),
            {lineage.name: lineage for lineage in self.lineages()},
        )
        for job_id, last in sorted(end.items()):
            own, by_name = [lineage.name for lineage in self.lineages_of(job_id)], dict[str, list[LogFile]]()
            for record in self._between(job_id, start.get(job_id, 0) + 1, last):
                name = own[lineage_number(record) - 1]
                for file in record["files"]:
                    # A replay has changes of the streams that others have captured.
                    its = next(filter(lineages.__contains__, (file.get("lineage", name), *lineages)))
                    by_name.setdefault(its, []).append(LogFile(file["path"], file["rows"]))
            parts += [(lineages[name], files) for name, files in by_name.items()]
        return parts

    def _between(self, job_id: str, first: int, last: int) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(_READERS) as readers:
            records = self._records[job_id].between(first, last, readers.map)
        return [self._require_record(job_id, number, record) for number, record in enumerate(records, first)]

    def _require_record(self, job_id: str, number: int, record: dict[str, Any] | None) -> dict[str, Any]:
        if record is None:
            raise TargetError(
                f"batch {number} of job {job_id} of the log {self._store.uri} has no record: another program "
                "has deleted it",
                self._store.uri,
            )
        return record


def open_log(store: ObjectStore, job_id: str | None = None) -> CapturedLog:
    """Return the log in a folder, or the part that one job has written. Errors are those of ``log_jobs.jobs_of``."""
    return CapturedLog(store, jobs_of(store, job_id))


def oldest_hour(store: ObjectStore) -> str:
    """Return the folder of the oldest hour of a log that has a file, or an empty string if there is no file."""
    return next((folder_of(entry.path) for entry in store.list(HOURS) if is_row_file(entry.path)), "")


def lineages_of_files(store: ObjectStore) -> dict[str, str]:
    """Return the lineage name of each file in the batches of a log. Empty if the log has only one lineage."""
    try:
        log = open_log(store)
    except NotFoundError:
        return {}
    if len(log.lineages()) == 1:
        return {}
    return {file.path: lineage.name for lineage, files in log.parts({}, log.recorded()) for file in files}


def streams_of_files(store: ObjectStore) -> dict[str, str]:
    """Return the stream of each file in the batches of a log. Empty if the log has only one stream.

    Files whose changes have event ids are left out: two data streams may have the same change, which its id identifies.
    """
    names = lineages_of_files(store)
    streams = {lineage.name: lineage.stream for lineage in open_log(store).lineages()} if names else {}
    return {path: streams[name] for path, name in names.items() if not kind_of(streams[name]).has_event_ids}


def lineage_for(healing: JobState) -> dict[str, str]:
    """Return the stream for the head of a job that heals a log: its rows belong to the stream that was read last."""
    store, begun = healing.store, healing.head()
    if begun is not None:
        return {name: begun[name] for name in ("stream", "lineage") if name in begun}
    last = open_log(store).lineages()[-1]
    return {"stream": last.stream} | ({"lineage": last.name} if last.name != last.stream else {})


class FileLineages:
    """Number of the stream of each file of a log, among all streams of the log.

    Parameters
    ----------
    own
        The name of the lineage for files without a known one.

    Attributes
    ----------
    own
        Its number; 0 if there is no such lineage.
    """

    def __init__(self, store: ObjectStore, own: str | None = None) -> None:
        lineages = open_log(store).lineages()
        self._numbers = {lineage.name: number for number, lineage in enumerate(lineages, 1)}
        self._names = lineages_of_files(store)
        # A compaction does not change hours with changes of several streams.
        self._in_hour = {path.rpartition("/")[0]: name for path, name in self._names.items()}
        self.own = 0 if own is None else self._numbers[own]

    def of(self, path: str) -> int:
        """Return the number of the stream of a file."""
        name = self._names.get(path) or self._in_hour.get(path.rpartition("/")[0])
        return self.own if name is None else self._numbers[name]


def mixed_hours(store: ObjectStore) -> frozenset[str]:
    """Return the folders of a log with changes of several streams. Their rows cannot be ordered in one file."""
    hours = dict[str, set[str]]()
    for path, name in lineages_of_files(store).items():
        hours.setdefault(path.rpartition("/")[0], set()).add(name)
    return frozenset(hour for hour, names in hours.items() if len(names) > 1)


def read_log_file(store: ObjectStore, file: LogFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in these columns. A column that the file lacks is null.

    Other jobs of the log may have other columns. A value that fits no column is in ``_rescue`` if ``columns`` has it.

    Raises
    ------
    NotFoundError
        If the file does not exist any more.
    SchemaError
        If a column of ddbio has another type.
    """
    try:
        parquet = open_parquet(pa.BufferReader(store.read(file.path)))
    except NotFoundError:
        raise NotFoundError(
            f"{file.path} of the log {store.uri} is gone: a compaction that does not keep old files, or a vacuum, ran "
            "before this reader. Compact only hours that every reader has read, or with keep_old"
        ) from None
    names = _names_in(parquet.schema_arrow, columns)
    present = [name for name in names if name is not None]
    others = _other_attributes(parquet.schema_arrow, present) if RESCUE_NAME in columns.names else []
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=present + others):
        try:
            yield fitted_log(batch, names, columns, others)
        except SchemaError as error:
            raise SchemaError(f"{file.path}: {error}") from error


def read_changes(
    store: ObjectStore, files: Sequence[LogFile], columns: pa.Schema, is_needless: Callable[[str], bool]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a log.

    For files that a compaction has replaced, the current rows of their hours are yielded. These may be more rows than
    requested. Changes that are applied again have no effect.

    Parameters
    ----------
    is_needless
        Returns whether an hour is not needed, from its folder. It is called for missing hours that are older than all
        existing ones, as after a lifecycle rule.

    Raises
    ------
    NotFoundError
        If another hour is gone.
    """
    gone = set[str]()
    for file in files:
        try:
            yield from read_log_file(store, file, columns)
        except NotFoundError:
            gone.add(folder_of(file.path))
    if not gone:
        return
    hours, oldest = _live_hours(store, files[0].path)
    for hour in sorted(gone):
        if hour in hours:
            for path in hours[hour]:
                yield from read_log_file(store, LogFile(path, 0), columns)
        elif not (hour < oldest and is_needless(hour)):
            raise NotFoundError(
                f"{hour} of the log {store.uri} is gone, with changes that are not applied yet: a lifecycle rule or "
                "another program has deleted its files. Only a new base has these changes: 'ddbio bootstrap' into a "
                "new folder loads one, and applies the changes of the log since then"
            )


def _live_hours(store: ObjectStore, path: str) -> tuple[dict[str, list[str]], str]:
    """Return the live files of each hour with changes of the stream of one file, and the oldest existing hour."""
    names, hours, oldest = lineages_of_files(store), dict[str, list[str]](), _NO_HOUR
    own, listed = names.get(path), {entry.path for entry in store.list(HOURS)}
    for file_path in (live.path for live in live_files(store).files if live.path in listed):
        oldest = min(oldest, folder_of(file_path))
        # Files of other streams are read separately. A compacted file has changes of one stream.
        if names.get(file_path, own) == own:
            hours.setdefault(folder_of(file_path), []).append(file_path)
    return hours, oldest


def _other_attributes(file: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the attribute columns of a file except some columns."""
    attributes = [item_field.name for item_field in item_fields(file, LOG_COLUMNS) if item_field.name != RESCUE_NAME]
    return [name for name in attributes if name not in names]


def _names_in(file: pa.Schema, columns: pa.Schema) -> list[str | None]:
    """Return the file's name of each column. An attribute may have another column in files of an older release."""
    own = {column.name: is_own(column, LOG_COLUMNS) for column in file}
    attributes = {name_of_field(column): column.name for column in file if not own[column.name]}
    return [
        column.name if own.get(column.name) is is_own(column, LOG_COLUMNS) else attributes.get(name_of_field(column))
        for column in columns
    ]
