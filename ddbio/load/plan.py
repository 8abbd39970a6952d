"""Plans of writes: the method, rate and lanes of a write, and the cost of a load of files.

A plan is a value. It is computed from a description of the table and of the source, and a run follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ddbio.budget.pacing import DEFAULT_QUOTA_WCU, DEFAULT_RATIO, NEW_TABLE_WCU, Ramp
from ddbio.errors import OptionError
from ddbio.items.capacity import WriteCost
from ddbio.items.index_units import SampledWrites
from ddbio.jobs.estimate import START_SECONDS, Figures
from ddbio.jobs.prices import cost_values
from ddbio.jobs.table_limits import largest_share, limits_of
from ddbio.jobs.watch import JobOutline
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.aws.table_description import IndexDescription, IndexKey, TableDescription
    from ddbio.jobs.prices import Cost
    from ddbio.load.options import LoadOptions, WriteOptions
    from ddbio.scan.plan import Resources

BATCH_LANES = 8
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
MOST_WRITES = 25
# A lane has one request in flight. With one row of one unit per request and 50 ms per request, this gives the number of
# lanes that a budget keeps busy. Idle lanes cost nothing, not even a connection.
_ROW_SECONDS = 0.05
_MAX_ROW_LANES = 128
# Without a budget the processor is the limit, at about ten thousand requests per second.
_UNBOUND_ROW_LANES = 64
# With more lanes, a chunk would have too few rows per lane to fill its batches.
_MAX_MIXED_LANES = 32

# Write units per second of one process. Below this rate, a second process is not faster.
LOCAL_UNITS_PER_SECOND = 20_000.0
SPARK_BYTES = 1024**3
TASK_BYTES = 32 * 1024**2
# If an index's busiest partition has more than this multiple of its even share of the writes, frequent keys are its
# limit.
_HOT = 1.2
MAX_TASKS = 4096


@dataclass(frozen=True)
class WritePlan(Result):
    """Complete description of a write before it starts.

    Attributes
    ----------
    key_types
        The table's key attributes and their types, the partition key first.
    lanes
        Requests in flight at the same time.
    ramp
        Limits the rate of an on-demand table that has to scale up first.
    """

    table: str
    key_types: tuple[tuple[str, str], ...]
    mode: Literal["upsert", "create", "delete", "update"]
    newer_by: str | None
    operation_by: str | None
    lanes: int
    wcu_per_second: float | None
    ramp: Ramp | None = None
    index_keys: tuple[IndexKey, ...] = ()
    compress_requests: bool = False

    @property
    def nulls_matter(self) -> bool:
        """Return whether a null removes an attribute, while a missing column does not change it."""
        return self.mode == "update" or self.operation_by is not None

    @property
    def sends_single_items(self) -> bool:
        """Return whether each request writes one row: BatchWriteItem has no conditions and no updates."""
        return _sends_single_items(self.mode, self.newer_by)

    @property
    def order_matters(self) -> bool:
        """Return whether the result depends on the order in which rows of one key are written."""
        return self.operation_by is not None or (self.mode != "delete" and self.newer_by is None)


def plan_write(table: TableDescription, options: WriteOptions) -> WritePlan:
    """Return the plan of a write to a table.

    Raises
    ------
    OptionError
        If the table cannot be written now, or ``write_ratio`` is given and the table has no declared capacity.
    """
    if table.status not in {"ACTIVE", "UPDATING"}:
        raise OptionError(f"table {table.name!r} is {table.status}: wait until it is ACTIVE")
    budget = write_budget_of(table, options)
    return WritePlan(
        table=options.table,
        key_types=table.key_types,
        mode=options.mode,
        newer_by=options.newer_by,
        operation_by=options.operation_by,
        lanes=options.lanes or _lanes(options, budget, table.wcu),
        wcu_per_second=budget,
        ramp=ramp_of(table, options),
        compress_requests=options.compress_requests,
        index_keys=tuple(
            key
            for keys in [*(index.keys for index in table.indexes), *(index.keys for index in table.vector_indexes)]
            for key in keys
        ),
    )


def _sends_single_items(mode: str, newer_by: str | None) -> bool:
    return newer_by is not None or mode in {"create", "update"}


def _lanes(options: WriteOptions, *rates: float | None) -> int:
    """Return the number of lanes for the lowest of some rates. More lanes would only be throttled longer."""
    if _sends_single_items(options.mode, options.newer_by):
        most = _MAX_ROW_LANES
    elif options.operation_by is not None:
        most = _MAX_MIXED_LANES
    else:
        return BATCH_LANES
    known_rates = [rate for rate in rates if rate is not None]
    lanes = math.ceil(min(known_rates) * _ROW_SECONDS) if known_rates else _UNBOUND_ROW_LANES
    return min(most, max(BATCH_LANES, lanes))


def ramp_of(table: TableDescription, options: WriteOptions) -> Ramp | None:
    """Return the ramp of a warm-up, which starts at the rate that the table can serve immediately.

    Raises
    ------
    OptionError
        If a warm-up is requested and the table is not on demand.
    """
    if not options.warm_up:
        return None
    if not table.on_demand:
        raise OptionError(f"table {table.name!r} has provisioned capacity, which needs no warm_up: leave it out")
    return Ramp(max(NEW_TABLE_WCU, table.warm_wcu or 0.0))


def write_budget_of(table: TableDescription, options: WriteOptions) -> float | None:
    """Return the write units per second that a job may use, by default half of a provisioned table's capacity.

    It is at least one. None means no limit, the default for an on-demand table.

    Raises
    ------
    OptionError
        If ``write_ratio`` is given and the table has no declared write capacity.
    """
    if options.write_ratio is None:
        if options.wcu_per_second is None and not table.on_demand and table.wcu is not None:
            return max(1.0, table.wcu * DEFAULT_RATIO)
        # A warm-up ends at the default quota of a table, unless a rate is given.
        return options.wcu_per_second or (DEFAULT_QUOTA_WCU if options.warm_up else None)
    if table.wcu is None:
        raise OptionError(
            f"write_ratio is a share of the table's write capacity, and on-demand table {table.name!r} states none: "
            "give wcu_per_second"
        )
    return max(1.0, table.wcu * options.write_ratio)


@dataclass(frozen=True)
class SourceDescription:
    """Description of the files of a load before they are read.

    Attributes
    ----------
    rows
        The number of rows: counted in the footers, or estimated from a sample; None without either.
    exact
        Whether ``rows`` is a count.
    row_units
        Average write units of a row of the sample, without indexes; None without a sample.
    columns
        Columns of the sample.
    index_units
        Average write units of each index for a row of the sample, if they could be computed.
    index_keys
        The shares of the frequent partition keys of each global index.
    files_skipped
        Paths of files that are left out, since their names are not those of data files.
    vector_bytes
        Average bytes of writing a row of the sample to each vector index, if they could be computed.
    """

    files: int
    units: int
    size_bytes: int
    rows: int | None
    exact: bool
    row_units: float | None
    columns: tuple[str, ...]
    index_units: tuple[tuple[str, float], ...] = ()
    index_keys: tuple[tuple[str, tuple[float, ...]], ...] = ()
    files_skipped: tuple[str, ...] = ()
    vector_bytes: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class LoadPlan(Result):
    """Plan of a load before it starts.

    Attributes
    ----------
    files, source_units, size_bytes
        The input. A unit is a row group, a stripe, a range of a text file, or a compressed text file.
    rows, rows_exact
        The number of rows, counted or estimated; None if unknown.
    indexes
        Secondary indexes whose keys are among the columns. Each is expected to cost as much as the table.
    wcu_per_second
        The budget, or None.
    table_wcu
        The table's provisioned write units, or its on-demand maximum; None if it has neither.
    tasks
        Spark tasks; 1 on threads.
    key_partitions
        Partitions of the keys into which rows are shuffled, so that one task writes all rows of a key; None if the rows
        need no shuffle.
    finished_rows
        Rows that earlier runs of the same job have finished. Units, bytes, rows and estimates do not include them.
    estimated_units, estimated_seconds
        For new items; None if the number of rows is unknown.
    requests
        The number of requests. BatchWriteItem takes 25 rows, other writes one.
    limited_by
        The bottleneck of the estimated seconds: the budget, the table, or one of its indexes.
    burst_saves_seconds
        The reduction of the estimated seconds by burst capacity that the table can have saved up.
    files_skipped
        Paths of files that are left out, since their names are not those of data files.
    vector_write_bytes
        Bytes of writing new items to each vector index. They are billed, but ``cost`` does not include them: ddbio's
        price list has no price of them.
    """

    source: str
    table: str
    mode: str
    newer_by: str | None
    operation_by: str | None
    files: int
    source_units: int
    size_bytes: int
    rows: int | None
    rows_exact: bool
    indexes: tuple[str, ...]
    wcu_per_second: float | None
    table_wcu: float | None
    on_demand: bool
    lanes: int
    engine: Literal["local", "spark"]
    engine_reason: str
    tasks: int
    key_partitions: int | None
    estimated_units: float | None
    estimated_seconds: float | None
    finished_rows: int = 0
    requests: int | None = None
    limited_by: str = ""
    cost: Cost | None = None
    burst_saves_seconds: float = 0.0
    files_skipped: tuple[str, ...] = ()
    vector_write_bytes: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        values = super().to_dict()
        del values["cost"]
        return {
            **values,
            "units": self.estimated_units,
            "bytes": self.size_bytes,
            "seconds": self.seconds,
            **cost_values(self.cost),
        }

    @property
    def seconds(self) -> float | None:
        """Return the duration of a run, including its start and the effect of the table's burst capacity."""
        if self.estimated_seconds is None:
            return None
        return max(0.0, self.estimated_seconds - self.burst_saves_seconds) + START_SECONDS

    @property
    def figures(self) -> Figures:
        """Return the figures to compare with the actual ones."""
        usd = None if self.cost is None else self.cost.usd
        return Figures(self.estimated_units, self.seconds, self.size_bytes, usd)

    @property
    def outline(self) -> JobOutline:
        """Return the extent of the load for a progress display."""
        goal = None if self.rows is None else self.rows + self.finished_rows
        return JobOutline(f"load {self.table}", "WCU", goal, self.wcu_per_second, self.finished_rows)

    def without_finished(self, units: int, size_bytes: int, finished_rows: int) -> LoadPlan:
        """Return the plan of the remaining work.

        Parameters
        ----------
        units, size_bytes
            The units still to read, and their size.
        finished_rows
            The rows that earlier runs have finished.
        """
        if self.rows is None:
            return replace(self, source_units=units, size_bytes=size_bytes, finished_rows=finished_rows)
        rows = max(0, self.rows - finished_rows) if units else 0
        share = rows / max(1, self.rows)
        return replace(
            self,
            source_units=units,
            size_bytes=size_bytes,
            rows=rows,
            estimated_units=None if self.estimated_units is None else self.estimated_units * share,
            estimated_seconds=None if self.estimated_seconds is None else self.estimated_seconds * share,
            finished_rows=finished_rows,
            requests=None if self.requests is None else math.ceil(self.requests * share),
            cost=None if self.cost is None else self.cost.of_share(share),
            vector_write_bytes={name: size * share for name, size in self.vector_write_bytes.items()},
        )


