"""Write rows as files for the service's own import: checked, each key once, in random order."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddbio.aws.control_plane import describe_table, parse_table_description
from ddbio.budget.job_limits import check_estimate
from ddbio.commit.contents import require_target
from ddbio.errors import EncodeError, OptionError
from ddbio.export.import_job import FOLDER
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.registry import is_splittable
from ddbio.formats.row_files import RowFiles
from ddbio.formats.text_writers import ImportObjectWriter, LineBuffer, LineCounter
from ddbio.items.batch_size import batch_bytes
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.item_key import Fingerprints, KeySet, key_fingerprints
from ddbio.items.kernel.arrays import take_rows
from ddbio.items.kernel.encode.encoder import PIECE_BYTES
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.create_table import format_key, index_keys, parse_key
from ddbio.jobs.estimate import (
    ARROW_RATIO,
    SENT_RATIO,
    START_SECONDS,
    Estimate,
    EstimatedPlan,
    compute_parts,
    input_parts,
    output_parts,
    s3_requests,
)
from ddbio.jobs.file_estimates import file_figures, run_limits
from ddbio.jobs.report import FileReport, FilesReport
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.speeds import LINES_SPEED, PROCESSORS
from ddbio.jobs.staging import target_of
from ddbio.jobs.stores import open_store, protect_sources
from ddbio.load.import_lines import LineFormat, line_encoder
from ddbio.load.options import ImportFilesOptions
from ddbio.load.sources import batches_of, open_source
from ddbio.load.unit_reader import read_unit
from ddbio.options.locations import local_path
from ddbio.runner.files_job import FilesJob, StagedFiles
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    import pyarrow as pa

    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import Figures
    from ddbio.load.import_lines import LineEncoder
    from ddbio.load.options import ImportFilesFromOptions
    from ddbio.load.sources import FileSource, Rows
    from ddbio.storage.staged import StagedFile, StoredObject

    Key: TypeAlias = tuple[tuple[str, str], ...]

_ENDINGS = {"dynamodb_json": "json", "ion": "ion", "csv": "csv"}


@dataclass(frozen=True)
class ImportFilesPlan(EstimatedPlan):
    """Describe what writing the rows of files as files for an import would do.

    Attributes
    ----------
    source, dest
        The files and the target as given.
    files, rows
        The files that are read, and their rows if all tell them.
    json_bytes
        About how much text there will be before compression.
    estimate
        What it takes and costs: files with columns are assumed to be three times their size as Arrow data.
    files_skipped
        Paths of files that are passed over, since their names say that they are no data.
    """

    source: str
    dest: str
    files: int
    rows: int | None
    json_bytes: int
    estimate: Estimate
    files_skipped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImportFilesReport(FilesReport):
    """Describe the files that were written for an import; rows in memory have no plan.

    Attributes
    ----------
    dest, uri
        The target as given, and the prefix to import.
    key
        The key for which every item was checked.
    format, compression, delimiter
        What an import request has to name.
    gsi
        Indexes for whose keys every item was checked.
    condition
        Condition of each item; only a bulk put evaluates it.
    rows, items, duplicates
        Rows read, items written, and rows left out because another row has the same key.
    json_bytes
        Bytes of text before compression. AWS bills an import by them.
    digest
        Digest of the items, if requested.
    files
        What was written.
    files_skipped
        Paths of files that were passed over, since their names say that they are no data.
    """

    dest: str
    uri: str
    key: str
    format: str
    compression: str
    delimiter: str | None
    gsi: tuple[str, ...]
    condition: str | None
    rows: int
    items: int
    duplicates: int
    json_bytes: int
    digest: str | None
    files: tuple[FileReport, ...] = ()
    files_skipped: tuple[str, ...] = ()


def write(source: Rows | str | os.PathLike[str], options: ImportFilesFromOptions) -> ImportFilesReport:
    """Write rows as files for the service's own import of a new table; they become visible together, or not at all.

    Parameters
    ----------
    source
        Text or a path names a file, folder or glob; anything else is rows, as for :func:`write_table`.

    Raises
    ------
    NotFoundError, DecodeError
        If there is no such file, or one is not what its name says.
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another row.
    DdbioError
        After any error nothing is visible at the target.
    """
    if isinstance(source, str | os.PathLike):
        return write_files(options)
    of_rows = {field.name for field in dataclasses.fields(ImportFilesOptions)} | {"source"}
    for field in dataclasses.fields(options):
        if field.name not in of_rows and getattr(options, field.name) != field.default:
            raise OptionError(f"{field.name} is for files: leave it out for rows in memory")
    return write_rows(source, options)


def write_files(options: ImportFilesFromOptions) -> ImportFilesReport:
    """Write the rows of files as files for an import; see :func:`write_rows`.

    Raises
    ------
    NotFoundError, DecodeError
        If there is no such file, or one is not what its name says.
    """
    return _ImportJob(options).run()


def plan_of(options: ImportFilesFromOptions) -> ImportFilesPlan:
    """Return what :func:`write_import_files` would take and cost, from the list of the files alone.

    Raises
    ------
    NotFoundError, DecodeError
        If there is no such file, or one is not what its name says.
    LimitError
        If the plan is above a limit.
    """
    return _plan(open_source(options, dict(key_of(options)), options.timestamps), options)


def _plan(source: FileSource, options: ImportFilesFromOptions) -> ImportFilesPlan:
    read_bytes = sum(each.size_bytes for each in source.files)
    text = round(sum(each.size_bytes * _text_ratio(each) for each in source.files))
    seconds = START_SECONDS + text / LINES_SPEED
    objects = max(1, -(-text // options.target_file_bytes))
    written = output_parts(options.dest, objects, text / TEXT_RATIOS[options.compression])
    parts = [*input_parts(options.source, len(source.files)), *written]
    cost = prices_of(options.region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    estimate = Estimate(0.0, s3_requests(parts), read_bytes, seconds, PROCESSORS, cost)
    check_estimate(options, estimate)
    return ImportFilesPlan(options.source, options.dest, len(source.files), source.rows, text, estimate, source.skipped)


def _text_ratio(file: StoredObject) -> float:
    """Return about how many times its size a file's items are as text."""
    if is_splittable(file):
        return ARROW_RATIO * SENT_RATIO
    path = file.path
    codecs = {".gz": "gzip", ".zst": "zstd"}
    return TEXT_RATIOS[next((codec for ending, codec in codecs.items() if path.endswith(ending)), "none")]


