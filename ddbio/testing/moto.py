"""Run moto's server on the loopback interface, in a separate process that ends with the context."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from ddbio.errors import EndpointError

if TYPE_CHECKING:
    from types import TracebackType

_LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


class MotoServer:
    """Serve moto's S3 (and its other services) over real HTTP while the context is open.

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
            # While this socket is open, Linux gives the port to nobody who asks for a free one, and lets moto listen.
            self._reserved.close()
        self.endpoint_url = f"http://{_LOOPBACK}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the server and wait until it listens.

        Raises
        ------
        EndpointError
            If it does not.
        """
        command = [self._python, "-m", "moto.server", "-H", _LOOPBACK, "-p", str(self._port)]
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
