"""Kinds of streams: finding, opening, decoding and pricing the stream of a table, and the base class of their sources.

To add a kind, write a module with a source and an object of :class:`StreamKind`, and register the object in
``stream_registry.py``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ddbio.aws.error_codes import BotoCoreError, ClientError, error_code, may_pass, to_ddbio_error
from ddbio.aws.transport import LightTransport, open_body_sender
from ddbio.cdc.shards import ExpiredError, Shard, TrimmedError
from ddbio.errors import NotFoundError
from ddbio.retrying import retrying

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.connection_pool import PendingResponse
    from ddbio.aws.endpoint_route import Api
    from ddbio.aws.transport import BodySender
    from ddbio.cdc.log_rows import LogDecoder
    from ddbio.cdc.options import CaptureOptions
    from ddbio.jobs.estimate import Part

_LANES = 16
ATTEMPTS, BASE_SECONDS = 9, 0.2
"""Attempts for a request. Together they take about one minute."""
_THROTTLED = "LimitExceededException"
# The dates of responses are whole seconds, and responses take time. A smaller offset is not a difference between
# clocks.
_MIN_OFFSET_SECONDS = 2.0


class Reply(Protocol):
    """A request for records that was sent."""

    def result(self) -> bytes | None:
        """Return the body, or None if the source pushes records and none have arrived yet.

        Raises
        ------
        TrimmedError
            If records at the position were trimmed.
        ExpiredError
            If the iterator expired.
        """


class StreamSource(Protocol):
    """Reader of the shards of one stream."""

    @property
    def name(self) -> str:
        """Return the name of the stream, for messages."""

    @property
    def pushes(self) -> bool:
        """Return whether the service pushes records, as enhanced fan-out does."""

    @property
    def polling(self) -> StreamSource:
        """Return a source of the same records that replies to each request. A polling source returns itself."""

    @property
    def keeps_seconds(self) -> float:
        """Return the retention period, or infinity if the service reports expired records itself."""

    @property
    def clock_offset_seconds(self) -> float:
        """Return the offset of the service's clock from this machine's, from the dates of its responses.

        The true offset is at most one second larger. Offsets below two seconds are 0.
        """

    def pause_after(self, size_bytes: int) -> float:
        """Return the pause of a shard after a reply of this size, in seconds."""

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over the records of a shard after a position.

        Raises
        ------
        TrimmedError
            If records after the position were trimmed.
        """

    def begin(self, iterator: str) -> Reply:
        """Send a request for the next records. The reply has the format of GetRecords."""

    def close(self) -> None:
        """Close the connections that only this source uses."""


