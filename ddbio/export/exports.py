"""Exports of the service: plans, descriptions, start and end."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from ddbio.aws.control_plane import call, check_bucket, describe_recovery, describe_table, enable_recovery
from ddbio.aws.table_description import RecoveryDescription, region_of
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import OptionError
from ddbio.export.filters import ExportFilter, expression_text, plan_filter, with_bytes
from ddbio.export.service_jobs import (
    COURSE,
    ServiceJob,
    failure_of,
    kms_members,
    service_key,
    split_s3_uri,
    with_values,
)
from ddbio.jobs.clients import dynamodb_spec, s3_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.service_estimates import billed_figures, export_estimate
from ddbio.jobs.table_limits import read_statistics
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddbio.aws.table_description import TableDescription
    from ddbio.export.options import ExportStartOptions, WaitOptions

_INCREMENTAL = "INCREMENTAL_EXPORT"
_MANIFEST_NAME = "manifest-summary.json"


@dataclass(frozen=True)
class ExportPlan(EstimatedPlan):
    """Complete plan of an export.

    ``items`` and ``size_bytes`` are from DescribeTable; a full export is billed by the size of the table.
    ``key_condition``, ``filter`` and ``columns`` select the exported items and attributes. Only ``key_condition``
    reduces the data that the service reads.
    """

    table: str
    table_arn: str
    kind: Literal["full", "incremental"]
    bucket: str
    prefix: str
    format: str
    at: datetime | None
    from_time: datetime | None
    to_time: datetime | None
    view: str | None
    kms_key: str | None
    bucket_owner: str | None
    client_token: str
    enables_recovery: bool
    items: int
    size_bytes: int
    key_condition: str | None = None
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class ExportEntry(Result):
    """Entry of a list of exports."""

    arn: str
    status: str
    kind: str


@dataclass(frozen=True)
class ExportJob(Result):
    """Description of an export by the service; times are ISO 8601.

    Attributes
    ----------
    arn, status, kind
        Status: ``IN_PROGRESS``, ``COMPLETED`` or ``FAILED``; kind: ``full`` or ``incremental``.
    uri
        The folder of the export, once it has completed.
    export_time
        The time of the state in a full export.
    from_time, to_time, view
        Window and view of an incremental export.
    filtered
        Whether items or attributes are left out.
    key_condition, filter, columns
        The filter: its condition of the key, its condition of other attributes, and the exported attributes.
    items, billed_bytes
        Known once it has completed.
    client_token
        The same request with the same token starts no second export within eight hours.
    planned, actual
        Planned bytes, USD and seconds, if it was started here; actual ones, as billed, after its end.
    """

    arn: str
    status: str
    kind: str
    table_arn: str
    uri: str | None
    format: str
    export_time: str | None
    from_time: str | None
    to_time: str | None
    view: str | None
    filtered: bool
    started_at: str | None
    ended_at: str | None
    items: int | None
    billed_bytes: int | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    key_condition: str | None = None
    filter: str | None = None
    columns: str | None = None
    planned: Figures | None = None
    actual: Figures | None = None


def plan_of(options: ExportStartOptions, from_file: str | None = None) -> ExportPlan:
    """Return the plan of :func:`start_export`, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        File with the JSON response of DescribeTable; the table need not exist.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.exports.plan_export` and :func:`ddbio.aws.control_plane.check_bucket`.
    LimitError
        If the plan exceeds a limit.
    """
    token = options.client_token or str(uuid.uuid4())
    if from_file is None:
        spec = dynamodb_spec(options)
        facts, recovery = describe_table(spec, options.table), describe_recovery(spec, options.table)
    else:
        statistics = read_statistics(from_file)
        # The file does not contain the recovery window, so any time is accepted.
        is_on = statistics.recovery or not options.enable_pitr
        always = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
        facts, recovery = statistics.table, RecoveryDescription(is_on, *always)
    plan = plan_export(facts, recovery, options, token)
    estimate = export_estimate(
        facts,
        prices_of(facts.region, options.prices),
        is_full=plan.kind == "full",
        is_encrypted=plan.kms_key is not None,
        enables_recovery=plan.enables_recovery,
    )
    estimate = _with_price_of_filter(estimate, plan)
    check_estimate(options, estimate)
    if from_file is None:
        check_bucket(s3_spec(options), plan.bucket)
    return dataclasses.replace(plan, estimate=estimate)


def _with_price_of_filter(estimate: Estimate, plan: ExportPlan) -> Estimate:
    """Return an estimate with a note on the effect of the filter on the price."""
    # The service applies filter and columns after reading. It documents no price of an export with a key condition.
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Filtered.html
    if plan.kind == "incremental" or (plan.key_condition, plan.filter, plan.columns) == (None, None, None):
        return estimate
    if plan.key_condition is not None:
        note = "AWS documents no price with a key condition: this is the price of the whole table, an upper bound"
    else:
        note = "the whole table is read and billed: the filter only reduces the objects, whose price is an upper bound"
    return dataclasses.replace(estimate, cost=dataclasses.replace(estimate.cost, notes=(*estimate.cost.notes, note)))


def plan_export(
    facts: TableDescription, recovery: RecoveryDescription, options: ExportStartOptions, client_token: str
) -> ExportPlan:
    """Return the plan of an export.

    Raises
    ------
    OptionError
        If point-in-time recovery is off and may not be enabled, or does not reach back to a requested time; if an
        option of objects is set that the service has no parameter for; or if the service cannot express ``where``.
    """
    turns_on = not recovery.is_on
    if turns_on and not options.enable_pitr:
        raise OptionError(
            f"table {facts.name!r} has no point-in-time recovery, which exports need: enable it, or set enable_pitr "
            "to have it enabled (AWS bills it by the table's size)"
        )
    for name in ("at", "from_time", "to_time"):
        if getattr(options, name) is not None:
            recovery.check(name, getattr(options, name))
    bucket, prefix = split_s3_uri(options.dest)
    selection = plan_filter(facts, options.where, options.columns)
    selection.specification()
    return ExportPlan(
        table=facts.name,
        table_arn=facts.arn,
        kind="full" if options.from_time is None else "incremental",
        bucket=bucket,
        prefix=prefix,
        format=options.format,
        at=options.at,
        from_time=options.from_time,
        to_time=options.to_time,
        view=None if options.from_time is None else options.view,
        kms_key=service_key(options, options.kms_key),
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        client_token=client_token,
        enables_recovery=turns_on,
        items=facts.item_count,
        size_bytes=facts.size_bytes,
        **dataclasses.asdict(selection),
    )


def _request(options: ExportStartOptions, plan: ExportPlan) -> ExportJob:
    """Start the service's own export of a table to S3 and return immediately; it uses no read units.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No export was started.
    """
    # The client token makes repeated starts of the same plan return the same export, for eight hours.
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ExportTableToPointInTime.html
    spec = dynamodb_spec(options)
    if plan.enables_recovery:
        enable_recovery(spec, plan.table, options.deadline_seconds)
    members: dict[str, Any] = {
        "TableArn": plan.table_arn,
        "S3Bucket": plan.bucket,
        "S3Prefix": plan.prefix,
        "S3BucketOwner": plan.bucket_owner,
        "ClientToken": plan.client_token,
        "ExportFormat": plan.format.upper(),
        "ExportType": "FULL_EXPORT" if plan.kind == "full" else _INCREMENTAL,
        "ExportTime": plan.at,
        "FilterSpecification": with_bytes(ExportFilter(plan.key_condition, plan.filter, plan.columns).specification()),
        **(kms_members(plan.kms_key) or {"S3SseAlgorithm": "AES256"}),
    }
    if plan.view is not None:
        members["IncrementalExportSpecification"] = {
            "ExportFromTime": plan.from_time,
            "ExportToTime": plan.to_time,
            "ExportViewType": plan.view.upper(),
        }
    reply = call(spec, "ExportTableToPointInTime", f"table {plan.table!r}", with_values(members))
    return EXPORT.parse(reply[EXPORT.description], ExportJob)


def _check(job: ExportJob, _options: WaitOptions) -> ExportJob:
    """Return an export once it has completed.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; the class of the error depends on the code of the service.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    if job.status != "COMPLETED":
        raise failure_of(f"export {job.arn}", job.failure_code, job.failure_message)
    return job


def _actual(job: ExportJob) -> Figures | None:
    if job.billed_bytes is None:
        return None
    price = "export" if job.kind == "full" else "incremental_export"
    return billed_figures(price, job.billed_bytes, job.started_at, job.ended_at, prices_of(region_of(job.arn)))


def _expression(member: str) -> Callable[[Mapping[str, Any]], str | None]:
    return lambda description: expression_text(description.get("FilterSpecification") or {}, member)


def _export_uri(description: Mapping[str, Any]) -> str | None:
    manifest = description.get("ExportManifest")
    folder = (manifest or "").removesuffix(_MANIFEST_NAME).rstrip("/")
    return f"s3://{description.get('S3Bucket', '')}/{folder}" if manifest else None


EXPORT = ServiceJob(
    name="export",
    job=ExportJob,
    entry=ExportEntry,
    description="ExportDescription",
    entries="ExportSummaries",
    members=f"{COURSE} arn=ExportArn status=ExportStatus table_arn=TableArn export_time=ExportTime "
    "from_time=IncrementalExportSpecification.ExportFromTime to_time=IncrementalExportSpecification.ExportToTime "
    "filtered=FilterSpecification items=ItemCount billed_bytes=BilledSizeBytes",
    computed={
        # The service omits the type if the request omitted it.
        "kind": lambda job: "incremental" if job.get("ExportType") == _INCREMENTAL else "full",
        "uri": _export_uri,
        "format": lambda job: job.get("ExportFormat", "DYNAMODB_JSON").lower(),
        "key_condition": _expression("KeyConditionExpression"),
        "filter": _expression("FilterExpression"),
        "columns": _expression("ProjectionExpression"),
        "view": lambda job: job.get("IncrementalExportSpecification", {}).get("ExportViewType", "").lower() or None,
    },
    plan=plan_of,
    request=_request,
    check=_check,
    actual=_actual,
    started_by="start_export",
    log="ddbio.export",
    lists="Return the exports of the last 90 days, of a table or of all.",
)
start, wait, describe, list_of = EXPORT.public_functions()
