"""Open rows to be written, in memory or in files, as record batches; change nothing about them."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from ddbio.core.arrow_input import checked_batches, record_batch_reader
from ddbio.core.batch_size import batch_bytes
from ddbio.core.exports.manifest import SUMMARY
from ddbio.core.loads.encode import RowEncoder, check_columns, raw_item_reader, takes_raw_items
from ddbio.core.loads.plan import SourceDescription
from ddbio.core.plan import spread_order
from ddbio.core.raw_items import RawItems
from ddbio.errors import DdbioError, NotFoundError, OptionError, SchemaError
from ddbio.files.claim import parse_state
from ddbio.files.commit import manifest_path
from ddbio.files.file_format import BATCH_ROWS
from ddbio.files.formats import is_row_file, is_splittable
from ddbio.files.paths import WILD, FolderColumns, folder_columns, matcher, with_columns
from ddbio.files.row_files import RowFiles
from ddbio.ops.exports.source import FileText, open_export
from ddbio.ops.job.storage import open_store
from ddbio.ops.loads.scheduler import Checkpoint
from ddbio.ops.loads.spreading import WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddbio.core.exports.manifest import ExportFile
    from ddbio.core.loads.plan import WritePlan
    from ddbio.core.raw_items import RawItemReader
    from ddbio.core.staged import StoredObject
    from ddbio.files.object_store import ObjectStore
    from ddbio.ops.exports.source import ExportSource
    from ddbio.options import ConnectionOptions, JsonFormat, SourceOptions

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any"
"""What can be written: Arrow rows, record batches, or any data frame that offers an Arrow stream."""

_FOOTERS_AT_ONCE = 16
_SAMPLE_ROWS = 1000
# Units far apart that are read at the same time, their stored bytes, and the rows that each brings in its turn.
_MOST_RUNS = 32
_OPEN_BYTES = 256 * 1024 * 1024
_TURN_ROWS = 2048
# Many more than the rows that lanes can still hold have.
_KEPT_RUNS = 100_000
# Text takes several times its stored bytes when it is read, the more so if it is compressed.
_TEXT_WEIGHT = 8
_T = TypeVar("_T")
# What jobs of ddbio name their files.
_SCANNED = re.compile(r"part-(\w+)-\d+-\d+-\d+\.")


def batches_of(data: Rows) -> Iterator[pa.RecordBatch]:
    """Yield rows of memory.

    Raises
    ------
    OptionError
        If it is nothing that holds rows.
    SchemaError
        If Arrow has no type for a column of a data frame.
    DecodeError
        If an array points outside its own memory.
    """
    yield from checked_batches(_batches_of(data))


def _batches_of(data: Rows) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__") or (hasattr(data, "iloc") and hasattr(data, "columns")):
        yield from record_batch_reader(data)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        for batch in data:
            yield from _batches_of(batch)
    elif hasattr(data, "writeTo"):
        raise OptionError("a DataFrame of Spark holds no rows here: write it as Parquet and give that folder")
    else:
        raise OptionError(f"a {type(data).__name__} holds no rows: give an Arrow table, batches, or a data frame")


@dataclass(frozen=True)
class Unit:
    """Name what is read, and found finished, as one: a file's row group or stripe, or a whole file of text."""

    number: int
    entry: StoredObject
    part: int
    size_bytes: int
    exported: ExportFile | None = None
    """What an export's manifest says of the file."""
    columns: FolderColumns = ()
    json_format: JsonFormat = "auto"
    first_row: int | None = 0
    """Rows of the file before it, or None where only reading those would tell."""


