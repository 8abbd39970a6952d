"""Changes in Structured Streaming, read from a log by its batches, or from a table's stream through such a log.

An offset is the number of a batch, for each capture that writes the log. Batches and their files never change, so a
micro-batch that Spark repeats has the same rows.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ddbio.cdc.capture import open_capture, prepare_capture
from ddbio.cdc.log_jobs import CAPTURE
from ddbio.cdc.log_reader import CapturedLog, oldest_hour, open_log, read_log_file
from ddbio.cdc.options import CaptureOptions
from ddbio.jobs.engine import available_cores
from ddbio.jobs.stores import open_store
from ddbio.options import ConnectionOptions, parse_options
from ddbio.options.aliases import known_names
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import fit_batch, rename_option, slice_batch
from ddbio.spark.types import to_arrow_schema, to_spark_schema
from ddbio.spark.worker import tidy_worker
from ddbio.storage.job_state import JobState

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    # Before 4.2, Spark requests the latest offset without a limit.
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ddbio.cdc.capture import OpenCapture
    from ddbio.cdc.log_reader import LogFile
    from ddbio.storage.object_store import ObjectStore


@options_dataclass(frozen=True, kw_only=True)
class LogStreamOptions(ConnectionOptions):
    """Options of a streaming DataFrame that reads a log."""

    path: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    job_id: str | None = None
    """The capture whose changes are read; default is all that write the folder."""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Start of a new query: the first batch of the log, or after its last batch."""
    max_records_per_batch: Annotated[int, Field(ge=1)] | None = None
    """Approximate number of changes per micro-batch; default is all available changes."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark partitions of a micro-batch; default is the session's parallelism, fewer for few files."""


@options_dataclass(frozen=True, kw_only=True)
class TableStreamOptions(CaptureOptions):
    """Options of a streaming DataFrame that reads the changes of a table through a log."""

    max_records_per_batch: Annotated[int, Field(ge=1)] | None = None
    """Approximate number of changes per micro-batch; default is all available changes."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark partitions of a micro-batch; default is the session's parallelism, fewer for few files."""

    @model_validator(mode="after")
    def _check_limits(self) -> TableStreamOptions:
        if self.max_usd is not None or self.max_seconds is not None:
            raise ValueError("max_usd and max_seconds end 'ddbio capture'; a query is stopped by Spark: leave them out")
        return self


def describe_log(values: Mapping[str, str]) -> StructType:
    """Return the columns of the log of the options."""
    return to_spark_schema(_open_log(_log_options(values))[1].schema())


def describe_stream(values: Mapping[str, str], source: str) -> StructType:
    """Return the columns of the changes of a table. They are chosen now if they were not before."""
    options = _table_options(values, source)
    job_id = prepare_capture(options)
    return to_spark_schema(_own_log(open_store(options.dest, options), job_id).schema())


def open_log_reader(values: Mapping[str, str], schema: StructType) -> LogReader:
    """Return the reader of a log."""
    options = _log_options(values)
    store, log = _open_log(options)
    terms = _Terms(options.max_records_per_batch, options.tasks, starts_late=options.starting_offsets == "latest")
    return LogReader(store, log, to_arrow_schema(schema).remove_metadata(), terms)


def open_stream_reader(values: Mapping[str, str], source: str, schema: StructType) -> CapturingReader:
    """Return the reader of the changes of a table."""
    options = _table_options(values, source)
    job_id = prepare_capture(options)
    store = open_store(options.dest, options)
    terms = _Terms(options.max_records_per_batch, options.tasks)
    columns = to_arrow_schema(schema).remove_metadata()
    return CapturingReader(options, store, _own_log(store, job_id), columns, terms)


def _log_options(values: Mapping[str, str]) -> LogStreamOptions:
    return parse_options(LogStreamOptions, dict(values))


def _table_options(values: Mapping[str, str], source: str) -> TableStreamOptions:
    values_read = rename_option(known_names(values, "read"), "dest", {"log"})
    return parse_options(TableStreamOptions, {**values_read, "source": source})


def _open_log(options: LogStreamOptions) -> tuple[ObjectStore, CapturedLog]:
    store = open_store(options.path, options)
    return store, open_log(store, options.job_id)


def _own_log(store: ObjectStore, job_id: str) -> CapturedLog:
    """Return the log of one capture, which the query itself runs."""
    return CapturedLog(store, [JobState(store, job_id, CAPTURE)])


@dataclass(frozen=True)
class _Terms:
    """Size of a micro-batch, its number of partitions, and the start of a new query."""

    records: int | None
    tasks: int | None
    starts_late: bool = False


