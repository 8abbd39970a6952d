"""Publication of the live files of one folder as the next version of another, and rollback to an older version."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.budget.job_limits import check_estimate
from ddbio.catalog.sync import check_folder, registered
from ddbio.commit import committer
from ddbio.commit.committer import CommitInfo
from ddbio.commit.contents import recognize, require_own_files, require_target
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import PUBLISHED, LiveFile, format_links, live_files, read_history
from ddbio.errors import NotFoundError, TargetError
from ddbio.formats.manifests import describe_files, look_up
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import (
    ARROW_RATIO,
    DIGEST_SPEED,
    PROCESSORS,
    START_SECONDS,
    Estimate,
    EstimatedPlan,
    Figures,
    compute_parts,
    input_parts,
    is_s3,
    output_parts,
    s3_requests,
)
from ddbio.jobs.file_estimates import file_figures, run_limits
from ddbio.jobs.report import Clock, Report, layout_of
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.options import connection_of
from ddbio.runner.files_job import FilesJob, StagedFiles
from ddbio.sources.data_files import find_data
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.object_store import stage_copy
from ddbio.storage.staged import FileNaming
from ddbio.validation.digest import digest_paths
from ddbio.validation.options import ValidateOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddbio.catalog.glue import CatalogReport
    from ddbio.commit.snapshot import Snapshot
    from ddbio.folders.options import PublishOptions, RollbackOptions
    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import Part
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile

LINKS = "_symlink_format_manifest/manifest"
"""Symlink manifest of the newest version: https://docs.delta.io/latest/presto-integration.html has the layout."""

_THREADS = 16
# Assumed duration of a copy by S3, which is added again for each of these bytes; a link takes no time.
_COPY_SECONDS, _COPY_BYTES = 0.1, 100 * 1024 * 1024


@dataclass(frozen=True)
class PublishPlan(EstimatedPlan):
    """Plan of a publication.

    Attributes
    ----------
    source, dest
        The folders, as passed.
    version
        The version of the source whose files are published.
    files, rows
        Its live files and their rows; rows are null if they can only be counted by reading.
    reads_files
        Whether the files are read: for the expected digest or number of rows, or for rules.
    estimate
        Resources and cost of copying and reading.
    """

    source: str
    dest: str
    version: int
    files: int
    rows: int | None
    reads_files: bool
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class PublishReport(Report):
    """Result of a publication.

    Attributes
    ----------
    source, dest
        The folders, as passed; the source of a rollback is null.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` below ``dest``.
    version, version_before
        The newest version of ``dest`` after and before.
    changed
        Whether this run moved the pointer; false if the same files of the source were published last.
    files, bytes, rows
        Contents of the version; rows are null if they can only be counted by reading.
    manifest
        The symlink manifest, for Athena, Hive and Trino.
    seconds
        Wall time.
    layout
        Sizes of the live files now, and the number of small ones.
    catalog
        The registered table in the catalog, if requested.
    planned, actual
        Bytes that are copied, seconds and USD, as planned and as measured; a rollback copies nothing.
    """

    source: str | None
    dest: str
    job_id: str
    version: int
    version_before: int
    changed: bool
    files: int
    bytes: int
    rows: int | None
    manifest: str
    seconds: float
    layout: LayoutSummary | None = None
    catalog: CatalogReport | None = None
    planned: Figures | None = None
    actual: Figures | None = None


def publish(options: PublishOptions, check: Callable[[list[str]], None] | None = None) -> PublishReport:
    """Make the live files of a folder the next version of another; its readers see the old version or the new one.

    Parameters
    ----------
    check
        Called with the URIs or local paths of the files; nothing is published if it raises.

    Raises
    ------
    NotFoundError
        If the source has no live file, or one of them does not exist.
    TargetError
        If the files do not have the expected contents, or break a rule, or another job replaces files of the target
        now.
        Or if they could not be the table that ``catalog`` names.
    """
    return _PublishJob(options, check).run()


