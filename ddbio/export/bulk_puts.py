"""Bulk puts of the service: plans, descriptions, start and end."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import call, check_bucket, describe_table
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import OptionError, PartialWriteError, ValidationError
from ddbio.export.imports import files_of_job, objects_of, resolved
from ddbio.export.service_jobs import (
    COURSE,
    ServiceJob,
    failure_of,
    kms_members,
    service_key,
    source_members,
    split_s3_uri,
    with_values,
)
from ddbio.jobs.clients import dynamodb_spec, s3_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.service_estimates import bulk_estimate, seconds_between
from ddbio.jobs.table_limits import statistics_table
from ddbio.result import Result

if TYPE_CHECKING:
    from ddbio.aws.table_description import TableDescription
    from ddbio.export.imports import ImportedFiles
    from ddbio.export.options import BulkStartOptions, WaitOptions
    from ddbio.options import ConnectionOptions


@dataclass(frozen=True)
class BulkPlan(EstimatedPlan):
    """Complete plan of a bulk put; ``items`` is None without a manifest."""

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
    estimate: Estimate = field(default_factory=Estimate)
    report_owner: str | None = None


@dataclass(frozen=True)
class BulkEntry(Result):
    """Entry of a list of bulk operations."""

    arn: str
    status: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True)
class BulkJob(Result):
    """Description of a bulk put by the service; times are ISO 8601.

    Attributes
    ----------
    arn, status
        Status: ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, source, reports
        The table, the location of the objects, and the location of the reports about items that were not put.
    processed_items, failed_items
        The number of items read, and of errors among them. An item whose condition was false is not an error.
    processed_bytes, total_bytes
        Bytes of the objects as stored; the total is None until the service reports it.
    planned, actual
        Planned units, bytes, USD and seconds, if it was started here; actual seconds and bytes after its end.
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
    planned: Figures | None = None
    actual: Figures | None = None


def plan_of(options: BulkStartOptions, from_file: str | None = None) -> BulkPlan:
    """Return the plan of :func:`start_bulk_put`, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        File with the JSON response of DescribeTable; the table need not exist.

    Raises
    ------
    NotFoundError
        If the table, the objects or the bucket for reports do not exist.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.bulk_puts.plan_bulk`.
    """
    split_s3_uri(options.source)
    facts = statistics_table(from_file) or describe_table(dynamodb_spec(options), options.table)
    source, files, objects = objects_of(options.source, options)
    token = options.client_token or str(uuid.uuid4())
    plan = plan_bulk(facts, dataclasses.replace(options, source=source), files, objects, token)
    estimate = bulk_estimate(plan, facts, prices_of(facts.region, options.prices))
    check_estimate(options, estimate)
    if from_file is None:
        check_bucket(s3_spec(options), plan.report_bucket)
    return dataclasses.replace(plan, estimate=estimate)


def plan_bulk(
    facts: TableDescription,
    options: BulkStartOptions,
    files: ImportedFiles,
    objects: tuple[int, ...],
    client_token: str,
) -> BulkPlan:
    """Return the plan of a bulk put.

    Raises
    ------
    OptionError
        If the files are CSV or were written for another key, their compression is unknown, or the reports would be
        written among the objects.
    """
    bucket, prefix = split_s3_uri(options.source)
    report_bucket, report_prefix = split_s3_uri(options.reports)
    if report_bucket == bucket and f"{report_prefix}/".startswith(f"{prefix}/" if prefix else ""):
        raise OptionError(f"reports at {options.reports} would be below the source {options.source}")
    if files.format == "csv":
        raise OptionError("a bulk put reads dynamodb_json or ion: write the files in one of these formats")
    key = ",".join(f"{name}:{tag}" for name, tag in facts.key_types)
    if files.key not in (None, key):
        raise OptionError(f"the files were written for the key {files.key}, but table {facts.name!r} has {key}")
    return BulkPlan(
        table=options.table,
        bucket=bucket,
        prefix=f"{prefix}/" if prefix else "",
        report_bucket=report_bucket,
        report_prefix=report_prefix,
        format=resolved("format", options.format, files.format or options.format or "dynamodb_json"),
        compression=resolved("compression", options.compression, files.compression),
        wcu_per_second=options.wcu_per_second,
        tier=options.tier,
        kms_key=service_key(options, options.kms_key),
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        report_owner=options.s3_expected_bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
    )


