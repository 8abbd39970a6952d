"""Calls of enhanced fan-out consumers of a data stream, which receive records as events of one response.

https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.kinesis import bad_argument, children_of, shard_of, start_sequence, stream_by_arn
from ddbio.testing.refusal import Refusal
from ddbio.testing.tables.kinesis import BYTES_PER_SECOND, Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.kinesis import DataStream, KinesisShard

SUBSCRIBED_SECONDS = 5 * 60
_TAKEOVER_SECONDS = 5
# https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html
_MAX_CONSUMERS = 20
_MAX_RECORDS, _MAX_BYTES = 1_000, 1024 * 1024
# An event without records is sent at this interval.
_HEARTBEAT_SECONDS = 1.0
_CONSUMER_ARN = re.compile(r"(arn:[^:]*:kinesis:[^:]*:[^:]*:stream/[a-zA-Z0-9_.-]+)/consumer/([a-zA-Z0-9_.-]+):\d+")
_TEXT = 7
"""The type of a header whose value is text."""


def register_consumer(database: Database, request: Request) -> dict[str, Any]:
    """Register a consumer, which is active when it is next described."""
    stream, name = stream_by_arn(database, request.required("StreamARN")), request.required("ConsumerName")
    if name in stream.consumers:
        raise Refusal("ResourceInUseException", f"Consumer {name} under stream {stream.name} already exists.")
    if len(stream.consumers) == _MAX_CONSUMERS:
        raise Refusal("LimitExceededException", f"Stream {stream.name} has {_MAX_CONSUMERS} consumers.")
    now = database.wall_clock.now()
    made = stream.consumers[name] = Consumer(name, f"{stream.arn}/consumer/{name}:{int(now)}", now)
    return {"Consumer": _described(made, "CREATING")}


def describe_consumer(database: Database, request: Request) -> dict[str, Any]:
    """Describe a consumer by its ARN, or by its name and the stream's ARN."""
    stream, consumer = _consumer(database, request)
    return {"ConsumerDescription": {**_described(consumer, "ACTIVE"), "StreamARN": stream.arn}}


def list_consumers(database: Database, request: Request) -> dict[str, Any]:
    """List the consumers of a data stream."""
    stream = stream_by_arn(database, request.required("StreamARN"))
    return {"Consumers": [_described(consumer, "ACTIVE") for consumer in stream.consumers.values()]}


def deregister_consumer(database: Database, request: Request) -> dict[str, Any]:
    """Delete a consumer and end its subscriptions."""
    stream, consumer = _consumer(database, request)
    consumer.subscriptions.clear()
    del stream.consumers[consumer.name]
    return {}


def subscribe_to_shard(database: Database, request: Request) -> Subscription:
    """Start to send the records of a shard to a consumer."""
    stream, consumer = _consumer(database, request)
    shard = shard_of(stream, request.required("ShardId"))
    begin = request.mapping("StartingPosition")
    if not begin or "Type" not in begin:
        raise bad_argument("StartingPosition is required")
    sequence = start_sequence(stream, shard, begin["Type"], begin.get("SequenceNumber"), begin.get("Timestamp"))
    now = database.wall_clock.now()
    made_at, number = consumer.subscriptions.get(shard.shard_id, (0.0, 0))
    if now - made_at < _TAKEOVER_SECONDS:
        raise Refusal(
            "ResourceInUseException",
            f"Another active subscription exists for this consumer: {consumer.name} on shard {shard.shard_id}",
        )
    consumer.subscriptions[shard.shard_id] = now, number + 1
    return Subscription(database, stream, consumer, shard, sequence, number + 1, now)


