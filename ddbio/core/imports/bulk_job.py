"""Plan a bulk put of objects into a table, and hold what is known of one; start none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.imports.job import chosen
from ddbio.core.jobs import s3_place
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.facts import TableFacts
    from ddbio.core.imports.job import ImportedFiles
    from ddbio.options import BulkStartOptions


@dataclass(frozen=True)
class BulkPlan:
    """State a bulk put completely before it is asked for; ``items`` are those of the files, where they are known."""

    table: str
    bucket: str
    prefix: str
    report_bucket: str
    report_prefix: str
    format: str
    compression: str
    wcu_per_second: int | None
    tier: str
    kms_key: str | None
    bucket_owner: str | None
    client_token: str
    objects: int
    object_bytes: int
    items: int | None


@dataclass(frozen=True)
class BulkEntry:
    """Name a bulk operation as a listing does."""

    arn: str
    status: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True)
class BulkJob:
    """Hold what is known of one bulk put; times are ISO 8601.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, source, reports
        What is put where, and where the service writes what it could not put.
    processed_items, failed_items
        Items read, and of these the ones refused. Those whose condition did not hold are only read.
    processed_bytes, total_bytes
        Of the objects as they are stored; the total is not known at once.
    """

    arn: str
    status: str
    table: str
    source: str
    reports: str
    started_at: str | None
    ended_at: str | None
    processed_items: int
    failed_items: int
    processed_bytes: int
    total_bytes: int | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None


def plan_bulk(
    facts: TableFacts, options: BulkStartOptions, files: ImportedFiles, objects: tuple[int, ...], client_token: str
) -> BulkPlan:
    """Return how objects are put into a table.

    Raises
    ------
    OptionError
        If the files are CSV or were written for another key, their compression is not known, or the reports would be
        read again.
    """
    bucket, prefix = s3_place(options.source)
    report_bucket, report_prefix = s3_place(options.reports)
    if report_bucket == bucket and f"{report_prefix}/".startswith(f"{prefix}/" if prefix else ""):
        raise OptionError(f"reports at {options.reports} would lie below the source {options.source}")
    if files.format == "csv":
        raise OptionError("a bulk put reads dynamodb_json or ion: write the files in one of these")
    key = ",".join(f"{name}:{tag}" for name, tag in facts.key_types)
    if files.key not in (None, key):
        raise OptionError(f"the files were written for the key {files.key}, table {facts.name!r} has {key}")
    return BulkPlan(
        table=options.table,
        bucket=bucket,
        prefix=f"{prefix}/" if prefix else "",
        report_bucket=report_bucket,
        report_prefix=report_prefix,
        format=chosen("format", options.format, files.format or options.format or "dynamodb_json"),
        compression=chosen("compression", options.compression, files.compression),
        wcu_per_second=options.wcu_per_second,
        tier=options.tier,
        kms_key=options.kms_key,
        bucket_owner=options.bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
    )