def check_files(options: ImportFilesFromOptions) -> ImportFilesReport:
    """Read and check every row as :func:`write_import_files` does, and write nothing.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another one.
    DdbioError
        What else went wrong.
    """
    return _ImportJob(options).check()


def write_rows(data: Rows, options: ImportFilesOptions) -> ImportFilesReport:
    """Write rows in memory as files for an import.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another row.
    DdbioError
        After any error nothing is visible at the target.
    """
    return _ImportJob(options, data).run()


def key_of(options: ImportFilesOptions) -> Key:
    """Return the key for which the items are checked: the given one, or that of the table ``like``.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        If the text is no key, or the table cannot be described.
    """
    if options.key is not None:
        return parse_key(options.key)
    like = options.like or ""
    if not like.endswith(".json"):
        return describe_table(dynamodb_spec(options), like).key_types
    try:
        return parse_table_description(json.loads(local_path(like).read_text("utf-8"))).key_types
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"like: {like} holds nothing that DescribeTable says of a table ({error!r})") from None


def _unit_batches(source: FileSource, key: Key, duplicates: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows: backwards if the last of equal keys wins, in random order of units if equal keys are an error."""
    files = RowFiles(source.store, ReadOptions(dict(key), null_values=source.null_values))
    units = list(source.units)
    if duplicates == "fail":
        secrets.SystemRandom().shuffle(units)
    if duplicates != "last":
        for unit in units:
            yield from read_unit(files, unit)
        return
    for unit in reversed(units):
        yield from map(_backwards, reversed(list(read_unit(files, unit))))


class _ImportJob(FilesJob[StagedFiles, ImportFilesReport]):
    """Write rows as files for an import, one after the other: each is compared with all keys before it."""

    log = logging.getLogger("ddbio.import")
    report_class = ImportFilesReport
    options: ImportFilesOptions
    plan: ImportFilesPlan
    lines: _LineCollector

    def __init__(self, options: ImportFilesOptions, data: Rows | None = None) -> None:
        super().__init__(options)
        self._data = data

    def open(self) -> None:
        options = self.options
        self.title = f"import files to {options.dest}"
        self._store = open_store(options.dest, options)
        protect_sources(self._store, options.mode, self._open_rows())
        require_target(self._store)
        self.target = target_of(options, self._store)
        self.extent = f"{self.plan.files} files of {self.plan.source}"

    def _open_rows(self) -> list[str]:
        """Open the rows, and plan what they take; return the files that hold them."""
        options = self.options
        self.key = key_of(options)
        if self._data is None:
            given = cast("ImportFilesFromOptions", options)
            source = open_source(given, dict(self.key), given.timestamps)
            self.plan, self.batches = _plan(source, given), _unit_batches(source, self.key, given.duplicates)
            return [f"{source.store.uri}/{each.path}" for each in source.files]
        self.plan = ImportFilesPlan("rows in memory", options.dest, 0, None, 0, Estimate())
        rows = batches_of(self._data, options.timestamps)
        self.batches = iter(rows)
        if options.duplicates == "last":
            self.batches = map(_backwards, reversed(list(rows)))
        return []

    def work(self, engine: Engine) -> list[StagedFiles]:
        del engine
        naming, ending = FileNaming(self.job_id, 0), _ENDINGS[self.options.format]
        writer = ImportObjectWriter(self._store, FOLDER, naming, ending, self.options.compression)
        try:
            self._collect(writer)
            return [StagedFiles(writer.finish())]
        except BaseException:
            writer.abort()
            raise

    def _collect(self, writer: ImportObjectWriter | LineCounter) -> None:
        """Pass the rows to a writer, until the job is to be stopped."""
        self.lines = _LineCollector(writer, self.key, self.options)
        limits = run_limits(self.options, self.plan.estimate)
        for batch in self.batches:
            limits.require_time(self.clock.seconds())
            self.lines.add(batch)
        self.lines.flush()

    def counts(self, results: Sequence[StagedFiles], staged: Sequence[StagedFile]) -> dict[str, Any]:
        del results, staged
        options, lines = self.options, self.lines
        condition = lines.line_format.condition
        return {
            "uri": f"{options.dest.rstrip('/')}/{FOLDER.rstrip('/')}",
            "key": format_key(tuple(lines.key.items())),
            "format": options.format,
            "compression": options.compression,
            "delimiter": lines.line_format.delimiter if options.format == "csv" else None,
            "gsi": options.gsi,
            "condition": str(condition["ConditionExpression"]) if condition else None,
            "rows": lines.rows,
            "items": lines.items,
            "duplicates": lines.rows - lines.items,
            "json_bytes": lines.json_bytes,
            "digest": lines.digest.digest.hexdigest() if options.digest else None,
            # Nothing is known of rows in memory before they are written.
            "planned": self.plan.figures if self._data is None else None,
        }

    def figures(self, report: ImportFilesReport) -> Figures:
        parts = output_parts(self.options.dest, len(report.files), sum(file.bytes for file in report.files))
        if self._data is None:
            parts += input_parts(self.plan.source, self.plan.files)
        size = self.plan.estimate.bytes if self._data is None else None
        return file_figures(self.options, parts, size, report.seconds)

    def described(self, report: ImportFilesReport, results: Sequence[StagedFiles]) -> dict[str, Any]:
        del results
        names = ("key", "format", "compression", "delimiter", "gsi", "condition", "items", "json_bytes", "digest")
        settings = {name: getattr(report, name) for name in names}
        return {"source": {"rows": self.plan.source, "import": settings}, "schema": ""}

    def check(self) -> ImportFilesReport:
        """Read and check the rows, and write nothing."""
        self._open_rows()
        self._collect(LineCounter())
        return dataclasses.replace(self.report([], [], self.clock.cpu_seconds()), job_id="", actual=None)


class _LineCollector:
    """Collect encoded lines until they fill an object, then pass those with new keys to the writer."""

    def __init__(self, writer: ImportObjectWriter | LineCounter, key: Key, options: ImportFilesOptions) -> None:
        self._writer, self._options = writer, options
        self.key = dict(key)
        self.line_format = LineFormat(
            key=key,
            format=options.format,
            index_keys=index_keys(options.gsi),
            if_absent=options.if_absent,
            newer_by=options.newer_by,
            delimiter=options.delimiter or ",",
            csv_strings=options.csv_strings,
        )
        self._encoders: list[tuple[pa.Schema, LineEncoder]] = []
        self._header = b""
        self._lines = LineBuffer(options.target_file_bytes + options.target_file_bytes // 4)
        self._pending: list[tuple[pa.RecordBatch, Fingerprints]] = []
        self._seen = KeySet()
        self.rows = self.items = self.json_bytes = 0
        self.digest = ColumnDigest()

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode rows; raise at the first that is no item."""
        # Slices just below what the encoder writes at once need no joining, and an object ends near its target size.
        slice_bytes = min(PIECE_BYTES * 3 // 4, self._options.target_file_bytes // 16)
        step = max(1, batch.num_rows * slice_bytes // max(batch_bytes(batch), 1))
        for start in range(0, batch.num_rows, step):
            self._add(batch.slice(start, step))
            if self._lines.size_bytes >= self._options.target_file_bytes:
                self.flush()

    def flush(self) -> None:
        """Pass the lines whose key is new to the writer."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        new = self._seen.add(Fingerprints.joined([fingerprints for _, fingerprints in pending]))
        if self._options.duplicates == "fail" and not new.all():
            raise self._refusal(self._lines.line(int(np.argmin(new))))
        if self._options.digest:
            starts = np.cumsum([rows.num_rows for rows, _ in pending])[:-1]
            for (rows, _), is_new in zip(pending, np.split(new, starts), strict=True):
                self.digest.add_batch(take_rows(rows, np.flatnonzero(is_new)))
        chosen = np.flatnonzero(new)
        self.items += len(chosen)
        self.json_bytes += self._writer.write(self._lines, chosen, self._header)

    def _add(self, rows: pa.RecordBatch) -> None:
        encoded = self._encoder_of(rows.schema).encode(rows)
        for refusal in encoded.refusals:
            what = refusal.message.partition(": ")[2] or refusal.message
            row = self.rows + refusal.row
            raise EncodeError(f"row {row} as read: {what}; nothing was written", row, refusal.attribute, refusal.rule)
        self._lines.add(encoded.text, encoded.offsets)
        self._pending.append((encoded.items, key_fingerprints(encoded.items, list(self.key))))
        self.rows += rows.num_rows

    def _encoder_of(self, schema: pa.Schema) -> LineEncoder:
        for known, encoder in self._encoders:
            if known.equals(schema):
                return encoder
        encoder = line_encoder(schema, self.line_format)
        if self._encoders and encoder.header != self._header:
            raise OptionError(f"CSV has the same columns in all objects: {encoder.header!r} are not {self._header!r}")
        self._header = encoder.header
        self._encoders.append((schema, encoder))
        return encoder

    def _refusal(self, line: bytes) -> EncodeError:
        item = self.line_format.item_of(line, self._header)
        shown = json.dumps({name: item[name] for name in self.key}, ensure_ascii=False)
        ways = "the service would keep one of them at random: make them differ, or give duplicates=first or last"
        return EncodeError(f"two rows have the key {shown}: {ways}", None, next(iter(self.key)), "duplicate_key")


def _backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    return take_rows(batch, np.arange(batch.num_rows)[::-1])
