"""Kinesis data streams: records in shards by the hash of their partition key. Shards are split, merged and trimmed.

A table that sends its changes to a stream sends some of them twice or out of order, as the faults of the server
configure.
"""

from __future__ import annotations

import base64
import hashlib
import json
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ddbio.testing.pricing import item_bytes
from ddbio.testing.request import to_json
from ddbio.testing.tables.streams import is_same_item

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ddbio.items.attribute import Item
    from ddbio.testing.faults import Faults
    from ddbio.testing.tables.table import Key, KeySchema, Stored

# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_HashKeyRange.html
HASH_KEYS = 2**128
# https://docs.aws.amazon.com/streams/latest/dev/kinesis-extended-retention.html
RETENTION_SECONDS = 24 * 3600
# https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html
READS_PER_SECOND, BYTES_PER_SECOND = 5, 2 * 1024 * 1024
# https://docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateMaxRecordSize.html. The minimum is the default.
MIN_RECORD_KIB, MAX_RECORD_KIB = 1_024, 10_240
_FIRST_SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
_SEQUENCE_STEP = 16
_RECENT = 20
_MAX_DELAY = 4
_EXPIRY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}


class KinesisRecord(NamedTuple):
    """One record: its sequence number, its arrival time, the size of its key and data, and its text in a reply."""

    sequence: int
    arrived_at: float
    size_bytes: int
    json: bytes


@dataclass(slots=True)
class KinesisShard:
    """Records of a range of hash keys. The shard is closed once it has an ending."""

    shard_id: str
    parents: tuple[str, ...]
    hashes: tuple[int, int]
    """The first hash key and the last one."""
    starting: int
    ending: int | None = None
    closed_at: float | None = None
    records: list[KinesisRecord] = field(default_factory=list)
    read_at: deque[float] = field(default_factory=lambda: deque(maxlen=READS_PER_SECOND))
    free_at: float = 0.0
    """Time at which the throughput limit allows the next read."""

    def from_sequence(self, sequence: int) -> int:
        """Return the index of the first record with at least this number."""
        return bisect_left(self.records, sequence, key=lambda record: record.sequence)

    def admit(self, now: float) -> bool:
        """Count a read. Return False if the limit of reads or bytes per second is exceeded."""
        if now < self.free_at or (len(self.read_at) == READS_PER_SECOND and now - self.read_at[0] < 1.0):
            return False
        self.read_at.append(now)
        return True

    def describe(self) -> dict[str, Any]:
        """Return the shard in the format of ListShards."""
        numbers = {"StartingSequenceNumber": str(self.starting)}
        if self.ending is not None:
            numbers["EndingSequenceNumber"] = str(self.ending)
        parents = zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False)
        return {"ShardId": self.shard_id, **dict(parents), **self.hash_range(), "SequenceNumberRange": numbers}

    def hash_range(self) -> dict[str, Any]:
        """Return the HashKeyRange."""
        return {"HashKeyRange": dict(zip(("StartingHashKey", "EndingHashKey"), map(str, self.hashes), strict=True))}


