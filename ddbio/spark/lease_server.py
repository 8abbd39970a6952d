"""Budgets of DataFrame reads and writes with a rate, served by the driver's Python, which also keeps their reports.

Spark plans a read in a separate process that ends before the first task starts, so the budget cannot be in that
process. The planner requests lease terms from this server, and the tasks then reserve units from the leased budget.
Planners find the server by a Unix socket named after the application, in a folder that only this user can enter.
Without a server each task has a static portion of the rate.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import socketserver
import stat
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.budget import BudgetAddress, BudgetServer, LocalBudget
from ddbio.budget.pacing import Ramp

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_SECONDS = 10.0

LAST_REPORT = "last report"
"""The name of the text with the report of the last write."""

MAX_KEPT = 64
"""Maximum number of kept texts. The oldest are dropped."""

MAX_BUDGETS = 32
"""Maximum number of served budgets. Tasks with an older one continue with their static portion."""


@dataclass(frozen=True)
class Fence:
    """The server in the driver that knows the latest attempt of each task.

    Attributes
    ----------
    alone_seconds
        How long an attempt that has reached the driver may continue without it.
    speculates
        Whether Spark runs a second attempt of a task while the first one still runs.
    """

    address: BudgetAddress
    alone_seconds: float
    speculates: bool


@dataclass(frozen=True)
class LeaseTerms:
    """Terms of the driver: the number of concurrent tasks, a budget if there is a rate, and a fence."""

    parallelism: int
    lease: BudgetAddress | None
    fence: Fence | None = None


def request_lease_terms(
    application: str, units_per_second: float | None, ramp: Ramp | None = None, *, fenced: bool = False
) -> LeaseTerms | None:
    """Return the terms of an application's driver, or None if it runs no lease server."""
    start = None if ramp is None else ramp.start_per_second
    with suppress(OSError, ValueError):
        parallelism, lease, fence = _ask(application, [units_per_second, start, fenced])
        fence_of_driver = None if fence is None else Fence(_to_address(fence[0]), *fence[1:])
        return LeaseTerms(parallelism, None if lease is None else _to_address(lease), fence_of_driver)
    return None


def keep_text(application: str, name: str, text: str) -> None:
    """Keep a text in the driver's Python for later planners. Do nothing if no server runs."""
    with suppress(OSError, ValueError):
        _ask(application, {"name": name, "text": text})


def kept_text(application: str, name: str) -> str | None:
    """Return the last text that was kept under a name, or None."""
    with suppress(OSError, ValueError):
        text: str | None = _ask(application, {"name": name})
        return text
    return None


def _ask(application: str, message: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        path = _path(application)
        _require_private(path.parent)
        connection.settimeout(TIMEOUT_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps(message).encode() + b"\n")
        with connection.makefile("rb") as response:
            return json.loads(response.readline())


class LeaseServer:
    """Server that answers the planners of one application until it is closed, and serves their leased budgets.

    Parameters
    ----------
    application
        A name that only this application's driver and planners share.
    endpoint
        The address by which workers reach this process, the one to bind, and the ports to try.
    parallelism
        The number of tasks that the application runs at the same time.
    alone_seconds, speculates
        As in :class:`Fence`.
    """

    def __init__(
        self,
        application: str,
        endpoint: tuple[str, str, Sequence[int]],
        parallelism: int,
        *,
        alone_seconds: float = 60.0,
        speculates: bool = False,
    ) -> None:
        self._endpoint, self._parallelism = endpoint, parallelism
        self._alone_seconds, self._speculates = alone_seconds, speculates
        self._fence: BudgetServer | None = None
        self._servers: list[BudgetServer] = []
        self._kept: dict[str, str] = {}
        self._lock = threading.Lock()
        self._path = _path(application)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        _require_private(self._path.parent)
        self._path.unlink(missing_ok=True)
        self._listener = _Listener(str(self._path), self)
        threading.Thread(target=self._listener.serve_forever, name="ddbio-lease-server", daemon=True).start()

    def close(self) -> None:
        """Stop serving all budgets."""
        self._path.unlink(missing_ok=True)
        self._listener.shutdown()
        self._listener.server_close()
        with self._lock:
            while self._servers:
                self._servers.pop().__exit__()
            if self._fence is not None:
                self._fence.__exit__()

    def terms(self, units_per_second: float | None, start_per_second: float | None, fenced: bool) -> list[Any]:  # noqa: FBT001 - of a message
        """Return the fields of :class:`LeaseTerms` as plain values."""
        lease = None
        if units_per_second is not None:
            budget = LocalBudget(units_per_second, ramp=Ramp(start_per_second) if start_per_second else None)
            lease = _of_address(self._open(budget))
        fence = [_of_address(self._open_fence()), self._alone_seconds, self._speculates] if fenced else None
        return [self._parallelism, lease, fence]

    def keep(self, name: str, text: str | None) -> str | None:
        """Keep a text under a name, if it is not None. Return the kept text."""
        with self._lock:
            if text is not None:
                self._kept.pop(name, None)
                self._kept[name] = text
                while len(self._kept) > MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
            return self._kept.get(name)

    def _open_fence(self) -> BudgetAddress:
        """Return the address of the server that fences all writes of the application, during its lifetime."""
        with self._lock:
            if self._fence is None:
                self._fence = self._start(LocalBudget(None))
            return self._fence.address

    def _start(self, budget: LocalBudget) -> BudgetServer:
        host, bind, ports = self._endpoint
        return BudgetServer(budget, host, bind=bind, ports=ports).__enter__()

    def _open(self, budget: LocalBudget) -> BudgetAddress:
        server = self._start(budget)
        with self._lock:
            self._servers.append(server)
            oldest = self._servers[:-MAX_BUDGETS]
            del self._servers[:-MAX_BUDGETS]
        for server_to_stop in oldest:
            server_to_stop.__exit__()
        return server.address


class _Listener(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, lease_server: LeaseServer) -> None:
        self.lease_server = lease_server
        super().__init__(path, _Planner)


class _Planner(socketserver.StreamRequestHandler):
    timeout = TIMEOUT_SECONDS
    server: _Listener

    def handle(self) -> None:
        # A planner that hung up continues without an answer.
        with suppress(OSError, ValueError):
            message, server = json.loads(self.rfile.readline()), self.server.lease_server
            answer: Any
            if isinstance(message, dict):
                answer = server.keep(message["name"], message.get("text"))
            else:
                answer = server.terms(*message)
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def _of_address(address: BudgetAddress) -> list[Any]:
    return [address.host, address.port, address.key.hex()]


def _to_address(message: list[Any]) -> BudgetAddress:
    host, port, key = message
    return BudgetAddress(host, port, bytes.fromhex(key))


def _path(application: str) -> Path:
    # The path of a socket is at most 107 bytes long: the name is cut short.
    name = hashlib.sha256(application.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"ddbio-{os.getuid()}" / f"{name}.sock"


def _require_private(folder: Path) -> None:
    """Raise OSError unless only this user can write to the folder."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can enter: remove it")
