"""Start the service's exports, wait for them, describe them and list them."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import check_bucket, describe_recovery, describe_table, enable_recovery
from ddbio.aws.table_description import RecoveryDescription, region_of
from ddbio.budget.job_limits import check_estimate
from ddbio.export import service_jobs
from ddbio.export.job_descriptions import failure_of, plan_export
from ddbio.jobs.clients import dynamodb_spec, s3_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.service_estimates import billed_figures, export_estimate
from ddbio.jobs.table_limits import read_statistics
from ddbio.jobs.waiting import await_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.export.job_descriptions import ExportEntry, ExportJob, ExportPlan
    from ddbio.export.options import ExportStartOptions, WaitOptions
    from ddbio.options import ConnectionOptions

_LOG = logging.getLogger("ddbio.export")


def plan_of(options: ExportStartOptions, from_file: str | None = None) -> ExportPlan:
    """Return what :func:`start_export` would request, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.job_descriptions.plan_export` and :func:`ddbio.aws.control_plane.check_bucket`.
    LimitError
        If the plan is above a limit.
    """
    token = options.client_token or str(uuid.uuid4())
    if from_file is None:
        spec = dynamodb_spec(options)
        facts, recovery = describe_table(spec, options.table), describe_recovery(spec, options.table)
    else:
        found = read_statistics(from_file)
        # The file does not say how far back recovery reaches: any time is planned.
        is_on = found.recovery or not options.enable_pitr
        always = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
        facts, recovery = found.table, RecoveryDescription(is_on, *always)
    plan = plan_export(facts, recovery, options, token)
    estimate = export_estimate(
        facts,
        prices_of(facts.region, options.prices),
        is_full=plan.kind == "full",
        is_encrypted=plan.kms_key is not None,
        enables_recovery=plan.enables_recovery,
    )
    check_estimate(options, estimate)
    if from_file is None:
        check_bucket(s3_spec(options), plan.bucket)
    return dataclasses.replace(plan, estimate=estimate)


def start(options: ExportStartOptions) -> ExportJob:
    """Start the service's own export of a table to S3 and return at once; it uses no read units.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No export has then been started.
    """
    plan = plan_of(options)
    spec = dynamodb_spec(options)
    if plan.enables_recovery:
        enable_recovery(spec, plan.table, options.deadline_seconds)
    _LOG.info("export %s to %s: planned: %s", plan.table, options.dest, plan.estimate.figures)
    return dataclasses.replace(service_jobs.start_export(spec, plan), planned=plan.estimate.figures)


def wait(options: WaitOptions, watch: Callable[[ExportJob, float], None] | None = None) -> ExportJob:
    """Return an export once it has completed.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; which error depends on the code that the service gives.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    job = await_end(lambda: describe(options.arn, options), options, watch)
    if job.status != "COMPLETED":
        raise failure_of(f"export {job.arn}", job.failure_code, job.failure_message)
    return job


def describe(arn: str, options: ConnectionOptions) -> ExportJob:
    """Return what is known of an export.

    Parameters
    ----------
    arn
        As :func:`start_export` returned it.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    job: ExportJob = service_jobs.describe_job(dynamodb_spec(options), service_jobs.EXPORT, arn)
    if job.billed_bytes is None:
        return job
    price = "export" if job.kind == "full" else "incremental_export"
    prices = prices_of(region_of(arn))
    actual = billed_figures(price, job.billed_bytes, job.started_at, job.ended_at, prices)
    return dataclasses.replace(job, actual=actual)


def list_of(table: str | None, options: ConnectionOptions) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table
        Name or ARN.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return service_jobs.list_jobs(dynamodb_spec(options), service_jobs.EXPORT, table)
