"""What a committer is: it claims a target, and makes the files that a job's tasks have staged visible together.

A plain folder is one (``commit.Target``), a folder with the manifests of a native export another (``export_target``). A
table format is a third: its commit adds the staged files to the table's log, under the same claim.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ddbio.errors import DdbioError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddbio.commit.snapshot_form import LiveFile
    from ddbio.storage.staged import SmallObject, StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What a manifest says of a job beside its files.

    Attributes
    ----------
    created_at
        When the job started, as ISO 8601 in UTC.
    source
        Where the rows came from.
    schema
        Schema of the files as JSON text.
    digest
        Digest of all rows, if one was taken.
    objects
        Small objects that the format needs beside the files, in the order in which they are written after the files.
    restored
        Files of older versions that are live again.
    report
        The job's report; running the job again under its id returns it.
    partition_by
        Name, attribute and part of each column that the folders of the files say; None if only their names tell.
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
        What that run's manifest says.
    """

    def __init__(self, manifest: dict[str, Any]) -> None:
        super().__init__(manifest)
        self.manifest = manifest


class Publish(Protocol):
    """Publish the staged files of a job, all together."""

    def __call__(self, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] | None = None) -> object:
        """Publish files in place of others; by default in place of what ``prepare`` found."""
        ...


class Committer(Protocol):
    """Publish what jobs stage. A job prepares, stages, and then commits or aborts; a dead one is mended by the next."""

    def prepare(self, job_id: str) -> tuple[str, ...]:
        """Claim the target, mend what dead jobs left, and return what the job replaces.

        Raises
        ------
        AlreadyCommittedError
            If an earlier run of this job is committed.
        TargetError
            If the target may not be written to by this job now.
        """
        ...

    def renewed(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Keep the job's claim while the context is open."""
        ...

    def commit(
        self, job_id: str, staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] = ()
    ) -> object:
        """Make the staged files visible, all or none, in place of others.

        Raises
        ------
        TargetError
            If another job changed what this one replaces.
        """
        ...

    def abort(self, job_id: str) -> None:
        """Delete everything of a job that is not committed, its claim too."""
        ...

    def release(self, job_id: str) -> None:
        """Remove the claim of a job that has ended."""
        ...


@contextlib.contextmanager
def publishing(committer: Committer, job_id: str) -> Iterator[Publish]:
    """Claim and prepare a target, and hand out the function that publishes files there.

    Nothing of the job stays at the target if the block raises. The job's tasks must have ended when the block ends.

    Raises
    ------
    AlreadyCommittedError, TargetError
        As :func:`prepare` says.
    """
    found = committer.prepare(job_id)

    def publish(staged: Sequence[StagedFile], info: CommitInfo, replaced: Sequence[str] | None = None) -> object:
        return committer.commit(job_id, staged, info, found if replaced is None else replaced)

    try:
        with committer.renewed(job_id):
            yield publish
    except BaseException:
        committer.abort(job_id)
        raise
    # A renewal may have written the claim again after the commit deleted it.
    with contextlib.suppress(DdbioError):
        committer.release(job_id)
