"""The service's bulk puts: their plans, descriptions and course."""

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
    given,
    kms_members,
    s3_place,
    service_key,
    source_members,
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
    """Describe a bulk put completely before it is requested; ``items`` is None if there is no manifest."""

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
    """Hold one entry of a list of bulk operations."""

    arn: str
    status: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True)
class BulkJob(Result):
    """Describe one bulk put as the service does; times are ISO 8601.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, source, reports
        The table, the place of the objects, and the place of the reports about items that were not put.
    processed_items, failed_items
        Items read, and those of them that were errors. An item whose condition did not hold is no error.
    processed_bytes, total_bytes
        Bytes of the objects as stored; the total is None until the service knows it.
    planned, actual
        Units, bytes, USD and seconds as planned where it was started; seconds and bytes where it has ended.
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
    """Return what :func:`start_bulk_put` would request, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    NotFoundError
        If the table, the objects or the bucket for reports do not exist.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.bulk_puts.plan_bulk`.
    """
    s3_place(options.source)
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
        If the files are CSV or were written for another key, their compression is not known, or the reports would lie
        among the objects.
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
    """Start the service's own put of objects into an existing table, and return at once; experimental.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No bulk put has then been started.
    """
    # Starting the same plan again within eight hours returns the same operation: its client token is the same.
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
        "OutputS3Configuration": given(reports),
        "MaxWriteRequestUnits": plan.wcu_per_second,
    }
    reply = call(dynamodb_spec(options), "StartBulkPutItems", f"table {plan.table!r}", given(members))
    return BULK.parse(reply["BulkOperationDescription"], BulkJob)


def _check(job: BulkJob, options: WaitOptions) -> BulkJob:
    """Return a bulk put once it has put every item of its objects.

    Raises
    ------
    PartialWriteError
        If some items were refused; the message says where the reports are.
    NotFoundError, AccessDeniedError, ServiceError
        If it failed or was cancelled; the items that it has put stay in the table.
    ValidationError
        If it read a different number of items than the files hold.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    if job.status == "COMPLETED_WITH_ERRORS":
        put = job.processed_items - job.failed_items
        message = f"{put} items put into {job.table}, {job.failed_items} refused: see the reports at {job.reports}"
        raise PartialWriteError(message, put, job.failed_items, job.reports)
    if job.status != "COMPLETED":
        left = f"it is {job.status}, and what it has put stays"
        raise failure_of(f"bulk operation {job.arn}", job.failure_code, job.failure_message, left)
    files = files_of_job(job.source, options)
    if files.items not in (None, job.processed_items):
        raise ValidationError(
            f"bulk operation {job.arn} read {job.processed_items} items, but its files hold {files.items}",
            {"items": files.items, "processed_items": job.processed_items},
        )
    return job


def _actual(job: BulkJob) -> Figures | None:
    """Return what a bulk put took; the service says neither units nor USD."""
    if job.ended_at is None:
        return None
    return Figures(None, seconds_between(job.started_at, job.ended_at), job.processed_bytes)


def cancel(arn: str, options: ConnectionOptions) -> BulkJob:
    """Ask that a bulk put stops; what it has put stays.

    Parameters
    ----------
    arn
        As for :func:`describe_bulk_put`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
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
    computed={"table": lambda job: ", ".join(each["TableName"] for each in job.get("TableDetails", []))},
    plan=plan_of,
    request=_request,
    check=_check,
    actual=_actual,
    started_by="start_bulk_put",
    lists="Return the bulk operations of the last 90 days.",
    table=None,
)
start, wait, describe, list_of = BULK.public_functions()
