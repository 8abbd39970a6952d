"""Advice on the method to keep a copy of a table, from its description and its rate of changes in CloudWatch."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ddbio.advice import advice as advising
from ddbio.advice.advice import Workload
from ddbio.aws.cloudwatch import read_metrics
from ddbio.aws.control_plane import describe_recovery, describe_table
from ddbio.budget.pacing import DEFAULT_RATIO, NEW_TABLE_RCU
from ddbio.charts.page import Bars, Lines, report_page, write_page
from ddbio.errors import AccessDeniedError, DdbioError, OptionError
from ddbio.jobs.clients import dynamodb_spec, metrics_spec
from ddbio.jobs.costs import book_of
from ddbio.jobs.table_limits import PARTITION_RCU, TableStatistics, mean_item_bytes, partition_count, read_statistics

if TYPE_CHECKING:
    from ddbio.advice.advice import Advice
    from ddbio.advice.options import AdviseOptions, MetricsConnectionOptions
    from ddbio.aws.table_description import TableDescription

_WRITES = "ConsumedWriteCapacityUnits"
_DAYS, _PERIOD_SECONDS = 14, 3600
# Maximum number of lines in one chart.
_DRAWN = 5


def advise(options: AdviseOptions) -> Advice:
    """Compare the methods to keep a copy of a table in S3: costs, times, limits, and the cheapest one.

    Methods are scans, full and incremental exports, streams with Firehose, Kinesis Data Streams, zero-ETL, Glue and EMR
    Serverless. The table is described, and CloudWatch returns the rate of changes. No item is read.

    Raises
    ------
    OptionError
        If the table's file or the prices cannot be used, or the rate of changes is unknown.
    NotFoundError
        If the table does not exist.
    DdbioError
        If the table cannot be described, or a page cannot be written.
    """
    statistics = read_statistics(options.from_file) if options.from_file is not None else _described(options)
    workload = _workload(statistics, options)
    book = book_of(statistics.table.region, options.prices)
    advice = advising.advise(workload, book, statistics.table.region, datetime.now(UTC).date())
    if options.html is not None or options.png is not None:
        names = [method.name for method in advice.roads]
        rates, usd = advising.usd_by_changes(workload, book, names[:_DRAWN])
        charts = (
            Bars("USD a month", "USD", names, [method.usd for method in advice.roads]),
            Lines("USD a month, by changes a second", "changes a second", "USD", rates, usd, is_log=True),
        )
        page = report_page(f"Ways to keep a copy of {workload.table}", advice, charts)
        write_page(page, options.html, options.png)
    return advice


def _described(options: AdviseOptions) -> TableStatistics:
    spec, name = dynamodb_spec(options), options.table or ""
    table = describe_table(spec, name)
    try:
        is_recoverable = describe_recovery(spec, name).is_on
    except DdbioError:
        # Without the permission, assume that recovery is not paid for.
        is_recoverable = False
    return TableStatistics(table, mean_item_bytes(table), recovery=is_recoverable)


def _workload(statistics: TableStatistics, options: AdviseOptions) -> Workload:
    table = statistics.table
    item_bytes = options.item_bytes or statistics.item_bytes
    changes = options.changes_per_second
    if changes is None:
        changes = statistics.changes_per_second
    if changes is None and options.table is not None:
        changes = _counted_changes(table, item_bytes, options)
    if changes is None:
        raise OptionError("the rate of changes is unknown: give changes_per_second")
    rate = _rate(table, options)
    return Workload(
        table=table.name,
        size_bytes=float(table.size_bytes),
        item_bytes=item_bytes,
        changes_per_second=changes,
        freshness_seconds=options.freshness,
        rcu_per_second=rate,
        on_demand=table.on_demand,
        table_rcu=table.rcu,
        infrequent_access=table.infrequent_access,
        recovery=statistics.recovery,
        point_in_time=options.point_in_time,
        shards=partition_count(table.size_bytes, rate, PARTITION_RCU),
    )


def _rate(table: TableDescription, options: AdviseOptions) -> float:
    if options.rcu_per_second is not None:
        return options.rcu_per_second
    if table.rcu is not None:
        return table.rcu * (options.read_ratio or (1.0 if table.on_demand else DEFAULT_RATIO))
    return (table.warm_rcu or NEW_TABLE_RCU) * (options.read_ratio or 1.0)


def _counted_changes(table: TableDescription, item_bytes: float, options: MetricsConnectionOptions) -> float | None:
    """Return the items written per second, from the write units of 14 days; None if there is no metric."""
    if options.endpoint_url is not None and options.cloudwatch_endpoint_url is None:
        # A fake's table is not the table of the same name in CloudWatch.
        return None
    now = datetime.now(UTC)
    window = (now - timedelta(days=_DAYS), now)
    try:
        counts = read_metrics(metrics_spec(options), table.name, None, [_WRITES], window, _PERIOD_SECONDS)[_WRITES]
    except DdbioError as error:
        what = f"the rate of changes is unknown: give changes_per_second, or fix this: {error}"
        if isinstance(error, AccessDeniedError):
            raise AccessDeniedError(what, error.action, error.resource) from error
        raise OptionError(what) from error
    if not counts:
        return None
    return sum(counts.values()) / max(1, math.ceil(item_bytes / 1024)) / (_DAYS * 86_400)
