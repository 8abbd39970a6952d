"""Compaction of a folder: small files are rewritten as a few large ones, on any engine, and replaced in one commit."""

from __future__ import annotations

import itertools
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ddbio.budget import LocalBudget
from ddbio.catalog.sync import check_folder
from ddbio.cdc.log_jobs import number_log
from ddbio.cdc.log_reader import mixed_hours
from ddbio.commit.contents import require_own_files
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import live_files
from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.folders.rewrite import RewriteGroup, RewriteResult, RewriteTask, rewrite_task
from ddbio.formats.manifests import describe_files, look_up, partition_columns
from ddbio.formats.registry import FORMATS, format_of, is_dynamodb_json_file
from ddbio.formats.row_files import FooterReader, read_batches
from ddbio.items.digest import Digest
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.own_names import mark_own_columns
from ddbio.jobs.balance import balance
from ddbio.jobs.engine import engine_for
from ddbio.jobs.estimate import ARROW_RATIO, REWRITE_SPEED, Estimate, EstimatedPlan, input_parts, output_parts
from ddbio.jobs.file_estimates import file_estimate, file_figures
from ddbio.jobs.report import FilesReport, layout_of
from ddbio.jobs.stores import open_store
from ddbio.options.parsing import seconds_of
from ddbio.result import Result
from ddbio.runner.files_job import FilesJob
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.catalog.glue import CatalogReport
    from ddbio.commit.snapshot import LiveFile, Snapshot
    from ddbio.folders.options import CompactOptions
    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import Figures
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StagedFile

SMALL_RATIO = 0.75
"""Share of the target size below which a file counts as small, unless a caller sets another one."""

# A remainder below this share of the target is added to the previous file.
_REMAINDER_RATIO = 0.1
# Maximum number of new files of a group, which one task rewrites, so that tasks and retries stay short.
_GROUP_FILES = 8
_HOUR = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class CompactRule:
    """Rule that selects the files to rewrite.

    Attributes
    ----------
    target_bytes
        Size of the new files.
    small_bytes
        Smaller files are merged.
    partition
        Values of partition columns; only partitions with these values are rewritten.
    is_other
        Whether a file has another format or codec than the new ones, so that it is rewritten even if it is large.
    """

    target_bytes: int
    small_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    is_other: Callable[[LiveFile], bool] = lambda _: False


@dataclass(frozen=True)
class CompactGroup(Result):
    """Files of one folder, and so of one partition, that are rewritten together.

    Attributes
    ----------
    partition
        Values of the partition columns.
    files
        The files, in the order in which their rows are written.
    bytes
        Their size.
    expected_files
        Estimated number of new files.
    """

    partition: dict[str, str | None]
    files: tuple[LiveFile, ...]
    bytes: int
    expected_files: int


def plan_groups(files: Iterable[LiveFile], rule: CompactRule) -> tuple[CompactGroup, ...]:
    """Return the groups of files to rewrite, sorted by the number of files saved per byte, the highest first."""
    groups = [group for some in _by_folder(files, rule) for group in _groups(some, rule)]
    return tuple(sorted(groups, key=lambda group: (group.expected_files - len(group.files)) / max(1, group.bytes)))


def _by_folder(files: Iterable[LiveFile], rule: CompactRule) -> Iterator[list[LiveFile]]:
    def folder_of(file: LiveFile) -> str:
        return file.path.rpartition("/")[0]

    values = rule.partition.items()
    chosen = [file for file in files if values <= file.partition.items()]
    for _, some in itertools.groupby(sorted(chosen, key=lambda file: (folder_of(file), file.path)), folder_of):
        yield list(some)


def _groups(files: list[LiveFile], rule: CompactRule) -> Iterator[CompactGroup]:
    """Yield the groups of one folder."""
    chosen = [file for file in files if file.size_bytes < rule.small_bytes or rule.is_other(file)]
    while chosen:
        # The new files are full, except the last one of a group.
        count, size = 0, 0
        while count < len(chosen) and size < _GROUP_FILES * rule.target_bytes:
            size += chosen[count].size_bytes
            count += 1
        some, chosen = tuple(chosen[:count]), chosen[count:]
        expected = max(1, math.ceil(size / rule.target_bytes - _REMAINDER_RATIO))
        if expected < len(some) or any(map(rule.is_other, some)):
            yield CompactGroup(dict(some[0].partition), some, size, expected)