def plan_load(
    options: LoadOptions, write: WritePlan, table: TableDescription, source: SourceDescription, resources: Resources
) -> LoadPlan:
    """Return the plan of a load."""
    indexes = [index for index in table.indexes if set(index.key_names) <= set(source.columns)]
    units, seconds, limited_by, burst_saves = None, None, "", 0.0
    if source.rows is not None and source.row_units is not None:
        writes = SampledWrites(WriteCost(source.row_units, dict(source.index_units)), source.index_keys)
        found_estimate = write_estimate(table, indexes, source.rows, writes, write.wcu_per_second)
        units, seconds, limited_by = found_estimate.units, found_estimate.seconds, found_estimate.limited_by
        burst_saves = found_estimate.burst_saves_seconds
    engine, reason = _engine(options, write, source, resources)
    tasks = (options.tasks or _tasks(source)) if engine == "spark" else 1
    key_partitions = tasks if engine == "spark" and write.order_matters and not options.unique_keys else None
    return LoadPlan(
        source=options.source,
        table=write.table,
        mode=write.mode,
        newer_by=write.newer_by,
        operation_by=write.operation_by,
        files=source.files,
        source_units=source.units,
        size_bytes=source.size_bytes,
        rows=source.rows,
        rows_exact=source.exact,
        indexes=tuple(index.name for index in indexes),
        wcu_per_second=write.wcu_per_second,
        table_wcu=table.wcu,
        on_demand=table.on_demand,
        lanes=write.lanes,
        engine=engine,
        engine_reason=reason,
        tasks=tasks,
        key_partitions=key_partitions,
        estimated_units=units,
        estimated_seconds=seconds,
        requests=None if source.rows is None else requests_of(source.rows, write),
        limited_by=limited_by,
        burst_saves_seconds=burst_saves,
        files_skipped=source.files_skipped,
        vector_write_bytes={name: mean * (source.rows or 0) for name, mean in source.vector_bytes},
    )


