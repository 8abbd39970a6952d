"""Start, describe, list and cancel the service's own bulk puts into tables; wait for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call, pages, time_text
from ddbio.core.imports.jobs import BulkEntry, BulkJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.core.imports.jobs import BulkPlan


def start_bulk(spec: ClientSpec, plan: BulkPlan) -> BulkJob:
    """Start the bulk put that a plan states; the same plan again is the same operation for eight hours.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.

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
        "S3SseAlgorithm": "KMS" if plan.kms_key else None,
        "S3SseKmsKeyId": plan.kms_key,
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
    return _job(call(spec, "StartBulkPutItems", f"table {plan.table!r}", members)["BulkOperationDescription"])


def describe_bulk(spec: ClientSpec, arn: str) -> BulkJob:
    """Return what is known of a bulk put.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    reply = call(spec, "DescribeBulkOperation", f"bulk operation {arn}", {"BulkOperationArn": arn})
    return _job(reply["BulkOperationDescription"])


def cancel_bulk(spec: ClientSpec, arn: str) -> str:
    """Ask that a bulk put stops and return its status; what it has put stays.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    reply = call(spec, "CancelBulkOperation", f"bulk operation {arn}", {"BulkOperationArn": arn})
    return str(reply["BulkOperationStatus"])


def list_bulk(spec: ClientSpec) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days, the newest first.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    return [
        BulkEntry(
            each["BulkOperationArn"],
            each["BulkOperationStatus"],
            time_text(each.get("StartTime")),
            time_text(each.get("EndTime")),
        )
        for reply in pages(spec, "ListBulkOperations", "bulk operations", {}, "NextToken")
        for each in reply.get("BulkOperationsSummaryList", [])
    ]


def _job(stated: Mapping[str, Any]) -> BulkJob:
    return BulkJob(
        arn=stated["BulkOperationArn"],
        status=stated["BulkOperationStatus"],
        table=", ".join(each["TableName"] for each in stated.get("TableDetails", [])),
        source=_place(stated.get("InputS3Configuration", {})),
        reports=_place(stated.get("OutputS3Configuration", {})),
        started_at=time_text(stated.get("StartTime")),
        ended_at=time_text(stated.get("EndTime")),
        processed_items=stated.get("ProcessedItemCount", 0),
        failed_items=stated.get("FailedItemCount", 0),
        processed_bytes=stated.get("ProcessedInputBytes", 0),
        total_bytes=stated.get("TotalInputBytes"),
        client_token=stated.get("ClientToken"),
        failure_code=stated.get("FailureCode"),
        failure_message=stated.get("FailureMessage"),
    )


def _place(stated: Mapping[str, Any]) -> str:
    return f"s3://{stated['S3Bucket']}/{stated.get('S3KeyPrefix', '')}".rstrip("/") if stated else ""
