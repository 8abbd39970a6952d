"""Lineages: the streams that a capture has read, in order.

A capture belongs to one table. Each stream of the table that it reads is a lineage. Sequence numbers can be compared
only within one lineage, and all changes of a lineage are newer than those of earlier lineages. The record
``stream-0002`` next to the head of the capture describes the second lineage. Batches record their lineage from the
second one on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.cdc.shards import END
from ddbio.cdc.stream_registry import kind_of, table_arn_of
from ddbio.errors import GapError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.cdc.stream_kind import StreamKind
    from ddbio.storage.job_state import JobState

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
_KEPT_SECONDS = 24 * 3600.0
# DynamoDB Streams has the times of changes in whole seconds.
_SECOND = 1.0


@dataclass(frozen=True)
class TableStream:
    """Current stream of a table.

    Attributes
    ----------
    table, table_id
        The name and the id of the table; the id is empty if the service does not return it.
    arn
        The ARN of the stream.
    table_arn
        The ARN of the table.
    created_at
        The time at which the table was created, in seconds since 1970; None if the service does not return it.
    regions
        The Regions that have replicas of the table.
    """

    table: str
    table_id: str
    arn: str
    table_arn: str
    created_at: float | None = None
    regions: frozenset[str] = frozenset()

    @property
    def kind(self) -> StreamKind:
        """Kind of the stream."""
        return kind_of(self.arn)

    @property
    def began_at(self) -> float | None:
        """Time at which the stream was turned on, in seconds since 1970; None if its ARN does not have it."""
        return self.kind.began_at(self.arn)


@dataclass(frozen=True)
class LogLineage:
    """One stream that a capture has read.

    Attributes
    ----------
    job_id, number
        The capture, and the number among its lineages, starting with 1.
    stream, table_arn, table_id
        The ARNs of the stream and of its table, and the id of the table. ``table_arn`` and ``table_id`` are empty if
        they are unknown.
    started_at
        The time at which the capture started to read the stream, in seconds since 1970.
    name
        The name in lake tables: the ARN, followed by the number if the stream was already read before another one.
    gap
        The gap before the lineage, as a batch records gaps; None if there is no gap.
    """

    job_id: str
    number: int
    stream: str
    table_arn: str
    table_id: str
    started_at: float
    name: str
    gap: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the stored members."""
        names = ("stream", "table_arn", "table_id", "started_at", "name", "gap")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def lineages_of(state: JobState) -> list[LogLineage]:
    """Return the lineages of a capture, or of a job that heals one. Returns an empty list if the job does not exist."""
    head = state.head()
    if head is None:
        return []
    # Older versions stored only the head.
    stored: dict[str, Any] | None = state.read(_name(1)) or {
        "stream": (stream := str(head.get("stream", ""))),
        "table_arn": table_arn_of(stream),
        "table_id": "",
        "started_at": head.get("started_at", 0.0),
        "name": head.get("lineage", stream),
    }
    lineages = list[LogLineage]()
    while stored is not None:
        lineages.append(LogLineage(state.job_id, len(lineages) + 1, **stored))
        stored = state.read(_name(len(lineages) + 1))
    return lineages


def lineage_number(record: Mapping[str, Any] | None) -> int:
    """Return the number of the lineage that a batch belongs to, or 0 if there is no batch."""
    return 0 if record is None else int(record.get("lineage", 1))


def store_lineage(state: JobState, lineage: LogLineage) -> None:
    """Store a lineage, unless it is stored already."""
    state.put_once(_name(lineage.number), lineage.record())


def store_left_positions(state: JobState, lineage: LogLineage, positions: Mapping[str, Any]) -> None:
    """Store the last positions in the streams before a lineage, by stream, with their times."""
    state.put(f"left-{lineage.number:04}", positions)


def left_positions_before(state: JobState, number: int) -> dict[str, Any]:
    """Return the stored last positions in the streams before a lineage."""
    return state.read(f"left-{number:04}") or {}


