"""Make backups and restore them, wait for both, and verify a restored table by count and digest."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import call, describe_recovery, describe_table, time_text
from ddbio.aws.table_description import TableDescription
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import NotFoundError, OptionError, ServiceError, ValidationError
from ddbio.export.service_jobs import Descriptions, given
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import cost_of, prices_of
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.report import Clock
from ddbio.jobs.service_estimates import backup_estimate, restore_estimate
from ddbio.jobs.table_limits import statistics_table
from ddbio.jobs.waiting import await_end
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.export.options import BackupCreateOptions, RestoreOptions
    from ddbio.jobs.waiting import Job
    from ddbio.scan.read import ScannedDigest

    Watch = Callable[[Job, float], None]

_LOG = logging.getLogger("ddbio.backup")


@dataclass(frozen=True)
class BackupPlan(EstimatedPlan):
    """Describe a backup before it is requested: the table as DescribeTable has it, and what the backup costs."""

    table: TableDescription
    estimate: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the estimate as one."""
        return {**self.table.to_dict(), **self.estimate.to_dict()}


@dataclass(frozen=True)
class BackupJob(Result):
    """Describe a backup; times are ISO 8601.

    Attributes
    ----------
    arn, name, status, kind
        ``CREATING``, ``AVAILABLE`` or ``DELETED``; ``USER``, ``SYSTEM`` (of a deleted table) or ``AWS_BACKUP``.
    table, table_arn
        The table that was backed up.
    size_bytes, table_items
        As the service says; it counts items about every six hours.
    created_at, expires_at
        Time of the backup, and the time at which the service deletes it.
    items, digest
        Items and digest of the table, if requested.
    planned, actual
        Read units of the digest, bytes, seconds and USD of the first month, as planned and as it was.
    """

    arn: str
    name: str
    status: str
    kind: str
    table: str
    table_arn: str
    size_bytes: int
    created_at: str
    expires_at: str | None
    table_items: int | None = None
    items: int | None = None
    digest: str | None = None
    planned: Figures | None = None
    actual: Figures | None = None


BACKUP = Descriptions(
    name="backup",
    job=BackupJob,
    entry=BackupJob,
    description="BackupDescription",
    entries="BackupSummaries",
    members="arn=BackupArn name=BackupName status=BackupStatus table=TableName table_arn=TableArn "
    "size_bytes=BackupSizeBytes created_at=BackupCreationDateTime expires_at=BackupExpiryDateTime "
    "table_items=ItemCount",
    computed={"kind": lambda job: job.get("BackupType", "USER")},
    lists="Return the backups of a table or of all, those of AWS Backup included.",
    table="TableName",
    filters={"BackupType": "ALL"},
    tokens=("LastEvaluatedBackupArn", "ExclusiveStartBackupArn"),
    parts=("SourceTableDetails", "BackupDetails"),
)
list_of = BACKUP.public_list()


@dataclass(frozen=True)
class RestorePlan(EstimatedPlan):
    """Describe a restore completely before it is requested; ``at`` is None for a backup and for the latest time."""

    target: str
    source: str
    source_table: str
    backup_arn: str | None
    at: datetime | None
    size_bytes: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class RestoreJob(Result):
    """Describe a restored table.

    Attributes
    ----------
    arn, table, status
        The new table; ``CREATING``, then ``ACTIVE``.
    source, restored_at
        The backup or table it was restored from, and the time whose state it has.
    items, digest
        Items and digest of the new table, if they were compared.
    verified
        Whether they were compared.
    seconds
        Time from the request until the table was usable.
    planned, actual
        Read units of the verification, bytes, seconds and USD, as planned and as it was.
    """

    arn: str
    table: str
    status: str
    source: str
    restored_at: str | None
    items: int | None = None
    digest: str | None = None
    verified: bool = False
    seconds: float = 0.0
    planned: Figures | None = None
    actual: Figures | None = None


def plan_of_backup(options: BackupCreateOptions, from_file: str | None = None) -> BackupPlan:
    """Return what :func:`create_backup` would request, and what it costs a month; nothing is started.

    Parameters
    ----------
    from_file
        DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        If the table cannot be described.
    LimitError
        If the plan is above a limit.
    """
    table = statistics_table(from_file) or describe_table(dynamodb_spec(options), options.table)
    estimate = backup_estimate(table, prices_of(table.region, options.prices), digest=options.digest)
    check_estimate(options, estimate)
    return BackupPlan(table, estimate)


