"""State of a job for its next run: a head that identifies the job, and records.

The head is ``_ddbio/<job_id>.<kind>.json``, written once. Records are in ``_ddbio/<job_id>.<kind>/``. A record that is
written only if it does not exist is a fence: of two runs of a job, only one passes it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.errors import NotFoundError, OptionError
from ddbio.storage.meta import META, read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddbio.storage.object_store import ObjectStore


@dataclass(frozen=True)
class JobState:
    """State of one job in a store; picklable if the store is.

    Attributes
    ----------
    kind
        The type of job, which is part of the names of all its objects.
    """

    store: ObjectStore
    job_id: str
    kind: str

    def begin(self, identity: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the identity with which the job was started; start it if it is new."""
        if self.store.put_if_absent(self._head, _text(identity)):
            return identity
        return self.head() or identity

    def start_as(self, identity: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return the head with which the job was started; start it if it is new, and refuse to resume another identity.

        Parameters
        ----------
        extra
            Additional members that the first run records; later runs may differ in them.

        Raises
        ------
        OptionError
            If a member of the identity differs.
        """
        extra = extra or {}
        head = self.begin({**identity, **extra})
        require_same(self.job_id, head, {**identity, **{name: head.get(name) for name in extra}}, {})
        return head

    def head(self) -> dict[str, Any] | None:
        """Return the head of the job, or None if it is new."""
        return self._read(self._head)

    def put(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a record, and replace an older one of this name."""
        self.store.put(self._path(name), _text(values))

    def put_once(self, name: str, values: Mapping[str, Any]) -> bool:
        """Write a record and return True, or return False if there is one of this name."""
        return self.store.put_if_absent(self._path(name), _text(values))

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a record, or None if there is none of this name."""
        return self._read(self._path(name))

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield all records, in the order of their names."""
        for entry in self.store.list(f"{META}{self.job_id}.{self.kind}/"):
            yield read_state(self.store, entry.path)

    def listed(self, prefix: str = "") -> dict[str, float]:
        """Return the names of all records with this prefix, and their times of writing by the store's clock."""
        folder = f"{META}{self.job_id}.{self.kind}/"
        entries = self.store.list(f"{folder}{prefix}")
        return {entry.path.removeprefix(folder).removesuffix(".json"): entry.modified_at for entry in entries}

    def delete(self, names: Iterable[str]) -> None:
        """Delete records; missing ones are ignored."""
        self.store.delete([self._path(name) for name in names])

    def forget(self) -> None:
        """Delete the head and all records, so that the job restarts from the beginning."""
        folder = f"{META}{self.job_id}.{self.kind}/"
        self.store.delete([*(entry.path for entry in self.store.list(folder)), self._head])

    @property
    def _head(self) -> str:
        return f"{META}{self.job_id}.{self.kind}.json"

    def _path(self, name: str) -> str:
        return f"{META}{self.job_id}.{self.kind}/{name}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        with contextlib.suppress(NotFoundError):
            return read_state(self.store, path)
        return None


def require_same(job_id: str, head: Mapping[str, Any], identity: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Refuse to continue a job under another identity.

    Parameters
    ----------
    head
        The head with which the job was started.
    names
        The names of members in messages; an empty text is for the files of a source.

    Raises
    ------
    OptionError
        If a member differs.
    """
    # The identity does not include options that a job does not have.
    for name, value in (dict.fromkeys(head) | dict(identity)).items():
        if head.get(name) == value:
            continue
        shown_name = names.get(name, name)
        reason = (
            f"it was started with {shown_name} {head.get(name)!r}, and {value!r} is asked for; give {shown_name} as "
            "then, or"
        )
        if not shown_name:
            reason = "the files of its source have changed since; give"
        raise OptionError(f"job {job_id!r} cannot be resumed: {reason} another job_id")


def _text(values: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(values), ensure_ascii=False).encode()
