"""State what a place for output must offer so that files appear whole or not at all; do no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from ddbio.core.staged import Staged, StoredObject


class Sink(Protocol):
    """Take the bytes of one file without showing any of it; enough of a file for ``pyarrow.PythonFile``."""

    closed: bool

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
        ...

    def finish(self, rows: int) -> Staged:
        """Return what completes the file once every byte is safe in the store; the file stays invisible."""
        ...

    def abort(self) -> None:
        """Discard the bytes; later writes are discarded too."""
        ...


class ObjectStore(Protocol):
    """Hold objects under one target; paths are relative to it and use ``/``. Picklable."""

    @property
    def uri(self) -> str:
        """The target, for messages and manifests."""
        ...

    @property
    def hazard(self) -> str | None:
        """What else would go if the whole target were deleted: the working folder, a bucket; None if nothing."""
        ...

    def create(self, path: str) -> Sink:
        """Return a sink for a file that appears at ``path``, as FileNaming names it, when it is completed."""
        ...

    def complete(self, staged: Staged) -> None:
        """Make a staged file visible; succeed as well if an earlier call did.

        Raises
        ------
        NotFoundError
            If the staged bytes are gone and the file is not there.
        """
        ...

    def abort(self, job_id: str) -> None:
        """Discard all that was staged for a job, also by tasks that were killed."""
        ...

    def staged_jobs(self) -> set[str]:
        """Return the ids of all jobs that have something staged."""
        ...

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the visible objects whose path starts with ``prefix``; nothing where there is no target."""
        ...

    def read(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises
        ------
        NotFoundError
            If there is no such object.
        """
        ...

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in pieces of about a megabyte; as ``read`` for the rest."""
        ...

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of an object that ``list`` has shown; fail if it was replaced since, where that can be told.

        Raises
        ------
        NotFoundError
            If there is no such object any more.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small object whole, over an older one if there is one."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object whole and return True, or return False if one is there."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""
        ...
