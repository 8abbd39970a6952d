"""Verify a lake table: it holds what the table holds, now or at a time, by digest and by what differs."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.cdc.log_reader import open_log
from ddbio.errors import OptionError
from ddbio.export import jobs
from ddbio.formats.export_manifest import SUMMARY
from ddbio.items.key_words import key_words
from ddbio.jobs.stores import open_store
from ddbio.lake.as_of import StateAt, base_us
from ddbio.lake_formats.items import open_items
from ddbio.options import (
    ExportStartOptions,
    ValidateOptions,
    WaitOptions,
    connection_of,
    export_connection_of,
    parse_options,
)
from ddbio.sources.export_source import open_export
from ddbio.validation.comparison import ValidationReport
from ddbio.validation.lake_side import ExportWithout, LakeSide
from ddbio.validation.sides import Reading
from ddbio.validation.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.lake_formats.items import LakeItems
    from ddbio.options import VerifyOptions

_LOG = logging.getLogger("ddbio.verify")
_MICROS = 1_000_000


@dataclass(frozen=True)
class VerifyReport(ValidationReport):
    """Say whether a lake table holds what the table holds, and what differs.

    The source is the table or its export, the target the lake table; the fields of both are as of a validation.

    Attributes
    ----------
    at
        Time as of which they were compared, in ISO 8601; null is now.
    version
        Version of the lake table that was read.
    tombstones
        Its rows of deleted items, which are left out.
    recent
        Items that have changed since shortly before the time: the log has told what they were.
    unsettled
        Those of them that nothing tells of; they were not compared.
    """

    at: str | None = None
    version: int = 0
    tombstones: int = 0
    recent: int = 0
    unsettled: int = 0


def verify(options: VerifyOptions) -> VerifyReport:
    """Return whether a table of a lake holds what the DynamoDB table holds, now or as of a time, and what differs.

    Raises
    ------
    NotFoundError
        If there is no such table, export or lake table.
    OptionError
        If a time is given and neither an export of it nor where one may go; or if the base of the lake table is newer.
    ExportIncompleteError
        If the export is damaged.
    """
    items = open_items(options.target, options, options.format, options.version)
    if options.at is None and not _is_export(options):
        side = LakeSide(options.target, items)
        return _report(validate(_validation(options), options.table, side), items, side, None, None)
    # What cannot be verified is told before an export is paid for.
    if options.log is not None:
        open_log(open_store(options.log, options))
    if options.at is not None:
        _require_base(options, items, options.at if _is_export(options) else options.at.replace(microsecond=0))
    folder = options.table if _is_export(options) else _export(options)
    at = _time_of(folder, options)
    # The service may cut the times of exports to whole seconds.
    if options.at is not None and abs(options.at - at) >= timedelta(seconds=1):
        raise OptionError(
            f"{folder} holds the state of {at.isoformat()}, not of {options.at.isoformat()}: leave at out"
        )
    _require_base(options, items, at)
    at_us = round(at.timestamp() * _MICROS)
    given = _validation(options)
    source = ExportWithout(folder, given, options)
    state = StateAt(items, at_us, round(options.margin_seconds * _MICROS))
    state.find_recent()
    if state.recent:
        _LOG.info("%s: %d items have changed since %s", options.target, len(state.recent), at.isoformat())
        _settle(options, state, source, items)
        source.without = state.unsettled
    side = LakeSide(options.target, items, state)
    return _report(validate(given, source, side), items, side, state, at)


def _require_base(options: VerifyOptions, items: LakeItems, at: datetime) -> None:
    """Refuse a time before the base of the lake table began."""
    if base_us(items) > round(at.timestamp() * _MICROS):
        began = datetime.fromtimestamp(base_us(items) / _MICROS, UTC)
        raise OptionError(
            f"the base of {options.target} was loaded at {began.isoformat()}, after {at.isoformat()}: what it held "
            "then is not there; verify it as of a later time"
        )


def _settle(options: VerifyOptions, state: StateAt, source: ExportWithout, items: LakeItems) -> None:
    """Find out what recent items were at the time; without a log nothing tells."""
    if options.log is None:
        state.leave_out()
        return
    words = state.recent_words()
    is_whole = state.read_log(options.log, options)
    if base_us(items):
        is_whole &= state.read_versions()
    reading = Reading(items.item_schema, items.key_types, "merge")

    def mine() -> Iterator[pa.RecordBatch]:
        for batch in source.batches(reading):
            is_mine = np.isin(key_words(batch, tuple(reading.keys)), words)
            if is_mine.any():
                yield batch.filter(pa.array(is_mine))

    state.settle(mine(), is_whole=is_whole)


def _validation(options: VerifyOptions) -> ValidateOptions:
    names = ("max_units", "max_seconds", "max_usd", "prices", "examples", "consistent", "rcu_per_second", "read_ratio")
    wanted: dict[str, Any] = {name: getattr(options, name) for name in names}
    given = {**connection_of(options), **wanted, "source": options.table, "target": options.target}
    return parse_options(ValidateOptions, given)


def _report(
    found: ValidationReport, items: LakeItems, side: LakeSide, state: StateAt | None, at: datetime | None
) -> VerifyReport:
    values = {field.name: getattr(found, field.name) for field in dataclasses.fields(ValidationReport)}
    return VerifyReport(
        **values,
        at=None if at is None else at.isoformat(),
        version=items.state.version,
        tombstones=side.deleted,
        recent=0 if state is None else len(state.recent),
        unsettled=0 if state is None else len(state.unsettled),
    )


def _is_export(options: VerifyOptions) -> bool:
    if options.table.startswith("arn:") or "/" not in options.table:
        return False
    return any(each.path == f"{SUMMARY}.json" for each in open_store(options.table, options).list(SUMMARY))


def _time_of(folder: str, options: VerifyOptions) -> datetime:
    text = open_export(folder, options).summary.export_time
    if text is None:
        raise OptionError(f"{folder} does not say of which time its items are: give a full export of the service")
    return datetime.fromisoformat(text)


def _export(options: VerifyOptions) -> str:
    """Ask the service for the full export as of the second of the time; the same again is the same export."""
    at = options.at
    if options.export_to is None or at is None:
        raise OptionError(
            "export_to is missing, an s3:// prefix for the full export as of that time; or give the folder of one that "
            "is there in place of the table"
        )
    at = at.replace(microsecond=0)
    token = hashlib.sha256(f"{options.table} {options.export_to} {at.isoformat()}".encode()).hexdigest()
    limits = {name: getattr(options, name) for name in ("max_seconds", "max_usd", "prices")}
    given = {**export_connection_of(options), **limits, "table": options.table, "dest": options.export_to}
    job = jobs.start(parse_options(ExportStartOptions, {**given, "at": at, "client_token": token}))
    waiting = {name: getattr(options, name) for name in ("wait_seconds", "poll_seconds")}
    done = jobs.wait(parse_options(WaitOptions, {**connection_of(options), **waiting, "arn": job.arn}))
    return done.uri or ""