def _request(options: BulkStartOptions, plan: BulkPlan) -> BulkJob:
    """Start the service's own put of objects into an existing table, and return immediately; experimental.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No bulk put was started.
    """
    # The client token makes repeated starts of the same plan return the same operation, for eight hours.
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_StartBulkPutItems.html
    reports = {
        "S3Bucket": plan.report_bucket,
        "S3KeyPrefix": plan.report_prefix,
        "S3BucketOwner": plan.report_owner,
        **kms_members(plan.kms_key),
        "OutputType": ["ERROR", "CONDITION_CHECK_FAILURE"],
    }
    members = {
        "TableName": plan.table,
        "ClientToken": plan.client_token,
        "PerformanceTier": plan.tier.upper(),
        "InputS3Configuration": {
            **source_members(plan),
            "InputFormat": plan.format.upper(),
            "InputCompressionType": plan.compression.upper(),
        },
        "OutputS3Configuration": with_values(reports),
        "MaxWriteRequestUnits": plan.wcu_per_second,
    }
    reply = call(dynamodb_spec(options), "StartBulkPutItems", f"table {plan.table!r}", with_values(members))
    return BULK.parse(reply["BulkOperationDescription"], BulkJob)


def _check(job: BulkJob, options: WaitOptions) -> BulkJob:
    """Return a bulk put once it has put all items of its objects.

    Raises
    ------
    PartialWriteError
        If some items were refused; the message contains the location of the reports.
    NotFoundError, AccessDeniedError, ServiceError
        If it failed or was cancelled; the items that it has put stay in the table.
    ValidationError
        If it read a different number of items than the files contain.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    if job.status == "COMPLETED_WITH_ERRORS":
        put = job.processed_items - job.failed_items
        message = f"{put} items put into {job.table}, {job.failed_items} refused: see the reports at {job.reports}"
        raise PartialWriteError(message, put, job.failed_items, job.reports)
    if job.status != "COMPLETED":
        remaining = f"it is {job.status}, and the items that it has put stay"
        raise failure_of(f"bulk operation {job.arn}", job.failure_code, job.failure_message, remaining)
    files = files_of_job(job.source, options)
    if files.items not in (None, job.processed_items):
        raise ValidationError(
            f"bulk operation {job.arn} read {job.processed_items} items, but its files contain {files.items}",
            {"items": files.items, "processed_items": job.processed_items},
        )
    return job


def _actual(job: BulkJob) -> Figures | None:
    """Return the actual figures of a bulk put; the service reports neither units nor USD."""
    if job.ended_at is None:
        return None
    return Figures(None, seconds_between(job.started_at, job.ended_at), job.processed_bytes)


def cancel(arn: str, options: ConnectionOptions) -> BulkJob:
    """Stop a bulk put; the items that it has put stay.

    Parameters
    ----------
    arn
        As for :func:`describe_bulk_put`.

    Raises
    ------
    DdbioError
        If the service refuses; the message describes the problem and its solution.
    """
    call(dynamodb_spec(options), "CancelBulkOperation", f"{BULK.name} {arn}", {"BulkOperationArn": arn})
    return BULK.describe(arn, options)


BULK = ServiceJob(
    name="bulk operation",
    job=BulkJob,
    entry=BulkEntry,
    description="BulkOperationDescription",
    entries="BulkOperationsSummaryList",
    members=f"{COURSE} arn=BulkOperationArn status=BulkOperationStatus source=InputS3Configuration "
    "reports=OutputS3Configuration processed_items=ProcessedItemCount failed_items=FailedItemCount "
    "processed_bytes=ProcessedInputBytes total_bytes=TotalInputBytes",
    computed={"table": lambda job: ", ".join(table["TableName"] for table in job.get("TableDetails", []))},
    plan=plan_of,
    request=_request,
    check=_check,
    actual=_actual,
    started_by="start_bulk_put",
    lists="Return the bulk operations of the last 90 days.",
    table=None,
)
start, wait, describe, list_of = BULK.public_functions()
