"""Proxy in front of the fake that records the requested pages of segments."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator

from ddbio.testing.proxy import Upstream
from ddbio.testing.server import HttpReply, HttpRequest, Server


class Recorder:
    """Proxy that forwards requests and counts the requested pages of segments by their start keys.

    Attributes
    ----------
    holds
        Set when a request waits, see ``hold_after``.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._upstream = Upstream(endpoint_url)
        self._server = Server(self._answer)
        self.endpoint_url = f"http://127.0.0.1:{self._server.port}"
        self._asked: list[tuple[int, int, str]] = []
        self._segments, self._left = 0, math.inf
        self._may, self.holds = threading.Event(), threading.Event()

    def hold_after(self, pages: int, segments: int) -> None:
        """Answer this number of queries, or pages of a scan with this segment count; others wait for ``release``."""
        self._segments, self._left = segments, pages
        self._may.clear()
        self.holds.clear()

    def release(self) -> None:
        """Answer all requests from now on."""
        self._left = math.inf
        self._may.set()

    def pages(self, segments: int) -> Counter[tuple[int, str]]:
        """Return the number of requests for each page of a scan with these segments; its sample uses other segments."""
        return Counter((segment, key) for total, segment, key in self._asked if total == segments)

    def asked_again(self, segments: int) -> Counter[int]:
        """Return the number of repeated page requests of each segment."""
        again = Counter[int]()
        for (segment, _), count in self.pages(segments).items():
            again[segment] += count - 1
        return +again

    def stop(self) -> None:
        """Close the endpoint."""
        self.release()
        self._server.stop()
        self._upstream.close()

    def _answer(self, request: HttpRequest) -> HttpReply:
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        if operation == "Scan":
            asked = json.loads(request.body)
            start = json.dumps(asked.get("ExclusiveStartKey"), sort_keys=True)
            self._asked.append((asked["TotalSegments"], asked["Segment"], start))
        if operation == "Query" or (operation == "Scan" and asked["TotalSegments"] == self._segments):
            self._left -= 1
            if self._left < 0:
                self.holds.set()
                self._may.wait()
        return self._upstream.send(request)


@contextlib.contextmanager
def recording(endpoint_url: str) -> Iterator[Recorder]:
    """Open a recording proxy."""
    recorder = Recorder(endpoint_url)
    try:
        yield recorder
    finally:
        recorder.stop()
