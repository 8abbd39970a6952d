"""Where the changes of a lake table come from: the log of captures, an incremental export, or rows that are given."""

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
from ddbio.lake.change_rows import ExportedChanges, given_columns, given_rows
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
"""The record of the bases of a log, and its member: before which hour a log had nothing when a base began, by time."""

_MICROS, _HOUR_US = 1_000_000, 3_600_000_000
_SLACK_US = 300 * _MICROS
_SLICE_ROWS = 100_000
_FILES_TOGETHER = 8


@dataclass(frozen=True)
class LogPart:
    """Files of a log that one job has written of one stream."""

    lineage: str
    store: ObjectStore
    files: tuple[LogFile, ...]
    columns: pa.Schema
    based_on: str = ""
    """The base has all changes of hours before this one."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes."""
        return read_changes(self.store, self.files, self.columns, lambda hour: hour < self.based_on)

    def divided(self) -> Sequence[LogPart]:
        """Return parts of few files of one hour: each reads the hour's new files if a compaction has replaced one."""
        hours = dict[str, list[LogFile]]()
        for each in self.files:
            hours.setdefault(each.path.rpartition("/")[0], []).append(each)
        return [
            dataclasses.replace(self, files=tuple(files[place : place + _FILES_TOGETHER]))
            for files in hours.values()
            for place in range(0, len(files), _FILES_TOGETHER)
        ]


