"""Calls of DynamoDB Streams: ListStreams, DescribeStream, GetShardIterator, GetRecords."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import constraint, invalid, not_found, service_refusal
from ddbio.testing.tables.streams import Stream

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.streams import Shard
    from ddbio.testing.tables.table import Table


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_DescribeStream.html
_MAX_SHARDS = _MAX_STREAMS = 100
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_GetRecords.html
_MAX_RECORDS, _MAX_BYTES = 1000, 1_000_000
ITERATOR_SECONDS = 15 * 60
_ITERATORS = ("TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "AT_TIMESTAMP")
_WITH_SEQUENCE = ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")
_ARN = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/[^/]+/stream/.+")


def open_stream(database: Database, table: Table) -> None:
    """Start to record the writes of a table whose stream was turned on."""
    described, at = table.description, database.wall_clock.now()
    # Earlier streams of the table stay, and each has its own label.
    while (arn := f"{table.arn}/stream/{_label(at)}") in database.streams:
        at += 0.001
    described |= {"LatestStreamLabel": _label(at), "LatestStreamArn": arn}
    stream = Stream(
        arn=arn,
        label=_label(at),
        view=described["StreamSpecification"]["StreamViewType"],
        table=table.name,
        keys=table.keys,
        now=database.wall_clock.now,
        random=database.fault_injector.random,
        merge_ratio=database.faults.merge_ratio,
    )
    stream.open(table.throughput.partitions)
    database.streams[stream.arn] = table.stream = stream
    table.store.listeners["stream"] = stream.add


def _label(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")


def close_stream(table: Table) -> None:
    """Stop recording the writes of a table."""
    table.store.listeners.pop("stream", None)
    if table.stream is not None:
        table.stream.close()
        table.stream = None


def list_streams(database: Database, request: Request) -> dict[str, Any]:
    """List the ARNs of streams of one table or of all tables, including deleted tables."""
    table = request.table_name() if "TableName" in request.members else None
    limit = request.integer("Limit", 1, _MAX_STREAMS) or _MAX_STREAMS
    after = request.text("ExclusiveStartStreamArn") or ""
    arns = [arn for arn in sorted(database.streams) if arn > after and table in (None, database.streams[arn].table)]
    listed = [database.streams[arn] for arn in arns[:limit]]
    reply: dict[str, Any] = {
        "Streams": [
            {"StreamArn": stream.arn, "TableName": stream.table, "StreamLabel": stream.label} for stream in listed
        ]
    }
    if len(arns) > limit:
        reply["LastEvaluatedStreamArn"] = arns[limit - 1]
    return reply


def describe_stream(database: Database, request: Request) -> dict[str, Any]:
    """Describe a stream and a page of its shards, in the order of their ids."""
    stream = _stream(database, request.required("StreamArn"))
    limit = request.integer("Limit", 1, _MAX_SHARDS) or _MAX_SHARDS
    after = request.text("ExclusiveStartShardId") or ""
    wanted = request.mapping("ShardFilter")
    if wanted is not None and (wanted.get("Type") != "CHILD_SHARDS" or not wanted.get("ShardId")):
        raise invalid("ShardFilter needs the Type CHILD_SHARDS and a ShardId")
    shards = [
        shard
        for shard_id, shard in sorted(stream.shards.items())
        if shard_id > after and (wanted is None or shard.parent_id == wanted["ShardId"])
    ]
    described: dict[str, Any] = {
        "StreamArn": stream.arn,
        "StreamLabel": stream.label,
        "StreamStatus": "ENABLED" if stream.is_open else "DISABLED",
        "StreamViewType": stream.view,
        "CreationRequestDateTime": round(stream.created_at, 3),
        "TableName": stream.table,
        "KeySchema": [
            {"AttributeName": part.name, "KeyType": kind}
            for part, kind in zip(stream.keys.attributes, ("HASH", "RANGE"), strict=False)
        ],
        "Shards": [shard.describe() for shard in shards[:limit]],
    }
    if len(shards) > limit:
        described["LastEvaluatedShardId"] = shards[limit - 1].shard_id
    return {"StreamDescription": described}


def get_shard_iterator(database: Database, request: Request) -> dict[str, Any]:
    """Return an iterator over a shard's records from a position."""
    stream = _stream(database, request.required("StreamArn"))
    kind = request.text("ShardIteratorType", _ITERATORS) or request.required("ShardIteratorType")
    number = request.text("SequenceNumber")
    if (number is not None) != (kind in _WITH_SEQUENCE):
        raise invalid(f"A SequenceNumber is {'required' if number is None else 'not allowed'} for {kind}")
    shard = stream.shards.get(request.required("ShardId"))
    if shard is None:
        raise not_found(f"Requested resource not found: Shard does not exist: {request.members['ShardId']}")
    return {"ShardIterator": _iterator(database, stream, shard, _start_sequence(database, request, shard, kind))}


