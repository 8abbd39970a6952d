"""Start, describe and list the service's own long-running jobs: exports, imports, bulk puts, backups and restores.

A row for each kind of job names its calls, and the members of a description that become the fields of its dataclass.
No function waits for a job to end.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.aws.control_plane import call, describe_table, list_pages, time_text
from ddbio.errors import ServiceError
from ddbio.export.job_descriptions import (
    BackupJob,
    BulkEntry,
    BulkJob,
    ExportEntry,
    ExportJob,
    ImportEntry,
    ImportJob,
    RestoreJob,
    kms_members,
    table_definition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.export.job_descriptions import BulkPlan, ExportPlan, ImportPlan, RestorePlan

_INCREMENTAL = "INCREMENTAL_EXPORT"
_MANIFEST_NAME = "manifest-summary.json"
# What fields of these types hold if the service leaves a member out; others hold None.
_MISSING = {"bool": False, "int": 0, "str": ""}
_COURSE = (
    "started_at=StartTime ended_at=EndTime client_token=ClientToken failure_code=FailureCode "
    "failure_message=FailureMessage "
)


class ServiceJob(NamedTuple):
    """A kind of job that the service runs itself.

    Attributes
    ----------
    name
        What errors call it, and what its calls are named after: ``export`` has ``DescribeExport`` and ``ListExports``.
    job, entry
        The dataclasses of a job and of an entry of a list.
    description, entries
        The member of DescribeX's response that describes a job, and that of ListXs' with the entries.
    members
        ``field=Member`` or ``field=Outer.Member`` for each field that is a member of the description.
    computed
        The fields that are computed from the description.
    table
        The member of ListXs' request that chooses a table; None if there is none.
    filters
        Other members of ListXs' request.
    tokens
        The member of ListXs' response that names the next page; that of the request, if it has another name.
    parts
        Members of the description whose members are read as if they were its own.
    """

    name: str
    job: type[Any]
    entry: type[Any]
    description: str
    entries: str
    members: str
    computed: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    table: str | None = "TableArn"
    filters: Mapping[str, str] = {}
    tokens: Sequence[str] = ("NextToken",)
    parts: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """Return the noun in the names of its calls."""
        return self.name.title().replace(" ", "")

    def parse(self, description: Mapping[str, Any], result: type[Any]) -> Any:
        """Return a description as a dataclass; fields that the service does not tell keep their defaults."""
        for part in self.parts:
            description = {**description, **description.get(part, {})}
        paths = dict(each.split("=") for each in self.members.split())
        values = {
            field.name: _value(description, paths[field.name], str(field.type))
            for field in fields(result)
            if field.name in paths
        }
        computed = {field.name for field in fields(result)} & self.computed.keys()
        return result(**values, **{name: self.computed[name](description) for name in computed})


def _value(description: Mapping[str, Any], path: str, kind: str) -> Any:
    """Return a member for a field of this type: times as ISO 8601, places on S3 as URIs."""
    outer, _, name = path.rpartition(".")
    value = (description.get(outer, {}) if outer else description).get(name)
    if value is None:
        return _MISSING.get(kind)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict) and "S3Bucket" in value:
        return f"s3://{value['S3Bucket']}/{value.get('S3KeyPrefix', '')}".rstrip("/")
    return bool(value) if kind == "bool" else value


def _export_uri(description: Mapping[str, Any]) -> str | None:
    manifest = description.get("ExportManifest")
    folder = (manifest or "").removesuffix(_MANIFEST_NAME).rstrip("/")
    return f"s3://{description.get('S3Bucket', '')}/{folder}" if manifest else None


EXPORT = ServiceJob(
    "export",
    ExportJob,
    ExportEntry,
    "ExportDescription",
    "ExportSummaries",
    f"{_COURSE} arn=ExportArn status=ExportStatus table_arn=TableArn export_time=ExportTime "
    "from_time=IncrementalExportSpecification.ExportFromTime to_time=IncrementalExportSpecification.ExportToTime "
    "filtered=FilterSpecification items=ItemCount billed_bytes=BilledSizeBytes",
    {
        # The service leaves the type out if the caller did.
        "kind": lambda job: "incremental" if job.get("ExportType") == _INCREMENTAL else "full",
        "uri": _export_uri,
        "format": lambda job: job.get("ExportFormat", "DYNAMODB_JSON").lower(),
        "view": lambda job: job.get("IncrementalExportSpecification", {}).get("ExportViewType", "").lower() or None,
    },
)
IMPORT = ServiceJob(
    "import",
    ImportJob,
    ImportEntry,
    "ImportTableDescription",
    "ImportSummaryList",
    f"{_COURSE} arn=ImportArn status=ImportStatus table_arn=TableArn source=S3BucketSource "
    "processed_items=ProcessedItemCount imported_items=ImportedItemCount errors=ErrorCount "
    "processed_bytes=ProcessedSizeBytes log_group=CloudWatchLogGroupArn",
    {
        "table": lambda job: job["TableArn"].rpartition("/")[2],
        "format": lambda job: job.get("InputFormat", "").lower(),
        "compression": lambda job: job.get("InputCompressionType", "NONE").lower(),
    },
)
BULK = ServiceJob(
    "bulk operation",
    BulkJob,
    BulkEntry,
    "BulkOperationDescription",
    "BulkOperationsSummaryList",
    f"{_COURSE} arn=BulkOperationArn status=BulkOperationStatus source=InputS3Configuration "
    "reports=OutputS3Configuration processed_items=ProcessedItemCount failed_items=FailedItemCount "
    "processed_bytes=ProcessedInputBytes total_bytes=TotalInputBytes",
    {"table": lambda job: ", ".join(each["TableName"] for each in job.get("TableDetails", []))},
    table=None,
)
BACKUP = ServiceJob(
    "backup",
    BackupJob,
    BackupJob,
    "BackupDescription",
    "BackupSummaries",
    "arn=BackupArn name=BackupName status=BackupStatus table=TableName table_arn=TableArn size_bytes=BackupSizeBytes "
    "created_at=BackupCreationDateTime expires_at=BackupExpiryDateTime table_items=ItemCount",
    {"kind": lambda job: job.get("BackupType", "USER")},
    table="TableName",
    filters={"BackupType": "ALL"},
    tokens=("LastEvaluatedBackupArn", "ExclusiveStartBackupArn"),
    parts=("SourceTableDetails", "BackupDetails"),
)


def describe_job(spec: ClientSpec, kind: ServiceJob, arn: str) -> Any:
    """Return the state of a job.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    reply = call(spec, f"Describe{kind.noun}", f"{kind.name} {arn}", {f"{kind.noun}Arn": arn})
    return kind.parse(reply[kind.description], kind.job)


