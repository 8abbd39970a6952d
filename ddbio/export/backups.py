"""Creation and restore of backups, waits for both, and verification of a restored table by count and digest."""

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
from ddbio.export.service_jobs import Descriptions, with_values
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
    """Plan of a backup: the table's description by DescribeTable, and the cost of the backup."""

    table: TableDescription
    estimate: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the estimate as one dictionary."""
        return {**self.table.to_dict(), **self.estimate.to_dict()}


@dataclass(frozen=True)
class BackupJob(Result):
    """Description of a backup; times are ISO 8601.

    Attributes
    ----------
    arn, name, status, kind
        Status: ``CREATING``, ``AVAILABLE`` or ``DELETED``. Kind: ``USER``, ``SYSTEM`` (of a deleted table) or
        ``AWS_BACKUP``.
    table, table_arn
        The table of the backup.
    size_bytes, table_items
        As reported by the service, which counts items about every six hours.
    created_at, expires_at
        Time of the backup, and the time at which the service deletes it.
    items, digest
        Items and digest of the table, if requested.
    planned, actual
        Planned and actual read units of the digest, bytes, seconds, and USD of the first month.
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
    """Complete plan of a restore; ``at`` is None for a backup and for the latest time."""

    target: str
    source: str
    source_table: str
    backup_arn: str | None
    at: datetime | None
    size_bytes: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class RestoreJob(Result):
    """Description of a restored table.

    Attributes
    ----------
    arn, table, status
        The new table; its status is ``CREATING``, then ``ACTIVE``.
    source, restored_at
        The backup or table that was restored, and the time of the restored state.
    items, digest
        Items and digest of the new table, if they were compared.
    verified
        Whether they were compared.
    seconds
        Time from the request until the table was usable.
    planned, actual
        Planned and actual read units of the verification, bytes, seconds and USD.
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
    """Return the plan and the monthly cost of :func:`create_backup`; nothing is started.

    Parameters
    ----------
    from_file
        File with the JSON response of DescribeTable; the table need not exist.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        If the table cannot be described.
    LimitError
        If the plan exceeds a limit.
    """
    table = statistics_table(from_file) or describe_table(dynamodb_spec(options), options.table)
    estimate = backup_estimate(table, prices_of(table.region, options.prices), digest=options.digest)
    check_estimate(options, estimate)
    return BackupPlan(table, estimate)


def create(options: BackupCreateOptions, watch: Watch | None = None) -> BackupJob:
    """Create a backup of a table, and return when it can be restored.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        If the backup cannot be created.
    ThrottledError
        If it is not ready after ``wait_seconds``.
    """
    spec, clock = dynamodb_spec(options), Clock()
    plan = plan_of_backup(options)
    table = plan.table.name
    _LOG.info("backup of %s: planned: %s", table, plan.estimate.figures)
    scanned = _read_digest(table, options) if options.digest else None
    name = options.name or f"{table[:200]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    arn = _request_backup(spec, options.table, name)
    job = await_end(lambda: BACKUP.describe(arn, options), options, watch)
    if job.status != "AVAILABLE":
        raise ServiceError(f"backup {arn} is {job.status}: create another one")
    units = 0.0 if scanned is None else scanned.units
    estimate = backup_estimate(plan.table, prices_of(plan.table.region, options.prices))
    usd = estimate.cost.usd + cost_of("reads", units, plan.table, options.prices).usd
    actual = Figures(units, round(clock.seconds(), 3), plan.estimate.bytes, usd)
    job = dataclasses.replace(job, planned=plan.estimate.figures, actual=actual)
    if scanned is None:
        return job
    return dataclasses.replace(job, items=scanned.digest.count, digest=scanned.digest.hexdigest())


def plan_of(options: RestoreOptions, from_file: str | None = None) -> RestorePlan:
    """Return the plan of :func:`restore_table`, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        File with the JSON response of DescribeTable for the restored table; AWS is not called.

    Raises
    ------
    OptionError
        If the target table exists, or the time is outside the recovery window.
    NotFoundError, AccessDeniedError, EndpointError
        If the source cannot be described.
    """
    if (table := statistics_table(from_file)) is not None:
        plan = RestorePlan(options.target, options.source, table.name, None, options.at, table.size_bytes)
        return _estimated(plan, table, options)
    spec = dynamodb_spec(options)
    if "/backup/" in options.source:
        backup = BACKUP.describe(options.source, options)
        plan = RestorePlan(options.target, options.source, backup.table, backup.arn, None, backup.size_bytes)
        if options.verify:
            table = describe_table(spec, backup.table)
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
    raise OptionError(f"table {options.target!r} exists: a restore creates a new table, choose another name")


def _estimated(plan: RestorePlan, table: TableDescription | None, options: RestoreOptions) -> RestorePlan:
    """Return the plan with its estimate, after checking the limits."""
    verified = _verified_tables(plan, table, options)
    estimate = restore_estimate(plan.size_bytes, prices_of(options.region, options.prices), verified)
    check_estimate(options, estimate)
    return dataclasses.replace(plan, estimate=estimate)


def _verified_tables(
    plan: RestorePlan, source: TableDescription | None, options: RestoreOptions
) -> list[TableDescription]:
    """Return the tables that the verification reads; the new table has the size of the restored one."""
    if not options.verify and options.expect_digest is None:
        return []
    if source is None:
        # Of the table of a backup, only the size is known.
        source = TableDescription(
            name=plan.source_table, arn=plan.source, table_id="", status="", key_types=(), item_count=0,
            size_bytes=plan.size_bytes, on_demand=True,
        )  # fmt: skip
    new = dataclasses.replace(source, name=plan.target, size_bytes=plan.size_bytes)
    return [new] if options.expect_digest is not None else [new, source]


def restore(options: RestoreOptions, watch: Watch | None = None) -> RestoreJob:
    """Create a table from a backup, or from the state of a table at a time; return when it can be used.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        Nothing was started.
    ValidationError
        If count or digest differ from the expected ones; the new table stays.
    ThrottledError
        If it is not ready after ``wait_seconds``; the restore continues.
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
    digest = scans[0].digest
    job = dataclasses.replace(job, items=digest.count, digest=digest.hexdigest(), verified=True)
    expected_digest = options.expect_digest
    if expected_digest is None:
        scans.append(_read_digest(plan.source_table, options))
        expected_digest = scans[1].digest.hexdigest()
    job = dataclasses.replace(job, actual=_actual(plan, scans, clock, options))
    if job.digest != expected_digest:
        raise ValidationError(
            f"table {job.table}, restored from {plan.source}, has {job.items} items of digest {job.digest}, "
            f"not {expected_digest}{f': was {plan.source_table} written to since?' if options.verify else ''}",
            {"items": job.items, "digest": job.digest, "wanted_digest": expected_digest},
        )
    return job


