"""Capacity and faults in front of another DynamoDB endpoint, which stores the items.

The proxy forwards requests with the host of the endpoint, which their signatures do not cover: the endpoint must not
check signatures. The price of a request comes from its traffic: the items sent and returned. The tables here are empty
and provide only keys, indexes and partitions. The proxy does not see, and does not bill, the item that a write replaces
and the items that a filter or projection drops from a read.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from ddbio.errors import EndpointError, OptionError
from ddbio.testing.calls.writes import planned_delete, planned_put
from ddbio.testing.faults import READS, WRITES
from ddbio.testing.pricing import item_bytes, read_units, write_units
from ddbio.testing.refusal import Refusal, malformed
from ddbio.testing.request import Request, canonical_map, to_json
from ddbio.testing.server import CutError, HttpReply, HttpRequest, inflated
from ddbio.testing.service import AMZ_JSON, Service, fault_error
from ddbio.testing.tables.capacity import Draw
from ddbio.testing.tables.database import Database, consumed_capacity
from ddbio.testing.tables.definition import Defaults, define_table
from ddbio.testing.tables.table import hash_of, part_of_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from ddbio.items.attribute import Item
    from ddbio.testing.tables.table import Table

_TIMEOUT_SECONDS = 60.0
# Headers of one connection, which the next sender sets again. Bodies are sent uncompressed.
_OWN_REQUEST_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "expect", "host", "transfer-encoding"}
)
_OWN_REPLY_HEADERS = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", "x-amz-crc32"}
)
_INDEX_MEMBERS = ("IndexName", "KeySchema", "Projection")
_OK = 200
_PIECE_BYTES = 64 * 1024
_CHANGES_TABLES = frozenset({"CreateTable", "DeleteTable", "UpdateTable"})


class Upstream:
    """Idle connections to one endpoint, safe for concurrent use."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise OptionError(f"Not an endpoint: {url}; give one like http://127.0.0.1:5000")
        self._scheme, self._netloc = parts.scheme, parts.netloc
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []

    def send(self, request: HttpRequest) -> HttpReply:
        """Return the endpoint's reply. If the connection breaks, the client's connection is also reset."""
        with self._lock:
            connection = self._idle.pop() if self._idle else self._connection()
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_REQUEST_HEADERS}
        try:
            connection.request(request.method, request.target, request.body, headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise CutError from error
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        # The Content-Length of a HEAD is the length of the object, which is not sent.
        own = _OWN_REPLY_HEADERS - ({"content-length"} if request.method == "HEAD" else set())
        passed_on = {name: value for name, value in response.getheaders() if name.lower() not in own}
        return HttpReply(response.status, [body], passed_on)

    def stream(self, request: HttpRequest) -> HttpReply:
        """Return the endpoint's reply, whose body is forwarded as it arrives."""
        connection = self._connection()
        connection.request(request.method, request.target, request.body, dict(request.headers))
        response = connection.getresponse()
        passed_on = {name: value for name, value in response.getheaders() if name.lower() not in _OWN_REPLY_HEADERS}

        def pieces() -> Iterator[bytes]:
            try:
                while piece := response.read1(_PIECE_BYTES):
                    yield piece
            finally:
                connection.close()

        return HttpReply(response.status, [], passed_on, pieces())

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        return kind(self._netloc, timeout=_TIMEOUT_SECONDS)


def described_table(described: Mapping[str, Any], defaults: Defaults) -> Table:
    """Return an empty table with the keys, indexes and throughput of a DescribeTable reply."""
    on_demand = (described.get("BillingModeSummary") or {}).get("BillingMode") == "PAY_PER_REQUEST"
    numbers = ("OnDemandThroughput",) if on_demand else ("ProvisionedThroughput",)
    billing = {"BillingMode": "PAY_PER_REQUEST"} if on_demand else {}
    members = ("TableName", "AttributeDefinitions", "KeySchema", *numbers)
    definition = {**billing, **{member: described[member] for member in members if described.get(member)}}
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if described.get(kind):
            definition[kind] = [
                {member: index[member] for member in (*_INDEX_MEMBERS, *numbers) if index.get(member)}
                for index in described[kind]
            ]
    return define_table(Request(definition), defaults)


def write_draws(table: Table, operation: str, members: Mapping[str, Any]) -> list[Draw]:
    """Return the draws of one write: of a put by its item, of a delete one unit, of an update by its key and values."""
    if operation == "PutItem":
        put = planned_put(table, members.get("Item"))
        return table.plan_write(put.key, put.new, put.size_bytes).draws
    delete = planned_delete(table, members.get("Key"))
    values = canonical_map(members.get("ExpressionAttributeValues") or {}) if operation == "UpdateItem" else {}
    size_bytes = item_bytes({**canonical_map(members["Key"]), **values})
    units = write_units(size_bytes) if operation == "UpdateItem" else 1.0
    return [Draw(table.arn, "Write", table.partition_of(delete.key), units)]


def first_draw(table: Table, members: Mapping[str, Any]) -> Draw:
    """Return a draw of no units in the partition where a read starts: that of its key or start key, or the first."""
    key = members.get("Key") or members.get("ExclusiveStartKey") or {}
    resource, partition = _partition_of(table, members.get("IndexName"), key)
    return Draw(resource, "Read", partition, 0.0)


def read_draws(table: Table, members: Mapping[str, Any], items: Iterable[Item], *, rounds_each: bool) -> list[Draw]:
    """Return the draws of the returned items, rounded up per item or per partition. No items cost one unit."""
    consistent = bool(members.get("ConsistentRead"))
    name = members.get("IndexName")
    placed = [(_partition_of(table, name, item), item_bytes(item)) for item in items]
    if not rounds_each:
        sizes: Counter[tuple[str, int]] = Counter()
        for partition_key, size_bytes in placed:
            sizes[partition_key] += size_bytes
        placed = list(sizes.items())
    if not placed:
        placed = [(_partition_of(table, name, members.get("Key") or {}), 0)]
    return [
        Draw(resource, "Read", partition, read_units(size_bytes, consistent=consistent))
        for (resource, partition), size_bytes in placed
    ]


def _partition_of(table: Table, index_name: str | None, item: Item) -> tuple[str, int]:
    index = table.indexes.get(index_name or "")
    source = index if index is not None and index.kind == "Global" else table
    if any(part.tag not in item.get(part.name, {}) for part in source.keys.partition_attributes):
        return source.arn, 0
    return source.arn, part_of_hash(hash_of(source.keys.partition_bytes(item)), source.throughput.partitions)


class ProxyService(Service):
    """Service that answers with another endpoint's replies, after capacity and faults admit the request."""

    def __init__(self, database: Database, upstream: Upstream, latency_seconds: float = 0.0) -> None:
        super().__init__(database, latency_seconds)
        self._upstream = upstream

    def load(self, table: str, lines: Any, key: str) -> int:  # noqa: ARG002 - the signature of the fake
        """Refuse to load: a proxy holds no items."""
        raise OptionError(f"A proxy holds no items: load {table} at the endpoint itself")

    def _operate(self, request: HttpRequest, path: str) -> HttpReply:
        name = request.headers.get("x-amz-target", "").partition(".")[2]
        plain = replace(request, body=inflated(request.body, request.headers.get("content-encoding")))
        with self._lock:
            fault = self._begin(name)
        if path != "/" or name not in READS | WRITES:
            reply = self._upstream.send(plain)
            if name in _CHANGES_TABLES:
                self._forget(json.loads(plain.body).get("TableName", ""))
            return reply
        reply = self._passed(name, plain)
        if fault is not None:
            raise fault_error(fault)
        return reply

    def _passed(self, name: str, request: HttpRequest) -> HttpReply:
        members = _members(request)
        tables = {table: self._table(table, request) for table in _table_names(members)}
        fakes = {name: table for name, table in tables.items() if table is not None}
        with self._lock:
            self.database.check_storms(name, Request(members))
        if not fakes or len(fakes) < len(tables):
            return self._upstream.send(request)
        match name:
            case "BatchWriteItem":
                return self._batch_written(request, members, fakes)
            case "BatchGetItem":
                return self._batch_read(request, members, fakes)
        (table,) = fakes.values()
        return (self._read if name in READS else self._written)(name, request, members, table)

    def _written(self, name: str, request: HttpRequest, members: dict[str, Any], table: Table) -> HttpReply:
        try:
            draws = write_draws(table, name, members)
        except Refusal:
            # The endpoint reports the error.
            return self._upstream.send(request)
        with self._lock:
            self.database.take(draws)
        return self._shown(self._upstream.send(request), members, {table.name: draws})

    def _read(self, name: str, request: HttpRequest, members: dict[str, Any], table: Table) -> HttpReply:
        with self._lock:
            self.database.check([first_draw(table, members)])
        reply = self._upstream.send(request)
        if reply.status != _OK:
            return reply
        body = _parsed(reply)
        items = [body["Item"]] if "Item" in body else body.get("Items", [])
        draws = read_draws(table, members, items, rounds_each=name == "GetItem")
        with self._lock:
            self.database.charge(draws)
        return self._shown(reply, members, {table.name: draws})

    def _batch_read(self, request: HttpRequest, members: dict[str, Any], tables: dict[str, Table]) -> HttpReply:
        with self._lock:
            self.database.check([first_draw(table, {}) for table in tables.values()])
        reply = self._upstream.send(request)
        if reply.status != _OK:
            return reply
        responses = _parsed(reply)["Responses"]
        draws = {
            table.name: read_draws(table, members["RequestItems"][name], responses.get(name, []), rounds_each=True)
            for name, table in tables.items()
        }
        with self._lock:
            self.database.charge([draw for drawn in draws.values() for draw in drawn])
        return self._shown(reply, members, draws)

    def _batch_written(self, request: HttpRequest, members: dict[str, Any], tables: dict[str, Table]) -> HttpReply:
        try:
            priced = [
                (name, original, _batched_draws(tables[name], original))
                for name, listed in members["RequestItems"].items()
                for original in listed
            ]
        except (Refusal, TypeError, ValueError):
            return self._upstream.send(request)
        passing: dict[str, list[Any]] = {}
        left: dict[str, list[Any]] = {}
        draws: dict[str, list[Draw]] = {}
        refusal: Refusal | None = None
        with self._lock:
            for name, original, drawn in priced:
                is_left = self.database.fault_injector.leaves_unprocessed()
                try:
                    if not is_left:
                        self.database.take(drawn)
                        draws.setdefault(tables[name].name, []).extend(drawn)
                except Refusal as refused:
                    refusal, is_left = refusal or refused, True
                (left if is_left else passing).setdefault(name, []).append(original)
        if refusal is not None and not passing:
            raise refusal
        if not passing:
            return HttpReply(_OK, [to_json({"UnprocessedItems": left})], AMZ_JSON)
        reply = self._upstream.send(replace(request, body=to_json({**members, "RequestItems": passing})))
        return self._shown(reply, members, draws, left)

    def _shown(
        self,
        reply: HttpReply,
        members: dict[str, Any],
        draws: dict[str, list[Draw]],
        left: dict[str, list[Any]] | None = None,
    ) -> HttpReply:
        wanted = members.get("ReturnConsumedCapacity")
        shows = wanted in {"INDEXES", "TOTAL"}
        if reply.status != _OK or not (shows or left):
            return reply
        body = _parsed(reply)
        if left:
            unprocessed = body.setdefault("UnprocessedItems", {})
            for name, originals in left.items():
                unprocessed.setdefault(name, []).extend(originals)
        if shows:
            capacities = [
                consumed_capacity(self.database.named(name), drawn, str(wanted)) for name, drawn in draws.items()
            ]
            body["ConsumedCapacity"] = capacities if "RequestItems" in members else capacities[0]
        return HttpReply(_OK, [to_json(body)], reply.headers)

    def _table(self, name: str, request: HttpRequest) -> Table | None:
        """Return the empty fake of a table, or None if the endpoint has no such table."""
        with self._lock:
            if name in self.database.tables:
                return self.database.tables[name]
        headers = {**request.headers, "x-amz-target": "DynamoDB_20120810.DescribeTable"}
        reply = self._upstream.send(replace(request, headers=headers, body=to_json({"TableName": name})))
        if reply.status != _OK:
            return None
        table = described_table(_parsed(reply)["Table"], self.database.defaults)
        with self._lock:
            if table.name not in self.database.tables:
                self.database.add(table)
            return self.database.tables[table.name]

    def _forget(self, name: str) -> None:
        with self._lock:
            if name in self.database.tables:
                self.database.remove(self.database.tables[name])


def _members(request: HttpRequest) -> dict[str, Any]:
    """Return the members of a request. It is empty if the body is no JSON object: the endpoint refuses that."""
    try:
        members = json.loads(request.body)
    except (ValueError, RecursionError):
        return {}
    return members if type(members) is dict else {}


def _table_names(members: dict[str, Any]) -> list[str]:
    """Return the names of the tables whose capacity a request consumes. Transactions and statements are ignored."""
    match members:
        case {"RequestItems": dict(items)}:
            return list(items)
        case {"TableName": str(name)}:
            return [name]
    return []


def _batched_draws(table: Table, original: Any) -> list[Draw]:
    match original:
        case {"PutRequest": {"Item": _}}:
            return write_draws(table, "PutItem", original["PutRequest"])
        case {"DeleteRequest": {"Key": _}}:
            return write_draws(table, "DeleteItem", original["DeleteRequest"])
        case _:
            raise malformed()


def _parsed(reply: HttpReply) -> Any:
    return json.loads(b"".join(reply.body))


_LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


# Moto checks whether an object exists and writes it in two steps: conditional requests must wait for each other.
_SERVE_MOTO = """
import threading
from moto import server
one_at_a_time, respond = threading.Lock(), server.DomainDispatcherApplication.__call__
def respond_in_turn(self, environ, start):
    if "HTTP_IF_NONE_MATCH" not in environ and "HTTP_IF_MATCH" not in environ:
        return respond(self, environ, start)
    with one_at_a_time:
        return respond(self, environ, start)
server.DomainDispatcherApplication.__call__ = respond_in_turn
server.main()
"""


class MotoServer:
    """Server of moto's S3 (and its other services) over real HTTP while the context is open.

    Attributes
    ----------
    endpoint_url
        The address for clients.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((_LOOPBACK, 0))
        self._port: int = self._reserved.getsockname()[1]
        if sys.platform != "linux":
            # While this socket is open, Linux never chooses its port as a free one, and moto can listen on it.
            self._reserved.close()
        self.endpoint_url = f"http://{_LOOPBACK}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the server and wait until it listens.

        Raises
        ------
        EndpointError
            If it does not start.
        """
        command = [self._python, "-c", _SERVE_MOTO, "-H", _LOOPBACK, "-p", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
        deadline = time.monotonic() + _START_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                raise EndpointError("moto's server did not start: pip install 'ddbio[demo]'", self.endpoint_url)
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self._stop()

    def _stop(self) -> None:
        self._reserved.close()
        if self._process is not None:
            with self._process as process:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_SECONDS)
                process.kill()
            self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((_LOOPBACK, self._port)) == 0