class Origins:
    """Remember which row of which file the rows of a feed were; of a feed of very many parts only the latest."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._rows = 0
        self._runs: list[tuple[int, str, int | None]] = []

    def add(self, unit: Unit, row: int, count: int) -> None:
        """Note that the next rows of the feed are these of a unit."""
        row_of_file = None if unit.first_row is None else unit.first_row + row
        first, file, file_row = self._runs[-1] if self._runs else (0, "", None)
        goes_on = file_row is not None and row_of_file == file_row + self._rows - first
        if file != unit.entry.path or not (goes_on or file_row is row_of_file is None):
            self._runs.append((self._rows, unit.entry.path, row_of_file))
            if len(self._runs) > _KEPT_RUNS:
                del self._runs[: _KEPT_RUNS // 2]
        self._rows += count

    def of(self, row: int) -> tuple[str | None, int | None]:
        """Return the file of a row of the feed, and its number in that, as far as both are known."""
        place = bisect_right(self._runs, row, key=itemgetter(0)) - 1
        if place < 0:
            return None, None
        first, file, file_row = self._runs[place]
        return f"{self._root.rstrip('/')}/{file}", None if file_row is None else file_row + row - first


@dataclass(frozen=True)
class FileSource:
    """Hold the files of a source, and the units they consist of in the order of their rows; picklable.

    ``rows`` is None where only reading would tell, ``export`` where the files are no native export's.
    """

    store: ObjectStore
    files: tuple[StoredObject, ...]
    units: tuple[Unit, ...]
    rows: int | None
    export: ExportSource | None = None


def open_source(options: SourceOptions, keys: Mapping[str, str]) -> FileSource:
    """Return the files of a file, a folder or a glob, in the order of their names; their footers are read.

    The files of a native export's folder are those that its verified manifests name.

    Parameters
    ----------
    keys
        Key attributes and their types, which columns of folders have too.

    Raises
    ------
    NotFoundError
        If no such file holds rows.
    ExportIncompleteError
        If an export has not completed, or not all of it is there.
    OptionError
        If an export holds no items in DynamoDB JSON, or folders called ``name=value`` are to be refused.
    DecodeError
        If one is not of the format that its name tells.
    """
    source = options.source
    if _is_export(source, options):
        return _of_export(open_export(source, options))
    store, files = _find(source, options)
    if not files and "://" not in source and not any(sign in source for sign in WILD) and not Path(source).exists():
        raise NotFoundError(f"{source} does not exist: name a file, a folder, a glob, or s3://bucket/prefix")
    if not files:
        raise NotFoundError(
            f"{source} holds no file of rows: their names end in .parquet, .orc, .json, .jsonl, .ndjson, .csv, .arrow, "
            ".feather or .ipc, of text also in .gz or .zst, and empty files are passed over"
        )
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="ddbio-footer") as pool:
        parted = list(pool.map(lambda entry: RowFiles(store).parts(entry), files))
    columns = _columns_of_folders(files, options, keys)
    places = [
        (entry, part, size, None, columns[entry.path], options.json_format, first_row)
        for entry, parts in zip(files, parted, strict=True)
        for part, (size, first_row) in enumerate(zip(parts.sizes_bytes, parts.first_rows, strict=True))
    ]
    units = tuple(Unit(number, *place) for number, place in enumerate(places))
    known = [parts.rows for parts in parted if parts.rows is not None]
    return FileSource(store, tuple(files), units, sum(known) if len(known) == len(files) else None)


def is_one_scan(source: FileSource, key_types: Iterable[tuple[str, str]]) -> bool:
    """Return whether all files are of one scan of a table with this very key: then each key occurs once.

    A manifest that does not say so, or cannot be read, proves nothing.
    """
    jobs = {match[1] if (match := _SCANNED.match(entry.path)) else None for entry in source.files}
    job_id = jobs.pop()
    if jobs or job_id is None:
        return False
    path = manifest_path(job_id)
    try:
        stated = parse_state(source.store.read(path), path)
        origin, files = stated["source"], {(each["path"], each["bytes"]) for each in stated["files"]}
        found = (origin["key"], origin["index"])
    except (DdbioError, KeyError, TypeError):
        return False
    return found == (dict(key_types), None) and files.issuperset(
        (entry.path, entry.size_bytes) for entry in source.files
    )


def _is_export(source: str, options: ConnectionOptions) -> bool:
    if any(sign in source for sign in WILD) or is_row_file(source.rpartition("/")[2]):
        return False
    return any(each.path == f"{SUMMARY}.json" for each in open_store(source, options).list(SUMMARY))


def _of_export(export: ExportSource) -> FileSource:
    told = export.summary
    if told.kind != "full" or told.encoding != "json":
        what = "an incremental export, whose changes are no rows" if told.kind != "full" else "an export in Ion"
        raise OptionError(f"{export.folder} is {what}: make rows of it by 'ddbio export read', and load these")
    export.sizes()
    listed = {entry.path: entry for entry in export.store.list("data/")}
    found = sorted(((listed[export.path(file)], file) for file in export.files if file.items), key=_path_of)
    if not found:
        raise NotFoundError(f"{export.folder} is an export without items")
    units = (Unit(number, entry, 0, entry.size_bytes, file) for number, (entry, file) in enumerate(found))
    rows = sum(file.items for _, file in found)
    slim = replace(export, files=())
    return FileSource(export.store, tuple(entry for entry, _ in found), tuple(units), rows, slim)


def _path_of(found: tuple[StoredObject, ExportFile]) -> str:
    return found[0].path


def _columns_of_folders(
    files: Sequence[StoredObject], options: SourceOptions, keys: Mapping[str, str]
) -> dict[str, FolderColumns]:
    columns = folder_columns((entry.path for entry in files), keys)
    if options.hive_partitions == "ignore":
        return dict.fromkeys(columns, ())
    for path, each in columns.items():
        if each and options.hive_partitions == "refuse":
            raise OptionError(
                f"{path} lies in folders that say {', '.join(name for name, *_ in each)}: they are refused"
            )
    return columns


def describe_source(source: FileSource, plan: WritePlan) -> SourceDescription:
    """Return what a source holds, by its footers and a sample of its largest file.

    Raises
    ------
    SchemaError
        If the rows of the sample cannot be written as the plan says.
    DecodeError
        If the file is not of the format that its name tells.
    """
    files, largest = RowFiles(source.store, dict(plan.key_types)), max(source.units, key=_file_bytes, default=None)
    sample = None if largest is None else files.sample(largest.entry, _SAMPLE_ROWS, largest.json_format)
    rows, units, columns = source.rows, None, list[str]()
    if largest is not None and sample is not None and sample.batch.num_rows:
        batch = with_columns(sample.batch, largest.columns)
        _check(largest.entry, batch, plan)
        encoded = RowEncoder(batch.schema, plan).encode(batch)
        units = sum(float(lane.units.sum()) for lane in encoded.lanes) / batch.num_rows
        columns = batch.schema.names
        if rows is None and sample.row_bytes:
            rows = round(sum(entry.size_bytes for entry in source.files) / sample.row_bytes)
    size_bytes = sum(unit.size_bytes for unit in source.units)
    exact = source.rows is not None
    return SourceDescription(len(source.files), len(source.units), size_bytes, rows, exact, units, tuple(columns))


def unit_batches(  # noqa: PLR0913 - what is read, and what is noted of it
    store: ObjectStore,
    units: Sequence[Unit],
    plan: WritePlan,
    finished: Callable[[int, int], None],
    *,
    any_order: bool = False,
    export: ExportSource | None = None,
    origins: Origins | None = None,
) -> Iterator[pa.RecordBatch | RawItems | Checkpoint]:
    """Yield the rows of some units, and after each unit's rows a checkpoint.

    Parameters
    ----------
    finished
        Called with a unit's number, and that of its rows, when its checkpoint is reached.
    any_order
        Whether rows need not come in the order of the source: units far apart are then read at the same time.
    export
        The export whose files the units are; their MD5 and their counts are verified.
    origins
        Notes where the rows come from.

    Raises
    ------
    NotFoundError, DecodeError
        If a file is gone, or not of the format that its name tells.
    SchemaError
        If no row of a file could be written.
    """
    runs = runs_apart(units) if any_order else [units]
    batch_rows = BATCH_ROWS if len(runs) == 1 else _TURN_ROWS

    def read(run: Sequence[Unit]) -> Iterator[tuple[Unit, int, pa.RecordBatch | RawItems | Checkpoint]]:
        # Each keeps the file that it reads open.
        files, reader = RowFiles(store, dict(plan.key_types)), raw_item_reader(plan) if takes_raw_items(plan) else None
        for unit in run:
            rows = 0
            found = _rows_of_unit(files, unit, plan, reader, batch_rows)
            if export is not None and unit.exported is not None and reader is not None:
                found = _exported_items(FileText(export, unit.exported), reader)
            for batch in found:
                for part in _turns(batch, len(runs)):
                    yield unit, rows, part
                    rows += part.num_rows
            yield unit, rows, Checkpoint(partial(finished, unit.number, rows))

    for unit, row, each in _in_turn([read(runs[place]) for place in spread_order(len(runs))]):
        if origins is not None and not isinstance(each, Checkpoint):
            origins.add(unit, row, each.num_rows)
        yield each


def runs_apart(units: Sequence[Unit]) -> list[Sequence[Unit]]:
    """Return units as runs of neighbours of about the same size, as many as can be read at the same time."""
    heaviest = max((_weight(unit) for unit in units), default=1)
    count = max(1, min(_MOST_RUNS, len(units), _OPEN_BYTES // max(1, heaviest)))
    ends = np.cumsum([0, *(unit.size_bytes for unit in units)])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count)
    places = [0, *map(int, cuts), len(units)]
    return [units[first:stop] for first, stop in itertools.pairwise(places) if first < stop] or [units]


def _weight(unit: Unit) -> int:
    """Return about what is held in memory while a unit is read: of files of text all rows."""
    return unit.size_bytes if is_splittable(unit.entry.path) else _TEXT_WEIGHT * unit.size_bytes


def _turns(batch: pa.RecordBatch | RawItems, runs: int) -> Iterator[pa.RecordBatch | RawItems]:
    """Yield the rows of a batch in parts of which a window holds two of each run, however large rows are."""
    if runs == 1 or isinstance(batch, RawItems):
        yield batch
        return
    step = max(1, batch.num_rows * WINDOW_BYTES // (2 * runs * max(1, batch_bytes(batch))))
    yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


def _in_turn(feeds: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """Yield what several bring, one of each in turn until all have ended."""
    waiting = deque(feeds)
    while waiting:
        feed = waiting.popleft()
        for each in feed:
            yield each
            waiting.append(feed)
            break


def _exported_items(text: FileText, reader: RawItemReader) -> Iterator[RawItems]:
    rows = 0
    with text.blocks() as blocks:
        for items in reader.read_blocks(blocks, "export"):
            rows += len(items)
            yield items
    text.rows = rows
    text.verify()


def columns_of_unit(
    files: RowFiles, unit: Unit, plan: WritePlan, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one unit as columns; see ``unit_batches``."""
    for number, batch in enumerate(read_unit(files, unit, batch_rows)):
        if not number:
            _check(unit.entry, batch, plan)
        yield batch