def _read_digest(table: str, options: BackupCreateOptions | RestoreOptions) -> ScannedDigest:
    # Imported only here, because most backups and restores read no items.
    from ddbio.scan.read import read_digest  # noqa: PLC0415

    return read_digest(table, options)


def _actual(plan: RestorePlan, scans: Sequence[ScannedDigest], clock: Clock, options: RestoreOptions) -> Figures:
    """Return the actual figures of a restore, including the reads of its verification."""
    units = sum(scan.units for scan in scans)
    usd = restore_estimate(plan.size_bytes, prices_of(options.region, options.prices)).cost.usd
    if units:
        usd += cost_of("reads", units, describe_table(dynamodb_spec(options), options.target), options.prices).usd
    return Figures(units, round(clock.seconds(), 3), plan.size_bytes * (1 + len(scans)), usd)


def _request_backup(spec: ClientSpec, table: str, name: str) -> str:
    """Create a backup and return its ARN.

    A call whose response is lost is not retried, since that could create two backups.
    """
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
    members = {"TableName": table, "BackupName": name}
    reply = call(spec, "CreateBackup", f"table {table!r}", members, idempotent=False)
    return str(reply["BackupDetails"]["BackupArn"])


def _request_restore(spec: ClientSpec, plan: RestorePlan) -> None:
    """Start the restore of a plan."""
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
    members = with_values({"TargetTableName": plan.target, **source})
    call(spec, operation, f"{plan.source} to table {plan.target!r}", members, idempotent=False)


def _describe_restore(spec: ClientSpec, table: str) -> RestoreJob:
    """Return the state of a restore, from the description of its table."""
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
