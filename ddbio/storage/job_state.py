"""Keep what a job has done where its next run finds it: a head that says what the job is, and records beside it.

The head is ``_ddbio/<job_id>.<kind>.json``, written once. Records lie in ``_ddbio/<job_id>.<kind>/``. A record that is
written only if it is not there is a fence: of two runs of a job only one passes it.
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
    """Read and write the state of one job in a store; picklable as far as the store is.

    Attributes
    ----------
    kind
        What the job does: it is part of the names of all its objects.
    """

    store: ObjectStore
    job_id: str
    kind: str

    def begin(self, identity: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the job was begun with; begin it if it is new."""
        if self.store.put_if_absent(self._head, _text(identity)):
            return identity
        return self.head() or identity

    def begin_as(self, identity: Mapping[str, Any], noted: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return what the job was begun with; begin it if it is new, and refuse to go on under another identity.

        Parameters
        ----------
        noted
            What the first run notes besides; later runs may differ in it.

        Raises
        ------
        OptionError
            If a member of the identity differs.
        """
        noted = noted or {}
        begun = self.begin({**identity, **noted})
        require_same(self.job_id, begun, {**identity, **{name: begun.get(name) for name in noted}}, {})
        return begun

    def head(self) -> dict[str, Any] | None:
        """Return what the job was begun with, or None if it is new."""
        return self._read(self._head)

    def put(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a record, over an older one of this name if there is one."""
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
        """Return the names of all records that begin so, and when each was written by the clock of the store."""
        folder = f"{META}{self.job_id}.{self.kind}/"
        found = self.store.list(f"{folder}{prefix}")
        return {each.path.removeprefix(folder).removesuffix(".json"): each.modified_at for each in found}

    def delete(self, names: Iterable[str]) -> None:
        """Delete records; those that are not there are passed over."""
        self.store.delete([self._path(each) for each in names])

    def forget(self) -> None:
        """Delete the head and all records, so that the job begins anew."""
        folder = f"{META}{self.job_id}.{self.kind}/"
        self.store.delete([*(each.path for each in self.store.list(folder)), self._head])

    @property
    def _head(self) -> str:
        return f"{META}{self.job_id}.{self.kind}.json"

    def _path(self, name: str) -> str:
        return f"{META}{self.job_id}.{self.kind}/{name}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        with contextlib.suppress(NotFoundError):
            return read_state(self.store, path)
        return None


def require_same(job_id: str, begun: Mapping[str, Any], identity: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Refuse to continue a job under another identity.

    Parameters
    ----------
    begun
        What the job was begun with.
    names
        How members are called in a message; an empty text stands for the files of a source.

    Raises
    ------
    OptionError
        If a member differs.
    """
    # Options that a job does not have are not in its identity.
    for name, value in (dict.fromkeys(begun) | dict(identity)).items():
        if begun.get(name) == value:
            continue
        said = names.get(name, name)
        reason = f"it was begun with {said} {begun.get(name)!r}, and {value!r} is asked for; give {said} as then, or"
        if not said:
            reason = "the files of its source have changed since; give"
        raise OptionError(f"job {job_id!r} cannot go on: {reason} another job_id")


def _text(values: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(values), ensure_ascii=False).encode()
