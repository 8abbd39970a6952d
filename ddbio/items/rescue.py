"""Rescue of values that fit no column: exact DynamoDB JSON in the rescue column, and counts of misfits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ddbio.errors import EncodeError, SchemaError
from ddbio.items.json_text import compact_json
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddbio.items.attribute import AttributeValue, Item

UNKNOWN = "not in the schema"
OTHER_TYPE = "another type"
DOES_NOT_FIT = "does not fit the column"

OnMisfit: TypeAlias = Literal["rescue", "fail", "drop"]
"""The handling of a value that fits no column. ``drop`` concerns the attributes named with it; others are rescued."""

_LONGEST_EXAMPLE = 200


@dataclass(frozen=True, slots=True)
class Misfit:
    """Number of values under one path that did not fit the schema, with the first as an example."""

    path: str
    """``name``, ``map.name``, ``list[]``; ``map.*`` for a member that the schema lacks."""

    kind: str
    """``not in the schema``, ``another type`` or ``does not fit the column``."""

    count: int
    example: str
    """The first such value as DynamoDB JSON, cut after 200 characters."""

    dropped: int = 0
    """The number of these values that were dropped."""


class MisfitError(Exception):
    """Signal that a value does not fit its column and must be rescued."""

    def __init__(self, path: str, kind: str, value: AttributeValue) -> None:
        super().__init__(path, kind, value)
        self.path = path
        self.kind = kind
        self.value = value


class KeptNull(Exception):  # noqa: N818 - no error: the value is fine, but null in its column would mean missing
    """Signal that a NULL must be rescued, to distinguish it from a missing attribute or member."""


class MisfitLog:
    """Counts of misfits by path and kind, in order of first occurrence, and of NULLs merged with missing values."""

    def __init__(self) -> None:
        self.merged_nulls: dict[str, int] = {}
        """The number of NULLs that became missing values, by attribute. Nested NULLs count for their attribute."""
        self._counts: dict[tuple[str, str], int] = {}
        self._dropped: dict[tuple[str, str], int] = {}
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, misfit: MisfitError, *, is_dropped: bool = False) -> None:
        """Count one value, and whether it was dropped."""
        is_known = (misfit.path, misfit.kind) in self._examples
        self.add_texts(misfit.path, misfit.kind, "" if is_known else compact_json(misfit.value), is_dropped=is_dropped)

    def add_texts(self, path: str, kind: str, first: str, count: int = 1, *, is_dropped: bool = False) -> None:
        """Count values, of which ``first`` is the first as compact JSON, and whether they were dropped."""
        key = (path, kind)
        self._counts[key] = self._counts.get(key, 0) + count
        if is_dropped:
            self._dropped[key] = self._dropped.get(key, 0) + count
        if key not in self._examples:
            self._examples[key] = first if len(first) <= _LONGEST_EXAMPLE else first[: _LONGEST_EXAMPLE - 1] + "…"

    def add_merged_nulls(self, path: str, count: int) -> None:
        """Count NULLs that became missing values of an attribute, or within it."""
        self.merged_nulls[path] = self.merged_nulls.get(path, 0) + count

    def merge(self, other: MisfitLog) -> None:
        """Add the counts of another log."""
        for path, count in other.merged_nulls.items():
            self.add_merged_nulls(path, count)
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count
            self._examples.setdefault(key, other._examples[key])
        for key, count in other._dropped.items():
            self._dropped[key] = self._dropped.get(key, 0) + count

    def of_attributes(self, names: Collection[str]) -> MisfitLog:
        """Return the part of the log that concerns these attributes and the values within them."""
        log = MisfitLog()
        log.merged_nulls = {path: count for path, count in self.merged_nulls.items() if path in names}
        inner = tuple(f"{name}{mark}" for name in names for mark in ".[")
        for key, count in self._counts.items():
            if key[0] in names or key[0].startswith(inner):
                log._counts[key], log._examples[key] = count, self._examples[key]
                if key in self._dropped:
                    log._dropped[key] = self._dropped[key]
        return log

    def misfits(self) -> list[Misfit]:
        """Return the counts, in order of first occurrence."""
        return [
            Misfit(*key, count, self._examples[key], self._dropped.get(key, 0)) for key, count in self._counts.items()
        ]

    def require_empty(self) -> None:
        """Raise a SchemaError for the first misfit that was not dropped, if there is one."""
        for misfit in self.misfits():
            if misfit.count == misfit.dropped:
                continue
            raise SchemaError(
                f"{misfit.path}: {misfit.kind}: {misfit.example}: change the schema, or pass on_misfit='rescue' to "
                f"keep such values in the _rescue column"
            )


def rescue_text(rescued: Item | None) -> str | None:
    """Return the text of a row's rescue column: one JSON object, sorted by attribute, or None."""
    return compact_json(dict(sorted(rescued.items()))) if rescued else None


def null_value() -> dict[str, Any]:
    """Return DynamoDB's NULL."""
    return {"NULL": True}


def duplicate_error(row: int, name: str) -> EncodeError:
    """Return the error for an attribute that is in its column and in the rescue column: one value would be lost."""
    return EncodeError(f"row {row}: {RESCUE_NAME}: {twice_reason(name)}", row, RESCUE_NAME, "duplicate")


def twice_reason(name: str) -> str:
    """Return the message for an attribute that is in its column and in the rescue column."""
    return f"the attribute {name!r} is in its column and in the rescue column"
