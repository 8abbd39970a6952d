"""The sources that a capture reads: what a source of a stream offers, and which one a stream has.

To add a source, write its class and name it in :func:`open_source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddbio.cdc.change_streams import DynamoDBStreamSource
from ddbio.cdc.fan_out import FanOutSource
from ddbio.cdc.kinesis_streams import KinesisSource

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec
    from ddbio.cdc.shards import Shard


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
        """Return whether records come when there are some, and replies are looks for what has come."""

    @property
    def polling(self) -> StreamSource:
        """Return a source of the same records that replies to each request; this one, if it does."""

    @property
    def keeps_seconds(self) -> float:
        """Return how long records are kept, if the service does not say what it has forgotten; else infinity."""

    @property
    def clock_offset_seconds(self) -> float:
        """Return how far the service's clock is ahead of this machine's, as far as its responses have told.

        That is less than the truth by a second at most; 0 is also said of a difference below two seconds.
        """

    def pause_after(self, size_bytes: int) -> float:
        """Return how long after a request for records that had so many bytes the next one of its shard may be sent."""

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
        """Ask for the next records."""

    def close(self) -> None:
        """Close what only this source uses."""


def is_kinesis(arn: str) -> bool:
    """Return whether a stream is a Kinesis data stream, rather than a stream of a table."""
    return ":kinesis:" in arn


def open_source(spec: ClientSpec, arn: str, fan_out: str | None = None) -> StreamSource:
    """Return the source of a stream.

    Parameters
    ----------
    fan_out
        A consumer of a data stream, by name or ARN, that gets its records by enhanced fan-out.
    """
    if fan_out is not None:
        return FanOutSource(spec, arn, fan_out)
    return KinesisSource(spec, arn) if is_kinesis(arn) else DynamoDBStreamSource(spec, arn)
