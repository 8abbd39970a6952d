"""Read DynamoDB Streams over the light transport: shards, iterators, and replies as the bytes that came."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ddbio.aws.endpoint_route import STREAMS
from ddbio.aws.error_codes import BotoCoreError, ClientError, error_code, may_pass, to_ddbio_error
from ddbio.aws.transport import LightTransport, open_body_sender
from ddbio.cdc.shards import FIRST, HORIZON, LATEST, ExpiredError, Shard, TrimmedError
from ddbio.errors import NotFoundError, OptionError
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.endpoint_route import Api
    from ddbio.aws.transport import BodySender

_LANES = 16
# Of about a minute together.
_ATTEMPTS, _BASE_SECONDS = 9, 0.2
_THROTTLED = "LimitExceededException"
# Dates are whole seconds, and responses take their time: less is no difference between two clocks.
_LEAST_OFFSET_SECONDS = 2.0
_ACTIONS = {"dynamodbstreams": "dynamodb", "kinesis": "kinesis"}


def stream_of(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return the ARN and the view of the stream of a table, by DescribeTable's ``Table``.

    Raises
    ------
    OptionError
        If the table has no stream.
    """
    found = described.get("StreamSpecification")
    if not found or not found.get("StreamEnabled"):
        raise OptionError(
            f"table {described['TableName']!r} has no stream: turn one on with the view NEW_AND_OLD_IMAGES or "
            "NEW_IMAGE (UpdateTable)"
        )
    return described["LatestStreamArn"], found["StreamViewType"]


class ShardService:
    """Send requests of one of the services that have shards; one that fails for a moment is repeated.

    Parameters
    ----------
    resource
        What is read, for messages.
    """

    def __init__(self, spec: ClientSpec, api: Api, resource: str) -> None:
        self._service, self._resource = api.service, resource
        self._sender: BodySender = open_body_sender(spec, _LANES, api=api)

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    @property
    def clock_offset_seconds(self) -> float:
        """How far the service's clock is ahead of this machine's; see ``StreamSource``."""
        offset = self._sender.date_offset_seconds if isinstance(self._sender, LightTransport) else None
        return 0.0 if offset is None or abs(offset) < _LEAST_OFFSET_SECONDS else offset

    def events_transport(self) -> LightTransport | None:
        """Return what can take responses of events, or None if botocore sends the requests."""
        return self._sender if isinstance(self._sender, LightTransport) else None

    def send(self, operation: str, body: bytes) -> PendingResponse:
        """Send a request."""
        return self._sender.begin(operation, "", body)

    def settle(self, operation: str, body: bytes, pending: PendingResponse | None = None) -> bytes:
        """Return the response of a request, which is repeated while it fails in a way that may pass."""
        first = [pending]

        def request() -> bytes:
            sent = first.pop() if first else None
            return (sent or self.send(operation, body)).result()

        try:
            return retrying(request, on=_may_pass, attempts=_ATTEMPTS, base_seconds=_BASE_SECONDS)
        except (BotoCoreError, ClientError) as error:
            match error_code(error):
                case "TrimmedDataAccessException":
                    raise TrimmedError(str(error)) from None
                case "ExpiredIteratorException":
                    raise ExpiredError(str(error)) from None
            action = f"{_ACTIONS[self._service]}:{operation}"
            raise to_ddbio_error(error, action=action, resource=self._resource) from error

    def call(self, operation: str, asked: dict[str, Any]) -> Any:
        """Return the parsed response of a request."""
        return json.loads(self.settle(operation, json.dumps(asked).encode()))


class DynamoDBStreamSource(ShardService):
    """Read the shards of one stream of DynamoDB.

    Parameters
    ----------
    limit
        Records of a reply at most; the service itself gives 1,000 or 1 MB.
    """

    keeps_seconds = math.inf
    pushes = False

    def __init__(self, spec: ClientSpec, arn: str, limit: int | None = None) -> None:
        super().__init__(spec, STREAMS, f"stream {arn}")
        self._arn, self._limit = arn, limit

    @property
    def name(self) -> str:
        """Return the stream's ARN."""
        return self._arn

    @property
    def polling(self) -> DynamoDBStreamSource:
        """Return itself."""
        return self

    def pause_after(self, _: int) -> float:
        """Return no pause: the loop's own suffice."""
        return 0.0

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""
        found, after = list[Shard](), None
        while True:
            asked = {"StreamArn": self._arn} | ({"ExclusiveStartShardId": after} if after else {})
            described = self.call("DescribeStream", asked)["StreamDescription"]
            found += [_shard(each) for each in described["Shards"]]
            after = described.get("LastEvaluatedShardId")
            if after is None:
                return found

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over a shard from behind a position; raise TrimmedError if that is gone."""
        asked = {"StreamArn": self._arn, "ShardId": shard.shard_id}
        if position in {HORIZON, LATEST}:
            asked |= {"ShardIteratorType": HORIZON}
        elif position == FIRST:
            asked |= {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": shard.first}
        else:
            asked |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position}
        try:
            return str(self.call("GetShardIterator", asked)["ShardIterator"])
        except NotFoundError as error:
            # The shard itself is gone.
            raise TrimmedError(str(error)) from None

    def begin(self, iterator: str) -> PendingRecords:
        """Ask for the next records."""
        asked: dict[str, Any] = {"ShardIterator": iterator}
        if self._limit is not None:
            asked["Limit"] = self._limit
        return PendingRecords(self, json.dumps(asked).encode())


class PendingRecords:
    """A request for records that was sent."""

    def __init__(self, source: ShardService, body: bytes) -> None:
        self._source, self._body = source, body
        self._pending: PendingResponse | None
        try:
            self._pending = source.send("GetRecords", body)
        except (BotoCoreError, ClientError) as error:
            if not _may_pass(error):
                raise
            self._pending = None

    def result(self) -> bytes:
        """Return the body; raise TrimmedError or ExpiredError."""
        return self._source.settle("GetRecords", self._body, self._pending)


def _may_pass(error: Exception) -> bool:
    return may_pass(error) or error_code(error) == _THROTTLED


def _shard(described: dict[str, Any]) -> Shard:
    numbers, parent = described["SequenceNumberRange"], described.get("ParentShardId")
    return Shard(
        described["ShardId"],
        () if parent is None else (parent,),
        numbers["StartingSequenceNumber"],
        numbers.get("EndingSequenceNumber"),
    )