def _start_sequence(database: Database, request: Request, shard: Shard, kind: str) -> int:
    if kind == "TRIM_HORIZON":
        return max(shard.oldest, shard.starting)
    if kind == "LATEST":
        # The service's LATEST may be slightly before the end.
        slack = min(database.faults.latest_slack, len(shard.records))
        return shard.records[-slack].sequence if slack else shard.next
    if kind == "AT_TIMESTAMP":
        at = request.required("Timestamp")
        return next((record.sequence for record in shard.records if record.created_at >= at), shard.next)
    try:
        sequence = int(request.members["SequenceNumber"]) + (kind == "AFTER_SEQUENCE_NUMBER")
    except ValueError:
        raise constraint(request.members["SequenceNumber"], "sequenceNumber", r"satisfy pattern: \d+") from None
    if sequence < shard.oldest:
        raise _trimmed()
    return sequence


def get_records(database: Database, request: Request) -> Chunks:
    """Return the next records of a shard: at most 1,000, and at most 1 MB."""
    text = request.text("ShardIterator") or request.required("ShardIterator")
    try:
        arn, _, token = text.rpartition("|")
        shard_id, sequence, issued_at = json.loads(base64.b64decode(token, validate=True))
        stream = database.streams[arn.rpartition("|")[0]]
    except (ValueError, KeyError):
        raise invalid("Invalid ShardIterator") from None
    limit = request.integer("Limit", 1, _MAX_RECORDS) or _MAX_RECORDS
    now = database.wall_clock.now()
    if now - issued_at > ITERATOR_SECONDS:
        raise service_refusal("ExpiredIteratorException", "The iterator is older than 15 minutes")
    stream.trim()
    shard = stream.shards.get(shard_id)
    if shard is None or sequence < shard.oldest:
        raise _trimmed()
    first = last = shard.from_sequence(sequence)
    size_bytes = 0
    while last < min(first + limit, len(shard.records)):
        size_bytes += len(shard.records[last].json)
        if size_bytes > _MAX_BYTES and last > first:
            break
        last += 1
    records = shard.records[first:last]
    after = records[-1].sequence + 1 if records else sequence
    shard.read_to = max(shard.read_to, after)
    reply: Chunks = [b'{"Records":[', b",".join(record.json for record in records), b"]"]
    if shard.ending is None or last < len(shard.records):
        reply += [b',"NextShardIterator":"', _iterator(database, stream, shard, after).encode(), b'"']
    return [*reply, b"}"]


def _iterator(database: Database, stream: Stream, shard: Shard, sequence: int) -> str:
    token = json.dumps([shard.shard_id, sequence, database.wall_clock.now()])
    return f"{stream.arn}|1|{base64.b64encode(token.encode()).decode()}"


def _stream(database: Database, arn: str) -> Stream:
    if _ARN.fullmatch(arn) is None:
        raise invalid("Invalid StreamArn")
    if (stream := database.streams.get(arn)) is not None:
        stream.trim()
        if stream.is_open or stream.shards:
            return stream
        # A disabled stream stays until its records expire.
        del database.streams[arn]
    raise not_found(f"Requested resource not found: Stream: {arn} not found")


def _trimmed() -> Exception:
    return service_refusal(
        "TrimmedDataAccessException", "The operation attempted to read past the oldest stream record in a shard"
    )
