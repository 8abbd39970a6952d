"""Plan which files of a folder are rewritten as fewer, without reading any."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ddbio.commit.snapshot import LiveFile

SMALL_RATIO = 0.75
"""A file below this share of the target counts as small, unless a caller says otherwise."""

# A rest below this share of the target joins the file before it.
_REST_RATIO = 0.1
# A group is rewritten by one task in a row: at most so many new files, so that tasks and retries stay short.
_GROUP_FILES = 8
_HOUR = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class CompactRule:
    """Say which files are worth rewriting.

    Attributes
    ----------
    target_bytes
        Size of the new files.
    small_bytes
        Files below it are merged.
    partition
        Values of partition columns; only partitions that have them are touched.
    is_other
        Whether a file has another format or codec than the new ones, so that it is rewritten alone, too.
    """

    target_bytes: int
    small_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    is_other: Callable[[LiveFile], bool] = lambda _: False


@dataclass(frozen=True)
class CompactGroup(Result):
    """Files of one folder, and so of one partition, that are rewritten together.

    Attributes
    ----------
    partition
        Values of the partition columns.
    files
        The files, in the order in which their rows are written.
    bytes
        Their size.
    expected_files
        About how many files they become.
    """

    partition: dict[str, str | None]
    files: tuple[LiveFile, ...]
    bytes: int
    expected_files: int


def plan_groups(files: Iterable[LiveFile], rule: CompactRule) -> tuple[CompactGroup, ...]:
    """Return the groups of files that are worth rewriting, those first that save most files for their bytes."""
    groups = [group for some in _by_folder(files, rule) for group in _groups(some, rule)]
    return tuple(sorted(groups, key=lambda each: (each.expected_files - len(each.files)) / max(1, each.bytes)))


def _by_folder(files: Iterable[LiveFile], rule: CompactRule) -> Iterator[list[LiveFile]]:
    def folder_of(file: LiveFile) -> str:
        return file.path.rpartition("/")[0]

    wanted = rule.partition.items()
    chosen = [each for each in files if wanted <= each.partition.items()]
    for _, some in itertools.groupby(sorted(chosen, key=lambda each: (folder_of(each), each.path)), folder_of):
        yield list(some)


def _groups(files: list[LiveFile], rule: CompactRule) -> Iterator[CompactGroup]:
    """Yield the groups of one folder."""
    chosen = [each for each in files if each.size_bytes < rule.small_bytes or rule.is_other(each)]
    while chosen:
        # Full files, but for the last of a group.
        taken, size = 0, 0
        while taken < len(chosen) and size < _GROUP_FILES * rule.target_bytes:
            size += chosen[taken].size_bytes
            taken += 1
        some, chosen = tuple(chosen[:taken]), chosen[taken:]
        expected = max(1, math.ceil(size / rule.target_bytes - _REST_RATIO))
        if expected < len(some) or any(map(rule.is_other, some)):
            yield CompactGroup(dict(some[0].partition), some, size, expected)


def hour_began(partition: Mapping[str, str | None]) -> datetime | None:
    """Return when the hour began, in UTC, that the folders ``year=…/month=…/day=…/hour=…`` name; None of others."""
    try:
        return datetime(*(int(partition[name] or "") for name in _HOUR), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except (KeyError, ValueError):
        return None
