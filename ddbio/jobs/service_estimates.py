"""Estimates of jobs that AWS runs, such as exports and restores, and of a month of captured changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ddbio.budget.pacing import DEFAULT_RATIO
from ddbio.items.capacity import change_units, scan_units, write_units
from ddbio.jobs.estimate import GB, SECONDS_A_MONTH, Estimate, EstimatedPlan, Figures, s3_requests
from ddbio.jobs.prices import unit_price
from ddbio.jobs.table_limits import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.advice.options import PlanCaptureOptions
    from ddbio.aws.table_description import TableDescription
    from ddbio.export.bulk_puts import BulkPlan
    from ddbio.export.imports import ImportPlan
    from ddbio.jobs.estimate import Part, Prices

ASSUMED_ITEM_BYTES = 400.0
DIGEST_SAMPLE_ITEMS = 100
"""Sampled items before the scan for a digest."""
MIN_SECONDS = 600.0
"""Minimum time of exports and imports, even for ten items."""
BACKUP_SECONDS = 60.0
"""Assumed time of a backup, which can be restored within minutes at any table size.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
"""
RESTORE_SECONDS = 3600.0
"""Assumed time of a restore. AWS states that 95 % of tables are restored within an hour; the actual time varies.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/PointInTimeRecovery.Tutorial.html
"""
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.HowItWorks.html
MIN_INCREMENT_BYTES = 10 * 1024 * 1024
# Assumed size of an export's objects, and the size of the text in them relative to that of the items.
_EXPORT_OBJECT_BYTES = 32 * 1024 * 1024
_STORED_RATIO = 0.4
_EXPORT_MANIFESTS = 6
# Assumed compression ratio of the text of items.
TEXT_RATIOS = {"zstd": 6.0, "gzip": 5.0, "none": 1.0}

_SERVICE = "the service"
# A partition accepts 1,000 writes per second, and a stream has one shard per partition.
_SHARD_WRITES = 1_000
# A record of a stream contains an item as JSON: this ratio of its size, and an envelope.
_JSON_RATIO, _ENVELOPE_BYTES, _KEY_BYTES = 1.4, 300, 50
_LAMBDA_MEMORY_GB, _LAMBDA_SECONDS, _LAMBDA_RECORDS = 0.25, 0.2, 100
_CAPTURED_RATIO = 0.15
_FIREHOSE_BYTES = 5 * 1024


def exported_bytes(table: TableDescription) -> int:
    """Return the billed bytes of a full export: the table and its local indexes."""
    return table.size_bytes + sum(index.size_bytes for index in table.indexes if not index.is_global)


def export_estimate(
    table: TableDescription, prices: Prices, *, is_full: bool, is_encrypted: bool, enables_recovery: bool
) -> Estimate:
    """Return the resources and cost of an export; for an increment the minimum, because its changes are unknown."""
    size = exported_bytes(table) if is_full else MIN_INCREMENT_BYTES
    stored = size * _STORED_RATIO
    objects = max(1, math.ceil(stored / _EXPORT_OBJECT_BYTES)) + _EXPORT_MANIFESTS
    parts: list[Part] = [
        ("export", "export", size / GB) if is_full else ("export of 10 MB at least", "incremental_export", size / GB),
        ("point-in-time recovery for a month", "recovery_storage", size / GB if enables_recovery else 0.0),
        ("S3 writes", "s3_writes", objects),
        ("S3 storage for a month", "s3_storage", stored / GB),
        ("KMS", "kms_requests", objects if is_encrypted else 0),
    ]
    return Estimate(0.0, s3_requests(parts), size, MIN_SECONDS, f"{_SERVICE}, at the least", prices.cost(parts))


def heal_estimate(windows: int, prices: Prices) -> Estimate:
    """Return the minimum resources and cost of incremental exports, because their changes are unknown."""
    size = windows * MIN_INCREMENT_BYTES
    objects = windows * (1 + _EXPORT_MANIFESTS)
    parts: list[Part] = [
        ("exports of 10 MB at least", "incremental_export", size / GB),
        ("S3 writes", "s3_writes", objects),
    ]
    seconds = windows * MIN_SECONDS
    return Estimate(0.0, s3_requests(parts), size, seconds, f"{_SERVICE}, at the least", prices.cost(parts))


def billed_figures(price: str, size_bytes: int, began: str | None, ended: str | None, prices: Prices) -> Figures:
    """Return the actual figures of a job that is billed by bytes. Times are ISO 8601."""
    return Figures(0.0, seconds_between(began, ended), size_bytes, prices.cost([(price, price, size_bytes / GB)]).usd)


def seconds_between(began: str | None, ended: str | None) -> float | None:
    """Return the seconds between two ISO 8601 times; None if one is unknown."""
    if began is None or ended is None:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def import_estimate(plan: ImportPlan, prices: Prices) -> Estimate:
    """Return the resources and cost of an import. AWS bills the uncompressed text; indexes are free."""
    size = _text_bytes(plan)
    parts: list[Part] = [("import", "import", size / GB), ("S3 reads", "s3_reads", plan.objects)]
    return Estimate(0.0, s3_requests(parts), size, MIN_SECONDS, f"{_SERVICE}, at the least", prices.cost(parts))


def bulk_estimate(plan: BulkPlan, table: TableDescription, prices: Prices) -> Estimate:
    """Return the resources and cost of a bulk put: the write units of its items, in the table and all indexes."""
    size = round(plan.object_bytes * TEXT_RATIOS[plan.compression])
    units = seconds = None
    parts: list[Part] = [("S3 reads", "s3_reads", plan.objects)]
    if plan.items:
        units = plan.items * write_units(math.ceil(size / _JSON_RATIO / plan.items)) * (1 + len(table.indexes))
        name = unit_price("writes", infrequent_access=table.infrequent_access)
        parts.insert(0, ("writes", name, units if table.on_demand else 0.0))
        seconds = units / plan.wcu_per_second if plan.wcu_per_second else None
    limited_by = "" if seconds is None else "the budget"
    return Estimate(units, s3_requests(parts), size, seconds, limited_by, prices.cost(parts))


def restore_estimate(size_bytes: int, prices: Prices, verified: Iterable[TableDescription] = ()) -> Estimate:
    """Return the resources and cost of a restore.

    Parameters
    ----------
    verified
        The tables that are read to compare count and digest.
    """
    estimate = Estimate(0.0, 1, size_bytes, RESTORE_SECONDS, f"{_SERVICE}, about")
    return _with_reads(estimate, [("restore", "restore", size_bytes / GB)], verified, prices)


def backup_estimate(table: TableDescription, prices: Prices, *, digest: bool = False) -> Estimate:
    """Return the resources of a backup, and its monthly cost. For a digest the table is read."""
    parts: list[Part] = [("backup for a month", "backup_storage", table.size_bytes / GB)]
    estimate = Estimate(0.0, 1, table.size_bytes, BACKUP_SECONDS, f"{_SERVICE}, about")
    return _with_reads(estimate, parts, [table] if digest else [], prices)


def verification_units(size_bytes: float, item_bytes: float) -> float:
    """Return the read units of a digest: a strongly consistent scan of the table, and a sample."""
    sample_bytes = min(size_bytes, DIGEST_SAMPLE_ITEMS * item_bytes)
    return sum(
        scan_units(read_bytes, item_bytes, consistent=True) for read_bytes in (size_bytes, sample_bytes) if read_bytes
    )


def _units_of(table: TableDescription) -> float:
    mean = table.size_bytes / table.item_count if table.item_count else ASSUMED_ITEM_BYTES
    return verification_units(table.size_bytes, mean)


def _with_reads(
    estimate: Estimate, parts: list[Part], verified: Iterable[TableDescription], prices: Prices
) -> Estimate:
    """Return an estimate that includes these parts and the scans of the verified tables at the rate of jobs."""
    tables = tuple(verified)
    units = sum(map(_units_of, tables))
    seconds = (estimate.seconds or 0.0) + sum(map(_reading_seconds, tables))
    size = (estimate.bytes or 0) + sum(table.size_bytes for table in tables)
    for table in tables:
        name = unit_price("reads", infrequent_access=table.infrequent_access)
        parts.append((f"reads of {table.name} to verify", name, _units_of(table) if table.on_demand else 0.0))
    return replace(estimate, units=units, bytes=size, seconds=seconds, cost=prices.cost(parts))


def _reading_seconds(table: TableDescription) -> float:
    """Return the seconds to read a table with half of its capacity, within the limits of its partitions."""
    rate = None if table.on_demand or table.rcu is None else table.rcu * DEFAULT_RATIO
    units = _units_of(table)
    return max(units / rate if rate else 0.0, limits_of(table, "reads").serves(units).lasting_seconds)


def _text_bytes(plan: ImportPlan) -> int:
    return plan.json_bytes or round(plan.object_bytes * TEXT_RATIOS[plan.compression])


@dataclass(frozen=True)
class CapturePlan(EstimatedPlan):
    """Monthly resources and cost of capturing a table's changes.

    Attributes
    ----------
    through
        Service that delivers the changes.
    records
        Changes per month.
    record_bytes
        Size of a change with its images.
    shards
        Shards of the stream, one per partition that the writes need.
    files
        Files written per month.
    estimate
        Requests, bytes and cost.
    """

    through: str
    view: str
    records: int
    record_bytes: int
    shards: int
    files: int
    estimate: Estimate


def plan_capture(options: PlanCaptureOptions, prices: Prices) -> CapturePlan:
    """Return the plan of capturing changes for a month, from the options only."""
    rate, item = options.records_per_second, options.item_bytes
    records = round(rate * SECONDS_A_MONTH)
    shards = max(1, math.ceil(rate * write_units(math.ceil(item)) / _SHARD_WRITES))
    images = {"keys_only": 0, "new_image": 1, "old_image": 1, "new_and_old_images": 2}[options.view]
    # Kinesis Data Streams for DynamoDB always has both images.
    images = images if options.through in {"streams", "lambda"} else 2
    size = round(images * item * _JSON_RATIO + _KEY_BYTES + _ENVELOPE_BYTES)
    files = math.ceil(SECONDS_A_MONTH / options.file_seconds)
    stored = records * size * _CAPTURED_RATIO
    parts: list[Part] = []
    if options.through == "streams":
        polls = shards * SECONDS_A_MONTH / options.poll_seconds
        parts = [("reads of the stream", "stream_reads", polls)]
    elif options.through == "lambda":
        calls = max(records / _LAMBDA_RECORDS, min(records, SECONDS_A_MONTH / options.file_seconds * shards))
        files = math.ceil(calls)
        parts = [
            ("Lambda calls", "lambda_requests", calls),
            ("Lambda time", "lambda_gb_seconds", calls * _LAMBDA_MEMORY_GB * _LAMBDA_SECONDS),
        ]
    else:
        kilobytes = math.ceil(size / 1024)
        parts = [
            ("changes for Kinesis", "kinesis_changes", records * change_units(math.ceil(item), math.ceil(item))),
            ("Kinesis stream", "kinesis_stream_hours", 730),
            ("Kinesis in", "kinesis_in", records * kilobytes * 1024 / GB),
            ("Kinesis out", "kinesis_out", records * size / GB),
        ]
        if options.through == "firehose":
            billed = records * math.ceil(size / _FIREHOSE_BYTES) * _FIREHOSE_BYTES
            parts.append(("Firehose", "firehose", billed / GB))
    requests = sum(quantity for _, name, quantity in parts if name in {"stream_reads", "lambda_requests"})
    parts += [("S3 writes", "s3_writes", files), ("S3 storage for a month", "s3_storage", stored / GB)]
    estimate = Estimate(
        units=0.0,
        requests=round(requests) + files,
        bytes=records * size,
        seconds=float(SECONDS_A_MONTH),
        limited_by="a month",
        cost=prices.cost(parts),
    )
    return CapturePlan(options.through, options.view, records, size, shards, files, estimate)
