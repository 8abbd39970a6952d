"""Foresee a load: how many rows and write units it is, and how long it takes; read and write nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ddbio.core.loads.write_plan import WritePlan
    from ddbio.core.plan import Resources
    from ddbio.core.table_description import TableDescription
    from ddbio.options import LoadOptions

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html: a new table's start.
ON_DEMAND_START = 4000.0

# A process writes about so many units a second: below, another one brings nothing.
LOCAL_UNITS_PER_SECOND = 20_000.0
SPARK_BYTES = 1024**3
TASK_BYTES = 32 * 1024**2
MOST_TASKS = 4096


@dataclass(frozen=True)
class SourceFacts:
    """Describe the files of a load before they are read.

    Attributes
    ----------
    rows
        What the footers say, and for other files what a sample lets expect; None without either.
    exact
        Whether every row is counted.
    row_units
        Write units that a row of the sample costs on average, without indexes; None without a sample.
    columns
        Columns of the sample.
    """

    files: int
    units: int
    size_bytes: int
    rows: int | None
    exact: bool
    row_units: float | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class LoadPlan:
    """State a load before it starts.

    Attributes
    ----------
    files, units, size_bytes
        What is read: units are row groups, stripes and files of text.
    rows, rows_exact
        How many rows, counted or as a sample lets expect; None where unknown.
    indexes
        Secondary indexes that the rows have the keys of; each is expected to cost as much as the table.
    wcu_per_second
        The budget, or None.
    table_wcu
        What the table is provisioned for, or its on-demand maximum; None where it states none.
    tasks
        Spark tasks; one on threads.
    shares
        Parts into which all keys are shuffled, so that rows of a key meet in one task; None where they need not.
    estimated_units, estimated_seconds
        For items that are new; None where the rows are unknown.
    """

    source: str
    table: str
    mode: str
    newer_by: str | None
    operation_by: str | None
    files: int
    units: int
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
    shares: int | None
    estimated_units: float | None
    estimated_seconds: float | None


def plan_load(
    options: LoadOptions, write: WritePlan, facts: TableDescription, found: SourceFacts, resources: Resources
) -> LoadPlan:
    """Return what a load would do."""
    indexes = tuple(index.name for index in facts.indexes if set(index.key_names) <= set(found.columns))
    units = None
    if found.rows is not None and found.row_units is not None:
        units = found.rows * found.row_units * (1 + len(indexes))
    rates = [rate for rate in (write.wcu_per_second, facts.wcu) if rate is not None]
    rate = min(rates) if rates else ON_DEMAND_START
    engine, reason = _engine(options, write, found, resources)
    tasks = (options.tasks or _tasks(found)) if engine == "spark" else 1
    shares = tasks if engine == "spark" and write.order_matters and not options.unique_keys else None
    return LoadPlan(
        source=options.source,
        table=write.table,
        mode=write.mode,
        newer_by=write.newer_by,
        operation_by=write.operation_by,
        files=found.files,
        units=found.units,
        size_bytes=found.size_bytes,
        rows=found.rows,
        rows_exact=found.exact,
        indexes=indexes,
        wcu_per_second=write.wcu_per_second,
        table_wcu=facts.wcu,
        on_demand=facts.on_demand,
        lanes=write.lanes,
        engine=engine,
        engine_reason=reason,
        tasks=tasks,
        shares=shares,
        estimated_units=units,
        estimated_seconds=None if units is None else units / rate,
    )


def _engine(
    options: LoadOptions, write: WritePlan, found: SourceFacts, resources: Resources
) -> tuple[Literal["local", "spark"], str]:
    if options.engine != "auto":
        return options.engine, "as asked"
    if found.size_bytes < SPARK_BYTES:
        return "local", "less than 1 GiB"
    if write.wcu_per_second is not None and write.wcu_per_second <= LOCAL_UNITS_PER_SECOND:
        return "local", "one process can use the whole budget"
    if resources.spark_parallelism is None and not resources.can_start_spark:
        return "local", "pyspark is not installed"
    return "spark", "1 GiB or more"


def _tasks(found: SourceFacts) -> int:
    return max(1, min(MOST_TASKS, -(-found.size_bytes // TASK_BYTES)))
