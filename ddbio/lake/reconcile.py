"""Reconciliation of a log with incremental exports: compare closed windows, and count and repair losses.

A window is handled like a gap that is healed. Changes of the export that the log lacks become rows of the log, directly
after the last row of each item. Items that no export decides are read from the table. A window is decided only once,
and a window of a killed run is resumed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import describe_recovery
from ddbio.cdc.audit import capture_status
from ddbio.cdc.gaps import Gap, captures_in
from ddbio.cdc.heal import WindowsPlan, WindowsReport, heal_gap, plan_windows, require_export_to
from ddbio.cdc.healing import MARGIN_SECONDS, heal_windows
from ddbio.cdc.options import CaptureStatusOptions
from ddbio.cdc.table_items import read_items
from ddbio.errors import OptionError
from ddbio.export.fold_rows import MAX_WINDOW, MIN_WINDOW, Window
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.estimate import Figures
from ddbio.jobs.report import Clock
from ddbio.jobs.stores import open_store
from ddbio.lake.apply import apply_log
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.registry import lake_format
from ddbio.options import connection_of, parse_options
from ddbio.result import Result
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.cdc.heal import Look
    from ddbio.lake.apply import ApplyReport
    from ddbio.lake.options import ReconcileOptions
    from ddbio.storage.object_store import ObjectStore

_LOG = logging.getLogger("ddbio.reconcile")
_KIND = "reconcile"
# The export starts this long before the window, because late changes of a window are left to the next one.
_OVERLAP = timedelta(seconds=300)
_BEFORE = _OVERLAP + timedelta(seconds=MARGIN_SECONDS)
_CLOSED_SECONDS = 600.0
_LAG_SECONDS = 60.0
_MINUTE = 60


@dataclass(frozen=True)
class ReconciledWindow(Result):
    """Result of one window.

    Attributes
    ----------
    start, end
        The window.
    exports
        Folders of the exports that it was compared with.
    changes
        Number of items in the exports.
    lost
        Items that lacked a change in the log; the log now has a row for each.
    settled
        Items that no export decided, which were read from the table.
    """

    start: datetime
    end: datetime
    exports: tuple[str, ...]
    changes: int
    lost: int
    settled: int


@dataclass(frozen=True, kw_only=True)
class ReconcilePlan(WindowsPlan):
    """The windows that would be reconciled."""


@dataclass(frozen=True, kw_only=True)
class ReconcileReport(WindowsReport):
    """Result of a run; ``lost`` divided by ``changes`` is the measured loss of the stream.

    Attributes
    ----------
    windows
        The reconciled windows.
    lost
        Items that lacked a change in the log.
    applied
        The report of applying the log to the lake table afterwards; null without a lake table.
    """

    windows: tuple[ReconciledWindow, ...]
    lost: int
    applied: ApplyReport | None


@dataclass(frozen=True)
class _ClosedWindow(Gap):
    """Window that is handled as a gap. Its number is the minute of its end, less than any sequence number."""

    @property
    def heal_id(self) -> str:
        """Return the id of the job that reconciles the window."""
        return f"{self.job_id}_heal_w{self.batch}"


def plan_reconcile(options: ReconcileOptions) -> ReconcilePlan:
    """Return the windows that :func:`reconcile` would compare, and the cost of their exports; nothing is started.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    LimitError
        If the plan exceeds a limit.
    """
    store = open_store(options.dest, options)
    return _plan(options, closed_windows(options, store))


def _plan(options: ReconcileOptions, windows: Sequence[Window]) -> ReconcilePlan:
    exports = [part for window in windows for part in heal_windows(window.start, window.end)]
    return ReconcilePlan(**plan_windows(options, windows, 0 if options.from_export else len(exports)))


def reconcile(
    options: ReconcileOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> ReconcileReport:
    """Compare each closed window of a log of changes with an incremental export; count and repair lost changes.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    OptionError
        If exports are needed and ``export_to`` is missing, or the window is too old for exports.
    ExportIncompleteError
        If the given exports do not cover a window, or one is damaged.
    TargetError
        If another process reconciles this log.
    """
    clock, store = Clock(), open_store(options.dest, options)
    # Invalid options of apply are reported before exports are paid for.
    applying = _applying(options)
    windows = closed_windows(options, store)
    plan = _plan(options, windows)
    require_export_to(options, plan)
    job = Reconciler(options, store)
    done = [job.reconcile(window) for window in windows]
    return ReconcileReport(
        table=plan.table,
        dest=store.uri,
        windows=tuple(done),
        changes=sum(window.changes for window in done),
        lost=sum(window.lost for window in done),
        settled=sum(window.settled for window in done),
        applied=None if applying is None else apply_log(applying, master=master, conf=conf),
        planned=plan.figures,
        actual=Figures(None, clock.seconds(), job.billed_bytes or None, job.usd),
        **clock.times(),
    )


@dataclass
class Reconciler:
    """Reconciliation of windows of one log; errors are those of :func:`reconcile`.

    Attributes
    ----------
    look
        The function that reads items of the table.
    billed_bytes, usd
        Usage and cost of the exports; None if the service does not report it.
    """

    options: ReconcileOptions
    store: ObjectStore
    look: Look = read_items
    billed_bytes: int = 0
    usd: float | None = None

    def reconcile(self, window: Window) -> ReconciledWindow:
        """Reconcile a window, or resume its reconciliation."""
        job_id = _capture(self.options, self.store).job_id
        state = _state(self.store, job_id)
        state.put_once(_name(window), _record(window))
        number = int(window.end.timestamp()) // _MINUTE
        # The export starts before the window, to include late changes of the previous window.
        gap = _ClosedWindow(job_id, number, ("reconciled",), window.start - _OVERLAP, window.end)
        healed = heal_gap(self.options, self.store, gap, {}, self.look)
        _LOG.info("%s: %s, %d of %d changes were lost", self.store.uri, window, healed.rows, healed.changes)
        counts = {"changes": healed.changes, "lost": healed.rows, "settled": healed.settled}
        state.put(_name(window), {**_record(window), **counts, "done": True})
        self.billed_bytes += healed.billed_bytes
        if healed.usd is not None:
            self.usd = (self.usd or 0.0) + healed.usd
        return ReconciledWindow(window.start, window.end, healed.exports, healed.changes, healed.rows, healed.settled)


def _applying(options: ReconcileOptions) -> ApplyOptions | None:
    if options.target is None:
        return None
    kind = lake_format(open_store(options.target, options)) if options.format == "auto" else options.format
    values = {**connection_of(options), "source": options.dest, "table": options.target}
    return parse_options(ApplyOptions, {**values, "format": kind or "delta", "engine": options.engine})


def _capture(options: ReconcileOptions, store: ObjectStore) -> JobState:
    """Return the capture that owns the reconciling jobs: the first of those that share the log."""
    return min(captures_in(store, options.job_id), key=lambda state: state.job_id)


def _state(store: ObjectStore, job_id: str) -> JobState:
    return JobState(store, job_id, _KIND)


def _name(window: Window) -> str:
    return f"window-{int(window.start.timestamp()):012}"


def _record(window: Window) -> dict[str, Any]:
    return {"start": window.start.isoformat(), "end": window.end.isoformat()}


def closed_windows(options: ReconcileOptions, store: ObjectStore) -> list[Window]:
    """Return the closed windows that are not reconciled yet; the first may be one that a killed run started."""
    capture = _capture(options, store)
    records = {record["start"]: record for record in _state(store, capture.job_id).records()}
    head = capture.head() or {}
    ends = [datetime.fromisoformat(record["end"]) for record in records.values() if record.get("done")]
    capture_start = datetime.fromtimestamp(float(head.get("started_at", 0.0)), UTC)
    since = options.since or max(ends, default=capture_start)
    if not options.from_export:
        since = _within_recovery(options, since, is_first=options.since is None and not ends)
    start, until, windows = since.replace(microsecond=0), _closed(options), list[Window]()
    while True:
        record = records.get(start.isoformat())
        end = datetime.fromisoformat(record["end"]) if record else min(start + MAX_WINDOW, until.replace(microsecond=0))
        if end > until or end - start < MIN_WINDOW:
            return windows
        if record is None or not record.get("done"):
            windows.append(Window(start, end))
        start = end


def _within_recovery(options: ReconcileOptions, since: datetime, *, is_first: bool) -> datetime:
    """Return the time from which windows can be reconciled: their exports, which start earlier, need recovery by then.

    Raises
    ------
    OptionError
        If the next window is too old for an export.
    """
    earliest = describe_recovery(dynamodb_spec(options), options.table).earliest
    if earliest is None:
        # The export reports that recovery is off, and how to enable it.
        return since
    first = earliest.replace(microsecond=0) + _BEFORE + timedelta(seconds=1)
    if since >= first or is_first:
        return max(since, first)
    raise OptionError(
        f"the table {options.table!r} can be recovered from {earliest.isoformat()} on, but the next window of "
        f"{options.dest} starts at {since.isoformat()}: no export has the changes before {first.isoformat()}. Set "
        f"since={first.isoformat()} to continue from there"
    )


def _closed(options: ReconcileOptions) -> datetime:
    """Return the time up to which all changes have been captured."""
    if options.until is not None:
        return options.until
    now = time.time()
    status_options = {**connection_of(options), "dest": options.dest, "job_id": options.job_id}
    lags = [
        status.lag_seconds
        for status in capture_status(parse_options(CaptureStatusOptions, status_options))
        if status.lag_seconds
    ]
    until = min([now - _CLOSED_SECONDS, *(now - lag - _LAG_SECONDS for lag in lags)])
    return datetime.fromtimestamp(int(until), UTC)
