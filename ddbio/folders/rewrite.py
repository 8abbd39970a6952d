"""Rewriting of groups of files: the old ones are streamed into new ones, which are read again to compare the rows."""

from __future__ import annotations

import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DdbioError, DecodeError, EncodeError, OptionError, SchemaError
from ddbio.formats.file_format import BATCH_ROWS, ReadOptions
from ddbio.formats.parquet import PARQUET, ParquetReader
from ddbio.formats.parquet_input import open_footer
from ddbio.formats.parquet_types import AS_ARROW, FooterFacts, StoredTypes, stored_types
from ddbio.formats.registry import FORMATS, format_of
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.formats.row_files import RowFiles, read_schema, unwritable_type
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest, digest_of_batches, require_digest
from ddbio.items.plain_columns import plain_batch, plain_schema
from ddbio.storage.local_store import LocalStore
from ddbio.storage.paths import with_columns
from ddbio.storage.staged import FileNaming, StagedFile, StoredObject
from ddbio.validation.digest import digest_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq
    from typing_extensions import Buffer

    from ddbio.budget import Budget
    from ddbio.options import Compression
    from ddbio.storage.object_store import ObjectStore, Sink
    from ddbio.storage.paths import FolderColumns

# Size of rows that are sorted in memory; with the sorted copy, this is below the memory limit of a task.
_RUN_BYTES = 32 * 1024 * 1024
# Size of all runs together while they are merged.
_MERGE_BYTES = 24 * 1024 * 1024
_MIN_ROWS = 256
_RUN = "_ddbio_run"


def sort_batches(batches: Iterable[pa.RecordBatch], names: Sequence[str], folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches with one schema in the order of some columns, nulls last.

    Parameters
    ----------
    folder
        An empty folder of this machine for rows that do not fit into memory.

    Raises
    ------
    OptionError
        If there is no such column, or it has no order.
    """
    runs: list[tuple[Path, int]] = []
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if size and size + batch.nbytes > _RUN_BYTES:
            runs.append(_write_run(_sort(gathered, names), folder / str(len(runs))))
            gathered, size = [], 0
        gathered.append(batch)
        size += batch.nbytes
    if not runs:
        yield from _sort(gathered, names).to_batches() if gathered else ()
        return
    runs.append(_write_run(_sort(gathered, names), folder / str(len(runs))))
    gathered = []
    yield from _merge([_read_run(path, max(_MIN_ROWS, rows)) for path, rows in _runs_with_rows(runs)], names)


def _sort(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise OptionError(f"there is no column {missing[0]!r} to sort by: there are {', '.join(table.schema.names)}")
    try:
        return table.sort_by([(name, "ascending") for name in names])
    except pa.ArrowException as error:
        raise OptionError(f"rows cannot be sorted by {', '.join(names)}: {error}") from None


def _write_run(run: pa.Table, path: Path) -> tuple[Path, int]:
    """Write a sorted run in small batches; return its path, and the bytes of a row."""
    rows = max(_MIN_ROWS, int(1024 * 1024 * run.num_rows / max(1, run.nbytes)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, run.schema) as stream:
        stream.write_table(run, max_chunksize=rows)
    return path, max(1, run.nbytes // max(1, run.num_rows))


def _runs_with_rows(runs: Sequence[tuple[Path, int]]) -> Iterator[tuple[Path, int]]:
    """Yield each run, and the number of its rows that are buffered."""
    for path, row_bytes in runs:
        yield path, _MERGE_BYTES // len(runs) // row_bytes


def _read_run(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))
    path.unlink()


def _merge(runs: Sequence[Iterator[pa.RecordBatch]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs: rows that sort before the last buffered row of every run are final."""
    buffered: list[pa.RecordBatch] = []
    order: Any = [*((name, "ascending") for name in names), (_RUN, "ascending")]
    unfinished = dict(enumerate(runs))
    exhausted = set(unfinished)
    while buffered or unfinished:
        for number in sorted(exhausted):
            batch = next(unfinished[number], None)
            if batch is None:
                del unfinished[number]
            else:
                buffered.append(batch.append_column(_RUN, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)))
        if not buffered:
            return
        table = pa.Table.from_batches(buffered).sort_by(order).combine_chunks()
        owners = table.column(_RUN).to_numpy()
        lasts = {number: int((owners == number).nonzero()[0][-1]) for number in unfinished}
        end = min(lasts.values(), default=table.num_rows - 1) + 1
        # The run whose last buffered row this is; all of its rows have been returned.
        exhausted = {number for number, last in lasts.items() if last < end}
        yield from table.slice(0, end).drop_columns([_RUN]).to_batches()
        buffered = table.slice(end).to_batches()


