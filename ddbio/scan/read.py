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

    Memory is bounded whatever the table's size. Closing the iterator stops the lanes. What reads Arrow streams takes it
    whole: DuckDB, polars, Delta.

    Raises
    ------
    DdbioError
        At the call: what is wrong with table, credentials or endpoint; later: what ended the scan.
    """
    table = describe_scan(options)
    budget = LocalBudget(budget_of(table, options), job=f"scan of {table.name}")
    plan = _planned(options, budget, table)
    (task,) = scan_tasks(plan, options, table)
    return RecordBatchStream(plan.schema, _batches(SegmentStream(task, budget), budget, table.name))


def read_table(options: ScanOptions) -> pa.Table:
    """Return a DynamoDB table as an Arrow table, every value exact; no JVM is started.

    Values that do not fit their column are kept, as DynamoDB JSON, in the last column ``_rescue``.

    Returns
    -------
    pyarrow.Table
        ``[n_items × n_columns]``; DynamoDB's own types are in the field metadata (``ddb:type``).

    Raises
    ------
    DdbioError
        As :func:`scan_batches` says.
    """
    return scan_batches(options).read_all()


class ScannedDigest(NamedTuple):
    """Hold count and digest of a table's items, and the read units that reading them took."""

    digest: Digest
    units: float


def digest_of_scan(options: ScanOptions) -> ScannedDigest:
    """Return count and digest of what a scan reads, computed from the bytes of its pages without any columns.

    Raises
    ------
    DdbioError
        If the table cannot be read.
    """
    table = describe_scan(options)
    budget = LocalBudget(budget_of(table, options), job=f"scan of {table.name}")
    with budget.within_limits():
        (task,) = scan_tasks(_planned(options, budget, table), options, table)
        stream = PageStream(replace(task, digest=True), budget, _Nothing)
        with closing(iter(stream)) as blocks:
            deque(blocks, 0)
    return ScannedDigest(stream.counts.digest, budget.usage().consumed_units)


def _planned(options: ScanOptions, budget: LocalBudget, table: TableDescription) -> ScanPlan:
    """Return the plan, which binds the budget, and log it."""
    plan = plan_of(options, budget, table)
    _LOG.info("scan %s: about %d items, planned: %s", table.name, plan.item_count, plan.figures)
    return plan


class _Nothing:
    """Decode nothing."""

    def __init__(self) -> None:
        self.log = MisfitLog()

    def decode_batches(self, data: bytes, framing: str) -> tuple[pa.RecordBatch, ...]:
        """Return nothing."""
        del data, framing
        return ()


def _batches(stream: SegmentStream, budget: LocalBudget, table: str) -> Generator[pa.RecordBatch, None, None]:
    # At its end the budget closes first: lanes that wait for it end now, not at their next page.
    with closing(iter(stream)) as batches, budget.within_limits():
        yield from batches
    if stream.counts.missing_keys:
        named = ", ".join(key.decode() for key in stream.counts.missing)
        _LOG.warning("table %s has no items for %d keys: %s", table, stream.counts.missing_keys, named or "not named")


def read_digest(table: str, options: ConnectionOptions) -> ScannedDigest:
    """Return count and digest of a table's items, read over the connection of other options.

    Raises
    ------
    DdbioError
        If the table cannot be read.
    """
    # NULL differs from missing, and the scan sees the last writes.
    # No columns are made, so that a small sample will do for the size of the pages.
    scan = ScanOptions(
        **connection_of(options), table=table, nulls="keep", consistent=True, sample_items=DIGEST_SAMPLE_ITEMS
    )
    if isinstance(options, LimitOptions):
        # The limits of the verb that verifies hold for each table that it reads.
        scan = replace(scan, max_units=options.max_units, max_seconds=options.max_seconds, prices=options.prices)
    return digest_of_scan(scan)
