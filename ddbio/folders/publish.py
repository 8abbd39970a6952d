"""Publish the live files of one folder as the next version of another, and take a version back."""

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
# Assumed: a copy that S3 makes itself takes this, and as much again for each so many bytes; a link takes nothing.
_COPY_SECONDS, _COPY_BYTES = 0.1, 100 * 1024 * 1024


@dataclass(frozen=True)
class PublishPlan(EstimatedPlan):
    """Describe what a publication would do.

    Attributes
    ----------
    source, dest
        The folders as given.
    version
        The version of the source whose files are published.
    files, rows
        Its live files and their rows; rows are null where only reading would tell.
    reads_files
        Whether the files are read: for the digest or the number of rows that is expected, or for rules.
    estimate
        What copying, and reading, takes and costs.
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
    """What was published.

    Attributes
    ----------
    source, dest
        The folders as given; the source of a rollback is null.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` below ``dest``.
    version, version_before
        The newest version of ``dest`` after and before.
    changed
        Whether this run moved the pointer; false if the same files of the source were published last.
    files, bytes, rows
        What the version holds; rows are null where only reading would tell.
    manifest
        The symlink manifest, for Athena, Hive and Trino.
    seconds
        Wall time.
    layout
        How the live files lie now: their sizes, and how many are small.
    catalog
        What was registered in the catalog, if that was asked for.
    planned, actual
        Bytes that are copied, seconds and USD, as planned and as it was; a rollback copies nothing.
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
    """Make the live files of a folder the next version of another; its readers see the old version or the new.

    Parameters
    ----------
    check
        Called with the URIs or local paths of the files; nothing is published if it raises.

    Raises
    ------
    NotFoundError
        If the source has no live file, or one of them is gone.
    TargetError
        If the files do not hold what is expected, or break a rule, or another job replaces files of the target now. Or
        if they could not be the table that ``catalog`` names.
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
        self.found = live_files(self.source)
        self.plan = _plan(options, self.found)
        self.extent = f"{self.plan.files} files"
        self.target = Target(store=self.store, mode="replace", operation="publish", keeps_replaced=True)
        self.facts = {"folder": self.source.uri, "version": self.found.version, "files": sorted(self.found.paths)}

    def prepare(self) -> None:
        self.before = self.after = live_files(self.store)
        self.replaced = sorted(self.before.paths)

    @property
    def has_work(self) -> bool:
        return not _was_published(self.store, self.before, self.facts)

    def work(self, engine: Engine) -> list[StagedFiles]:
        del engine
        _require_expected(self.options, self.source, self.found, self._check)
        limits = run_limits(self.options, self.plan.estimate)
        staged = _stage(
            self.source, self.store, self.job_id, self.found, lambda: limits.require_time(self.clock.seconds())
        )
        added = [LiveFile.from_dict(each.manifest_entry()) for each in staged]
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
        described = describe_files(self.source, self.found.files)
        schema = "" if described.schema is None else schema_to_json(described.schema)
        return {"source": self.facts, "schema": schema, "partition_by": described.partition_by}

    def committed(self, report: PublishReport) -> PublishReport:
        # Also where the run that published them was killed before it could.
        after = live_files(self.store)
        write_links(self.store, after)
        return replace(report, **_facts_of(self.options.source, self.options.dest, after, self.before))

    def committed_before(self, report: PublishReport) -> PublishReport:
        write_links(self.store, live_files(self.store))
        return replace(report, changed=False)


def plan_publish(options: PublishOptions) -> PublishPlan:
    """Return what :func:`publish` would copy, take and cost, from the list of the live files alone.

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
        Naming what it is.
    TargetError
        If the source holds files of rows whose names tell no format.
    """
    advice = "readers read the table itself; 'ddbio export read' and 'ddbio scan' make files that can be published"
    source = open_store(options.source, options)
    require_own_files(source, "copies of its files would hold other rows", advice)
    # What jobs have committed is published, and nothing else; without a commit it is what the names of files tell.
    if recognize(source).kind != "files":
        return
    with suppress(NotFoundError):
        found = find_data(options.source, options)
        if unnamed := [each.path for each in found.files if each.format is not None]:
            raise TargetError(
                f"{options.source} holds {len(unnamed):,} files whose names tell no format, such as {unnamed[0]}: "
                "readers of the published folder would not read them; name them as .parquet, .orc or .avro",
                options.source,
            )


def _plan(options: PublishOptions, found: Snapshot) -> PublishPlan:
    """Return the plan of a publication: it reads the files that must be, and copies all of them."""
    if not found.files:
        raise NotFoundError(f"{options.source} holds no live file: name the folder that a job wrote")
    count, size, rows = len(found.files), sum(each.size_bytes for each in found.files), _rows(found)
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
    return PublishPlan(options.source, options.dest, found.version, count, rows, reads_files, estimate)


def _file_parts(options: PublishOptions, count: int, size: int, *, reads_files: bool) -> list[Part]:
    reads = count * (2 if reads_files else 1)
    return [*output_parts(options.dest, count, size), *input_parts(options.source, count, reads)]


def rollback(options: RollbackOptions) -> PublishReport:
    """Make an older version of a folder its newest again.

    Raises
    ------
    NotFoundError
        If there is no such version, or its files are gone.
    TargetError
        If another job replaces files of the folder now.
    """
    clock, store, job_id = Clock(), open_store(options.path, options), new_job_id()
    require_own_files(store, "a rollback would break it", changes=True)
    target = Target(store=store, mode="replace", operation="rollback", keeps_replaced=True)
    with committer.publishing(target, job_id) as move:
        history = read_history(store)
        wanted = options.to_version or (history[-2].version if len(history) > 1 else 0)
        found = next((each for each in history if each.version == wanted), None)
        if found is None:
            have = ", ".join(str(each.version) for each in history) or "none"
            raise NotFoundError(f"{options.path} has no version {wanted or 'before its newest'}; it has {have}")
        before, there = history[-1], {each.path for each in store.list()}
        if gone := sorted(found.paths - there):
            raise NotFoundError(
                f"{len(gone):,} files of version {wanted} of {options.path} are gone (first: {gone[0]}): a compaction, "
                "an overwrite or a vacuum deleted them"
            )
        restored = tuple(each for each in found.files if each.path not in before.paths)
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        info = CommitInfo(created_at=created_at, source={"version": wanted}, schema="", restored=restored)
        move((), info, sorted(before.paths - found.paths))
    after = live_files(store)
    write_links(store, after)
    report = PublishReport(**_facts_of(None, options.path, after, before), seconds=round(clock.seconds(), 3))
    return registered(report, options.path, options.catalog, options)


def write_links(store: ObjectStore, snapshot: Snapshot) -> None:
    """Write the symlink manifest of a version, in one step."""
    store.put(LINKS, format_links(f"{store.uri}/{each.path}" for each in snapshot.files).encode())


def _stage(
    source: ObjectStore, store: ObjectStore, job_id: str, found: Snapshot, check: Callable[[], None]
) -> list[StagedFile]:
    """Stage copies of the files, in the folders of their partitions; before each, a check may raise."""
    entries = {each.path: each for each in source.list()}
    if missing := sorted(found.paths - entries.keys()):
        raise NotFoundError(f"{source.uri}/{missing[0]} is a live file, and is gone: run the job that wrote it again")
    naming, noted = FileNaming(job_id, 0), look_up(source, (entries[path] for path in found.paths))

    def copy(number: int, file: LiveFile) -> StagedFile:
        check()
        entry, (_, _, extension) = noted.with_checksums(entries[file.path]), file.path.rpartition("/")[2].partition(".")
        path = naming.path(number, extension, f"{PUBLISHED}{job_id}/{_folder(file)}")
        staged = stage_copy(store, source, entry, path, file.rows or 0)
        statistics = _plain(file.statistics)
        partition = dict(file.partition)
        return replace(staged, partition=partition, statistics=statistics, digest=file.digest, crc32=entry.crc32)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-copy") as pool:
        return list(pool.map(copy, range(len(found.files)), found.files))


def _folder(file: LiveFile) -> str:
    """Return the folders of a file's partition as they are."""
    return "".join(f"{each}/" for each in file.path.split("/")[:-1] if "=" in each)


def _plain(statistics: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if statistics is None else dict(statistics)


def _require_expected(
    options: PublishOptions, source: ObjectStore, found: Snapshot, check: Callable[[list[str]], None] | None
) -> None:
    """Refuse files that do not hold what was expected; what else lies in their folder does not count."""
    paths = [each.path for each in found.files if each.size_bytes]
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
        rows = rows if rows is not None else _rows(found)
        rows = digest_paths(source, paths).count if rows is None else rows
        if rows != options.expect_rows:
            raise TargetError(
                f"{options.source} holds {rows:,} rows, not {options.expect_rows:,} as expected: nothing was published",
                options.source,
            )
    if options.rules is not None:
        _require_rules(options, options.rules, source, found)
    if check is not None:
        folder = options.source.rstrip("/")
        check([f"{folder}/{each.path}" for each in found.files])


def _require_rules(options: PublishOptions, rules: str, source: ObjectStore, found: Snapshot) -> None:
    """Refuse files whose rows break a quality rule."""
    from ddbio.validation.validate import validate  # noqa: PLC0415 - much, and most publications have no rules

    checked = validate(ValidateOptions(**connection_of(options), source=options.source, rules=rules))
    if live_files(source).paths != found.paths:
        raise TargetError(
            f"another job changed {options.source} while its rows were checked: nothing was published; run it again",
            options.source,
        )
    broken = [each for each in checked.rules if not each.passed]
    if broken:
        shown = "; ".join(
            f"{each.rule}{'' if each.column is None else f' of {each.column}'}: {each.failures:,} rows"
            + (f", such as {each.examples[0]}" if each.examples else "")
            for each in broken
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
    # The manifest follows the snapshot at once; without it the job is still being mended.
    with suppress(NotFoundError):
        return bool(read_state(store, path).get("source") == facts)
    return False


def _rows(found: Snapshot) -> int | None:
    rows = [each.rows for each in found.files]
    return None if None in rows else sum(each for each in rows if each is not None)


def _facts_of(source: str | None, dest: str, after: Snapshot, before: Snapshot) -> dict[str, Any]:
    """Return what a report says of the versions of the target."""
    return {
        "source": source,
        "dest": dest,
        "job_id": after.job_id,
        "version": after.version,
        "version_before": before.version,
        "changed": after.version != before.version,
        "files": len(after.files),
        "bytes": sum(each.size_bytes for each in after.files),
        "rows": _rows(after),
        "manifest": f"{dest.rstrip('/')}/{LINKS}",
        "layout": layout_of(each.size_bytes for each in after.files),
    }
