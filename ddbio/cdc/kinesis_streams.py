"""Read Kinesis data streams over the light transport; find the one that the changes of a table go to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ddbio.aws.endpoint_route import KINESIS
from ddbio.aws.error_codes import BotoCoreError, ClientError, may_pass, to_ddbio_error
from ddbio.cdc.change_streams import PendingRecords, ShardService
from ddbio.cdc.shards import FIRST, HORIZON, LATEST, Shard, TrimmedError
from ddbio.errors import NotFoundError, OptionError
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec

_ATTEMPTS, _BASE_SECONDS = 9, 0.2
# https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html: 5 reads a second, 2 MB a second
_SHORTEST_SECONDS, _BYTES_PER_SECOND = 0.201, 2 * 1024 * 1024
# Five times a second: more than the 2 MB that a shard gives, if each has 400 bytes.
_LIMIT = 1_000
_HOUR_SECONDS = 3600


def data_stream_of(spec: ClientSpec, table: str, stream: str | None) -> str:
    """Return the ARN of the data stream that the changes of a table go to.

    Parameters
    ----------
    stream
        Its ARN or its name, where a table has several.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If the table has no such data stream, or several and none is given.
    """
    client: Any = spec.client("dynamodb")
    try:
        described = retrying(
            lambda: client.describe_kinesis_streaming_destination(TableName=table)["KinesisDataStreamDestinations"],
            on=may_pass,
            attempts=_ATTEMPTS,
            base_seconds=_BASE_SECONDS,
        )
    except (BotoCoreError, ClientError) as error:
        action = "dynamodb:DescribeKinesisStreamingDestination"
        raise to_ddbio_error(error, action=action, resource=f"table {table!r}") from error
    arns = [each["StreamArn"] for each in described if each["DestinationStatus"] in {"ACTIVE", "UPDATING"}]
    found = [each for each in arns if stream is None or stream in {each, _name_of(each)}]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise OptionError(f"the changes of {table!r} go to {', '.join(map(_name_of, found))}: give stream")
    if stream is not None and arns:
        raise OptionError(f"the changes of {table!r} do not go to {stream!r}, but to {', '.join(map(_name_of, arns))}")
    raise OptionError(
        f"the changes of {table!r} go to no Kinesis data stream: turn one on (EnableKinesisStreamingDestination), with "
        "timestamps in microseconds"
    )


class KinesisSource(ShardService):
    """Read the shards of one data stream, by polling."""

    def __init__(self, spec: ClientSpec, arn: str) -> None:
        super().__init__(spec, KINESIS, f"stream {arn}")
        self._arn, self._stream = arn, {"StreamName": _name_of(arn)}
        summary = self.call("DescribeStreamSummary", self._stream)["StreamDescriptionSummary"]
        self._keeps_seconds = float(summary["RetentionPeriodHours"]) * _HOUR_SECONDS

    pushes = False

    @property
    def name(self) -> str:
        """Return the stream's ARN."""
        return self._arn

    @property
    def polling(self) -> KinesisSource:
        """Return itself."""
        return self

    @property
    def keeps_seconds(self) -> float:
        """Return how long records are kept: what is older is passed over without a word."""
        return self._keeps_seconds

    def pause_after(self, size_bytes: int) -> float:
        """Return how long a shard rests after a reply, by the limits of the service."""
        return max(_SHORTEST_SECONDS, size_bytes / _BYTES_PER_SECOND)

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""
        found, asked = list[Shard](), self._stream
        while True:
            listed = self.call("ListShards", asked)
            found += [_shard(each) for each in listed["Shards"]]
            if listed.get("NextToken") is None:
                return found
            asked = {"NextToken": listed["NextToken"]}

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over a shard from behind a position; raise TrimmedError if the shard is gone."""
        asked = {**self._stream, "ShardId": shard.shard_id}
        if position in {HORIZON, LATEST, FIRST}:
            asked |= {"ShardIteratorType": HORIZON}
        else:
            asked |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
        try:
            return str(self.call("GetShardIterator", asked)["ShardIterator"])
        except NotFoundError as error:
            raise TrimmedError(str(error)) from None

    def begin(self, iterator: str) -> PendingRecords:
        """Ask for the next records."""
        return PendingRecords(self, json.dumps({"ShardIterator": iterator, "Limit": _LIMIT}).encode())


def _name_of(arn: str) -> str:
    return arn.rpartition("/")[2]


def _shard(described: dict[str, Any]) -> Shard:
    numbers = described["SequenceNumberRange"]
    parents = (described.get(name) for name in ("ParentShardId", "AdjacentParentShardId"))
    return Shard(
        described["ShardId"],
        tuple(each for each in parents if each is not None),
        numbers["StartingSequenceNumber"],
        numbers.get("EndingSequenceNumber"),
    )
