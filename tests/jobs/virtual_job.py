"""Complete jobs with a store, a table and workers that fail randomly by a seed, in virtual time."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from ddbio.aws.connection_pool import TruncatedBodyError
from ddbio.commit.snapshot import live_files
from ddbio.errors import EndpointError, NotFoundError, ServiceError
from ddbio.items.page import split_page
from ddbio.items.reference import items_of
from ddbio.storage.staged import StagedFile, StoredObject

ATTEMPTS = 4
CHUNK_BYTES = 100
_ATTEMPT = re.compile(r"-\d+-(\d{4}\.)")


class DriverKilledError(BaseException):
    """The driver is killed: all its later calls fail too."""


class WorkerKilledError(BaseException):
    """A worker is killed during a task."""


class Faults:
    """Random faults of a run. The same seed draws the same faults for the same calls, in any order of threads."""

    def __init__(self, seed, ratios):
        self._seed, self._ratios, self._calls = seed, ratios, Counter()
        self.is_dead, self.in_task, self.now = False, False, 0.0

    def strike(self, call, *kinds):
        """Return the fault of this call, chosen from the possible ones."""
        if not any(self._ratios.get(kind) for kind in kinds):
            return None
        self._calls[call] += 1
        draw = random.Random(f"{self._seed} {call} {self._calls[call]}").random()
        for kind in kinds:
            if draw < self._ratios.get(kind, 0):
                return kind
            draw -= self._ratios.get(kind, 0)
        return None

    def kill(self, call):
        """Kill the driver or a worker here, if that is drawn."""
        if self.is_dead:
            raise DriverKilledError
        struck = self.strike(f"{call} kill", "driver", "worker")
        if struck == "driver":
            self.is_dead = True
            raise DriverKilledError
        if struck == "worker" and self.in_task:
            raise WorkerKilledError


class Engine:
    """Engine that runs tasks sequentially, in any order, tasks of dead workers again, and some twice."""

    name = "local"

    def __init__(self, faults, rng):
        self._faults, self._rng, self.parallelism = faults, rng, rng.randint(1, 3)

    def run(self, function, tasks, budget):
        """Return the results in the order of the tasks."""
        results = {number: self._attempt(function, tasks[number], budget) for number in self._order(len(tasks))}
        return [results[number] for number in range(len(tasks))]

    def _order(self, count):
        again = [number for number in range(count) if self._rng.random() < 0.1]
        return self._rng.sample([*range(count), *again], count + len(again))

    def _attempt(self, function, task, budget):
        self._faults.in_task = True
        try:
            for _ in range(ATTEMPTS):
                with contextlib.suppress(WorkerKilledError):
                    return function(task, budget)
        finally:
            self._faults.in_task = False
        raise ServiceError("a task failed four times")


class World:
    """Contents of a store, and the time."""

    def __init__(self):
        self.objects, self.staged, self.now, self.version = {}, {}, 1_000.0, 0


class Store:
    """Store in memory. Calls fail before or after their effect, kill a process, or run after its end."""

    hazard = None

    def __init__(self, world, faults, prefix="", uri="virtual://target"):
        self.world, self.faults, self.prefix, self.uri = world, faults, prefix, uri

    def below(self, prefix):
        """Return the same store below a prefix."""
        return Store(self.world, self.faults, f"{self.prefix}{prefix}/", f"{self.uri}/{prefix}")

    @contextlib.contextmanager
    def _call(self, name, path):
        call = _ATTEMPT.sub(r"-\1", f"{name} {self.prefix}{path}")
        self.faults.kill(f"{call} before")
        struck = self.faults.strike(call, "lost", "refused")
        if struck == "refused":
            raise EndpointError(f"{call} was not answered")
        yield
        self.faults.kill(f"{call} after")
        if struck == "lost":
            raise EndpointError(f"the answer to {call} was lost")

    def create(self, path):
        """Return a sink."""
        with self._call("create", path):
            self.world.staged[self.prefix + path] = None
            return Sink(self, path)

    def complete(self, staged):
        """Make a staged file visible."""
        with self._call("complete", staged.path):
            data = self.world.staged.pop(self.prefix + staged.path, None)
            if data is not None:
                self._write(staged.path, data)
            elif self.prefix + staged.path not in self.world.objects:
                raise NotFoundError(staged.path)

    def abort(self, job_id):
        """Discard the staged files of a job."""
        with self._call("abort", job_id):
            for path in [path for path in self.world.staged if path.startswith(self.prefix) and f"-{job_id}-" in path]:
                del self.world.staged[path]

    def staged_jobs(self):
        """Return no job, because ids without a time are never deleted by age."""
        return set()

    def list(self, prefix=""):
        """Return the objects below a prefix."""
        with self._call("list", prefix):
            start, objects = len(self.prefix), sorted(self.world.objects.items())
            return iter(
                [
                    StoredObject(path[start:], len(data), str(version), at)
                    for path, (data, version, at) in objects
                    if path.startswith(self.prefix + prefix)
                ]
            )

    def read(self, path):
        """Return an object."""
        with self._call("read", path):
            if self.prefix + path not in self.world.objects:
                raise NotFoundError(path)
            return self.world.objects[self.prefix + path][0]

    def read_chunks(self, path):
        """Yield an object in pieces. It may be truncated or damaged."""
        data = bytearray(self.read(path))
        struck = self.faults.strike(f"chunks {path}", "broken", "damaged")
        if struck == "damaged":
            data[len(data) // 2] ^= 0x10
        for start in range(0, len(data), CHUNK_BYTES):
            if struck == "broken" and start:
                raise EndpointError(f"{path} broke off")
            self.faults.kill(f"chunk {path}")
            yield bytes(data[start : start + CHUNK_BYTES])

    def read_range(self, entry, start, length):
        """Return a part of an object."""
        return self.read(entry.path)[start : start + length]

    def put(self, path, data):
        """Write an object."""
        with self._call("put", path):
            self._write(path, bytes(data))

    def put_if_absent(self, path, data):
        """Write an object that does not exist. The store distinguishes its own write from another's."""
        with self._call("put_if_absent", path):
            if self.prefix + path in self.world.objects:
                return False
            self._write(path, bytes(data))
            return True

    def delete(self, paths):
        """Delete objects sequentially."""
        for path in paths:
            with self._call("delete", path):
                self.world.objects.pop(self.prefix + path, None)

    def _write(self, path, data):
        self.world.version += 1
        self.world.now += 0.001
        self.world.objects[self.prefix + path] = data, self.world.version, self.world.now


