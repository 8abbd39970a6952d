"""Interface of committers: a committer claims a target, and makes all staged files of a job visible together.

A plain folder is a committer (``commit.Target``), and so is a folder with the manifests of a native export
(``export_target``). A third one is a table format: its commit adds the staged files to the table's log, under a claim.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.storage.meta import META, PROBE, claim_path, format_state, is_claim, job_of_state, read_state
from ddbio.storage.object_store import is_there
from ddbio.storage.states import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ddbio.commit.snapshot import LiveFile
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import SmallObject, StagedFile, StoredObject

WriteMode: TypeAlias = Literal["error", "append", "overwrite", "replace"]

LEASE_SECONDS = 90.0
"""A job whose claim was not renewed for this time is dead."""

_RENEWALS = 6
_MIN_RENEWAL_SECONDS = 0.05
_LOG = logging.getLogger("ddbio.commit")


@dataclass(frozen=True)
class ForeignClaim:
    """Claim of another job, and its age."""

    job_id: str
    mode: WriteMode
    owner: dict[str, Any]
    age_seconds: float
    lease_seconds: float

    @property
    def is_live(self) -> bool:
        """Return whether the job may still be running."""
        return self.age_seconds < self.lease_seconds and not _has_ended(self.owner)

    def __str__(self) -> str:
        """Return a description of the job and its process."""
        host, process = self.owner.get("host", "an unknown host"), self.owner.get("process", "?")
        return (
            f"job {self.job_id} (mode {self.mode}, process {process} on {host}, since {self.owner.get('since', '?')})"
        )


class Claim:
    """Claim of a target for one job, from before the job's first read of the target until after its last write.

    Parameters
    ----------
    mode
        A job of mode ``append`` shares a target with any other job; only one job of all other modes runs at a time.
    lease_seconds
        Age at which a claim counts as dead; it is renewed several times within this age.
    """

    def __init__(
        self, store: ObjectStore, job_id: str, mode: WriteMode, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._store, self._job_id, self._mode, self._lease_seconds = store, job_id, mode, lease_seconds
        self._renew_seconds = max(_MIN_RENEWAL_SECONDS, lease_seconds / _RENEWALS)
        self._path = claim_path(job_id)

    def take(self) -> list[ForeignClaim]:
        """Write the claim once no other job excludes this one; return the claims of all others.

        A job that may run or have died is given one lease to renew its claim.

        Raises
        ------
        TargetError
            If another job writes to this target that excludes this one, or one of the same id; or if a claim is
            malformed,
            and so young that its job may run.
        """
        began, ages = time.monotonic(), dict[str, float]()
        while True:
            rivals = [claim for claim in self._claims_of_same_job() if claim.is_live]
            if not rivals:
                self.write()
                try:
                    others = self._others()
                except BaseException:
                    self.release()
                    raise
                rivals = [claim for claim in others if claim.is_live and "append" not in {self._mode, claim.mode}]
                if not rivals:
                    return others
                self.release()
            renewed = [claim for claim in rivals if claim.age_seconds < ages.get(claim.job_id, 0.0)]
            if renewed or time.monotonic() - began > self._lease_seconds + self._renew_seconds:
                raise self._refusal((renewed or rivals)[0])
            ages = {claim.job_id: claim.age_seconds for claim in rivals}
            # Two jobs that wait for each other check again at different times.
            time.sleep(self._renew_seconds * random.uniform(0.05, 0.2))

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the claim while the context is open."""
        ended = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(ended,), name="ddbio-claim", daemon=True)
        renewer.start()
        try:
            yield
        finally:
            ended.set()
            renewer.join()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Take the claim, renew it while the context is open, and release it.

        Raises
        ------
        TargetError
            If :func:`take` raises it.
        """
        self.take()
        try:
            with self.renewed():
                yield
        finally:
            self.release()

    def require(self) -> None:
        """Raise if another job considered this one dead and cleaned up after it.

        Raises
        ------
        TargetError
            If the claim does not exist any more.
        """
        if not is_there(self._store, self._path):
            raise TargetError(
                f"job {self._job_id} has lost its claim to {self._store.uri}: it could not renew it for "
                f"{self._lease_seconds:.0f} s and another job took the target over; run it again",
                self._store.uri,
            )

    def _refusal(self, rival: ForeignClaim) -> TargetError:
        if rival.job_id == self._job_id:
            message = f"{rival} runs already: wait for its end, or choose another job id"
        else:
            ways = "wait for its end, choose another target, or let both jobs append"
            message = f"target {self._store.uri} is being written to by {rival}: {ways}"
        return TargetError(message, self._store.uri)

    def _claims_of_same_job(self) -> list[ForeignClaim]:
        """Return the claim of another process that runs, or ran, under this job's id, if there is one."""
        # The probe shows the store's time, and proves that objects may be written, read and deleted here.
        path = f"{META}{self._job_id}{PROBE}"
        self._store.put(path, b"")
        with contextlib.suppress(NotFoundError):
            # Another run under this id may have deleted it.
            self._store.read(path)
        now = next((entry.modified_at for entry in self._store.list(path)), 0.0)
        self._store.delete([path])
        return self._read(self._store.list(self._path), now)

    def _others(self) -> list[ForeignClaim]:
        """Return the claims of all other jobs, just after this one's was written."""
        entries = {entry.path: entry for entry in self._store.list(META) if is_claim(entry.path)}
        own = entries.pop(self._path, None)
        return self._read(entries.values(), time.time() if own is None else own.modified_at)

    def _read(self, entries: Iterable[StoredObject], now: float) -> list[ForeignClaim]:
        claims = []
        for entry in entries:
            age_seconds = now - entry.modified_at
            try:
                state = read_state(self._store, entry.path)
            except NotFoundError:
                # Its job has ended in the meantime.
                continue
            except TargetError as error:
                if age_seconds < self._lease_seconds:
                    raise
                _LOG.warning("treating the claim as that of a dead job: %s", error)
                state = {"mode": "append", "owner": {}}
            job_id, mode, owner = job_of_state(entry.path), state["mode"], state["owner"]
            claims.append(ForeignClaim(job_id, mode, owner, age_seconds, self._lease_seconds))
        return claims

    def write(self) -> None:
        """Write the claim, or renew it."""
        state = {"format": FORMAT, "job_id": self._job_id, "mode": self._mode, "owner": _this_process()}
        self._store.put(self._path, format_state(state))

    def release(self) -> None:
        """Remove the claim."""
        self._store.delete([self._path])

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(self._renew_seconds):
            try:
                # A missing claim was taken away: writing it again would hide that.
                if is_there(self._store, self._path):
                    self.write()
            except DdbioError as error:
                _LOG.warning("the claim of job %s to %s could not be renewed: %s", self._job_id, self._store.uri, error)


