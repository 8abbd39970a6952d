"""Find the gaps that captures have noted in a log: what was lost, since when, and which files are from before it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.lineages import lineage_number
from ddbio.cdc.log_jobs import CAPTURE, BatchRecords, jobs_in
from ddbio.cdc.log_rows import hour_seconds
from ddbio.cdc.shards import END
from ddbio.errors import NotFoundError
from ddbio.formats.log_columns import EVENT_TIME, SEQUENCE
from ddbio.formats.parquet_input import read_parquet
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ddbio.storage.job_state import JobState
    from ddbio.storage.object_store import ObjectStore

_BEHIND = re.compile(r"(.+) behind (.+)")
_FOLLOWED = re.compile(r"(.+) ended, and (.+) followed")
_DAY_SECONDS = 86_400.0
HEALS = "heals"
"""The member of the head of a job that heals a capture: it writes batches as a capture does."""


@dataclass(frozen=True)
class Gap(Result):
    """Describe changes that a stream forgot before they were read.

    Attributes
    ----------
    job_id, batch
        The capture, and the batch that noted it: the first one behind the gap.
    places
        The shards and positions, as the capture noted them.
    since, until
        All changes before the one were captured, and all from the other on.
    """

    job_id: str
    batch: int
    places: tuple[str, ...]
    since: datetime
    until: datetime

    def has(self, since: datetime, until: datetime) -> bool:
        """Return whether changes between two times can be among those that were lost."""
        return since <= self.until and until >= self.since

    @property
    def heal_id(self) -> str:
        """The name of the job that heals it."""
        return f"{self.job_id}_heal_{self.batch}"


@dataclass
class Found:
    """Hold the gaps of a log, in their order: those that are not healed yet, and the others.

    Attributes
    ----------
    written_at
        When each file of a batch was written.
    """

    gaps: list[Gap] = field(default_factory=list)
    healed: list[Gap] = field(default_factory=list)
    written_at: dict[str, float] = field(default_factory=dict)


def captures_in(store: ObjectStore, job_id: str | None = None) -> list[JobState]:
    """Return the captures that write a log, without the jobs that heal them.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    states = [each for each in jobs_in(store, CAPTURE) if job_id in {None, each.job_id}]
    chosen = [each for each in states if HEALS not in (each.head() or {})]
    if not chosen:
        said = "" if job_id is None else f" of the name {job_id!r}"
        raise NotFoundError(f"{store.uri}: there is no capture{said} here")
    return chosen


def healed_name(batch: int) -> str:
    """Return the name of the record of a capture that says that the gap of a batch is healed."""
    return f"healed-{batch:012}"


def shard_of(place: str) -> str:
    """Return the shard that the text of a gap names."""
    return place.partition(" behind ")[0].removesuffix(" is gone")


def find_gaps(states: Sequence[JobState]) -> Found:
    """Return the gaps of some captures that share a stream."""
    found = Found()
    for state in states:
        _find(state, found)
    found.gaps.sort(key=lambda each: (each.until, each.job_id))
    return found


def _find(state: JobState, found: Found) -> None:
    times, head = state.listed(), state.head() or {}
    began = float(head.get("started_at", 0.0)) - (_DAY_SECONDS if head.get("start") != "latest" else 0.0)
    walk = _Walk(state.store, began)
    for record in BatchRecords(state).all():
        number, places = record["batch"], record["gaps"]
        at = float(record.get("at") or times.get(f"{number:012}", 0.0))
        found.written_at |= {each["path"]: at for each in record["files"]}
        if places:
            since = min(at, *map(walk.since, places))
            span = (datetime.fromtimestamp(each, UTC) for each in (since, at))
            kept = found.healed if healed_name(number) in times else found.gaps
            kept.append(Gap(state.job_id, number, tuple(places), *span))
        walk.pass_by(record)


@dataclass
class _Walk:
    """Pass by the batches of a capture, and remember up to where each shard was captured."""

    store: ObjectStore
    began: float
    shards: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """The last position of each shard, and the files of its batch."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """The last files that were written when each shard was not known yet."""
    last: list[str] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    lineage: int = 1

    def pass_by(self, record: Mapping[str, Any]) -> None:
        paths = [each["path"] for each in record["files"]]
        if lineage_number(record) != self.lineage:
            # Another stream may have shards of the same names.
            self.lineage, self.shards, self.before, self.positions = lineage_number(record), {}, {}, {}
        for shard_id in record["positions"].keys() - self.positions.keys():
            self.before[shard_id] = self.last
        for shard_id, part in record["shards"].items():
            self.shards[shard_id] = part["to"], paths
        self.positions, self.last = record["positions"], paths or self.last

    def since(self, place: str) -> float:
        """Return a time before which everything of the shard of a gap was captured."""
        if _FOLLOWED.fullmatch(place) and self.last:
            was_ended = all(each == END for each in self.positions.values())
            return _time_of(self.store, self.last, None, max if was_ended else min)
        match = _BEHIND.fullmatch(place)
        shard_id = shard_of(place)
        position, paths = self.shards.get(shard_id, ("", self.before.get(shard_id, self.last)))
        if position and position == (match[2] if match else self.positions.get(shard_id)):
            return _time_of(self.store, paths, position)
        return _time_of(self.store, paths, None) if paths else self.began


def last_change(state: JobState) -> float | None:
    """Return the time of the last change that a capture has written; None if there is none."""
    records = BatchRecords(state)
    record = records.last()
    while record is not None and not record["files"]:
        record = records.read(record["batch"] - 1)
    return None if record is None else _time_of(state.store, [each["path"] for each in record["files"]], None, max)


def _time_of(
    store: ObjectStore,
    paths: Sequence[str],
    sequence: str | None,
    choose: Callable[[Iterable[float]], float] = min,
) -> float:
    """Return the time of a change of some files, or that of their first or last one if it is not to be found."""
    firsts = list[float]()
    for path in paths:
        try:
            rows = read_parquet(pa.BufferReader(store.read(path)), [SEQUENCE, EVENT_TIME])
        except NotFoundError:
            # A compaction has replaced it: its folder tells the hour.
            firsts.append(hour_seconds(path))
            continue
        times: Any = rows.column(EVENT_TIME)
        if sequence is not None:
            mine: Any = times.filter(pc.equal(rows.column(SEQUENCE), pa.scalar(sequence)))
            if len(mine):
                return float(mine[0].as_py().timestamp())
        ends: Any = pc.min_max(times).as_py()
        firsts.append(choose(ends[name].timestamp() for name in ("min", "max")))
    return choose(firsts)
