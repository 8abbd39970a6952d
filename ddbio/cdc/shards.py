"""Shards of a stream: the shards that can be read now, their positions, and lost changes.

A shard is read only after its parents were read to their end, so the changes of an item stay in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from ddbio.errors import GapError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

Start = Literal["trim-horizon", "latest"]

# A position is the sequence number of the last record that was read, or one of these words.
HORIZON: Final = "TRIM_HORIZON"
LATEST: Final = "LATEST"
"""The oldest record that is not older than the capture. The service's own LATEST is not an exact position."""
FIRST: Final = "FIRST"
"""The first sequence number of the shard. Reading from it fails if any record of the shard was trimmed."""
END: Final = "END"


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard of a stream: its id, its parents, its first and last sequence numbers. An open shard has no last one."""

    shard_id: str
    parents: tuple[str, ...]
    first: str
    last: str | None


class TrimmedError(Exception):
    """Raised by a source if the records at a position were trimmed."""


class ExpiredError(Exception):
    """Raised by a source if an iterator expired."""


@dataclass
class Lineage:
    """Positions of a capture in the shards of one stream. A later run can resume from the stored ``positions``."""

    name: str
    positions: dict[str, str] = field(default_factory=dict)
    may_read: Callable[[str], bool] = lambda _: True
    _shards: dict[str, Shard] = field(default_factory=dict)

    def discover(self, listed: Iterable[Shard], *, start: Start | None = None) -> None:
        """Register the shards that the service lists.

        Parameters
        ----------
        listed
            The shards that the service lists now.
        start
            The starting position of a new capture. None for all later calls.

        Raises
        ------
        GapError
            If a shard disappeared before it was read to its end, or before it was seen.
        """
        shards = {shard.shard_id: shard for shard in listed}
        if start is None:
            self._check(shards)
        for shard_id, shard in shards.items():
            self._shards[shard_id] = shard
            if shard_id in self.positions:
                continue
            self.positions[shard_id] = FIRST if start is None else HORIZON if start == "trim-horizon" else LATEST
        for shard_id in [
            shard_id for shard_id, position in self.positions.items() if position == END and shard_id not in shards
        ]:
            del self.positions[shard_id]
            self._shards.pop(shard_id, None)

    def drop_expired_shards(self, listed: Iterable[Shard]) -> list[str]:
        """Mark shards that are gone as read to their end, and return their ids. Their unread changes are lost."""
        shards = list(listed)
        listed_ids = {shard.shard_id for shard in shards}
        gone = [
            shard_id for shard_id, position in self.positions.items() if position != END and shard_id not in listed_ids
        ]
        gone += self._unread(shards, listed_ids)
        for shard_id in gone:
            self.positions[shard_id] = END
        return gone

    def readable(self) -> list[Shard]:
        """Return the shards that can be read now, in the order of their creation."""
        return [
            self._shards[shard_id]
            for shard_id, position in sorted(self.positions.items())
            if position != END
            and all(self.positions.get(parent, END) == END for parent in self._shards[shard_id].parents)
            and self.may_read(shard_id)
        ]

    @property
    def is_waiting(self) -> bool:
        """Return whether a shard has to wait for a parent that another capture reads."""
        return any(position != END and not self.may_read(shard_id) for shard_id, position in self.positions.items())

    def advance(self, shard_id: str, position: str) -> None:
        """Record the position up to which a shard was read."""
        self.positions[shard_id] = position

    @property
    def is_finished(self) -> bool:
        """Return whether every shard was read to its end."""
        return all(position == END for position in self.positions.values())

    def _check(self, shards: Mapping[str, Shard]) -> None:
        for shard_id, position in self.positions.items():
            if position != END and shard_id not in shards:
                raise gap(self.name, shard_id, position)
        for shard_id in self._unread(shards.values(), shards):
            raise gap(self.name, shard_id, FIRST)

    def _unread(self, shards: Iterable[Shard], listed_ids: Collection[str]) -> list[str]:
        """Return the parents of new shards that disappeared before they were seen."""
        parents = [parent for shard in shards if shard.shard_id not in self.positions for parent in shard.parents]
        return [
            parent for parent in dict.fromkeys(parents) if parent not in listed_ids and parent not in self.positions
        ]


def gap(name: str, shard_id: str, position: str) -> GapError:
    """Return the error for changes that were trimmed before they were read."""
    since = {HORIZON: "its oldest record", LATEST: "the start of the capture", FIRST: "its first record"}.get(
        position, f"record {position}"
    )
    return GapError(
        f"changes of shard {shard_id} of {name} since {since} are gone: the stream keeps them for a day, and nothing "
        "read them in time. Continue the log after the gap with on_gap=continue, and heal it from an incremental "
        "export with 'ddbio capture heal'",
        shard_id,
        position,
    )
