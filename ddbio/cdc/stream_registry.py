"""The kinds of streams that a capture reads, by their names and by the ARNs of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.cdc.dynamodb_streams import DYNAMODB_STREAMS
from ddbio.cdc.kinesis_streams import KINESIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.cdc.stream_kind import StreamKind

STREAM_KINDS: dict[str, StreamKind] = {each.name: each for each in (DYNAMODB_STREAMS, KINESIS)}
"""The kinds by their names in the option ``source``."""


def kind_of(arn: str) -> StreamKind:
    """Return the kind of a stream; what is no ARN of another kind counts as a stream of a table."""
    return next((each for each in STREAM_KINDS.values() if each.arn_part in arn), DYNAMODB_STREAMS)


def kind_of_job(head: Mapping[str, Any]) -> StreamKind:
    """Return the kind of the stream whose changes a job writes into a log, by its head."""
    stream = head.get("stream")
    if stream is None:
        # Older heals name no stream, but the table of a data stream. Replays have neither.
        return KINESIS if "table" in head else DYNAMODB_STREAMS
    return kind_of(stream)


def table_arn_of(arn: str) -> str:
    """Return the ARN of the table of a stream; an empty text if the stream does not belong to one table."""
    return kind_of(arn).table_arn(arn)


def table_of_job(head: Mapping[str, Any]) -> str:
    """Return the name of the table whose changes a job writes into a log, or an empty text."""
    return head.get("table") or table_arn_of(str(head.get("stream", ""))).rpartition("/")[2]
