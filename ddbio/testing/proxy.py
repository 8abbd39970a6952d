"""Put capacity and faults in front of another DynamoDB endpoint; refuses to change what is stored there.

Requests are passed on with the host of the endpoint, which their signatures do not cover: it must not check them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError
from ddbio.testing.compression import inflated
from ddbio.testing.faults import READS, WRITES
from ddbio.testing.pricing import described_table, first_draw, read_draws, write_draws
from ddbio.testing.refusal import Refusal, malformed
from ddbio.testing.server import HttpReply, HttpRequest
from ddbio.testing.service import AMZ_JSON, Service, struck
from ddbio.testing.tables.database import Database, consumed_capacity
from ddbio.testing.values import to_wire

if TYPE_CHECKING:
    from ddbio.testing.tables.capacity import Draw
    from ddbio.testing.tables.table import Table
    from ddbio.testing.upstream import Upstream

_OK = 200
_CHANGES_TABLES = frozenset({"CreateTable", "DeleteTable", "UpdateTable"})


class ProxyService(Service):
    """Answer by another endpoint's replies, once capacity and faults have let the request pass."""

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
            strike = self._begin(name)
        if path != "/" or name not in READS | WRITES:
            reply = self._upstream.send(plain)
            if name in _CHANGES_TABLES:
                self._forget(json.loads(plain.body).get("TableName", ""))
            return reply
        reply = self._passed(name, plain)
        if strike is not None:
            raise struck(strike)
        return reply

    def _passed(self, name: str, request: HttpRequest) -> HttpReply:
        try:
            members = json.loads(request.body)
            names = members.get("RequestItems") or [members["TableName"]]
            tables = {table: self._table(table, request) for table in names}
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._upstream.send(request)
        known = {table: found for table, found in tables.items() if found is not None}
        if len(known) < len(tables):
            return self._upstream.send(request)
        with self._lock:
            self.database.check_storm(name, next(iter(known.values())).arn)
        match name:
            case "BatchWriteItem":
                return self._batch_written(request, members, known)
            case "BatchGetItem":
                return self._batch_read(request, members, known)
        (table,) = known.values()
        return (self._read if name in READS else self._written)(name, request, members, table)

    def _written(self, name: str, request: HttpRequest, members: dict[str, Any], table: Table) -> HttpReply:
        try:
            draws = write_draws(table, name, members)
        except Refusal:
            # The endpoint says what is wrong with it.
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
        found = _parsed(reply)
        items = [found["Item"]] if "Item" in found else found.get("Items", [])
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
        found = _parsed(reply)["Responses"]
        draws = {
            table.name: read_draws(table, members["RequestItems"][name], found.get(name, []), rounds_each=True)
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
                is_left = self.database.mishaps.leaves()
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
            return HttpReply(_OK, [to_wire({"UnprocessedItems": left})], AMZ_JSON)
        reply = self._upstream.send(replace(request, body=to_wire({**members, "RequestItems": passing})))
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
        return HttpReply(_OK, [to_wire(body)], reply.headers)

    def _table(self, name: str, request: HttpRequest) -> Table | None:
        """Return the empty stand-in of a table, or None if the endpoint has no such table."""
        with self._lock:
            if name in self.database.tables:
                return self.database.tables[name]
        headers = {**request.headers, "x-amz-target": "DynamoDB_20120810.DescribeTable"}
        reply = self._upstream.send(replace(request, headers=headers, body=to_wire({"TableName": name})))
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
