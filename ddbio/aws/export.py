"""Start, describe and list native exports; wait for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call, pages, time_text
from ddbio.core.exports.jobs import ExportEntry, ExportJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.core.exports.jobs import ExportPlan

_FULL, _INCREMENTAL = "FULL_EXPORT", "INCREMENTAL_EXPORT"
_PLACE_OF_MANIFEST = "manifest-summary.json"


def start_export(spec: ClientSpec, plan: ExportPlan) -> ExportJob:
    """Start the export that a plan states; the same plan again is the same export for eight hours.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.

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
        "S3SseAlgorithm": "KMS" if plan.kms_key else "AES256",
    }
    given = {
        "S3Prefix": plan.prefix,
        "S3BucketOwner": plan.bucket_owner,
        "S3SseKmsKeyId": plan.kms_key,
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
    return _job(reply["ExportDescription"])


def describe_export(spec: ClientSpec, arn: str) -> ExportJob:
    """Return what is known of an export.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    return _job(call(spec, "DescribeExport", f"export {arn}", {"ExportArn": arn})["ExportDescription"])


def list_exports(spec: ClientSpec, table_arn: str | None) -> list[ExportEntry]:
    """Return the exports of the last 90 days, of one table or of all; of one table the newest first.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    members = {} if table_arn is None else {"TableArn": table_arn}
    replies = pages(spec, "ListExports", f"exports of {table_arn or 'all tables'}", members, "NextToken")
    return [
        ExportEntry(each["ExportArn"], each["ExportStatus"], _kind(each))
        for reply in replies
        for each in reply.get("ExportSummaries", [])
    ]


def _kind(stated: Mapping[str, Any]) -> str:
    # The service leaves the type out where the caller did.
    return "incremental" if stated.get("ExportType") == _INCREMENTAL else "full"


def _job(stated: Mapping[str, Any]) -> ExportJob:
    window = stated.get("IncrementalExportSpecification", {})
    manifest = stated.get("ExportManifest")
    bucket = stated.get("S3Bucket", "")
    return ExportJob(
        arn=stated["ExportArn"],
        status=stated["ExportStatus"],
        kind=_kind(stated),
        table_arn=stated.get("TableArn", ""),
        uri=f"s3://{bucket}/{manifest.removesuffix(_PLACE_OF_MANIFEST).rstrip('/')}" if manifest else None,
        format=stated.get("ExportFormat", "DYNAMODB_JSON").lower(),
        export_time=time_text(stated.get("ExportTime")),
        from_time=time_text(window.get("ExportFromTime")),
        to_time=time_text(window.get("ExportToTime")),
        view=window.get("ExportViewType", "").lower() or None,
        filtered=bool(stated.get("FilterSpecification")),
        started_at=time_text(stated.get("StartTime")),
        ended_at=time_text(stated.get("EndTime")),
        items=stated.get("ItemCount"),
        billed_bytes=stated.get("BilledSizeBytes"),
        client_token=stated.get("ClientToken"),
        failure_code=stated.get("FailureCode"),
        failure_message=stated.get("FailureMessage"),
    )
