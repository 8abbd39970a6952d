"""Sides of a validation: a table, an export, files, or data in memory, each read as record batches."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_limits
from ddbio.errors import DdbioError, OptionError
from ddbio.export.options import ExportReadOptions
from ddbio.export.tasks import ExportStream, export_columns, export_tasks
from ddbio.formats.export_manifest import SUMMARY
from ddbio.formats.json_rows import starts_with_item
from ddbio.formats.manifests import look_up
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.decode import Decoder
from ddbio.items.schema.arrow import declare_types
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.costs import cost_of
from ddbio.jobs.estimate import ARROW_RATIO, DIGEST_SPEED, EXPORT_SPEED, START_SECONDS
from ddbio.jobs.providers import provider
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.stores import open_store
from ddbio.jobs.table_limits import statistics_table
from ddbio.options import connection_of
from ddbio.scan.describe import describe_scan, plan_of, plan_of_statistics, scan_tasks
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import budget_of
from ddbio.scan.stream import BlockT, PageStream
from ddbio.sources.data_files import find_data, is_data, is_json, read_lines
from ddbio.sources.export_source import open_export
from ddbio.storage.meta import META, is_manifest, read_state
from ddbio.storage.staged import StoredObject
from ddbio.validation.comparison import SideOutline
from ddbio.validation.sums import RowHasher
from ddbio.validation.tasks import (
    ExportPortion,
    FilesPortion,
    FileUnit,
    HashingDecoder,
    TablePortion,
    summarise,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from ddbio.export.tasks import ExportTask
    from ddbio.items.key_hashes import Words
    from ddbio.items.rescue import MisfitLog
    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.options import ConnectionOptions
    from ddbio.scan.plan import ScanPlan
    from ddbio.scan.stream import PageDecoder
    from ddbio.storage.object_store import ObjectStore
    from ddbio.validation.key_join import Summary
    from ddbio.validation.options import ValidateOptions
    from ddbio.validation.sums import Checks, HashedRows, Hashing
    from ddbio.validation.tasks import Portion, TasksSummary

Nulls = Literal["keep", "merge"]


@dataclass(frozen=True)
class Reading:
    """How both sides are read, so that equal items compare equal.

    Attributes
    ----------
    schema
        Types of columns by name; None if each side uses its own.
    keys
        Key attributes and their types, for text formats.
    nulls
        Whether NULL and missing are different.
    engine
        The engine that runs the reading tasks; None if this process reads.
    """

    schema: pa.Schema | None
    keys: Mapping[str, str]
    nulls: Nulls
    engine: ShufflingEngine | None = None


class Side(ABC):
    """One side, which can be read repeatedly, in this process or by the tasks of an engine.

    Attributes
    ----------
    keys
        Its key attributes and their types, if known.
    schema
        The types of its columns, if known before it is read.
    nulls
        Whether its rows distinguish NULL from missing; None if it can do both.
    read_bytes
        Bytes read so far, as sent or stored; 0 for data in memory.
    misfits
        Values that did not fit their columns, after the side was read.
    location
        The URI of its files; None without files.
    """

    has_unique_keys: ClassVar[bool] = False
    _summary: TasksSummary | None = None

    def __init__(self, name: str, location: str | None = None) -> None:
        self.name, self.location = name, location
        self.keys: dict[str, str] = {}
        self.schema: pa.Schema | None = None
        self.nulls: Nulls | None = None
        self.rcu_consumed, self.read_bytes = 0.0, 0
        self.misfits: MisfitLog | None = None

    @abstractmethod
    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates before reading."""

    @abstractmethod
    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield all rows."""

    def batches_with(
        self, reading: Reading, names: Sequence[str], hashes: Words
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield at least the rows with these key hashes: the rows that tasks have collected, or all rows."""
        del names
        if self._summary is None:
            yield from self.batches(reading)
        else:
            yield from self._summary.batches_with(hashes)

    def hashed(self, reading: Reading, hashing: Hashing) -> Generator[HashedRows, None, None]:
        """Yield all rows with their hashes."""
        hasher = RowHasher(hashing)
        with closing(self.batches(reading)) as batches:
            yield from map(hasher.hashed, batches)

    def summarised(self, reading: Reading, hashing: Hashing, checks: Checks | None) -> Summary | None:
        """Return the summary of an engine's tasks, which hash rows and evaluate rules; None without an engine."""
        if reading.engine is None:
            return None
        portions = self._portions(reading, reading.engine.parallelism)
        self._summary, self.misfits = summarise(
            reading.engine, portions, hashing, checks, functools.partial(self._budget, reading)
        )
        return self._summary

    def _portions(self, reading: Reading, count: int) -> Sequence[Portion]:
        """Return portions for about ``count`` tasks."""
        raise NotImplementedError

    @contextmanager
    def _budget(self, reading: Reading) -> Iterator[LocalBudget]:
        """Open the budget of one reading."""
        del reading
        with closing(LocalBudget(None, job="validation")) as budget:
            yield budget


