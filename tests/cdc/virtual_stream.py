"""A stream of the fake without a server, a store in memory, and writers, in virtual time, drawn from a seed."""

from __future__ import annotations

import io
import itertools
import json
import math
from dataclasses import dataclass
from functools import partial
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from ddbio.cdc.batches import ChangeLog
from ddbio.cdc.leases import LeasedShards, records_of
from ddbio.cdc.lineages import TableStream
from ddbio.cdc.log_jobs import BatchRecords
from ddbio.cdc.loop import CaptureLoop, Limits, Timing
from ddbio.cdc.shards import FIRST, HORIZON, LATEST, ExpiredError, TrimmedError
from ddbio.cdc.stream_kind import parse_shard
from ddbio.errors import NotFoundError
from ddbio.items.decode import infer_schema_of_body
from ddbio.storage.job_state import JobState
from ddbio.storage.staged import StoredObject
from ddbio.testing.calls.control import create_table
from ddbio.testing.calls.streams import describe_stream, get_records, get_shard_iterator
from ddbio.testing.calls.writes import delete_item, put_item
from ddbio.testing.faults import Faults
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request
from ddbio.testing.tables.capacity import Capacity
from ddbio.testing.tables.database import Database
from ddbio.testing.tables.definition import Defaults

KEYS = [{"AttributeName": "pk", "KeyType": "HASH"}]
STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
MOST_SHARDS, MOST_OPEN_SHARDS = 12, 3
BEGAN_AT = 1_793_491_190.0
FOLD = 3
LIMITS = Limits(flush_seconds=0.2, batch_records=15)


class KilledError(BaseException):
    """The process is killed here."""


class VirtualClock:
    """Virtual time of day. Only waiting advances it."""

    def __init__(self):
        self.at = BEGAN_AT

    def now(self):
        """Return the time."""
        return self.at


class World:
    """A table with a stream, a store, and the events between any two steps of a capture.

    Parameters
    ----------
    seed
        The seed of all random choices.
    happens
        The probabilities, at each step, of a write, a split, a kill, and of another process taking over.
    """

    def __init__(self, seed, *, split=0.02, kill=0.02, overtake=0.0, merge=0.0):
        self.random, self.clock = Random(seed), VirtualClock()
        self.chances = {"write": 0.3, "split": split, "kill": kill, "overtake": overtake}
        faults = Faults(merge_ratio=merge, seed=seed)
        capacity = Capacity(burst_at_creation=1.0)
        self.database = Database(Defaults(partitions=2), capacity, self.clock.now, faults=faults, wall_clock=self.clock)
        table = {"TableName": "tab", "BillingMode": "PAY_PER_REQUEST", "KeySchema": KEYS}
        types = [{"AttributeName": "pk", "AttributeType": "S"}]
        create_table(self.database, Request({**table, "AttributeDefinitions": types, "StreamSpecification": STREAM}))
        self.table = self.database.tables["tab"]
        self.stream = self.table.stream
        self.objects = {}
        self.is_quiet = False
        self.nested = 0
        self.written = 0

    def step(self):
        """Simulate the events between two steps of a capture."""
        self.clock.at += 0.01
        if self.is_quiet:
            return
        while self._draws("write"):
            self.write()
        if self._draws("split") and len(self.stream.shards) < MOST_SHARDS:
            self.stream.split(self.random.choice([1, 2]) if len(self.stream.open_shards()) < MOST_OPEN_SHARDS else 1)
        if self._draws("kill"):
            raise KilledError
        if not self.nested and self._draws("overtake"):
            self.nested += 1
            try:
                self.capture(steps=4)
            except KilledError:
                pass
            finally:
                self.nested -= 1

    def _draws(self, name):
        return self.random.random() < self.chances[name]

    def write(self):
        """Put or delete one of few items. Time passes, sometimes one hour."""
        self.clock.at += self.random.choice([0.0, 0.001, 1.0, 400.0])
        self.written += 1
        key = {"pk": {"S": str(self.random.randrange(6))}}
        if self.random.random() < 0.2:
            delete_item(self.database, Request({"TableName": "tab", "Key": key}))
        else:
            item = {**key, "n": {"N": str(self.written)}}
            put_item(self.database, Request({"TableName": "tab", "Item": item}))

    def capture(self, *, steps=None, start="trim-horizon", continues_after_gaps=False, available_now=False):
        """Run a capture like a new process. It is stopped after some waits."""
        state = JobState(MemoryStore(self), "job", "capture")
        loop = CaptureLoop(
            self.source(),
            self.log(BatchRecords(state, FOLD)),
            LIMITS,
            self.timing(steps),
            started_at=state.begin({"started_at": self.clock.at})["started_at"],
            continues_after_gaps=continues_after_gaps,
        )
        loop.resume(start)
        loop.run(available_now=available_now)
        return loop

    def capture_shared(self, lease, leases, steps):
        """Run the capture of a lease like a new process, which is stopped after some waits."""
        records = partial(records_of, MemoryStore(self), "job")
        source, log, timing = self.source(), self.log(records(lease)), self.timing(steps)
        sharing = LeasedShards(source, lease, leases, records, self.clock.now)
        loop = CaptureLoop(source, log, LIMITS, timing, started_at=0.0, sharing=sharing)
        loop.resume("trim-horizon")
        loop.run()
        return loop

    def source(self):
        """Return the stream as a source."""
        return VirtualSource(self)

    def log(self, records):
        """Return the log that a process writes."""
        stream = TableStream("tab", "", self.stream_arn, "")
        return ChangeLog(
            records, stream, ("pk",), lambda body: infer_schema_of_body(body).to_arrow(), compression="none"
        )

    @property
    def stream_arn(self):
        """ARN of the captured stream."""
        return self.stream.arn

    def timing(self, steps):
        """Return the timing of a process, which stops after some waits if their number is given."""
        left = itertools.repeat(False) if steps is None else itertools.chain([False] * steps, itertools.repeat(True))

        def wait(seconds):
            self.clock.at += seconds
            self.step()

        return Timing(self.clock.now, wait, partial(next, left))

    def expected(self):
        """Return the changes of the stream as the log should have them."""
        result = {}
        for record in (record for shard in self.stream.shards.values() for record in shard.records):
            parsed = json.loads(record.json)
            change = parsed["dynamodb"]
            number = change.get("NewImage", {}).get("n", {}).get("N")
            change_id = (parsed["eventName"], change["Keys"]["pk"]["S"], None if number is None else int(number))
            result[change["SequenceNumber"]] = (*change_id, change["ApproximateCreationDateTime"])
        return result

    def captured(self):
        """Return the changes of the log, and the number of their rows."""
        result, count = {}, 0
        for path, data in self.objects.items():
            if not path.endswith(".parquet"):
                continue
            for row in pq.read_table(io.BytesIO(data)).to_pylist():
                at = int(row["_event_time"].timestamp())
                assert f"hour={at // 3600 % 24:02}/" in path
                result[row["_sequence"]] = (row["_op"], row["pk"], row.get("n"), at)
                count += 1
        return result, count