@dataclass
class LogPart(InputPartition):  # type: ignore[misc]
    """The files of one Spark partition."""

    files: Sequence[LogFile]


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader of a log. Any number of executors can read, because no shard is read."""

    def __init__(self, store: ObjectStore, log: CapturedLog, columns: pa.Schema, terms: _Terms) -> None:
        self._store, self._log, self._columns, self._terms = store, log, columns, terms
        self._reached: dict[str, int] | None = None
        """The last returned offset, or the last one that Spark passed: a limit counts from there."""
        self._began: dict[str, int] | None = None
        """The first offset of a new query in this run: hours of its first micro-batch may have expired."""
        self._target: dict[str, int] | None = None
        """The end of an AvailableNow query."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's own
        """Return the first offset of a new query."""
        self._reached = self._began = self._log.written() if self._terms.starts_late else self._log.first()
        return self._reached

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - PySpark's own, from 4.2 on
        """Return the approximate maximum number of changes per micro-batch."""
        return ReadAllAvailable() if self._terms.records is None else ReadMaxRows(self._terms.records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's own, from 4.2 on
        """Record the current end of the log: the query ends there, after as many micro-batches as its limit makes."""
        self._target = self._newest()

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's own, from 4.2 on
        """Return the newest offset, for the query's metrics."""
        return self._log.written()

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802 - PySpark's own
        """Return the end of the next micro-batch. From 4.2 on, Spark passes its start and its limit."""
        written, reached = self._target or self._newest(), start or self._reached
        # Before 4.2 only the option is known. From then on, Spark's limit counts.
        records = self._terms.records if limit is None else getattr(limit, "max_rows", None)
        if records is not None and reached is not None:
            written = self._log.limit(reached, written, records)
        self._reached = written
        return written

    def _newest(self) -> dict[str, int]:
        """Return the offset after all changes that are now available."""
        return self._log.written()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogPart]:
        """Return parts of the batches after one offset up to another, about equal in rows."""
        self._reached = dict(end)
        files = self._log.files(start, end)
        if dict(start) == self._began:
            oldest = oldest_hour(self._store)
            files = [file for file in files if file.path >= oldest]
        terms = request_lease_terms(SparkFiles.getRootDirectory(), None)
        wanted = self._terms.tasks or (available_cores() if terms is None else terms.parallelism)
        return [LogPart(part) for part in _parts(files, wanted)]

    def read(self, partition: LogPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition's files."""
        try:
            for file in partition.files:
                for batch in read_log_file(self._store, file, self._columns):
                    yield from slice_batch(fit_batch(batch, self._columns))
        finally:
            tidy_worker()

    def commit(self, end: Mapping[str, int]) -> None:
        """Do nothing: a log keeps its batches."""

    def stop(self) -> None:
        """Do nothing."""


class CapturingReader(LogReader):
    """Reader that captures the changes of a table into a log in the driver before each micro-batch, and reads that log.

    So each shard has one reader, and the end of a micro-batch is recorded before Spark receives it.
    """

    def __init__(
        self, options: CaptureOptions, store: ObjectStore, log: CapturedLog, columns: pa.Schema, terms: _Terms
    ) -> None:
        super().__init__(store, log, columns, terms)
        self._options = options
        self._opened: OpenCapture | None = None
        self._closing: contextlib.ExitStack | None = None

    def _newest(self) -> dict[str, int]:
        """Capture the available changes, and return the offset after them."""
        if self._opened is None or self._closing is None:
            self._closing = contextlib.ExitStack()
            self._opened = self._closing.enter_context(open_capture(self._options, threading.Event()))
        self._opened.loop.run(available_now=True)
        if self._opened.loop.has_ended:
            # The stream was turned off: the next call finds its successor, or raises if there is none.
            self.stop()
        return super()._newest()

    def stop(self) -> None:
        """Stop the capture."""
        if self._closing is not None:
            self._closing.close()
            self._closing = self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without connections: tasks only read files."""
        return {**self.__dict__, "_opened": None, "_closing": None}


def _parts(files: Sequence[LogFile], wanted: int) -> list[list[LogFile]]:
    """Return the files in at most ``wanted`` parts, each of consecutive files."""
    parts: dict[int, list[LogFile]] = {}
    total, before = sum(file.rows for file in files), 0
    for file in files:
        parts.setdefault(before * wanted // max(1, total), []).append(file)
        before += file.rows
    return list(parts.values())
