"""Creation of a lake table that follows a DynamoDB table: capture the log, load the base, then apply the log.

Each step is done once. After a failure, the same command resumes, and it also brings an existing table up to date.
Changes that the stream lost are healed from exports, or a new base is loaded.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.cdc.capture import capture, options_of_capture, prepare_capture
from ddbio.cdc.gaps import captures_in, find_gaps
from ddbio.cdc.heal import heal_capture
from ddbio.cdc.log_reader import oldest_hour, open_log
from ddbio.cdc.log_rows import hour_folder
from ddbio.cdc.options import CaptureHealOptions, CaptureOptions
from ddbio.errors import DdbioError, TargetError
from ddbio.export.exports import EXPORT
from ddbio.export.options import ExportStartOptions, ExportToFilesOptions, WaitOptions
from ddbio.export.read import read_export_to_files
from ddbio.jobs.engine import cluster_of, open_engine
from ddbio.jobs.report import Clock, JobReport
from ddbio.jobs.stores import open_store, require_shared
from ddbio.lake.apply import apply_log
from ddbio.lake.changes import BASE_NOTE, EXPIRED_BEFORE, base_note
from ddbio.lake.options import ApplyOptions
from ddbio.lake.registering import check_lake_catalog
from ddbio.lake_formats.registry import TABLE_FORMATS, open_lake_table
from ddbio.lake_formats.table import BASE, EPOCHS
from ddbio.options import connection_of, export_connection_of, parse_options
from ddbio.scan.options import ScanToFilesOptions
from ddbio.scan.to_files import scan_to_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.cdc.gaps import Gap
    from ddbio.lake.apply import ApplyReport
    from ddbio.lake.options import BootstrapOptions

_LOG = logging.getLogger("ddbio.bootstrap")
_MAX_BASES = 5
# Options of the lake table that are passed to the load of a base.
_LAKE = ("format", "engine", "buckets")


@dataclass(frozen=True, kw_only=True)
class BootstrapReport(JobReport):
    """Result of a run.

    Attributes
    ----------
    table, target, log
        The DynamoDB table, the lake table and the log.
    base_rows
        Rows of the base that this run loaded; null if the table had one.
    captured
        Changes captured by this run.
    gaps, healed
        Gaps in the log, and rows that healed them.
    changes, inserted, updated, deleted, stale
        Effect of applying the log to the base.
    version
        Version of the lake table at the end.
    """

    table: str
    target: str
    log: str
    base_rows: int | None
    captured: int
    gaps: int
    healed: int
    changes: int
    inserted: int
    updated: int
    deleted: int
    stale: int
    version: int


def bootstrap(
    options: BootstrapOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> BootstrapReport:
    """Create a lake table with the content of a DynamoDB table, or bring it up to date: log, base, and changes.

    Parameters
    ----------
    master, conf
        Spark master and configuration for a new session.

    Raises
    ------
    NotFoundError, OptionError
        If there is no such table, or it has no stream, or the catalog cannot have a table of this name.
    TargetError
        If another process writes the log or the lake table, or changes are lost repeatedly, or the catalog has another
        table of this name.
    EndpointError
        If the catalog is unavailable.
    """
    clock, job = Clock(), _Bootstrap(options)
    if options.engine == "local":
        applied, cpu_seconds = job.run(), clock.cpu_seconds()
    else:
        folders = {"target": options.target, "log": options.log}
        require_shared(cluster_of(master, conf), folders, shared_paths=False)
        # One session loads the base and applies the changes.
        with closing(open_engine("spark", master=master, conf=conf)) as engine:
            if (writer := TABLE_FORMATS[options.format].spark_writer()) is not None:
                writer.running_hudi_session()
            applied, cpu_seconds = job.run(), engine.cpu_seconds()
    return BootstrapReport(
        table=options.table,
        target=options.target,
        log=options.log,
        base_rows=job.base_rows,
        captured=job.captured,
        gaps=job.gaps,
        healed=job.healed,
        changes=applied.changes,
        inserted=applied.inserted,
        updated=applied.updated,
        deleted=applied.deleted,
        stale=applied.stale,
        version=applied.version,
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(cpu_seconds, 3),
    )


@dataclass
class _Bootstrap:
    options: BootstrapOptions
    base_rows: int | None = None
    captured: int = 0
    gaps: int = 0
    healed: int = 0

    def run(self) -> ApplyReport:
        applying = self._apply_options()
        # An invalid table name is reported before a base is paid for.
        check_lake_catalog(applying)
        # The log starts before the base: changes during the load are in both, and the log wins.
        prepare_capture(self._capture_options(available_now=True))
        self._capture()
        if self._follows_another_log():
            self._note(doubtful=self._base())
        for number in range(1, _MAX_BASES + 1):
            self._settle_gaps()
            if self._has_base():
                break
            with self._capturing():
                self._load(number)
            self._capture()
            # The log has all changes that happened during the load, unless it has a new gap.
            self._note(whole=self._base())
        else:
            raise TargetError(
                f"{self.options.log} lost changes {_MAX_BASES} times while the base of {self.options.target} was "
                "loaded: run 'ddbio capture' at the same time, on a machine with free capacity",
                self.options.target,
            )
        return apply_log(applying)

    def _connection(self) -> dict[str, Any]:
        return connection_of(self.options)

    def _apply_options(self) -> ApplyOptions:
        names = ("format", "engine", "buckets", "catalog", "glue_endpoint_url")
        named_options = {name: getattr(self.options, name) for name in names}
        folders = {"source": self.options.log, "table": self.options.target}
        return parse_options(ApplyOptions, {**self._connection(), **named_options, **folders})

    def _capture(self) -> None:
        self.captured += capture(self._capture_options(available_now=True)).records

    def _capture_options(self, *, available_now: bool) -> CaptureOptions:
        names = {"table": self.options.table, "dest": self.options.log}
        values = {**self._connection(), **names, "available_now": available_now, "on_gap": "continue"}
        values |= options_of_capture(open_store(self.options.log, self.options))
        return parse_options(CaptureOptions, values)

    @contextlib.contextmanager
    def _capturing(self) -> Iterator[None]:
        """Capture while the context is open, because loading a base may take longer than the retention of a stream."""
        stop, failed = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                self.captured += capture(self._capture_options(available_now=False), stop).records
            except DdbioError as error:
                failed.append(error)

        thread = threading.Thread(target=work, name="ddbio-bootstrap-capture")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _has_base(self) -> bool:
        """Return whether the lake table has a base, and no gap has invalidated it."""
        return self._base() not in {0, self._note().get("doubtful")}

    def _follows_another_log(self) -> bool:
        """Return whether the lake table has changes, but none from a stream of this log."""
        state = open_lake_table(self.options.target, self.options.format, self.options).load()
        epochs = set() if state is None else set(json.loads(state.properties.get(EPOCHS, "[]")))
        store = open_store(self.options.log, self.options)
        log_streams = {lineage.name for lineage in open_log(store).lineages()}
        return bool(epochs) and not epochs & log_streams

    def _base(self) -> int:
        """Return the start of the base load of the lake table, in microseconds since 1970; 0 without a base."""
        table = open_lake_table(self.options.target, self.options.format, self.options)
        state = table.load()
        return 0 if state is None else table.position(state, BASE)

    def _note(self, **values: Any) -> dict[str, Any]:
        """Update the notes next to the log with the given values, and return them."""
        state = base_note(open_store(self.options.log, self.options))
        noted = state.read(BASE_NOTE) or {}
        if values:
            noted |= values
            state.put(BASE_NOTE, noted)
        return noted

    def _load(self, number: int) -> None:
        """Load a base; it replaces an older one that was invalidated."""
        table = open_lake_table(self.options.target, self.options.format, self.options)
        mode = "error" if table.load() is None else "overwrite"
        _LOG.info("base %d of %s: %s", number, self.options.target, self.options.base)
        covered_gaps, noted = {gap.heal_id: self._base() for gap in self._open_gaps()}, self._note()
        # The base includes all changes that the log has lost before the base starts.
        now = time.time()
        oldest = oldest_hour(open_store(self.options.log, self.options)) or hour_folder(int(now) // 3600)
        expired = {**noted.get(EXPIRED_BEFORE, {}), str(int(now * 1_000_000)): oldest}
        self._note(covered={**noted.get("covered", {}), **covered_gaps}, **{EXPIRED_BEFORE: expired})
        if self.options.base == "export":
            self.base_rows = self._load_export(mode, sorted(covered_gaps))
            return
        names = ("rcu_per_second", "read_ratio", "max_units", "max_seconds", "max_usd", "prices")
        named_options = {name: getattr(self.options, name) for name in (*_LAKE, *names)}
        values = {**self._connection(), **named_options, "table": self.options.table, "dest": self.options.target}
        report = scan_to_files(parse_options(ScanToFilesOptions, {**values, "mode": mode}))
        self.base_rows = report.rows

    def _load_export(self, mode: str, gaps: list[str]) -> int:
        """Load a full export that is newer than these gaps: the one that a killed run started, or a new one."""
        noted = self._note().get("export", {})
        if noted.get("gaps") != gaps or noted.get("loaded"):
            names = ("export_to", "max_seconds", "max_usd", "prices")
            named_options = {name.replace("export_to", "dest"): getattr(self.options, name) for name in names}
            start_options = parse_options(
                ExportStartOptions, {**export_connection_of(self.options), **named_options, "table": self.options.table}
            )
            noted = {"arn": EXPORT.start(start_options).arn, "gaps": gaps}
            self._note(export=noted)
        waiting = {name: getattr(self.options, name) for name in ("wait_seconds", "poll_seconds")}
        job = EXPORT.wait(parse_options(WaitOptions, {**self._connection(), **waiting, "arn": noted["arn"]}))
        values = {**self._connection(), "source": job.uri, "dest": self.options.target, "mode": mode}
        lake = {name: getattr(self.options, name) for name in _LAKE}
        report = read_export_to_files(parse_options(ExportToFilesOptions, {**values, **lake}))
        self._note(export={**noted, "loaded": True})
        return report.rows

    def _settle_gaps(self) -> None:
        """Heal gaps from exports. Invalidate a base that was read during a gap, or whose gaps cannot be healed.

        An item that was created and deleted within a gap is in no export and in no row of the log. A base that was read
        in between would keep it forever.
        """
        gaps, base, noted = self._open_gaps(), self._base(), self._note()
        # A base includes the changes of gaps that were known before it was read.
        covered = {name for name, before in noted.get("covered", {}).items() if base > before}
        new = [gap for gap in gaps if gap.heal_id not in covered]
        self.gaps += len(new)
        if base and new and (self.options.export_to is None or noted.get("whole") != base):
            self._note(doubtful=base)
        if gaps and self.options.export_to is not None:
            names = ("export_to", "wait_seconds", "poll_seconds", "prices", "max_usd")
            named_options = {name: getattr(self.options, name) for name in names}
            values = {**self._connection(), **named_options, "table": self.options.table, "dest": self.options.log}
            self.healed += heal_capture(parse_options(CaptureHealOptions, values)).rows

    def _open_gaps(self) -> list[Gap]:
        return find_gaps(captures_in(open_store(self.options.log, self.options))).gaps
