"""Checkpoints of a load: markers between rows, and the stored numbers of finished units, so that the job can continue.

The file ``_ddbio/<job_id>.load.json`` identifies the job. In the folder ``_ddbio/<job_id>.load/`` next to it, each task
of each run writes one small file with the units that it has finished, and the number of written rows of unfinished text
units. So no file has two writers. The folder ``_ddbio/<digest of the load's identity>.latest-load/`` has the id of the
latest job of a load.
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
"""Units are stored as finished after at most this time. A job that was killed before writes their rows again."""

RETENTION_SECONDS = 90 * 24 * 3600.0
"""Retention of checkpoints in the default folder, after the last of them.

In a given ``state`` they are kept forever.
"""

# Names of the parts of a load's identity in messages. Of the source's files only a digest is stored.
_IDENTITY_NAMES = {"files": "", "shares": "tasks that share its keys:"}

_LATEST = "job"

log = logging.getLogger(__name__)


class Checkpoint:
    """Marker between rows. It is reached when every row before it is written, skipped, or rejected and stored.

    Parameters
    ----------
    reached
        Called once when the checkpoint is reached, in the thread that reads the rows. Not called if the write ends
        before.
    """

    def __init__(self, reached: Callable[[], None]) -> None:
        self.reached = reached
        self.open_lanes = 0


def state_folder() -> str:
    """Return the default folder for checkpoints of loads: this user's state folder.

    References
    ----------
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(root) / "ddbio")


def identity_of(
    options: LoadOptions, table: TableDescription, source: FileSource, key_partitions: int | None
) -> dict[str, Any]:
    """Return the values that must be equal for a job to continue. Options declared as changeable are left out."""
    listed = hashlib.sha256()
    for entry in source.files:
        listed.update(f"{entry.path}\n{entry.size_bytes}\n{entry.version}\n".encode())
    types = hashlib.sha256()
    for name, field in sorted(source.types.items()):
        types.update(f"{name}\n{tag_of_field(field)} {field.type}\n".encode())
    fixed = fixed_options(options, without=("source", "table", "schema", "types"))
    return {
        "source": source.store.uri,
        "files": listed.hexdigest(),
        "units": len(source.units),
        "shares": key_partitions,
        "table": f"{table.arn} {table.table_id}",
        # Loads of earlier versions are identified by a hash of this text, which has these two empty values and no
        # others.
        **{name: value for name, value in fixed.items() if value or name in {"newer_by", "operation_by"}},
        **({"types": types.hexdigest()} if source.types else {}),
    }


@dataclass(frozen=True)
class EarlierLoad:
    """Result of the latest job that loaded the same files into the same table in the same way.

    Attributes
    ----------
    rows
        The number of rows that it has written according to its checkpoints.
    is_finished
        Whether these are all rows.
    """

    job_id: str
    rows: int
    is_finished: bool


class CheckpointStore:
    """Finished units of a job, and storage of those that this task finishes. Picklable until the first is stored.

    Attributes
    ----------
    finished
        The units that earlier runs finished.
    begun
        The number of rows that earlier runs wrote of unfinished units, from the first row on.
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
        """Return whether a later run can read the checkpoints."""
        return self._state is not None

    @property
    def is_due(self) -> bool:
        """Return whether a unit that is marked now will be stored immediately."""
        return self._state is not None and time.monotonic() - self._flushed_at >= FLUSH_SECONDS

    def finish(self, unit: int, rows: int) -> None:
        """Mark a unit as finished. It is stored at the next ``flush``, or within about one second."""
        self._new[unit] = rows
        self._begun.pop(unit, None)
        if self.is_due:
            self.flush()

    def begin(self, unit: int, rows: int) -> None:
        """Mark the first rows of a unit as written, and store their number."""
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
        The master of the cluster that runs the job. Its workers cannot reach this user's state folder.

    Raises
    ------
    OptionError
        If the job was started with another source, table or mode; or if it has a ``job_id`` and runs on a cluster
        without a ``state`` that the workers can reach.
    TargetError
        If a given ``state`` cannot be written, or another run of the job is in progress, or the same load as another
        job.
    """
    if cluster is not None and options.state is None and not options.shared_paths:
        advice = "give state=s3://…, a location that all workers can reach, or shared_paths"
        if options.job_id is not None:
            raise OptionError(f"job {job_id!r} cannot be continued on {cluster} without a state: {advice}")
        log.warning("this load cannot be continued if it is stopped: to change that on %s %s", cluster, advice)
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
    require_same(job_id, begun, identity, _IDENTITY_NAMES)
    if options.state is None:
        _sweep(state.store, job_id)
    with Claim(state.store, job_id, "append").held():
        checkpoints = _read(state)
        checkpoints.earlier = _replace_latest(state, identity, is_new=begun is identity)
        yield checkpoints


def _sweep(store: ObjectStore, spared: str) -> None:
    """Delete the checkpoints in the default folder that are older than 90 days, except those of one job."""
    jobs: dict[str, list[StoredObject]] = {}
    for entry in store.list(META):
        jobs.setdefault(entry.path.removeprefix(META).partition(".")[0], []).append(entry)
    jobs.pop(spared, None)
    oldest = time.time() - RETENTION_SECONDS
    store.delete([entry.path for job in jobs.values() if max(e.modified_at for e in job) < oldest for entry in job])


def _replace_latest(state: JobState, identity: Mapping[str, Any], *, is_new: bool) -> EarlierLoad | None:
    """Record this job as the latest of its load. Return the previous one if it differs and this job is new.

    Raises
    ------
    TargetError
        If the previous job runs: its older rows could be written after newer ones of this job.
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
            _require_not_running(state, earlier_id)
    latest.put(_LATEST, {"job_id": state.job_id})
    return earlier


def _require_not_running(state: JobState, job_id: str) -> None:
    claim = Claim(state.store, job_id, "append")
    try:
        claim.take()
    except TargetError as error:
        raise TargetError(f"the same load is in progress: {error}", state.store.uri) from error
    claim.release()


def read_checkpoints(options: LoadOptions, job_id: str, identity: Mapping[str, Any]) -> CheckpointStore:
    """Return the checkpoints that earlier runs of a job have stored, without claiming the job.

    Raises
    ------
    OptionError
        If the job was started with another source, table or mode.
    """
    state = _state(options, job_id)
    begun = state.head()
    if begun is None:
        return CheckpointStore(None, job_id)
    require_same(job_id, begun, identity, _IDENTITY_NAMES)
    return _read(state)


def _state(options: LoadOptions, job_id: str) -> JobState:
    return JobState(open_store(options.state or state_folder(), options, is_temporary=True), job_id, "load")


def _read(state: JobState) -> CheckpointStore:
    files = list(state.records())
    # Two runs may have finished the same unit.
    finished = {
        unit: rows for file in files for first, last, rows in file["finished"] for unit in range(first, last + 1)
    }
    begun: dict[int, int] = {}
    for unit, rows in (pair for file in files for pair in file.get("begun", ())):
        if unit not in finished:
            begun[unit] = max(rows, begun.get(unit, 0))
    rows = sum(finished.values()) + sum(begun.values())
    return CheckpointStore(state, state.job_id, frozenset(finished), rows, begun)


def _runs(rows_of: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return the first unit, the last unit and the rows per unit of each run of adjacent units with equal rows."""
    ordered = enumerate(sorted(rows_of.items()))
    runs = itertools.groupby(ordered, lambda indexed: (indexed[1][0] - indexed[0], indexed[1][1]))
    groups = [[number for _, (number, _) in run] for _, run in runs]
    return [(group[0], group[-1], rows_of[group[0]]) for group in groups]
