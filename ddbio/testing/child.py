"""Run the fake DynamoDB as a child process and speak to it; refuses to outlive its parent."""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from ddbio import errors
from ddbio.errors import DdbioError, EndpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.testing.faults import Faults
    from ddbio.testing.loading import Items

_STOP_SECONDS = 10.0
_OK = 200


class ChildServer:
    """Hold one running ``python -m ddbio.testing``; it also ends when this process does."""

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
        """Return the record of consumption."""
        query = "" if table is None else "?" + urlencode({"table": table})
        return [(at, read, write) for at, read, write in self._call("GET", "consumed" + query)]

    def requests(self) -> dict[str, int]:
        """Return how often each operation was called."""
        return dict(self._call("GET", "requests"))

    def faulted(self) -> dict[str, int]:
        """Return how often each fault struck."""
        return dict(self._call("GET", "faulted"))

    def pass_time(self, seconds: float) -> None:
        """Let the server's time of day go on."""
        self._call("POST", "pass?" + urlencode({"seconds": seconds}))

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
