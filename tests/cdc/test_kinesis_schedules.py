"""Captures of Kinesis in schedules drawn from a seed: duplicates, late changes, reshards, kills, takeovers."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from random import Random

import pyarrow.parquet as pq
import pytest

from ddbio.cdc.shards import FIRST, HORIZON, LATEST, ExpiredError, TrimmedError
from ddbio.cdc.stream_kind import parse_shard
from ddbio.errors import GapError, TargetError
from ddbio.testing.calls.kinesis import get_records, get_shard_iterator, list_shards
from ddbio.testing.faults import Faults
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.tables.kinesis import DataStream, Destination
from tests.cdc.virtual_stream import KilledError, VirtualSource, World

MOST_SHARDS, MOST_OPEN, LEASES = 10, 4, 3
KILLED, OVERTAKEN = {"kill": 0.06}, {"kill": 0.03, "overtake": 0.04}


class KinesisWorld(World):
    """A table whose changes are sometimes repeated or late in its data stream."""

    def __init__(self, seed, **chances):
        super().__init__(seed, split=0.0, **chances)
        self.chances["reshard"] = 0.02
        self.data = DataStream("data", "arn:aws:kinesis:us-east-1:000000000000:stream/data", self.clock.now)
        self.data.open(2)
        self.database.data_streams["data"] = self.data
        self.sent = Destination(
            stream=self.data,
            table="tab",
            keys=self.table.keys,
            random=Random(seed),
            faults=Faults(duplicate_ratio=0.2, late_ratio=0.2),
            precision="MICROSECOND",
        )
        self.data.destinations["tab"] = self.sent
        self.table.store.listeners["kinesis"] = self.sent.add
        self.truth = []
        self.begun = {}
        """What each item was when the first of its changes at a time was made."""
        self.table.store.listeners["truth"] = self._note

    def _note(self, _, old, new):
        before, after = (None if value is None else json.loads(value.json) for value in (old, new))
        if before != after:
            item = after or before
            state = None if after is None else int(after["n"]["N"])
            self.truth.append((item["pk"]["S"], int(self.clock.at * 1_000_000), state))
            self.begun.setdefault(self.truth[-1][:2], None if before is None else int(before["n"]["N"]))

    def step(self):
        """Simulate the events between two steps of a capture."""
        super().step()
        if not self.is_quiet and self._draws("reshard") and len(self.data.shards) < MOST_SHARDS:
            shards = sorted(self.data.open_shards(), key=lambda value: value.hashes)
            at = self.random.randrange(len(shards))
            if len(shards) < MOST_OPEN:
                self.data.split(shards[at], sum(shards[at].hashes) // 2)
            elif at:
                self.data.merge(shards[at - 1], shards[at])

    def source(self):
        """Return the data stream as a source."""
        return VirtualKinesis(self)

    @property
    def stream_arn(self):
        """The ARN of the data stream."""
        return self.data.arn

    def rows(self):
        """Return the rows of the log in the order of their numbers."""
        actual = [
            row
            for path, data in self.objects.items()
            if path.endswith(".parquet")
            for row in pq.read_table(io.BytesIO(data)).to_pylist()
        ]
        return sorted(actual, key=lambda row: row["_sequence"])


class VirtualKinesis(VirtualSource):
    """Source that reads the fake's data stream without HTTP."""

    name = "the data stream"
    keeps_seconds = 24 * 3600.0
    get_records = staticmethod(get_records)

    def pause_after(self, size_bytes):
        """Return the pause between two reads."""
        return 0.201

    def _call(self, operation, **members):
        while True:
            self._world.step()
            try:
                return operation(self._world.database, Request(members))
            except Refusal as refusal:
                code = refusal.body["__type"]
                if "Throughput" not in code:
                    raise {"ExpiredIteratorException": ExpiredError}.get(code, TrimmedError) from None
                self._world.clock.at += 0.3

    def shards(self):
        """Return all shards."""
        return list(map(parse_shard, self._call(list_shards, StreamName="data")["Shards"]))

    def iterator(self, shard, position):
        """Return an iterator."""
        is_number = position not in {HORIZON, LATEST, FIRST}
        members = {"StreamName": "data", "ShardId": shard.shard_id}
        if is_number:
            members |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
        else:
            members["ShardIteratorType"] = HORIZON
        return self._call(get_shard_iterator, **members)["ShardIterator"]


