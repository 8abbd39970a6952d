"""Run the fake DynamoDB in a thread of this process or in one of its own; refuses to listen beyond the loopback."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ddbio.errors import DdbioError, OptionError
from ddbio.testing.child import ChildServer
from ddbio.testing.faults import Faults
from ddbio.testing.proxy import ProxyService
from ddbio.testing.server import LOOPBACK, Server
from ddbio.testing.service import Service
from ddbio.testing.tables.capacity import BURST_SECONDS, Capacity
from ddbio.testing.tables.database import Database
from ddbio.testing.tables.definition import ON_DEMAND_PARTITIONS, Defaults
from ddbio.testing.tables.delivery import Delivery
from ddbio.testing.upstream import Upstream

if TYPE_CHECKING:
    from types import TracebackType

    from ddbio.testing.loading import Items

_LAST_PORT = 65_535
_LEAST = {
    "port": 0,
    "rcu": 0,
    "wcu": 0,
    "latency_seconds": 0,
    "partitions": 1,
    "burst_seconds": 0,
    "burst_at_creation": 0,
    "job_seconds": 0,
}


class _ThreadServer:
    """Serve from threads of this process."""

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

    def stop(self) -> None:
        self._server.stop()
        if self._upstream is not None:
            self._upstream.close()


@dataclass(kw_only=True)
class FakeDynamoDB:
    """Serve DynamoDB's wire protocol on 127.0.0.1, with capacity and throttling, while the context is open.

    Attributes
    ----------
    port
        The port; 0 takes a free one.
    rcu, wcu
        Units per second of tables that state no numbers of their own. A loaded table without any is unlimited, a
        created one is limited by its partitions alone.
    latency_seconds
        How long every reply is held back; other connections go on.
    partitions
        Physical partitions of an on-demand table; each serves 3,000 read and 1,000 write units per second.
    burst_seconds
        How many seconds of unused capacity a table keeps.
    burst_at_creation
        How many of these seconds a new table begins with.
    faults
        What goes wrong: leftovers of batches, errors, resets, storms of throttling.
    proxy
        The endpoint in front of which capacity and faults are put, instead of tables of the fake's own.
    export_to
        The S3 endpoint, or the folder with buckets as folders, to which ExportTableToPointInTime writes.
    job_seconds
        How long an export, import, bulk put, backup or restore runs, by the server's time of day.
    process
        Whether to serve from a process of its own, so that a benchmark measures only its client.
    """

    port: int = 0
    rcu: float | None = None
    wcu: float | None = None
    latency_seconds: float = 0.0
    partitions: int = ON_DEMAND_PARTITIONS
    burst_seconds: float = BURST_SECONDS
    burst_at_creation: float = 0.0
    faults: Faults = field(default_factory=Faults)
    proxy: str | None = None
    export_to: str | None = None
    job_seconds: float = 0.0
    process: bool = False
    _running: _ThreadServer | ChildServer | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise OptionError(f"{name} is {value}: give {least} or more")
        if self.port > _LAST_PORT:
            raise OptionError(f"port is {self.port}: give at most {_LAST_PORT}, or 0 for a free one")

    def start(self) -> Self:
        """Begin to serve."""
        if self._running is None:
            self._running = ChildServer(self._flags(), self.faults) if self.process else self._in_thread()
        return self

    def stop(self) -> None:
        """Stop serving and forget every table."""
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
        """Put items into a table at once, outside any capacity, and return their number.

        Parameters
        ----------
        table
            The table's name; it is made from ``key`` when it does not exist.
        items
            Lines of DynamoDB JSON as bytes, or an iterable of lines or items; each bare or as ``{"Item": {…}}``.
        key
            ``pk[:S][,sk[:S]]``: names and types of the partition key and the sort key.

        Raises
        ------
        DecodeError
            An item is not DynamoDB JSON, or the service would not store it; the items before it stay.
        OptionError
            The key or the table's name is malformed.
        """
        return self._server.load(table, items, key)

    def consumed(self, table: str | None = None) -> list[tuple[float, float, float]]:
        """Return ``(t_seconds, read_units, write_units)`` of every 100 ms in which something was consumed.

        ``t_seconds`` is the beginning of the interval, counted from the server's start; rows ascend by it. Units are
        stamped when a request was admitted. Indexes count as their table; without a name all tables are summed.
        """
        return self._server.consumed(table)

    def requests(self) -> dict[str, int]:
        """Return how often each operation was called, refused calls included."""
        return self._server.requests()

    def faulted(self) -> dict[str, int]:
        """Return how often each fault struck: requests by their fault, and items left unprocessed."""
        return self._server.faulted()

    def pass_time(self, seconds: float) -> None:
        """Let the server's time of day go on at once: writes are stamped, and jobs end, as if it had passed.

        Capacity and latency go by the time that really passes.
        """
        self._server.pass_time(seconds)

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
            database.delivery = Delivery(self.export_to)
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
