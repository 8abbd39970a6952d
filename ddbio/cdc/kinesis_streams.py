"""Kinesis data streams as destinations of table changes, read by polling or as a consumer with enhanced fan-out.

With enhanced fan-out the service pushes records to a consumer. A subscription to a shard lasts five minutes. It is then
renewed after its last event. boto3 and this module receive the events over HTTP/1.1.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.aws.endpoint_route import KINESIS as KINESIS_API
from ddbio.aws.error_codes import BotoCoreError, ClientError, error_code, may_pass, to_ddbio_error
from ddbio.aws.event_stream import RefusedError, StreamEndedError
from ddbio.cdc.kinesis_records import KinesisDecoder, records_of
from ddbio.cdc.shards import FIRST, HORIZON, LATEST, Shard, TrimmedError
from ddbio.cdc.stream_kind import ATTEMPTS, BASE_SECONDS, PollingSource, StreamKind, StreamSource, parse_shard
from ddbio.errors import OptionError, ServiceError
from ddbio.jobs.estimate import GB
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.event_stream import EventStream
    from ddbio.aws.transport import LightTransport
    from ddbio.cdc.options import CaptureOptions
    from ddbio.jobs.estimate import Part

# https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html: 5 reads a second, 2 MB a second
_MIN_PAUSE_SECONDS, _BYTES_PER_SECOND = 0.201, 2 * 1024 * 1024
_HOUR_SECONDS = 3600


class KinesisSource(PollingSource):
    """Reader of the shards of one data stream, by polling."""

    api = KINESIS_API
    permissions = "kinesis"
    # Five requests per second exceed the shard's limit of 2 MB/s if records have 400 bytes.
    reply_limit = {"Limit": 1_000}  # noqa: RUF012 - a constant

    def __init__(self, spec: ClientSpec, arn: str) -> None:
        super().__init__(spec, arn)
        self._stream = {"StreamName": _name_of(arn)}
        summary = self.call("DescribeStreamSummary", self._stream)["StreamDescriptionSummary"]
        self._keeps_seconds = float(summary["RetentionPeriodHours"]) * _HOUR_SECONDS

    @property
    def keeps_seconds(self) -> float:
        """Return the retention period. The service skips expired records without an error."""
        return self._keeps_seconds

    def pause_after(self, size_bytes: int) -> float:
        """Return the pause of a shard after a reply, from the limits of the service."""
        return max(_MIN_PAUSE_SECONDS, size_bytes / _BYTES_PER_SECOND)

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""
        shards, request = list[Shard](), self._stream
        while True:
            listed = self.call("ListShards", request)
            shards += map(parse_shard, listed["Shards"])
            if listed.get("NextToken") is None:
                return shards
            request = {"NextToken": listed["NextToken"]}

    def iterator_request(self, shard: Shard, position: str) -> dict[str, str]:
        """Return the request for an iterator over a shard after a position."""
        request = {**self._stream, "ShardId": shard.shard_id}
        if position in {HORIZON, LATEST, FIRST}:
            return {**request, "ShardIteratorType": HORIZON}
        return {**request, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}


def _name_of(arn: str) -> str:
    return arn.rpartition("/")[2]


_log = logging.getLogger("ddbio.capture")

_ACTION = "SubscribeToShard"
_EVENT = "SubscribeToShardEvent"
# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html: one call per second for each shard.
# A second call within 5 seconds is refused. A later call takes the subscription over.
_RETRY_SECONDS = 1.05
_PASSING = frozenset({"ResourceInUseException", "LimitExceededException", "InternalFailureException"})
_MAX_FAILURES = 30
# A consumer that has caught up gets one event that reports it, and no further event until there are new records.
_QUIET_SECONDS = 0.25
# The service sends an event every few seconds.
_DEAD_SECONDS = 60.0
_ACTIVE_SECONDS = 60.0

# Data is base64, and quotes within strings are escaped: only members of the event itself match.
_CONTINUATION = re.compile(rb'"ContinuationSequenceNumber"\s*:\s*"(\d+)"')
_CHILDREN = re.compile(rb'"ChildShards"\s*:\s*\[\s*\{')
_CAUGHT_UP = re.compile(rb'"MillisBehindLatest"\s*:\s*0\s*[,}]')


def consumer_of(spec: ClientSpec, arn: str, consumer: str) -> str:
    """Return the ARN of a consumer of a data stream. A consumer given by name is registered if it does not exist.

    Parameters
    ----------
    consumer
        Its name or its ARN.

    Raises
    ------
    OptionError
        If it is the ARN of another stream's consumer.
    NotFoundError
        If no consumer has this ARN.
    ServiceError
        If it is not active within one minute.
    """
    is_arn = consumer.startswith("arn:")
    if is_arn and not consumer.startswith(f"{arn}/consumer/"):
        raise OptionError(f"fan_out is {consumer!r}, which is not a consumer of the data stream {arn}")
    request = {"ConsumerARN": consumer} if is_arn else {"StreamARN": arn, "ConsumerName": consumer}
    client: Any = spec.client("kinesis")
    deadline = time.monotonic() + _ACTIVE_SECONDS
    while True:
        operation = "DescribeStreamConsumer"
        try:
            description = retrying(
                lambda: client.describe_stream_consumer(**request)["ConsumerDescription"],
                on=_subscription_may_pass,
                attempts=5,
                base_seconds=0.2,
            )
        except (BotoCoreError, ClientError) as error:
            if is_arn or error_code(error) != "ResourceNotFoundException":
                raise to_ddbio_error(error, action=f"kinesis:{operation}", resource=f"consumer {consumer}") from error
            _log.info("registering the consumer %s of %s", consumer, arn)
            _register(client, arn, consumer)
            continue
        if description["ConsumerStatus"] == "ACTIVE":
            return str(description["ConsumerARN"])
        if time.monotonic() > deadline:
            raise ServiceError(
                f"consumer {consumer} of {arn} is {description['ConsumerStatus']}, not ACTIVE: try again"
            )
        time.sleep(_RETRY_SECONDS)


def _register(client: Any, arn: str, name: str) -> None:
    try:
        client.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    except (BotoCoreError, ClientError) as error:
        # Another process has registered it at the same time.
        if error_code(error) != "ResourceInUseException":
            raise to_ddbio_error(error, action="kinesis:RegisterStreamConsumer", resource=f"stream {arn}") from error


class FanOutSource:
    """Reader of the shards of one data stream, by subscriptions of a consumer.

    Parameters
    ----------
    consumer
        Its name or its ARN.

    Attributes
    ----------
    polling
        A source that polls the same stream.
    name, keeps_seconds, shards
        As of ``polling``.
    """

    pushes = True

    def __init__(self, spec: ClientSpec, arn: str, consumer: str) -> None:
        self.polling = KinesisSource(spec, arn)
        self.name, self.keeps_seconds, self.shards = arn, self.polling.keeps_seconds, self.polling.shards
        with contextlib.ExitStack() as stack:
            stack.callback(self.polling.close)
            transport = self.polling.events_transport()
            if transport is None:
                raise OptionError("fan_out needs a direct connection: a proxy or a handler of botocore is configured")
            self._transport, self._consumer = transport, consumer_of(spec, arn, consumer)
            stack.pop_all()
        self._subscriptions: dict[str, _Subscription] = {}

    @property
    def clock_offset_seconds(self) -> float:
        """Offset of the service's clock from this machine's; see ``StreamSource``."""
        return self.polling.clock_offset_seconds

    def pause_after(self, _: int) -> float:
        """Return 0: the service limits its rate itself."""
        return 0.0

    def iterator(self, shard: Shard, position: str) -> str:
        """Return the starting position of a subscription as text. If the shard is gone, the subscription fails."""
        return f"{shard.shard_id} {HORIZON if position in {HORIZON, LATEST, FIRST} else position}"

    def begin(self, iterator: str) -> PendingEvent:
        """Return a pending reply for the next records."""
        return PendingEvent(self, iterator)

    def take(self, iterator: str) -> bytes | None:
        """Return the records after a position as a reply of GetRecords, or None if none have arrived yet.

        Raises
        ------
        TrimmedError
            If the shard is gone.
        """
        shard_id, _, position = iterator.partition(" ")
        subscription = self._subscriptions.get(shard_id)
        if subscription is None or subscription.position != position:
            if subscription is not None:
                subscription.end()
            subscription = self._subscriptions[shard_id] = _Subscription(
                self._transport, self._consumer, shard_id, position
            )
        try:
            return subscription.take()
        except (BotoCoreError, ClientError) as error:
            if error_code(error) == "ResourceNotFoundException" and all(
                shard.shard_id != shard_id for shard in self.shards()
            ):
                raise TrimmedError(str(error)) from None
            raise to_ddbio_error(error, action=f"kinesis:{_ACTION}", resource=f"consumer {self._consumer}") from error

    def close(self) -> None:
        """End the subscriptions, and close the connections."""
        for subscription in self._subscriptions.values():
            subscription.end()
        self.polling.close()


class PendingEvent:
    """Pending reply of a subscription."""

    def __init__(self, source: FanOutSource, iterator: str) -> None:
        self._source, self._iterator = source, iterator

    def result(self) -> bytes | None:
        """Return the records as a reply of GetRecords, or None if none have arrived yet."""
        return self._source.take(self._iterator)


@dataclass
class _Subscription:
    """Subscription to a shard. It is renewed after it has ended.

    Attributes
    ----------
    position
        The next event starts after this position.
    """

    transport: LightTransport
    consumer: str
    shard_id: str
    position: str
    _stream: EventStream | None = None
    _due_at: float = -math.inf
    """Earliest time of the next subscription."""
    _heard_at: float = 0.0
    _is_caught_up: bool = False
    _failures: int = 0

    def take(self) -> bytes | None:
        """Return the next event as a reply of GetRecords, or None if it has not arrived yet."""
        now = time.monotonic()
        if self._stream is None and now < self._due_at:
            return None
        try:
            return self._take(now)
        except StreamEndedError:
            self.end()
        except (BotoCoreError, ClientError) as error:
            self.end()
            self._failures += 1
            if not _subscription_may_pass(error) or self._failures > _MAX_FAILURES:
                raise
            _log.debug("subscription to %s: %s", self.shard_id, error)
        self._due_at = now + _RETRY_SECONDS
        return None

    def _take(self, now: float) -> bytes | None:
        if self._stream is None:
            self._stream, self._heard_at = self._subscribe(), now
        try:
            event = self._stream.take()
        except RefusedError as refused:
            raise self.transport.error_of(_ACTION, refused.response) from None
        if event is None:
            if now - self._heard_at > _DEAD_SECONDS:
                raise StreamEndedError
            is_quiet = self._is_caught_up and now - self._heard_at >= _QUIET_SECONDS
            return b'{"Records":[],%s}' % self._next() if is_quiet else None
        self._heard_at = now
        headers, payload = event
        if headers.get(":message-type") != "event":
            raise self._error(headers, payload)
        return self._reply(payload) if headers.get(":event-type") == _EVENT else None

    def _reply(self, payload: bytes) -> bytes:
        """Return an event as a reply of GetRecords. At the end of the shard it has no next iterator."""
        self._failures, self._is_caught_up = 0, _CAUGHT_UP.search(payload) is not None
        following = _CONTINUATION.search(payload)
        if following is None or _CHILDREN.search(payload):
            self.end()
            return payload
        self.position = following[1].decode()
        return payload.rstrip().removesuffix(b"}") + b",%s}" % self._next()

    def _next(self) -> bytes:
        return b'"NextShardIterator":"%s %s"' % (self.shard_id.encode(), self.position.encode())

    def _subscribe(self) -> EventStream:
        begin = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self.position}
        request = {
            "ConsumerARN": self.consumer,
            "ShardId": self.shard_id,
            "StartingPosition": {"Type": HORIZON} if self.position == HORIZON else begin,
        }
        return self.transport.open_events(_ACTION, self.consumer, json.dumps(request).encode())

    def _error(self, headers: dict[str, Any], payload: bytes) -> ClientError:
        """Return the error that botocore would raise for an error event."""
        code = headers.get(":exception-type") or headers.get(":error-code") or "InternalFailureException"
        message = headers.get(":error-message") or payload.decode(errors="replace")
        return ClientError({"Error": {"Code": str(code), "Message": str(message)}}, _ACTION)

    def end(self) -> None:
        """Close the connection."""
        self._is_caught_up = False
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _subscription_may_pass(error: Exception) -> bool:
    return may_pass(error) or error_code(error) in _PASSING


class _Kinesis(StreamKind):
    name = "kinesis"
    title = "Kinesis"
    arn_part = ":kinesis:"
    is_of_table = False
    has_event_ids = True
    record_time = re.compile(rb'"ApproximateArrivalTimestamp"\s*:\s*([0-9.eE+]+)')

    def find(self, options: CaptureOptions, spec: ClientSpec, described: Mapping[str, Any]) -> str:
        table, stream = described["TableName"], options.stream
        client: Any = spec.client("dynamodb")
        try:
            destinations = retrying(
                lambda: client.describe_kinesis_streaming_destination(TableName=table)["KinesisDataStreamDestinations"],
                on=may_pass,
                attempts=ATTEMPTS,
                base_seconds=BASE_SECONDS,
            )
        except (BotoCoreError, ClientError) as error:
            action = "dynamodb:DescribeKinesisStreamingDestination"
            raise to_ddbio_error(error, action=action, resource=f"table {table!r}") from error
        arns = [
            destination["StreamArn"]
            for destination in destinations
            if destination["DestinationStatus"] in {"ACTIVE", "UPDATING"}
        ]
        matches = [arn for arn in arns if stream is None or stream in {arn, _name_of(arn)}]
        if len(matches) == 1:
            return str(matches[0])
        if matches:
            raise OptionError(
                f"the changes of {table!r} go to {', '.join(map(_name_of, matches))}: choose one with stream"
            )
        if stream is not None and arns:
            raise OptionError(
                f"the changes of {table!r} do not go to {stream!r}, but to {', '.join(map(_name_of, arns))}"
            )
        raise OptionError(
            f"the changes of {table!r} go to no Kinesis data stream: turn one on (EnableKinesisStreamingDestination), "
            "with timestamps in microseconds"
        )

    def open(self, spec: ClientSpec, arn: str, fan_out: str | None = None) -> StreamSource:
        return KinesisSource(spec, arn) if fan_out is None else FanOutSource(spec, arn, fan_out)

    def decoder(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool) -> KinesisDecoder:
        return KinesisDecoder(schema, keys, table, old_image=old_image)

    def changes_in(self, body: bytes, table: str) -> tuple[bytes, int]:
        records = records_of(body)
        changes = records.of(table)
        return bytes(changes.joined), len(records.texts) - len(changes.texts)

    def read_cost(self, reads: int, size_bytes: int) -> Part:
        del reads
        return "Kinesis out", "kinesis_out", size_bytes / GB


KINESIS = _Kinesis()