_PROGRESS_SECONDS = 0.2
# Reading a footer on S3 is mostly waiting.
_THREADS = 16


@dataclass(frozen=True)
class RewriteGroup:
    """Files of one folder, their columns if the files do not store them, and the format and codec of the new files.

    Attributes
    ----------
    is_other
        Whether a file has another format or codec, so that each is rewritten even alone.
    stored
        The stored Parquet types of their columns, which stay the same.
    facts
        The facts about values in their footers.
    """

    partition: dict[str, str | None]
    files: tuple[StoredObject, ...]
    schemas: tuple[pa.Schema | None, ...]
    format: str
    compression: Compression
    statistics: tuple[str, ...] = ()
    folders: FolderColumns = ()
    is_other: bool = False
    stored: StoredTypes = AS_ARROW
    facts: FooterFacts | None = None


@dataclass(frozen=True, kw_only=True)
class RewriteTask:
    """Picklable input of a worker that rewrites some groups, one after the other.

    Attributes
    ----------
    sort_by
        Columns by which the rows of a group are sorted; empty to keep their order.
    verifies
        Whether staged files are read again.
    unchanged
        Files that are not rewritten, whose rows and digest are unknown.
    ends_at
        Time of this machine's clock after which no group is started, or None.
    """

    number: int
    store: ObjectStore
    job_id: str
    groups: tuple[RewriteGroup, ...]
    target_bytes: int
    sort_by: tuple[str, ...]
    verifies: bool
    unchanged: tuple[str, ...]
    ends_at: float | None


@dataclass
class RewriteResult:
    """Staged files of a task, the files that they replace, the digests of both, and the digest of unchanged files.

    Attributes
    ----------
    skipped
        Files that were not rewritten because they would not be the same, each with the reason.
    """

    staged: list[StagedFile] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    rows: int = 0
    before: Digest = field(default_factory=Digest)
    after: Digest = field(default_factory=Digest)
    unchanged: Digest = field(default_factory=Digest)
    groups_left: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    schemas: list[pa.Schema] = field(default_factory=list)


def rewrite_task(task: RewriteTask, budget: Budget) -> RewriteResult:
    """Stage the new files of a task's groups; the job's abort discards them if it fails.

    Raises
    ------
    DecodeError
        If a file cannot be read, or the new files have another number of rows than the old ones.
    """
    result = RewriteResult()
    with ExitStack() as stack:
        copies = _Copies(task.store, stack) if task.verifies else None
        rewriter = _Rewriter(task, budget, result, copies)
        for number, group in enumerate(task.groups):
            if task.ends_at is not None and time.time() >= task.ends_at:
                result.groups_left = len(task.groups) - number
                break
            rewriter.rewrite(group)
    if task.unchanged:
        try:
            result.unchanged.merge(digest_paths(task.store, list(task.unchanged)))
        except DdbioError as error:
            raise _without_digest(error, "a file that stays", "verify=rewritten does not read it") from error
    return result


def _without_digest(error: DdbioError, subject: str, advice: str) -> DdbioError:
    """Return an error of a digest with the option that omits it; any other error unchanged."""
    if not isinstance(error, (SchemaError, DecodeError, EncodeError)):
        return error
    return DecodeError(
        f"{subject}: {error}: digests are of values in DynamoDB; {advice}", uri=getattr(error, "uri", None)
    )


