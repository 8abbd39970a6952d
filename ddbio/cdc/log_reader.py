"""Read the log of a table's changes by the records of its batches, as far as their files are written."""

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
    """Return rows in other columns; a value that does not fit the type of its column is in the rescue column.

    Parameters
    ----------
    names
        What the batch calls each column; None if it has none, and the column is null.
    columns
        The columns, with the rescue column.
    others
        Attributes of the batch that have no column: they are in the rescue column.

    Raises
    ------
    SchemaError
        If a column that is no attribute's has values of another type.
    """
    arrays, differ = dict[str, Any](), set[str]()
    for wanted, name in zip(columns, names, strict=True):
        array = pa.nulls(len(batch), wanted.type) if name is None else _cast(batch, name, wanted)
        if array is None:
            differ.add(wanted.name)
        arrays[wanted.name] = array
    lost = [name for name in others if batch.column(name).null_count < len(batch)]
    if differ - {OLD_IMAGE} or lost:
        held = {*lost, *(name for name in names if name is not None)}
        items = [each.name for each in item_fields(batch.schema, LOG_COLUMNS) if each.name in held]
        wanted_items = pa.schema([each for each in item_fields(columns, LOG_COLUMNS) if each.name != RESCUE_NAME])
        found = fitted(batch.select(items), wanted_items)
        arrays |= dict(zip(found.schema.names, found.columns, strict=True))
    if OLD_IMAGE in differ:
        arrays |= _fitted_images(batch, columns.field(OLD_IMAGE).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)


def _cast(batch: pa.RecordBatch, name: str, wanted: pa.Field[Any]) -> Any:
    """Return a column in another type; None if that would change a value, or one does not fit."""
    field, array = batch.schema.field(name), batch.column(name)
    is_attribute = not is_own(wanted, LOG_COLUMNS)
    if field.type != wanted.type and (wanted.name == OLD_IMAGE or (is_attribute and not _is_alike(field, wanted))):
        return None
    if is_attribute and _tag(field) != _tag(wanted):
        return None
    try:
        return array.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if not is_attribute:
            raise SchemaError(f"{wanted.name}: {error}") from error
        return None


def _is_alike(field: pa.Field[Any], wanted: pa.Field[Any]) -> bool:
    """Return whether a cast between two types of columns keeps each value, or fails."""
    kinds = [
        "number" if pa.types.is_integer(each) or pa.types.is_decimal(each)
        else "text" if pa.types.is_string(each) or pa.types.is_large_string(each)
        else "bytes" if pa.types.is_binary(each) or pa.types.is_large_binary(each)
        else None
        for each in (field.type, wanted.type)
    ]  # fmt: skip
    return kinds[0] is not None and kinds[0] == kinds[1]


def _tag(field: pa.Field[Any]) -> bytes | None:
    return (field.metadata or {}).get(DDB_TYPE)


def _fitted_images(batch: pa.RecordBatch, wanted: Any) -> dict[str, Any]:
    """Return the old images of rows in other columns, and what does not fit them."""
    images: Any = batch.column(OLD_IMAGE)
    items = dict(zip((each.name for each in images.type), images.flatten(), strict=True))
    fields = [batch.schema.field(name) for name in items] + [batch.schema.field(RESCUE_NAME)]
    found = fitted(
        pa.RecordBatch.from_arrays([*items.values(), batch.column(OLD_RESCUE)], schema=pa.schema(fields)),
        pa.schema(list(wanted)),
    )
    *columns, rescue = found.columns
    known = pa.StructArray.from_arrays(columns, fields=list(wanted), mask=pc.is_null(images))
    return {OLD_IMAGE: known, OLD_RESCUE: pc.if_else(pc.is_null(images), pa.scalar(None, pa.string()), rescue)}


_READERS = 16
# Behind all hours.
_NO_HOUR = "~"
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class LogFile:
    """Name one file of a log, and how many changes it has."""

    path: str
    rows: int