def open_side(
    data: Any, options: ValidateOptions, connection: ConnectionOptions, statistics: str | None = None
) -> Side:
    """Return a side.

    Parameters
    ----------
    statistics
        A file that describes the table, if the side is a table, which is then only planned.

    Raises
    ------
    NotFoundError
        If there is no such table, folder or file.
    OptionError
        If a name could be a table, but a local folder has the same name; or if an export is incremental.
    SchemaError
        If the data has no columns.
    """
    if not isinstance(data, (str, os.PathLike)):
        return DataSide(data)
    name = os.fspath(data)
    if not isinstance(data, os.PathLike) and not is_data(name):
        return TableSide(name, options, connection, statistics)
    if any(entry.path == f"{SUMMARY}.json" for entry in open_store(name, connection).list(SUMMARY)):
        return ExportSide(name, options, connection)
    return FilesSide(name, options, connection)


class TableSide(Side):
    """A table, which is planned and sampled once."""

    has_unique_keys = True

    def __init__(
        self, name: str, options: ValidateOptions, connection: ConnectionOptions, statistics: str | None = None
    ) -> None:
        super().__init__(name)
        self._statistics = statistics
        self._options = ScanOptions(
            **connection_of(connection),
            table=name,
            consistent=options.consistent,
            segments=options.segments,
            lanes=options.lanes,
            rcu_per_second=options.rcu_per_second,
            read_ratio=options.read_ratio,
            sample_items=options.sample_items,
            max_units=options.max_units,
            max_seconds=options.max_seconds,
            max_usd=options.max_usd,
            prices=options.prices,
        )
        self._table = statistics_table(statistics) or describe_scan(self._options)
        self.keys = dict(self._table.key_types)
        self._planned: tuple[ScanOptions, ScanPlan] | None = None

    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates from the service and the sample."""
        _, plan = self._plan(reading)
        return SideOutline(
            self.name,
            "table",
            plan.item_count,
            plan.size_bytes,
            plan.estimated_units,
            plan.rcu_per_second,
            plan.requests,
            plan.cost,
            plan.bytes,
            plan.seconds - START_SECONDS,
        )

    def sampled_schema(self) -> pa.Schema:
        """Return the schema of a sample."""
        return self._plan(Reading(None, self.keys, "keep"))[1].schema

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the table's rows."""
        yield from self._read(reading, lambda decoder: decoder)

    @property
    def usd(self) -> float:
        """Return the cost of the units consumed so far."""
        return cost_of("reads", self.rcu_consumed, self._table, self._options.prices).usd

    def hashed(self, reading: Reading, hashing: Hashing) -> Generator[HashedRows, None, None]:
        """Yield the table's rows, hashed by the lanes that decode them."""
        yield from self._read(reading, lambda decoder: HashingDecoder(decoder, RowHasher(hashing)))

    def _read(
        self, reading: Reading, around: Callable[[Decoder], PageDecoder[BlockT]]
    ) -> Generator[BlockT, None, None]:
        options, plan = self._plan(reading)
        (task,) = scan_tasks(plan, replace(options, nulls=reading.nulls), self._table)
        with self._budget(reading) as budget:
            stream = PageStream(task, budget, lambda: around(Decoder(task.schema, nulls=task.nulls)))
            try:
                with closing(iter(stream)) as blocks:
                    yield from blocks
            finally:
                # A second pass may end early and does not report more misfits.
                self.misfits = self.misfits or stream.counts.misfits

    def _portions(self, reading: Reading, count: int) -> Sequence[Portion]:
        options, plan = self._plan(reading)
        tasks = replace(plan, tasks=min(count, plan.segments), lanes=max(plan.lanes, min(count, plan.segments)))
        return [TablePortion(task) for task in scan_tasks(tasks, replace(options, nulls=reading.nulls), self._table)]

    @contextmanager
    def _budget(self, reading: Reading) -> Iterator[LocalBudget]:
        options, plan = self._plan(reading)
        budget = LocalBudget(budget_of(self._table, options), job=f"validation of {self.name}")
        budget.bound(check_limits(options, plan.units, plan.seconds, plan.cost))
        try:
            with budget.within_limits():
                yield budget
        finally:
            self.rcu_consumed += budget.usage().consumed_units
            self.read_bytes += budget.usage().wire_bytes

    def _plan(self, reading: Reading) -> tuple[ScanOptions, ScanPlan]:
        if self._planned is None:
            options = replace(self._options, schema=reading.schema)
            if self._statistics is not None:
                self._planned = options, plan_of_statistics(options, self._statistics)
                return self._planned
            budget = LocalBudget(budget_of(self._table, options))
            self._planned = options, plan_of(options, budget, self._table)
            self.rcu_consumed += budget.usage().consumed_units
            budget.close()
        return self._planned


