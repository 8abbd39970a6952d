"""Sources of the changes of a lake table: the log of captures, an incremental export, or rows."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.cdc.log_reader import LogFile, open_log, read_changes
from ddbio.cdc.log_rows import hour_folder
from ddbio.cdc.stream_registry import kind_of_job
from ddbio.errors import ExportIncompleteError, NotFoundError, OptionError, SchemaError, TargetError
from ddbio.export.options import ExportReadOptions
from ddbio.export.tasks import export_columns
from ddbio.formats import export_manifest as manifest
from ddbio.jobs.stores import open_store
from ddbio.lake.change_rows import ExportedChanges, change_batches, change_columns
from ddbio.lake_formats.rows import item_columns, log_columns
from ddbio.lake_formats.table import EXPORTED_TO
from ddbio.options import connection_of
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.sources.export_source import FileText, open_export
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.cdc.log_reader import CapturedLog
    from ddbio.formats.export_manifest import ExportFile
    from ddbio.lake.change_source import AppliedTo, ChangePart
    from ddbio.lake.options import ApplyOptions
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore

BASE_NOTE, EXPIRED_BEFORE = "base", "expired_before"
"""The record of the bases of a log, and its field: for each base start, the hour before which the log was empty."""

_MICROS, _HOUR_US = 1_000_000, 3_600_000_000
_SLACK_US = 300 * _MICROS
_SLICE_ROWS = 100_000
_FILES_PER_PART = 8


@dataclass(frozen=True)
class LogPart:
    """Files of a log that one job wrote from one stream."""

    lineage: str
    store: ObjectStore
    files: tuple[LogFile, ...]
    columns: pa.Schema
    based_on: str = ""
    """The first hour whose changes may be missing in the base."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes."""
        return read_changes(self.store, self.files, self.columns, lambda hour: hour < self.based_on)

    def divided(self) -> Sequence[LogPart]:
        """Return parts with a few files of one hour; a part reads the hour's new files if a compaction replaced one."""
        hours = dict[str, list[LogFile]]()
        for file in self.files:
            hours.setdefault(file.path.rpartition("/")[0], []).append(file)
        return [
            dataclasses.replace(self, files=tuple(files[start : start + _FILES_PER_PART]))
            for files in hours.values()
            for start in range(0, len(files), _FILES_PER_PART)
        ]


