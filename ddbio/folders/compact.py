"""Rewrite the small files of a folder as few large ones, on any engine, and publish them in place of the old ones."""

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
from ddbio.items.schema.own_names import told_apart
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
"""A file below this share of the target counts as small, unless a caller says otherwise."""

# A rest below this share of the target joins the file before it.
_REST_RATIO = 0.1
# A group is rewritten by one task in a row: at most so many new files, so that tasks and retries stay short.
_GROUP_FILES = 8
_HOUR = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class CompactRule:
    """Say which files are worth rewriting.

    Attributes
    ----------
    target_bytes
        Size of the new files.
    small_bytes
        Files below it are merged.
    partition
        Values of partition columns; only partitions that have them are touched.
    is_other
        Whether a file has another format or codec than the new ones, so that it is rewritten alone, too.
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
        About how many files they become.
    """

    partition: dict[str, str | None]
    files: tuple[LiveFile, ...]
    bytes: int
    expected_files: int


def plan_groups(files: Iterable[LiveFile], rule: CompactRule) -> tuple[CompactGroup, ...]:
    """Return the groups of files that are worth rewriting, those first that save most files for their bytes."""
    groups = [group for some in _by_folder(files, rule) for group in _groups(some, rule)]
    return tuple(sorted(groups, key=lambda each: (each.expected_files - len(each.files)) / max(1, each.bytes)))


def _by_folder(files: Iterable[LiveFile], rule: CompactRule) -> Iterator[list[LiveFile]]:
    def folder_of(file: LiveFile) -> str:
        return file.path.rpartition("/")[0]

    wanted = rule.partition.items()
    chosen = [each for each in files if wanted <= each.partition.items()]
    for _, some in itertools.groupby(sorted(chosen, key=lambda each: (folder_of(each), each.path)), folder_of):
        yield list(some)


def _groups(files: list[LiveFile], rule: CompactRule) -> Iterator[CompactGroup]:
    """Yield the groups of one folder."""
    chosen = [each for each in files if each.size_bytes < rule.small_bytes or rule.is_other(each)]
    while chosen:
        # Full files, but for the last of a group.
        taken, size = 0, 0
        while taken < len(chosen) and size < _GROUP_FILES * rule.target_bytes:
            size += chosen[taken].size_bytes
            taken += 1
        some, chosen = tuple(chosen[:taken]), chosen[taken:]
        expected = max(1, math.ceil(size / rule.target_bytes - _REST_RATIO))
        if expected < len(some) or any(map(rule.is_other, some)):
            yield CompactGroup(dict(some[0].partition), some, size, expected)


