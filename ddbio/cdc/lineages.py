"""Know which streams a capture has read, in their order.

A capture belongs to one table. Each stream of the table that it reads is a lineage: sequence numbers can be compared
within one lineage only, and all changes of a lineage are newer than those of the lineages before it. The record
``stream-0002`` beside the head of the capture describes the second lineage. A batch names its lineage from the second
one on.
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
# DynamoDB Streams gives the times of changes in whole seconds.
_SECOND = 1.0


@dataclass(frozen=True)
class TableStream:
    """Describe the stream that a table has now.

    Attributes
    ----------
    table, table_id
        The name and the id of the table; the id is empty if the service does not say it.
    arn
        The ARN of the stream.
    table_arn
        The ARN of the table.
    created_at
        When the table was created, in seconds since 1970; None if the service does not say it.
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
        """The kind of the stream."""
        return kind_of(self.arn)

    @property
    def began_at(self) -> float | None:
        """When the stream was turned on, in seconds since 1970; None if its ARN does not say it."""
        return self.kind.began_at(self.arn)


@dataclass(frozen=True)
class LogLineage:
    """Describe one stream that a capture has read.

    Attributes
    ----------
    job_id, number
        The capture, and the place among its lineages, from 1 on.
    stream, table_arn, table_id
        The ARNs of the stream and of its table, and the id of the table; both are empty if nothing tells them.
    started_at
        When the capture began to read it, in seconds since 1970.
    name
        What lake tables call it: the ARN, with the number behind it if the stream was read before another one, too.
    gap
        What is missing before it, as a batch notes gaps; None if nothing is.
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
        """Return what is stored."""
        names = ("stream", "table_arn", "table_id", "started_at", "name", "gap")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def lineages_of(state: JobState) -> list[LogLineage]:
    """Return the lineages of a capture, or of a job that heals one; nothing if there is no such job."""
    head = state.head()
    if head is None:
        return []
    # Older versions stored the head alone.
    stored: dict[str, Any] | None = state.read(_name(1)) or {
        "stream": (stream := str(head.get("stream", ""))),
        "table_arn": table_arn_of(stream),
        "table_id": "",
        "started_at": head.get("started_at", 0.0),
        "name": head.get("lineage", stream),
    }
    found = list[LogLineage]()
    while stored is not None:
        found.append(LogLineage(state.job_id, len(found) + 1, **stored))
        stored = state.read(_name(len(found) + 1))
    return found


def lineage_number(record: Mapping[str, Any] | None) -> int:
    """Return the number of the lineage that a batch belongs to; 0 if there is no batch."""
    return 0 if record is None else int(record.get("lineage", 1))


def keep_lineage(state: JobState, lineage: LogLineage) -> None:
    """Store a lineage, unless it is stored already."""
    state.put_once(_name(lineage.number), lineage.record())


def keep_left(state: JobState, lineage: LogLineage, left: Mapping[str, Any]) -> None:
    """Store where the streams before a lineage were left: positions by stream, and when that was."""
    state.put(f"left-{lineage.number:04}", left)


def left_before(state: JobState, number: int) -> dict[str, Any]:
    """Return what was stored of the streams before a lineage."""
    return state.read(f"left-{number:04}") or {}


def _name(number: int) -> str:
    return f"stream-{number:04}"


def require_table(uri: str, found: TableStream, known: Sequence[LogLineage], table: str) -> None:
    """Refuse a table that is not the one of a log.

    A table of another id is accepted if it is a replica of a global table.

    Parameters
    ----------
    known
        The lineages of a capture of the log.
    table
        The name of its table.

    Raises
    ------
    OptionError
        If the log belongs to another table, or to one of the same name that was deleted.
    """
    if table != found.table:
        raise OptionError(
            f"{uri} is the log of table {table!r}, not of {found.table!r}: give another dest, an empty folder"
        )
    if any(_is_table(each, found) for each in known):
        return
    last = known[-1]
    if last.table_arn not in {"", found.table_arn}:
        if _is_replica(last.table_arn, found):
            return
        raise OptionError(
            f"{uri} is the log of {last.table_arn}, and {found.table_arn} is no replica of it: give another dest, an "
            "empty folder"
        )
    # Of one name there is one table at a time: one that was there before is no table that was made anew.
    has_ids = bool(last.table_id and found.table_id)
    if not (has_ids if found.created_at is None else found.created_at > last.started_at):
        return
    made = "" if found.created_at is None else f" at {datetime.fromtimestamp(found.created_at, UTC).isoformat()}"
    raise OptionError(
        f"table {found.table!r} was made anew{made}, and {uri} is the log of the table that had this name before "
        f"(id {last.table_id or 'unknown'}, now {found.table_id or 'unknown'}): what was deleted with that table is no "
        "change in any stream. Begin anew: give another dest (of 'ddbio bootstrap': another log), an empty folder, and "
        "load a new base of the lake table"
    )


def _is_table(lineage: LogLineage, found: TableStream) -> bool:
    if lineage.table_id and found.table_id:
        return lineage.table_id == found.table_id
    # A data stream may have changes of a table that is made anew, too.
    return lineage.stream == found.arn and found.kind.is_of_table


def _is_replica(table_arn: str, found: TableStream) -> bool:
    old, new = table_arn.split(":", 5), found.table_arn.split(":", 5)
    # All parts are the same but the Region.
    return len(old) == len(new) and old[:3] + old[4:] == new[:3] + new[4:] and old[3] in found.regions


def gap_between(
    last: LogLineage, found: TableStream, last_change: float | None, now: float, *, is_known: bool
) -> str | None:
    """Return what is missing between a lineage and the stream that follows, as a batch notes gaps.

    The stream of a replica has what is missing, if it was on before the last change that was read.

    Parameters
    ----------
    last_change
        The time of the last change of the log; None if it has none.
    is_known
        Whether the stream was read before: it is read on from there.
    """
    known = last.started_at if last_change is None else last_change + _SECOND
    is_replica = bool(last.table_id) and last.table_id != found.table_id
    began = found.began_at
    # A stream of DynamoDB that comes back is that of a replica: a table has each of its streams once.
    if began is not None and (is_known or (is_replica and began <= known and now - known < _KEPT_SECONDS)):
        return None
    return f"{last.stream} ended, and {found.arn} followed"


def gap_error(uri: str, last: LogLineage, found: TableStream) -> GapError:
    """Return the error of changes that are in none of two streams."""
    began = "" if found.began_at is None else f" since {datetime.fromtimestamp(found.began_at, UTC).isoformat()}"
    return GapError(
        f"table {found.table!r} has another stream{began}, {found.arn}: the log {uri} has read {last.stream}, and the "
        "changes between the two are in neither. Let the log go on behind the gap with on_gap=continue, and heal it "
        "from an incremental export with 'ddbio capture heal'",
        None,
        END,
    )