@dataclass(slots=True)
class Consumer:
    """An enhanced fan-out consumer: its subscriptions by shard, each with its creation time and number.

    A subscription whose number is no longer present has ended, or another one replaced it.
    """

    name: str
    arn: str
    created_at: float
    subscriptions: dict[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(slots=True)
class DataStream:
    """One data stream. It is not safe for concurrent use."""

    name: str
    arn: str
    now: Callable[[], float]
    created_at: float = 0.0
    max_record_kib: int = MIN_RECORD_KIB
    shards: dict[str, KinesisShard] = field(default_factory=dict)
    destinations: dict[str, Destination] = field(default_factory=dict)
    """By the table that sends its changes."""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    _last: int = field(default=_FIRST_SEQUENCE, init=False)
    _shard_count: int = field(default=0, init=False)

    def open(self, count: int) -> None:
        """Open the first shards."""
        self.created_at = self.now()
        for number in range(count):
            self._open_shard((), (number * HASH_KEYS // count, (number + 1) * HASH_KEYS // count - 1))

    def open_shards(self) -> list[KinesisShard]:
        """Return the shards that accept records."""
        return [shard for shard in self.shards.values() if shard.ending is None]

    def accepts(self, partition_key: str, data: bytes) -> bool:
        """Return whether a record does not exceed the maximum size of the stream."""
        return record_bytes(partition_key, data) <= self.max_record_kib * 1024

    def put(self, partition_key: str, data: bytes, hash_key: int | None = None) -> tuple[str, int]:
        """Add a record and return its shard and its sequence number."""
        if hash_key is None:
            hash_key = int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest())
        shard = next(shard for shard in self.open_shards() if shard.hashes[0] <= hash_key <= shard.hashes[1])
        self._last += _SEQUENCE_STEP
        shown = {
            "SequenceNumber": str(self._last),
            "ApproximateArrivalTimestamp": round(self.now(), 3),
            "Data": base64.b64encode(data).decode(),
            "PartitionKey": partition_key,
        }
        size_bytes = record_bytes(partition_key, data)
        shard.records.append(KinesisRecord(self._last, self.now(), size_bytes, to_json(shown)))
        return shard.shard_id, self._last

    def split(self, shard: KinesisShard, at: int) -> None:
        """Close a shard, and open two children that adjoin at a hash key."""
        self._close(shard)
        self._open_shard((shard.shard_id,), (shard.hashes[0], at - 1))
        self._open_shard((shard.shard_id,), (at, shard.hashes[1]))

    def merge(self, shard: KinesisShard, other: KinesisShard) -> None:
        """Close two adjacent shards, and open their child."""
        for closed in (shard, other):
            self._close(closed)
        low, high = min(shard.hashes[0], other.hashes[0]), max(shard.hashes[1], other.hashes[1])
        self._open_shard((shard.shard_id, other.shard_id), (low, high))

    def trim(self, age_seconds: float = RETENTION_SECONDS) -> None:
        """Delete records of at least this age, and closed shards without records."""
        until = self.now() - age_seconds
        for shard in list(self.shards.values()):
            kept = next(
                (at for at, record in enumerate(shard.records) if record.arrived_at > until), len(shard.records)
            )
            del shard.records[:kept]
            if shard.closed_at is not None and shard.closed_at <= until and not shard.records:
                del self.shards[shard.shard_id]

    def deliver(self) -> None:
        """Advance delayed records by one step."""
        for destination in self.destinations.values():
            destination.deliver()

    def _open_shard(self, parents: tuple[str, ...], hashes: tuple[int, int]) -> None:
        self._last += _SEQUENCE_STEP
        shard_id = f"shardId-{self._shard_count:012}"
        self._shard_count += 1
        self.shards[shard_id] = KinesisShard(shard_id, parents, hashes, self._last)

    def _close(self, shard: KinesisShard) -> None:
        self._last += _SEQUENCE_STEP
        shard.ending, shard.closed_at = self._last, self.now()


@dataclass(slots=True, kw_only=True)
class Destination:
    """Sender of the changes of a table to a data stream."""

    stream: DataStream
    table: str
    keys: KeySchema
    random: Random
    faults: Faults
    precision: str = "MILLISECOND"
    status: str = "ACTIVE"
    expires: bool = False
    """Whether deletes are currently due to time to live."""
    _recent: deque[tuple[str, bytes]] = field(default_factory=lambda: deque(maxlen=_RECENT), init=False)
    _late: list[list[Any]] = field(default_factory=list, init=False)

    def add(self, _: Key, old: Stored | None, new: Stored | None) -> None:
        """Send one write. A write without a change is not sent."""
        if is_same_item(old, new):
            return
        self.deliver()
        key, data = self._record(old, new)
        if self.random.random() < self.faults.late_ratio:
            self._late.append([self.random.randint(1, _MAX_DELAY), key, data])
        else:
            self._put(key, data)
        if self._recent and self.random.random() < self.faults.duplicate_ratio:
            self.stream.put(*self.random.choice(self._recent))

    def deliver(self) -> None:
        """Advance delayed records by one step, and send those that are due."""
        for delayed in list(self._late):
            delayed[0] -= 1
            if delayed[0] <= 0:
                self._late.remove(delayed)
                self._put(delayed[1], delayed[2])

    def _put(self, key: str, data: bytes) -> None:
        """Put a change into the stream, or skip it if it is too large.

        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/kds_using-shards-and-metrics.html
        """
        if self.stream.accepts(key, data):
            self.stream.put(key, data)
            self._recent.append((key, data))

    def _record(self, old: Stored | None, new: Stored | None) -> tuple[str, bytes]:
        images = {"NewImage": new, "OldImage": old}
        items: dict[str, Item] = {name: json.loads(image.json) for name, image in images.items() if image is not None}
        keys = self.keys.part_of(next(iter(items.values())))
        sizes = item_bytes(keys) + sum(map(item_bytes, items.values()))
        scale = 1_000_000 if self.precision == "MICROSECOND" else 1_000
        record = {
            "awsRegion": "us-east-1",
            "eventID": str(UUID(int=self.random.getrandbits(128), version=4)),
            "eventName": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
            "userIdentity": _EXPIRY if self.expires else None,
            "recordFormat": "application/json",
            "tableName": self.table,
            "dynamodb": {
                "ApproximateCreationDateTime": int(self.stream.now() * scale),
                "ApproximateCreationDateTimePrecision": self.precision,
                "Keys": _twice_encoded({"M": keys})["M"],
                **{name: _twice_encoded({"M": item})["M"] for name, item in items.items()},
                "SizeBytes": sizes,
            },
            "eventSource": "aws:dynamodb",
        }
        partition_key = hashlib.md5(to_json(keys), usedforsecurity=False).hexdigest().upper()
        return partition_key, to_json(record)


def record_bytes(partition_key: str, data: bytes) -> int:
    """Return the size of a record: that of its partition key and its data."""
    return len(partition_key.encode()) + len(data)


def _twice_encoded(value: dict[str, Any]) -> dict[str, Any]:
    """Return an attribute value with binary as the service sends it: the base64 of its base64.

    https://github.com/awslabs/amazon-kinesis-client/issues/959
    """
    ((tag, content),) = value.items()
    match tag:
        case "B":
            return {tag: base64.b64encode(content.encode()).decode()}
        case "BS":
            return {tag: [base64.b64encode(element.encode()).decode() for element in content]}
        case "L":
            return {tag: [_twice_encoded(element) for element in content]}
        case "M":
            return {tag: {name: _twice_encoded(element) for name, element in content.items()}}
    return value
