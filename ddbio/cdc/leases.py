"""Leases that share the shards of a stream among processes. The changes of each lease have their own batches.

The owner of a lease is the process that writes the next record of the lease, with a conditional write. A lease ends
when its process stops its heartbeat. A process that continues without its lease is stopped by the records of batches,
as in any capture.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
import secrets
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.cdc.lineages import lineage_number
from ddbio.cdc.log_jobs import CAPTURE, BatchRecords
from ddbio.cdc.shards import END, Shard
from ddbio.errors import TargetError
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from ddbio.cdc.loop import CaptureLoop

    OpenPart: TypeAlias = Callable[[int, threading.Event], AbstractContextManager[CaptureLoop]]
    from ddbio.cdc.stream_kind import StreamSource
    from ddbio.storage.object_store import ObjectStore

LEASES = "leases"
"""Kind of the state that the processes of a capture share."""
LEASE_SECONDS = 15.0
"""A process without a heartbeat for this time loses its leases."""

_MEMBER = "member-"
_LEASE = re.compile(r"lease-(\d{4})-(\d{8})")
_LOOK_SECONDS = 1.0


@dataclass
class Leases:
    """Distribution of the leases, so that all processes hold about the same number.

    Attributes
    ----------
    held
        The leases of this process, with the number of the record of each.
    """

    state: JobState
    count: int
    lease_seconds: float = LEASE_SECONDS
    owner: str = field(default_factory=lambda: secrets.token_hex(4))
    held: dict[int, int] = field(default_factory=dict)
    share: int = 0
    """The number of leases that this process should hold."""

    def look(self) -> None:
        """Send a heartbeat, find out which leases this process holds, and take free leases up to its share.

        Leases above the share stay in ``held``. The caller stops their work and gives them up.
        """
        self.state.put(f"{_MEMBER}{self.owner}", {})
        listed = self.state.listed()
        now = listed.get(f"{_MEMBER}{self.owner}", 0.0)
        alive = {
            name.removeprefix(_MEMBER)
            for name, at in listed.items()
            if name.startswith(_MEMBER) and now - at < self.lease_seconds
        }
        newest = dict[int, int]()
        for name in sorted(listed):
            if match := _LEASE.fullmatch(name):
                newest[int(match[1])] = int(match[2])
        self.held = {lease: number for lease, number in self.held.items() if newest.get(lease) == number}
        self.share = math.ceil(self.count / max(1, len(alive)))
        for lease in range(self.count):
            if len(self.held) >= self.share:
                break
            if lease in self.held:
                continue
            number = newest.get(lease, 0)
            holder = (self.state.read(_name(lease, number)) or {}).get("owner") if number else None
            if holder not in alive and self.state.put_once(_name(lease, number + 1), {"owner": self.owner}):
                self.held[lease] = number + 1
                self.state.delete([_name(lease, number)] if number else [])

    def surplus(self) -> list[int]:
        """Return the leases that other processes should hold."""
        return sorted(self.held)[self.share :]

    def give(self, lease: int) -> None:
        """Give a lease up."""
        number = self.held.pop(lease, None)
        if number is not None and self.state.put_once(_name(lease, number + 1), {"owner": None}):
            self.state.delete([_name(lease, number)])

    def close(self) -> None:
        """Give all leases up, and end the heartbeat of this process."""
        for lease in list(self.held):
            self.give(lease)
        self.state.delete([f"{_MEMBER}{self.owner}"])


def _name(lease: int, number: int) -> str:
    return f"lease-{lease:04}-{number:08}"


def part_id(job_id: str, lease: int) -> str:
    """Return the job id under which the changes of a lease are written."""
    return f"{job_id}_{lease}"


def records_of(store: ObjectStore, job_id: str, lease: int) -> BatchRecords:
    """Return the records of the batches of a lease."""
    return BatchRecords(JobState(store, part_id(job_id, lease), CAPTURE))


class LeasedShards:
    """Shards of one lease.

    A shard whose parent belongs to another lease is read after a batch of that lease records the end of the parent.

    Parameters
    ----------
    records
        Returns the records of the batches of another lease.
    now
        Returns the time of day.
    lineage
        The number of the lineage that the source reads.
    """

    def __init__(
        self,
        source: StreamSource,
        lease: int,
        count: int,
        records: Callable[[int], BatchRecords],
        now: Callable[[], float],
        lineage: int = 1,
    ) -> None:
        self._source, self._lease, self._count, self._lineage = source, lease, count, lineage
        self._records, self._now = records, now
        self._foreign: dict[str, list[str]] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        self._looked_at = -math.inf
        self.is_open = True
        """Whether the stream may get further shards."""

    def shards(self) -> list[Shard]:
        """Return the shards of this lease. Their ``parents`` are only those of this lease."""
        listed = self._source.shards()
        self.is_open = any(shard.last is None for shard in listed)
        listed_ids, mine = {shard.shard_id for shard in listed}, list[Shard]()
        self._parents |= {shard.shard_id: shard.parents for shard in listed}
        for shard in listed:
            if self._lease_of(shard.shard_id) != self._lease:
                continue
            own = tuple(parent for parent in shard.parents if self._lease_of(parent) == self._lease)
            foreign = [parent for parent in shard.parents if parent not in own and parent in listed_ids]
            if foreign and shard.shard_id not in self._foreign:
                self._foreign[shard.shard_id] = foreign
            mine.append(dataclasses.replace(shard, parents=own))
        return mine

    def may_read(self, shard_id: str) -> bool:
        """Return whether the parents that belong to other leases were read to their end."""
        waiting = self._foreign.get(shard_id)
        if waiting and self._now() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._now()
            listed = {shard.shard_id for shard in self._source.shards()}
            for child, parents in self._foreign.items():
                self._foreign[child] = [
                    parent for parent in parents if parent in listed and self._position(parent) != END
                ]
        return not self._foreign.get(shard_id)

    def ancestors(self, shard_id: str) -> list[tuple[BatchRecords, set[str]]]:
        """Return the records of each other lease that had ancestors of a shard, and these ancestors."""
        shards_by_lease, pending = dict[int, set[str]](), list(self._parents.get(shard_id, ()))
        while pending:
            parent = pending.pop()
            shards_by_lease.setdefault(self._lease_of(parent), set()).add(parent)
            pending += self._parents.get(parent, ())
        return [
            (self._records(lease), shards) for lease, shards in sorted(shards_by_lease.items()) if lease != self._lease
        ]

    def _position(self, shard_id: str) -> str | None:
        """Return the position of a shard after the last batch of its lease whose files are written."""
        records = self._records(self._lease_of(shard_id))
        record = records.read(number) if (number := records.committed) else None
        if (lineage := lineage_number(record)) != self._lineage:
            # A lease that reads a later stream has read this one to its end.
            return END if lineage > self._lineage else None
        position: str | None = (record or {}).get("positions", {}).get(shard_id)
        return position

    def _lease_of(self, shard_id: str) -> int:
        return zlib.crc32(shard_id.encode()) % self._count


log = logging.getLogger("ddbio.capture")

_LOOKS_A_LEASE = 5
_WAKE_SECONDS = 0.1


@dataclass
class _Part:
    """Thread that captures one lease. The result is whether the lease has no more work."""

    stop: threading.Event
    work: Future[bool]

    def end(self) -> None:
        """Stop the thread after its current batch, and wait for it."""
        self.stop.set()
        wait([self.work])


@dataclass
class Parts:
    """Captures of all leases that this process gets.

    Attributes
    ----------
    open_part
        Opens the capture of a lease.
    loops
        All captures that were started, for their counts.
    """

    leases: Leases
    open_part: OpenPart
    available_now: bool = False
    loops: list[CaptureLoop] = field(default_factory=list)
    _parts: dict[int, _Part] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Capture until ``stop`` is set, or until the changes that existed at the start are captured.

        The latter covers the leases that other processes do not hold.

        Raises
        ------
        DdbioError
            The error of the capture of a lease.
        """
        with ThreadPoolExecutor(self.leases.count, thread_name_prefix="ddbio-lease") as pool:
            try:
                while not stop.is_set():
                    self.leases.look()
                    self._adjust(pool)
                    if self.available_now and not self._parts:
                        break
                    self._wait(stop)
                    self._take_ended()
            finally:
                for part in self._parts.values():
                    part.stop.set()
                for part in self._parts.values():
                    part.end()
                self.leases.close()
        self._take_ended()

    def _adjust(self, pool: ThreadPoolExecutor) -> None:
        """Start work on new leases, and stop work on leases that other processes have or should have."""
        for lease in [lease for lease in self._parts if lease not in self.leases.held]:
            log.warning("another process has taken over lease %d", lease)
            self._parts.pop(lease).end()
        for lease in self.leases.surplus():
            if lease in self._parts:
                self._parts.pop(lease).end()
            self.leases.give(lease)
        for lease in self.leases.held:
            if lease not in self._parts and lease not in self._done:
                stop = threading.Event()
                self._parts[lease] = _Part(stop, pool.submit(self._work, lease, stop))

    def _work(self, lease: int, stop: threading.Event) -> bool:
        try:
            with self.open_part(lease, stop) as loop:
                self.loops.append(loop)
                loop.run(available_now=self.available_now)
                return not stop.is_set()
        except TargetError as error:
            # The next look at the leases shows the process that has taken over.
            log.warning("lease %d: %s", lease, error)
        return False

    def _wait(self, stop: threading.Event) -> None:
        until = time.monotonic() + self.leases.lease_seconds / _LOOKS_A_LEASE
        while time.monotonic() < until and not stop.wait(_WAKE_SECONDS):
            if any(part.work.done() for part in self._parts.values()):
                return

    def _take_ended(self) -> None:
        for lease, part in list(self._parts.items()):
            if part.work.done():
                del self._parts[lease]
                if part.work.result():
                    self._done.add(lease)
