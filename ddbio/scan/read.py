"""Read a table in this process: into Arrow, or into a digest of its items."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ddbio.budget import LocalBudget
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.items.rescue import MisfitLog
from ddbio.jobs.service_estimates import DIGEST_SAMPLE_ITEMS
from ddbio.options import LimitOptions, connection_of
from ddbio.scan.describe import describe_scan, plan_of, scan_tasks
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import budget_of
from ddbio.scan.stream import PageStream, SegmentStream

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from ddbio.aws.table_description import TableDescription
    from ddbio.items.digest import Digest
    from ddbio.options import ConnectionOptions
    from ddbio.scan.plan import ScanPlan

_LOG = logging.getLogger("ddbio.scan")


def scan_batches(options: ScanOptions) -> RecordBatchStream:
    """Return a DynamoDB table as an iterator of record batches of one schema, while several lanes read ahead.

    Memory is bounded, regardless of the table's size. Closing the iterator stops the lanes. Readers of Arrow streams
    (DuckDB, polars, Delta) accept the result directly.

    Raises
    ------
    DdbioError
        At the call: errors of the table, credentials or endpoint. During iteration: the error that ended the scan.
    """
    table = describe_scan(options)
    budget = LocalBudget(budget_of(table, options), job=f"scan of {table.name}")
    plan = _log_plan(options, budget, table)
    (task,) = scan_tasks(plan, options, table)
    return RecordBatchStream(plan.schema, _batches(SegmentStream(task, budget), budget, table.name))


def read_table(options: ScanOptions) -> pa.Table:
    """Return a DynamoDB table as an Arrow table, every value exact; no JVM is started.

    Values that do not fit their column are in the last column, ``_rescue``, as DynamoDB JSON.

    Returns
    -------
    pyarrow.Table
        ``[n_items × n_columns]``; DynamoDB's own types are in the field metadata (``ddb:type``).

    Raises
    ------
    DdbioError
        As :func:`scan_batches`.
    """
    return scan_batches(options).read_all()


class ScannedDigest(NamedTuple):
    """Count and digest of a table's items, and the read units that were consumed."""

    digest: Digest
    units: float


def digest_of_scan(options: ScanOptions) -> ScannedDigest:
    """Return count and digest of the items of a scan, computed from the bytes of its pages without making columns.

    Raises
    ------
    DdbioError
        If the table cannot be read.
    """
    table = describe_scan(options)
    budget = LocalBudget(budget_of(table, options), job=f"scan of {table.name}")
    with budget.within_limits():
        (task,) = scan_tasks(_log_plan(options, budget, table), options, table)
        stream = PageStream(replace(task, digest=True), budget, NullDecoder)
        with closing(iter(stream)) as blocks:
            deque(blocks, 0)
    return ScannedDigest(stream.counts.digest, budget.usage().consumed_units)


def _log_plan(options: ScanOptions, budget: LocalBudget, table: TableDescription) -> ScanPlan:
    """Return the plan and log it; its limits apply to the budget."""
    plan = plan_of(options, budget, table)
    _LOG.info("scan %s: about %d items, planned: %s", table.name, plan.item_count, plan.figures)
    return plan


class NullDecoder:
    """Decoder that discards all pages."""

    def __init__(self) -> None:
        self.log = MisfitLog()

    def decode_batches(self, data: bytes, framing: str) -> tuple[pa.RecordBatch, ...]:
        """Return no batches."""
        del data, framing
        return ()


def _batches(stream: SegmentStream, budget: LocalBudget, table: str) -> Generator[pa.RecordBatch, None, None]:
    # The budget closes first, so that lanes that wait for it end now and not at their next page.
    with closing(iter(stream)) as batches, budget.within_limits():
        yield from batches
    if stream.counts.missing_keys:
        names = ", ".join(key.decode() for key in stream.counts.missing)
        _LOG.warning("table %s has no items for %d keys: %s", table, stream.counts.missing_keys, names or "not named")


def read_digest(table: str, options: ConnectionOptions) -> ScannedDigest:
    """Return count and digest of a table's items, read with the connection options of another verb.

    Raises
    ------
    DdbioError
        If the table cannot be read.
    """
    # NULL differs from missing, and a consistent scan sees the latest writes.
    # No columns are made, so a small sample is enough to choose the size of the pages.
    scan = ScanOptions(
        **connection_of(options), table=table, nulls="keep", consistent=True, sample_items=DIGEST_SAMPLE_ITEMS
    )
    if isinstance(options, LimitOptions):
        # The limits of a verifying verb apply to each table that it reads.
        scan = replace(scan, max_units=options.max_units, max_seconds=options.max_seconds, prices=options.prices)
    return digest_of_scan(scan)
