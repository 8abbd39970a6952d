"""Start, describe and list the service's own long-running jobs: exports, imports, bulk operations, backups, restores.

No function waits for a job to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import call, list_pages, time_text
from ddbio.errors import ServiceError
from ddbio.export.backups import BackupJob, RestoreJob
from ddbio.export.import_job import BulkEntry, BulkJob, ImportEntry, ImportJob, table_definition
from ddbio.export.job import ExportEntry, ExportJob
from ddbio.jobs.service_jobs import kms_members

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.export.backups import RestorePlan
    from ddbio.export.import_job import BulkPlan, ImportPlan
    from ddbio.export.job import ExportPlan

_FULL, _INCREMENTAL = "FULL_EXPORT", "INCREMENTAL_EXPORT"
_MANIFEST_NAME = "manifest-summary.json"


def start_export(spec: ClientSpec, plan: ExportPlan) -> ExportJob:
    """Start the export that a plan describes.

    Starting the same plan again within eight hours returns the same export: its client token is the same.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ExportTableToPointInTime.html
    """
    members: dict[str, Any] = {
        "TableArn": plan.table_arn,
        "S3Bucket": plan.bucket,
        "ClientToken": plan.client_token,
        "ExportFormat": plan.format.upper(),
        "ExportType": _FULL if plan.kind == "full" else _INCREMENTAL,
        **(kms_members(plan.kms_key) or {"S3SseAlgorithm": "AES256"}),
    }
    given = {
        "S3Prefix": plan.prefix,
        "S3BucketOwner": plan.bucket_owner,
        "ExportTime": plan.at,
    }
    members |= {name: value for name, value in given.items() if value}
    if plan.view is not None:
        members["IncrementalExportSpecification"] = {
            "ExportFromTime": plan.from_time,
            "ExportToTime": plan.to_time,
            "ExportViewType": plan.view.upper(),
        }
    reply = call(spec, "ExportTableToPointInTime", f"table {plan.table!r}", members)
    return _export_job(reply["ExportDescription"])


def describe_export(spec: ClientSpec, arn: str) -> ExportJob:
    """Return the state of an export.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    return _export_job(call(spec, "DescribeExport", f"export {arn}", {"ExportArn": arn})["ExportDescription"])


def list_exports(spec: ClientSpec, table_arn: str | None) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of one table (newest first) or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    found = _listed(spec, "ListExports", "ExportSummaries", table_arn)
    return [ExportEntry(each["ExportArn"], each["ExportStatus"], _export_kind(each)) for each in found]


def _listed(spec: ClientSpec, operation: str, member: str, table_arn: str | None = None) -> list[Mapping[str, Any]]:
    """Return the entries of a listing, of one table or of all."""
    members = {} if table_arn is None else {"TableArn": table_arn}
    replies = list_pages(spec, operation, f"{operation} of {table_arn or 'all tables'}", members, "NextToken")
    return [each for reply in replies for each in reply.get(member, [])]


def _export_kind(described: Mapping[str, Any]) -> str:
    # The service leaves the type out if the caller did.
    return "incremental" if described.get("ExportType") == _INCREMENTAL else "full"


def _export_job(described: Mapping[str, Any]) -> ExportJob:
    window = described.get("IncrementalExportSpecification", {})
    manifest = described.get("ExportManifest")
    bucket = described.get("S3Bucket", "")
    return ExportJob(
        arn=described["ExportArn"],
        status=described["ExportStatus"],
        kind=_export_kind(described),
        table_arn=described.get("TableArn", ""),
        uri=f"s3://{bucket}/{manifest.removesuffix(_MANIFEST_NAME).rstrip('/')}" if manifest else None,
        format=described.get("ExportFormat", "DYNAMODB_JSON").lower(),
        export_time=time_text(described.get("ExportTime")),
        from_time=time_text(window.get("ExportFromTime")),
        to_time=time_text(window.get("ExportToTime")),
        view=window.get("ExportViewType", "").lower() or None,
        filtered=bool(described.get("FilterSpecification")),
        started_at=time_text(described.get("StartTime")),
        ended_at=time_text(described.get("EndTime")),
        items=described.get("ItemCount"),
        billed_bytes=described.get("BilledSizeBytes"),
        client_token=described.get("ClientToken"),
        failure_code=described.get("FailureCode"),
        failure_message=described.get("FailureMessage"),
    )