def create(options: BackupCreateOptions, watch: Watch | None = None) -> BackupJob:
    """Back a table up; return once the backup can be restored.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        If it cannot be made.
    ThrottledError
        If it is not ready after ``wait_seconds``.
    """
    spec, clock = dynamodb_spec(options), Clock()
    plan = plan_of_backup(options)
    table = plan.table.name
    _LOG.info("backup of %s: planned: %s", table, plan.estimate.figures)
    found = _read_digest(table, options) if options.digest else None
    name = options.name or f"{table[:200]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    arn = _request_backup(spec, options.table, name)
    job = await_end(lambda: BACKUP.describe(arn, options), options, watch)
    if job.status != "AVAILABLE":
        raise ServiceError(f"backup {arn} is {job.status}: make another one")
    units = 0.0 if found is None else found.units
    estimate = backup_estimate(plan.table, prices_of(plan.table.region, options.prices))
    usd = estimate.cost.usd + cost_of("reads", units, plan.table, options.prices).usd
    actual = Figures(units, round(clock.seconds(), 3), plan.estimate.bytes, usd)
    job = dataclasses.replace(job, planned=plan.estimate.figures, actual=actual)
    if found is None:
        return job
    return dataclasses.replace(job, items=found.digest.count, digest=found.digest.hexdigest())


def plan_of(options: RestoreOptions, from_file: str | None = None) -> RestorePlan:
    """Return what :func:`restore_table` would do, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        Describes the table that is restored as DescribeTable does, in JSON; nothing is called then.

    Raises
    ------
    OptionError
        If there is such a table, or the time cannot be recovered to.
    NotFoundError, AccessDeniedError, EndpointError
        If the source cannot be described.
    """
    if (table := statistics_table(from_file)) is not None:
        plan = RestorePlan(options.target, options.source, table.name, None, options.at, table.size_bytes)
        return _estimated(plan, table, options)
    spec = dynamodb_spec(options)
    if "/backup/" in options.source:
        made = BACKUP.describe(options.source, options)
        plan = RestorePlan(options.target, options.source, made.table, made.arn, None, made.size_bytes)
        if options.verify:
            table = describe_table(spec, made.table)
    else:
        table = describe_table(spec, options.source)
        recovery = describe_recovery(spec, options.source)
        if not recovery.is_on:
            raise OptionError(f"table {table.name!r} has no point-in-time recovery: restore a backup of it")
        if options.at is not None:
            recovery.check("at", options.at)
        plan = RestorePlan(options.target, options.source, table.name, None, options.at, table.size_bytes)
    try:
        describe_table(spec, options.target)
    except NotFoundError:
        return _estimated(plan, table, options)
    raise OptionError(f"table {options.target!r} exists: a restore makes a new table, choose another name")


def _estimated(plan: RestorePlan, table: TableDescription | None, options: RestoreOptions) -> RestorePlan:
    """Return a plan with its estimate, which is within the limits."""
    verified = _verified_tables(plan, table, options)
    estimate = restore_estimate(plan.size_bytes, prices_of(options.region, options.prices), verified)
    check_estimate(options, estimate)
    return dataclasses.replace(plan, estimate=estimate)


def _verified_tables(
    plan: RestorePlan, source: TableDescription | None, options: RestoreOptions
) -> list[TableDescription]:
    """Return the tables that are read to compare them, the new one as large as what it is restored from."""
    if not options.verify and options.expect_digest is None:
        return []
    if source is None:
        # A backup says of its table only how large it is.
        source = TableDescription(
            name=plan.source_table, arn=plan.source, table_id="", status="", key_types=(), item_count=0,
            size_bytes=plan.size_bytes, on_demand=True,
        )  # fmt: skip
    new = dataclasses.replace(source, name=plan.target, size_bytes=plan.size_bytes)
    return [new] if options.expect_digest is not None else [new, source]


