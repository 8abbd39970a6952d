"""Plan a native export, and describe its job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ddbio.errors import OptionError
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.service_jobs import s3_place, service_key
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.table_description import RecoveryDescription, TableDescription
    from ddbio.options import ExportStartOptions


@dataclass(frozen=True)
class ExportPlan(EstimatedPlan):
    """Describe an export completely before it is requested.

    ``items`` and ``size_bytes`` are those of DescribeTable; a full export is billed by the size of the table.
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
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class ExportEntry(Result):
    """Hold one entry of a list of exports."""

    arn: str
    status: str
    kind: str


@dataclass(frozen=True)
class ExportJob(Result):
    """Describe one export as the service does; times are ISO 8601.

    Attributes
    ----------
    arn, status, kind
        ``IN_PROGRESS``, ``COMPLETED`` or ``FAILED``; ``full`` or ``incremental``.
    uri
        The folder to read it from, once it has completed.
    export_time
        The time whose state a full export holds.
    from_time, to_time, view
        Window and view of an incremental export.
    filtered
        Whether it leaves out items or attributes.
    items, billed_bytes
        Known once it has completed.
    client_token
        For eight hours the same request with the same token starts no second export.
    planned, actual
        Bytes, USD and seconds, as planned where it was started, and as billed where it has ended.
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
    planned: Figures | None = None
    actual: Figures | None = None


def plan_export(
    facts: TableDescription, recovery: RecoveryDescription, options: ExportStartOptions, client_token: str
) -> ExportPlan:
    """Return the plan of an export.

    Raises
    ------
    OptionError
        If point-in-time recovery is off and may not be turned on, or does not reach back to a requested time; or
        an option of objects is given that the service has no parameter for.
    """
    turns_on = not recovery.is_on
    if turns_on and not options.enable_pitr:
        raise OptionError(
            f"table {facts.name!r} has no point-in-time recovery, which exports need: turn it on, or give enable_pitr "
            "to have it turned on (AWS bills it by the table's size)"
        )
    for name in ("at", "from_time", "to_time"):
        if getattr(options, name) is not None:
            recovery.check(name, getattr(options, name))
    bucket, prefix = s3_place(options.dest)
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
    )