class _PublishJob(FilesJob[StagedFiles, PublishReport]):
    log = logging.getLogger("ddbio.publish")
    report_class = PublishReport
    options: PublishOptions
    plan: PublishPlan

    def __init__(self, options: PublishOptions, check: Callable[[list[str]], None] | None) -> None:
        super().__init__(options)
        self._check = check

    def open(self) -> None:
        options = self.options
        self.title = f"publish {options.source} as {options.dest}"
        _require_publishable(options)
        self.store = open_store(options.dest, options)
        require_target(self.store)
        check_folder(options.source, options.catalog, options, None, options.dest)
        self.source = open_store(options.source, options)
        self.snapshot = live_files(self.source)
        self.plan = _plan(options, self.snapshot)
        self.extent = f"{self.plan.files} files"
        self.target = Target(store=self.store, mode="replace", operation="publish", keeps_replaced=True)
        self.facts = {"folder": self.source.uri, "version": self.snapshot.version, "files": sorted(self.snapshot.paths)}

    def prepare(self) -> None:
        self.before = self.after = live_files(self.store)
        self.replaced = sorted(self.before.paths)

    @property
    def has_work(self) -> bool:
        return not _was_published(self.store, self.before, self.facts)

    def work(self, engine: Engine) -> list[StagedFiles]:
        del engine
        _require_expected(self.options, self.source, self.snapshot, self._check)
        limits = run_limits(self.options, self.plan.estimate)
        staged = _stage(
            self.source, self.store, self.job_id, self.snapshot, lambda: limits.require_time(self.clock.seconds())
        )
        added = [LiveFile.from_dict(file.manifest_entry()) for file in staged]
        self.after = self.before.changed((self.job_id, "publish", ""), added, self.before.paths)
        return [StagedFiles(staged)]

    def counts(self, results: Sequence[StagedFiles], staged: Sequence[StagedFile]) -> dict[str, Any]:
        del results, staged
        return _facts_of(self.options.source, self.options.dest, self.after, self.before)

    def figures(self, report: PublishReport) -> Figures:
        if not report.changed:
            return Figures(0.0, report.seconds, 0, 0.0)
        size = self.plan.estimate.bytes or 0
        parts = _file_parts(self.options, self.plan.files, size, reads_files=self.plan.reads_files)
        return file_figures(self.options, parts, size, report.seconds)

    def described(self, report: PublishReport, results: Sequence[StagedFiles]) -> dict[str, Any]:
        del report, results
        described = describe_files(self.source, self.snapshot.files)
        schema = "" if described.schema is None else schema_to_json(described.schema)
        return {"source": self.facts, "schema": schema, "partition_by": described.partition_by}

    def committed(self, report: PublishReport) -> PublishReport:
        # Also if the run that published them was killed before it could write them.
        after = live_files(self.store)
        write_links(self.store, after)
        return replace(report, **_facts_of(self.options.source, self.options.dest, after, self.before))

    def committed_before(self, report: PublishReport) -> PublishReport:
        write_links(self.store, live_files(self.store))
        return replace(report, changed=False)


def plan_publish(options: PublishOptions) -> PublishPlan:
    """Return the copies, resources and cost of :func:`publish`, from the list of the live files alone.

    Raises
    ------
    NotFoundError
        If the source has no live file.
    LimitError
        If the plan is above a limit.
    """
    _require_publishable(options)
    return _plan(options, live_files(open_store(options.source, options)))


def _require_publishable(options: PublishOptions) -> None:
    """Refuse a source whose live files are not all of its rows.

    Raises
    ------
    OptionError
        With the kind of the source.
    TargetError
        If the source has files of rows whose names have no known format.
    """
    advice = "readers read the table itself; 'ddbio export read' and 'ddbio scan' make files that can be published"
    source = open_store(options.source, options)
    require_own_files(source, "copies of its files would hold other rows", advice)
    # Exactly the committed files are published; without a commit, the names of files determine the published ones.
    if recognize(source).kind != "files":
        return
    with suppress(NotFoundError):
        data = find_data(options.source, options)
        if unnamed := [file.path for file in data.files if file.format is not None]:
            raise TargetError(
                f"{options.source} holds {len(unnamed):,} files without a known suffix, such as {unnamed[0]}: "
                "readers of the published folder would not read them; name them as .parquet, .orc or .avro",
                options.source,
            )


