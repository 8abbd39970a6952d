"""Start the service's own bulk puts, wait for them and cancel them; read none of their reports."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING

from ddbio.aws import bulk
from ddbio.aws.bucket import check_bucket
from ddbio.aws.table import describe_table
from ddbio.core.imports.bulk_job import plan_bulk
from ddbio.core.jobs import failure_of, s3_place
from ddbio.errors import NotFoundError, PartialWriteError, ValidationError
from ddbio.ops.imports.start import files_of, files_of_job
from ddbio.ops.job.target import dynamodb_spec, open_store, s3_spec
from ddbio.ops.job.waiting import await_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.core.imports.bulk_job import BulkEntry, BulkJob, BulkPlan
    from ddbio.options import BulkStartOptions, ConnectionOptions, WaitOptions


def plan_of(options: BulkStartOptions) -> BulkPlan:
    """Return the plan of a bulk put after looking at table, objects, their manifest and the bucket for reports.

    Raises
    ------
    NotFoundError
        If the table, an object or the bucket for reports is not there.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.core.imports.bulk_job.plan_bulk`.
    """
    s3_place(options.source)
    facts = describe_table(dynamodb_spec(options), options.table)
    source, files = files_of(options.source, options)
    objects = tuple(each.size_bytes for each in open_store(source, options).list())
    if not any(objects):
        raise NotFoundError(f"{source} holds no object with anything in it")
    token = options.client_token or str(uuid.uuid4())
    plan = plan_bulk(facts, dataclasses.replace(options, source=source), files, objects, token)
    check_bucket(s3_spec(options), plan.report_bucket)
    return plan


def start(options: BulkStartOptions) -> BulkJob:
    """Start a bulk put; return it as it is described at once.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        Nothing has then been started.
    """
    return bulk.start_bulk(dynamodb_spec(options), plan_of(options))


def wait(options: WaitOptions, watch: Callable[[BulkJob, float], None] | None = None) -> BulkJob:
    """Return a bulk put once it has put every item of its objects.

    Raises
    ------
    PartialWriteError
        If some items were refused; it says where the reports are.
    NotFoundError, AccessDeniedError, ServiceError
        If it failed or was cancelled; what it has put stays.
    ValidationError
        If it read another number of items than the files hold.
    ThrottledError
        If it still runs after ``wait_seconds``.
    """
    job = await_end(lambda: describe(options.arn, options), options, watch)
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


def describe(arn: str, options: ConnectionOptions) -> BulkJob:
    """Return what is known of a bulk put."""
    return bulk.describe_bulk(dynamodb_spec(options), arn)


def cancel(arn: str, options: ConnectionOptions) -> BulkJob:
    """Ask that a bulk put stops; return it as it is described then."""
    bulk.cancel_bulk(dynamodb_spec(options), arn)
    return describe(arn, options)


def list_of(options: ConnectionOptions) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days."""
    return bulk.list_bulk(dynamodb_spec(options))