class LogChanges:
    """Offer the changes of a log, by the batches of its captures.

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
        """What messages call it."""
        return self._store.uri

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table."""
        return self._log.keys()

    def columns(self) -> pa.Schema:
        """Return the columns of the log that a table is made of."""
        return log_columns(self._log.schema())

    def lineages(self) -> list[str]:
        """Return the streams that the log comes from, in the order in which their captures began to read them."""
        titles = sorted({kind_of_job(head).title for head in self._log.heads().values()})
        if len(titles) > 1:
            raise OptionError(
                f"the log {self.uri} has changes from {' and from '.join(titles)}, whose numbers cannot be compared: "
                "choose one capture by job_id"
            )
        return [each.name for each in self._log.lineages()]

    def written(self) -> dict[str, int]:
        """Return the number of each job's last batch."""
        return self._log.written()

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the batches behind so many changes."""
        return self._log.limit(start, end, records)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the files of some batches, a part for each stream of a capture.

        A base that began when another stream of the table was read already has all changes of the streams before.
        They are left out: they could bring items back that were deleted between two streams.
        """
        columns, ends = self.columns(), dict[str, float]()
        for job_id in end:
            known = self._log.lineages_of(job_id)
            ends |= {each.name: later.started_at for each, later in itertools.pairwise(known)}
        return [
            LogPart(lineage.name, self._store, tuple(files), columns, self._based_on)
            for lineage, files in self._log.parts(start, end)
            if ends.get(lineage.name, math.inf) * _MICROS > self._base_us
        ]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the last batch of a capture that is applied.

        Raises
        ------
        TargetError
            If the log has fewer batches than are applied.
        """
        if applied <= last:
            return applied
        # Another run may have applied what the log has since.
        now = self._log.written()[name]
        if applied > now:
            raise TargetError(
                f"{applied} batches of {name} are applied, and the log {self.uri} has {now}: something has removed "
                "batches of it",
                self.uri,
            )
        return last

    def position(self, name: str) -> str:
        """Return the name of a capture's position; a log that is begun anew counts from the start."""
        return f"{name}/{int(float(self._log.heads()[name].get('started_at', 0)) * 1000)}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return nothing more."""
        del start, end
        return {}

    def meet(self, table: AppliedTo) -> None:
        """Learn what the base of a table has: a lifecycle rule may have removed its hours. Accept any table."""
        self._base_us = table.base_us
        if table.base_us:
            noted: dict[str, str] = (base_note(self._store).read(BASE_NOTE) or {}).get(EXPIRED_BEFORE, {})
            known = [hour for at, hour in noted.items() if int(at) <= table.base_us]
            self._based_on = max([hour_folder((table.base_us - self.slack_us) // _HOUR_US), *known])


@dataclass(frozen=True)
class ExportPart:
    """Files of an incremental export."""

    lineage: str
    source: ExportSource
    files: tuple[ExportFile, ...]
    items: pa.Schema
    keys: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes; the files are verified when the iteration has ended.

        Raises
        ------
        ExportIncompleteError
            If a file is missing, or not what the manifest says.
        DecodeError
            If a file is what the manifest says, and yet not an export's.
        """
        decoder = ExportedChanges(self.items, self.keys)
        for file in self.files:
            text = FileText(self.source, file)
            with text.blocks() as blocks:
                for block in blocks:
                    found = decoder.decode_lines(block)
                    if found is not None:
                        text.rows += found.num_rows
                        yield found
            text.verify()

    def divided(self) -> Sequence[ExportPart]:
        """Return a part for each file."""
        return [dataclasses.replace(self, files=(each,)) for each in self.files]


class ExportChanges:
    """Offer the changes of an incremental export, by its files.

    Raises
    ------
    OptionError
        If the export is a full one, or leaves out attributes or items.
    """

    slack_us = 0

    def __init__(self, source: ExportSource, options: ApplyOptions) -> None:
        summary = source.summary
        if summary.kind != "incremental":
            raise OptionError(
                f"{source.folder} is a full export, which has items and no changes: make a table of it by "
                "'ddbio export read --format delta', and apply the exports behind it to that"
            )
        if summary.filtered:
            raise OptionError(f"{source.folder} leaves out items or attributes: apply an export of the whole table")
        self._source, self._summary = source, summary
        given = {**connection_of(options), "source": options.source}
        self._columns = export_columns(source, ExportReadOptions(**given))
        self._name = (summary.export_arn or source.folder).rpartition("/")[2]

    @property
    def uri(self) -> str:
        """What messages call it."""
        return self._source.folder

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes, which the first change names."""
        return self._columns.keys or ()

    def columns(self) -> pa.Schema:
        """Return the columns of the rows."""
        return ExportedChanges(self._columns.items, self.keys()).schema

    def lineages(self) -> list[str]:
        """Return one name for all exports of the table: they say when each item was written."""
        return [f"exports of {self._summary.table_arn}"]

    def written(self) -> dict[str, int]:
        """Return how many files the export has; one without changes counts as one."""
        return {self._name: max(1, len(self._source.files))}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the files behind so many changes."""
        first, left = start[self._name], records
        for place in range(first, end[self._name]):
            left -= self._source.files[place].items if self._source.files else 0
            if left < 0 and place > first:
                return {self._name: place}
        return dict(end)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return some files, a part for each."""
        (lineage,) = self.lineages()
        chosen = self._source.files[start[self._name] : end[self._name]]
        return [ExportPart(lineage, self._source, (each,), self._columns.items, self.keys()) for each in chosen]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return how many files are applied."""
        del name
        return min(applied, last)

    def position(self, name: str) -> str:
        """Return the name of the export's position."""
        return f"export/{name}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return the end of the window, if the last file is among those that are applied."""
        del start
        until = _micros(self._summary.to_time)
        return {EXPORTED_TO: until} if end == self.written() and until is not None else {}

    def meet(self, table: AppliedTo) -> None:
        """Refuse a table whose changes do not reach to the window, or which has those of a stream already.

        Raises
        ------
        OptionError
            If the rows of a stream would lose against older ones of the export, or the base is no point in time.
        ExportIncompleteError
            If the window leaves a gap, or begins within what the table has.
        """
        (lineage,) = self.lineages()
        if lineage not in table.epochs and table.epochs:
            raise OptionError(
                f"{table.uri} has changes of {', '.join(table.epochs)} already, whose numbers cannot be compared with "
                "the times of an export: apply exports first, and the log behind them"
            )
        since, until = _micros(self._summary.from_time), _micros(self._summary.to_time)
        if since is None or until is None:
            raise ExportIncompleteError(f"the manifest of {self.uri} does not say which window the export has")
        if table.base_us and not table.reached_us:
            raise OptionError(
                f"the base of {table.uri} was scanned, which is no point in time: an item that was made and deleted "
                "meanwhile would stay. Make the base by 'ddbio export read', or apply a log"
            )
        if not table.reached_us or until <= table.reached_us:
            return
        # The service may cut times to whole seconds.
        known, first = table.reached_us // _MICROS, since // _MICROS
        if first > known:
            raise ExportIncompleteError(
                f"{table.uri} has the changes until {_text(table.reached_us)}, and the window of {self.uri} begins at "
                f"{_text(since)}: apply the export of the time in between first"
            )
        if first < known:
            raise ExportIncompleteError(
                f"the window of {self.uri} begins at {_text(since)}, and {table.uri} has the changes until "
                f"{_text(table.reached_us)}: an item that was made before and deleted behind that would stay; export "
                "the window from there on"
            )


@dataclass(frozen=True)
class RowsPart:
    """Rows in memory."""

    lineage: str
    rows: pa.Table
    keys: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes."""
        return given_rows(self.rows.to_batches(), given_columns(self.rows.schema), self.keys)

    def divided(self) -> Sequence[RowsPart]:
        """Return the rows in slices."""
        places = range(0, self.rows.num_rows, _SLICE_ROWS)
        return [dataclasses.replace(self, rows=self.rows.slice(place, _SLICE_ROWS)) for place in places]


@dataclass
class RowChanges:
    """Offer rows that are given, as one batch.

    Attributes
    ----------
    schema
        The columns of the rows as they are given.
    key
        The key attributes; none takes those of the table.
    stream
        The stream that they come from.
    job_id, batch_id
        Who gives them, and the number of the batch: one that was applied is not applied again.
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
        """What messages call it."""
        return f"the rows of {self.stream}"

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes that were given."""
        return self.key

    def columns(self) -> pa.Schema:
        """Return the columns of the rows, as a log has them."""
        return given_columns(self.schema)

    def lineages(self) -> list[str]:
        """Return the stream."""
        return [self.stream]

    def written(self) -> dict[str, int]:
        """Return the number of the batch, counted from one."""
        return {self.job_id: 1 if self.batch_id is None else self.batch_id + 1}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the end: a batch is whole."""
        del start, records
        return dict(end)

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the rows."""
        del start, end
        return [] if self.rows is None else [RowsPart(self.stream, self.rows, self.key)]

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the last batch that is applied."""
        del name
        return min(applied, last)

    def position(self, name: str) -> str:
        """Return the name of the position of numbered batches."""
        return "" if self.batch_id is None else f"rows/{name}"

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return nothing more."""
        del start, end
        return {}

    def meet(self, table: AppliedTo) -> None:
        """Take the key of the table, if none was given."""
        self.key = self.key or table.keys


def open_changes(options: ApplyOptions) -> LogChanges | ExportChanges:
    """Return the source in a folder: an export by its manifest, else a log.

    Raises
    ------
    NotFoundError
        If it is neither.
    """
    store = open_store(options.source, options)
    if any(each.path.startswith("manifest-") for each in store.list("manifest-")):
        return ExportChanges(open_export(options.source, options), options)
    try:
        return LogChanges(store, open_log(store, options.job_id))
    except NotFoundError as error:
        raise NotFoundError(f"{error}; and it holds no {manifest.SUMMARY}.json of an incremental export") from None


def given_changes(schema: pa.Schema, options: ApplyOptions) -> RowChanges:
    """Return the source of rows with these columns.

    Raises
    ------
    OptionError
        If the format of the table is hudi.
    SchemaError
        If they are no changes.
    """
    LAKE_FORMATS[options.format].check("rows")
    if not item_columns(given_columns(schema)):
        raise SchemaError("the rows have no attributes")
    return RowChanges(
        schema,
        key=options.key or (),
        stream=options.stream or "rows",
        job_id=options.job_id or "rows",
        batch_id=options.batch_id,
    )


def base_note(store: ObjectStore) -> JobState:
    """Return where ``bootstrap`` notes, beside a log, what it knows of the bases that it loads."""
    return JobState(store, "bootstrap", "bootstrap")


def _micros(text: str | None) -> int | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return round(at.timestamp() * _MICROS)


def _text(micros: int) -> str:
    return datetime.fromtimestamp(micros / _MICROS, UTC).isoformat()