class ExportSide(Side):
    """A native full export, verified against its manifests."""

    has_unique_keys = True

    def __init__(self, name: str, options: ValidateOptions, connection: ConnectionOptions) -> None:
        super().__init__(name, name)
        self._options = ExportReadOptions(**connection_of(connection), source=name, sample_items=options.sample_items)
        self._export = open_export(name, connection)
        if self._export.summary.kind != "full":
            raise OptionError(f"{name} is an incremental export, whose changes are no rows: give a full export")

    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates from the manifests."""
        del reading
        size, items = sum(self._export.sizes().values()), sum(file.items for file in self._export.files)
        seconds = TEXT_RATIOS["gzip"] * size / EXPORT_SPEED
        return SideOutline(self.name, "export", items, size, read_bytes=size, seconds=seconds)

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the export's rows. A file is verified after its last row."""
        for task in self._tasks(reading, 1):
            stream = ExportStream(task)
            yield from stream
            self.misfits = stream.counts.misfits

    def _portions(self, reading: Reading, count: int) -> Sequence[Portion]:
        return [ExportPortion(task) for task in self._tasks(reading, count)]

    def _tasks(self, reading: Reading, count: int) -> Sequence[ExportTask]:
        self.read_bytes += sum(self._export.sizes().values())
        options = replace(self._options, schema=reading.schema, nulls=reading.nulls)
        return export_tasks(self._export, export_columns(self._export, options), options, count)


