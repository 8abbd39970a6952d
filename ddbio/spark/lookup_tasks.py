"""Look up the keys of a partition in a task of Spark."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.core.scan_plan import Resources, budget_of, plan_scan
from ddbio.errors import OptionError
from ddbio.ops.scans.plan import describe_scan, sample_table, scan_tasks
from ddbio.ops.scans.stream import SegmentStream
from ddbio.options import ScanOptions, parse_options
from ddbio.options.reading import GivenKeys
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import DataFrameOptions, fit_batch, open_budget, slice_batch
from ddbio.spark.types import to_arrow_schema, to_spark_schema
from ddbio.spark.worker import tidy_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddbio.budget import BudgetAddress
    from ddbio.core.scan_plan import Sample
    from ddbio.core.table_description import TableDescription

# Keys that are looked up at once: enough for all lanes, and some megabytes.
_CHUNK_KEYS = 50_000
_NONE = ("keys", "limit", "segments")


@dataclass(frozen=True)
class LookupTask:
    """Hold what a worker needs to look up keys.

    Attributes
    ----------
    key_types
        The names and types of the key attributes of the table, or of the index.
    asked
        The attributes that were asked for, if not all; keys are read besides.
    portion
        Read units per second of a task that reaches no budget.
    tasks
        How many tasks may run at the same time, if their budget is divided among them.
    """

    options: ScanOptions
    table: TableDescription
    sample: Sample
    key_types: tuple[tuple[str, str], ...]
    asked: tuple[str, ...] | None
    lease: BudgetAddress | None
    portion: float | None
    tasks: int | None


def describe_lookup(values: Mapping[str, Any], application: str | None) -> LookupTask:
    """Return the task of a lookup, after describing and sampling its table.

    Parameters
    ----------
    application
        What the driver's budgets are found by; None if no driver serves any.

    Raises
    ------
    OptionError
        If an option is wrong, or a rate is asked for that nothing could hold over all tasks.
    """
    given = parse_options(DataFrameOptions, values)
    for name in _NONE:
        if getattr(given, name) is not None:
            raise OptionError(f"a lookup takes no option {name!r}")
    options = ScanOptions(**{field.name: getattr(given, field.name) for field in fields(ScanOptions)})
    table = describe_scan(options)
    index = table.index(options.index) if options.index else None
    key_types = tuple((key.name, key.tag) for key in index.keys) if index else tuple(table.key_types)
    if options.columns is not None:
        # Items are told apart by their keys.
        keys = tuple(name for name, _ in key_types if name not in options.columns)
        options = replace(options, columns=(*keys, *options.columns))
    rate = budget_of(table, options)
    terms = None if application is None else request_lease_terms(application, rate)
    lease = None if terms is None else terms.lease
    if rate is not None and lease is None and given.tasks is None:
        raise OptionError(
            f"nothing would hold {rate:g} read units/s over all tasks: give tasks, the number of tasks that run at the "
            "same time"
        )
    with closing(LocalBudget(rate) if lease is None else open_budget(lease, rate)) as budget:
        sample = sample_table(table, options, budget)
    unknown = [name for name, _ in key_types if name not in sample.schema.names]
    if unknown:
        raise OptionError(f"the schema of a lookup has the keys of the table, and this one has no {unknown[0]!r}")
    portion = None if rate is None else rate / (given.tasks or (terms.parallelism if terms else 1))
    return LookupTask(options, table, sample, key_types, given.columns, lease, portion, given.tasks)


def read_keys(task: LookupTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the items of a partition's keys."""
    columns = to_arrow_schema(to_spark_schema(task.sample.schema)).remove_metadata()
    with closing(open_budget(task.lease, task.portion)) as budget:
        for keys in _chunks(batches):
            options = replace(task.options, keys=GivenKeys(keys))
            plan = plan_scan(task.table, task.sample, options, Resources(1))
            (scan,) = scan_tasks(plan, options, task.table)
            with closing(iter(SegmentStream(scan, budget))) as found:
                for batch in found:
                    yield from slice_batch(fit_batch(batch, columns))
    tidy_worker()


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(each.num_rows for each in held) >= _CHUNK_KEYS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
