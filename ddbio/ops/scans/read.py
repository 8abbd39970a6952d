"""Read a table into Arrow in this process: no Spark, no files."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.core.plan import budget_of
from ddbio.ops.scans.scan import plan_of, scan_tasks
from ddbio.ops.scans.survey import describe_scan
from ddbio.ops.scans.task import SegmentStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.options import ScanOptions


def scan_batches(options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows as record batches while several lanes read ahead; all batches have one schema.

    Closing the iterator stops the lanes. Order is not defined.

    Raises
    ------
    DdbioError
        At the call: what is wrong with table, credentials or endpoint; later: what ended the scan.
    """
    return _open(options)[1]


def read_table(options: ScanOptions) -> pa.Table:
    """Return a whole table, or the first ``limit`` items, as one Arrow table.

    Raises
    ------
    DdbioError
        As :func:`scan_batches` says.
    """
    schema, batches = _open(options)
    return pa.Table.from_batches(list(batches), schema)


def _open(options: ScanOptions) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    facts = describe_scan(options)
    budget = LocalBudget(budget_of(facts, options))
    plan = plan_of(options, budget, facts)
    (task,) = scan_tasks(plan, options, facts)
    return plan.schema, _batches(SegmentStream(task, budget), budget)


def _batches(stream: SegmentStream, budget: LocalBudget) -> Iterator[pa.RecordBatch]:
    with closing(iter(stream)) as batches:
        try:
            yield from batches
        finally:
            # Lanes that wait for the budget end now, not at their next page.
            budget.close()
