"""Files for the service's import, written from rows as DynamoDB JSON, Ion or CSV: checked, each key once, shuffled."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import logging
import os
import secrets
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ddbio.aws.control_plane import describe_table, parse_table_description
from ddbio.budget.job_limits import check_estimate
from ddbio.commit.contents import require_target
from ddbio.errors import EncodeError, OptionError
from ddbio.export.imports import FOLDER
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.registry import is_splittable
from ddbio.formats.row_files import RowFiles
from ddbio.formats.text_writers import ImportObjectWriter, LineBuffer, LineCounter
from ddbio.items.batch_size import batch_bytes
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.encode import EncodeOptions, Encoder, Refusal
from ddbio.items.ion import OPENING, to_ion_lines
from ddbio.items.ion_values import ion_to_json_lines
from ddbio.items.item_key import Fingerprints, KeySet, key_fingerprints
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.arrays import take_rows
from ddbio.items.kernel.encode.encoder import PIECE_BYTES
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.create_table import format_key, index_keys, parse_key
from ddbio.jobs.estimate import (
    ARROW_RATIO,
    LINES_SPEED,
    PROCESSORS,
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
from ddbio.jobs.staging import target_of
from ddbio.jobs.stores import open_store, protect_sources
from ddbio.load.options import ImportFilesOptions
from ddbio.load.requests import ItemEncoder, RowTexts, absent_condition, joined_texts
from ddbio.load.sources import batches_of, open_source
from ddbio.load.unit_reader import read_unit
from ddbio.options.locations import local_path
from ddbio.runner.files_job import FilesJob, StagedFiles
from ddbio.storage.object_store import aborted_on_error
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ddbio.aws.table_description import IndexKey

    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Offsets: TypeAlias = npt.NDArray[np.int64]

    from ddbio.jobs.engine import Engine
    from ddbio.jobs.estimate import Figures
    from ddbio.load.options import ImportFilesFromOptions
    from ddbio.load.sources import FileSource, Rows
    from ddbio.storage.staged import StagedFile, StoredObject

    Key: TypeAlias = tuple[tuple[str, str], ...]

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CsvOptions.html
MAX_COLUMNS = 255
_NAME_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - {'"', ","}
_NEWLINE = ord("\n")
_WRITTEN_BY_TAG = {"S": "text", "N": "numbers"}


@dataclass(frozen=True)
class LineFormat:
    """Format of a line, and the checks of its item.

    Attributes
    ----------
    key
        Names and types of the key, the partition key first.
    format
        ``dynamodb_json``, ``ion`` or ``csv``.
    index_keys
        Keys of indexes. An item may lack their attributes. If it has one, its type and size must be valid.
    if_absent, newer_by
        The condition of each line: no item with its key exists, or only one whose attribute ``newer_by`` is smaller.
    delimiter, csv_strings
        Settings of CSV: its delimiter, and whether numbers, booleans and dates that are in no key are converted to
        text.
    """

    key: tuple[tuple[str, str], ...]
    format: str = "dynamodb_json"
    index_keys: tuple[IndexKey, ...] = ()
    if_absent: bool = False
    newer_by: str | None = None
    delimiter: str = ","
    csv_strings: bool = False

    @property
    def condition(self) -> dict[str, object]:
        """Return the members with the condition. They are the same in each line."""
        if not self.if_absent and self.newer_by is None:
            return {}
        return absent_condition(self.key[0][0], self.newer_by)

    @property
    def tags(self) -> dict[str, str]:
        """Return the types of the attributes of all keys."""
        return {**{key.name: key.tag for key in self.index_keys}, **dict(self.key)}

    def item_of(self, line: bytes, header: bytes) -> dict[str, Any]:
        """Return the item of a line."""
        if self.format == "csv":
            names, values = csv.reader([header.decode(), line.decode()], delimiter=self.delimiter)
            return {name: {self.tags.get(name, "S"): value} for name, value in zip(names, values, strict=True)}
        item: dict[str, Any] = json.loads(ion_to_json_lines(line) if self.format == "ion" else line)["Item"]
        return item


@dataclass(frozen=True)
class EncodedLines:
    """Lines of a batch in one buffer. Valid until the next batch is encoded.

    Attributes
    ----------
    items
        The rows as they will be in the table: CSV changes types.
    """

    items: pa.RecordBatch
    text: Bytes
    offsets: Offsets
    refusals: Sequence[Refusal]


LineEncoder: TypeAlias = "_PlainLineEncoder | _ComparingLineEncoder | _CsvLineEncoder"
"""Encoder of batches of one schema as lines, with the first bytes of each object. An instance belongs to one thread."""


def line_encoder(schema: pa.Schema, line_format: LineFormat) -> LineEncoder:
    """Return the encoder for rows of a schema.

    Raises
    ------
    OptionError
        If the rows lack the column ``newer_by``, or have a column that CSV does not support.
    """
    if line_format.format == "csv":
        return _CsvLineEncoder(schema, line_format)
    if line_format.newer_by is None:
        return _PlainLineEncoder(schema, line_format)
    if line_format.newer_by not in schema.names:
        raise OptionError(f"newer_by: the rows have no column {line_format.newer_by!r}, but {', '.join(schema.names)}")
    return _ComparingLineEncoder(schema, line_format, line_format.newer_by)


class _PlainLineEncoder:
    """Encoder of rows as lines of DynamoDB JSON or Ion."""

    header = b""

    def __init__(self, schema: pa.Schema, line_format: LineFormat) -> None:
        self._encoder = Encoder(
            schema, keys=dict(line_format.key), options=EncodeOptions(index_keys=line_format.index_keys)
        )
        self._is_ion = line_format.format == "ion"
        self._edges = (OPENING, b"}\n") if self._is_ion else _edges(line_format)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        prefix, suffix = self._edges
        encoded = self._encoder.encode_view(rows, prefix=prefix, suffix=suffix)
        if not self._is_ion:
            return EncodedLines(rows, encoded.buffer, encoded.offsets, encoded.refusals)
        text = np.frombuffer(to_ion_lines(encoded.buffer.tobytes()), np.uint8)
        return EncodedLines(rows, text, line_offsets(text), encoded.refusals)


class _ComparingLineEncoder:
    """Encoder that adds the value of ``newer_by`` to each line, which its condition compares."""

    header = b""

    def __init__(self, schema: pa.Schema, line_format: LineFormat, newer_by: str) -> None:
        self._parts = ItemEncoder(schema, schema.names, dict(line_format.key), newer_by, line_format.index_keys)
        self._edges = _edges(line_format)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        encoded, everywhere = self._parts.encode(rows), np.ones(rows.num_rows, np.bool_)
        prefix, suffix = (RowTexts.where(everywhere, edge) for edge in self._edges)
        return EncodedLines(rows, *joined_texts([prefix, encoded.row_texts, suffix]), encoded.refusals)


def _edges(line_format: LineFormat) -> tuple[bytes, bytes]:
    """Return the text before and after an item."""
    members = compact_json(line_format.condition)[1:-1]
    return b'{"Item":', f"{members and ','}{members}}}\n".encode()


class _CsvLineEncoder:
    """Encoder of rows as lines of CSV. The service converts them to items that may have other types."""

    def __init__(self, schema: pa.Schema, line_format: LineFormat) -> None:
        names, delimiter = [name_of_field(field) for field in schema], line_format.delimiter
        if len(names) > MAX_COLUMNS:
            raise OptionError(f"CSV for an import has at most {MAX_COLUMNS} columns, the rows have {len(names)}")
        for name in names:
            if not name or not _NAME_CHARACTERS.issuperset(name) or delimiter in name or name == RESCUE_NAME:
                raise OptionError(f"column {name!r} cannot be in the header of CSV: use dynamodb_json")
        tags, as_text = line_format.tags, line_format.csv_strings
        self._schema = pa.schema(
            [
                pa.field(name, _type(name, field.type, tags.get(name), as_text=as_text))
                for name, field in zip(names, schema, strict=True)
            ]
        )
        self.header = f"{delimiter.join(names)}\n".encode()
        self._options = pyarrow.csv.WriteOptions(include_header=False, delimiter=delimiter)
        options = EncodeOptions(index_keys=line_format.index_keys)
        self._encoder = Encoder(self._schema, keys=dict(line_format.key), options=options)

    def encode(self, rows: pa.RecordBatch) -> EncodedLines:
        columns: list[Any] = [
            column if column.type.equals(field.type) else pc.cast(column, field.type)
            for column, field in zip(rows.columns, self._schema, strict=True)
        ]
        items = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        # Only the encoder knows which items DynamoDB accepts. Its text is not used.
        refusals = (*self._encoder.encode_view(items).refusals, *sorted(_refusals(items), key=attrgetter("row")))
        sink = io.BytesIO()
        pyarrow.csv.write_csv(items, sink, self._options)
        text = np.frombuffer(sink.getbuffer(), np.uint8)
        return EncodedLines(items, text, line_offsets(text), refusals)


def line_offsets(text: Bytes) -> Offsets:
    """Return the offset of each line of a text, and the end of the last one."""
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(text == _NEWLINE) + 1])


def _type(name: str, kind: pa.DataType, tag: str | None, *, as_text: bool) -> pa.DataType:
    is_text = _is_text(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if tag is not None:
        if tag not in _WRITTEN_BY_TAG or not (is_text if tag == "S" else is_number):
            expected = _WRITTEN_BY_TAG.get(tag, "in no CSV")
            raise OptionError(f"key {name!r} of type {tag} is {expected}, but the column is {kind}: use dynamodb_json")
        return pa.string() if is_text else kind
    if is_text or (as_text and (is_number or pa.types.is_boolean(kind) or pa.types.is_date(kind))):
        return pa.string()
    ways = "csv_strings writes numbers, booleans and dates as text" if not as_text else "make it text first"
    raise OptionError(f"column {name!r} of {kind} would be text in the table: {ways}, dynamodb_json keeps its type")


def _is_text(kind: pa.DataType) -> bool:
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value)


def _refusals(items: pa.RecordBatch) -> Iterator[Refusal]:
    """Yield, for each column, the first row without a value or with a line break in its value."""
    for name, column in zip(items.schema.names, items.columns, strict=True):
        wrong: Any = pc.is_null(column)
        rule, what = "csv_null", "it is null, and CSV cannot leave an attribute out: use dynamodb_json"
        if not column.null_count and pa.types.is_string(column.type):
            wrong = pc.match_substring_regex(column, "[\r\n]")
            rule, what = "csv_newline", "an item of CSV is one line, and this has more: use dynamodb_json"
        row = pc.index(wrong, pa.scalar(value=True)).as_py()
        if row >= 0:
            yield Refusal(row, name, rule, f"row {row}: {name}: {what}")


_ENDINGS = {"dynamodb_json": "json", "ion": "ion", "csv": "csv"}


@dataclass(frozen=True)
class ImportFilesPlan(EstimatedPlan):
    """Plan for writing the rows of files as files for an import.

    Attributes
    ----------
    source, dest
        The files and the target as given.
    files, rows
        The files to read, and the number of their rows if all files have it.
    json_bytes
        The approximate size of the text before compression.
    estimate
        The time and cost. Columnar files are assumed to have three times their size as Arrow data.
    files_skipped
        Paths of files that are left out, since their names are not those of data files.
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
    """Result of writing files for an import. Rows in memory have no plan.

    Attributes
    ----------
    dest, uri
        The target as given, and the prefix to import.
    key
        The key for which every item was checked.
    format, compression, delimiter
        Parameters for the import request.
    gsi
        Indexes for whose keys every item was checked.
    condition
        Condition of each item. Only a bulk put evaluates it.
    rows, items, duplicates
        Rows read, items written, and rows left out because another row has the same key.
    json_bytes
        Bytes of text before compression. AWS bills an import by them.
    digest
        Digest of the items, if requested.
    files
        The files that were written.
    files_skipped
        Paths of files that were left out, since their names are not those of data files.
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
    """Write rows as files for the service's own import of a new table. They become visible together, or not at all.

    Parameters
    ----------
    source
        A string or a path is a file, folder or glob. Anything else is rows, as for :func:`write_table`.

    Raises
    ------
    NotFoundError, DecodeError
        If the file does not exist, or its format is not that of its name.
    EncodeError
        If a row is not a valid item, or has the key of another row.
    DdbioError
        After any error, the target has no new visible file.
    """
    if isinstance(source, str | os.PathLike):
        return write_files(options)
    of_rows = {field.name for field in dataclasses.fields(ImportFilesOptions)} | {"source"}
    for field in dataclasses.fields(options):
        if field.name not in of_rows and getattr(options, field.name) != field.default:
            raise OptionError(f"{field.name} is for files: leave it out for rows in memory")
    return _ImportJob(options, source).run()


def write_files(options: ImportFilesFromOptions) -> ImportFilesReport:
    """Write the rows of files as files for an import; see :func:`write`.

    Raises
    ------
    NotFoundError, DecodeError
        If the file does not exist, or its format is not that of its name.
    """
    return _ImportJob(options).run()


def plan_of(options: ImportFilesFromOptions) -> ImportFilesPlan:
    """Return the time and cost of :func:`write_import_files`, from the list of the files alone.

    Raises
    ------
    NotFoundError, DecodeError
        If the file does not exist, or its format is not that of its name.
    LimitError
        If the plan is above a limit.
    """
    return _plan(open_source(options, dict(key_of(options)), options.timestamps), options)


def _plan(source: FileSource, options: ImportFilesFromOptions) -> ImportFilesPlan:
    read_bytes = sum(file.size_bytes for file in source.files)
    text = round(sum(file.size_bytes * _text_ratio(file) for file in source.files))
    seconds = START_SECONDS + text / LINES_SPEED
    objects = max(1, -(-text // options.target_file_bytes))
    written = output_parts(options.dest, objects, text / TEXT_RATIOS[options.compression])
    parts = [*input_parts(options.source, len(source.files)), *written]
    cost = prices_of(options.region, options.prices).cost([*parts, *compute_parts(options.compute, seconds)])
    estimate = Estimate(0.0, s3_requests(parts), read_bytes, seconds, PROCESSORS, cost)
    check_estimate(options, estimate)
    return ImportFilesPlan(options.source, options.dest, len(source.files), source.rows, text, estimate, source.skipped)


def _text_ratio(file: StoredObject) -> float:
    """Return the approximate ratio between the text of a file's items and the size of the file."""
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
        If a row is not a valid item, or has the key of another row.
    DdbioError
        Any other error.
    """
    return _ImportJob(options).check()


def key_of(options: ImportFilesOptions) -> Key:
    """Return the key for which the items are checked: the given one, or that of the table ``like``.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        If the text is not a key, or the table cannot be described.
    """
    if options.key is not None:
        return parse_key(options.key)
    like = options.like or ""
    if not like.endswith(".json"):
        return describe_table(dynamodb_spec(options), like).key_types
    try:
        return parse_table_description(json.loads(local_path(like).read_text("utf-8"))).key_types
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"like: {like} is not a response of DescribeTable ({error!r})") from None


def _unit_batches(source: FileSource, key: Key, duplicates: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows.

    They are reversed if the last of equal keys is kept, and units are shuffled if equal keys are an error.
    """
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
    """Job that writes rows as files for an import, one after the other.

    Each row is compared with all keys before it.
    """

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
        """Open the rows, and plan the job. Return the files that have the rows."""
        options = self.options
        self.key = key_of(options)
        if self._data is None:
            file_options = cast("ImportFilesFromOptions", options)
            source = open_source(file_options, dict(self.key), file_options.timestamps)
            self.plan, self.batches = (
                _plan(source, file_options),
                _unit_batches(source, self.key, file_options.duplicates),
            )
            return [f"{source.store.uri}/{file.path}" for file in source.files]
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
        with aborted_on_error(writer):
            self._collect(writer)
            return [StagedFiles(writer.finish())]

    def _collect(self, writer: ImportObjectWriter | LineCounter) -> None:
        """Pass the rows to a writer. Raises if the time limit of the job is reached."""
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
            # For rows in memory, nothing is known before they are written.
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
    """Collection of encoded lines until they fill an object. Lines with new keys are then passed to the writer."""

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
        """Encode rows. Raises for the first invalid item."""
        # Slices just below the size that the encoder writes in one piece need no joining, and an object ends near its
        # target size.
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
        for known_schema, encoder in self._encoders:
            if known_schema.equals(schema):
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
