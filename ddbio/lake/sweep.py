"""Find the files of a lake table that no version needs which a reader may still be at: its data, and its own log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.lake_formats.table import LakeState, LakeTable
    from ddbio.storage.staged import StoredObject

_VERSION = re.compile(
    r"(?:_delta_log/(\d{20})\.json|metadata/v(\d+)\.metadata\.json|\.hoodie/(\d+)\.(?:replace)?commit)"
)
_DATA = re.compile(r"(?:data/)?_b=[^/]+/[^/]+\.parquet")


@dataclass(frozen=True)
class Sweep:
    """Name the files that go, and the first version that can be read afterwards."""

    files: tuple[StoredObject, ...]
    since_version: int

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(each.size_bytes for each in self.files)


def plan_sweep(table: LakeTable, state: LakeState, cut: float) -> Sweep:
    """Return the data files that no version since a time has: of older versions, and of commits that never came.

    Files that are younger than the time stay, whatever they are: a job may be about to commit them.

    Parameters
    ----------
    cut
        Seconds since 1970: readers of versions that were the newest at this time, or later, are respected.
    """
    times = _times(table)
    since = _first_version(times, cut)
    live = {each.path for each in state.files}
    for number in (each for each in times if since <= each < state.version):
        try:
            found = table.load(number)
        except NotFoundError:
            continue
        live.update(each.path for each in (() if found is None else found.files))
    stored = table.store.list("")
    # Files of our own places, and those that others may have put there, are not looked at.
    gone = [each for each in stored if _DATA.fullmatch(each.path) and each.path not in live and each.modified_at < cut]
    return Sweep(tuple(gone), since)


def plan_expiry(table: LakeTable, state: LakeState, cut: float) -> Sweep:
    """Return the files of the table's log that no version since a time needs, once the older ones are forgotten.

    Parameters
    ----------
    cut
        As of :func:`plan_sweep`.
    """
    since = _first_version(_times(table), cut)
    gone = table.outdated(state, since) if since else []
    return Sweep(tuple(each for each in gone if each.modified_at < cut), since)


def _times(table: LakeTable) -> dict[int, float]:
    """Return when each version was made that the table's log still has."""
    times = dict[int, float]()
    for place in ("_delta_log/", "metadata/v", ".hoodie/"):
        for each in table.store.list(place):
            if match := _VERSION.fullmatch(each.path):
                times[int(match[1] or match[2] or match[3])] = each.modified_at
    return times


def _first_version(times: Mapping[int, float], cut: float) -> int:
    """Return the version that was the newest at a time; 0 if there was none, or nothing tells."""
    return max((number for number, at in times.items() if at < cut), default=0)
