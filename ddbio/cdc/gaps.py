"""Gaps that captures have recorded in a log: the lost changes, their times, and the files from before each gap."""

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

_AFTER = re.compile(r"(.+) behind (.+)")
_FOLLOWED = re.compile(r"(.+) ended, and (.+) followed")
_DAY_SECONDS = 86_400.0
HEALS = "heals"
"""Member of the head of a job that heals a capture. Such a job writes batches as a capture does."""


@dataclass(frozen=True)
class Gap(Result):
    """Changes that were trimmed from a stream before they were read.

    Attributes
    ----------
    job_id, batch
        The capture, and the batch that recorded the gap: the first one after it.
    places
        The shards and positions, as the capture recorded them.
    since, until
        All changes before ``since`` and all changes from ``until`` on were captured.
    """

    job_id: str
    batch: int
    places: tuple[str, ...]
    since: datetime
    until: datetime

    def has(self, since: datetime, until: datetime) -> bool:
        """Return whether changes between two times can be among the lost ones."""
        return since <= self.until and until >= self.since

    @property
    def heal_id(self) -> str:
        """Name of the job that heals the gap."""
        return f"{self.job_id}_heal_{self.batch}"


@dataclass
class LogGaps:
    """Gaps of a log in order: those that are not healed yet, and the healed ones.

    Attributes
    ----------
    written_at
        The time at which each file of a batch was written.
    """

    gaps: list[Gap] = field(default_factory=list)
    healed: list[Gap] = field(default_factory=list)
    written_at: dict[str, float] = field(default_factory=dict)


def captures_in(store: ObjectStore, job_id: str | None = None) -> list[JobState]:
    """Return the captures that write a log, without the jobs that heal them.

    Raises
    ------
    NotFoundError
        If there is no capture.
    """
    states = [state for state in jobs_in(store, CAPTURE) if job_id in {None, state.job_id}]
    chosen = [state for state in states if HEALS not in (state.head() or {})]
    if not chosen:
        with_name = "" if job_id is None else f" of the name {job_id!r}"
        raise NotFoundError(f"{store.uri}: the folder has no capture{with_name}")
    return chosen


def healed_name(batch: int) -> str:
    """Return the name of the record of a capture which marks the gap of a batch as healed."""
    return f"healed-{batch:012}"


def shard_of(text: str) -> str:
    """Return the shard in the text of a gap."""
    return text.partition(" behind ")[0].removesuffix(" is gone")


def find_gaps(states: Sequence[JobState]) -> LogGaps:
    """Return the gaps of some captures that share a stream."""
    log_gaps = LogGaps()
    for state in states:
        _find(state, log_gaps)
    log_gaps.gaps.sort(key=lambda gap: (gap.until, gap.job_id))
    return log_gaps


def _find(state: JobState, log_gaps: LogGaps) -> None:
    times, head = state.listed(), state.head() or {}
    began = float(head.get("started_at", 0.0)) - (_DAY_SECONDS if head.get("start") != "latest" else 0.0)
    walk = _Walk(state.store, began)
    for record in BatchRecords(state).all():
        number, texts = record["batch"], record["gaps"]
        at = float(record.get("at") or times.get(f"{number:012}", 0.0))
        log_gaps.written_at |= {file["path"]: at for file in record["files"]}
        if texts:
            since = min(at, *map(walk.since, texts))
            span = (datetime.fromtimestamp(second, UTC) for second in (since, at))
            gaps = log_gaps.healed if healed_name(number) in times else log_gaps.gaps
            gaps.append(Gap(state.job_id, number, tuple(texts), *span))
        walk.pass_by(record)


@dataclass
class _Walk:
    """State of a walk through the batches of a capture: the last position of each shard."""

    store: ObjectStore
    began: float
    shards: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Last position of each shard, and the files of its batch."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """Last files that were written before each shard was known."""
    last: list[str] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    lineage: int = 1

    def pass_by(self, record: Mapping[str, Any]) -> None:
        paths = [file["path"] for file in record["files"]]
        if lineage_number(record) != self.lineage:
            # Another stream may have shards with the same names.
            self.lineage, self.shards, self.before, self.positions = lineage_number(record), {}, {}, {}
        for shard_id in record["positions"].keys() - self.positions.keys():
            self.before[shard_id] = self.last
        for shard_id, part in record["shards"].items():
            self.shards[shard_id] = part["to"], paths
        self.positions, self.last = record["positions"], paths or self.last

    def since(self, text: str) -> float:
        """Return a time before which all changes of the shard of a gap were captured."""
        if _FOLLOWED.fullmatch(text) and self.last:
            was_ended = all(position == END for position in self.positions.values())
            return _time_of(self.store, self.last, None, max if was_ended else min)
        match = _AFTER.fullmatch(text)
        shard_id = shard_of(text)
        position, paths = self.shards.get(shard_id, ("", self.before.get(shard_id, self.last)))
        if position and position == (match[2] if match else self.positions.get(shard_id)):
            return _time_of(self.store, paths, position)
        return _time_of(self.store, paths, None) if paths else self.began


def last_change(state: JobState) -> float | None:
    """Return the time of the last change that a capture has written, or None if there is none."""
    records = BatchRecords(state)
    record = records.last()
    while record is not None and not record["files"]:
        record = records.read(record["batch"] - 1)
    return None if record is None else _time_of(state.store, [file["path"] for file in record["files"]], None, max)


def _time_of(
    store: ObjectStore,
    paths: Sequence[str],
    sequence: str | None,
    choose: Callable[[Iterable[float]], float] = min,
) -> float:
    """Return the time of a change in some files.

    If the change is missing, return the time of their first or last change.
    """
    firsts = list[float]()
    for path in paths:
        try:
            rows = read_parquet(pa.BufferReader(store.read(path)), [SEQUENCE, EVENT_TIME])
        except NotFoundError:
            # A compaction has replaced it. Use the hour of its folder.
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