def list_jobs(spec: ClientSpec, kind: ServiceJob, table: str | None = None) -> list[Any]:
    """Return the jobs that the service lists, of one table, by name or ARN, or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    if table is not None and kind.table == "TableArn" and not table.startswith("arn:"):
        table = describe_table(spec, table).arn
    members = {**kind.filters, **({kind.table: table} if kind.table and table else {})}
    resource = f"{kind.name}s of {table or 'all tables'}"
    replies = list_pages(spec, f"List{kind.noun}s", resource, members, kind.tokens)
    return [kind.parse(each, kind.entry) for reply in replies for each in reply.get(kind.entries, [])]


def describe_restore(spec: ClientSpec, table: str) -> RestoreJob:
    """Return the state of a restore, by the table it makes.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
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
        "S3Prefix": plan.prefix,
        "S3BucketOwner": plan.bucket_owner,
        "ClientToken": plan.client_token,
        "ExportFormat": plan.format.upper(),
        "ExportType": "FULL_EXPORT" if plan.kind == "full" else _INCREMENTAL,
        "ExportTime": plan.at,
        **(kms_members(plan.kms_key) or {"S3SseAlgorithm": "AES256"}),
    }
    if plan.view is not None:
        members["IncrementalExportSpecification"] = {
            "ExportFromTime": plan.from_time,
            "ExportToTime": plan.to_time,
            "ExportViewType": plan.view.upper(),
        }
    reply = call(spec, "ExportTableToPointInTime", f"table {plan.table!r}", _given(members))
    return EXPORT.parse(reply[EXPORT.description], ExportJob)  # type: ignore[no-any-return]


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
    members = {
        "ClientToken": plan.client_token,
        "S3BucketSource": _source(plan),
        "InputFormat": plan.format.upper(),
        "InputCompressionType": plan.compression.upper(),
        "TableCreationParameters": table_definition(plan),
    }
    if plan.delimiter is not None:
        members["InputFormatOptions"] = {"Csv": {"Delimiter": plan.delimiter}}
    description = call(spec, "ImportTable", f"table {plan.table!r}", members)["ImportTableDescription"]
    for name in ("S3BucketSource", "InputFormat", "InputCompressionType"):
        if description.get(name, members[name]) != members[name]:
            raise ServiceError(
                f"the client token stands for the import {description['ImportArn']} of {description[name]}: give "
                "another one",
                "ImportConflictException",
            )
    return IMPORT.parse(description, ImportJob)  # type: ignore[no-any-return]


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
            **_source(plan),
            "InputFormat": plan.format.upper(),
            "InputCompressionType": plan.compression.upper(),
        },
        "OutputS3Configuration": _given(reports),
        "MaxWriteRequestUnits": plan.wcu_per_second,
    }
    reply = call(spec, "StartBulkPutItems", f"table {plan.table!r}", _given(members))
    return BULK.parse(reply["BulkOperationDescription"], BulkJob)  # type: ignore[no-any-return]


def cancel_bulk(spec: ClientSpec, arn: str) -> None:
    """Cancel a bulk put; items that were put stay.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control_plane.call`.
    """
    call(spec, "CancelBulkOperation", f"bulk operation {arn}", {"BulkOperationArn": arn})


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


def start_restore(spec: ClientSpec, plan: RestorePlan) -> None:
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
    members = _given({"TargetTableName": plan.target, **source})
    call(spec, operation, f"{plan.source} to table {plan.target!r}", members, idempotent=False)


def _source(plan: ImportPlan | BulkPlan) -> dict[str, Any]:
    """Return the objects that the service reads."""
    return _given({"S3Bucket": plan.bucket, "S3KeyPrefix": plan.prefix, "S3BucketOwner": plan.bucket_owner})


def _given(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a request that have a value."""
    return {name: value for name, value in members.items() if value}
