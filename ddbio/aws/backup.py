"""Create, describe and list backups, and start restores; wait for none, delete none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call, pages, time_text
from ddbio.core.backup_job import BackupJob, RestoreJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.core.backup_job import RestorePlan


def create_backup(spec: ClientSpec, table: str, name: str) -> str:
    """Create a backup and return its ARN; a call that gets no answer is not repeated, since that would make two.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
    """
    members = {"TableName": table, "BackupName": name}
    reply = call(spec, "CreateBackup", f"table {table!r}", members, repeat=False)
    return str(reply["BackupDetails"]["BackupArn"])


def describe_backup(spec: ClientSpec, arn: str) -> BackupJob:
    """Return what is known of a backup.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    stated = call(spec, "DescribeBackup", f"backup {arn}", {"BackupArn": arn})["BackupDescription"]
    return _job({**stated["SourceTableDetails"], **stated["BackupDetails"]})


def list_backups(spec: ClientSpec, table: str | None) -> list[BackupJob]:
    """Return the backups of every kind, of one table or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    members = {"BackupType": "ALL"} | ({} if table is None else {"TableName": table})
    resource = f"backups of {table or 'all tables'}"
    replies = pages(spec, "ListBackups", resource, members, "LastEvaluatedBackupArn", "ExclusiveStartBackupArn")
    return [_job(each) for reply in replies for each in reply.get("BackupSummaries", [])]


def start_restore(spec: ClientSpec, plan: RestorePlan) -> RestoreJob:
    """Start to make the table that a plan states.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_RestoreTableFromBackup.html
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_RestoreTableToPointInTime.html
    """
    members: dict[str, Any] = {"TargetTableName": plan.target}
    operation = "RestoreTableToPointInTime" if plan.backup_arn is None else "RestoreTableFromBackup"
    if plan.backup_arn is not None:
        members["BackupArn"] = plan.backup_arn
    else:
        member = "SourceTableArn" if plan.source.startswith("arn:") else "SourceTableName"
        members |= {member: plan.source}
        members |= {"UseLatestRestorableTime": True} if plan.at is None else {"RestoreDateTime": plan.at}
    reply = call(spec, operation, f"{plan.source} to table {plan.target!r}", members, repeat=False)
    return _restore(reply["TableDescription"])


def describe_restore(spec: ClientSpec, table: str) -> RestoreJob:
    """Return what is known of a table that is being restored.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    return _restore(call(spec, "DescribeTable", f"table {table!r}", {"TableName": table})["Table"])


def _job(stated: Mapping[str, Any]) -> BackupJob:
    return BackupJob(
        arn=stated["BackupArn"],
        name=stated["BackupName"],
        status=stated["BackupStatus"],
        kind=stated.get("BackupType", "USER"),
        table=stated.get("TableName", ""),
        table_arn=stated.get("TableArn", ""),
        size_bytes=stated.get("BackupSizeBytes", 0),
        created_at=stated["BackupCreationDateTime"].isoformat(),
        expires_at=time_text(stated.get("BackupExpiryDateTime")),
        table_items=stated.get("ItemCount"),
    )


def _restore(stated: Mapping[str, Any]) -> RestoreJob:
    summary = stated.get("RestoreSummary", {})
    active = stated["TableStatus"] == "ACTIVE" and not summary.get("RestoreInProgress")
    return RestoreJob(
        arn=stated.get("TableArn", ""),
        table=stated["TableName"],
        status=stated["TableStatus"] if active or stated["TableStatus"] != "ACTIVE" else "CREATING",
        source=summary.get("SourceBackupArn") or summary.get("SourceTableArn") or "",
        restored_at=time_text(summary.get("RestoreDateTime")),
    )
