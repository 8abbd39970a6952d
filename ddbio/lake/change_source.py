"""Interface of a source of changes, which are numbered in ascending order and read by tasks in parts.

A source counts batches of captures, files of an export, or batches of rows. The commits of a table record up to which
number it contains the changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa


class ChangePart(Protocol):
    """Some of the changes, read by one task; a picklable value."""

    @property
    def lineage(self) -> str:
        """Return the stream of the changes; sequence numbers can be compared only within one stream."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes, in the columns of a log."""
        ...

    def divided(self) -> Sequence[ChangePart]:
        """Return the smallest parts that this part can be divided into."""
        ...


@dataclass(frozen=True)
class AppliedTo:
    """Description of the changes that a table already has.

    Attributes
    ----------
    uri
        The table.
    keys
        Its key attributes.
    epochs
        The streams of its changes, in the order of their epochs.
    base_us
        The start of its base load, in microseconds since 1970; 0 without a base.
    reached_us
        The time up to which exports have been applied.
    """

    uri: str
    keys: tuple[str, ...]
    epochs: Sequence[str]
    base_us: int
    reached_us: int


class ChangeSource(Protocol):
    """Source of numbered changes; errors are those of ``ddbio.lake.apply.apply_log``."""

    slack_us: int
    """Microseconds before the base load from which changes are applied too, because clocks may differ."""

    @property
    def uri(self) -> str:
        """Return the name of the source in messages."""
        ...

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table; empty if they are not known yet."""
        ...

    def columns(self) -> pa.Schema:
        """Return the columns of the rows."""
        ...

    def lineages(self) -> list[str]:
        """Return the streams of the changes, in the order of their start."""
        ...

    def written(self) -> dict[str, int]:
        """Return the last number of each input."""
        ...

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the numbers after about this number of changes, at least one number after ``start``."""
        ...

    def parts(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[ChangePart]:
        """Return the changes after the numbers ``start`` up to ``end``."""
        ...

    def resumed(self, name: str, applied: int, last: int) -> int:
        """Return the number from which an input resumes, given the applied and the last number."""
        ...

    def position(self, name: str) -> str:
        """Return the name under which the number of an input is stored; empty if it is not stored."""
        ...

    def reached(self, start: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Return other numbers that are stored with those of the inputs, by their names."""
        ...

    def check_table(self, table: AppliedTo) -> None:
        """Use the state of a table, and raise if the changes cannot be applied to it."""
        ...
