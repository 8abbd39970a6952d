"""A kind of streams: how the stream of a table is found, opened, decoded and priced; and what its sources share.

To add a kind, write its module, with a source and an object of :class:`StreamKind`, and name the object in
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
"""Repetitions of a request, of about a minute together."""
_THROTTLED = "LimitExceededException"
# Dates are whole seconds, and responses take their time: less is no difference between two clocks.
_LEAST_OFFSET_SECONDS = 2.0


class Reply(Protocol):
    """A request for records that was sent."""

    def result(self) -> bytes | None:
        """Return the body, or None if the source sends records when there are some, and none have come yet.

        Raises
        ------
        TrimmedError, ExpiredError
            As their names say.
        """


class StreamSource(Protocol):
    """Read the shards of one stream."""

    @property
    def name(self) -> str:
        """Return the name of the stream, for messages."""

    @property
    def pushes(self) -> bool:
        """Return whether the service pushes records, as enhanced fan-out does; then a reply reads what has arrived."""

    @property
    def polling(self) -> StreamSource:
        """Return a source of the same records that replies to each request; this one, if it does."""

    @property
    def keeps_seconds(self) -> float:
        """Return the retention period, or infinity if the service reports expired records itself."""

    @property
    def clock_offset_seconds(self) -> float:
        """Return the offset of the service's clock from this machine's, by the dates of its responses.

        The true offset is at most one second larger. Offsets below two seconds are 0.
        """

    def pause_after(self, size_bytes: int) -> float:
        """Return the pause of a shard after a reply of so many bytes, in seconds."""

    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over a shard from behind a position.

        Raises
        ------
        TrimmedError
            If records behind the position are gone.
        """

    def begin(self, iterator: str) -> Reply:
        """Ask for the next records, as a reply of GetRecords."""

    def close(self) -> None:
        """Close what only this source uses."""


class StreamKind(ABC):
    """What ddbio knows of a kind of streams.

    Attributes
    ----------
    name
        The name in the option ``source``.
    title
        The name in messages.
    arn_part
        What the ARN of each stream of the kind has.
    is_of_table
        Whether a stream belongs to one table: it has the changes of this table alone, its ARN names it, and no shard is
        added when another stream follows. A stream of another kind may have the changes of several tables.
    has_event_ids
        Whether a change is known by an event id, as it may come again, and is numbered by the capture; otherwise it
        comes once, with a number of its stream.
    record_time
        Finds the time of the first record of a reply, in seconds since 1970.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    arn_part: ClassVar[str]
    is_of_table: ClassVar[bool]
    has_event_ids: ClassVar[bool]
    record_time: ClassVar[re.Pattern[bytes]]

    @abstractmethod
    def find(self, options: CaptureOptions, spec: ClientSpec, described: Mapping[str, Any]) -> str:
        """Return the ARN of the stream of a table, by DescribeTable's ``Table``.

        Raises
        ------
        OptionError
            If there is none that a log can be made of.
        """

    @abstractmethod
    def open(self, spec: ClientSpec, arn: str, fan_out: str | None = None) -> StreamSource:
        """Return the source of a stream.

        Parameters
        ----------
        fan_out
            A consumer of the stream, by name or ARN, that the service sends records to.
        """

    @abstractmethod
    def decoder(self, schema: pa.Schema, keys: Sequence[str], table: str, *, old_image: bool) -> LogDecoder:
        """Return the decoder of replies to rows of the log of a table."""

    @abstractmethod
    def changes_in(self, body: bytes, table: str) -> tuple[bytes, int]:
        """Return the changes of a table that a reply has, as text, and the number of its other records."""

    @abstractmethod
    def read_cost(self, reads: int, size_bytes: int) -> Part:
        """Return the cost of requests for records, by their number and the bytes of all replies."""

    def table_arn(self, arn: str) -> str:
        """Return the ARN of the table of a stream; an empty text if the stream does not belong to one table."""
        del arn
        return ""

    def began_at(self, arn: str) -> float | None:
        """Return when a stream was turned on, in seconds since 1970; None if its ARN does not say it."""
        del arn
        return None


class PollingSource(ABC):
    """Read the shards of one stream by requests; one that fails for a moment is repeated.

    Attributes
    ----------
    name
        The ARN of the stream.
    """

    api: ClassVar[Api]
    permissions: ClassVar[str]
    """What the names of permissions begin with."""
    reply_limit: ClassVar[Mapping[str, int]] = {}
    """How many records a reply may have; nothing leaves it to the service."""
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
        return 0.0 if offset is None or abs(offset) < _LEAST_OFFSET_SECONDS else offset

    @abstractmethod
    def pause_after(self, size_bytes: int) -> float:
        """Return the pause of a shard after a reply of so many bytes, in seconds."""

    @abstractmethod
    def shards(self) -> list[Shard]:
        """Return all shards that can still be read."""

    @abstractmethod
    def iterator_request(self, shard: Shard, position: str) -> dict[str, str]:
        """Return the request for an iterator over a shard from behind a position."""

    def iterator(self, shard: Shard, position: str) -> str:
        """Return an iterator over a shard from behind a position; raise TrimmedError if that is gone."""
        try:
            return str(self.call("GetShardIterator", self.iterator_request(shard, position))["ShardIterator"])
        except NotFoundError as error:
            # The shard itself is gone.
            raise TrimmedError(str(error)) from None

    def begin(self, iterator: str) -> PendingRecords:
        """Ask for the next records."""
        return PendingRecords(self, json.dumps({"ShardIterator": iterator, **self.reply_limit}).encode())

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

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
            return retrying(request, on=_may_pass, attempts=ATTEMPTS, base_seconds=BASE_SECONDS)
        except (BotoCoreError, ClientError) as error:
            match error_code(error):
                case "TrimmedDataAccessException":
                    raise TrimmedError(str(error)) from None
                case "ExpiredIteratorException":
                    raise ExpiredError(str(error)) from None
            action = f"{self.permissions}:{operation}"
            raise to_ddbio_error(error, action=action, resource=f"stream {self.name}") from error

    def call(self, operation: str, asked: Mapping[str, Any]) -> Any:
        """Return the parsed response of a request."""
        return json.loads(self.settle(operation, json.dumps(asked).encode()))


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
        """Return the body; raise TrimmedError or ExpiredError."""
        return self._source.settle("GetRecords", self._body, self._pending)


def _may_pass(error: Exception) -> bool:
    return may_pass(error) or error_code(error) == _THROTTLED


def parse_shard(described: Mapping[str, Any]) -> Shard:
    """Return a shard as the services describe it."""
    numbers = described["SequenceNumberRange"]
    parents = (described.get(name) for name in ("ParentShardId", "AdjacentParentShardId"))
    return Shard(
        described["ShardId"],
        tuple(each for each in parents if each is not None),
        numbers["StartingSequenceNumber"],
        numbers.get("EndingSequenceNumber"),
    )
