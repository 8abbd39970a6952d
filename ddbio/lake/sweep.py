"""Search for files of a lake table that no readable version needs: data files, and files of the table's log."""

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
    """Files to delete, and the first version that can be read afterwards."""

    files: tuple[StoredObject, ...]
    since_version: int

    @property
    def bytes(self) -> int:
        """Return the size of the files."""
        return sum(file.size_bytes for file in self.files)


def plan_sweep(table: LakeTable, state: LakeState, cut: float) -> Sweep:
    """Return the data files that no version since a time needs: those of older versions and of abandoned commits.

    Files that are newer than the time are kept, because a job may still commit them.

    Parameters
    ----------
    cut
        Seconds since 1970. Files of versions that were current at this time, or later, are kept.
    """
    times = _times(table)
    since = _first_version(times, cut)
    live = {file.path for file in state.files}
    for number in (number for number in times if since <= number < state.version):
        try:
            version_state = table.load(number)
        except NotFoundError:
            continue
        live.update(file.path for file in (() if version_state is None else version_state.files))
    stored = table.store.list("")
    # Only files with names of data files are considered, since other programs may have put files there.
    gone = [
        entry for entry in stored if _DATA.fullmatch(entry.path) and entry.path not in live and entry.modified_at < cut
    ]
    return Sweep(tuple(gone), since)


def plan_expiry(table: LakeTable, state: LakeState, cut: float) -> Sweep:
    """Return the files of the table's log that no version since a time needs.

    Parameters
    ----------
    cut
        As in :func:`plan_sweep`.
    """
    since = _first_version(_times(table), cut)
    gone = table.outdated(state, since) if since else []
    return Sweep(tuple(entry for entry in gone if entry.modified_at < cut), since)


def _times(table: LakeTable) -> dict[int, float]:
    """Return the creation time of each version in the table's log."""
    times = dict[int, float]()
    for prefix in ("_delta_log/", "metadata/v", ".hoodie/"):
        for entry in table.store.list(prefix):
            if match := _VERSION.fullmatch(entry.path):
                times[int(match[1] or match[2] or match[3])] = entry.modified_at
    return times


def _first_version(times: Mapping[int, float], cut: float) -> int:
    """Return the version that was current at a time; 0 if it is unknown or there was none."""
    return max((number for number, at in times.items() if at < cut), default=0)
