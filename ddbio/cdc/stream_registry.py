"""Registry of the kinds of streams that a capture reads, by name and by ARN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.cdc.dynamodb_streams import DYNAMODB_STREAMS
from ddbio.cdc.kinesis_streams import KINESIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.cdc.stream_kind import StreamKind

STREAM_KINDS: dict[str, StreamKind] = {kind.name: kind for kind in (DYNAMODB_STREAMS, KINESIS)}
"""Kinds by their names in the option ``source``."""


def kind_of(arn: str) -> StreamKind:
    """Return the kind of a stream. An ARN of no other kind counts as a stream of a table."""
    return next((kind for kind in STREAM_KINDS.values() if kind.arn_part in arn), DYNAMODB_STREAMS)


def kind_of_job(head: Mapping[str, Any]) -> StreamKind:
    """Return the kind of the stream whose changes a job writes into a log, from the head of the job."""
    stream = head.get("stream")
    if stream is None:
        # Heals of older versions store the table of a data stream, but no stream. Replays store neither.
        return KINESIS if "table" in head else DYNAMODB_STREAMS
    return kind_of(stream)


def table_arn_of(arn: str) -> str:
    """Return the ARN of the table of a stream, or an empty string if the stream does not belong to one table."""
    return kind_of(arn).table_arn(arn)


def table_of_job(head: Mapping[str, Any]) -> str:
    """Return the name of the table whose changes a job writes into a log, or an empty string."""
    return head.get("table") or table_arn_of(str(head.get("stream", ""))).rpartition("/")[2]
