"""Start, describe and list the service's own imports of new tables; wait for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call, pages, time_text
from ddbio.core.imports.jobs import ImportEntry, ImportJob, table_definition
from ddbio.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.core.imports.jobs import ImportPlan


def start_import(spec: ClientSpec, plan: ImportPlan) -> ImportJob:
    """Start the import that a plan states.

    Raises
    ------
    ServiceError
        If there is such a table; or if the token stands for an import of other objects, which the service would return
        without a word.
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`ddbio.aws.control.call` says.

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
    stated = call(spec, "ImportTable", f"table {plan.table!r}", members)["ImportTableDescription"]
    for name in ("S3BucketSource", "InputFormat", "InputCompressionType"):
        if stated.get(name, members[name]) != members[name]:
            raise ServiceError(
                f"the client token stands for the import {stated['ImportArn']} of {stated[name]}: give another one",
                "ImportConflictException",
            )
    return _job(stated)


def describe_import(spec: ClientSpec, arn: str) -> ImportJob:
    """Return what is known of an import.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    return _job(call(spec, "DescribeImport", f"import {arn}", {"ImportArn": arn})["ImportTableDescription"])


def list_imports(spec: ClientSpec, table_arn: str | None) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of one table or of all.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    members = {} if table_arn is None else {"TableArn": table_arn}
    replies = pages(spec, "ListImports", f"imports of {table_arn or 'all tables'}", members, "NextToken")
    return [
        ImportEntry(each["ImportArn"], each["ImportStatus"], each.get("TableArn", ""), _source(each))
        for reply in replies
        for each in reply.get("ImportSummaryList", [])
    ]


def _source(stated: Mapping[str, Any]) -> str:
    # Some stand-ins do not tell it.
    source = stated.get("S3BucketSource")
    return f"s3://{source['S3Bucket']}/{source.get('S3KeyPrefix', '')}".rstrip("/") if source else ""


def _job(stated: Mapping[str, Any]) -> ImportJob:
    return ImportJob(
        arn=stated["ImportArn"],
        status=stated["ImportStatus"],
        table=stated["TableArn"].rpartition("/")[2],
        table_arn=stated["TableArn"],
        source=_source(stated),
        format=stated.get("InputFormat", "").lower(),
        compression=stated.get("InputCompressionType", "NONE").lower(),
        started_at=time_text(stated.get("StartTime")),
        ended_at=time_text(stated.get("EndTime")),
        processed_items=stated.get("ProcessedItemCount", 0),
        imported_items=stated.get("ImportedItemCount", 0),
        errors=stated.get("ErrorCount", 0),
        processed_bytes=stated.get("ProcessedSizeBytes", 0),
        log_group=stated.get("CloudWatchLogGroupArn"),
        client_token=stated.get("ClientToken"),
        failure_code=stated.get("FailureCode"),
        failure_message=stated.get("FailureMessage"),
    )
