"""Know the shards of a stream: which are read now, from where, and what is lost.

A shard is read after its parents were read to their end, so the changes of an item stay in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from ddbio.errors import GapError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

Start = Literal["trim-horizon", "latest"]

# What a position is besides the number of the last record that was read.
HORIZON: Final = "TRIM_HORIZON"
LATEST: Final = "LATEST"
"""The oldest record that is not older than the capture: the service's own latest is not an exact place."""
FIRST: Final = "FIRST"
"""The shard's own first number: reading from there fails if anything of it was trimmed."""
END: Final = "END"


@dataclass(frozen=True, slots=True)
class Shard:
    """Describe one shard: its id, those it follows, the numbers it begins and ends with; an open one has no end."""

    shard_id: str
    parents: tuple[str, ...]
    first: str
    last: str | None


class TrimmedError(Exception):
    """Raised by a source if records at a position are gone."""


class ExpiredError(Exception):
    """Raised by a source if an iterator was not used for too long."""


@dataclass
class Lineage:
    """Hold the position in each shard; what ``positions`` says can be stored, and read on from.

    Attributes
    ----------
    name
        The name of the stream, for messages.
    positions
        By shard: the number of the last record that was read, or one of the words above.
    may_read
        Says whether a shard may be read as far as parents go that this capture does not read.
    """

    name: str
    positions: dict[str, str] = field(default_factory=dict)
    may_read: Callable[[str], bool] = lambda _: True
    _known: dict[str, Shard] = field(default_factory=dict)

    def discover(self, listed: Iterable[Shard], *, start: Start | None = None) -> None:
        """Take note of the shards that there are.

        Parameters
        ----------
        start
            Where a capture begins that was never run before; None for all later looks.

        Raises
        ------
        GapError
            If a shard is gone before it was read to its end, or one that was never seen.
        """
        found = {shard.shard_id: shard for shard in listed}
        if start is None:
            self._check(found)
        for shard_id, shard in found.items():
            self._known[shard_id] = shard
            if shard_id in self.positions:
                continue
            self.positions[shard_id] = FIRST if start is None else HORIZON if start == "trim-horizon" else LATEST
        for shard_id in [each for each, position in self.positions.items() if position == END and each not in found]:
            del self.positions[shard_id]
            self._known.pop(shard_id, None)

    def forgive(self, listed: Iterable[Shard]) -> list[str]:
        """Accept that changes are lost: go on with the shards that there are; return those that are gone."""
        shards = list(listed)
        found = {shard.shard_id for shard in shards}
        gone = [each for each, position in self.positions.items() if position != END and each not in found]
        gone += self._unread(shards, found)
        for shard_id in gone:
            self.positions[shard_id] = END
        return gone

    def readable(self) -> list[Shard]:
        """Return the shards that can be read now, in the order in which they were made."""
        return [
            self._known[shard_id]
            for shard_id, position in sorted(self.positions.items())
            if position != END
            and all(self.positions.get(each, END) == END for each in self._known[shard_id].parents)
            and self.may_read(shard_id)
        ]

    @property
    def is_waiting(self) -> bool:
        """Return whether a shard cannot be read yet for the sake of a parent that this capture does not read."""
        return any(position != END and not self.may_read(each) for each, position in self.positions.items())

    def advance(self, shard_id: str, position: str) -> None:
        """Note that a shard was read up to a position."""
        self.positions[shard_id] = position

    @property
    def is_finished(self) -> bool:
        """Return whether every shard was read to its end."""
        return all(position == END for position in self.positions.values())

    def _check(self, found: Mapping[str, Shard]) -> None:
        for shard_id, position in self.positions.items():
            if position != END and shard_id not in found:
                raise gap(self.name, shard_id, position)
        for shard_id in self._unread(found.values(), found):
            raise gap(self.name, shard_id, FIRST)

    def _unread(self, shards: Iterable[Shard], found: Collection[str]) -> list[str]:
        """Return the parents of new shards that were gone before they were ever seen."""
        parents = [each for shard in shards if shard.shard_id not in self.positions for each in shard.parents]
        return [each for each in dict.fromkeys(parents) if each not in found and each not in self.positions]


def gap(name: str, shard_id: str, position: str) -> GapError:
    """Return the error of changes that were trimmed before they were read."""
    since = {HORIZON: "its oldest record", LATEST: "the beginning of the capture", FIRST: "its first record"}.get(
        position, f"record {position}"
    )
    return GapError(
        f"changes of shard {shard_id} of {name} since {since} are gone: the stream keeps them for a day, and nothing "
        "read them in time. Let the log go on behind the gap with on_gap=continue, and heal it from an incremental "
        "export with 'ddbio capture heal'",
        shard_id,
        position,
    )
