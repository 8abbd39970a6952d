"""Table as a DataFrame: Spark's planner describes and samples the table, its tasks stream segments."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import Field
from pydantic.dataclasses import dataclass as options_dataclass
from pyspark import SparkFiles, TaskContext

from ddbio.budget import BudgetClient, LocalBudget
from ddbio.budget.worker import CountedBudget
from ddbio.errors import OptionError, SchemaError
from ddbio.items.schema.arrow import RESCUE_NAME, attributes_of, name_of_field
from ddbio.jobs.engine import available_cores
from ddbio.options import parse_options
from ddbio.options.aliases import known_names
from ddbio.scan.describe import PROBE_ITEMS, describe_scan, sample_table, scan_tasks
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import Resources, budget_of, plan_scan
from ddbio.scan.stream import SegmentStream
from ddbio.spark.interfaces import DataSourceReader, InputPartition
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.types import to_arrow_schema, to_spark_schema, with_attribute_names
from ddbio.spark.worker import tidy_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget, BudgetAddress
    from ddbio.scan.plan import Sample
    from ddbio.scan.stream import ScanCounts, ScanTask
    from ddbio.spark.lease_server import LeaseTerms

PROPERTY = "ddbio.counts"
"""The local property of a task with the path of the file for counts."""


class TaskCounts:
    """Counter of the consumption of a task's requests, and of its rows with rescued values."""

    def __init__(self, budget: Budget) -> None:
        context = TaskContext.get()
        self._path = None if context is None else context.getLocalProperty(PROPERTY)
        self._counted = CountedBudget(budget)
        self.budget: Budget = budget if self._path is None else self._counted
        self._rescued = 0

    def add_rows(self, batch: pa.RecordBatch) -> None:
        """Count the rescued values of rows that Spark gets. Queries that do not read them have none."""
        if self._path is not None and RESCUE_NAME in batch.schema.names:
            self._rescued += batch.num_rows - batch.column(RESCUE_NAME).null_count

    def write(self, counts: ScanCounts) -> None:
        """Overwrite the earlier counts in the file. A deleted file is not created again."""
        if self._path is None:
            return
        units, throttles = round(self._counted.units * 10), self._counted.throttles.total()
        text = f"{counts.scanned_items} {counts.wire_bytes} {units} {throttles} {self._rescued}"
        with suppress(OSError):
            # Numbers only grow: the new text is at least as long as the old one.
            file = os.open(self._path, os.O_WRONLY)
            try:
                os.pwrite(file, text.encode(), 0)
            finally:
                os.close(file)


log = logging.getLogger(__name__)

# A batch of 1 GB exceeds the JVM's default memory. Above 2 MB, larger batches are no faster.
BATCH_BYTES = 16 * 1024 * 1024


@options_dataclass(frozen=True, kw_only=True)
class DataFrameOptions(ScanOptions):
    """Options of a DataFrame that reads a table."""

    engine: ClassVar[str] = "spark"

    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark partitions; default is the session's parallelism if it is known, fewer for small tables."""


@dataclass(frozen=True)
class ReadDescription:
    """Description of a table when its read is planned."""

    options: DataFrameOptions
    table: TableDescription
    sample: Sample
    terms: LeaseTerms | None

    @property
    def lease(self) -> BudgetAddress | None:
        """Return the address of this read's budget in the driver, or None."""
        return None if self.terms is None else self.terms.lease

    def spark_schema(self) -> StructType:
        """Return the sampled columns as a Spark schema."""
        return to_spark_schema(self.sample.schema)


def parse_read_options(values: Mapping[str, str]) -> DataFrameOptions:
    """Return the checked options of a read, by ddbio's names or those of other connectors.

    ``load("name")`` is the table.
    """
    return parse_options(DataFrameOptions, known_names(values, "read"))


def rename_option(values: Mapping[str, str], own: str, aliases: set[str]) -> dict[str, Any]:
    """Return the options with one of them under its canonical name, regardless of the alias that was used.

    Raises
    ------
    OptionError
        If it is set twice.
    """
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = own if key.lower() in aliases else key
        if renamed.setdefault(name, value) != value:
            raise OptionError(f"option {name!r} is set twice, as {renamed[name]!r} and as {value!r}: keep one")
    return renamed


def describe_read(values: Mapping[str, str]) -> ReadDescription:
    """Return the description of the table that the options name, with a sample of its items."""
    return _described(parse_read_options(values))


