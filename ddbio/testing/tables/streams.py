"""Streams of tables: records of changes in shards that are split, closed and trimmed."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.pricing import item_bytes
from ddbio.testing.request import to_json
from ddbio.testing.tables.table import HASH_BITS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.tables.table import Key, KeySchema, Stored


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
RETENTION_SECONDS = 24 * 3600
# The service's numbers differ in length. These soon grow by a digit, so that a test fails if they are sorted as text.
_FIRST_SEQUENCE = 10**21 - 40
_SEQUENCE_STEP = 7
_EXPIRY = {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}
_SETS = ("SS", "NS", "BS")


class Record(NamedTuple):
    """One record of a change: its sequence number, its creation time, its text, its key and the item before it."""

    sequence: int
    created_at: float
    json: bytes
    key: Key
    old: Stored | None


@dataclass(slots=True)
class Shard:
    """Records of a range of hashes. The shard is closed once it has an ending."""

    shard_id: str
    parent_id: str | None
    hashes: tuple[int, int]
    starting: int
    opened_at: float
    ending: int | None = None
    closed_at: float | None = None
    records: list[Record] = field(default_factory=list)
    oldest: int = 0
    """Records below this number were trimmed."""
    read_to: int = 0
    """Records below this number were read by a client."""

    @property
    def next(self) -> int:
        """The number after the last record."""
        return self.records[-1].sequence + 1 if self.records else max(self.oldest, self.starting)

    def from_sequence(self, sequence: int) -> int:
        """Return the index of the first record with at least this number."""
        return bisect_left(self.records, sequence, key=lambda record: record.sequence)

    def describe(self) -> dict[str, Any]:
        """Return the shard in the format of DescribeStream."""
        described: dict[str, Any] = {
            "ShardId": self.shard_id,
            "SequenceNumberRange": {"StartingSequenceNumber": str(self.starting)},
        }
        if self.ending is not None:
            described["SequenceNumberRange"]["EndingSequenceNumber"] = str(self.ending)
        if self.parent_id is not None:
            described["ParentShardId"] = self.parent_id
        return described


@dataclass(slots=True, kw_only=True)
class Stream:
    """Stream of one table since it was turned on. It is not safe for concurrent use."""

    arn: str
    label: str
    view: str
    table: str
    keys: KeySchema
    now: Callable[[], float]
    random: Random
    merge_ratio: float = 0.0
    is_open: bool = True
    created_at: float = 0.0
    expires: bool = False
    """Whether deletes are currently due to time to live."""
    shards: dict[str, Shard] = field(default_factory=dict)
    _last: int = field(default=_FIRST_SEQUENCE, init=False)

    def open(self, partitions: int) -> None:
        """Open the first shards, one for each partition."""
        self.created_at = self.now()
        for number in range(partitions):
            self._open_shard(None, ((number << HASH_BITS) // partitions, ((number + 1) << HASH_BITS) // partitions))

    def close(self) -> None:
        """Close all shards. Their records can be read until they are trimmed."""
        self.is_open = False
        for shard in self.open_shards():
            self._close_shard(shard)

    def open_shards(self) -> list[Shard]:
        """Return the shards that accept records."""
        return [shard for shard in self.shards.values() if shard.ending is None]

    def split(self, into: int) -> None:
        """Close every open shard, and open ``into`` children of each."""
        for shard in self.open_shards():
            self._close_shard(shard)
            low, high = shard.hashes
            bounds = [low + (high - low) * part // into for part in range(into + 1)]
            for part in range(into):
                self._open_shard(shard.shard_id, (bounds[part], bounds[part + 1]))

    def trim(self, age_seconds: float = RETENTION_SECONDS) -> None:
        """Delete records of at least this age, and closed shards without records."""
        until = self.now() - age_seconds
        for shard in list(self.shards.values()):
            kept = next(
                (at for at, record in enumerate(shard.records) if record.created_at > until), len(shard.records)
            )
            if kept:
                shard.oldest = shard.records[kept - 1].sequence + 1
                del shard.records[:kept]
            if shard.closed_at is not None and shard.closed_at <= until and not shard.records:
                del self.shards[shard.shard_id]

    def add(self, key: Key, old: Stored | None, new: Stored | None) -> None:
        """Record one write. A write without a change makes no record."""
        shard = next(shard for shard in self.open_shards() if shard.hashes[0] <= key[0] < shard.hashes[1])
        last = shard.records[-1] if shard.records else None
        if (
            last is not None
            and last.key == key
            and last.sequence >= shard.read_to
            and self.random.random() < self.merge_ratio
        ):
            # Two quick changes of an item may be merged.
            del shard.records[-1]
            old = last.old
        if not is_same_item(old, new):
            self._last += _SEQUENCE_STEP
            text = to_json(self._record(old, new))
            shard.records.append(Record(self._last, self.now(), text, key, old))

    def _record(self, old: Stored | None, new: Stored | None) -> dict[str, Any]:
        images = {"NewImage": new, "OldImage": old}
        items: dict[str, Item] = {name: json.loads(image.json) for name, image in images.items() if image is not None}
        keys = self.keys.part_of(next(iter(items.values())))
        shown = {
            name: item
            for name, item in items.items()
            if self.view in ("NEW_AND_OLD_IMAGES", "NEW_IMAGE" if name == "NewImage" else "OLD_IMAGE")
        }
        record: dict[str, Any] = {
            "eventID": hashlib.md5(f"{self.arn} {self._last}".encode(), usedforsecurity=False).hexdigest(),
            "eventName": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": int(self.now()),
                "Keys": keys,
                **shown,
                "SequenceNumber": str(self._last),
                "SizeBytes": item_bytes(keys) + sum(map(item_bytes, shown.values())),
                "StreamViewType": self.view,
            },
        }
        if self.expires:
            record["userIdentity"] = _EXPIRY
        return record

    def _open_shard(self, parent_id: str | None, hashes: tuple[int, int]) -> None:
        self._last += _SEQUENCE_STEP
        name = hashlib.md5(f"{self.arn} {self._last}".encode(), usedforsecurity=False).hexdigest()[:8]
        shard_id = f"shardId-{int(self.now() * 1000):020d}-{name}"
        self.shards[shard_id] = Shard(shard_id, parent_id, hashes, self._last, self.now())

    def _close_shard(self, shard: Shard) -> None:
        self._last += _SEQUENCE_STEP
        shard.ending, shard.closed_at = self._last, self.now()


def is_same_item(old: Stored | None, new: Stored | None) -> bool:
    """Return whether a write changes nothing, regardless of the order of members and of elements of sets."""
    if old is None or new is None:
        return old is new
    return old.json == new.json or _ordered_item(json.loads(old.json)) == _ordered_item(json.loads(new.json))


def _ordered_item(item: Item) -> Item:
    return {name: _ordered(value) for name, value in item.items()}


def _ordered(value: AttributeValue) -> AttributeValue:
    ((tag, content),) = value.items()
    if tag in _SETS:
        return {tag: sorted(content)}
    if tag == "L":
        return {tag: [_ordered(element) for element in content]}
    return {tag: _ordered_item(content)} if tag == "M" else value
