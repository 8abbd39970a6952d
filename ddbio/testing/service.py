"""Answers to HTTP requests like DynamoDB's. An unsupported operation gets the service's error."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ddbio.errors import DdbioError, NotFoundError
from ddbio.testing.calls.backups import (
    create_backup,
    delete_backup,
    describe_backup,
    list_backups,
    restore_backup,
    restore_to_point_in_time,
)
from ddbio.testing.calls.control import (
    create_table,
    delete_table,
    describe_continuous_backups,
    describe_table,
    describe_time_to_live,
    list_tables,
    update_continuous_backups,
    update_table,
    update_time_to_live,
)
from ddbio.testing.calls.expiry import expire_items
from ddbio.testing.calls.exports import describe_export, export_table, list_exports
from ddbio.testing.calls.imports import (
    cancel_bulk_operation,
    describe_bulk_operation,
    describe_import,
    import_table,
    list_bulk_operations,
    list_imports,
    start_bulk_put,
)
from ddbio.testing.calls.kinesis import OPERATIONS as KINESIS_OPERATIONS
from ddbio.testing.calls.kinesis import describe_destination, disable_destination, enable_destination
from ddbio.testing.calls.kinesis_consumers import OPERATIONS as CONSUMER_OPERATIONS
from ddbio.testing.calls.kinesis_consumers import Subscription, initial_response, subscribe_to_shard
from ddbio.testing.calls.reads import batch_get_item, get_item, query, scan
from ddbio.testing.calls.statements import batch_execute_statement, execute_statement, execute_transaction
from ddbio.testing.calls.streams import describe_stream, get_records, get_shard_iterator, list_streams
from ddbio.testing.calls.tags import delete_policy, get_policy, list_tags, put_policy, tag_resource, untag_resource
from ddbio.testing.calls.transactions import transact_get_items, transact_write_items
from ddbio.testing.calls.vectors import search_vectors
from ddbio.testing.calls.writes import batch_write_item, delete_item, put_item, update_item
from ddbio.testing.loading import load
from ddbio.testing.refusal import Refusal, bad_signature, broken, invalid, unauthenticated, unknown_operation
from ddbio.testing.request import Request, to_json
from ddbio.testing.server import (
    MAX_BODY_BYTES,
    CutError,
    HttpReply,
    HttpRequest,
    compressed,
    inflated,
    is_worth_compressing,
    reply_coding,
)
from ddbio.testing.validation import validated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.testing.faults import FaultKind
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.streams import Stream

_OPERATIONS: dict[str, Callable[[Database, Request], dict[str, Any] | Chunks]] = {
    "BatchExecuteStatement": batch_execute_statement,
    "BatchGetItem": batch_get_item,
    "BatchWriteItem": batch_write_item,
    "CancelBulkOperation": cancel_bulk_operation,
    "CreateBackup": create_backup,
    "CreateTable": create_table,
    "DeleteBackup": delete_backup,
    "DeleteItem": delete_item,
    "DeleteResourcePolicy": delete_policy,
    "DeleteTable": delete_table,
    "DescribeBackup": describe_backup,
    "DescribeBulkOperation": describe_bulk_operation,
    "DescribeContinuousBackups": describe_continuous_backups,
    "DescribeKinesisStreamingDestination": describe_destination,
    "DescribeTable": describe_table,
    "DescribeTimeToLive": describe_time_to_live,
    "DescribeExport": describe_export,
    "DescribeImport": describe_import,
    "DisableKinesisStreamingDestination": disable_destination,
    "EnableKinesisStreamingDestination": enable_destination,
    "ExecuteStatement": execute_statement,
    "ExecuteTransaction": execute_transaction,
    "ExportTableToPointInTime": export_table,
    "GetItem": get_item,
    "GetResourcePolicy": get_policy,
    "ImportTable": import_table,
    "ListBackups": list_backups,
    "ListBulkOperations": list_bulk_operations,
    "ListExports": list_exports,
    "ListImports": list_imports,
    "ListTables": list_tables,
    "ListTagsOfResource": list_tags,
    "PutItem": put_item,
    "PutResourcePolicy": put_policy,
    "Query": query,
    "RestoreTableFromBackup": restore_backup,
    "RestoreTableToPointInTime": restore_to_point_in_time,
    "Scan": scan,
    "SearchVectors": search_vectors,
    "StartBulkPutItems": start_bulk_put,
    "TagResource": tag_resource,
    "TransactGetItems": transact_get_items,
    "TransactWriteItems": transact_write_items,
    "UntagResource": untag_resource,
    "UpdateContinuousBackups": update_continuous_backups,
    "UpdateItem": update_item,
    "UpdateTable": update_table,
    "UpdateTimeToLive": update_time_to_live,
}

_STREAM_OPERATIONS: dict[str, Callable[[Database, Request], dict[str, Any] | Chunks]] = {
    "DescribeStream": describe_stream,
    "GetRecords": get_records,
    "GetShardIterator": get_shard_iterator,
    "ListStreams": list_streams,
}
_KINESIS = "Kinesis_20131202"
_APIS: dict[str, Mapping[str, Callable[[Database, Request], dict[str, Any] | Chunks | Subscription]]] = {
    "DynamoDB_20120810": _OPERATIONS,
    "DynamoDBStreams_20120810": _STREAM_OPERATIONS,
    _KINESIS: {**KINESIS_OPERATIONS, **CONSUMER_OPERATIONS, "SubscribeToShard": subscribe_to_shard},
}

_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 .*Credential=[^/,\s]+/\d{8}/[^/]+/[^/]+/aws4_request", re.DOTALL)
AMZ_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_KINESIS_JSON = {"Content-Type": "application/x-amz-json-1.1"}
_EVENTS = {"Content-Type": "application/vnd.amazon.eventstream"}
_POLL_SECONDS = 0.02


class Service:
    """Service of one database that runs one operation at a time."""

    def __init__(self, database: Database, latency_seconds: float = 0.0) -> None:
        self.database = database
        self._latency_seconds = latency_seconds
        self._lock = threading.Lock()

    def answer(self, request: HttpRequest) -> HttpReply:
        """Return the reply to any request: an operation, the fake's own figures, or a health check."""
        url = urlsplit(request.target)
        if url.path.startswith("/_ddbio/"):
            return self._answer_own(request, url.path, parse_qs(url.query))
        if request.method == "GET" and url.path == "/":
            return HttpReply(200, [b"healthy: dynamodb.us-east-1.amazonaws.com "])
        try:
            reply = self._operate(request, url.path)
        except Refusal as refusal:
            reply = HttpReply(refusal.status, [to_json(refusal.body)], _json_of(request))
        if self._latency_seconds:
            time.sleep(self._latency_seconds)
        clock = self.database.wall_clock
        if clock.ahead_seconds:
            reply = dataclasses.replace(reply, headers={"Date": formatdate(clock.now(), usegmt=True), **reply.headers})
        return _encoded(reply, request.headers.get("accept-encoding"))

    def _operate(self, request: HttpRequest, path: str) -> HttpReply:
        if len(request.body) > MAX_BODY_BYTES:
            raise broken("Request body is too large", status=413)
        if path != "/":
            raise bad_signature("The request signature we calculated does not match the signature you provided.")
        version, _, name = request.headers.get("x-amz-target", "").partition(".")
        operation = _APIS.get(version, {}).get(name)
        if operation is None:
            raise unknown_operation(name)
        authorization = request.headers.get("authorization")
        if authorization is None:
            raise unauthenticated()
        if _CREDENTIAL.match(authorization) is None:
            raise bad_signature("The Authorization header holds no credential of Signature Version 4.")
        body = inflated(request.body, request.headers.get("content-encoding"))
        with self._lock:
            fault = self._begin(name)
            try:
                asked = validated(name, Request.parse(body))
                self.database.check_storms(name, asked)
                reply = operation(self.database, asked)
            except RecursionError:
                raise invalid("The request nests its values or conditions too deeply") from None
        if fault is not None:
            raise fault_error(fault)
        if isinstance(reply, Subscription):
            return HttpReply(200, [], _EVENTS, self._events(reply))
        return HttpReply(200, reply if isinstance(reply, list) else [to_json(reply)], _json_of(request))

    def _events(self, subscription: Subscription) -> Iterator[bytes]:
        """Yield the events of a subscription as they arrive, and nothing while there are none."""
        yield initial_response()
        while not subscription.has_ended:
            with self._lock:
                events = subscription.next()
            yield events
            if not events:
                time.sleep(_POLL_SECONDS)

    def _begin(self, name: str) -> FaultKind | None:
        """Count a request and return the fault that happens after its execution. The lock must be held."""
        self.database.consumption.requests[name] += 1
        fault = self.database.fault_injector.draw(name)
        if fault in {"error_before", "reset_before"}:
            raise fault_error(fault)
        return fault

    def load(self, table: str, lines: Any, key: str) -> int:
        """Load items into a table and return their number. The table is created if it does not exist."""
        with self._lock:
            return load(self.database, table, lines, key)

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return the log of consumption."""
        with self._lock:
            return self.database.consumption.consumed(table)

    def requests(self) -> dict[str, int]:
        """Return the number of calls of each operation."""
        with self._lock:
            return dict(self.database.consumption.requests)

    def faulted(self) -> dict[str, int]:
        """Return the number of times that each fault happened."""
        with self._lock:
            return dict(self.database.fault_injector.counts)

    def pass_time(self, seconds: float) -> None:
        """Advance the wall clock."""
        with self._lock:
            self.database.wall_clock.advance(seconds)

    def expire(self, table: str) -> int:
        """Delete the items of a table whose time to live has expired and return their number."""
        with self._lock:
            return expire_items(self.database, table)

    def split_shards(self, table: str, into: int = 2) -> None:
        """Close the open shards of a table's stream, and open ``into`` children of each."""
        with self._lock:
            self._stream(table).split(into)

    def trim_stream(self, table: str, age_seconds: float = 0.0) -> None:
        """Delete records of a table's stream of at least this age."""
        with self._lock:
            self._stream(table).trim(age_seconds)

    def _stream(self, table: str) -> Stream:
        fake_table = self.database.tables.get(table)
        if fake_table is None or fake_table.stream is None:
            raise NotFoundError(f"{table} has no stream")
        return fake_table.stream

    def _answer_own(self, request: HttpRequest, path: str, query: dict[str, list[str]]) -> HttpReply:
        parameters = {name: values[-1] for name, values in query.items()}
        match request.method, path:
            case "GET", "/_ddbio/consumed":
                result: Any = self.consumed(parameters.get("table"))
            case "GET", "/_ddbio/requests":
                result = self.requests()
            case "GET", "/_ddbio/faulted":
                result = self.faulted()
            case "POST", "/_ddbio/pass":
                self.pass_time(float(parameters.get("seconds", "0")))
                result = {}
            case "POST", ("/_ddbio/load" | "/_ddbio/expire" | "/_ddbio/split" | "/_ddbio/trim"):
                try:
                    result = self._change(path, parameters, request.body)
                except DdbioError as error:
                    named = {"type": type(error).__name__, "error": str(error)}
                    return HttpReply(400, [json.dumps(named).encode()])
            case _:
                return HttpReply(404, [b"{}"])
        return HttpReply(200, [json.dumps(result).encode()], {"Content-Type": "application/json"})

    def _change(self, path: str, parameters: dict[str, str], body: bytes) -> dict[str, Any]:
        table = parameters.get("table", "")
        match path:
            case "/_ddbio/load":
                return {"items": self.load(table, body, parameters.get("key", ""))}
            case "/_ddbio/expire":
                return {"items": self.expire(table)}
            case "/_ddbio/split":
                self.split_shards(table, int(parameters.get("into", "2")))
            case _:
                self.trim_stream(table, float(parameters.get("seconds", "0")))
        return {}


def _json_of(request: HttpRequest) -> dict[str, str]:
    """Return the Content-Type header of the service's JSON."""
    return _KINESIS_JSON if request.headers.get("x-amz-target", "").startswith(_KINESIS) else AMZ_JSON


def fault_error(fault: FaultKind) -> Exception:
    """Return the error of a fault: a reset connection or an HTTP 500."""
    return CutError() if fault.startswith("reset") else broken("Internal server error")


def _encoded(reply: HttpReply, accepted: str | None) -> HttpReply:
    coding = reply_coding(accepted)
    if coding is None or not is_worth_compressing(reply.body):
        return reply
    return HttpReply(reply.status, compressed(reply.body, coding), {**reply.headers, "Content-Encoding": coding})