def run(seed, chances):
    """Run a capture repeatedly until it is not killed, then to its end. Return the world."""
    world = KinesisWorld(seed, **chances)
    for _ in range(3):
        try:
            world.capture(steps=4)
        except (KilledError, TargetError):
            continue
    world.is_quiet = True
    for _ in range(5):
        world.data.deliver()
    world.capture(available_now=True)
    return world


def check(world, seed):
    """Compare the log with the changes of the table."""
    rows = world.rows()
    assert len({row["_event_id"] for row in rows}) == len(rows), seed
    micros = {row["_event_id"]: int(row["_sequence"][:16]) for row in rows}
    actual = [(row["pk"], micros[row["_event_id"]], row.get("n")) for row in rows]
    assert sorted(map(str, actual)) == sorted(map(str, world.truth)), seed
    last, batches = {}, defaultdict(set)
    for row, change in zip(rows, actual, strict=True):
        last[change[:2]] = change[2]
        batches[change[:2]].add(row["_sequence"][16:28])
    expected = {change[:2]: change[2] for change in world.truth}
    # Images do not order changes that returned to their start, nor changes in another batch.
    moved = {group for group, state in expected.items() if state != world.begun[group]}
    in_one_batch = {group for group, numbers in batches.items() if len(numbers) == 1} & moved
    assert {group: last[group] for group in in_one_batch} == {group: expected[group] for group in in_one_batch}, seed


@pytest.mark.timeout(3600)
def test_every_change_is_logged_once(seeds):
    """With duplicates, late changes, splits, merges, kills and takeovers, each change is logged once and in order."""
    for seed in seeds(120, 700):
        check(run(seed, (KILLED, OVERTAKEN)[seed % 2]), seed)


def test_silence_longer_than_the_stream_keeps_changes_is_a_gap():
    """Kinesis expires records without an error. A late capture reports it, or continues after the gap on request."""
    world = KinesisWorld(1, kill=0.0)
    world.capture(steps=80)
    world.is_quiet = True
    world.clock.at += 25 * 3600
    world.write()
    with pytest.raises(GapError, match="are gone"):
        world.capture(available_now=True)
    assert world.capture(available_now=True, continues_after_gaps=True).gaps


class SharedKinesisWorld(KinesisWorld):
    """A data stream that is captured with three leases, held by changing processes."""

    def capture(self, *, steps=None, lease=None, **_):
        """Run the capture of a lease in a new process, which is stopped after some waits."""
        lease = self.random.randrange(LEASES) if lease is None else lease
        return self.capture_shared(lease, LEASES, steps)


def share(seed, chances):
    """Run leases in any order, with kills and takeovers, until the log is complete."""
    world = SharedKinesisWorld(seed, **chances)
    world.chances["reshard"] = 0.1
    for _ in range(8):
        try:
            world.capture(steps=4)
        except (KilledError, TargetError):
            continue
    world.is_quiet = True
    for _ in range(5):
        world.data.deliver()
    for _ in range(60):
        for lease in range(LEASES):
            world.capture(steps=12, lease=lease)
        if len(world.rows()) >= len(world.truth):
            break
    return world


@pytest.mark.timeout(3600)
def test_every_change_is_logged_once_by_leases(seeds):
    """A change that is repeated after a reshard, in a shard of another lease, is left out there."""
    for seed in seeds(30, 200):
        world = share(seed, (KILLED, OVERTAKEN)[seed % 2])
        rows = world.rows()
        assert len({row["_event_id"] for row in rows}) == len(rows), seed
        assert len(rows) == len(world.truth), seed