class StreamKind(ABC):
    """Kind of streams, such as DynamoDB Streams or Kinesis.

    Attributes
    ----------
    name
        The name in the option ``source``.
    title
        The name in messages.
    arn_part
        A part of the ARN that all streams of the kind share.
    is_of_table
        Whether a stream belongs to one table. Such a stream has only the changes of this table, its ARN names the
        table, and it gets no more shards after it was turned off. A stream of another kind can have the changes of
        several tables.
    has_event_ids
        Whether changes have event ids. Such a change can arrive more than once, and the capture assigns its sequence
        number. Otherwise each change arrives once, with a sequence number of the stream.
    record_time
        Matches the time of the first record of a reply, in seconds since 1970.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    arn_part: ClassVar[str]
    is_of_table: ClassVar[bool]
    has_event_ids: ClassVar[bool]
    record_time: ClassVar[re.Pattern[bytes]]

    @abstractmethod
    def find(self, options: CaptureOptions, spec: ClientSpec, described: Mapping[str, Any]) -> str:
        """Return the ARN of the stream of a table. ``described`` is the ``Table`` of DescribeTable.

        Raises
        ------
        OptionError
            If the table has no stream, or its stream lacks the images that a log needs.
        """

    @abstractmethod
    def open(self, spec: ClientSpec, arn: str, fan_out: str | None = None) -> StreamSource:
        """Return the source of a stream.

        Parameters
        ----------
        fan_out
            The name or ARN of a consumer of the stream, for enhanced fan-out.
        """

    @abstractmethod
    def decoder(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool) -> LogDecoder:
        """Return the decoder of replies to rows of the log of a table."""

    @abstractmethod
    def changes_in(self, body: bytes, table: str) -> tuple[bytes, int]:
        """Return the changes of a table in a reply, as text, and the number of other records."""

    @abstractmethod
    def read_cost(self, reads: int, size_bytes: int) -> Part:
        """Return the cost of reading the stream, from the number of requests and the bytes of all replies."""

    def table_arn(self, arn: str) -> str:
        """Return the ARN of the table of a stream, or an empty string if the stream does not belong to one table."""
        del arn
        return ""

    def began_at(self, arn: str) -> float | None:
        """Return the time at which a stream was turned on, in seconds since 1970, or None if the ARN lacks it."""
        del arn
        return None


class PollingSource(ABC):
    """Base class of sources that poll the shards of a stream. Requests with transient errors are retried."""

    api: ClassVar[Api]
    permissions: ClassVar[str]
    """Prefix of the names of IAM actions."""
    reply_limit: ClassVar[Mapping[str, int]] = {}
    """The maximum number of records in a reply. Empty for the default of the service."""
    pushes = False

    def __init__(self, spec: ClientSpec, arn: str) -> None:
        self.name = arn
        self._sender: BodySender = open_body_sender(spec, _LANES, api=self.api)

    @property
    def polling(self) -> PollingSource:
        """Return itself."""
        return self

    @property
    @abstractmethod
    def keeps_seconds(self) -> float:
        """Return the retention period; see ``StreamSource``."""

    @property
    def clock_offset_seconds(self) -> float:
        """Return the offset of the service's clock from this machine's; see ``StreamSource``."""
        offset = self._sender.date_offset_seconds if isinstance(self._sender, LightTransport) else None
        return 0.0 if offset is None or abs(offset) < _MIN_OFFSET_SECONDS else offset

    @abstractmethod
    def pause_after(self, size_bytes: int) -> float:
        """Return the pause of a shard after a reply of this size, in seconds."""

    @abstractmethod
    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""

    @abstractmethod
    def iterator_request(self, shard: Shard, position: str) -> dict[str, str]:
        """Return the request for an iterator over a shard after a position."""

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over a shard after a position. Raises TrimmedError if the shard is gone."""
        try:
            return str(self.call("GetShardIterator", self.iterator_request(shard, position))["ShardIterator"])
        except NotFoundError as error:
            # The shard itself is gone.
            raise TrimmedError(str(error)) from None

    def begin(self, iterator: str) -> PendingRecords:
        """Send a request for the next records."""
        return PendingRecords(self, json.dumps({"ShardIterator": iterator, **self.reply_limit}).encode())

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def events_transport(self) -> LightTransport | None:
        """Return the transport for event streams, or None if botocore sends the requests."""
        return self._sender if isinstance(self._sender, LightTransport) else None

    def send(self, operation: str, body: bytes) -> PendingResponse:
        """Send a request."""
        return self._sender.begin(operation, "", body)

    def settle(self, operation: str, body: bytes, pending: PendingResponse | None = None) -> bytes:
        """Return the response of a request. Transient errors are retried."""
        first = [pending]

        def request() -> bytes:
            sent = first.pop() if first else None
            return (sent or self.send(operation, body)).result()

        try:
            return retrying(request, on=_may_pass, attempts=ATTEMPTS, base_seconds=BASE_SECONDS)
        except (BotoCoreError, ClientError) as error:
            match error_code(error):
                case "TrimmedDataAccessException":
                    raise TrimmedError(str(error)) from None
                case "ExpiredIteratorException":
                    raise ExpiredError(str(error)) from None
            action = f"{self.permissions}:{operation}"
            raise to_ddbio_error(error, action=action, resource=f"stream {self.name}") from error

    def call(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        """Return the parsed response of a request."""
        return json.loads(self.settle(operation, json.dumps(parameters).encode()))


class PendingRecords:
    """A request for records that was sent."""

    def __init__(self, source: PollingSource, body: bytes) -> None:
        self._source, self._body = source, body
        self._pending: PendingResponse | None
        try:
            self._pending = source.send("GetRecords", body)
        except (BotoCoreError, ClientError) as error:
            if not _may_pass(error):
                raise
            self._pending = None

    def result(self) -> bytes:
        """Return the body. Raises TrimmedError or ExpiredError."""
        return self._source.settle("GetRecords", self._body, self._pending)


def _may_pass(error: Exception) -> bool:
    return may_pass(error) or error_code(error) == _THROTTLED


def parse_shard(described: Mapping[str, Any]) -> Shard:
    """Return a shard from its description by the service."""
    numbers = described["SequenceNumberRange"]
    parents = (described.get(name) for name in ("ParentShardId", "AdjacentParentShardId"))
    return Shard(
        described["ShardId"],
        tuple(parent for parent in parents if parent is not None),
        numbers["StartingSequenceNumber"],
        numbers.get("EndingSequenceNumber"),
    )