def _rows_of_unit(
    files: RowFiles, unit: Unit, plan: WritePlan, reader: RawItemReader | None, batch_rows: int
) -> Iterator[pa.RecordBatch | RawItems]:
    # Items that stay the text they are have no place for the columns of folders.
    if reader is None or unit.columns or is_splittable(unit.entry.path):
        yield from columns_of_unit(files, unit, plan, batch_rows)
        return
    for number, batch in enumerate(files.read_raw(unit.entry, unit.part, reader, unit.json_format)):
        if not number and isinstance(batch, pa.RecordBatch):
            _check(unit.entry, batch, plan)
        yield batch


def read_unit(files: RowFiles, unit: Unit, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one unit, with the columns that its folders stand for, whatever they are."""
    for batch in files.read(unit.entry, unit.part, unit.json_format, batch_rows):
        yield with_columns(batch, unit.columns)


def _file_bytes(unit: Unit) -> int:
    return unit.entry.size_bytes


def _check(entry: StoredObject, batch: pa.RecordBatch, plan: WritePlan) -> None:
    try:
        check_columns(batch.schema, plan)
    except SchemaError as error:
        raise SchemaError(f"{entry.path}: {error}") from None


def _find(source: str, options: ConnectionOptions) -> tuple[ObjectStore, list[StoredObject]]:
    folder, _, last = source.rpartition("/")
    root = "/" if source.startswith("/") else "."
    if any(sign in source for sign in WILD):
        fixed = source[: min(source.find(sign) for sign in WILD if sign in source)].rpartition("/")[0]
        store = open_store(fixed or root, options)
        pattern = matcher(source.removeprefix(fixed).lstrip("/"))
        found = [entry for entry in store.list() if pattern.fullmatch(entry.path)]
        if found:
            return store, _with_rows(found)
    # A name with such signs may be meant as it is; and Spark writes folders that are named like files.
    if is_row_file(last):
        store = open_store(folder or root, options)
        found = [entry for entry in store.list(last) if entry.path == last]
        if found:
            return store, _with_rows(found)
    store = open_store(source, options)
    return store, _with_rows(store.list())


def _with_rows(found: Iterable[StoredObject]) -> list[StoredObject]:
    return sorted((each for each in found if each.size_bytes and is_row_file(each.path)), key=attrgetter("path"))