def hour_began(partition: Mapping[str, str | None]) -> datetime | None:
    """Return when the hour began, in UTC, that the folders ``year=…/month=…/day=…/hour=…`` name; None of others."""
    try:
        return datetime(*(int(partition[name] or "") for name in _HOUR), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except (KeyError, ValueError):
        return None


def count_rows(store: ObjectStore, files: Iterable[LiveFile]) -> int:
    """Return how many rows some files hold.

    Raises
    ------
    DecodeError, NotFoundError
        If a file whose rows are not noted cannot be read, or is gone.
    """
    files = list(files)
    unknown = {each.path for each in files if each.rows is None}
    known = sum(each.rows for each in files if each.rows is not None)
    if not unknown:
        return known
    entries = [each for each in store.list() if each.path in unknown]
    for entry, footer in zip(entries, FooterReader(store).read_ahead(entries), strict=True):
        if footer is None:
            known += sum(batch.num_rows for batch in read_batches(store, entry))
        else:
            known += footer.rows
    return known


# Assumed: the footer, the columns, and the new file read again for its digest.
_READS_OF_A_FILE = 3


@dataclass(frozen=True)
class CompactPlan(EstimatedPlan):
    """What a compaction would do.

    Attributes
    ----------
    path
        The folder as given.
    version
        Its version.
    files_before, bytes_before
        The live files.
    files_after
        About how many there will be.
    files_rewritten, bytes_rewritten
        How many are read, and written again.
    bytes_kept
        Bytes of files that stay, and are read for the digest of the whole folder.
    target_bytes
        Size of the new files.
    engine
        ``local`` or ``spark``.
    groups
        The files that are rewritten together.
    estimate
        What rewriting takes and costs; as Arrow data, files are assumed to be three times their size.
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
    """What a compaction did; the layout is that of all live files afterwards.

    Attributes
    ----------
    path
        The folder as given.
    engine, tasks
        What ran it.
    files_before, files_after, bytes_before, bytes_after
        Live files of the whole folder, before and after.
    rows
        Rows of the whole folder, as many before as after.
    digest_before, digest_after
        Digest of the whole folder, equal. Null with ``verify=rows``; also if files stay whose digest is not noted, and
        ``verify=rewritten`` forbids to read them, or ``max_seconds`` were over.
    rows_rewritten
        Rows of the files that were replaced.
    files_rewritten, files_written, bytes_rewritten, bytes_written
        The old files that were replaced, and the new ones.
    groups_left
        Groups of files that were left as they are because ``max_seconds`` were over.
    files_left
        Files that were left as they are because Arrow would write other types, each with the reason.
    catalog
        What was registered in the catalog, if that was asked for.
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
    """Return what :func:`compact` would rewrite, from the list of the live files alone.

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
    """Rewrite the small files of a folder as few large ones, which replace them in one commit.

    Parameters
    ----------
    master, conf
        Spark master and configuration, for a session that has to be started.

    Raises
    ------
    NotFoundError
        If the folder has no live file.
    TargetError
        If another job replaces files of the folder now, or did meanwhile; the folder is then as it was left by that
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
        # Of a log each file is known to its readers before it is replaced.
        number_log(self.store)
        self.budget = LocalBudget(None, job=f"compaction of {options.path}")

    def prepare(self) -> None:
        self.before = _live(self.store, self.options)
        self.plan = _plan(self.options, self.before)
        self.extent = f"{self.plan.files_rewritten} files"

    @property
    def has_work(self) -> bool:
        return bool(self.plan.groups or self.kept)

    def work(self, engine: Engine) -> list[RewriteResult]:
        return engine.run(rewrite_task, self.tasks(self.options.tasks or engine.parallelism), self.budget)

    def figures(self, report: CompactReport) -> Figures:
        reads = report.files_rewritten * _READS_OF_A_FILE
        outputs = output_parts(self.place, report.files_written, report.bytes_written)
        parts = [*input_parts(self.place, report.files_before, reads), *outputs]
        return file_figures(self.options, parts, report.bytes_rewritten, report.seconds)

    @property
    def kept(self) -> tuple[LiveFile, ...]:
        """Return the files that stay and have to be read."""
        return _kept_unknown(self.options, self.before, self.plan.groups)

    def tasks(self, count: int) -> list[RewriteTask]:
        """Return the tasks; each knows its files as they are listed now."""
        options, entries = self.options, {each.path: each for each in self.store.list()}
        groups, noted_files = {}, look_up(self.store, entries.values())
        firsts = [group.files[0].path for group in self.plan.groups]
        folders = partition_columns(self.store, firsts, {})
        for group in self.plan.groups:
            missing = [each.path for each in group.files if each.path not in entries]
            if missing:
                raise NotFoundError(
                    f"{self.store.uri}/{missing[0]} is a live file, and is not there: something else than ddbio "
                    "deleted it; restore it, or publish the folder anew"
                )
            form, codec = _written_as(options, group.files[0].path)
            found = tuple(noted_files.with_checksums(entries[each.path]) for each in group.files)
            noted = {name: None for each in group.files for name in each.statistics or ()}
            declared = tuple(noted_files.schemas.get(each.path) for each in found)
            columns = folders[group.files[0].path]
            is_other = any(_is_other(options, each) for each in group.files)
            groups[id(group)] = RewriteGroup(
                group.partition, found, declared, form, codec, tuple(noted), columns, is_other
            )
        ends_at = None if options.max_seconds is None else time.time() + options.max_seconds - self.clock.seconds()
        kept = self.kept
        assignments = balance([group.bytes for group in self.plan.groups], count)
        assignments += [[]] * (min(count, len(kept)) - len(assignments))
        return [
            RewriteTask(
                number=number,
                store=self.store,
                job_id=self.job_id,
                groups=tuple(groups[id(self.plan.groups[index])] for index in indices),
                target_bytes=int(options.target_bytes),
                sort_by=options.sort_by or (),
                verifies=options.verify != "rows",
                kept=tuple(each.path for each in kept[number :: len(assignments)]),
                ends_at=ends_at,
            )
            for number, indices in enumerate(assignments)
        ]

    def _stays(self, results: Sequence[RewriteResult]) -> tuple[int, Digest | None]:
        """Return the number of rows that stay where they are, and their digest if it is known."""
        read = Digest.merged(each.kept for each in results)
        passed = {each.path for each in self.kept} | {path for each in results for path in each.replaced}
        others = [each for each in self.before.files if each.path not in passed]
        rows = read.count + count_rows(self.store, others)
        if self.options.verify == "rows":
            return rows, None
        noted = [Digest.from_hex(each.rows, each.digest) for each in others if each.rows is not None and each.digest]
        return rows, Digest.merged([read, *noted]) if len(noted) == len(others) else None

    def counts(self, results: Sequence[RewriteResult], staged: Sequence[StagedFile]) -> dict[str, Any]:
        before = self.before
        replaced = {path for each in results for path in each.replaced}
        old = sum(each.size_bytes for each in before.files if each.path in replaced)
        new = sum(each.size_bytes for each in staged)
        digests = Digest.merged(each.before for each in results), Digest.merged(each.after for each in results)
        if digests[0].as_tuple() != digests[1].as_tuple() and self.options.verify != "rows":
            raise TargetError(
                f"the rewritten files of {self.store.uri} hold {digests[1].count:,} rows with digest "
                f"{digests[1].hexdigest()}, the old ones {digests[0].count:,} with {digests[0].hexdigest()}: nothing "
                "was committed; please report this",
                self.store.uri,
            )
        rows_rewritten = sum(each.rows for each in results)
        rows_kept, kept = self._stays(results)
        shown = [None if kept is None else Digest.merged([kept, each]).hexdigest() for each in digests]
        size = sum(each.size_bytes for each in before.files)
        sizes = [each.size_bytes for each in before.files if each.path not in replaced]
        return {
            "files_after": len(before.files) - len(replaced) + len(staged),
            "bytes_after": size - old + new,
            "rows": rows_kept + rows_rewritten,
            "digest_before": shown[0],
            "digest_after": shown[1],
            "rows_rewritten": rows_rewritten,
            "files_rewritten": len(replaced),
            "files_written": len(staged),
            "bytes_rewritten": old,
            "bytes_written": new,
            "groups_left": sum(each.groups_left for each in results),
            "layout": layout_of([*sizes, *(each.size_bytes for each in staged)]),
            "files_left": {path: reason for each in results for path, reason in sorted(each.left.items())},
        }

    def require_one_schema(self, schemas: Sequence[pa.Schema]) -> None:
        """Refuse several schemas of files that do not tell their own: a manifest has one for all."""
        forms = {self.options.format or format_of(group.files[0].path).name for group in self.plan.groups}  # type: ignore[union-attr]
        untyped = sorted(form for form in forms if FORMATS[form].text_rows is not None)
        if untyped and any(not each.equals(schemas[0], check_metadata=True) for each in schemas):
            raise TargetError(
                f"the {untyped[0]} files of {self.store.uri} have different columns, of which {untyped[0]} tells no "
                "types: compact them into another format, or by --partition",
                self.store.uri,
            )

    def described(self, report: CompactReport, results: Sequence[RewriteResult]) -> dict[str, Any] | None:
        if not report.files_rewritten:
            # No group is worth it, or the time was over before any was begun.
            return None
        schemas = [each for result in results for each in result.schemas]
        self.require_one_schema(schemas)
        self.replaced = sorted({path for each in results for path in each.replaced})
        rewritten = (each for group in self.plan.groups for each in group.files)
        described = describe_files(self.store, rewritten, are_rewritten=True)
        return {
            "source": {"path": self.options.path, "version": self.plan.version},
            "schema": _schema_text(described.with_folders(schemas[-1])) if schemas else "",
            "partition_by": described.partition_by,
        }


def _plan(options: CompactOptions, snapshot: Snapshot) -> CompactPlan:
    target = int(options.target_bytes)
    pairs = (each.partition("=") for each in options.partition or ())
    rule = CompactRule(
        target_bytes=target,
        small_bytes=int(options.small_than or target * SMALL_RATIO),
        partition={name: value for name, _, value in pairs},
        is_other=lambda file: _is_other(options, file),
    )
    mixed = mixed_hours(open_store(options.path, options))
    files = [each for each in _closed(options, snapshot.files) if each.path.rpartition("/")[0] not in mixed]
    groups = plan_groups([each for each in files if _is_compactable(each.path)], rule)
    rewritten, size = sum(len(each.files) for each in groups), sum(each.bytes for each in groups)
    written = sum(each.expected_files for each in groups)
    reads = rewritten * _READS_OF_A_FILE
    parts = [*input_parts(options.path, len(snapshot.files), reads), *output_parts(options.path, written, size)]
    return CompactPlan(
        path=options.path,
        version=snapshot.version,
        files_before=len(snapshot.files),
        bytes_before=sum(each.size_bytes for each in snapshot.files),
        files_after=len(snapshot.files) - rewritten + sum(each.expected_files for each in groups),
        files_rewritten=rewritten,
        bytes_rewritten=size,
        bytes_kept=sum(each.size_bytes for each in _kept_unknown(options, snapshot, groups)),
        target_bytes=target,
        engine=engine_for(options.engine),
        groups=groups,
        estimate=file_estimate(options, parts, size, size * ARROW_RATIO, REWRITE_SPEED),
    )


def _closed(options: CompactOptions, files: Iterable[LiveFile]) -> Iterable[LiveFile]:
    """Return the files of hours that ended long enough ago, or all if that was not asked for."""
    if options.closed_hours is None:
        return files
    before = datetime.now(UTC) - timedelta(seconds=seconds_of(options.closed_hours), hours=1)
    return [each for each in files if (began := hour_began(each.partition)) is not None and began <= before]


def _kept_unknown(options: CompactOptions, snapshot: Snapshot, groups: Sequence[CompactGroup]) -> tuple[LiveFile, ...]:
    """Return the files that stay, and whose digest is wanted and not noted."""
    if options.verify != "digest":
        return ()
    rewritten = {file.path for group in groups for file in group.files}
    files = (each for each in snapshot.files if each.path not in rewritten)
    return tuple(each for each in files if each.rows is None or each.digest is None)


def _live(store: ObjectStore, options: CompactOptions) -> Snapshot:
    snapshot = live_files(store)
    if not snapshot.files:
        raise NotFoundError(f"{options.path} holds no live file: name the folder that a job wrote")
    return snapshot


def _is_compactable(path: str) -> bool:
    found = format_of(path)
    if found is None or found.open_writer is None or is_dynamodb_json_file(path):
        return False
    # Text that ddbio did not write has no types: to read it would be to guess them.
    return found.keeps_types or found.is_splittable or bool(job_of(path))


def _is_other(options: CompactOptions, file: LiveFile) -> bool:
    """Return whether a file has another format or codec than was asked for."""
    form, codec = _written_as(options, file.path)
    found = format_of(file.path)
    is_converted = found is not None and found.name != form
    return is_converted or (
        options.compression is not None and not file.path.endswith(f".{FORMATS[form].extensions[codec]}")
    )


def _written_as(options: CompactOptions, path: str) -> tuple[str, Compression]:
    """Return the format and the codec of what a file is rewritten as."""
    found = format_of(path)
    form = options.format or ("parquet" if found is None else found.name)
    endings = sorted(FORMATS[form].extensions.items(), key=lambda each: -len(each[1]))
    # A name that tells no codec says nothing: files of pyarrow and polars are called so whatever theirs is.
    own = next((codec for codec, ending in endings if codec != "none" and path.endswith(f".{ending}")), None)
    return form, FORMATS[form].codec(options.compression or own)


def _schema_text(schema: pa.Schema) -> str:
    # Columns of other programs may have types that a schema file does not know.
    with suppress(SchemaError):
        return schema_to_json(normalize_schema(told_apart(schema)))
    return ""
