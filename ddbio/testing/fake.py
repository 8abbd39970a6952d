"""The fake DynamoDB on the loopback interface, in threads of this process or in a separate process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode, urlsplit

from ddbio import errors
from ddbio.errors import DdbioError, EndpointError, OptionError
from ddbio.testing.faults import Faults
from ddbio.testing.proxy import ProxyService, Upstream
from ddbio.testing.server import LOOPBACK, Server
from ddbio.testing.service import Service
from ddbio.testing.tables.capacity import BURST_SECONDS, Capacity
from ddbio.testing.tables.database import Database
from ddbio.testing.tables.definition import ON_DEMAND_PARTITIONS, Defaults
from ddbio.testing.tables.jobs import S3Access

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ddbio.testing.loading import Items


_STOP_SECONDS = 10.0
_OK = 200
_LAST_PORT = 65_535
_MINIMUMS = {
    "port": 0,
    "rcu": 0,
    "wcu": 0,
    "latency_seconds": 0,
    "partitions": 1,
    "burst_seconds": 0,
    "burst_at_creation": 0,
    "job_seconds": 0,
}


class ChildServer:
    """One running ``python -m ddbio.testing``. It also ends when this process ends."""

    def __init__(self, flags: Mapping[str, float | str | None], faults: Faults) -> None:
        arguments = [f"--{name}={value}" for name, value in flags.items() if value is not None]
        arguments += faults.arguments()
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "ddbio.testing", "--until-eof", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        first_line = self._process.stdout.readline() if self._process.stdout else b""
        if not first_line:
            self.stop()
            raise EndpointError("The fake DynamoDB did not start; its own message is on standard error")
        self.endpoint_url: str = json.loads(first_line)["endpoint_url"]

    def stop(self) -> None:
        """End the process and wait for it."""
        with self._process as process:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def load(self, table: str, items: Items, key: str) -> int:
        """Put items into a table and return their number."""
        loaded = self._call("POST", "load?" + urlencode({"table": table, "key": key}), _joined(items))
        return int(loaded["items"])

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return the log of consumption."""
        query = "" if table is None else "?" + urlencode({"table": table})
        return [(at, read, write) for at, read, write in self._call("GET", "consumed" + query)]

    def requests(self) -> dict[str, int]:
        """Return the number of calls of each operation."""
        return dict(self._call("GET", "requests"))

    def faulted(self) -> dict[str, int]:
        """Return the number of times that each fault happened."""
        return dict(self._call("GET", "faulted"))

    def pass_time(self, seconds: float) -> None:
        """Advance the server's wall clock."""
        self._call("POST", "pass?" + urlencode({"seconds": seconds}))

    def expire(self, table: str) -> int:
        """Delete the items whose time to live has expired and return their number."""
        return int(self._call("POST", "expire?" + urlencode({"table": table}))["items"])

    def split_shards(self, table: str, into: int = 2) -> None:
        """Split the open shards of a table's stream."""
        self._call("POST", "split?" + urlencode({"table": table, "into": into}))

    def trim_stream(self, table: str, age_seconds: float = 0.0) -> None:
        """Delete old records of a table's stream."""
        self._call("POST", "trim?" + urlencode({"table": table, "seconds": age_seconds}))

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        connection = HTTPConnection(urlsplit(self.endpoint_url).netloc)
        try:
            connection.request(method, "/_ddbio/" + path, body)
            response = connection.getresponse()
            result = json.loads(response.read())
        finally:
            connection.close()
        if response.status != _OK:
            raise _raised(result)
        return result


def _joined(items: Items) -> bytes:
    if isinstance(items, (bytes, bytearray, memoryview)):
        return bytes(items)
    return b"\n".join(_line(item) for item in items)


def _line(item: Mapping[str, Any] | bytes | str) -> bytes:
    if isinstance(item, bytes):
        return item.rstrip(b"\n")
    return (item.rstrip("\n") if isinstance(item, str) else json.dumps(item)).encode()


def _raised(result: Mapping[str, Any]) -> DdbioError:
    kind: type[DdbioError] = getattr(errors, result["type"])
    return kind(result["error"])


class _ThreadServer:
    """Server in threads of this process."""

    def __init__(self, service: Service, port: int, upstream: Upstream | None = None) -> None:
        self._service = service
        self._upstream = upstream
        self._server = Server(service.answer, port)
        self.endpoint_url = f"http://{LOOPBACK}:{self._server.port}"
        self.load = service.load
        self.consumed = service.consumed
        self.requests = service.requests
        self.faulted = service.faulted
        self.pass_time = service.pass_time
        self.expire = service.expire
        self.split_shards = service.split_shards
        self.trim_stream = service.trim_stream

    def stop(self) -> None:
        self._server.stop()
        if self._upstream is not None:
            self._upstream.close()