def hour_began(partition: Mapping[str, str | None]) -> datetime | None:
    """Return the start in UTC of the hour of the folders ``year=…/month=…/day=…/hour=…``; None for other folders."""
    try:
        return datetime(*(int(partition[name] or "") for name in _HOUR), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except (KeyError, ValueError):
        return None


def count_rows(store: ObjectStore, files: Iterable[LiveFile]) -> int:
    """Return the number of rows in some files.

    Raises
    ------
    DecodeError, NotFoundError
        If the number of rows of a file is not recorded, and the file cannot be read or does not exist.
    """
    files = list(files)
    unknown = {file.path for file in files if file.rows is None}
    rows = sum(file.rows for file in files if file.rows is not None)
    if not unknown:
        return rows
    entries = [entry for entry in store.list() if entry.path in unknown]
    for entry, footer in zip(entries, FooterReader(store).read_ahead(entries), strict=True):
        if footer is None:
            rows += sum(batch.num_rows for batch in read_batches(store, entry))
        else:
            rows += footer.rows
    return rows


# Assumed: the footer, the columns, and another read of the new file for its digest.
_READS_OF_A_FILE = 3


@dataclass(frozen=True)
class CompactPlan(EstimatedPlan):
    """Plan of a compaction.

    Attributes
    ----------
    path
        The folder, as passed.
    version
        Its version.
    files_before, bytes_before
        The live files.
    files_after
        Estimated number of live files afterwards.
    files_rewritten, bytes_rewritten
        Files that are read and rewritten, and their size.
    bytes_kept
        Bytes of unchanged files that are read for the digest of the complete folder.
    target_bytes
        Size of the new files.
    engine
        ``local`` or ``spark``.
    groups
        The files that are rewritten together.
    estimate
        Resources and cost of rewriting; as Arrow data, files are assumed to be three times their size.
    """

    path: str
    version: int
    files_before: int
    bytes_before: int
    files_after: int
    files_rewritten: int
    bytes_rewritten: int
    bytes_kept: int
    target_bytes: int
    engine: str
    groups: tuple[CompactGroup, ...]
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True, kw_only=True)
class CompactReport(FilesReport):
    """Result of a compaction; the layout is that of all live files afterwards.

    Attributes
    ----------
    path
        The folder, as passed.
    engine, tasks
        The engine, and its number of tasks.
    files_before, files_after, bytes_before, bytes_after
        Live files of the complete folder, before and after.
    rows
        Rows of the complete folder, which do not change.
    digest_before, digest_after
        Digest of the complete folder, equal. Null with ``verify=rows``; also if unchanged files have no recorded
        digest,
        and ``verify=rewritten`` forbids to read them, or ``max_seconds`` were over.
    rows_rewritten
        Rows of the files that were replaced.
    files_rewritten, files_written, bytes_rewritten, bytes_written
        The old files that were replaced, and the new ones.
    groups_left
        Groups of files that were not rewritten because ``max_seconds`` were over.
    files_left
        Files that were not rewritten because Arrow would write other types, each with the reason.
    catalog
        The registered table in the catalog, if requested.
    """

    path: str
    engine: str
    tasks: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    digest_before: str | None
    digest_after: str | None
    rows_rewritten: int
    files_rewritten: int
    files_written: int
    bytes_rewritten: int
    bytes_written: int
    groups_left: int
    catalog: CatalogReport | None = None
    files_left: dict[str, str] = field(default_factory=dict)


def plan_compact(options: CompactOptions) -> CompactPlan:
    """Return the plan of :func:`compact`, from the list of the live files alone.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    """
    store = open_store(options.path, options)
    require_own_files(store, "a compaction would break it", changes=True)
    return _plan(options, _live(store, options))