class LogChanges:
    """Changes of a log, numbered by the batches of its captures.

    Raises
    ------
    NotFoundError
        If there is no such log.
    """

    slack_us = _SLACK_US

    def __init__(self, store: ObjectStore, log: CapturedLog) -> None:
        self._store, self._log, self._base_us, self._based_on = store, log, 0, ""

    @property
    def uri(self) -> str:
        """Return the name of the source in messages."""
        return self._store.uri

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table."""
        return self._log.keys()

    def columns(self) -> pa.Schema:
        """Return the columns of the log that the table needs."""
        return log_columns(self._log.schema())

    def lineages(self) -> list[str]:
        """Return the streams of the log, in the order in which captures started to read them."""
        titles = sorted({kind_of_job(head).title for head in self._log.heads().values()})
        if len(titles) > 1:
            raise OptionError(
                f"the log {self.uri} has changes from {' and from '.join(titles)}, whose sequence numbers cannot be "
                "compared: choose one capture with job_id"
            )
        return [lineage.name for lineage in self._log.lineages()]

    def written(self) -> dict[str, int]:
        """Return the number of the last batch of each job."""
        return self._log.written()

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the batch numbers after about this number of changes."""
        return self._log.limit(start, end, records)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the files of some batches, one part for each stream of a capture.

        If another stream had already replaced a stream when the base load started, the base has all changes of the
        older stream. They are left out, since they could restore items that were deleted between the two streams.
        """
        columns, ends = self.columns(), dict[str, float]()
        for job_id in end:
            lineages = self._log.lineages_of(job_id)
            ends |= {earlier.name: later.started_at for earlier, later in itertools.pairwise(lineages)}
        return [
            LogPart(lineage.name, self._store, tuple(files), columns, self._based_on)
            for lineage, files in self._log.parts(start, end)
            if ends.get(lineage.name, math.inf) * _MICROS > self._base_us
        ]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the last applied batch of a capture.

        Raises
        ------
        TargetError
            If the log has fewer batches than were applied.
        """
        if applied <= last:
            return applied
        # Another run may have applied newer batches of the log.
        now = self._log.written()[name]
        if applied > now:
            raise TargetError(
                f"{applied} batches of {name} are applied, but the log {self.uri} has only {now}: batches of the log "
                "were removed",
                self.uri,
            )
        return last

    def position(self, name: str) -> str:
        """Return the name of a capture's position; it changes when the log is restarted."""
        return f"{name}/{int(float(self._log.heads()[name].get('started_at', 0)) * 1000)}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return no other positions."""
        del start, end
        return {}

    def check_table(self, table: AppliedTo) -> None:
        """Accept any table. Hours that its base includes may be missing in the log, because of a lifecycle rule."""
        self._base_us = table.base_us
        if table.base_us:
            noted: dict[str, str] = (base_note(self._store).read(BASE_NOTE) or {}).get(EXPIRED_BEFORE, {})
            hours = [hour for at, hour in noted.items() if int(at) <= table.base_us]
            self._based_on = max([hour_folder((table.base_us - self.slack_us) // _HOUR_US), *hours])


@dataclass(frozen=True)
class ExportPart:
    """Files of an incremental export."""

    lineage: str
    source: ExportSource
    files: tuple[ExportFile, ...]
    items: pa.Schema
    keys: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes; the files are verified at the end of the iteration.

        Raises
        ------
        ExportIncompleteError
            If a file is missing or differs from the manifest.
        DecodeError
            If a file matches the manifest, but is not an export file.
        """
        decoder = ExportedChanges(self.items, self.keys)
        for file in self.files:
            text = FileText(self.source, file)
            with text.blocks() as blocks:
                for block in blocks:
                    rows = decoder.decode_lines(block)
                    if rows is not None:
                        text.rows += rows.num_rows
                        yield rows
            text.verify()

    def divided(self) -> Sequence[ExportPart]:
        """Return one part per file."""
        return [dataclasses.replace(self, files=(file,)) for file in self.files]


class ExportChanges:
    """Changes of an incremental export, numbered by its files.

    Raises
    ------
    OptionError
        If the export is a full one, or is filtered.
    """

    slack_us = 0

    def __init__(self, source: ExportSource, options: ApplyOptions) -> None:
        summary = source.summary
        if summary.kind != "incremental":
            raise OptionError(
                f"{source.folder} is a full export, which has items but no changes: create a table from it with "
                "'ddbio export read --format delta', and apply the later incremental exports to that table"
            )
        if summary.filtered:
            raise OptionError(f"{source.folder} is filtered: apply an export of all items and attributes")
        self._source, self._summary = source, summary
        values = {**connection_of(options), "source": options.source}
        self._columns = export_columns(source, ExportReadOptions(**values))
        self._name = (summary.export_arn or source.folder).rpartition("/")[2]

    @property
    def uri(self) -> str:
        """Return the name of the source in messages."""
        return self._source.folder

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes, from the first change of the export."""
        return self._columns.keys or ()

    def columns(self) -> pa.Schema:
        """Return the columns of the rows."""
        return ExportedChanges(self._columns.items, self.keys()).schema

    def lineages(self) -> list[str]:
        """Return one name for all exports of the table, whose changes are ordered by write time."""
        return [f"exports of {self._summary.table_arn}"]

    def written(self) -> dict[str, int]:
        """Return the number of files of the export; an export without changes counts as one."""
        return {self._name: max(1, len(self._source.files))}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the file numbers after about this number of changes."""
        first, remaining = start[self._name], records
        for index in range(first, end[self._name]):
            remaining -= self._source.files[index].items if self._source.files else 0
            if remaining < 0 and index > first:
                return {self._name: index}
        return dict(end)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return one part per file."""
        (lineage,) = self.lineages()
        chosen = self._source.files[start[self._name] : end[self._name]]
        return [ExportPart(lineage, self._source, (file,), self._columns.items, self.keys()) for file in chosen]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the number of applied files."""
        del name
        return min(applied, last)

    def position(self, name: str) -> str:
        """Return the name of the export's position."""
        return f"export/{name}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return the end of the window once all files are applied."""
        del start
        until = _micros(self._summary.to_time)
        return {EXPORTED_TO: until} if end == self.written() and until is not None else {}

    def check_table(self, table: AppliedTo) -> None:
        """Raise if there is a gap before the window, or if the table already has changes of a stream.

        Raises
        ------
        OptionError
            If rows of a stream would lose against older ones of the export, or the base is no point-in-time snapshot.
        ExportIncompleteError
            If there is a gap before the window, or it starts before the end of the table's changes.
        """
        (lineage,) = self.lineages()
        if lineage not in table.epochs and table.epochs:
            raise OptionError(
                f"{table.uri} has changes of {', '.join(table.epochs)} already, whose sequence numbers cannot be "
                "compared with the times of an export: apply exports first, and then the log"
            )
        since, until = _micros(self._summary.from_time), _micros(self._summary.to_time)
        if since is None or until is None:
            raise ExportIncompleteError(f"the manifest of {self.uri} does not contain the window of the export")
        if table.base_us and not table.reached_us:
            raise OptionError(
                f"the base of {table.uri} was scanned, so it is not a point-in-time snapshot: an item that was created "
                "and deleted meanwhile would stay. Load the base with 'ddbio export read', or apply a log"
            )
        if not table.reached_us or until <= table.reached_us:
            return
        # The service may truncate times to whole seconds.
        reached, first = table.reached_us // _MICROS, since // _MICROS
        if first > reached:
            raise ExportIncompleteError(
                f"{table.uri} has the changes until {_text(table.reached_us)}, but the window of {self.uri} starts at "
                f"{_text(since)}: first apply an export of the time in between"
            )
        if first < reached:
            raise ExportIncompleteError(
                f"the window of {self.uri} starts at {_text(since)}, but {table.uri} has the changes until "
                f"{_text(table.reached_us)}: an item that was created before and deleted after that time would stay; "
                "export the window from that time on"
            )


@dataclass(frozen=True)
class RowsPart:
    """Rows in memory."""

    lineage: str
    rows: pa.Table
    keys: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes."""
        return change_batches(self.rows.to_batches(), change_columns(self.rows.schema), self.keys)

    def divided(self) -> Sequence[RowsPart]:
        """Return the rows in slices."""
        starts = range(0, self.rows.num_rows, _SLICE_ROWS)
        return [dataclasses.replace(self, rows=self.rows.slice(start, _SLICE_ROWS)) for start in starts]


@dataclass
class RowChanges:
    """Changes from rows in memory, as one batch.

    Attributes
    ----------
    schema
        The columns of the rows.
    key
        The key attributes; if empty, those of the table.
    stream
        The stream of the changes.
    job_id, batch_id
        The name of the writer, and the number of the batch: an applied batch is not applied again.
    """

    schema: pa.Schema
    key: tuple[str, ...] = ()
    stream: str = "rows"
    job_id: str = "rows"
    batch_id: int | None = None
    rows: pa.Table | None = field(default=None, repr=False)
    slack_us: int = _SLACK_US

    @property
    def uri(self) -> str:
        """Return the name of the source in messages."""
        return f"the rows of {self.stream}"

    def keys(self) -> tuple[str, ...]:
        """Return the given key attributes."""
        return self.key

    def columns(self) -> pa.Schema:
        """Return the columns of a log for the rows."""
        return change_columns(self.schema)

    def lineages(self) -> list[str]:
        """Return the stream."""
        return [self.stream]

    def written(self) -> dict[str, int]:
        """Return the number of the batch, counted from one."""
        return {self.job_id: 1 if self.batch_id is None else self.batch_id + 1}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the end, since a batch is not divided."""
        del start, records
        return dict(end)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the rows."""
        del start, end
        return [] if self.rows is None else [RowsPart(self.stream, self.rows, self.key)]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the last applied batch."""
        del name
        return min(applied, last)

    def position(self, name: str) -> str:
        """Return the name of the position of numbered batches; empty without a number."""
        return "" if self.batch_id is None else f"rows/{name}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return no other positions."""
        del start, end
        return {}

    def check_table(self, table: AppliedTo) -> None:
        """Use the key of the table if none was given."""
        self.key = self.key or table.keys


def open_changes(options: ApplyOptions) -> LogChanges | ExportChanges:
    """Return the source in a folder: an export if there is a manifest, else a log.

    Raises
    ------
    NotFoundError
        If it is neither.
    """
    store = open_store(options.source, options)
    if any(entry.path.startswith("manifest-") for entry in store.list("manifest-")):
        return ExportChanges(open_export(options.source, options), options)
    try:
        return LogChanges(store, open_log(store, options.job_id))
    except NotFoundError as error:
        raise NotFoundError(f"{error}; nor is there a {manifest.SUMMARY}.json of an incremental export") from None


def row_changes(schema: pa.Schema, options: ApplyOptions) -> RowChanges:
    """Return the source of rows with these columns.

    Raises
    ------
    OptionError
        If the format of the table is hudi.
    SchemaError
        If the columns are not those of changes.
    """
    LAKE_FORMATS[options.format].check("rows")
    if not item_columns(change_columns(schema)):
        raise SchemaError("the rows have no attributes")
    return RowChanges(
        schema,
        key=options.key or (),
        stream=options.stream or "rows",
        job_id=options.job_id or "rows",
        batch_id=options.batch_id,
    )


def base_note(store: ObjectStore) -> JobState:
    """Return the notes of ``bootstrap`` about the bases of a log, which are stored next to the log."""
    return JobState(store, "bootstrap", "bootstrap")


def _micros(text: str | None) -> int | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return round(at.timestamp() * _MICROS)


def _text(micros: int) -> str:
    return datetime.fromtimestamp(micros / _MICROS, UTC).isoformat()