def _name(number: int) -> str:
    return f"stream-{number:04}"


def require_table(uri: str, stream: TableStream, lineages: Sequence[LogLineage], table: str) -> None:
    """Raise if a table is not the table of a log.

    A table with another id is accepted if it is a replica of a global table.

    Parameters
    ----------
    stream
        The current stream of the table.
    lineages
        The lineages of a capture of the log.
    table
        The name of the table of the log.

    Raises
    ------
    OptionError
        If the log belongs to another table, or to a deleted table with the same name.
    """
    if table != stream.table:
        raise OptionError(
            f"{uri} is the log of table {table!r}, not of {stream.table!r}: give another dest, an empty folder"
        )
    if any(_is_table(lineage, stream) for lineage in lineages):
        return
    last = lineages[-1]
    if last.table_arn not in {"", stream.table_arn}:
        if _is_replica(last.table_arn, stream):
            return
        raise OptionError(
            f"{uri} is the log of {last.table_arn}, and {stream.table_arn} is no replica of it: give another dest, an "
            "empty folder"
        )
    # Only one table at a time has a name. A table that is older than the last lineage is not a new table.
    has_ids = bool(last.table_id and stream.table_id)
    if not (has_ids if stream.created_at is None else stream.created_at > last.started_at):
        return
    created = "" if stream.created_at is None else f" at {datetime.fromtimestamp(stream.created_at, UTC).isoformat()}"
    raise OptionError(
        f"table {stream.table!r} was created again{created}, and {uri} is the log of the earlier table with this name "
        f"(id {last.table_id or 'unknown'}, now {stream.table_id or 'unknown'}): the items that were deleted with that "
        "table are not in any stream. Start again: give another dest (of 'ddbio bootstrap': another log), an empty "
        "folder, and load a new base of the lake table"
    )


def _is_table(lineage: LogLineage, stream: TableStream) -> bool:
    if lineage.table_id and stream.table_id:
        return lineage.table_id == stream.table_id
    # A data stream can also have changes of a new table with the same name.
    return lineage.stream == stream.arn and stream.kind.is_of_table


def _is_replica(table_arn: str, stream: TableStream) -> bool:
    old, new = table_arn.split(":", 5), stream.table_arn.split(":", 5)
    # All parts are the same except the Region.
    return len(old) == len(new) and old[:3] + old[4:] == new[:3] + new[4:] and old[3] in stream.regions


def gap_between(
    last: LogLineage, stream: TableStream, last_change: float | None, now: float, *, is_known: bool
) -> str | None:
    """Return the gap between a lineage and the stream that follows, as a batch records gaps; None if there is no gap.

    The stream of a replica has all changes if it was turned on before the last change that was read.

    Parameters
    ----------
    last_change
        The time of the last change of the log; None if it has none.
    is_known
        Whether the stream was read before. Reading resumes at its last position.
    """
    complete_until = last.started_at if last_change is None else last_change + _SECOND
    is_replica = bool(last.table_id) and last.table_id != stream.table_id
    began = stream.began_at
    # A DynamoDB stream that appears again is the stream of a replica: a table has each of its streams once.
    if began is not None and (
        is_known or (is_replica and began <= complete_until and now - complete_until < _KEPT_SECONDS)
    ):
        return None
    return f"{last.stream} ended, and {stream.arn} followed"


def gap_error(uri: str, last: LogLineage, stream: TableStream) -> GapError:
    """Return the error for changes that are in neither of two streams."""
    began = "" if stream.began_at is None else f" since {datetime.fromtimestamp(stream.began_at, UTC).isoformat()}"
    return GapError(
        f"table {stream.table!r} has another stream{began}, {stream.arn}: the log {uri} has read {last.stream}, and "
        "the changes between the two are in neither. Continue the log after the gap with on_gap=continue, and heal it "
        "from an incremental export with 'ddbio capture heal'",
        None,
        END,
    )