def restore(options: RestoreOptions, watch: Watch | None = None) -> RestoreJob:
    """Make a new table of a backup, or of the state of a table at a time; return once it can be used.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        Nothing has then been started.
    ValidationError
        If count or digest are not those asked for; the new table stays.
    ThrottledError
        If it is not ready after ``wait_seconds``; it goes on.
    """
    spec = dynamodb_spec(options)
    plan = plan_of(options)
    _LOG.info("restore of %s to %s: planned: %s", options.source, options.target, plan.estimate.figures)
    clock = Clock()
    _request_restore(spec, plan)
    job = await_end(lambda: _describe_restore(spec, options.target), options, watch)
    if job.status != "ACTIVE":
        raise ServiceError(f"table {options.target} is {job.status} after its restore from {plan.source}")
    job = dataclasses.replace(job, source=job.source or plan.source, seconds=round(clock.seconds(), 3))
    job = dataclasses.replace(job, planned=plan.estimate.figures, actual=_actual(plan, [], clock, options))
    if not options.verify and options.expect_digest is None:
        return job
    scans = [_read_digest(options.target, options)]
    found = scans[0].digest
    job = dataclasses.replace(job, items=found.count, digest=found.hexdigest(), verified=True)
    wanted = options.expect_digest
    if wanted is None:
        scans.append(_read_digest(plan.source_table, options))
        wanted = scans[1].digest.hexdigest()
    job = dataclasses.replace(job, actual=_actual(plan, scans, clock, options))
    if job.digest != wanted:
        raise ValidationError(
            f"table {job.table}, restored from {plan.source}, has {job.items} items of digest {job.digest}, "
            f"not {wanted}{f': was {plan.source_table} written to since?' if options.verify else ''}",
            {"items": job.items, "digest": job.digest, "wanted_digest": wanted},
        )
    return job


def _read_digest(table: str, options: BackupCreateOptions | RestoreOptions) -> ScannedDigest:
    # All that reads items: most backups and restores do not.
    from ddbio.scan.read import read_digest  # noqa: PLC0415

    return read_digest(table, options)


def _actual(plan: RestorePlan, scans: Sequence[ScannedDigest], clock: Clock, options: RestoreOptions) -> Figures:
    """Return what a restore took, with the reads that verified it."""
    units = sum(scan.units for scan in scans)
    usd = restore_estimate(plan.size_bytes, prices_of(options.region, options.prices)).cost.usd
    if units:
        usd += cost_of("reads", units, describe_table(dynamodb_spec(options), options.target), options.prices).usd
    return Figures(units, round(clock.seconds(), 3), plan.size_bytes * (1 + len(scans)), usd)


def _request_backup(spec: ClientSpec, table: str, name: str) -> str:
    """Create a backup and return its ARN.

    A call whose response is lost is not repeated, since that could create two backups.
    """
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
    members = {"TableName": table, "BackupName": name}
    reply = call(spec, "CreateBackup", f"table {table!r}", members, idempotent=False)
    return str(reply["BackupDetails"]["BackupArn"])


def _request_restore(spec: ClientSpec, plan: RestorePlan) -> None:
    """Start the restore that a plan describes."""
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_RestoreTableFromBackup.html
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_RestoreTableToPointInTime.html
    source: dict[str, Any] = {"BackupArn": plan.backup_arn}
    operation = "RestoreTableFromBackup"
    if plan.backup_arn is None:
        operation = "RestoreTableToPointInTime"
        is_arn = plan.source.startswith("arn:")
        source = {
            "SourceTableArn" if is_arn else "SourceTableName": plan.source,
            "RestoreDateTime": plan.at,
            "UseLatestRestorableTime": plan.at is None,
        }
    members = given({"TargetTableName": plan.target, **source})
    call(spec, operation, f"{plan.source} to table {plan.target!r}", members, idempotent=False)


def _describe_restore(spec: ClientSpec, table: str) -> RestoreJob:
    """Return the state of a restore, by the table it makes."""
    described = call(spec, "DescribeTable", f"table {table!r}", {"TableName": table})["Table"]
    summary = described.get("RestoreSummary", {})
    is_active = described["TableStatus"] == "ACTIVE"
    return RestoreJob(
        arn=described.get("TableArn", ""),
        table=described["TableName"],
        status="CREATING" if is_active and summary.get("RestoreInProgress") else described["TableStatus"],
        source=summary.get("SourceBackupArn") or summary.get("SourceTableArn") or "",
        restored_at=time_text(summary.get("RestoreDateTime")),
    )
