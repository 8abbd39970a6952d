"""DynamoDB Streams: the stream of a table, read over the light transport."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.aws.endpoint_route import STREAMS
from ddbio.cdc.log_rows import LogDecoder
from ddbio.cdc.shards import FIRST, HORIZON, LATEST, Shard
from ddbio.cdc.stream_kind import PollingSource, StreamKind, parse_shard
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.cdc.options import CaptureOptions
    from ddbio.jobs.estimate import Part


class DynamoDBStreamSource(PollingSource):
    """Reader of the shards of one DynamoDB stream."""

    api = STREAMS
    permissions = "dynamodb"
    keeps_seconds = math.inf

    def pause_after(self, _: int) -> float:
        """Return 0: the pauses of the capture loop are enough."""
        return 0.0

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""
        shards, after = list[Shard](), None
        while True:
            request = {"StreamArn": self.name} | ({"ExclusiveStartShardId": after} if after else {})
            described = self.call("DescribeStream", request)["StreamDescription"]
            shards += map(parse_shard, described["Shards"])
            after = described.get("LastEvaluatedShardId")
            if after is None:
                return shards

    def iterator_request(self, shard: Shard, position: str) -> dict[str, str]:
        """Return the request for an iterator over a shard after a position."""
        request = {"StreamArn": self.name, "ShardId": shard.shard_id}
        if position in {HORIZON, LATEST}:
            return {**request, "ShardIteratorType": HORIZON}
        if position == FIRST:
            return {**request, "ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": shard.first}
        return {**request, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position}


class _DynamoDBStreams(StreamKind):
    name = "streams"
    title = "DynamoDB Streams"
    arn_part = ":dynamodb:"
    is_of_table = True
    has_event_ids = False
    record_time = re.compile(rb'"ApproximateCreationDateTime"\s*:\s*([0-9.eE+]+)')

    def find(self, options: CaptureOptions, spec: ClientSpec, described: Mapping[str, Any]) -> str:
        del spec
        if options.stream is not None:
            raise OptionError("a table has only one DynamoDB stream: stream names a data stream, with source=kinesis")
        if options.fan_out is not None:
            raise OptionError("fan_out is a consumer of a data stream: use it with source=kinesis")
        table, specification = described["TableName"], described.get("StreamSpecification")
        if not specification or not specification.get("StreamEnabled"):
            raise OptionError(
                f"table {table!r} has no stream: turn one on with the view NEW_AND_OLD_IMAGES or NEW_IMAGE "
                "(UpdateTable)"
            )
        view = specification["StreamViewType"]
        if view in {"KEYS_ONLY", "OLD_IMAGE"}:
            raise OptionError(
                f"the stream of {table!r} has the view {view}, without the items as they are after a change: turn on "
                "another one with NEW_IMAGE or NEW_AND_OLD_IMAGES"
            )
        if options.old_image and view == "NEW_IMAGE":
            raise OptionError(
                f"the stream of {table!r} has the view NEW_IMAGE, without the items as they were before a change: "
                "leave old_image out, or turn on another one with NEW_AND_OLD_IMAGES"
            )
        return str(described["LatestStreamArn"])

    def open(self, spec: ClientSpec, arn: str, fan_out: str | None = None) -> DynamoDBStreamSource:
        del fan_out
        return DynamoDBStreamSource(spec, arn)

    def decoder(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool) -> LogDecoder:
        del table
        return LogDecoder(schema, keys, old_image=old_image)

    def changes_in(self, body: bytes, table: str) -> tuple[bytes, int]:
        del table
        return body, 0

    def read_cost(self, reads: int, size_bytes: int) -> Part:
        del size_bytes
        return "reads of the stream", "stream_reads", reads

    def table_arn(self, arn: str) -> str:
        return arn.partition("/stream/")[0] if self.arn_part in arn else ""

    def began_at(self, arn: str) -> float | None:
        label = arn.rpartition("/stream/")[2]
        try:
            return datetime.fromisoformat(label).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None


DYNAMODB_STREAMS = _DynamoDBStreams()
