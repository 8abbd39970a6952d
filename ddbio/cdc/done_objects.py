"""Note which objects a job has put through: one record for each, and one for every thousand of them."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddbio.storage.job_state import JobState
    from ddbio.storage.staged import StoredObject

_SINGLE, _FOLDED = re.compile(r"[0-9a-f]{24}"), "done-"


class DoneObjects:
    """Hold the objects that are done; one process at a time notes more.

    Parameters
    ----------
    fold_objects
        So many records of single objects become one.
    """

    def __init__(self, state: JobState, fold_objects: int = 1_000) -> None:
        self._state, self._fold_objects = state, fold_objects
        names = state.listed()
        self._singles = [each for each in names if _SINGLE.fullmatch(each)]
        folded = (state.read(each) or {"objects": []} for each in names if each.startswith(_FOLDED))
        self._known = {*self._singles}.union(*(each["objects"] for each in folded))

    def __contains__(self, entry: StoredObject) -> bool:
        """Return whether an object is done."""
        return object_name(entry) in self._known

    def add(self, entry: StoredObject) -> None:
        """Note that an object is done."""
        name = object_name(entry)
        self._state.put(name, {"path": entry.path})
        self._known.add(name)
        self._singles.append(name)
        if len(self._singles) >= self._fold_objects:
            self._fold()

    def _fold(self) -> None:
        # An object that is in both kinds of records is done all the same.
        digest = hashlib.sha256(" ".join(self._singles).encode()).hexdigest()[:24]
        self._state.put(f"{_FOLDED}{digest}", {"objects": self._singles})
        self._state.delete(self._singles)
        self._singles = []


def object_name(entry: StoredObject) -> str:
    """Return what stands for one version of an object."""
    return hashlib.sha256(f"{entry.path} {entry.version}".encode()).hexdigest()[:24]