class CapturedLog:
    """Read the batches of the jobs that write one folder; picklable as far as the store is.

    A position is a number for each job: that of the last batch that was read.
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
            found = log_schema(items, keys, old_image=has_old_images(state), event_id=has_ids)
            fields |= {each.name: each for each in found if each.name not in fields}
        rescue = fields.pop(RESCUE_NAME)
        return pa.schema([*fields.values(), rescue])

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table whose changes these are.

        Raises
        ------
        NotFoundError
            If no change was captured yet.
        """
        _, columns = next(self._columns())
        return columns.keys

    def _columns(self) -> Iterator[tuple[JobState, Columns]]:
        """Yield the jobs of which columns are known, one at least."""
        is_empty = True
        for state in self._states.values():
            if (columns := read_columns(state)) is not None:
                is_empty = False
                yield state, columns
        if is_empty:
            raise NotFoundError(f"the log {self._store.uri} has no columns yet: no change was captured")

    def heads(self) -> dict[str, dict[str, Any]]:
        """Return what each job was begun with: its stream, and when."""
        return {job_id: state.head() or {} for job_id, state in self._states.items()}

    def lineages(self) -> list[LogLineage]:
        """Return the streams that the log comes from, in the order in which their captures began to read them."""
        return lineages_in(self._states.values())

    def lineages_of(self, job_id: str) -> list[LogLineage]:
        """Return the streams that one capture has read, in their order."""
        return lineages_of(self._states[job_id])

    def written(self) -> dict[str, int]:
        """Return the position behind all batches whose files are written; new files without a record get one."""
        number_files(self._store, self._numbered, self.lineages() if self._numbered else [])
        return {
            job_id: self._numbered[job_id].number if job_id in self._numbered else records.committed
            for job_id, records in self._records.items()
        }

    def first(self) -> dict[str, int]:
        """Return the position before the first batch of each job that has a file which has not expired."""
        found, oldest = dict[str, int](), oldest_hour(self._store)
        for job_id, last in self.written().items():
            found[job_id] = 0
            for record in self._between(job_id, 1, last):
                if any(folder_of(each["path"]) >= oldest for each in record["files"]):
                    break
                found[job_id] = record["batch"]
        return found

    def recorded(self) -> dict[str, int]:
        """Return the position behind all batches that have a record, also one whose files may be missing yet."""
        last = {job_id: (records.last() or {"batch": 0})["batch"] for job_id, records in self._records.items()}
        return last | {job_id: number for job_id, number in self.written().items() if job_id in self._numbered}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the position behind so many changes from another one; one batch at least is passed."""
        found, left = dict(start), records
        for job_id, last in end.items():
            for number in range(start.get(job_id, 0) + 1, last + 1):
                record = self._known(job_id, number, self._records[job_id].read(number))
                count = sum(each["rows"] for each in record["files"])
                if left < count and left < records:
                    return found
                found[job_id], left = number, left - count
        return found

    def files(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogFile]:
        """Return the files of the batches behind one position up to another, in their order."""
        return [file for _, files in self.parts(start, end) for file in files]

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[tuple[LogLineage, list[LogFile]]]:
        """Return the same files by the lineages of each job, whose sequence numbers can be compared."""
        found, known = list[tuple[LogLineage, list[LogFile]]](), {each.name: each for each in self.lineages()}
        for job_id, last in sorted(end.items()):
            own, by_name = [each.name for each in self.lineages_of(job_id)], dict[str, list[LogFile]]()
            for record in self._between(job_id, start.get(job_id, 0) + 1, last):
                name = own[lineage_number(record) - 1]
                for each in record["files"]:
                    # A replay has changes of the streams that others have captured.
                    its = next(filter(known.__contains__, (each.get("lineage", name), *known)))
                    by_name.setdefault(its, []).append(LogFile(each["path"], each["rows"]))
            found += [(known[name], files) for name, files in by_name.items()]
        return found

    def _between(self, job_id: str, first: int, last: int) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(_READERS) as readers:
            records = self._records[job_id].between(first, last, readers.map)
        return [self._known(job_id, number, record) for number, record in enumerate(records, first)]

    def _known(self, job_id: str, number: int, record: dict[str, Any] | None) -> dict[str, Any]:
        if record is None:
            raise TargetError(
                f"batch {number} of job {job_id} of the log {self._store.uri} has no record: something removed it",
                self._store.uri,
            )
        return record


def open_log(store: ObjectStore, job_id: str | None = None) -> CapturedLog:
    """Return the log in a folder, or what one job has written of it; errors are those of ``log_jobs.jobs_of``."""
    return CapturedLog(store, jobs_of(store, job_id))


def oldest_hour(store: ObjectStore) -> str:
    """Return the folder of the oldest hour of a log that has a file; an empty text if there is no file."""
    return next((folder_of(each.path) for each in store.list(HOURS) if is_row_file(each.path)), "")


def lineages_of_files(store: ObjectStore) -> dict[str, str]:
    """Return the name of the lineage of each file that a batch of a log names; nothing if it has one lineage alone."""
    try:
        log = open_log(store)
    except NotFoundError:
        return {}
    if len(log.lineages()) == 1:
        return {}
    return {file.path: lineage.name for lineage, files in log.parts({}, log.recorded()) for file in files}


def streams_of_files(store: ObjectStore) -> dict[str, str]:
    """Return the stream of each file that a batch of a log names; nothing if it has one stream alone.

    Files whose changes have event ids are left out: two data streams may have the same change, as its id tells.
    """
    names = lineages_of_files(store)
    streams = {each.name: each.stream for each in open_log(store).lineages()} if names else {}
    return {path: streams[name] for path, name in names.items() if not kind_of(streams[name]).has_event_ids}


def lineage_for(healing: JobState) -> dict[str, str]:
    """Return what the head of a job that heals a log says of its rows: they belong to the stream that was read last."""
    store, begun = healing.store, healing.head()
    if begun is not None:
        return {name: begun[name] for name in ("stream", "lineage") if name in begun}
    last = open_log(store).lineages()[-1]
    return {"stream": last.stream} | ({"lineage": last.name} if last.name != last.stream else {})


class FileLineages:
    """Tell the place of the stream of each file of a log among all streams of the log.

    Parameters
    ----------
    own
        The name of the lineage that files belong to of which nothing else is known.

    Attributes
    ----------
    own
        Its place; 0 if there is no such lineage.
    """

    def __init__(self, store: ObjectStore, own: str | None = None) -> None:
        known = open_log(store).lineages()
        self._places = {each.name: place for place, each in enumerate(known, 1)}
        self._names = lineages_of_files(store)
        # A compaction leaves hours alone that have changes of several streams.
        self._in_hour = {path.rpartition("/")[0]: name for path, name in self._names.items()}
        self.own = 0 if own is None else self._places[own]

    def of(self, path: str) -> int:
        """Return the place of the stream of a file."""
        name = self._names.get(path) or self._in_hour.get(path.rpartition("/")[0])
        return self.own if name is None else self._places[name]


def mixed_hours(store: ObjectStore) -> frozenset[str]:
    """Return the folders of a log with changes of several streams: one file of them all could not be put in order."""
    hours = dict[str, set[str]]()
    for path, name in lineages_of_files(store).items():
        hours.setdefault(path.rpartition("/")[0], set()).add(name)
    return frozenset(hour for hour, names in hours.items() if len(names) > 1)


def read_log_file(store: ObjectStore, file: LogFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in these columns; one that the file does not have yet is null.

    Other jobs of the log may have chosen other columns: a value that fits none is in ``_rescue``, if that is wanted.

    Raises
    ------
    NotFoundError
        If the file is gone.
    SchemaError
        If a column of ddbio's own has another type.
    """
    try:
        parquet = open_parquet(pa.BufferReader(store.read(file.path)))
    except NotFoundError:
        raise NotFoundError(
            f"{file.path} of the log {store.uri} is gone: a compaction that does not keep old files, or a vacuum, was "
            "ahead of this reader. Compact hours that every reader has behind it, or with keep_old"
        ) from None
    names = _names_in(parquet.schema_arrow, columns)
    held = [name for name in names if name is not None]
    others = _attributes_beside(parquet.schema_arrow, held) if RESCUE_NAME in columns.names else []
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=held + others):
        try:
            yield fitted_log(batch, names, columns, others)
        except SchemaError as error:
            raise SchemaError(f"{file.path}: {error}") from error