@dataclass
class _Answer:
    source: VirtualSource
    iterator: str

    def result(self):
        return self.source.read(self.iterator)


class VirtualSource:
    """Source that reads the fake's stream without HTTP."""

    name = "the stream"
    keeps_seconds = math.inf
    clock_offset_seconds = 0.0
    pushes = False
    get_records = staticmethod(get_records)

    def __init__(self, world):
        self._world = world

    @property
    def polling(self):
        """Return itself."""
        return self

    def _call(self, operation, **members):
        self._world.step()
        try:
            return operation(self._world.database, Request(members))
        except Refusal as refusal:
            code = refusal.body["__type"]
            if "Trimmed" in code or "NotFound" in code:
                raise TrimmedError from None
            if "Expired" in code:
                raise ExpiredError from None
            raise

    def pause_after(self, size_bytes):
        """Return no pause."""
        return 0.0

    def shards(self):
        """Return all shards."""
        described = self._call(describe_stream, StreamArn=self._world.stream.arn)["StreamDescription"]["Shards"]
        return list(map(parse_shard, described))

    def iterator(self, shard, position):
        """Return an iterator."""
        kind = {HORIZON: HORIZON, LATEST: HORIZON, FIRST: "AT_SEQUENCE_NUMBER"}.get(position, "AFTER_SEQUENCE_NUMBER")
        members = {"StreamArn": self._world.stream.arn, "ShardId": shard.shard_id, "ShardIteratorType": kind}
        if kind.endswith("NUMBER"):
            members["SequenceNumber"] = shard.first if position == FIRST else position
        return self._call(get_shard_iterator, **members)["ShardIterator"]

    def begin(self, iterator):
        """Return a response that is read later."""
        return _Answer(self, iterator)

    def read(self, iterator):
        """Return a body of few records."""
        return b"".join(self._call(self.get_records, ShardIterator=iterator, Limit=self._world.random.randint(1, 7)))

    def close(self):
        """Do nothing."""


class MemoryStore:
    """Objects in memory. A process may be killed before or after each change of them."""

    uri = "memory:"

    def __init__(self, world):
        self._world = world

    def put(self, path, data):
        """Write an object."""
        self._world.step()
        self._world.objects[path] = data
        self._world.step()

    def put_if_absent(self, path, data):
        """Write an object if it does not exist."""
        self._world.step()
        if path in self._world.objects:
            return False
        self._world.objects[path] = data
        self._world.step()
        return True

    def read(self, path):
        """Return an object."""
        if path not in self._world.objects:
            raise NotFoundError(path)
        return self._world.objects[path]

    def read_chunks(self, path):
        """Yield an object's bytes."""
        yield self.read(path)

    def read_range(self, entry, start, length):
        """Return a part of an object."""
        return self._world.objects[entry.path][start : start + length]

    def delete(self, paths):
        """Delete objects."""
        for path in paths:
            self._world.step()
            self._world.objects.pop(path, None)

    def list(self, prefix=""):
        """Yield the objects with a prefix."""
        for path in sorted(value for value in self._world.objects if value.startswith(prefix)):
            yield StoredObject(path, len(self._world.objects[path]))


def table_of(world):
    """Return the whole log as a table."""
    files = [data for path, data in sorted(world.objects.items()) if path.endswith(".parquet")]
    return pa.concat_tables([pq.read_table(io.BytesIO(file)) for file in files])
