"""Calls of Kinesis Data Streams, and those that send a table's changes to a data stream."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import Refusal, in_use, invalid, not_found
from ddbio.testing.tables.kinesis import (
    BYTES_PER_SECOND,
    HASH_KEYS,
    MAX_RECORD_KIB,
    MIN_RECORD_KIB,
    RETENTION_SECONDS,
    DataStream,
    Destination,
    record_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.testing.request import Request
    from ddbio.testing.server import Chunks
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.kinesis import KinesisShard
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html
_MAX_RECORDS, _MAX_BYTES = 10_000, 10 * 1024 * 1024
ITERATOR_SECONDS = 5 * 60
# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
_MAX_PUT_RECORDS, _MAX_PUT_BYTES = 500, 10 * 1024 * 1024
# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_ListShards.html
_MAX_SHARDS = 10_000
_DEFAULT_SHARDS = 1_000
_ITERATORS = ("TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "AT_TIMESTAMP")
_ARN = re.compile(r"arn:[^:]*:kinesis:[^:]*:[^:]*:stream/([a-zA-Z0-9_.-]+)")
_PRECISIONS = ("MILLISECOND", "MICROSECOND")


def create_stream(database: Database, request: Request) -> dict[str, Any]:
    """Create a data stream, which is active immediately."""
    name = request.required("StreamName")
    if name in database.data_streams:
        raise Refusal("ResourceInUseException", f"Stream {name} under account 000000000000 already exists.")
    arn = f"arn:aws:kinesis:us-east-1:000000000000:stream/{name}"
    stream = DataStream(name, arn, database.wall_clock.now)
    stream.max_record_kib = _record_kib(request)
    stream.open(request.integer("ShardCount", 1, _MAX_SHARDS) or 4)
    database.data_streams[name] = stream
    return {}


def delete_stream(database: Database, request: Request) -> dict[str, Any]:
    """Delete a data stream."""
    del database.data_streams[_stream(database, request).name]
    return {}


def describe_stream_summary(database: Database, request: Request) -> dict[str, Any]:
    """Describe a data stream without its shards."""
    stream = _stream(database, request)
    described = {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        "RetentionPeriodHours": RETENTION_SECONDS // 3600,
        "StreamCreationTimestamp": round(stream.created_at, 3),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
        "OpenShardCount": len(stream.open_shards()),
        "ConsumerCount": len(stream.consumers),
        "MaxRecordSizeInKiB": stream.max_record_kib,
    }
    return {"StreamDescriptionSummary": described}


def update_max_record_size(database: Database, request: Request) -> dict[str, Any]:
    """Set the maximum size of the records of a data stream."""
    stream = stream_by_arn(database, request.required("StreamARN"))
    request.required("MaxRecordSizeInKiB")
    stream.max_record_kib = _record_kib(request)
    return {}


def _record_kib(request: Request) -> int:
    return request.integer("MaxRecordSizeInKiB", MIN_RECORD_KIB, MAX_RECORD_KIB) or MIN_RECORD_KIB


def list_data_streams(database: Database, request: Request) -> dict[str, Any]:
    """List the names of data streams."""
    limit = request.integer("Limit", 1, _MAX_SHARDS) or 100
    after = request.text("ExclusiveStartStreamName") or request.text("NextToken") or ""
    names = [name for name in sorted(database.data_streams) if name > after]
    reply: dict[str, Any] = {"StreamNames": names[:limit], "HasMoreStreams": len(names) > limit}
    return reply | ({"NextToken": names[limit - 1]} if len(names) > limit else {})


def list_shards(database: Database, request: Request) -> dict[str, Any]:
    """List a page of the shards of a data stream, in the order of their ids."""
    name, _, after = (request.text("NextToken") or "||").partition("|")
    stream = _named(database, name) if name else _stream(database, request)
    stream.trim()
    wanted = request.mapping("ShardFilter") or {}
    if wanted.get("Type") == "AFTER_SHARD_ID":
        after = wanted["ShardId"]
    after = request.text("ExclusiveStartShardId") or after.strip("|")
    open_only = wanted.get("Type") == "AT_LATEST"
    limit = request.integer("MaxResults", 1, _MAX_SHARDS) or _DEFAULT_SHARDS
    shards = [
        shard
        for shard_id, shard in sorted(stream.shards.items())
        if shard_id > after and (shard.ending is None or not open_only)
    ]
    reply: dict[str, Any] = {"Shards": [shard.describe() for shard in shards[:limit]]}
    return reply | ({"NextToken": f"{stream.name}|{shards[limit - 1].shard_id}"} if len(shards) > limit else {})


def get_shard_iterator(database: Database, request: Request) -> dict[str, Any]:
    """Return an iterator over a shard's records from a position."""
    stream = _stream(database, request)
    shard = shard_of(stream, request.required("ShardId"))
    kind = request.text("ShardIteratorType", _ITERATORS) or request.required("ShardIteratorType")
    sequence = start_sequence(
        stream, shard, kind, request.text("StartingSequenceNumber"), request.members.get("Timestamp")
    )
    return {"ShardIterator": _iterator(database, stream, shard, sequence)}