@dataclass
class Subscription:
    """State of the events sent to a consumer. It is not safe for concurrent use."""

    database: Database
    stream: DataStream
    consumer: Consumer
    shard: KinesisShard
    sequence: int
    number: int
    made_at: float
    has_ended: bool = False
    _due_at: float = 0.0
    _heartbeat_at: float = 0.0

    def next(self) -> bytes:
        """Return the next events, or nothing if there are none yet. Set ``has_ended`` at the end."""
        clock = self.database.clock()
        if self.consumer.subscriptions.get(self.shard.shard_id) != (self.made_at, self.number):
            self.has_ended = True
            message = b'{"message":"Another subscription has taken over, or the consumer is gone."}'
            return frame({":message-type": "exception", ":exception-type": "ResourceInUseException"}, message)
        if self.database.wall_clock.now() - self.made_at >= SUBSCRIBED_SECONDS:
            self.has_ended = True
            return b""
        if clock < self._due_at:
            return b""
        self.stream.trim()
        self.stream.deliver()
        return self._event(clock)

    def _event(self, clock: float) -> bytes:
        shard = self.shard
        first = last = shard.from_sequence(self.sequence)
        size_bytes = 0
        while last < min(first + _MAX_RECORDS, len(shard.records)):
            if last > first and size_bytes + shard.records[last].size_bytes > _MAX_BYTES:
                break
            size_bytes += shard.records[last].size_bytes
            last += 1
        records = shard.records[first:last]
        self.has_ended = shard.ending is not None and last == len(shard.records)
        if not records and not self.has_ended and clock < self._heartbeat_at:
            return b""
        self._due_at, self._heartbeat_at = clock + size_bytes / BYTES_PER_SECOND, clock + _HEARTBEAT_SECONDS
        self.sequence = records[-1].sequence + 1 if records else self.sequence
        behind = 0.0
        if last < len(shard.records):
            behind = self.database.wall_clock.now() - shard.records[last].arrived_at
        position: dict[str, Any] = {"ContinuationSequenceNumber": str(self.sequence - 1)}
        if self.has_ended:
            position = {"ContinuationSequenceNumber": None, "ChildShards": children_of(self.stream, shard.shard_id)}
        position["MillisBehindLatest"] = int(behind * 1000)
        payload = b'{"Records":[%s],%s' % (
            b",".join(record.json for record in records),
            json.dumps(position).encode()[1:],
        )
        return frame({":message-type": "event", ":event-type": "SubscribeToShardEvent", **_JSON}, payload)


_JSON = {":content-type": "application/x-amz-json-1.1"}


def initial_response() -> bytes:
    """Return the first event of every event stream."""
    return frame({":message-type": "event", ":event-type": "initial-response", **_JSON}, b"{}")


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return a message of the event stream encoding: https://smithy.io/2.0/aws/amazon-eventstream.html."""
    named = b"".join(
        struct.pack(f">B{len(name)}sBH", len(name), name.encode(), _TEXT, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(named) + len(payload), len(named))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + named + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _consumer(database: Database, request: Request) -> tuple[DataStream, Consumer]:
    arn = request.text("ConsumerARN")
    if arn is None:
        stream, name = stream_by_arn(database, request.required("StreamARN")), request.required("ConsumerName")
    else:
        match = _CONSUMER_ARN.fullmatch(arn)
        if match is None:
            raise bad_argument(f"Invalid ConsumerARN: {arn}")
        stream, name = stream_by_arn(database, match[1]), match[2]
    consumer = stream.consumers.get(name)
    if consumer is None or arn not in {None, consumer.arn}:
        raise Refusal("ResourceNotFoundException", f"Consumer {name} under stream {stream.name} not found.")
    return stream, consumer


def _described(consumer: Consumer, status: str) -> dict[str, Any]:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": status,
        "ConsumerCreationTimestamp": round(consumer.created_at, 3),
    }


OPERATIONS: dict[str, Callable[[Database, Request], dict[str, Any]]] = {
    "DeregisterStreamConsumer": deregister_consumer,
    "DescribeStreamConsumer": describe_consumer,
    "ListStreamConsumers": list_consumers,
    "RegisterStreamConsumer": register_consumer,
}
"""The calls of consumers with a JSON reply, by name."""