class _Rewriter:
    def __init__(self, task: RewriteTask, budget: Budget, result: RewriteResult, copies: _Copies | None) -> None:
        self._task, self._budget, self._result, self._copies = task, budget, result, copies
        # Random, so that no two attempts use the same names. Each writer of a schema or group has its own.
        self._attempt, self._writers = secrets.randbelow(10**5), 0
        self._reported_at, self._unreported_rows, self._read_rows = time.monotonic(), 0, 0
        self._after = FooterFacts()

    def rewrite(self, group: RewriteGroup) -> None:
        """Stage the new files of a group; skip files that would not be the same."""
        for some in self._split_by_types(group):
            self._rewrite(some)

    def _split_by_types(self, group: RewriteGroup) -> list[RewriteGroup]:
        """Return the files in groups, each of which can be one file with the same stored types."""
        groups_by_type: dict[tuple[StoredTypes, str], tuple[list[int], FooterFacts]] = {}
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-footer") as pool:
            for index, (stored, footer) in enumerate(pool.map(lambda entry: self._stored(entry, group), group.files)):
                if stored.unwritable:
                    self._result.skipped[group.files[index].path] = stored.unwritable
                    continue
                form = format_of(group.files[index].path).name  # type: ignore[union-attr]
                indices, facts = groups_by_type.setdefault((stored, form), ([], FooterFacts()))
                indices.append(index)
                if footer is not None:
                    facts.add(footer)
        groups = [
            replace(
                group,
                files=tuple(group.files[index] for index in indices),
                schemas=tuple(group.schemas[index] for index in indices),
                stored=stored,
                facts=facts,
            )
            for (stored, _), (indices, facts) in groups_by_type.items()
        ]
        # Rewriting a single file would not change it.
        return [
            candidate for candidate in groups if len(candidate.files) > 1 or len(group.files) == 1 or group.is_other
        ]

    def _stored(self, entry: StoredObject, group: RewriteGroup) -> tuple[StoredTypes, pq.FileMetaData | None]:
        """Return the stored types of a file's columns, and its footer if it is Parquet and stays Parquet."""
        form = format_of(entry.path)
        if form is FORMATS[group.format] is PARQUET:
            opened = open_footer(self._task.store, entry)
            stored = stored_types(opened)
            return replace(
                stored, unwritable=stored.unwritable or self._reason_without_digest(opened.schema_arrow)
            ), opened.metadata
        if form is FORMATS[group.format]:
            lost = unwritable_type(self._task.store, entry)
            return StoredTypes(unwritable=lost and f"a column is {lost}, and would be written as another type"), None
        return AS_ARROW, None

    def _reason_without_digest(self, schema: pa.Schema) -> str:
        """Return the reason why the rows of a schema have no digest, if digests are required; else an empty text."""
        try:
            if self._copies is not None:
                require_digest(schema)
        except SchemaError as error:
            return f"{error}; verify=rows rewrites it"
        return ""

    def _rewrite(self, group: RewriteGroup) -> None:
        before, read_before, written_before = ColumnDigest(), self._read_rows, self._result.rows
        batches = self._batches(group, None if self._copies is None else before)
        first = next(batches, None)
        if first is None:
            # Files without rows become one file, which stores the columns.
            schema = group.schemas[0] or read_schema(self._task.store, group.files[0].path)
            self._write(group, schema, ())
        while first is not None:
            run = _Run(first, batches)
            self._write(group, first.schema, run)
            first = run.next_first
        written = self._result.rows - written_before
        if written != self._read_rows - read_before:
            raise DecodeError(f"{self._read_rows - read_before:,} rows were read, and {written:,} written")
        self._require_facts(group)
        self._result.replaced += [file.path for file in group.files]
        self._result.before.merge(before.digest)

    def _require_facts(self, group: RewriteGroup) -> None:
        """Compare the facts about values in the footers of the old files with the values of the new files."""
        after, self._after = self._after, FooterFacts()
        difference = "" if group.facts is None or self._copies is None else group.facts.difference(after)
        if difference:
            raise DecodeError(
                f"{self._task.store.uri}/{group.files[0].path} and the files with it: by their footers, {difference}: "
                "values were misread, or the footers are wrong; nothing was replaced; verify=rows skips this check"
            )

    def _write(self, group: RewriteGroup, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage files of one schema."""
        writer = self._writer(group, schema)
        try:
            if self._task.sort_by:
                with tempfile.TemporaryDirectory(prefix="ddbio-") as folder:
                    for batch in sort_batches(batches, self._task.sort_by, Path(folder)):
                        writer.write(batch)
            else:
                for batch in batches:
                    writer.write(batch)
            self._close(writer, group, schema)
        except BaseException:
            writer.abort()
            raise

    def _close(self, writer: RollingWriter, group: RewriteGroup, schema: pa.Schema) -> None:
        """Finish the files of a writer, and compute their digests."""
        result = self._result
        staged = writer.finish(keep_empty=True)
        for file in staged:
            digest = None
            if self._copies is not None:
                digest = self._digest(self._copies.batches(file, group.format, schema, self._after), group)
            result.staged.append(replace(file, partition=group.partition, digest=digest))
        result.rows += sum(file.rows for file in staged)
        result.schemas.append(schema)

    def _digest(self, batches: Iterable[pa.RecordBatch], group: RewriteGroup) -> str:
        """Return the digest of the rows of a new file, and add it to the result."""
        digest = digest_of_batches(with_columns(batch, group.folders) for batch in batches)
        self._result.after.merge(digest)
        return digest.hexdigest()

    def _batches(self, group: RewriteGroup, digest: ColumnDigest | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group's files, and add them to the digest."""
        files = RowFiles(self._task.store)
        for entry, schema in zip(group.files, group.schemas, strict=True):
            parts, rows = files.parts(entry), 0
            is_converted = format_of(entry.path) is not FORMATS[group.format]
            for read in files.read_file(entry, 4 * BATCH_ROWS, schema):
                # Another format lacks some types of this one, but has those of DynamoDB.
                batch = plain_batch(read, plain_schema(read.schema)) if is_converted else read
                rows += batch.num_rows
                self._report(batch.num_rows)
                if digest is not None:
                    try:
                        digest.add_batch(with_columns(batch, group.folders))
                    except DdbioError as error:
                        raise _without_digest(error, entry.path, "verify=rows rewrites it") from error
                yield batch
            if parts.rows not in {None, rows}:
                raise DecodeError(f"{entry.path} has {rows:,} rows, but its footer records {parts.rows:,}")

    def _writer(self, group: RewriteGroup, schema: pa.Schema) -> RollingWriter:
        folder = group.files[0].path.rpartition("/")[0]
        attempt = self._attempt * 1000 + self._writers
        naming = _FolderNaming(self._task.job_id, self._task.number, attempt, f"{folder}/" if folder else "")
        self._writers += 1
        options: Any = {"format": group.format, "compression": group.compression}
        files = FileOptions(
            target_file_bytes=self._task.target_bytes,
            statistics=group.statistics,
            stored_types=group.stored.options,
            **options,
        )
        store: Any = self._task.store if self._copies is None else self._copies
        return RollingWriter(store, naming, schema, files)

    def _report(self, rows: int) -> None:
        """Report rows to the budget from time to time; it raises if the job is being stopped."""
        self._read_rows += rows
        self._unreported_rows += rows
        if time.monotonic() >= self._reported_at + _PROGRESS_SECONDS:
            reservation = self._budget.acquire(0)
            self._budget.settle(reservation, 0, items=self._unreported_rows, wire_bytes=0)
            self._unreported_rows, self._reported_at = 0, time.monotonic()


class _Run:
    """Iterator over a batch and the next ones that fit its schema.

    After the iteration, ``next_first`` is the batch that did not fit, or None.
    """

    def __init__(self, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> None:
        self._first, self._batches = first, batches
        self.next_first: pa.RecordBatch | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield self._first
        for batch in self._batches:
            fitting = _fit(batch, self._first.schema)
            if fitting is None:
                self.next_first = batch
                return
            yield fitting


@dataclass(frozen=True)
class _FolderNaming(FileNaming):
    """Names of files in the folder of the files that they replace."""

    folder: str = ""

    def path(self, number: int, extension: str, folder: str = "") -> str:
        """Return the name of this attempt's file with that number."""
        return FileNaming.path(self, number, extension, folder or self.folder)


class _Copies:
    """Store of staged files that can be read before they are completed.

    Files that are staged in a local folder are read there. An upload to S3 cannot be read, so its bytes are also
    written to
    a temporary folder.
    """

    def __init__(self, store: ObjectStore, stack: ExitStack) -> None:
        self._store = store
        self._local = store if isinstance(store, LocalStore) else None
        self._folder = None if self._local else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ddbio-")))

    def create(self, path: str) -> Sink:
        """Return a sink for a file of the store."""
        sink = self._store.create(path)
        return sink if self._folder is None else _CopyingSink(sink, self._folder / path.rpartition("/")[2])

    def batches(
        self, file: StagedFile, file_format: str, schema: pa.Schema | None, facts: FooterFacts
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a staged file, and add the facts of its footer; then delete its copy."""
        if self._local is not None:
            store, path = self._local, file.token["staged_at"]
        else:
            store, path = LocalStore(str(self._folder)), file.path.rpartition("/")[2]
        form = FORMATS[file_format]
        options = ReadOptions(schema=None if form.keeps_types else schema)
        reader = form.open_reader(store, StoredObject(path, file.size_bytes), options)
        if isinstance(reader, ParquetReader):
            facts.add(reader.footer)
        for part in range(len(reader.parts().sizes_bytes)):
            yield from reader.read(part, BATCH_ROWS)
        if self._local is None:
            store.delete([path])


class _CopyingSink:
    """Sink that also writes the bytes to a file."""

    def __init__(self, sink: Sink, path: Path) -> None:
        self._sink, self._path = sink, path
        self._file = path.open("wb")
        self.closed = False

    def write(self, data: Buffer, /) -> int:
        self._file.write(data)
        return self._sink.write(data)

    def finish(self, rows: int) -> StagedFile:
        self._file.close()
        self.closed = True
        return self._sink.finish(rows)

    def abort(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._sink.abort()


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    """Return a batch with a schema that has all of its columns with their types; None if the schema lacks some."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    own = {field.name: field for field in batch.schema}
    if len(own) != len(batch.schema) or not own.keys() <= set(schema.names):
        return None
    if not all(field.equals(schema.field(field.name), check_metadata=True) for field in own.values()):
        return None
    columns = [
        batch.column(field.name) if field.name in own else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