def read_changes(
    store: ObjectStore, files: Sequence[LogFile], columns: pa.Schema, is_needless: Callable[[str], bool]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a log; of those that a compaction has replaced, what its hour has now.

    That may be more than was asked for: changes that come again change nothing.

    Parameters
    ----------
    is_needless
        Says whether an hour is not needed, by its folder. It is asked about hours that are gone and older than all that
        are there, as a lifecycle rule leaves a log.

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
                "something else has deleted its files. Only a new base has these changes: 'ddbio bootstrap' into a new "
                "folder loads one, and applies what the log has since"
            )


def _live_hours(store: ObjectStore, path: str) -> tuple[dict[str, list[str]], str]:
    """Return the live files of each hour with changes of the stream of one file, and the oldest hour that is there."""
    names, hours, oldest = lineages_of_files(store), dict[str, list[str]](), _NO_HOUR
    own, there = names.get(path), {each.path for each in store.list(HOURS)}
    for each in (live.path for live in live_files(store).files if live.path in there):
        oldest = min(oldest, folder_of(each))
        # What is left of other streams is read as such; a compacted file has changes of one stream.
        if names.get(each, own) == own:
            hours.setdefault(folder_of(each), []).append(each)
    return hours, oldest


def _attributes_beside(file: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the columns of attributes that a file has besides some columns."""
    attributes = [each.name for each in item_fields(file, LOG_COLUMNS) if each.name != RESCUE_NAME]
    return [name for name in attributes if name not in names]


def _names_in(file: pa.Schema, columns: pa.Schema) -> list[str | None]:
    """Return what a file calls each column: an attribute may have another column in files of an older release."""
    own = {each.name: is_own(each, LOG_COLUMNS) for each in file}
    attributes = {name_of_field(each): each.name for each in file if not own[each.name]}
    return [
        each.name if own.get(each.name) is is_own(each, LOG_COLUMNS) else attributes.get(name_of_field(each))
        for each in columns
    ]