def requests_of(rows: int, write: WritePlan) -> int:
    """Return the number of requests that write this number of rows."""
    return -(-rows // (1 if write.sends_single_items else MOST_WRITES))


class WriteEstimate(NamedTuple):
    """Write units of new items, the seconds that they take, the bottleneck, and the seconds saved by burst."""

    units: float
    seconds: float
    limited_by: str
    burst_saves_seconds: float


def write_estimate(
    table: TableDescription, indexes: Sequence[IndexDescription], rows: int, writes: SampledWrites, budget: float | None
) -> WriteEstimate:
    """Return the write units of new items, the seconds that they take, and the bottleneck.

    An index without a sampled average is expected to cost as much as the table, or one unit if it only has keys. The
    budget applies to table and indexes together. A global index has its own rate and partitions, and the partitions of
    frequent keys are hot.
    """
    row, row_units = writes.cost, writes.cost.table
    assumed = {index.name: row_units if index.projected is None or index.projected else 1.0 for index in indexes}
    own = {name: rows * row.indexes.get(name, units) for name, units in assumed.items()}
    locals_units = sum(own[index.name] for index in indexes if not index.is_global)
    total = rows * row_units + sum(own.values())
    units_of_table = rows * row_units + locals_units
    served = {"the table": limits_of(table, "writes").serves(units_of_table)}
    for name in (index.name for index in indexes if index.is_global):
        limits = limits_of(table, "writes", name)
        share = largest_share(dict(writes.index_keys).get(name, ()), limits.partitions)
        serving = limits.serves(own[name], largest_share=share)
        is_hot = serving.by_partitions and share * limits.partitions > _HOT
        served[f"frequent keys of index {name}" if is_hot else f"index {name}"] = serving
    budget_seconds = total / budget if budget else 0.0
    lasting = {
        "the budget": budget_seconds,
        **{name: service_time.lasting_seconds for name, service_time in served.items()},
    }
    limited_by = max(lasting, key=lambda reason: lasting[reason])
    with_burst = max(budget_seconds, *(service_time.burst_seconds for service_time in served.values()))
    return WriteEstimate(total, lasting[limited_by], limited_by, lasting[limited_by] - with_burst)


def _engine(
    options: LoadOptions, write: WritePlan, source: SourceDescription, resources: Resources
) -> tuple[Literal["local", "spark"], str]:
    if options.engine != "auto":
        return options.engine, "as asked"
    if source.size_bytes < SPARK_BYTES:
        return "local", "less than 1 GiB"
    if write.wcu_per_second is not None and write.wcu_per_second <= LOCAL_UNITS_PER_SECOND:
        return "local", "one process can use the whole budget"
    if resources.spark_parallelism is None and not resources.can_start_spark:
        return "local", "pyspark is not installed"
    return "spark", "1 GiB or more"


def _tasks(source: SourceDescription) -> int:
    return max(1, min(MAX_TASKS, -(-source.size_bytes // TASK_BYTES)))
