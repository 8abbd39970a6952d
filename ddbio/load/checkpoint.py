"""Mark checkpoints between the rows of a load, and store which units are finished, so that the job can continue.

The file ``_ddbio/<job_id>.load.json`` identifies the job. Beside it, in ``_ddbio/<job_id>.load/``, each task of each
run writes one small file with the units that it has finished, and how many rows of those of text that it has not: no
file has two writers. Which job of a load was the latest is in ``_ddbio/<digest of what the load is>.latest-load/``.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.commit.committer import Claim
from ddbio.errors import OptionError, TargetError
from ddbio.items.schema.arrow import tag_of_field
from ddbio.jobs.stores import open_store
from ddbio.options.parsing import fixed_options
from ddbio.storage.job_state import JobState, require_same
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.aws.table_description import TableDescription
    from ddbio.load.options import LoadOptions
    from ddbio.load.sources import FileSource
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

FLUSH_SECONDS = 1.0
"""Units are stored as finished after at most so long; a job that was killed before writes their rows again."""

KEPT_SECONDS = 90 * 24 * 3600.0
"""Checkpoints in the default folder are kept for so long after the last of them; in a given ``state`` for ever."""

# How the parts of a load's identity are called; of the source's files only a digest is known.
_SAID = {"files": "", "shares": "tasks that share its keys:"}

_LATEST = "job"

log = logging.getLogger(__name__)


class Checkpoint:
    """Mark a point between rows; it is reached when every row before it is written, skipped, or rejected and stored.

    Parameters
    ----------
    reached
        Called once when the checkpoint is reached, in the thread that reads the rows; not called if the write ends
        before.
    """

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached
        self.open_lanes = 0


def state_folder() -> str:
    """Return where loads store their checkpoints by default: this user's state folder.

    References
    ----------
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(root) / "ddbio")


def identity_of(
    options: LoadOptions, table: TableDescription, source: FileSource, key_partitions: int | None
) -> dict[str, Any]:
    """Return what must stay the same for a job to continue; options that their class calls changeable may change."""
    listed = hashlib.sha256()
    for entry in source.files:
        listed.update(f"{entry.path}\n{entry.size_bytes}\n{entry.version}\n".encode())
    types = hashlib.sha256()
    for name, each in sorted(source.types.items()):
        types.update(f"{name}\n{tag_of_field(each)} {each.type}\n".encode())
    fixed = fixed_options(options, without=("source", "table", "schema", "types"))
    return {
        "source": source.store.uri,
        "files": listed.hexdigest(),
        "units": len(source.units),
        "shares": key_partitions,
        "table": f"{table.arn} {table.table_id}",
        # Loads of earlier versions are found by a hash of this text, which has these two empty values and no others.
        **{name: value for name, value in fixed.items() if value or name in {"newer_by", "operation_by"}},
        **({"types": types.hexdigest()} if source.types else {}),
    }


@dataclass(frozen=True)
class EarlierLoad:
    """Say what became of the latest job that loaded the same files into the same table in the same way.

    Attributes
    ----------
    rows
        How many rows it has written, as far as is noted.
    is_finished
        Whether these are all.
    """

    job_id: str
    rows: int
    is_finished: bool


class CheckpointStore:
    """Hold the finished units of a job, and store those that this task finishes; picklable until the first of them.

    Attributes
    ----------
    finished
        The units that earlier runs finished.
    begun
        How many rows earlier runs wrote of others, from the first row on.
    rows
        The number of rows that earlier runs wrote of both.
    earlier
        The same load under another job id, if this job is new.
    """

    earlier: EarlierLoad | None = None

    def __init__(
        self,
        state: JobState | None,
        job_id: str,
        finished: frozenset[int] = frozenset(),
        rows: int = 0,
        begun: Mapping[int, int] | None = None,
    ) -> None:
        self.finished, self.rows, self.begun = finished, rows, dict(begun or {})
        self.job_id = job_id
        self._state = state
        self._new: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._name = ""
        self._flushed_at = 0.0

    def of_task(self) -> CheckpointStore:
        """Return a store for a task, without the units that earlier runs finished."""
        return CheckpointStore(self._state, self.job_id, begun=self.begun)

    @property
    def is_durable(self) -> bool:
        """Return whether a later run will find the checkpoints."""
        return self._state is not None

    @property
    def is_due(self) -> bool:
        """Return whether what is marked now will be stored at once."""
        return self._state is not None and time.monotonic() - self._flushed_at >= FLUSH_SECONDS

    def finish(self, unit: int, rows: int) -> None:
        """Mark a unit as finished; it is stored at the next ``flush``, or within about a second."""
        self._new[unit] = rows
        self._begun.pop(unit, None)
        if self.is_due:
            self.flush()

    def begin(self, unit: int, rows: int) -> None:
        """Mark that so many rows of a unit are written, and store it."""
        self._begun[unit] = rows
        self.flush()

    def flush(self) -> None:
        """Store all units that were marked."""
        if self._state is None or not (self._new or self._begun):
            return
        self._name = self._name or secrets.token_hex(4)
        self._state.put(self._name, {"finished": _runs(self._new), "begun": sorted(self._begun.items())})
        self._flushed_at = time.monotonic()