def start_sequence(stream: DataStream, shard: KinesisShard, kind: str, number: str | None, at: float | None) -> int:
    """Return the sequence number at which a read of a shard starts."""
    stream.trim()
    match kind:
        case "TRIM_HORIZON":
            return shard.records[0].sequence if shard.records else shard.starting
        case "LATEST":
            return shard.records[-1].sequence + 1 if shard.records else shard.starting
        case "AT_TIMESTAMP":
            late = [record.sequence for record in shard.records if record.arrived_at >= float(at or 0.0)]
            return late[0] if late else (shard.records[-1].sequence + 1 if shard.records else shard.starting)
    if number is None or not number.isdecimal():
        raise bad_argument("StartingSequenceNumber is required for " + kind)
    # Trimmed records are skipped silently.
    sequence = int(number) + (kind == "AFTER_SEQUENCE_NUMBER")
    if sequence < shard.starting or (shard.ending is not None and sequence > shard.ending + 1):
        raise bad_argument(f"StartingSequenceNumber {number} used on shard {shard.shard_id} is invalid")
    return sequence


def get_records(database: Database, request: Request) -> Chunks:
    """Return the next records of a shard: at most 10,000 and 10 MiB per call, 5 calls per second and 2 MiB/s."""
    try:
        name, shard_id, sequence, issued_at = json.loads(
            base64.b64decode(request.required("ShardIterator"), validate=True)
        )
    except (ValueError, binascii.Error):
        raise bad_argument("Invalid ShardIterator.") from None
    stream = _named(database, name)
    shard = shard_of(stream, shard_id)
    limit = request.integer("Limit", 1, _MAX_RECORDS) or _MAX_RECORDS
    if database.wall_clock.now() - issued_at > ITERATOR_SECONDS:
        raise Refusal("ExpiredIteratorException", "Iterator expired. The iterator was created more than 5 minutes ago.")
    clock = database.clock()
    if not shard.admit(clock):
        raise Refusal("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard_id} in stream {name}.")
    stream.trim()
    stream.deliver()
    first = last = shard.from_sequence(sequence)
    size_bytes = 0
    while last < min(first + limit, len(shard.records)):
        if last > first and size_bytes + shard.records[last].size_bytes > _MAX_BYTES:
            break
        size_bytes += shard.records[last].size_bytes
        last += 1
    records = shard.records[first:last]
    shard.free_at = clock + size_bytes / BYTES_PER_SECOND
    after = records[-1].sequence + 1 if records else sequence
    reply: Chunks = [b'{"Records":[', b",".join(record.json for record in records), b"]"]
    if shard.ending is None or last < len(shard.records):
        behind = 0 if last == len(shard.records) else database.wall_clock.now() - shard.records[last].arrived_at
        reply += [b',"NextShardIterator":"', _iterator(database, stream, shard, after).encode(), b'"']
        reply += [f',"MillisBehindLatest":{int(behind * 1000)}}}'.encode()]
        return reply
    children = children_of(stream, shard_id)
    return [*reply, b',"MillisBehindLatest":0,"ChildShards":', json.dumps(children).encode(), b"}"]


