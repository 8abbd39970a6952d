"""Find the stream that a table has now, and the capture of a log that reads it; refuse the log of another table."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import call, parse_table_description
from ddbio.cdc.batches import CAPTURE
from ddbio.cdc.change_streams import stream_of
from ddbio.cdc.gaps import HEALS
from ddbio.cdc.kinesis_streams import data_stream_of
from ddbio.cdc.leases import LEASES
from ddbio.cdc.lineages import LogLineage, TableStream, lineages_of, require_table, table_arn_of
from ddbio.cdc.log_jobs import HANDLER, jobs_in
from ddbio.errors import OptionError
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.stores import open_store
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.aws.client import ClientSpec
    from ddbio.aws.table_description import TableDescription
    from ddbio.cdc.options import CaptureOptions
    from ddbio.storage.object_store import ObjectStore


@dataclass(frozen=True)
class FoundStream:
    """Hold the stream of a table, and which capture reads it.

    Attributes
    ----------
    first
        The stream that the capture was begun with.
    other
        Another capture of the log that has read this stream; None if there is none.
    """

    spec: ClientSpec
    table: TableDescription
    stream: TableStream
    job_id: str
    first: str
    other: JobState | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key attributes of the table."""
        return tuple(name for name, _ in self.table.key_types)


def find_stream(options: CaptureOptions) -> FoundStream:
    """Return the stream that a table has now, and the capture of the log that reads it.

    Raises
    ------
    NotFoundError
        If there is no such table.
    OptionError
        If it has no stream that a log can be made of, or the log belongs to another table.
    """
    spec = dynamodb_spec(options)
    described = call(spec, "DescribeTable", f"table {options.table!r}", {"TableName": options.table})["Table"]
    stream, table = _stream_of(options, spec, described), parse_table_description(described)
    store = open_store(options.dest, options)
    kind = LEASES if options.leases > 1 else CAPTURE
    own_id = _job_id(f"{stream.arn} {table.name}" if stream.is_kinesis else stream.arn)
    return _of_log(options, FoundStream(spec, table, stream, options.job_id or own_id, stream.arn), store, kind)


def _stream_of(options: CaptureOptions, spec: ClientSpec, described: Mapping[str, Any]) -> TableStream:
    """Return the stream of a table; refuse one that a log cannot be made of."""
    table, view = described["TableName"], None
    if options.source == "kinesis":
        arn = data_stream_of(spec, table, options.stream)
    else:
        if options.stream is not None:
            raise OptionError("a table has one stream of its own: stream names a data stream, with source=kinesis")
        if options.fan_out is not None:
            raise OptionError("fan_out is a consumer of a data stream: give it with source=kinesis")
        arn, view = stream_of(described)
        if view in {"KEYS_ONLY", "OLD_IMAGE"}:
            raise OptionError(
                f"the stream of {table!r} has the view {view}, without the items as they are after a change: turn on "
                "another one with NEW_IMAGE or NEW_AND_OLD_IMAGES"
            )
        if options.old_image and view == "NEW_IMAGE":
            raise OptionError(
                f"the stream of {table!r} has the view NEW_IMAGE, without the items as they were before a change: "
                "leave old_image out, or turn on another one with NEW_AND_OLD_IMAGES"
            )
    created = described.get("CreationDateTime")
    return TableStream(
        table=table,
        table_id=described.get("TableId", ""),
        arn=arn,
        table_arn=described.get("TableArn", ""),
        created_at=created.timestamp() if isinstance(created, datetime) else None,
        regions=frozenset(each["RegionName"] for each in described.get("Replicas", [])),
    )


def _captures_of(found: FoundStream, store: ObjectStore, kind: str) -> list[tuple[JobState, list[LogLineage]]]:
    """Return the captures of a log, and the streams that each has read; refuse those of another table."""
    captures = list[tuple[JobState, list[LogLineage]]]()
    for state in (each for one in (CAPTURE, LEASES, HANDLER) for each in jobs_in(store, one)):
        head = state.head() or {}
        if HEALS in head or "lease" in head:
            continue
        lineages = lineages_of(state)
        table = head.get("table") or table_arn_of(lineages[0].stream).rpartition("/")[2]
        require_table(store.uri, found.stream, lineages, table)
        if state.kind == HANDLER or ("table" in head) != found.stream.is_kinesis:
            continue
        if state.kind == kind:
            captures.append((state, lineages))
        elif lineages[-1].stream != found.stream.arn:
            raise OptionError(
                f"capture {state.job_id!r} of {store.uri} has read {lineages[-1].stream}, and only it can go on with "
                f"{found.stream.arn}: give leases={head.get('leases', 1)}"
            )
    return captures


def _of_log(options: CaptureOptions, found: FoundStream, store: ObjectStore, kind: str) -> FoundStream:
    """Return which capture of the log goes on; refuse the log of another table."""
    captures = _captures_of(found, store, kind)
    if not captures:
        return found
    arn = found.stream.arn
    state, newest = max(captures, key=lambda each: each[1][-1].started_at)
    before = max((each.started_at for _, lineages in captures for each in lineages if each.stream != arn), default=0.0)

    def goes_on(lineages: Sequence[LogLineage]) -> bool:
        return lineages[-1].stream == arn and lineages[-1].started_at >= before

    own = next((lineages for each, lineages in captures if each.job_id == found.job_id), None)
    if options.job_id is None and (own is None or not goes_on(own)):
        found, own = dataclasses.replace(found, job_id=state.job_id), newest
    if state.job_id != found.job_id and not goes_on(newest if own is None else own):
        raise OptionError(
            f"capture {state.job_id!r} of {store.uri} has read {newest[-1].stream}, another stream of table "
            f"{found.table.name!r}, and goes on with {arn}. Leave job_id out, or give that one"
        )
    if own is None:
        return found
    # Older versions made a capture of its own for each stream.
    others = (each for each, lineages in captures if each.job_id != found.job_id and lineages[-1].stream == arn)
    is_read = any(each.stream == arn for each in own)
    return dataclasses.replace(found, first=own[0].stream, other=None if is_read else next(others, None))


def is_current(found: FoundStream, lineages: Sequence[LogLineage]) -> bool:
    """Return whether the last stream that a capture has read is the one that the table has now."""
    return lineages[-1].stream == found.stream.arn


def _job_id(identity: str) -> str:
    return f"capture_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