def _this_process() -> dict[str, Any]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "system": _system(), **_process(os.getpid()), "since": since}


def _process(number: int) -> dict[str, Any]:
    """Return the number of a process and its start tick, if the system provides it."""
    with contextlib.suppress(OSError, IndexError):
        # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: field 22; the second field may have blanks.
        return {"process": number, "started": Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]}
    return {"process": number, "started": None}


def _system() -> str | None:
    """Return an id of this boot of this machine or container; None if the system does not provide it."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return None


def _has_ended(owner: dict[str, Any]) -> bool:
    """Return whether a process of this machine has ended; False if that is unknown."""
    if owner.get("system") is None or owner.get("system") != _system() or owner.get("started") is None:
        return False
    return bool(_process(owner["process"])["started"] != owner["started"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """Metadata of a job in its manifest, other than its files.

    Attributes
    ----------
    created_at
        The start of the job, as ISO 8601 in UTC.
    source
        The source of the rows.
    schema
        Schema of the files as JSON text.
    digest
        Digest of all rows, if one was computed.
    objects
        Additional small objects that the format needs, in the order in which they are written after the files.
    restored
        Files of older versions that are live again.
    report
        The job's report; running the job again under its id returns it.
    partition_by
        Name, attribute and part of each column of the files' folders; None if only the names of the folders define
        them.
    """

    created_at: str
    source: Mapping[str, Any]
    schema: str
    digest: str | None = None
    objects: tuple[SmallObject, ...] = ()
    restored: tuple[LiveFile, ...] = ()
    report: Mapping[str, Any] | None = None
    partition_by: Sequence[Mapping[str, Any]] | None = ()


class AlreadyCommittedError(Exception):
    """Raised if an earlier run of the same job is committed: there is nothing to do.

    Attributes
    ----------
    manifest
        The contents of that run's manifest.
    """

    def __init__(self, manifest: dict[str, Any]) -> None:
        super().__init__(manifest)
        self.manifest = manifest


class Publish(Protocol):
    """Function that publishes all staged files of a job together."""

    def __call__(self, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] | None = None) -> object:
        """Publish files and replace others; by default those that ``prepare`` returned."""
        ...


class Committer(Protocol):
    """Publisher of staged files. A job prepares, stages, then commits or aborts; the next job repairs a dead one."""

    def prepare(self, job_id: str) -> tuple[str, ...]:
        """Claim the target, repair the target after dead jobs, and return the objects that the job replaces.

        Raises
        ------
        AlreadyCommittedError
            If an earlier run of this job is committed.
        TargetError
            If this job may not write to the target now.
        """
        ...

    def renewed(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Keep the job's claim while the context is open."""
        ...

    def commit(
        self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()
    ) -> object:
        """Make all staged files visible, or none, and replace others.

        Raises
        ------
        TargetError
            If another job changed objects that this one replaces.
        """
        ...

    def abort(self, job_id: str) -> None:
        """Delete everything of a job that is not committed, including its claim."""
        ...

    def release(self, job_id: str) -> None:
        """Remove the claim of a job that has ended."""
        ...


@contextlib.contextmanager
def publishing(committer: Committer, job_id: str) -> Iterator[Publish]:
    """Claim and prepare a target, and yield the function that publishes files there.

    Nothing of the job remains at the target if the block raises. The job's tasks must have ended when the block ends.

    Raises
    ------
    AlreadyCommittedError, TargetError
        If :func:`prepare` raises it.
    """
    prepared = committer.prepare(job_id)

    def publish(staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] | None = None) -> object:
        return committer.commit(job_id, staged, info, prepared if replaced is None else replaced)

    try:
        with committer.renewed(job_id):
            yield publish
    except BaseException:
        committer.abort(job_id)
        raise
    # A renewal may have written the claim again after the commit deleted it.
    with contextlib.suppress(DdbioError):
        committer.release(job_id)