def _plan(options: PublishOptions, snapshot: Snapshot) -> PublishPlan:
    """Return the plan of a publication: it copies all files, and reads those that must be read."""
    if not snapshot.files:
        raise NotFoundError(f"{options.source} has no live file: name the folder that a job wrote")
    count, size, rows = len(snapshot.files), sum(file.size_bytes for file in snapshot.files), _rows(snapshot)
    reads_files = options.expect_digest is not None or (options.expect_rows is not None and rows is None)
    reads_files = reads_files or options.rules is not None
    seconds = START_SECONDS
    if is_s3(options.source) or is_s3(options.dest):
        seconds += _COPY_SECONDS * max(1.0, (count + size / _COPY_BYTES) / _THREADS)
    if reads_files:
        seconds += ARROW_RATIO * size / DIGEST_SPEED
    files = _file_parts(options, count, size, reads_files=reads_files)
    parts = [*files, *compute_parts(options.compute, seconds)]
    cost = prices_of(options.region, options.prices).cost(parts)
    estimate = Estimate(0.0, s3_requests(parts), size, seconds, PROCESSORS if reads_files else "copies", cost)
    check_estimate(options, estimate)
    return PublishPlan(options.source, options.dest, snapshot.version, count, rows, reads_files, estimate)


def _file_parts(options: PublishOptions, count: int, size: int, *, reads_files: bool) -> list[Part]:
    reads = count * (2 if reads_files else 1)
    return [*output_parts(options.dest, count, size), *input_parts(options.source, count, reads)]


def rollback(options: RollbackOptions) -> PublishReport:
    """Make an older version of a folder its newest version again.

    Raises
    ------
    NotFoundError
        If there is no such version, or its files do not exist.
    TargetError
        If another job replaces files of the folder now.
    """
    clock, store, job_id = Clock(), open_store(options.path, options), new_job_id()
    require_own_files(store, "a rollback would break it", changes=True)
    target = Target(store=store, mode="replace", operation="rollback", keeps_replaced=True)
    with committer.publishing(target, job_id) as move:
        history = read_history(store)
        version = options.to_version or (history[-2].version if len(history) > 1 else 0)
        snapshot = next((candidate for candidate in history if candidate.version == version), None)
        if snapshot is None:
            have = ", ".join(str(past.version) for past in history) or "none"
            raise NotFoundError(f"{options.path} has no version {version or 'before its newest'}; it has {have}")
        before, existing = history[-1], {entry.path for entry in store.list()}
        if gone := sorted(snapshot.paths - existing):
            raise NotFoundError(
                f"{len(gone):,} files of version {version} of {options.path} are gone (first: {gone[0]}): a "
                "compaction, an overwrite or a vacuum deleted them"
            )
        restored = tuple(file for file in snapshot.files if file.path not in before.paths)
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        info = CommitInfo(created_at=created_at, source={"version": version}, schema="", restored=restored)
        move((), info, sorted(before.paths - snapshot.paths))
    after = live_files(store)
    write_links(store, after)
    report = PublishReport(**_facts_of(None, options.path, after, before), seconds=round(clock.seconds(), 3))
    return registered(report, options.path, options.catalog, options)


def write_links(store: ObjectStore, snapshot: Snapshot) -> None:
    """Write the symlink manifest of a version atomically."""
    store.put(LINKS, format_links(f"{store.uri}/{file.path}" for file in snapshot.files).encode())


def _stage(
    source: ObjectStore, store: ObjectStore, job_id: str, snapshot: Snapshot, check: Callable[[], None]
) -> list[StagedFile]:
    """Stage copies of the files in the folders of their partitions; ``check`` is called before each, and may raise."""
    entries = {entry.path: entry for entry in source.list()}
    if missing := sorted(snapshot.paths - entries.keys()):
        raise NotFoundError(f"{source.uri}/{missing[0]} is a live file, but does not exist: rerun the job that made it")
    naming, noted = FileNaming(job_id, 0), look_up(source, (entries[path] for path in snapshot.paths))

    def copy(number: int, file: LiveFile) -> StagedFile:
        check()
        entry, (_, _, extension) = noted.with_checksums(entries[file.path]), file.path.rpartition("/")[2].partition(".")
        path = naming.path(number, extension, f"{PUBLISHED}{job_id}/{_folder(file)}")
        staged = stage_copy(store, source, entry, path, file.rows or 0)
        statistics = _plain(file.statistics)
        partition = dict(file.partition)
        return replace(staged, partition=partition, statistics=statistics, digest=file.digest, crc32=entry.crc32)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-copy") as pool:
        return list(pool.map(copy, range(len(snapshot.files)), snapshot.files))