class FilesSide(Side):
    """The live files of a folder, or one file."""

    def __init__(self, name: str, options: ValidateOptions, connection: ConnectionOptions) -> None:
        super().__init__(name, name)
        self._data = find_data(name, connection, options.input_format)
        self._store = self._data.store
        self._files = [(self._data.live_file(entry), entry) for entry in self._data.files]
        origin = _origin(self._store)
        self.keys = origin.keys
        self.schema = origin.schema
        # DynamoDB JSON distinguishes NULL from missing, regardless of how it is read.
        first = self._data.files[0]
        is_exact = is_json(first) and starts_with_item(read_lines(self._store, first.path, 1))
        self.nulls = None if is_exact else origin.nulls

    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates from the snapshot, the manifests or the listing."""
        del reading
        counts = [file.rows if file.size_bytes == entry.size_bytes else None for file, entry in self._files]
        total = sum(count for count in counts if count is not None)
        rows = None if None in counts else total
        size = sum(entry.size_bytes for _, entry in self._files)
        seconds = ARROW_RATIO * size / DIGEST_SPEED
        return SideOutline(self.name, "files", rows, size, read_bytes=size, seconds=seconds)

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of all files, with the columns of their folders."""
        yield from self._portion(reading).batches()

    def _portions(self, reading: Reading, count: int) -> Sequence[Portion]:
        return self._portion(reading).divided(count)

    def _portion(self, reading: Reading) -> FilesPortion:
        self.read_bytes += sum(entry.size_bytes for _, entry in self._files)
        columns = self._data.columns(reading.keys)
        # The schemas that a job recorded: a text file that was edited later has the same columns.
        noted = look_up(self._store, (StoredObject(file.path, file.size_bytes) for file, _ in self._files))
        schemas, declared = {**noted.schemas, **self._data.noted.schemas}, self.schema or reading.schema or ()
        units = (
            FileUnit(
                noted.with_checksums(entry),
                None,
                schemas.get(file.path),
                () if file.path in schemas else declared,
                columns[file.path],
            )
            for file, entry in self._files
        )
        return FilesPortion(self._store, reading.keys, tuple(units))


class DataSide(Side):
    """Arrow data, a data frame with an Arrow C stream, or a DataFrame of Spark."""

    def __init__(self, data: Any) -> None:
        super().__init__(f"a {type(data).__name__}")
        self.nulls = "merge"
        self._data = data
        self._is_frame = type(data).__module__.startswith("pyspark.")
        self._reads = 0

    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates from the data."""
        del reading
        rows = getattr(self._data, "num_rows", None)
        return SideOutline(self.name, "data", rows if isinstance(rows, int) else None, None)

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows.

        Raises
        ------
        OptionError
            If the data is a stream that was already read.
        """
        self._reads += 1
        if self._reads > 1 and isinstance(self._data, pa.RecordBatchReader):
            raise OptionError(
                "a stream can be read only once, but examples need a second read: give a table, or examples=0"
            )
        if self._is_frame:
            spark = provider("validation of DataFrames")
            yield from spark.frame_batches(self._data, reading.schema)
            return
        for batch in checked_batches(record_batch_reader(self._data)):
            yield declare_types(batch, reading.schema or ())

    def batches_with(
        self, reading: Reading, names: Sequence[str], hashes: Words
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows that a DataFrame's tasks have collected; all rows of other data."""
        if not self._is_frame:
            yield from self.batches(reading)
            return
        spark = provider("validation of DataFrames")
        yield from spark.frame_batches(self._data, reading.schema, (tuple(names), hashes))

    def summarised(self, reading: Reading, hashing: Hashing, checks: Checks | None) -> Summary | None:
        """Return the summary of a DataFrame's tasks, which hash rows and evaluate rules; None for other data."""
        if not self._is_frame:
            return None
        summary: Summary = provider("validation of DataFrames").summarise(self._data, reading.schema, hashing, checks)
        return summary


@dataclass(frozen=True)
class _Origin:
    keys: dict[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None
    nulls: Nulls = "merge"


def _origin(store: ObjectStore) -> _Origin:
    """Return the key, schema and nulls of the source in the newest manifest that records a key."""
    for entry in sorted(store.list(META), key=lambda entry: entry.modified_at, reverse=True):
        if is_manifest(entry.path):
            try:
                manifest = read_state(store, entry.path)
                source = manifest["source"]
                return _Origin(dict(source["key"]), arrow_schema_of(manifest["schema"]), source.get("nulls", "merge"))
            except (DdbioError, KeyError, TypeError, ValueError):
                continue
    return _Origin()
