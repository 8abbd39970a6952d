"""Server of a fake's stream changes at a steady pace, independent of the time of their creation.

Everything but records is forwarded to the fake. Each record becomes visible at its time. The paced server answers with
the latency of the service.
"""

from __future__ import annotations

import base64
import bisect
import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBER = "number"
"""The attribute with the number of an item's change among all changes, from zero."""

_TARGET = "X-Amz-Target"
_SERVICES = {"streams": "DynamoDBStreams_20120810", "kinesis": "Kinesis_20131202"}
_LIMITS = {"streams": 1_000, "kinesis": 10_000}
_LATENCY_SECONDS, _BYTES_PER_SECOND = 0.01, 1_500_000
# The fake requires a signature, and does not check it.
_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=bench/20260101/eu-west-1/any/aws4_request, Signature=0",
    "Content-Type": "application/x-amz-json-1.1",
}
_FORWARDED = ("Authorization", "Content-Type", "X-Amz-Date")


@dataclass
class PacedStream:
    """Records of each shard, and the times at which they become visible.

    Attributes
    ----------
    began_at
        Time of day at which the records start; none is visible before it is set.
    """

    upstream: str
    source: str
    stream: str
    per_second: float
    endpoint_url: str = ""
    began_at: float | None = None
    shards: dict[str, tuple[list[int], list[bytes]]] = field(default_factory=dict)

    def visible_at(self, number: int) -> float:
        """Return the time of day at which a change becomes visible."""
        assert self.began_at is not None
        return self.began_at + number / self.per_second

    def fill(self) -> int:
        """Read all records of the fake's stream. Return their number."""
        names = {"StreamArn": self.stream} if self.source == "streams" else {"StreamName": self.stream}
        shard_ids = self._shard_ids(names)
        with ThreadPoolExecutor(len(shard_ids)) as pool:
            counts = pool.map(lambda shard_id: self._read({**names, "ShardId": shard_id}), shard_ids)
            self.shards = dict(zip(shard_ids, counts, strict=True))
        return sum(len(numbers) for numbers, _ in self.shards.values())

    def _read(self, shard: dict[str, str]) -> tuple[list[int], list[bytes]]:
        numbers, texts = list[int](), list[bytes]()
        iterator = self._ask("GetShardIterator", {**shard, "ShardIteratorType": "TRIM_HORIZON"})["ShardIterator"]
        while records := (reply := self._ask("GetRecords", {"ShardIterator": iterator}))["Records"]:
            for record in records:
                numbers.append(self._number(record))
                texts.append(json.dumps(record, ensure_ascii=False).encode())
            iterator = reply["NextShardIterator"]
            # Kinesis returns each shard's records five times per second, and two megabytes per second.
            if self.source == "kinesis":
                time.sleep(max(0.25, sum(map(len, texts[-len(records) :])) / _BYTES_PER_SECOND))
        return numbers, texts

    def _shard_ids(self, names: dict[str, str]) -> list[str]:
        if self.source == "streams":
            listed = self._ask("DescribeStream", names)["StreamDescription"]["Shards"]
        else:
            listed = self._ask("ListShards", names)["Shards"]
        return [shard["ShardId"] for shard in listed]

    def _number(self, record: dict[str, Any]) -> int:
        change = record if self.source == "streams" else json.loads(base64.b64decode(record["Data"]))
        return int(change["dynamodb"]["NewImage"][NUMBER]["N"])

    def _ask(self, operation: str, asked: dict[str, Any]) -> Any:
        return json.loads(self.forward(f"{_SERVICES[self.source]}.{operation}", json.dumps(asked).encode()))

    def forward(self, target: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        """Return the answer of the fake."""
        sent = {**(headers or _SIGNED), _TARGET: target}
        with urllib.request.urlopen(urllib.request.Request(self.upstream, body, sent)) as reply:
            return bytes(reply.read())

    def answer(self, target: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Return the reply to a request."""
        service, _, operation = target.partition(".")
        if service != _SERVICES[self.source] or operation not in {"GetShardIterator", "GetRecords"}:
            return self.forward(target, body, headers)
        asked = json.loads(body)
        if operation == "GetShardIterator":
            return json.dumps({"ShardIterator": f"{asked['ShardId']}/0"}).encode()
        time.sleep(_LATENCY_SECONDS)
        return self._records(asked["ShardIterator"])

    def _records(self, iterator: str) -> bytes:
        shard_id, _, offset = iterator.rpartition("/")
        numbers, texts = self.shards[shard_id]
        seen = 0 if self.began_at is None else int((time.time() - self.began_at) * self.per_second)
        first = int(offset)
        end = min(bisect.bisect_left(numbers, seen), first + _LIMITS[self.source])
        following = b'{"NextShardIterator":"%s/%d"' % (shard_id.encode(), max(first, end))
        behind = b',"MillisBehindLatest":0' if self.source == "kinesis" else b""
        return following + behind + b',"Records":[%s]}' % b",".join(texts[first:end])


@contextmanager
def serving(stream: PacedStream) -> Iterator[PacedStream]:
    """Serve a stream on a port of this machine while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name: self.headers[name] for name in _FORWARDED if name in self.headers}
            reply = stream.answer(self.headers[_TARGET], body, headers)
            self.send_response(200)
            self.send_header("Content-Type", self.headers["Content-Type"])
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the class
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stream.endpoint_url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield stream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