def describe_read_of(values: Mapping[str, str], schema: StructType) -> ReadDescription:
    """Return the description of the table, for the user's columns. No other attribute is read.

    A few items are read to find attributes whose names differ only by case; see ``with_attribute_names``.
    A value of another type fails the read unless the schema has the column ``_rescue`` to keep it.

    Raises
    ------
    OptionError
        If the option ``schema`` is also set.
    """
    options = parse_read_options(values)
    if options.schema is not None:
        raise OptionError("the columns are given twice, by .schema() and by the option 'schema': keep one")
    columns = to_arrow_schema(schema)
    if RESCUE_NAME not in columns.names:
        if options.on_misfit == "drop":
            raise OptionError("on_misfit=drop keeps what it does not drop in _rescue: add that column to the schema")
        options = dataclasses.replace(options, on_misfit="fail")
    return _described(options, columns)


def _described(options: DataFrameOptions, columns: pa.Schema | None = None) -> ReadDescription:
    table = describe_scan(options)
    rate = budget_of(table, options)
    terms = request_lease_terms(SparkFiles.getRootDirectory(), rate)
    with closing(open_budget(None if terms is None else terms.lease, rate)) as budget:
        if columns is not None:
            columns = with_attribute_names(columns, table_attributes(table, options, budget))
            names = tuple(name_of_field(field) for field in columns if field.name != RESCUE_NAME)
            options = dataclasses.replace(options, schema=columns, columns=options.columns or names)
        return ReadDescription(options, table, sample_table(table, options, budget), terms)


def table_attributes(table: TableDescription, options: DataFrameOptions, budget: Budget) -> list[str]:
    """Return the attributes of the table's keys and of a few items."""
    few = min(options.sample_items, PROBE_ITEMS)
    asked = dataclasses.replace(options, schema=None, columns=None, timestamps=None, types=None, sample_items=few)
    keys = (key for index in table.indexes for key in index.keys)
    sampled = attributes_of(sample_table(table, asked, budget).schema)
    return list(dict.fromkeys([*dict(table.key_types), *(key.name for key in keys), *sampled]))


def open_budget(lease: BudgetAddress | None, portion: float | None) -> Budget:
    """Return a client of the driver's budget, or a local budget of the task's portion."""
    return LocalBudget(portion) if lease is None else BudgetClient(lease, fallback_units_per_second=portion)


@dataclass
class SegmentGroup(InputPartition):  # type: ignore[misc]
    """One Spark partition's task, and the rate that it may use without a lease."""

    task: ScanTask
    portion_per_second: float | None


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reader of a described table into the columns that Spark expects. No request is sent until a task runs."""

    def __init__(self, described: ReadDescription, schema: StructType) -> None:
        self._described = described
        self._columns = to_arrow_schema(schema).remove_metadata()

    def partitions(self) -> list[SegmentGroup]:
        """Return a task for each Spark partition. Together they read every segment once."""
        described = self._described
        resources = Resources(available_cores(), None if described.terms is None else described.terms.parallelism)
        plan = plan_scan(described.table, described.sample, described.options, resources)
        tasks = scan_tasks(plan, described.options, described.table)
        portion = None if plan.rcu_per_second is None else plan.rcu_per_second / len(tasks)
        if portion is not None and described.lease is None and len(tasks) > 1:
            log.warning(
                "each of %d tasks may consume %g read units/s, and leaves what it does not use: "
                "call ddbio.register(spark) to share %g among those that run",
                len(tasks), portion, plan.rcu_per_second,
            )  # fmt: skip
        return [SegmentGroup(task, portion) for task in tasks]

    def read(self, partition: SegmentGroup) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition's segments."""
        budget = open_budget(self._described.lease, partition.portion_per_second)
        counts = TaskCounts(budget)
        stream = SegmentStream(partition.task, counts.budget)
        batches: Any = iter(stream)
        try:
            for batch in batches:
                counts.add_rows(batch)
                counts.write(stream.counts)
                yield from slice_batch(fit_batch(batch, self._columns))
            counts.write(stream.counts)
        except SchemaError as error:
            if RESCUE_NAME in self._columns.names:
                raise
            raise SchemaError(f"{error} (to have that column, add '{RESCUE_NAME} string' to .schema())") from error
        finally:
            # If Spark needs no more rows, this wakes the lanes that wait for the budget.
            budget.close()
            batches.close()
            tidy_worker()


def fit_batch(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns: names, order, types and nullability.

    Raises
    ------
    SchemaError
        If a column that is declared NOT NULL has nulls.
    """
    arrays = [batch.column(name) for name in columns.names]
    for field, array in zip(columns, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise SchemaError(f"{field.name}: declared NOT NULL, and {array.null_count} items lack it: drop NOT NULL")
    return pa.RecordBatch.from_arrays([array.cast(field.type) for field, array in zip(columns, arrays, strict=True)],
                                      schema=columns)  # fmt: skip


def slice_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices that fit into the JVM's default memory."""
    pieces = max(1, math.ceil(batch.nbytes / BATCH_BYTES))
    rows = max(1, math.ceil(batch.num_rows / pieces))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
