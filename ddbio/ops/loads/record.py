"""Note which units of a load are finished, so that the same job can go on after them; write no row.

The head ``_ddbio/<job_id>.load.json`` says what the job is. Beside it, in ``_ddbio/<job_id>.load/``, each run, and each
of its tasks, keeps one small file of what it has finished: no two writers ever share one.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError, TargetError
from ddbio.files.claim import Claim
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.core.table_description import TableDescription
    from ddbio.files.object_store import ObjectStore
    from ddbio.ops.loads.sources import FileSource
    from ddbio.options import LoadOptions

KEPT_SECONDS = 1.0
"""What was finished since the last note, at most so long ago, is written again by a job that was killed."""

log = logging.getLogger(__name__)


def state_folder() -> str:
    """Return where loads note their progress unless told otherwise: this user's state folder.

    References
    ----------
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(root) / "ddbio")


def identity_of(
    options: LoadOptions, facts: TableDescription, source: FileSource, shares: int | None
) -> dict[str, Any]:
    """Return what must be the same for a job to go on; rates, lanes and the place of rejects may change."""
    listed = hashlib.sha256()
    for entry in source.files:
        listed.update(f"{entry.path}\n{entry.size_bytes}\n{entry.version}\n".encode())
    return {
        "source": source.store.uri,
        "files": listed.hexdigest(),
        "units": len(source.units),
        "shares": shares,
        "table": f"{facts.arn} {facts.table_id}",
        "mode": options.mode,
        "newer_by": options.newer_by,
        "operation_by": options.operation_by,
        "json_format": options.json_format,
        "hive_partitions": options.hive_partitions,
    }


class LoadRecord:
    """Know the finished units of one job, and note those that this task finishes; picklable until the first note."""

    def __init__(self, store: ObjectStore | None, job_id: str, finished: frozenset[int], rows: int) -> None:
        self.finished, self.rows = finished, rows
        self.job_id = job_id
        self._store = store
        self._new: dict[int, int] = {}
        self._name = ""
        self._noted_at = 0.0

    def of_task(self) -> LoadRecord:
        """Return a record for a task, to note what it finishes; it knows of nothing finished before."""
        return LoadRecord(self._store, self.job_id, frozenset(), 0)

    @property
    def is_kept(self) -> bool:
        """Return whether a later run will find what is noted."""
        return self._store is not None

    def finish(self, unit: int, rows: int) -> None:
        """Take a unit for finished; it is noted within a second, or when ``flush`` is called."""
        self._new[unit] = rows
        if time.monotonic() - self._noted_at >= KEPT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Note all that is finished."""
        if self._store is None or not self._new:
            return
        self._name = self._name or f"{secrets.token_hex(4)}.json"
        noted = json.dumps({"finished": _runs(self._new)}).encode()
        self._store.put(f"_ddbio/{self.job_id}.load/{self._name}", noted)
        self._noted_at = time.monotonic()


@contextlib.contextmanager
def open_record(
    options: LoadOptions, job_id: str, identity: Mapping[str, Any], cluster: str | None = None
) -> Iterator[LoadRecord]:
    """Hand out the record of a job, a new one if there is none, and keep other runs of the job away meanwhile.

    They would write its older rows behind newer ones.

    Parameters
    ----------
    cluster
        The master of the cluster that runs the job; its workers do not reach this user's state folder.

    Raises
    ------
    OptionError
        If the job was begun with another source, table or mode; or if it has a name, and no state that a cluster's
        workers reach.
    TargetError
        If its place, where one was given, cannot be written, or another run of the job is under way.
    """
    if cluster is not None and options.state is None and not options.shared_paths:
        advice = "give state=s3://…, a place that all workers reach, or shared_paths"
        if options.job_id is not None:
            raise OptionError(f"job {job_id!r} cannot be continued on {cluster} without a state: {advice}")
        log.warning("this load cannot be continued if it is stopped: to have that on %s %s", cluster, advice)
        yield LoadRecord(None, job_id, frozenset(), 0)
        return
    store = open_store(options.state or state_folder(), options)
    try:
        begun = _begin(store, job_id, identity)
    except TargetError as error:
        if options.state is not None:
            raise
        log.warning("this load cannot be continued if it is stopped, give a state: %s", error)
        yield LoadRecord(None, job_id, frozenset(), 0)
        return
    _require_same(begun, identity, job_id)
    claim = Claim(store, job_id, "append")
    claim.take()
    try:
        with claim.kept():
            yield _read(store, job_id)
    finally:
        claim.release()


def _read(store: ObjectStore, job_id: str) -> LoadRecord:
    noted = [json.loads(store.read(entry.path)) for entry in store.list(f"_ddbio/{job_id}.load/")]
    # A unit that two runs have finished is one.
    finished = {
        unit: rows for each in noted for first, last, rows in each["finished"] for unit in range(first, last + 1)
    }
    return LoadRecord(store, job_id, frozenset(finished), sum(finished.values()))


def _begin(store: ObjectStore, job_id: str, identity: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the job was begun as; begin it if it was not."""
    head = f"_ddbio/{job_id}.load.json"
    if store.put_if_absent(head, json.dumps(dict(identity)).encode()):
        return identity
    begun: Mapping[str, Any] = json.loads(store.read(head))
    return begun


def _require_same(begun: Mapping[str, Any], identity: Mapping[str, Any], job_id: str) -> None:
    for name, value in identity.items():
        if begun.get(name) == value:
            continue
        if name == "files":
            told = "the files of its source have changed since"
        else:
            said = "tasks that share its keys:" if name == "shares" else name
            told = f"it was begun with {said} {begun.get(name)!r}, and {value!r} is asked for"
        raise OptionError(f"job {job_id!r} cannot go on: {told}; load under another job_id")


def _runs(rows_of: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return first and last of each run of neighbours that have as many rows each, and how many."""
    ordered = enumerate(sorted(rows_of.items()))
    runs = itertools.groupby(ordered, lambda each: (each[1][0] - each[0], each[1][1]))
    groups = [[number for _, (number, _) in run] for _, run in runs]
    return [(group[0], group[-1], rows_of[group[0]]) for group in groups]