def children_of(stream: DataStream, shard_id: str) -> list[dict[str, Any]]:
    """Return the children of a shard in the format of replies."""
    return [
        {"ShardId": shard.shard_id, "ParentShards": list(shard.parents), **shard.hash_range()}
        for shard in stream.shards.values()
        if shard_id in shard.parents
    ]


def put_record(database: Database, request: Request) -> dict[str, Any]:
    """Add a record to a data stream."""
    return _put(_stream(database, request), [request.members])[0]


def put_records(database: Database, request: Request) -> dict[str, Any]:
    """Add records to a data stream."""
    stream, records = _stream(database, request), request.members["Records"]
    if len(records) > _MAX_PUT_RECORDS:
        raise bad_argument(f"PutRecords has {len(records)} records, at most {_MAX_PUT_RECORDS} are allowed.")
    return {"FailedRecordCount": 0, "Records": _put(stream, records)}


def split_shard(database: Database, request: Request) -> dict[str, Any]:
    """Split a shard at a hash key."""
    stream = _stream(database, request)
    shard, at = _open(stream, request.required("ShardToSplit")), int(request.required("NewStartingHashKey"))
    if not shard.hashes[0] < at <= shard.hashes[1]:
        raise bad_argument(f"NewStartingHashKey {at} used in SplitShard() on shard {shard.shard_id} is not valid")
    stream.split(shard, at)
    return {}


def merge_shards(database: Database, request: Request) -> dict[str, Any]:
    """Merge two adjacent shards."""
    stream = _stream(database, request)
    shard = _open(stream, request.required("ShardToMerge"))
    other = _open(stream, request.required("AdjacentShardToMerge"))
    low, high = sorted((shard, other), key=lambda item: item.hashes)
    if low.hashes[1] + 1 != high.hashes[0]:
        raise bad_argument(
            f"Shards {shard.shard_id} and {other.shard_id} are not an adjacent pair of shards eligible for merging"
        )
    stream.merge(shard, other)
    return {}


def enable_destination(database: Database, request: Request) -> dict[str, Any]:
    """Start to send the changes of a table to a data stream."""
    table, stream = database.table(request), stream_by_arn(database, request.required("StreamArn"))
    if table.name in stream.destinations and stream.destinations[table.name].status == "ACTIVE":
        raise in_use(f"Table is already in the process of streaming to {stream.arn}, or does so")
    configured = request.mapping("EnableKinesisStreamingConfiguration") or {}
    precision = configured.get("ApproximateCreationDateTimePrecision", _PRECISIONS[0])
    if precision not in _PRECISIONS:
        raise invalid(f"ApproximateCreationDateTimePrecision must be one of {', '.join(_PRECISIONS)}")
    destination = Destination(
        stream=stream,
        table=table.name,
        keys=table.keys,
        random=database.fault_injector.random,
        faults=database.faults,
        precision=precision,
    )
    stream.destinations[table.name] = destination
    table.store.listeners[f"kinesis {stream.name}"] = destination.add
    return _changed(table, stream, "ENABLING")


def disable_destination(database: Database, request: Request) -> dict[str, Any]:
    """Stop sending the changes of a table to a data stream."""
    table, stream = database.table(request), stream_by_arn(database, request.required("StreamArn"))
    if table.name not in stream.destinations:
        raise not_found(f"Table {table.name} does not stream to {stream.arn}")
    stream.destinations[table.name].status = "DISABLED"
    table.store.listeners.pop(f"kinesis {stream.name}", None)
    return _changed(table, stream, "DISABLING")