@contextlib.contextmanager
def open_checkpoints(
    options: LoadOptions, job_id: str, identity: Mapping[str, Any], cluster: str | None = None
) -> Iterator[CheckpointStore]:
    """Open the checkpoints of a job, and exclude other runs of it, which would write older rows after newer ones.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the job; its workers cannot reach this user's state folder.

    Raises
    ------
    OptionError
        If the job was begun with another source, table or mode; or if it is named by ``job_id`` and runs on a cluster
        without a ``state`` that the workers reach.
    TargetError
        If a given ``state`` cannot be written, or another run of the job is under way, or the same load as another job.
    """
    if cluster is not None and options.state is None and not options.shared_paths:
        advice = "give state=s3://…, a place that all workers reach, or shared_paths"
        if options.job_id is not None:
            raise OptionError(f"job {job_id!r} cannot be continued on {cluster} without a state: {advice}")
        log.warning("this load cannot be continued if it is stopped: to have that on %s %s", cluster, advice)
        yield CheckpointStore(None, job_id)
        return
    state = _state(options, job_id)
    try:
        begun = state.begin(identity)
    except TargetError as error:
        if options.state is not None:
            raise
        log.warning("this load cannot be continued if it is stopped, give a state: %s", error)
        yield CheckpointStore(None, job_id)
        return
    require_same(job_id, begun, identity, _SAID)
    if options.state is None:
        _sweep(state.store, job_id)
    with Claim(state.store, job_id, "append").held():
        found = _read(state)
        found.earlier = _replace_latest(state, identity, is_new=begun is identity)
        yield found


def _sweep(store: ObjectStore, spared: str) -> None:
    """Delete what jobs, but for one, have noted in the folder that nobody chose, and not touched for 90 days."""
    jobs: dict[str, list[StoredObject]] = {}
    for entry in store.list(META):
        jobs.setdefault(entry.path.removeprefix(META).partition(".")[0], []).append(entry)
    jobs.pop(spared, None)
    oldest = time.time() - KEPT_SECONDS
    store.delete([each.path for job in jobs.values() if max(e.modified_at for e in job) < oldest for each in job])


def _replace_latest(state: JobState, identity: Mapping[str, Any], *, is_new: bool) -> EarlierLoad | None:
    """Note that this job is the latest of its load; return the one before, if that is another and this one is new.

    Raises
    ------
    TargetError
        If the one before runs: its older rows could be written after newer ones of this one.
    """
    key = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()[:32]
    latest = JobState(state.store, key, "latest-load")
    earlier_id = (latest.read(_LATEST) or {}).get("job_id", state.job_id)
    earlier = None
    if earlier_id != state.job_id and is_new:
        done = _read(JobState(state.store, earlier_id, state.kind))
        is_finished = len(done.finished) == (identity["shares"] or identity["units"])
        earlier = EarlierLoad(earlier_id, done.rows, is_finished)
        if not is_finished:
            _require_dead(state, earlier_id)
    latest.put(_LATEST, {"job_id": state.job_id})
    return earlier


def _require_dead(state: JobState, job_id: str) -> None:
    claim = Claim(state.store, job_id, "append")
    try:
        claim.take()
    except TargetError as error:
        raise TargetError(f"the same load is under way: {error}", state.store.uri) from error
    claim.release()


def read_checkpoints(options: LoadOptions, job_id: str, identity: Mapping[str, Any]) -> CheckpointStore:
    """Return the checkpoints that earlier runs of a job have stored, without claiming the job.

    Raises
    ------
    OptionError
        If the job was begun with another source, table or mode.
    """
    state = _state(options, job_id)
    begun = state.head()
    if begun is None:
        return CheckpointStore(None, job_id)
    require_same(job_id, begun, identity, _SAID)
    return _read(state)


def _state(options: LoadOptions, job_id: str) -> JobState:
    return JobState(open_store(options.state or state_folder(), options, is_temporary=True), job_id, "load")


def _read(state: JobState) -> CheckpointStore:
    files = list(state.records())
    # Two runs may have finished the same unit.
    finished = {
        unit: rows for each in files for first, last, rows in each["finished"] for unit in range(first, last + 1)
    }
    begun: dict[int, int] = {}
    for unit, rows in (pair for each in files for pair in each.get("begun", ())):
        if unit not in finished:
            begun[unit] = max(rows, begun.get(unit, 0))
    rows = sum(finished.values()) + sum(begun.values())
    return CheckpointStore(state, state.job_id, frozenset(finished), rows, begun)


def _runs(rows_of: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return first and last number of each run of adjacent units with equally many rows, and how many those are."""
    ordered = enumerate(sorted(rows_of.items()))
    runs = itertools.groupby(ordered, lambda each: (each[1][0] - each[0], each[1][1]))
    groups = [[number for _, (number, _) in run] for _, run in runs]
    return [(group[0], group[-1], rows_of[group[0]]) for group in groups]