def start_import(spec: ClientSpec, plan: ImportPlan) -> ImportJob:
    """Start the import that a plan describes.

    Raises
    ------
    ServiceError
        If the table exists; or if the client token stands for an import of other objects, which the service would
        otherwise return as if it were this one.
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`ddbio.aws.control_plane.call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ImportTable.html
    """
    source = {"S3Bucket": plan.bucket, "S3KeyPrefix": plan.prefix, "S3BucketOwner": plan.bucket_owner}
    members: dict[str, Any] = {
        "ClientToken": plan.client_token,
        "S3BucketSource": {name: value for name, value in source.items() if value},
        "InputFormat": plan.format.upper(),
        "InputCompressionType": plan.compression.upper(),
        "TableCreationParameters": table_definition(plan),
    }
    if plan.delimiter is not None:
        members["InputFormatOptions"] = {"Csv": {"Delimiter": plan.delimiter}}
    described = call(spec, "ImportTable", f"table {plan.table!r}", members)["ImportTableDescription"]
    for name in ("S3BucketSource", "InputFormat", "InputCompressionType"):
        if described.get(name, members[name]) != members[name]:
            raise ServiceError(
                f"the client token stands for the import {described['ImportArn']} of {described[name]}: give "
                "another one",
                "ImportConflictException",
            )
    return _import_job(described)


def describe_import(spec: ClientSpec, arn: str) -> ImportJob:
    """Return the state of an import.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    return _import_job(call(spec, "DescribeImport", f"import {arn}", {"ImportArn": arn})["ImportTableDescription"])


def list_imports(spec: ClientSpec, table_arn: str | None) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of one table or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    found = _listed(spec, "ListImports", "ImportSummaryList", table_arn)
    return [
        ImportEntry(each["ImportArn"], each["ImportStatus"], each.get("TableArn", ""), _import_source(each))
        for each in found
    ]


def _import_source(described: Mapping[str, Any]) -> str:
    # Some fakes leave it out.
    source = described.get("S3BucketSource")
    return f"s3://{source['S3Bucket']}/{source.get('S3KeyPrefix', '')}".rstrip("/") if source else ""


def _import_job(described: Mapping[str, Any]) -> ImportJob:
    return ImportJob(
        arn=described["ImportArn"],
        status=described["ImportStatus"],
        table=described["TableArn"].rpartition("/")[2],
        table_arn=described["TableArn"],
        source=_import_source(described),
        format=described.get("InputFormat", "").lower(),
        compression=described.get("InputCompressionType", "NONE").lower(),
        started_at=time_text(described.get("StartTime")),
        ended_at=time_text(described.get("EndTime")),
        processed_items=described.get("ProcessedItemCount", 0),
        imported_items=described.get("ImportedItemCount", 0),
        errors=described.get("ErrorCount", 0),
        processed_bytes=described.get("ProcessedSizeBytes", 0),
        log_group=described.get("CloudWatchLogGroupArn"),
        client_token=described.get("ClientToken"),
        failure_code=described.get("FailureCode"),
        failure_message=described.get("FailureMessage"),
    )


def start_bulk(spec: ClientSpec, plan: BulkPlan) -> BulkJob:
    """Start the bulk put that a plan describes.

    Starting the same plan again within eight hours returns the same operation: its client token is the same.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_StartBulkPutItems.html
    """
    source = {
        "S3Bucket": plan.bucket,
        "S3KeyPrefix": plan.prefix,
        "S3BucketOwner": plan.bucket_owner,
        "InputFormat": plan.format.upper(),
        "InputCompressionType": plan.compression.upper(),
    }
    reports = {
        "S3Bucket": plan.report_bucket,
        "S3KeyPrefix": plan.report_prefix,
        "S3BucketOwner": plan.report_owner,
        **kms_members(plan.kms_key),
        "OutputType": ["ERROR", "CONDITION_CHECK_FAILURE"],
    }
    members: dict[str, Any] = {
        "TableName": plan.table,
        "ClientToken": plan.client_token,
        "PerformanceTier": plan.tier.upper(),
        "InputS3Configuration": {name: value for name, value in source.items() if value},
        "OutputS3Configuration": {name: value for name, value in reports.items() if value},
    }
    if plan.wcu_per_second is not None:
        members["MaxWriteRequestUnits"] = plan.wcu_per_second
    return _bulk_job(call(spec, "StartBulkPutItems", f"table {plan.table!r}", members)["BulkOperationDescription"])


def describe_bulk(spec: ClientSpec, arn: str) -> BulkJob:
    """Return the state of a bulk put.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    reply = call(spec, "DescribeBulkOperation", f"bulk operation {arn}", {"BulkOperationArn": arn})
    return _bulk_job(reply["BulkOperationDescription"])


