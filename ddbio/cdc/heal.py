"""Healing of gaps in a log: find them, export the changes of their times, and write these as rows of the log, once.

Decisions are stored before any rows are written, and each batch is recorded before its files. A killed run is resumed,
and a healed gap is not changed.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.aws.control_plane import describe_recovery, describe_table
from ddbio.budget.job_limits import check_estimate
from ddbio.cdc.batches import write_log_file
from ddbio.cdc.gaps import HEALS, Gap, captures_in, find_gaps, healed_name
from ddbio.cdc.healing import (
    MARGIN_SECONDS,
    Decisions,
    ExportDecoder,
    ExportedKeys,
    LogState,
    by_hour,
    heal_windows,
    image_digests,
    key_digests,
    numbered,
)
from ddbio.cdc.lineages import lineages_of
from ddbio.cdc.log_jobs import CAPTURE, BatchRecords, has_old_images, keep_columns, read_columns
from ddbio.cdc.log_reader import FileLineages, lineage_for
from ddbio.cdc.stream_registry import kind_of_job, table_of_job
from ddbio.cdc.table_items import read_items
from ddbio.commit.committer import Claim
from ddbio.commit.snapshot import live_files, read_history
from ddbio.errors import ExportIncompleteError, NotFoundError, OptionError, ServiceError, TargetError
from ddbio.export.exports import EXPORT
from ddbio.export.options import ExportStartOptions, WaitOptions
from ddbio.formats.parquet_input import open_parquet
from ddbio.items.schema.arrow import RESCUE_NAME
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.report import Clock, JobReport
from ddbio.jobs.service_estimates import heal_estimate
from ddbio.jobs.stores import open_store
from ddbio.options import connection_of, export_connection_of, parse_options
from ddbio.sources.export_source import FileText, open_export
from ddbio.storage.job_state import JobState
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from ddbio.cdc.options import CaptureHealOptions
    from ddbio.export.fold_rows import Window
    from ddbio.lake.options import ReconcileOptions
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore

    Look: TypeAlias = Callable[[CaptureHealOptions, pa.Table, datetime, ExportDecoder], pa.Table]

_LOG = logging.getLogger("ddbio.capture")
_BATCH_ROWS = 100_000
_TOO_LATE = "InvalidExportTimeException"


@dataclass(frozen=True, kw_only=True)
class WindowsPlan(EstimatedPlan):
    """Base of the plans of jobs that compare windows of a log with incremental exports.

    Attributes
    ----------
    table, dest
        The table and its log.
    windows
        The windows, in order.
    exports
        The number of exports to request; 0 if they exist.
    estimate
        The minimum time and cost of the exports: an incremental export is billed by the size of the changes.
    """

    table: str
    dest: str
    windows: tuple[Window, ...]
    exports: int
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True, kw_only=True)
class WindowsReport(JobReport):
    """Base of the reports of jobs that compare windows of a log with incremental exports.

    Attributes
    ----------
    table, dest
        The table and its log.
    changes
        Items that changed within the windows.
    settled
        Items that are in no export, and were read from the table.
    planned, actual
        The figures of the plan and of the exports.
    """

    table: str
    dest: str
    changes: int
    settled: int
    planned: Figures
    actual: Figures


@dataclass(frozen=True, kw_only=True)
class CaptureHealPlan(WindowsPlan):
    """Plan for healing the gaps of a log.

    Attributes
    ----------
    gaps
        The gaps that are not healed yet.
    """

    gaps: tuple[Gap, ...]


@dataclass(frozen=True, kw_only=True)
class CaptureHealReport(WindowsReport):
    """Result of healing the gaps of a log.

    Attributes
    ----------
    gaps
        Gaps that this run healed.
    exports
        Folders of the exports.
    rows
        Rows that this run added to the log, for items with lost changes.
    files
        Files that this run wrote.
    """

    gaps: int
    exports: tuple[str, ...]
    rows: int
    files: int


def plan_of(options: CaptureHealOptions) -> CaptureHealPlan:
    """Return the gaps of a log, with the time and cost of healing them. Nothing is exported or written.

    Raises
    ------
    NotFoundError
        If the capture or the table does not exist.
    OptionError
        If the table's point-in-time recovery does not reach back to a gap.
    LimitError
        If the plan is above a limit.
    """
    store = open_store(options.dest, options)
    return _plan(options, find_gaps(captures_in(store, options.job_id)).gaps)


def _plan(options: CaptureHealOptions, gaps: Sequence[Gap]) -> CaptureHealPlan:
    windows = [window for gap in gaps for window in heal_windows(gap.since, gap.until)]
    # The exports of a killed run exist already.
    store = open_store(options.dest, options)
    remaining = [gap for gap in gaps if JobState(store, gap.heal_id, CAPTURE).read("exports") is None]
    new_windows = (
        [] if options.from_export else [window for gap in remaining for window in heal_windows(gap.since, gap.until)]
    )
    if new_windows:
        _require_recovery(options, new_windows[0])
    return CaptureHealPlan(gaps=tuple(gaps), **plan_windows(options, windows, len(new_windows)))


def plan_windows(
    options: CaptureHealOptions | ReconcileOptions, windows: Sequence[Window], exports: int
) -> dict[str, Any]:
    """Return the fields of ``WindowsPlan`` as a dict.

    Raises
    ------
    NotFoundError
        If the table does not exist.
    LimitError
        If the plan is above a limit.
    """
    table = describe_table(dynamodb_spec(options), options.table)
    estimate = heal_estimate(exports, prices_of(table.region, options.prices))
    check_estimate(options, estimate)
    own = {"windows": tuple(windows), "exports": exports, "estimate": estimate}
    return {"table": table.name, "dest": options.dest, **own}


def require_export_to(options: CaptureHealOptions | ReconcileOptions, plan: WindowsPlan) -> None:
    """Raise if the plan needs exports, and ``export_to`` is missing.

    Raises
    ------
    OptionError
        With the windows.
    """
    if plan.exports and options.export_to is None:
        raise OptionError(
            "export_to is missing, an s3:// prefix for the incremental exports; or give from_export, folders of "
            f"exports that cover {', '.join(map(str, plan.windows))}"
        )


def _require_recovery(options: CaptureHealOptions, first: Window) -> None:
    recovery = describe_recovery(dynamodb_spec(options), options.table)
    since = "" if recovery.earliest is None else f" only back to {recovery.earliest.isoformat()}"
    if recovery.is_on and recovery.earliest is not None and recovery.earliest.replace(microsecond=0) <= first.start:
        return
    recovery_state = f"reaches{since}" if recovery.is_on else "is off"
    raise OptionError(
        f"the point-in-time recovery of table {options.table!r} {recovery_state}, and the first gap of {options.dest} "
        f"starts at {first.start.isoformat()}: no export has the lost changes. Start another log with a new base: "
        "'ddbio capture' into an empty folder, then 'ddbio scan' or a full export; and turn recovery on, which heals "
        "the next gap"
    )


def heal_capture(options: CaptureHealOptions) -> CaptureHealReport:
    """Fill the gaps of a log from incremental exports: items with lost changes get rows in the log.

    A healed gap is not changed. A stopped run is resumed.

    Raises
    ------
    NotFoundError
        If the capture or the table does not exist.
    OptionError
        If exports have to be requested and ``export_to`` is missing, or recovery does not reach back to a gap.
    ExportIncompleteError
        If the given exports do not cover a gap, or one is damaged.
    TargetError
        If another process heals this log.
    """
    clock, store = Clock(), open_store(options.dest, options)
    states = captures_in(store, options.job_id)
    log_gaps = find_gaps(states)
    plan = _plan(options, log_gaps.gaps)
    require_export_to(options, plan)
    _LOG.info("heal %d gaps of %s: planned: %s", len(plan.gaps), store.uri, plan.figures)
    done = [heal_gap(options, store, gap, log_gaps.written_at) for gap in log_gaps.gaps]
    usd = [healed.usd for healed in done if healed.usd is not None]
    return CaptureHealReport(
        table=plan.table,
        dest=store.uri,
        gaps=len(done),
        exports=tuple(uri for healed in done for uri in healed.exports),
        changes=sum(healed.changes for healed in done),
        rows=sum(healed.rows for healed in done),
        settled=sum(healed.settled for healed in done),
        files=sum(healed.files for healed in done),
        planned=plan.figures,
        actual=Figures(
            None, clock.seconds(), sum(healed.billed_bytes for healed in done) or None, sum(usd) if usd else None
        ),
        **clock.times(),
    )


@dataclass
class HealedGap:
    """Counts of the healing of one gap."""

    exports: tuple[str, ...] = ()
    changes: int = 0
    rows: int = 0
    settled: int = 0
    files: int = 0
    billed_bytes: int = 0
    usd: float | None = None


def heal_gap(
    options: CaptureHealOptions,
    store: ObjectStore,
    gap: Gap,
    written_at: Mapping[str, float],
    look: Look = read_items,
) -> HealedGap:
    """Heal one gap, or resume its healing. Errors are those of :func:`heal_capture`.

    Parameters
    ----------
    written_at
        The time at which each file of a batch was written.
    look
        Reads items of the table.
    """
    capture = JobState(store, gap.job_id, CAPTURE)
    state = JobState(store, gap.heal_id, CAPTURE)
    head = capture.head() or {}
    head_fields = {name: head[name] for name in ("old_image", "table") if name in head} | lineage_for(state)
    table = options.table.rpartition("/")[2]
    if (own := table_of_job(head) or table) != table:
        raise OptionError(f"{store.uri} is the log of table {own!r}, not of {table!r}")
    identity: dict[str, Any] = {HEALS: gap.job_id, "batch": gap.batch, **head_fields}
    state.start_as(identity)
    with Claim(store, gap.heal_id, "append").held():
        job = _Job(options, state, gap, capture, HealedGap(), look)
        job.run(written_at, has_event_ids=kind_of_job(head).has_event_ids, old_image=has_old_images(capture))
        capture.put(healed_name(gap.batch), {"by": gap.heal_id, "rows": job.counts.rows})
    return job.counts


@dataclass
class _Job:
    """Healing of one gap."""

    options: CaptureHealOptions
    state: JobState
    gap: Gap
    capture: JobState
    counts: HealedGap
    look: Look
    batch: int = 0

    def run(self, written_at: Mapping[str, float], *, has_event_ids: bool, old_image: bool) -> None:
        columns = read_columns(self.capture)
        if columns is None or not columns.keys:
            raise NotFoundError(f"capture {self.gap.job_id} of {self.state.store.uri} has no columns yet: run it again")
        items, self.keys = keep_columns(self.state, columns)
        self.decoder = ExportDecoder(items, self.keys, old_image=old_image, event_id=has_event_ids)
        self.attributes = self.decoder.attributes
        exports = [open_export(export, self.options) for export in self._exports()]
        self.counts.exports = tuple(export.folder for export in exports)
        decided, settled = self._decide(exports, written_at)
        self._write(exports, decided, settled)

    def _exports(self) -> list[str]:
        """Return the folders of the exports. Request the exports if no run has done it."""
        stored = self.state.read("exports")
        if stored is None:
            from_export = self.options.from_export
            uris = self._requested() if from_export is None else self._covering(from_export)
            self.state.put_once("exports", {"exports": uris})
            stored = self.state.read("exports") or {"exports": uris}
        folders: list[str] = stored["exports"]
        return folders

    def _covering(self, folders: Sequence[str]) -> list[str]:
        """Return the exports that cover the gap.

        Raises
        ------
        ExportIncompleteError
            If they do not cover it. The message has the windows.
        """
        first, last = self.gap.since.timestamp() - MARGIN_SECONDS, self.gap.until
        sources = [open_export(folder, self.options) for folder in folders]
        spans = list[tuple[datetime, datetime, str]]()
        for source in sources:
            summary = source.summary
            if summary.kind != "incremental" or summary.filtered:
                raise ExportIncompleteError(f"{source.folder} is not an incremental export of the whole table")
            begin, end = (datetime.fromisoformat(text or "") for text in (summary.from_time, summary.to_time))
            spans.append((begin, end, source.folder))
        reached = datetime.fromtimestamp(first, UTC)
        chosen = list[str]()
        for begin, end, folder in sorted(spans):
            if end > reached and reached < last:
                if begin > reached and (chosen or begin.timestamp() > first):
                    break
                chosen.append(folder)
                reached = end
        if reached < last:
            missing = ", ".join(map(str, heal_windows(self.gap.since, self.gap.until)))
            raise ExportIncompleteError(
                f"the exports do not cover the gap of batch {self.gap.batch} completely: run 'ddbio export start' with "
                f"the windows {missing}"
            )
        return chosen

    def _requested(self) -> list[str]:
        """Request the exports one after the other, and return their folders."""
        folders = list[str]()
        for number, window in enumerate(heal_windows(self.gap.since, self.gap.until)):
            name = f"export-{number}"
            record = self.state.read(name) or {"tries": 0, "arn": None}
            if record["arn"] is None:
                digest = hashlib.sha256(f"{self.state.store.uri} {self.gap} {number} {record['tries']}".encode())
                token = {"client_token": digest.hexdigest()}
                target = {"table": self.options.table, "dest": self.options.export_to, **token}
                times = {"from_time": window.start, "to_time": window.end}
                start_options = parse_options(
                    ExportStartOptions, {**export_connection_of(self.options), **target, **times}
                )
                record["arn"] = self._started(start_options).arn
                self.state.put(name, record)
            waiting = {name: getattr(self.options, name) for name in ("wait_seconds", "poll_seconds")}
            awaited = {**connection_of(self.options), **waiting, "arn": record["arn"]}
            try:
                job = EXPORT.wait(parse_options(WaitOptions, awaited))
            except ServiceError:
                # With the same token the service would return the same failed export.
                self.state.put(name, {"tries": record["tries"] + 1, "arn": None})
                raise
            self.counts.billed_bytes += job.billed_bytes or 0
            if job.actual is not None and job.actual.usd is not None:
                self.counts.usd = (self.counts.usd or 0.0) + job.actual.usd
            folders.append(job.uri or "")
        return folders

    def _started(self, start_options: ExportStartOptions) -> Any:
        """Start an export. Wait if the service cannot export the end of its window yet."""
        clock = Clock()
        while True:
            try:
                return EXPORT.start(start_options)
            except (OptionError, ServiceError) as error:
                late = "to_time" in str(error) or getattr(error, "code", None) == _TOO_LATE
                if not late or clock.seconds() > self.options.wait_seconds:
                    raise
                _LOG.info("the service does not export up to %s yet: waiting", start_options.to_time)
                time.sleep(self.options.poll_seconds)

    def _decide(self, exports: Sequence[ExportSource], written_at: Mapping[str, float]) -> tuple[Decisions, pa.Table]:
        """Return the decisions, and the rows of items that had to be read from the table.

        They are decided only once.
        """
        stored = self._read("decisions"), self._read("settled")
        if stored[0] is not None and stored[1] is not None:
            return Decisions.of(stored[0]), stored[1]
        keys = [self._exported(export) for export in exports]
        summary = exports[0].summary
        since = datetime.fromisoformat(summary.from_time or "").timestamp()
        state = self._log_state(keys, since, written_at)
        decided, unsettled = state.decide(self.gap.batch)
        # The file has the same columns whether or not there are such items.
        settled = numbered(self.decoder.schema.empty_table(), [], [], "table")
        if unsettled.keys.num_rows:
            rows = self.look(self.options, unsettled.keys, self.gap.until, self.decoder)
            images = image_digests(rows, self.attributes)
            settled = unsettled.rows(rows, key_digests(rows, self.keys), images)
            self.counts.settled = unsettled.keys.num_rows
        self._put("settled", settled)
        self._put("decisions", decided.table())
        # If two runs decide, the first decisions are used.
        first = [table for name in ("decisions", "settled") if (table := self._read(name)) is not None]
        return Decisions.of(first[0]), first[1]

    def _exported(self, source: ExportSource) -> ExportedKeys:
        parts = []
        for rows in self._rows(source):
            parts.append((key_digests(rows, self.keys), image_digests(rows, self.attributes)))
            self.counts.changes += rows.num_rows
        return ExportedKeys.of(parts)

    def _rows(self, source: ExportSource) -> Iterator[pa.Table]:
        for file in source.files:
            text = FileText(source, file)
            with text.blocks() as blocks:
                for block in blocks:
                    decoded = self.decoder.decode_lines(block)
                    if decoded is not None:
                        text.rows += decoded.rows.num_rows
                        yield pa.Table.from_batches([decoded.rows])
            text.verify()

    def _log_state(self, keys: Sequence[ExportedKeys], since: float, written_at: Mapping[str, float]) -> LogState:
        store, until = self.state.store, self.gap.until.timestamp()
        files = FileLineages(store, lineages_of(self.state)[0].name)
        state = LogState(self.keys, self.attributes, since, until, keys, files.own)
        for file in live_files(store).files:
            read = open_parquet(pa.BufferReader(store.read(file.path)))
            names = [name for name in read.schema_arrow.names if name in {*self.decoder.schema.names, RESCUE_NAME}]
            at = written_at.get(file.path)
            is_after = at >= until if at is not None else False if "_heal_" in file.path else None
            for batch in read.iter_batches(_BATCH_ROWS, columns=names):
                if batch.num_rows:
                    state.add(pa.Table.from_batches([batch]), is_after=is_after, lineage=files.of(file.path))
        return state

    def _write(self, exports: Sequence[ExportSource], decided: Decisions, settled: pa.Table) -> None:
        removed = frozenset(path for snapshot in read_history(self.state.store) for path in snapshot.removed)
        gathered, count = list[pa.Table](), 0
        for number, source in enumerate(exports):
            if not decided.has(number):
                continue
            name = source.summary.export_arn or source.folder
            for rows in self._rows(source):
                rows_left = decided.rows(number, rows, self.keys, name)
                while rows_left.num_rows:
                    part = rows_left.slice(0, _BATCH_ROWS - count)
                    rows_left = rows_left.slice(part.num_rows)
                    gathered.append(part)
                    count += part.num_rows
                    if count == _BATCH_ROWS:
                        self._append(gathered, removed)
                        gathered, count = [], 0
        self._append(gathered, removed)
        self._append([settled], removed)

    def _append(self, parts: Sequence[pa.Table], removed: frozenset[str]) -> None:
        """Write a batch of rows: its record first, then its files."""
        rows = pa.concat_tables(parts, promote_options="permissive") if parts else None
        if rows is None or not rows.num_rows:
            return
        self.batch += 1
        files = by_hour(rows, f"{self.state.job_id}-{self.batch:012}.parquet")
        described = [{"path": path, "rows": table.num_rows} for path, table in files.items()]
        record: dict[str, Any] = {"batch": self.batch, "shards": {}, "positions": {}, "files": described, "gaps": []}
        record["at"] = self.gap.until.timestamp()
        records = BatchRecords(self.state)
        if not records.add(self.batch, record) and (records.read(self.batch) or {}).get("files") != described:
            raise TargetError(f"batch {self.batch} of {self.state.job_id} in {self.state.store.uri} has other rows")
        for path, table in files.items():
            if path in removed:
                continue
            write_log_file(self.state.store, path, table, "zstd")
            self.counts.files += 1
        self.counts.rows += rows.num_rows
        records.commit(self.batch)

    def _path_of(self, name: str) -> str:
        return f"{META}{self.state.job_id}.healing/{name}.arrows"

    def _put(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.state.store.put_if_absent(self._path_of(name), sink.getvalue().to_pybytes())

    def _read(self, name: str) -> pa.Table | None:
        try:
            return pa.ipc.open_stream(self.state.store.read(self._path_of(name))).read_all()
        except NotFoundError:
            return None
