"""Endpoint that acknowledges every write and stores none, in a separate process, for measuring clients.

It describes one table, answers single writes and batches as done, and counts rows and bytes. It parses no item.
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
_KEY_TYPES = ("HASH", "RANGE")


@dataclass(frozen=True)
class Sink:
    """Address and counts of a running sink."""

    endpoint_url: str
    _taken: Any

    @property
    def rows(self) -> int:
        """Return the number of received rows."""
        return int(self._taken[0])

    @property
    def body_bytes(self) -> int:
        """Return the bytes of the received request bodies."""
        return int(self._taken[1])


@contextmanager
def running(key: str = "pk:S") -> Iterator[Sink]:
    """Run a sink of a table ``rows`` with this key while the context is open."""
    spawning = multiprocessing.get_context("spawn")
    taken: Any = spawning.Array("q", 2)
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, taken, key), daemon=True)
    process.start()
    try:
        yield Sink(f"http://127.0.0.1:{ours.recv()}", taken)
    finally:
        process.terminate()
        process.join()


def _serve(ready: Any, taken: Any, key: str) -> None:
    described = _reply({"Table": _table(key)})
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    ready.send(listener.getsockname()[1])
    while True:
        link, _ = listener.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_converse, args=(link, taken, described), daemon=True).start()


def _converse(link: socket.socket, taken: Any, described: bytes) -> None:
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
        link.sendall(_answer(head, b"".join(chunks), taken) or described)
        came = b""


def _answer(head: bytes, body: bytes, taken: Any) -> bytes:
    """Return the answer to a write; nothing for other requests."""
    if b"BatchWriteItem" in head:
        rows = (zlib.decompress(body, 31) if b"\r\ncontent-encoding: gzip" in head else body).count(b'"PutRequest"')
    elif b".PutItem" in head or b".UpdateItem" in head:
        rows = 0
    else:
        return b""
    with taken.get_lock():
        taken[0] += rows or 1
        taken[1] += len(body)
    return _written(rows)


def _table(key: str) -> dict[str, Any]:
    parts = [part.split(":") for part in key.split(",")]
    return {
        "TableName": "rows",
        "TableStatus": "ACTIVE",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": tag} for name, tag in parts],
        "KeySchema": [
            {"AttributeName": part[0], "KeyType": kind} for part, kind in zip(parts, _KEY_TYPES, strict=False)
        ],
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    }


@functools.cache
def _written(rows: int) -> bytes:
    """Return the answer to a batch of ``rows``, or to a request for one row."""
    if not rows:
        return _reply({"ConsumedCapacity": {"TableName": "rows", "CapacityUnits": 1.0}})
    return _reply({"UnprocessedItems": {}, "ConsumedCapacity": [{"TableName": "rows", "CapacityUnits": float(rows)}]})


def _reply(reply: dict[str, Any]) -> bytes:
    body = json.dumps(reply).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nx-amz-crc32: {zlib.crc32(body)}\r\n"
    return head.encode() + b"Content-Type: application/x-amz-json-1.0\r\n\r\n" + body