def _folder(file: LiveFile) -> str:
    """Return the folders of a file's partition, unchanged."""
    return "".join(f"{folder}/" for folder in file.path.split("/")[:-1] if "=" in folder)


def _plain(statistics: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if statistics is None else dict(statistics)


def _require_expected(
    options: PublishOptions, source: ObjectStore, snapshot: Snapshot, check: Callable[[list[str]], None] | None
) -> None:
    """Refuse files without the expected contents; other files in their folder do not count."""
    paths = [file.path for file in snapshot.files if file.size_bytes]
    rows: int | None = None
    if options.expect_digest is not None:
        digest = digest_paths(source, paths)
        rows = digest.count
        if digest.hexdigest() != options.expect_digest:
            raise TargetError(
                f"the live files of {options.source} have digest {digest.hexdigest()}, and {options.expect_digest} was "
                "expected: nothing was published",
                options.source,
            )
    if options.expect_rows is not None:
        rows = rows if rows is not None else _rows(snapshot)
        rows = digest_paths(source, paths).count if rows is None else rows
        if rows != options.expect_rows:
            raise TargetError(
                f"{options.source} holds {rows:,} rows, not {options.expect_rows:,} as expected: nothing was published",
                options.source,
            )
    if options.rules is not None:
        _require_rules(options, options.rules, source, snapshot)
    if check is not None:
        folder = options.source.rstrip("/")
        check([f"{folder}/{file.path}" for file in snapshot.files])


def _require_rules(options: PublishOptions, rules: str, source: ObjectStore, snapshot: Snapshot) -> None:
    """Refuse files whose rows break a quality rule."""
    from ddbio.validation.validate import validate  # noqa: PLC0415 - large, and most publications have no rules

    checked = validate(ValidateOptions(**connection_of(options), source=options.source, rules=rules))
    if live_files(source).paths != snapshot.paths:
        raise TargetError(
            f"another job changed {options.source} while its rows were checked: nothing was published; run it again",
            options.source,
        )
    broken = [rule for rule in checked.rules if not rule.passed]
    if broken:
        shown = "; ".join(
            f"{rule.rule}{'' if rule.column is None else f' of {rule.column}'}: {rule.failures:,} rows"
            + (f", such as {rule.examples[0]}" if rule.examples else "")
            for rule in broken
        )
        raise TargetError(
            f"{options.source} breaks {len(broken)} of {len(checked.rules)} rules ({shown}): nothing was published",
            options.source,
        )


def _was_published(store: ObjectStore, newest: Snapshot, facts: dict[str, Any]) -> bool:
    """Return whether the newest version is a copy of the same files."""
    if newest.operation != "publish":
        return False
    path = manifest_path(newest.job_id)
    # The manifest is written directly after the snapshot; without it the job is still being repaired.
    with suppress(NotFoundError):
        return bool(read_state(store, path).get("source") == facts)
    return False


def _rows(snapshot: Snapshot) -> int | None:
    rows = [file.rows for file in snapshot.files]
    return None if None in rows else sum(count for count in rows if count is not None)


def _facts_of(source: str | None, dest: str, after: Snapshot, before: Snapshot) -> dict[str, Any]:
    """Return the members of a report about the versions of the target."""
    return {
        "source": source,
        "dest": dest,
        "job_id": after.job_id,
        "version": after.version,
        "version_before": before.version,
        "changed": after.version != before.version,
        "files": len(after.files),
        "bytes": sum(file.size_bytes for file in after.files),
        "rows": _rows(after),
        "manifest": f"{dest.rstrip('/')}/{LINKS}",
        "layout": layout_of(file.size_bytes for file in after.files),
    }
