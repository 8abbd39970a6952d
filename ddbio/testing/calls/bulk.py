"""Answer StartBulkPutItems and what belongs to it; puts nothing itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.bulk_run import BulkRun
from ddbio.testing.calls.control import existing_table
from ddbio.testing.refusal import invalid, lacking, not_found, service_refusal

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database

_ECHOED = ("InputS3Configuration", "OutputS3Configuration", "MaxWriteRequestUnits")
_SUMMED = ("BulkOperationArn", "BulkOperationStatus", "StartTime", "EndTime")
_MAX_LISTED = 25


def start_bulk_put(database: Database, request: Request) -> dict[str, Any]:
    """Put the items of the objects below a prefix into a table."""
    if database.delivery is None:
        raise lacking("StartBulkPutItems without export_to")
    table, source = existing_table(database, request), request.required("InputS3Configuration")
    reports = request.required("OutputS3Configuration")
    asked = {name: value for name, value in request.members.items() if name != "ClientToken"}
    token = request.text("ClientToken") or ""
    bulk = database.bulk
    if token in bulk.tokens:
        before, arn = bulk.tokens[token]
        if before != asked:
            raise service_refusal("IdempotentParameterMismatchException", "The parameters are not those of before")
        return {"BulkOperationDescription": bulk.described(arn)}
    now = database.wall.now()
    description = {
        "BulkOperationArn": f"{table.arn}/bulk-operation/{int(now * 1000):014d}-{time.monotonic_ns() % 2**32:08x}",
        "TableDetails": [{"TableName": table.name, "TableId": table.description["TableId"]}],
        "ClientToken": token,
        "StartTime": round(now, 3),
        "PerformanceTier": request.text("PerformanceTier") or "STANDARD",
        **dict.fromkeys(("ProcessedItemCount", "ProcessedInputBytes", "FailedItemCount"), 0),
        **{name: request.members[name] for name in _ECHOED if name in request.members},
    }
    bulk.tokens[token] = asked, description["BulkOperationArn"]
    run = BulkRun(table, database.delivery, reports, description["BulkOperationArn"].rpartition("/")[2])
    return {"BulkOperationDescription": bulk.begin(description, lambda: run.end(source))}


def describe_bulk_operation(database: Database, request: Request) -> dict[str, Any]:
    """Describe one bulk operation."""
    return {"BulkOperationDescription": _described(database, request)}


def cancel_bulk_operation(database: Database, request: Request) -> dict[str, Any]:
    """Stop a bulk operation that runs."""
    description = _described(database, request)
    arn = description["BulkOperationArn"]
    if not database.bulk.cancel(arn):
        raise invalid("The bulk operation has ended")
    return {"BulkOperationArn": arn, "BulkOperationStatus": "CANCELLING"}


def list_bulk_operations(database: Database, request: Request) -> dict[str, Any]:
    """List bulk operations, the newest first."""
    limit = request.integer("MaxResults", 1, _MAX_LISTED) or _MAX_LISTED
    shown, more = database.bulk.page(limit, request.text("NextToken"), lambda _: True)
    listed = [{name: each[name] for name in _SUMMED if name in each} for each in shown]
    return {"BulkOperationsSummaryList": listed, **more}


def _described(database: Database, request: Request) -> dict[str, Any]:
    description = database.bulk.described(request.required("BulkOperationArn"))
    if description is None:
        raise not_found()
    return description