@dataclass(kw_only=True)
class FakeDynamoDB:
    """Server of DynamoDB's API on 127.0.0.1, with capacity and throttling, while the context is open.

    Attributes
    ----------
    port
        The port. 0 takes a free one.
    rcu, wcu
        Units per second of tables that do not set their own. If they are unset, a loaded table is unlimited, and a
        created table is limited by its partitions only.
    latency_seconds
        Delay of every reply. It does not delay other connections.
    partitions
        Physical partitions of an on-demand table. Each serves 3,000 read and 1,000 write units per second.
    burst_seconds
        Seconds of unused capacity that a table saves.
    burst_at_creation
        Seconds of saved capacity of a new table. None is one second for on-demand tables and zero for others.
    faults
        Injected faults: unprocessed items of batches, errors, resets, storms of throttling.
    proxy
        Endpoint to which requests are forwarded. The fake then adds capacity and faults and holds no items.
    export_to
        The S3 endpoint, or the folder with buckets as folders, to which ExportTableToPointInTime writes.
    job_seconds
        Duration of an export, import, bulk put, backup or restore by the server's wall clock.
    process
        Whether to serve from a separate process, so that a benchmark measures only its client.
    """

    port: int = 0
    rcu: float | None = None
    wcu: float | None = None
    latency_seconds: float = 0.0
    partitions: int = ON_DEMAND_PARTITIONS
    burst_seconds: float = BURST_SECONDS
    burst_at_creation: float | None = None
    faults: Faults = field(default_factory=Faults)
    proxy: str | None = None
    export_to: str | None = None
    job_seconds: float = 0.0
    process: bool = False
    _running: _ThreadServer | ChildServer | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise OptionError(f"{name} is {value}: give {least} or more")
        if self.port > _LAST_PORT:
            raise OptionError(f"port is {self.port}: give at most {_LAST_PORT}, or 0 for a free one")

    def start(self) -> Self:
        """Start to serve."""
        if self._running is None:
            self._running = ChildServer(self._flags(), self.faults) if self.process else self._in_thread()
        return self

    def stop(self) -> None:
        """Stop serving; all tables are lost."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        """The address for clients, like ``http://127.0.0.1:50000``."""
        return self._server.endpoint_url

    def load(self, table: str, items: Items, key: str) -> int:
        """Put items into a table immediately, without consuming capacity, and return their number.

        Parameters
        ----------
        table
            The table's name. The table is created from ``key`` if it does not exist.
        items
            Lines of DynamoDB JSON as bytes, or an iterable of lines or items; each bare or as ``{"Item": {…}}``.
        key
            ``pk[:S][,sk[:S]]``: names and types of the partition key and the sort key.

        Raises
        ------
        DecodeError
            An item is not DynamoDB JSON, or the service would not store it. The items before it stay.
        OptionError
            The key or the table's name is malformed.
        """
        return self._server.load(table, items, key)

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return ``(t_seconds, read_units, write_units)`` of every 100 ms in which units were consumed.

        ``t_seconds`` is the start of the interval, counted from the server's start; rows are sorted by it. Units count
        at the
        time when the request was admitted. Units of indexes count for their table. Without a table name, all tables are
        summed.
        """
        return self._server.consumed(table)

    def requests(self) -> dict[str, int]:
        """Return the number of calls of each operation, including refused calls."""
        return self._server.requests()

    def faulted(self) -> dict[str, int]:
        """Return the number of times that each fault happened, and the number of unprocessed items of batches."""
        return self._server.faulted()

    def pass_time(self, seconds: float) -> None:
        """Advance the server's wall clock: timestamps of writes and ends of jobs move as if the time had passed.

        Capacity and latency use real time.
        """
        self._server.pass_time(seconds)

    def expire(self, table: str) -> int:
        """Delete the items of a table whose time to live has expired, as the service does, and return their number."""
        return self._server.expire(table)

    def split_shards(self, table: str, into: int = 2) -> None:
        """Close the open shards of a table's stream, and open ``into`` children of each."""
        self._server.split_shards(table, into)

    def trim_stream(self, table: str, age_seconds: float = 0.0) -> None:
        """Delete the records of a table's stream of at least this age.

        The stream itself deletes records after one day.
        """
        self._server.trim_stream(table, age_seconds)

    @property
    def _server(self) -> _ThreadServer | ChildServer:
        if self._running is None:
            raise DdbioError("The fake DynamoDB is not running: call start() or use it in a with statement")
        return self._running

    def _in_thread(self) -> _ThreadServer:
        defaults = Defaults(read_per_second=self.rcu, write_per_second=self.wcu, partitions=self.partitions)
        capacity = Capacity(self.burst_seconds, self.burst_at_creation)
        database = Database(defaults, capacity, faults=self.faults, job_seconds=self.job_seconds)
        if self.export_to is not None:
            database.s3 = S3Access(self.export_to)
        if self.proxy is None:
            return _ThreadServer(Service(database, self.latency_seconds), self.port)
        upstream = Upstream(self.proxy)
        return _ThreadServer(ProxyService(database, upstream, self.latency_seconds), self.port, upstream)

    def _flags(self) -> dict[str, float | str | None]:
        return {
            "port": self.port,
            "rcu": self.rcu,
            "wcu": self.wcu,
            "latency-ms": self.latency_seconds * 1000,
            "partitions": self.partitions,
            "burst-seconds": self.burst_seconds,
            "burst-at-creation": self.burst_at_creation,
            "proxy": self.proxy,
            "export-to": self.export_to,
            "job-seconds": self.job_seconds,
        }
