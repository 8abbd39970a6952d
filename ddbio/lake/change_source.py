"""What a source of changes offers: changes by numbers that only grow, in parts that tasks read.

A source counts what it has: batches of each capture, files of an export, or the number of a batch of rows. Up to which
number a table has the changes, its commits say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa


class ChangePart(Protocol):
    """Some of the changes, which one task reads; a picklable value."""

    @property
    def lineage(self) -> str:
        """Which stream they come from: the sequence numbers of one stream can be compared."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes, in the columns of a log."""
        ...

    def divided(self) -> Sequence[ChangePart]:
        """Return the smallest parts that this one can be divided into."""
        ...


@dataclass(frozen=True)
class AppliedTo:
    """Say what a table has of the changes, as a source has to know it.

    Attributes
    ----------
    uri
        The table.
    keys
        Its key attributes.
    epochs
        The streams whose changes it has, in the order of their epochs.
    base_us
        When its base load began, in microseconds since 1970; 0 if it has none.
    reached_us
        Up to when exports have all changes of it.
    """

    uri: str
    keys: tuple[str, ...]
    epochs: Sequence[str]
    base_us: int
    reached_us: int


class ChangeSource(Protocol):
    """Offer changes by numbers that only grow; errors are those of ``ddbio.lake.apply.apply_log``."""

    slack_us: int
    """Changes so long before a base load began are applied too: clocks of the service and of this machine differ."""

    @property
    def uri(self) -> str:
        """What messages call it."""
        ...

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table; none if nothing tells them yet."""
        ...

    def columns(self) -> pa.Schema:
        """Return the columns of the rows."""
        ...

    def lineages(self) -> list[str]:
        """Return the streams that the changes come from, in the order in which they began."""
        ...

    def written(self) -> dict[str, int]:
        """Return the number that each input has reached."""
        ...

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the numbers behind so many changes, at least one number further than ``start``."""
        ...

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the changes behind some numbers up to others."""
        ...

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the number behind which an input is applied, given what the table says, and what there was."""
        ...

    def position(self, name: str) -> str:
        """Return the name under which the number of an input is stored; an empty text if it is not."""
        ...

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return other numbers that are stored with those of the inputs, by their names."""
        ...

    def meet(self, table: AppliedTo) -> None:
        """Learn what a table has; refuse one that would not be right with these changes."""
        ...
