"""Reading of a source's units: a sample for the plan, the columns of text, then all rows with checkpoints.

If rows may be written in any order, distant units of the source are read in rotation. Adjacent rows of a scanned table
belong to one partition, and writing them together would be limited to that partition's rate.
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ddbio.errors import OptionError, SchemaError
from ddbio.formats.file_format import BATCH_ROWS, TextLayout
from ddbio.formats.registry import format_of, is_splittable, is_text
from ddbio.formats.row_files import RowFiles
from ddbio.formats.row_lines import RowLines
from ddbio.formats.text_ranges import byte_ranges, count_csv, csv_starts
from ddbio.formats.text_reader import PIECE_BYTES
from ddbio.items.batch_size import value_bytes
from ddbio.items.index_units import frequent_index_keys, mean_index_units
from ddbio.items.raw_items import RawItems
from ddbio.items.schema.arrow import tag_of_field
from ddbio.items.schema.declare import declared_fields
from ddbio.items.time_columns import StoredRows
from ddbio.items.vector_bytes import mean_vector_bytes
from ddbio.load.checkpoint import Checkpoint
from ddbio.load.encode import RowEncoder, raw_item_reader, takes_raw_items
from ddbio.load.plan import SourceDescription
from ddbio.load.sources import check_file, read_options
from ddbio.load.spreading import WINDOW_BYTES
from ddbio.scan.plan import spread_order
from ddbio.sources.export_source import FileText
from ddbio.storage.checksums import checked
from ddbio.storage.paths import with_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ddbio.aws.table_description import IndexDescription, VectorIndexDescription
    from ddbio.budget import Budget, LocalBudget
    from ddbio.formats.file_format import Sample, TextRows, TextStart
    from ddbio.formats.text_ranges import CsvCount
    from ddbio.items.raw_items import RawItemReader
    from ddbio.jobs.engine import Engine
    from ddbio.load.options import LoadOptions
    from ddbio.load.plan import WritePlan
    from ddbio.load.sources import FileSource, Unit
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore

_LOG = logging.getLogger("ddbio.load")
_SAMPLE_ROWS = 1000
# Streams of units that are read in rotation, their stored bytes, and the rows that each yields in its turn.
_MAX_STREAMS = 32
_OPEN_BYTES = 256 * 1024 * 1024
_STREAM_ROWS = 2048
_CELL_BYTES = 8
# The number of rows between two checkpoints of a text file.
_CHECKPOINT_ROWS = 4096
# Text takes several times its stored size when it is read, especially if it is compressed.
_TEXT_WEIGHT = 8
# Far more than the lanes can have unfinished.
_RETAINED_RANGES = 100_000
_RETAINED_FILES = 1000
_RETAINED_ROWS = 1 << 22
_T = TypeVar("_T")


def describe_source(
    source: FileSource,
    plan: WritePlan,
    indexes: Sequence[IndexDescription] = (),
    vector_indexes: Sequence[VectorIndexDescription] = (),
) -> SourceDescription:
    """Describe a source by its footers and a sample of its largest file.

    Raises
    ------
    SchemaError
        If the rows of the sample cannot be written as planned.
    DecodeError
        If the format of the file is not that of its name.
    """
    files = RowFiles(source.store, read_options(plan, source.types, source.null_values))
    largest = max(source.units, key=attrgetter("entry.size_bytes"), default=None)
    sample = None if largest is None else _sample(files, largest)
    rows, units, columns, index_units = source.rows, None, list[str](), dict[str, float]()
    index_keys: tuple[tuple[str, tuple[float, ...]], ...] = ()
    vector_bytes: dict[str, float] = {}
    if largest is not None and sample is not None and sample.batch.num_rows:
        batch = StoredRows(largest.forms).convert(with_columns(sample.batch, largest.columns))
        check_file(largest.entry, batch.schema, plan)
        encoded = RowEncoder(batch.schema, plan).encode(batch)
        units = sum(float(lane.units.sum()) for lane in encoded.lanes) / batch.num_rows
        columns = batch.schema.names
        index_units = mean_index_units(batch, dict(plan.key_types), indexes)
        index_keys = frequent_index_keys(batch, indexes)
        vector_bytes = mean_vector_bytes(batch, dict(plan.key_types), vector_indexes)
        if rows is None and sample.row_bytes:
            rows = round(sum(entry.size_bytes for entry in source.files) / sample.row_bytes)
    size_bytes = sum(unit.size_bytes for unit in source.units)
    exact = source.rows is not None
    return SourceDescription(
        files=len(source.files),
        units=len(source.units),
        size_bytes=size_bytes,
        rows=rows,
        exact=exact,
        row_units=units,
        columns=tuple(columns),
        index_units=tuple(index_units.items()),
        index_keys=index_keys,
        vector_bytes=tuple(vector_bytes.items()),
        files_skipped=source.skipped,
    )


def _sample(files: RowFiles, unit: Unit) -> Sample | None:
    return files.sample(unit.entry, _SAMPLE_ROWS, unit.json_format, unit.schema)


def read_unit(files: RowFiles, unit: Unit, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a unit, with the columns of its folders. Times are the text or numbers to write."""
    stored = StoredRows(unit.forms)
    for batch in files.read(unit.entry, unit.part, unit.json_format, batch_rows, unit.schema):
        yield stored.convert(with_columns(batch, unit.columns))