def compact(
    options: CompactOptions, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> CompactReport:
    """Rewrite the small files of a folder as a few large ones, which replace them in one commit.

    Parameters
    ----------
    master, conf
        Spark master and configuration, for a session that has to be started.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    TargetError
        If another job replaces files of the folder now, or did in the meantime; the folder then keeps the state of that
        job. Or if the files could not be the table that ``catalog`` names.
    """
    return _CompactJob(options, master=master, conf=conf).run()


class _CompactJob(FilesJob[RewriteResult, CompactReport]):
    log = logging.getLogger("ddbio.compact")
    report_class = CompactReport
    options: CompactOptions
    plan: CompactPlan

    def open(self) -> None:
        options = self.options
        self.title = f"compact {options.path}"
        self.store = open_store(options.path, options)
        require_own_files(self.store, "a compaction would break it", changes=True)
        check_folder(options.path, options.catalog, options, options.format)
        self.target = Target(store=self.store, mode="replace", operation="compact", keeps_replaced=options.keep_old)
        # The readers of a log must have its files numbered before these are replaced.
        number_log(self.store)
        self.budget = LocalBudget(None, job=f"compaction of {options.path}")

    def prepare(self) -> None:
        self.before = _live(self.store, self.options)
        self.plan = _plan(self.options, self.before)
        self.extent = f"{self.plan.files_rewritten} files"

    @property
    def has_work(self) -> bool:
        return bool(self.plan.groups or self.unchanged)

    def work(self, engine: Engine) -> list[RewriteResult]:
        return engine.run(rewrite_task, self.tasks(self.options.tasks or engine.parallelism), self.budget)

    def figures(self, report: CompactReport) -> Figures:
        reads = report.files_rewritten * _READS_OF_A_FILE
        outputs = output_parts(self.dest, report.files_written, report.bytes_written)
        parts = [*input_parts(self.dest, report.files_before, reads), *outputs]
        return file_figures(self.options, parts, report.bytes_rewritten, report.seconds)

    @property
    def unchanged(self) -> tuple[LiveFile, ...]:
        """Return the unchanged files that have to be read."""
        return _unchanged_without_digest(self.options, self.before, self.plan.groups)

    def tasks(self, count: int) -> list[RewriteTask]:
        """Return the tasks; each has its files as they are listed now."""
        options, entries = self.options, {entry.path: entry for entry in self.store.list()}
        groups, noted_files = {}, look_up(self.store, entries.values())
        firsts = [group.files[0].path for group in self.plan.groups]
        folders = partition_columns(self.store, firsts, {})
        for group in self.plan.groups:
            missing = [file.path for file in group.files if file.path not in entries]
            if missing:
                raise NotFoundError(
                    f"{self.store.uri}/{missing[0]} is a live file, but does not exist: a program other than ddbio "
                    "deleted it; restore it, or publish the folder again"
                )
            form, codec = _written_as(options, group.files[0].path)
            entries_of_group = tuple(noted_files.with_checksums(entries[file.path]) for file in group.files)
            noted = {name: None for file in group.files for name in file.statistics or ()}
            declared = tuple(noted_files.schemas.get(entry.path) for entry in entries_of_group)
            columns = folders[group.files[0].path]
            is_other = any(_is_other(options, file) for file in group.files)
            groups[id(group)] = RewriteGroup(
                group.partition, entries_of_group, declared, form, codec, tuple(noted), columns, is_other
            )
        ends_at = None if options.max_seconds is None else time.time() + options.max_seconds - self.clock.seconds()
        unchanged = self.unchanged
        assignments = balance([group.bytes for group in self.plan.groups], count)
        assignments += [[]] * (min(count, len(unchanged)) - len(assignments))
        return [
            RewriteTask(
                number=number,
                store=self.store,
                job_id=self.job_id,
                groups=tuple(groups[id(self.plan.groups[index])] for index in indices),
                target_bytes=int(options.target_bytes),
                sort_by=options.sort_by or (),
                verifies=options.verify != "rows",
                unchanged=tuple(file.path for file in unchanged[number :: len(assignments)]),
                ends_at=ends_at,
            )
            for number, indices in enumerate(assignments)
        ]

    def _unchanged_rows_and_digest(self, results: Sequence[RewriteResult]) -> tuple[int, Digest | None]:
        """Return the number of rows in unchanged files, and their digest if it is known."""
        read = Digest.merged(result.unchanged for result in results)
        passed = {file.path for file in self.unchanged} | {path for result in results for path in result.replaced}
        others = [file for file in self.before.files if file.path not in passed]
        rows = read.count + count_rows(self.store, others)
        if self.options.verify == "rows":
            return rows, None
        noted = [Digest.from_hex(file.rows, file.digest) for file in others if file.rows is not None and file.digest]
        return rows, Digest.merged([read, *noted]) if len(noted) == len(others) else None

    def counts(self, results: Sequence[RewriteResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        before = self.before
        replaced = {path for result in results for path in result.replaced}
        old = sum(file.size_bytes for file in before.files if file.path in replaced)
        new = sum(file.size_bytes for file in staged)
        digests = Digest.merged(result.before for result in results), Digest.merged(result.after for result in results)
        if digests[0].as_tuple() != digests[1].as_tuple() and self.options.verify != "rows":
            raise TargetError(
                f"the rewritten files of {self.store.uri} have {digests[1].count:,} rows with digest "
                f"{digests[1].hexdigest()}, the old ones {digests[0].count:,} with {digests[0].hexdigest()}: nothing "
                "was committed; please report this",
                self.store.uri,
            )
        rows_rewritten = sum(result.rows for result in results)
        rows_unchanged, digest_unchanged = self._unchanged_rows_and_digest(results)
        shown = [
            None if digest_unchanged is None else Digest.merged([digest_unchanged, digest]).hexdigest()
            for digest in digests
        ]
        size = sum(file.size_bytes for file in before.files)
        sizes = [file.size_bytes for file in before.files if file.path not in replaced]
        return {
            "files_after": len(before.files) - len(replaced) + len(staged),
            "bytes_after": size - old + new,
            "rows": rows_unchanged + rows_rewritten,
            "digest_before": shown[0],
            "digest_after": shown[1],
            "rows_rewritten": rows_rewritten,
            "files_rewritten": len(replaced),
            "files_written": len(staged),
            "bytes_rewritten": old,
            "bytes_written": new,
            "groups_left": sum(result.groups_left for result in results),
            "layout": layout_of([*sizes, *(file.size_bytes for file in staged)]),
            "files_left": {path: reason for result in results for path, reason in sorted(result.skipped.items())},
        }

    def require_one_schema(self, schemas: Sequence[pa.Schema]) -> None:
        """Refuse several schemas of files that do not store their own: a manifest has one schema for all files."""
        forms = {self.options.format or format_of(group.files[0].path).name for group in self.plan.groups}  # type: ignore[union-attr]
        untyped = sorted(form for form in forms if FORMATS[form].text_rows is not None)
        if untyped and any(not schema.equals(schemas[0], check_metadata=True) for schema in schemas):
            raise TargetError(
                f"the {untyped[0]} files of {self.store.uri} have different columns, and {untyped[0]} does not store "
                "types: compact them into another format, or by --partition",
                self.store.uri,
            )

    def described(self, report: CompactReport, results: Sequence[RewriteResult]) -> dict[str, Any] | None:
        if not report.files_rewritten:
            # No group was selected, or the time was over before the first group.
            return None
        schemas = [schema for result in results for schema in result.schemas]
        self.require_one_schema(schemas)
        self.replaced = sorted({path for result in results for path in result.replaced})
        rewritten = (file for group in self.plan.groups for file in group.files)
        described = describe_files(self.store, rewritten, are_rewritten=True)
        return {
            "source": {"path": self.options.path, "version": self.plan.version},
            "schema": _schema_text(described.with_folders(schemas[-1])) if schemas else "",
            "partition_by": described.partition_by,
        }


def _plan(options: CompactOptions, snapshot: Snapshot) -> CompactPlan:
    target = int(options.target_bytes)
    pairs = (text.partition("=") for text in options.partition or ())
    rule = CompactRule(
        target_bytes=target,
        small_bytes=int(options.small_than or target * SMALL_RATIO),
        partition={name: value for name, _, value in pairs},
        is_other=lambda file: _is_other(options, file),
    )
    mixed = mixed_hours(open_store(options.path, options))
    files = [file for file in _closed_files(options, snapshot.files) if file.path.rpartition("/")[0] not in mixed]
    groups = plan_groups([file for file in files if _is_compactable(file.path)], rule)
    rewritten, size = sum(len(group.files) for group in groups), sum(group.bytes for group in groups)
    written = sum(group.expected_files for group in groups)
    reads = rewritten * _READS_OF_A_FILE
    parts = [*input_parts(options.path, len(snapshot.files), reads), *output_parts(options.path, written, size)]
    return CompactPlan(
        path=options.path,
        version=snapshot.version,
        files_before=len(snapshot.files),
        bytes_before=sum(file.size_bytes for file in snapshot.files),
        files_after=len(snapshot.files) - rewritten + sum(group.expected_files for group in groups),
        files_rewritten=rewritten,
        bytes_rewritten=size,
        bytes_kept=sum(file.size_bytes for file in _unchanged_without_digest(options, snapshot, groups)),
        target_bytes=target,
        engine=engine_for(options.engine),
        groups=groups,
        estimate=file_estimate(options, parts, size, size * ARROW_RATIO, REWRITE_SPEED),
    )


def _closed_files(options: CompactOptions, files: Iterable[LiveFile]) -> Iterable[LiveFile]:
    """Return the files of hours that ended long enough ago, or all if that was not requested."""
    if options.closed_hours is None:
        return files
    before = datetime.now(UTC) - timedelta(seconds=seconds_of(options.closed_hours), hours=1)
    return [file for file in files if (began := hour_began(file.partition)) is not None and began <= before]


def _unchanged_without_digest(
    options: CompactOptions, snapshot: Snapshot, groups: Sequence[CompactGroup]
) -> tuple[LiveFile, ...]:
    """Return the unchanged files whose digest is required and not recorded."""
    if options.verify != "digest":
        return ()
    rewritten = {file.path for group in groups for file in group.files}
    files = (file for file in snapshot.files if file.path not in rewritten)
    return tuple(file for file in files if file.rows is None or file.digest is None)


def _live(store: ObjectStore, options: CompactOptions) -> Snapshot:
    snapshot = live_files(store)
    if not snapshot.files:
        raise NotFoundError(f"{options.path} has no live file: name the folder that a job wrote")
    return snapshot


def _is_compactable(path: str) -> bool:
    file_format = format_of(path)
    if file_format is None or file_format.open_writer is None or is_dynamodb_json_file(path):
        return False
    # Text that ddbio did not write has no types: they would have to be guessed.
    return file_format.keeps_types or file_format.is_splittable or bool(job_of(path))


def _is_other(options: CompactOptions, file: LiveFile) -> bool:
    """Return whether a file has another format or codec than requested."""
    form, codec = _written_as(options, file.path)
    file_format = format_of(file.path)
    is_converted = file_format is not None and file_format.name != form
    return is_converted or (
        options.compression is not None and not file.path.endswith(f".{FORMATS[form].extensions[codec]}")
    )


def _written_as(options: CompactOptions, path: str) -> tuple[str, Compression]:
    """Return the format and the codec of the new file."""
    file_format = format_of(path)
    form = options.format or ("parquet" if file_format is None else file_format.name)
    endings = sorted(FORMATS[form].extensions.items(), key=lambda item: -len(item[1]))
    # A name without a codec has no meaning: pyarrow and polars use such names for any codec.
    own = next((codec for codec, ending in endings if codec != "none" and path.endswith(f".{ending}")), None)
    return form, FORMATS[form].codec(options.compression or own)


def _schema_text(schema: pa.Schema) -> str:
    # Columns of other programs may have types that a schema file does not support.
    with suppress(SchemaError):
        return schema_to_json(normalize_schema(mark_own_columns(schema)))
    return ""
