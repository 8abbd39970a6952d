"""Hold Kinesis data streams: records in shards by the hash of their partition key, that are split, merged and trimmed.

A table whose changes go to such a stream sends them twice now and then, and in another order than they were made, as
the faults of the server say.
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
_FIRST_SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
_SEQUENCE_STEP = 16
_RECENT = 20
_LATEST_BY = 4
_EXPIRY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}


class KinesisRecord(NamedTuple):
    """Hold one record: its number, when it came, and its text in a reply."""

    sequence: int
    arrived_at: float
    json: bytes


@dataclass(slots=True)
class KinesisShard:
    """Hold the records of a range of hash keys; closed once it has an ending."""

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
    """When the bytes that were read are paid for."""

    def from_sequence(self, sequence: int) -> int:
        """Return the index of the first record with at least this number."""
        return bisect_left(self.records, sequence, key=lambda record: record.sequence)

    def admit(self, now: float) -> bool:
        """Count a read, unless there were too many, or too many bytes, just before."""
        if now < self.free_at or (len(self.read_at) == READS_PER_SECOND and now - self.read_at[0] < 1.0):
            return False
        self.read_at.append(now)
        return True

    def describe(self) -> dict[str, Any]:
        """Return the shard as ListShards shows it."""
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
    """Hold a consumer to which records are sent: its subscriptions by shard, each the time it was made and its number.

    A subscription whose number is not there any more has ended, or another one has taken it over.
    """

    name: str
    arn: str
    created_at: float
    subscriptions: dict[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(slots=True)
class DataStream:
    """Hold one data stream; not safe for concurrent use."""

    name: str
    arn: str
    now: Callable[[], float]
    created_at: float = 0.0
    shards: dict[str, KinesisShard] = field(default_factory=dict)
    destinations: dict[str, Destination] = field(default_factory=dict)
    """By the tables whose changes come here."""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    _last: int = field(default=_FIRST_SEQUENCE, init=False)
    _shards_made: int = field(default=0, init=False)

    def open(self, count: int) -> None:
        """Open the first shards."""
        self.created_at = self.now()
        for number in range(count):
            self._open_shard((), (number * HASH_KEYS // count, (number + 1) * HASH_KEYS // count - 1))

    def open_shards(self) -> list[KinesisShard]:
        """Return the shards that take records."""
        return [shard for shard in self.shards.values() if shard.ending is None]

    def put(self, partition_key: str, data: bytes, hash_key: int | None = None) -> tuple[str, int]:
        """Add a record; return its shard and its number."""
        if hash_key is None:
            hash_key = int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest())
        shard = next(each for each in self.open_shards() if each.hashes[0] <= hash_key <= each.hashes[1])
        self._last += _SEQUENCE_STEP
        shown = {
            "SequenceNumber": str(self._last),
            "ApproximateArrivalTimestamp": round(self.now(), 3),
            "Data": base64.b64encode(data).decode(),
            "PartitionKey": partition_key,
        }
        shard.records.append(KinesisRecord(self._last, self.now(), to_json(shown)))
        return shard.shard_id, self._last

    def split(self, shard: KinesisShard, at: int) -> None:
        """Close a shard, and open two children that meet at a hash key."""
        self._close(shard)
        self._open_shard((shard.shard_id,), (shard.hashes[0], at - 1))
        self._open_shard((shard.shard_id,), (at, shard.hashes[1]))

    def merge(self, shard: KinesisShard, other: KinesisShard) -> None:
        """Close two neighbours, and open their child."""
        for each in (shard, other):
            self._close(each)
        low, high = min(shard.hashes[0], other.hashes[0]), max(shard.hashes[1], other.hashes[1])
        self._open_shard((shard.shard_id, other.shard_id), (low, high))

    def trim(self, age_seconds: float = RETENTION_SECONDS) -> None:
        """Forget records of at least an age, and closed shards that have none left."""
        until = self.now() - age_seconds
        for shard in list(self.shards.values()):
            kept = next((at for at, each in enumerate(shard.records) if each.arrived_at > until), len(shard.records))
            del shard.records[:kept]
            if shard.closed_at is not None and shard.closed_at <= until and not shard.records:
                del self.shards[shard.shard_id]

    def deliver(self) -> None:
        """Let what is on its way to the stream come nearer."""
        for each in self.destinations.values():
            each.deliver()

    def _open_shard(self, parents: tuple[str, ...], hashes: tuple[int, int]) -> None:
        self._last += _SEQUENCE_STEP
        shard_id = f"shardId-{self._shards_made:012}"
        self._shards_made += 1
        self.shards[shard_id] = KinesisShard(shard_id, parents, hashes, self._last)

    def _close(self, shard: KinesisShard) -> None:
        self._last += _SEQUENCE_STEP
        shard.ending, shard.closed_at = self._last, self.now()


@dataclass(slots=True, kw_only=True)
class Destination:
    """Send the changes of a table to a data stream."""

    stream: DataStream
    table: str
    keys: KeySchema
    random: Random
    faults: Faults
    precision: str = "MILLISECOND"
    status: str = "ACTIVE"
    expires: bool = False
    """Whether what is deleted now has passed its time to live."""
    _recent: deque[tuple[str, bytes]] = field(default_factory=lambda: deque(maxlen=_RECENT), init=False)
    _late: list[list[Any]] = field(default_factory=list, init=False)

    def add(self, _: Key, old: Stored | None, new: Stored | None) -> None:
        """Send one write; a write that changes nothing is not sent."""
        if is_same_item(old, new):
            return
        self.deliver()
        key, data = self._record(old, new)
        if self.random.random() < self.faults.late_ratio:
            self._late.append([self.random.randint(1, _LATEST_BY), key, data])
        else:
            self._put(key, data)
        if self._recent and self.random.random() < self.faults.duplicate_ratio:
            self.stream.put(*self.random.choice(self._recent))

    def deliver(self) -> None:
        """Let what is late come nearer."""
        for each in list(self._late):
            each[0] -= 1
            if each[0] <= 0:
                self._late.remove(each)
                self._put(each[1], each[2])

    def _put(self, key: str, data: bytes) -> None:
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


def _twice_encoded(value: dict[str, Any]) -> dict[str, Any]:
    """Return an attribute value with binary as the service sends it: the base64 of its base64.

    https://github.com/awslabs/amazon-kinesis-client/issues/959
    """
    ((tag, content),) = value.items()
    match tag:
        case "B":
            return {tag: base64.b64encode(content.encode()).decode()}
        case "BS":
            return {tag: [base64.b64encode(each.encode()).decode() for each in content]}
        case "L":
            return {tag: [_twice_encoded(each) for each in content]}
        case "M":
            return {tag: {name: _twice_encoded(each) for name, each in content.items()}}
    return value