class Sink:
    """Stage one file."""

    def __init__(self, store, path):
        self._store, self._path, self._data, self.closed = store, path, bytearray(), False

    def write(self, data):
        """Write bytes."""
        self._data += data
        return len(data)

    def finish(self, rows):
        """Stage the file."""
        self.closed = True
        with self._store._call("finish", self._path):
            self._store.world.staged[self._store.prefix + self._path] = bytes(self._data)
        return StagedFile(self._path, len(self._data), rows, {})

    def abort(self):
        """Discard the bytes. The upload exists until the job's abort."""
        self.closed = True


class Stop:
    """Event that advances virtual time for a pausing lane."""

    def __init__(self, faults):
        self._faults, self._is_set = faults, False

    def is_set(self):
        """Return whether the job is stopping."""
        return self._is_set

    def set(self):
        """Stop the job."""
        self._is_set = True

    def wait(self, seconds):
        """Advance the time."""
        self._faults.now += seconds
        return self._is_set


class Pages:
    """Scan endpoint of a table of some segments, with faults."""

    endpoint_url = "http://virtual"

    def __init__(self, segments, faults):
        self._segments, self._faults = segments, faults

    def read(self, _, parameters):
        """Return one page of a segment."""
        segment, start = parameters["Segment"], int(parameters.get("ExclusiveStartKey", {}).get("n", {}).get("N", 0))
        call = f"scan {segment} {start}"
        self._faults.kill(call)
        self._faults.now += 0.01
        self._misbehave(self._faults.strike(call, "throttled", "reset", "timeout", "truncated", "error", "denied"))
        items = self._segments[segment]
        stop = start + random.Random(start).randint(1, 6)
        page = {"Items": items[start:stop], "Count": len(items[start:stop]), "ScannedCount": len(items[start:stop])}
        if stop < len(items):
            page["LastEvaluatedKey"] = {"n": {"N": str(stop)}}
        return split_page(json.dumps(page).encode())

    def close(self):
        """Close nothing."""

    def _misbehave(self, struck):
        match struck:
            case "throttled":
                raise _client_error("ProvisionedThroughputExceededException", 400)
            case "error":
                raise _client_error("InternalServerError", 500)
            case "denied":
                raise _client_error("AccessDeniedException", 400)
            case "reset":
                raise ConnectionClosedError(endpoint_url="http://virtual")
            case "timeout":
                raise ReadTimeoutError(endpoint_url="http://virtual")
            case "truncated":
                raise TruncatedBodyError(found=1, stated="2", error="cut")


def _client_error(code, status):
    return ClientError(
        {"Error": {"Code": code, "Message": "told"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Scan"
    )


def rows_at(store):
    """Return the items in the live files of a target, as sorted texts."""
    texts = []
    for path in sorted(live_files(store).paths):
        table = pq.read_table(pa.BufferReader(store.read(path)))
        texts += [json.dumps(item, sort_keys=True) for batch in table.to_batches() for item in items_of(batch)]
    return sorted(texts)
