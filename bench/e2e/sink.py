"""Take every write and keep none, in a process of its own: the least that an endpoint does beside a measured client.

It describes one table, answers batches of writes as done, and counts rows and bytes; refuses to look at an item.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import re
import socket
import threading
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\ncontent-length: (\d+)", re.IGNORECASE)
_TABLE = {
    "TableName": "rows",
    "TableStatus": "ACTIVE",
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
}


@dataclass(frozen=True)
class Sink:
    """Say where a running sink listens and what it has taken so far."""

    endpoint_url: str
    _taken: Any

    @property
    def rows(self) -> int:
        """Return how many puts have come."""
        return int(self._taken[0])

    @property
    def body_bytes(self) -> int:
        """Return how many bytes their requests' bodies had as they were sent."""
        return int(self._taken[1])


@contextmanager
def running() -> Iterator[Sink]:
    """Run a sink while the context is open."""
    spawning = multiprocessing.get_context("spawn")
    taken: Any = spawning.Array("q", 2)
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, taken), daemon=True)
    process.start()
    try:
        yield Sink(f"http://127.0.0.1:{ours.recv()}", taken)
    finally:
        process.terminate()
        process.join()


def _serve(ready: Any, taken: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    ready.send(listener.getsockname()[1])
    while True:
        link, _ = listener.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_converse, args=(link, taken), daemon=True).start()


def _converse(link: socket.socket, taken: Any) -> None:
    came = b""
    while True:
        while _HEAD_END not in came:
            more = link.recv(1 << 16)
            if not more:
                return
            came += more
        head, _, body = came.partition(_HEAD_END)
        chunks, missing = [body], int(_LENGTH.search(head)[1]) - len(body)  # type: ignore[index] # every request has it
        while missing > 0:
            chunks.append(link.recv(missing))
            missing -= len(chunks[-1])
        link.sendall(_answer(head, b"".join(chunks), taken))
        came = b""


def _answer(head: bytes, body: bytes, taken: Any) -> bytes:
    if b"BatchWriteItem" not in head:
        return _reply({"Table": _TABLE})
    rows = (zlib.decompress(body, 31) if b"\r\ncontent-encoding: gzip" in head else body).count(b'"PutRequest"')
    with taken.get_lock():
        taken[0] += rows
        taken[1] += len(body)
    return _written(rows)


@functools.cache
def _written(rows: int) -> bytes:
    return _reply({"UnprocessedItems": {}, "ConsumedCapacity": [{"TableName": "rows", "CapacityUnits": float(rows)}]})


def _reply(said: dict[str, Any]) -> bytes:
    told = json.dumps(said).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(told)}\r\nx-amz-crc32: {zlib.crc32(told)}\r\n"
    return head.encode() + b"Content-Type: application/x-amz-json-1.0\r\n\r\n" + told