def describe_destination(database: Database, request: Request) -> dict[str, Any]:
    """Describe the data streams that receive the changes of a table."""
    table = database.table(request)
    return {
        "TableName": table.name,
        "KinesisDataStreamDestinations": [
            {
                "StreamArn": stream.arn,
                "DestinationStatus": stream.destinations[table.name].status,
                "ApproximateCreationDateTimePrecision": stream.destinations[table.name].precision,
            }
            for stream in database.data_streams.values()
            if table.name in stream.destinations
        ],
    }


def _changed(table: Table, stream: DataStream, status: str) -> dict[str, Any]:
    return {"TableName": table.name, "StreamArn": stream.arn, "DestinationStatus": status}


def _put(stream: DataStream, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add all records of a request, or none if one is invalid."""
    data = [base64.b64decode(record["Data"]) for record in records]
    for record, value in zip(records, data, strict=True):
        hash_key = record.get("ExplicitHashKey")
        if hash_key is not None and not 0 <= int(hash_key) < HASH_KEYS:
            raise bad_argument("Invalid ExplicitHashKey.")
        if not stream.accepts(record["PartitionKey"], value):
            size_kib = stream.max_record_kib
            raise bad_argument(f"A record exceeds the maximum record size of stream {stream.name}: {size_kib} KiB.")
    size_bytes = sum(record_bytes(record["PartitionKey"], value) for record, value in zip(records, data, strict=True))
    if size_bytes > _MAX_PUT_BYTES:
        raise bad_argument(f"The request has {size_bytes} bytes of records; at most {_MAX_PUT_BYTES} are allowed.")
    placed = []
    for record, value in zip(records, data, strict=True):
        hash_key = record.get("ExplicitHashKey")
        shard_id, sequence = stream.put(record["PartitionKey"], value, None if hash_key is None else int(hash_key))
        placed.append({"ShardId": shard_id, "SequenceNumber": str(sequence)})
    return placed


def _iterator(database: Database, stream: DataStream, shard: KinesisShard, sequence: int) -> str:
    token = json.dumps([stream.name, shard.shard_id, sequence, database.wall_clock.now()])
    return base64.b64encode(token.encode()).decode()


def _stream(database: Database, request: Request) -> DataStream:
    arn = request.text("StreamARN")
    return stream_by_arn(database, arn) if arn is not None else _named(database, request.required("StreamName"))


def stream_by_arn(database: Database, arn: str) -> DataStream:
    """Return the data stream of an ARN."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise invalid(f"Invalid StreamArn: {arn}")
    return _named(database, match[1])


def _named(database: Database, name: str) -> DataStream:
    if name not in database.data_streams:
        raise Refusal("ResourceNotFoundException", f"Stream {name} under account 000000000000 not found.")
    return database.data_streams[name]


def shard_of(stream: DataStream, shard_id: str) -> KinesisShard:
    """Return a shard of a data stream."""
    if shard_id not in stream.shards:
        raise Refusal("ResourceNotFoundException", f"Shard {shard_id} in stream {stream.name} does not exist.")
    return stream.shards[shard_id]


def _open(stream: DataStream, shard_id: str) -> KinesisShard:
    shard = shard_of(stream, shard_id)
    if shard.ending is not None:
        raise Refusal("ResourceInUseException", f"Shard {shard_id} in stream {stream.name} is closed.")
    return shard


def bad_argument(message: str) -> Refusal:
    """Return Kinesis's InvalidArgumentException."""
    return Refusal("InvalidArgumentException", message)


OPERATIONS: dict[str, Callable[[Database, Request], dict[str, Any] | Chunks]] = {
    "CreateStream": create_stream,
    "DeleteStream": delete_stream,
    "DescribeStreamSummary": describe_stream_summary,
    "GetRecords": get_records,
    "GetShardIterator": get_shard_iterator,
    "ListShards": list_shards,
    "ListStreams": list_data_streams,
    "MergeShards": merge_shards,
    "PutRecord": put_record,
    "PutRecords": put_records,
    "SplitShard": split_shard,
    "UpdateMaxRecordSize": update_max_record_size,
}
"""The calls of Kinesis itself, by name."""