@dataclass(frozen=True)
class UnitReader:
    """Reader of units for a write.

    Attributes
    ----------
    export
        The export that the units belong to. The MD5 and the item counts of its files are verified.
    types
        Declared columns of text.
    texts
        Layouts of text files that were determined before their rows are read.
    null_values
        The words of CSV that are missing values.
    """

    store: ObjectStore
    plan: WritePlan
    export: ExportSource | None = None
    types: Mapping[str, pa.Field[Any]] = field(default_factory=dict)
    texts: Mapping[str, TextLayout] = field(default_factory=dict)
    null_values: tuple[str, ...] | None = None

    def read(
        self,
        units: Sequence[Unit],
        finished: Callable[[int, int], None],
        *,
        any_order: bool = False,
        origins: RowOrigins | None = None,
        within: WithinUnits | None = None,
    ) -> Iterator[pa.RecordBatch | RawItems | Checkpoint]:
        """Yield the rows of some units, and a checkpoint after each.

        Files that are one unit also have checkpoints between rows.

        Parameters
        ----------
        finished
            Called with the number of a unit and of its rows when its checkpoint is reached.
        any_order
            Whether rows may be yielded in any order. Units are then read in rotation.
        origins
            Records the origins of the rows.
        within
            Progress within unfinished units, and a callback for more. By default there is neither.

        Raises
        ------
        NotFoundError, DecodeError
            If a file is missing, or its format is not that of its name.
        SchemaError
            If no row of a file could be written.
        """
        streams = split_streams(units) if any_order else [units]
        batch_rows = BATCH_ROWS if len(streams) == 1 else _STREAM_ROWS
        within = within or WithinUnits({}, lambda _, __: None)

        def read(stream: Sequence[Unit]) -> Iterator[tuple[Unit, int, pa.RecordBatch | RawItems | Checkpoint]]:
            # Each stream keeps its current file open.
            files, raw_items = self.open_files(), raw_item_reader(self.plan) if takes_raw_items(self.plan) else None
            for unit in stream:
                rows = noted = within.begun.get(unit.number, 0)
                batches = self._read_unit(files, unit, raw_items, batch_rows)
                if origins is not None:
                    batches = origins.with_lines(batches, files, unit)
                for batch in _skip_rows(batches, rows):
                    for part in _slices(batch, len(streams)):
                        yield unit, rows, part
                        rows += part.num_rows
                    if rows - noted >= _CHECKPOINT_ROWS and not is_splittable(unit.entry):
                        noted = rows
                        yield unit, rows, Checkpoint(partial(within.begin, unit.number, rows))
                yield unit, rows, Checkpoint(partial(finished, unit.number, rows))

        for unit, row, element in _rotate([read(streams[index]) for index in spread_order(len(streams))]):
            if origins is not None and not isinstance(element, Checkpoint):
                origins.add(unit, row, element.num_rows)
            yield element

    def read_columns(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, int, pa.RecordBatch, BatchOrigins]]:
        """Yield the rows of units as columns: the unit, the batch's number in it, the batch, its origins."""
        files = self.open_files()
        for unit in units:
            done = 0
            for number, batch in enumerate(self._columns(files, unit, BATCH_ROWS)):
                row_origins = BatchOrigins(f"{self.store.uri.rstrip('/')}/{unit.entry.path}")
                if unit.first_row is not None:
                    row_origins.rows = unit.first_row + np.arange(done, done + batch.num_rows)
                lines = files.row_lines(unit.entry)
                row_origins.lines = None if lines is None else lines.lines_of(done, batch.num_rows)
                done += batch.num_rows
                yield unit, number, batch, row_origins

    def open_files(self) -> RowFiles:
        """Return the reader of files for one thread."""
        options = read_options(self.plan, self.types, self.null_values)
        return RowFiles(self.store, replace(options, splits_text=True), self.texts)

    def _read_unit(
        self, files: RowFiles, unit: Unit, raw_items: RawItemReader | None, batch_rows: int
    ) -> Iterator[pa.RecordBatch | RawItems]:
        if self.export is not None and unit.exported is not None and raw_items is not None:
            yield from _verified_items(FileText(self.export, unit.exported), raw_items)
            return
        # Raw items cannot include the columns of folders.
        if raw_items is None or unit.columns or is_splittable(unit.entry):
            yield from self._columns(files, unit, batch_rows)
            return
        rows = files.read_raw(unit.entry, unit.part, raw_items, unit.json_format, unit.schema)
        stored = StoredRows(unit.forms)
        for number, batch in enumerate(rows):
            if not number and isinstance(batch, pa.RecordBatch):
                check_file(unit.entry, batch.schema, self.plan)
            yield stored.convert(batch) if isinstance(batch, pa.RecordBatch) else batch

    def _columns(self, files: RowFiles, unit: Unit, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(read_unit(files, unit, batch_rows)):
            if not number:
                check_file(unit.entry, batch.schema, self.plan)
            yield batch


@dataclass(frozen=True)
class WithinUnits:
    """Progress within unfinished units, and a callback for more progress.

    Attributes
    ----------
    begun
        By unit: the number of rows, from the first on, that are written already. They are skipped.
    begin
        Called with the number of a unit and of its rows when a checkpoint within it is reached.
    """

    begun: Mapping[int, int]
    begin: Callable[[int, int], None]


def _skip_rows(batches: Iterable[pa.RecordBatch | RawItems], rows: int) -> Iterator[pa.RecordBatch | RawItems]:
    """Yield the rows after the first ones."""
    for batch in batches:
        passed = min(rows, batch.num_rows)
        rows -= passed
        if not passed:
            yield batch
        elif passed < batch.num_rows:
            # Slices of a record batch share its memory.
            yield batch.take(np.arange(passed, len(batch))) if isinstance(batch, RawItems) else batch.slice(passed)


@dataclass
class BatchOrigins:
    """Origins of the rows of a batch: the file, and the numbers of their rows and lines in it, if these are known."""

    file: str
    rows: NDArray[np.int64] | None = None
    lines: NDArray[np.int64] | None = None

    def to_metadata(self, chosen: NDArray[np.int64]) -> dict[bytes, bytes]:
        """Return the origins of some of the rows as metadata of their batch."""
        metadata = {b"ddbio.file": self.file.encode()}
        for name, numbers in ((b"ddbio.rows", self.rows), (b"ddbio.lines", self.lines)):
            if numbers is not None:
                metadata[name] = numbers[chosen].astype("<i8").tobytes()
        return metadata

    @classmethod
    def of_metadata(cls, metadata: Mapping[bytes, bytes]) -> BatchOrigins:
        """Return the origins in the metadata that ``to_metadata`` returned."""
        rows, lines = (
            np.frombuffer(metadata[name], "<i8") if name in metadata else None
            for name in (b"ddbio.rows", b"ddbio.lines")
        )
        return cls(metadata[b"ddbio.file"].decode(), rows, lines)


class ShuffledOrigins:
    """Origins of the rows of a stream of shuffled batches.

    For a very long stream only those of the latest rows are kept.
    """

    def __init__(self) -> None:
        self._rows = 0
        # First row of the stream, and the origins of rows from there on.
        self._batches: deque[tuple[int, BatchOrigins]] = deque()

    def add(self, row_origins: BatchOrigins, count: int) -> None:
        """Add the origins of the next rows of the stream."""
        self._batches.append((self._rows, row_origins))
        self._rows += count
        while self._rows - self._batches[0][0] > _RETAINED_ROWS and len(self._batches) > 1:
            self._batches.popleft()

    def of(self, row: int) -> tuple[str | None, int | None, int | None]:
        """Return the file of a row of the stream, its number in the file, and its line, as far as they are known."""
        index = bisect_right(self._batches, row, key=itemgetter(0)) - 1
        if index < 0:
            return None, None, None
        first, row_origins = self._batches[index]
        row_of_file, line = (
            None if numbers is None else int(numbers[row - first]) for numbers in (row_origins.rows, row_origins.lines)
        )
        return row_origins.file, row_of_file, line


class RowOrigins:
    """Origins of the rows of a stream in files. For a very long stream only those of the latest rows are kept."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._rows = 0
        # First row of the stream, the unit, and first row of the unit.
        self._ranges: list[tuple[int, Unit, int]] = []
        self._lines: dict[int, RowLines] = {}

    def with_lines(
        self, batches: Iterable[pa.RecordBatch | RawItems], files: RowFiles, unit: Unit
    ) -> Iterator[pa.RecordBatch | RawItems]:
        """Yield the rows of a unit, from its first one on, and record their lines of text."""
        # The reader of an export's files records no lines.
        own = RowLines()
        for batch in batches:
            lines = files.row_lines(unit.entry)
            if lines is None and isinstance(batch, RawItems):
                own.add(len(batch), batch.lines)
                lines = own
            if lines is not None:
                self._lines[unit.number] = lines
            yield batch
        if len(self._lines) > _RETAINED_FILES:
            del self._lines[next(iter(self._lines))]

    def add(self, unit: Unit, row: int, count: int) -> None:
        """Record that the next rows of the stream are those of a unit from ``row`` on."""
        first, last, unit_row = self._ranges[-1] if self._ranges else (0, None, 0)
        if last is not unit or row != unit_row + self._rows - first:
            self._ranges.append((self._rows, unit, row))
            if len(self._ranges) > _RETAINED_RANGES:
                del self._ranges[: _RETAINED_RANGES // 2]
        self._rows += count

    def of(self, row: int) -> tuple[str | None, int | None, int | None]:
        """Return the file of a row of the stream, its number in the file, and its line, as far as they are known."""
        index = bisect_right(self._ranges, row, key=itemgetter(0)) - 1
        if index < 0:
            return None, None, None
        first, unit, first_of_unit = self._ranges[index]
        file, lines = f"{self._root.rstrip('/')}/{unit.entry.path}", self._lines.get(unit.number)
        unit_row = first_of_unit + row - first
        file_row = None if unit.first_row is None else unit.first_row + unit_row
        return file, file_row, None if lines is None else lines.line_of(unit_row)


def split_streams(units: Sequence[Unit]) -> list[Sequence[Unit]]:
    """Split units into streams of about the same size, each of adjacent units. Memory limits their number."""
    heaviest = max((_weight(unit) for unit in units), default=1)
    return split_evenly(units, max(1, min(_MAX_STREAMS, _OPEN_BYTES // max(1, heaviest))))


def split_evenly(units: Sequence[Unit], most: int) -> list[Sequence[Unit]]:
    """Split units into at most ``most`` parts of about the same size, each of adjacent units."""
    count = max(1, min(most, len(units)))
    ends = np.cumsum([0, *(unit.size_bytes for unit in units)])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count)
    bounds = [0, *map(int, cuts), len(units)]
    return [units[first:stop] for first, stop in itertools.pairwise(bounds) if first < stop] or [units]


def _weight(unit: Unit) -> int:
    """Return the approximate number of bytes in memory while a unit is read."""
    if is_splittable(unit.entry):
        # Rows of many columns are sparse: their nulls take almost no space in a file.
        return unit.size_bytes + unit.width * _STREAM_ROWS * _CELL_BYTES
    return _TEXT_WEIGHT * (min(unit.size_bytes, PIECE_BYTES) if is_text(unit.entry) else unit.size_bytes)


def _slices(batch: pa.RecordBatch | RawItems, streams: int) -> Iterator[pa.RecordBatch | RawItems]:
    """Yield the rows of a batch in slices so small that a window has two of each stream."""
    if streams == 1 or isinstance(batch, RawItems):
        yield batch
        return
    step = max(1, batch.num_rows * WINDOW_BYTES // (2 * streams * max(1, value_bytes(batch))))
    yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


def _rotate(streams: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """Yield one element of each stream in turn, until all have ended."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for element in stream:
            yield element
            waiting.append(stream)
            break


def _verified_items(text: FileText, reader: RawItemReader) -> Iterator[RawItems]:
    rows = 0
    with text.blocks() as blocks:
        for items in reader.read_blocks(blocks, "export"):
            rows += len(items)
            yield items
    text.rows = rows
    text.verify()


def declared_types(options: LoadOptions, plan: WritePlan, source: FileSource) -> dict[str, pa.Field[Any]]:
    """Return the columns that the options declare, by attribute.

    Raises
    ------
    OptionError
        If no file is text.
    SchemaError
        If a type is unknown, or a key of the table has another type.
    """
    declared = declared_fields(options.schema, options.types)
    if declared and not any(is_text(entry) for entry in source.files):
        raise OptionError("schema and types are for CSV and plain JSON: other files have the types of their columns")
    for name, tag in plan.key_types:
        if name in declared and tag_of_field(declared[name]) != tag:
            raise SchemaError(
                f"{name} is a key of type {tag} of table {plan.table!r}: declare it with this type, or not at all"
            )
    return declared


def read_layouts(
    reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget
) -> dict[str, TextLayout]:
    """Return the layouts of text files, which are determined by reading them once, before their rows are read.

    A layout has the starts of records in a large CSV file. It has the columns of text that is read in parts: of all CSV
    files, and of all ranges of a plain JSON file. For a file that is read as one unit, the reader determines both
    itself.

    Raises
    ------
    DecodeError
        If a file is not such text.
    """
    texts = [(unit, text) for unit in units if (text := _text_of(unit)) is not None]
    counted = [unit for unit, text in texts if text.needs_starts and _is_range(unit)]
    starts = _starts(reader, counted, engine, budget)
    reader = replace(reader, texts={path: TextLayout(starts=starts_of_file) for path, starts_of_file in starts.items()})
    schemas: dict[str, pa.Schema | None] = {}
    with_header = [unit for unit, text in texts if text.has_header and unit.schema is None]
    if len(with_header) > 1:
        _LOG.info("determining the columns of CSV in %d units", len(with_header))
        schemas |= dict.fromkeys(
            (unit.entry.path for unit in with_header), _columns(reader, with_header, engine, budget)
        )
    ranges = [unit for unit, text in texts if not text.has_header and unit.schema is None and _is_range(unit)]
    for path, group in itertools.groupby(ranges, attrgetter("entry.path")):
        parts = list(group)
        # Raw items need no columns, and DynamoDB JSON has its types.
        if not reader.open_files().is_split_items(parts[0].entry, parts[0].json_format):
            _LOG.info("determining the columns of %s in %d ranges", path, len(parts))
            schemas[path] = _columns(reader, parts, engine, budget)
    return {path: TextLayout(schemas.get(path), starts.get(path, ())) for path in {**starts, **schemas}}


def _text_of(unit: Unit) -> type[TextRows] | None:
    text_format = format_of(unit.entry)
    return None if text_format is None or unit.exported is not None else text_format.text_rows


def _is_range(unit: Unit) -> bool:
    return unit.size_bytes < unit.entry.size_bytes


@dataclass(frozen=True)
class _UnitsTask:
    reader: UnitReader
    units: Sequence[Unit]


def _columns(reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget) -> pa.Schema | None:
    """Return columns for the rows of all units, which are of one format."""
    tasks = [_UnitsTask(reader, part) for part in split_evenly(units, engine.parallelism)]
    return _joined(units, engine.run(_columns_of_units, tasks, budget))


def _columns_of_units(task: _UnitsTask, budget: Budget) -> pa.Schema | None:
    del budget
    files = task.reader.open_files()
    columns = (files.columns_of_text(unit.entry, unit.part, unit.json_format) for unit in task.units)
    return _joined(task.units, columns)


def _joined(units: Sequence[Unit], columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
    text = _text_of(units[0])
    return None if text is None else text.joined(columns)


def _starts(
    reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget
) -> dict[str, tuple[TextStart, ...]]:
    """Return the starts of records in each range of CSV."""
    if not units:
        return {}
    tasks = [_UnitsTask(reader, part) for part in split_evenly(units, engine.parallelism)]
    counts = itertools.chain.from_iterable(engine.run(_count_units, tasks, budget))
    counted = zip(units, counts, strict=True)
    groups = itertools.groupby(counted, lambda pair: pair[0].entry)
    return {entry.path: csv_starts([count for _, count in group], entry.size_bytes) for entry, group in groups}


def _count_units(task: _UnitsTask, budget: Budget) -> list[CsvCount]:
    del budget
    counts: list[CsvCount] = []
    for entry, units in itertools.groupby(task.units, attrgetter("entry")):
        store, ranges = checked(task.reader.store, entry), byte_ranges(entry.size_bytes)
        counts += [count_csv(store, entry, *ranges[unit.part]) for unit in units]
    return counts
