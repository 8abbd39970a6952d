"""Reconcile a log with incremental exports: each closed window of both, losses counted and repaired.

A window is handled as a gap is healed: what the export has and the log lacks becomes rows of the log, right behind the
last one of each item, and what no export tells is read from the table. A window is decided once: a run that was killed
goes on with it.
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
# What is exported of a window begins so much before it: changes at the end of a window are left to the next one.
_OVERLAP = timedelta(seconds=300)
_BEFORE = _OVERLAP + timedelta(seconds=MARGIN_SECONDS)
_CLOSED_SECONDS = 600.0
_LAG_SECONDS = 60.0
_MINUTE = 60


@dataclass(frozen=True)
class ReconciledWindow(Result):
    """What one window had.

    Attributes
    ----------
    start, end
        The window.
    exports
        Folders of the exports that it was compared with.
    changes
        Items that they have.
    lost
        Items of which the log lacked a change: it has a row for each now.
    settled
        Items that no export tells, which were read from the table.
    """

    start: datetime
    end: datetime
    exports: tuple[str, ...]
    changes: int
    lost: int
    settled: int


@dataclass(frozen=True, kw_only=True)
class ReconcilePlan(WindowsPlan):
    """Describe which windows would be reconciled."""


@dataclass(frozen=True, kw_only=True)
class ReconcileReport(WindowsReport):
    """What a run did; ``lost`` of ``changes`` is the measured loss of the stream.

    Attributes
    ----------
    windows
        The windows that were reconciled.
    lost
        Items of which the log lacked a change.
    applied
        What was applied to the lake table afterwards; null without one.
    """

    windows: tuple[ReconciledWindow, ...]
    lost: int
    applied: ApplyReport | None


@dataclass(frozen=True)
class _ClosedWindow(Gap):
    """Handle a window as a gap; its number is the minute of its end, less than any sequence number."""

    @property
    def heal_id(self) -> str:
        """The name of the job that reconciles it."""
        return f"{self.job_id}_heal_w{self.batch}"


def plan_reconcile(options: ReconcileOptions) -> ReconcilePlan:
    """Return which windows :func:`reconcile` would look at, and what their exports cost; nothing is asked for.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    LimitError
        If the plan is above a limit.
    """
    store = open_store(options.dest, options)
    return _plan(options, closed_windows(options, store))


def _plan(options: ReconcileOptions, windows: Sequence[Window]) -> ReconcilePlan:
    asked = [part for each in windows for part in heal_windows(each.start, each.end)]
    return ReconcilePlan(**plan_windows(options, windows, 0 if options.from_export else len(asked)))


def reconcile(
    options: ReconcileOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> ReconcileReport:
    """Compare each closed window of a log of changes with an incremental export; count and repair what it lost.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a session that has to be started.

    Raises
    ------
    NotFoundError
        If there is no capture, or no such table.
    OptionError
        If exports have to be asked for and ``export_to`` is missing, or the service has none so far back.
    ExportIncompleteError
        If the given exports do not cover a window, or one is damaged.
    TargetError
        If another process reconciles this log.
    """
    clock, store = Clock(), open_store(options.dest, options)
    # What cannot be applied is told before exports are paid for.
    applying = _applying(options)
    windows = closed_windows(options, store)
    plan = _plan(options, windows)
    require_export_to(options, plan)
    job = Reconciler(options, store)
    done = [job.reconcile(each) for each in windows]
    return ReconcileReport(
        table=plan.table,
        dest=store.uri,
        windows=tuple(done),
        changes=sum(each.changes for each in done),
        lost=sum(each.lost for each in done),
        settled=sum(each.settled for each in done),
        applied=None if applying is None else apply_log(applying, master=master, conf=conf),
        planned=plan.figures,
        actual=Figures(None, clock.seconds(), job.billed_bytes or None, job.usd),
        **clock.times(),
    )


@dataclass
class Reconciler:
    """Reconcile windows of one log; errors are those of :func:`reconcile`.

    Attributes
    ----------
    look
        Reads items of the table.
    billed_bytes, usd
        What the exports took; None if the service does not say.
    """

    options: ReconcileOptions
    store: ObjectStore
    look: Look = read_items
    billed_bytes: int = 0
    usd: float | None = None

    def reconcile(self, window: Window) -> ReconciledWindow:
        """Reconcile a window, or go on with it."""
        job_id = _capture(self.options, self.store).job_id
        state = _state(self.store, job_id)
        state.put_once(_name(window), _record(window))
        number = int(window.end.timestamp()) // _MINUTE
        # The export begins before the window: what changed at the end of the one before is looked at here.
        gap = _ClosedWindow(job_id, number, ("reconciled",), window.start - _OVERLAP, window.end)
        found = heal_gap(self.options, self.store, gap, {}, self.look)
        _LOG.info("%s: %s, %d of %d changes were lost", self.store.uri, window, found.rows, found.changes)
        counts = {"changes": found.changes, "lost": found.rows, "settled": found.settled}
        state.put(_name(window), {**_record(window), **counts, "done": True})
        self.billed_bytes += found.billed_bytes
        if found.usd is not None:
            self.usd = (self.usd or 0.0) + found.usd
        return ReconciledWindow(window.start, window.end, found.exports, found.changes, found.rows, found.settled)


def _applying(options: ReconcileOptions) -> ApplyOptions | None:
    if options.target is None:
        return None
    kind = lake_format(open_store(options.target, options)) if options.format == "auto" else options.format
    given = {**connection_of(options), "source": options.dest, "table": options.target}
    return parse_options(ApplyOptions, {**given, "format": kind or "delta", "engine": options.engine})


def _capture(options: ReconcileOptions, store: ObjectStore) -> JobState:
    """Return the capture that the jobs which reconcile belong to: the first of those that share the log."""
    return min(captures_in(store, options.job_id), key=lambda state: state.job_id)


def _state(store: ObjectStore, job_id: str) -> JobState:
    return JobState(store, job_id, _KIND)


def _name(window: Window) -> str:
    return f"window-{int(window.start.timestamp()):012}"


def _record(window: Window) -> dict[str, Any]:
    return {"start": window.start.isoformat(), "end": window.end.isoformat()}


def closed_windows(options: ReconcileOptions, store: ObjectStore) -> list[Window]:
    """Return the windows that are closed and not reconciled yet; the first may have been begun by a run that died."""
    capture = _capture(options, store)
    known = {each["start"]: each for each in _state(store, capture.job_id).records()}
    head = capture.head() or {}
    ends = [datetime.fromisoformat(each["end"]) for each in known.values() if each.get("done")]
    began = datetime.fromtimestamp(float(head.get("started_at", 0.0)), UTC)
    since = options.since or max(ends, default=began)
    if not options.from_export:
        since = _within_recovery(options, since, is_first=options.since is None and not ends)
    start, until, found = since.replace(microsecond=0), _closed(options), list[Window]()
    while True:
        noted = known.get(start.isoformat())
        end = datetime.fromisoformat(noted["end"]) if noted else min(start + MAX_WINDOW, until.replace(microsecond=0))
        if end > until or end - start < MIN_WINDOW:
            return found
        if noted is None or not noted.get("done"):
            found.append(Window(start, end))
        start = end


def _within_recovery(options: ReconcileOptions, since: datetime, *, is_first: bool) -> datetime:
    """Return the time from which windows can be reconciled: exports begin some minutes before, and recovery by then.

    Raises
    ------
    OptionError
        If windows were reconciled up to an earlier time, or one was given: what lies between is never reconciled.
    """
    earliest = describe_recovery(dynamodb_spec(options), options.table).earliest
    if earliest is None:
        # The export says that recovery is off, and what turns it on.
        return since
    first = earliest.replace(microsecond=0) + _BEFORE + timedelta(seconds=1)
    if since >= first or is_first:
        return max(since, first)
    raise OptionError(
        f"the table {options.table!r} can be recovered from {earliest.isoformat()} on, and the next window of "
        f"{options.dest} begins at {since.isoformat()}: no export has the changes before {first.isoformat()}. Give "
        f"since={first.isoformat()} to go on from there"
    )


def _closed(options: ReconcileOptions) -> datetime:
    """Return the time up to which all changes are captured."""
    if options.until is not None:
        return options.until
    now = time.time()
    asked = {**connection_of(options), "dest": options.dest, "job_id": options.job_id}
    lags = [each.lag_seconds for each in capture_status(parse_options(CaptureStatusOptions, asked)) if each.lag_seconds]
    until = min([now - _CLOSED_SECONDS, *(now - lag - _LAG_SECONDS for lag in lags)])
    return datetime.fromtimestamp(int(until), UTC)
