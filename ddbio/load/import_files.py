"""Write rows as files for the service's own import: checked, each key once, in random order."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ddbio.aws.control_plane import describe_table, parse_table_description
from ddbio.budget.job_limits import check_actual, check_estimate
from ddbio.commit import committer
from ddbio.commit.contents import require_target
from ddbio.errors import EncodeError, LimitError, OptionError
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
    Figures,
    compute_parts,
    input_parts,
    output_parts,
    s3_requests,
)
from ddbio.jobs.file_estimates import run_limits
from ddbio.jobs.report import Clock, FileReport, Report, file_reports, layout_of
from ddbio.jobs.service_estimates import TEXT_RATIOS
from ddbio.jobs.speeds import LINES_SPEED, PROCESSORS
from ddbio.jobs.staging import target_of
from ddbio.jobs.stores import committed_report, new_job_id, open_store, protect_sources
from ddbio.load.import_lines import LineFormat, line_encoder
from ddbio.load.sources import batches_of, open_source
from ddbio.load.unit_reader import read_unit
from ddbio.options import ImportFilesOptions
from ddbio.options.locations import local_path
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    import pyarrow as pa

    from ddbio.formats.layout import LayoutSummary
    from ddbio.jobs.estimate import Part
    from ddbio.load.import_lines import LineEncoder
    from ddbio.load.sources import FileSource, Rows
    from ddbio.options import ImportFilesFromOptions
    from ddbio.storage.staged import StagedFile, StoredObject

    Key: TypeAlias = tuple[tuple[str, str], ...]

_LOG = logging.getLogger("ddbio.import")
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


@dataclass(frozen=True)
class ImportFilesReport(Report):
    """Describe the files that were written for an import.

    Attributes
    ----------
    dest, uri
        The target as given, and the prefix to import.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target, outside the prefix.
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
    seconds, cpu_seconds
        Wall time, and user + system seconds of this process.
    files
        What was written.
    layout
        How the files lie: their sizes, and how many are small.
    planned, actual
        Bytes of files that are read, seconds and USD of the objects, as planned and as it was; rows in memory have no
        plan.
    files_skipped
        Paths of files that were passed over, since their names say that they are no data.
    """

    dest: str
    uri: str
    job_id: str
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
    seconds: float
    cpu_seconds: float
    files: tuple[FileReport, ...] = ()
    layout: LayoutSummary | None = None
    planned: Figures | None = None
    actual: Figures | None = None
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
    key = key_of(options)
    source = open_source(options, dict(key), options.timestamps)
    target = open_store(options.dest, options)
    protect_sources(target, options.mode, (f"{source.store.uri}/{each.path}" for each in source.files))
    plan = _plan(source, options)
    planned = plan.estimate.figures
    _LOG.info("import files of %s to %s: planned: %s", options.source, options.dest, planned)
    return _write(_unit_batches(source, key, options.duplicates), key, options, options.source, plan)


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
    parts = [*input_parts(options.source, len(source.files)), *_output_parts(options, text, None)]
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


def _output_parts(options: ImportFilesOptions, text_bytes: int, staged: Sequence[StagedFile] | None) -> list[Part]:
    """Return what the objects cost: those that were written, or those that so much text is expected to need."""
    if staged is not None:
        return output_parts(options.dest, len(staged), sum(each.size_bytes for each in staged))
    objects = max(1, -(-text_bytes // options.target_file_bytes))
    return output_parts(options.dest, objects, text_bytes / TEXT_RATIOS[options.compression])


def check_files(options: ImportFilesFromOptions) -> ImportFilesReport:
    """Read and check every row as :func:`write_import_files` does, and write nothing.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another one.
    DdbioError
        What else went wrong.
    """
    clock = Clock()
    key = key_of(options)
    source = open_source(options, dict(key), options.timestamps)
    plan = _plan(source, options)
    batches = _in_time(_unit_batches(source, key, options.duplicates), options, plan, clock)
    buffer = _write_batches(LineCounter(), batches, key, options)
    report = _report(buffer, options, "", clock)
    return dataclasses.replace(report, planned=plan.estimate.figures, files_skipped=plan.files_skipped)


def write_rows(data: Rows, options: ImportFilesOptions) -> ImportFilesReport:
    """Write rows in memory as files for an import.

    Raises
    ------
    EncodeError
        If a row is no item that DynamoDB takes, or has the key of another row.
    DdbioError
        After any error nothing is visible at the target.
    """
    batches: Iterable[pa.RecordBatch] = batches_of(data, options.timestamps)
    if options.duplicates == "last":
        batches = map(_backwards, reversed(list(batches)))
    return _write(batches, key_of(options), options, "rows in memory")


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


def _write(
    batches: Iterable[pa.RecordBatch],
    key: Key,
    options: ImportFilesOptions,
    source: str,
    plan: ImportFilesPlan | None = None,
) -> ImportFilesReport:
    clock = Clock()
    batches = _in_time(batches, options, plan, clock)
    store, job_id = open_store(options.dest, options), options.job_id or new_job_id()
    require_target(store)
    try:
        with committer.publishing(target_of(options, store), job_id) as complete:
            writer = ImportObjectWriter(
                store, FOLDER, FileNaming(job_id, 0), _ENDINGS[options.format], options.compression
            )
            try:
                buffer = _write_batches(writer, batches, key, options)
                staged = writer.finish()
            except BaseException:
                writer.abort()
                raise
            report = _report(buffer, options, job_id, clock, staged)
            planned = None if plan is None else plan.estimate.figures
            actual = _actual(options, plan, staged, report.seconds)
            check_actual(options, actual)
            skipped = () if plan is None else plan.files_skipped
            report = dataclasses.replace(report, planned=planned, actual=actual, files_skipped=skipped)
            complete(staged, _facts(report, source))
    except committer.AlreadyCommittedError as done:
        return committed_report(ImportFilesReport, done)
    return report


def _actual(
    options: ImportFilesOptions, plan: ImportFilesPlan | None, staged: Sequence[StagedFile], seconds: float
) -> Figures:
    """Return what writing took; nothing is known of the bytes of rows in memory."""
    parts = [*_output_parts(options, 0, staged), *compute_parts(options.compute, seconds)]
    if plan is not None:
        parts += input_parts(plan.source, plan.files)
    usd = prices_of(options.region, options.prices).cost(parts).usd
    return Figures(0.0, seconds, None if plan is None else plan.estimate.bytes, usd)


def _in_time(
    batches: Iterable[pa.RecordBatch], options: ImportFilesOptions, plan: ImportFilesPlan | None, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """Yield batches until the job is to be stopped."""
    limits = run_limits(options, Estimate() if plan is None else plan.estimate)
    for batch in batches:
        if exceeded := limits.exceeded(0.0, clock.seconds()):
            raise LimitError(f"the job was stopped: {exceeded}")
        yield batch


def _write_batches(
    writer: ImportObjectWriter | LineCounter, batches: Iterable[pa.RecordBatch], key: Key, options: ImportFilesOptions
) -> _LineCollector:
    buffer = _LineCollector(writer, key, options)
    for batch in batches:
        buffer.add(batch)
    buffer.flush()
    return buffer


def _report(
    buffer: _LineCollector, options: ImportFilesOptions, job_id: str, clock: Clock, staged: Sequence[StagedFile] = ()
) -> ImportFilesReport:
    return ImportFilesReport(
        dest=options.dest,
        uri=f"{options.dest.rstrip('/')}/{FOLDER.rstrip('/')}",
        job_id=job_id,
        key=format_key(tuple(buffer.key.items())),
        format=options.format,
        compression=options.compression,
        delimiter=buffer.line_format.delimiter if options.format == "csv" else None,
        gsi=options.gsi,
        condition=str(buffer.line_format.condition["ConditionExpression"]) if buffer.line_format.condition else None,
        rows=buffer.rows,
        items=buffer.items,
        duplicates=buffer.rows - buffer.items,
        json_bytes=buffer.json_bytes,
        digest=buffer.digest.digest.hexdigest() if options.digest else None,
        seconds=round(clock.seconds(), 3),
        cpu_seconds=round(clock.cpu_seconds(), 3),
        files=file_reports(options.dest, staged),
        layout=layout_of(each.size_bytes for each in staged),
    )


def _facts(report: ImportFilesReport, source: str) -> committer.CommitInfo:
    names = ("key", "format", "compression", "delimiter", "gsi", "condition", "items", "json_bytes", "digest")
    settings: dict[str, Any] = {name: getattr(report, name) for name in names}
    return committer.CommitInfo(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source={"rows": source, "import": settings},
        schema="",
        report=report.to_dict(),
    )


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