def cancel_bulk(spec: ClientSpec, arn: str) -> str:
    """Cancel a bulk put and return its status; items that were put stay.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    reply = call(spec, "CancelBulkOperation", f"bulk operation {arn}", {"BulkOperationArn": arn})
    return str(reply["BulkOperationStatus"])


def list_bulk(spec: ClientSpec) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days, the newest first.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    return [
        BulkEntry(
            each["BulkOperationArn"],
            each["BulkOperationStatus"],
            time_text(each.get("StartTime")),
            time_text(each.get("EndTime")),
        )
        for each in _listed(spec, "ListBulkOperations", "BulkOperationsSummaryList")
    ]


def _bulk_job(described: Mapping[str, Any]) -> BulkJob:
    return BulkJob(
        arn=described["BulkOperationArn"],
        status=described["BulkOperationStatus"],
        table=", ".join(each["TableName"] for each in described.get("TableDetails", [])),
        source=_s3_uri(described.get("InputS3Configuration", {})),
        reports=_s3_uri(described.get("OutputS3Configuration", {})),
        started_at=time_text(described.get("StartTime")),
        ended_at=time_text(described.get("EndTime")),
        processed_items=described.get("ProcessedItemCount", 0),
        failed_items=described.get("FailedItemCount", 0),
        processed_bytes=described.get("ProcessedInputBytes", 0),
        total_bytes=described.get("TotalInputBytes"),
        client_token=described.get("ClientToken"),
        failure_code=described.get("FailureCode"),
        failure_message=described.get("FailureMessage"),
    )


def _s3_uri(described: Mapping[str, Any]) -> str:
    return f"s3://{described['S3Bucket']}/{described.get('S3KeyPrefix', '')}".rstrip("/") if described else ""


def create_backup(spec: ClientSpec, table: str, name: str) -> str:
    """Create a backup and return its ARN.

    A call whose response is lost is not repeated, since that could create two backups.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
    """
    members = {"TableName": table, "BackupName": name}
    reply = call(spec, "CreateBackup", f"table {table!r}", members, idempotent=False)
    return str(reply["BackupDetails"]["BackupArn"])


def describe_backup(spec: ClientSpec, arn: str) -> BackupJob:
    """Return the state of a backup.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    described = call(spec, "DescribeBackup", f"backup {arn}", {"BackupArn": arn})["BackupDescription"]
    return _backup_job({**described["SourceTableDetails"], **described["BackupDetails"]})


def list_backups(spec: ClientSpec, table: str | None) -> list[BackupJob]:
    """Return the backups of every kind, of one table or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    members = {"BackupType": "ALL"} | ({} if table is None else {"TableName": table})
    resource = f"backups of {table or 'all tables'}"
    replies = list_pages(spec, "ListBackups", resource, members, "LastEvaluatedBackupArn", "ExclusiveStartBackupArn")
    return [_backup_job(each) for reply in replies for each in reply.get("BackupSummaries", [])]


def start_restore(spec: ClientSpec, plan: RestorePlan) -> RestoreJob:
    """Start the restore that a plan describes.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.

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
    reply = call(spec, operation, f"{plan.source} to table {plan.target!r}", members, idempotent=False)
    return _restore_job(reply["TableDescription"])


def describe_restore(spec: ClientSpec, table: str) -> RestoreJob:
    """Return the state of a restore, by the table it makes.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    return _restore_job(call(spec, "DescribeTable", f"table {table!r}", {"TableName": table})["Table"])


def _backup_job(described: Mapping[str, Any]) -> BackupJob:
    return BackupJob(
        arn=described["BackupArn"],
        name=described["BackupName"],
        status=described["BackupStatus"],
        kind=described.get("BackupType", "USER"),
        table=described.get("TableName", ""),
        table_arn=described.get("TableArn", ""),
        size_bytes=described.get("BackupSizeBytes", 0),
        created_at=described["BackupCreationDateTime"].isoformat(),
        expires_at=time_text(described.get("BackupExpiryDateTime")),
        table_items=described.get("ItemCount"),
    )


def _restore_job(described: Mapping[str, Any]) -> RestoreJob:
    summary = described.get("RestoreSummary", {})
    active = described["TableStatus"] == "ACTIVE" and not summary.get("RestoreInProgress")
    return RestoreJob(
        arn=described.get("TableArn", ""),
        table=described["TableName"],
        status=described["TableStatus"] if active or described["TableStatus"] != "ACTIVE" else "CREATING",
        source=summary.get("SourceBackupArn") or summary.get("SourceTableArn") or "",
        restored_at=time_text(summary.get("RestoreDateTime")),
    )
