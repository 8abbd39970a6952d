"""The rows to write: in memory, or files whose beginnings and footers are checked, and the units to read them by."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ddbio.errors import DdbioError, OptionError, SchemaError
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.registry import is_splittable, names_columns
from ddbio.formats.row_files import RowFiles
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.python_rows import python_columns, python_rows
from ddbio.items.schema.arrow import require_names
from ddbio.items.schema.declare import time_forms
from ddbio.items.time_columns import StoredRows
from ddbio.load.encode import check_columns
from ddbio.sources.data_files import find_data, require_items
from ddbio.storage.meta import manifest_path, read_state
from ddbio.storage.paths import with_columns
from ddbio.storage.staged import job_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ddbio.formats.export_manifest import ExportFile
    from ddbio.formats.file_format import Parts
    from ddbio.items.schema.times import TimeForm
    from ddbio.load.options import JsonFormat, SourceOptions
    from ddbio.load.plan import WritePlan
    from ddbio.sources.data_files import DataFiles
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any"
"""What can be written: Arrow rows, any data frame that offers an Arrow stream, dictionaries of rows or of columns."""

_FOOTERS_AT_ONCE = 16
# So many dictionaries become a batch, whose columns have one type each.
_PYTHON_ROWS = 10_000


def batches_of(
    data: Rows, timestamps: Iterable[tuple[str, str]] | None = None, *, names_nulls: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield rows in memory as record batches, declared times as the text or numbers that they are written as.

    Parameters
    ----------
    timestamps
        The forms of time columns.
    names_nulls
        Whether rows that are dictionaries say which attributes are null; see ``python_rows``.

    Raises
    ------
    OptionError
        If the data holds no rows, a time has no such form, or no column has the name of a form.
    SchemaError
        If Arrow has no type for a column of a data frame, or a column cannot have its form.
    DecodeError
        If an array points outside its own memory.
    """
    forms = time_forms(timestamps)
    batches = _Batches(forms, names_nulls).of(data)
    if forms:
        first = next(batches, None)
        batches = itertools.chain([] if first is None else [first], batches)
        if first is not None:
            require_names(forms, first.schema.names, "option timestamps: the rows have no such column")
    yield from batches


@dataclass(frozen=True)
class _Batches:
    """Make batches of what holds rows, with declared times as they are written."""

    forms: Mapping[str, TimeForm | None]
    names_nulls: bool

    def of(self, data: Rows) -> Iterator[pa.RecordBatch]:
        if isinstance(data, pa.RecordBatch):
            yield from self._stored([data])
        elif isinstance(data, pa.Table):
            yield from self._stored(data.to_batches())
        elif hasattr(data, "__arrow_c_stream__") or (hasattr(data, "iloc") and hasattr(data, "columns")):
            yield from self._stored(record_batch_reader(data))
        elif isinstance(data, Mapping):
            yield from python_columns(data, self.forms).to_batches()
        elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
            yield from self._of_each(data)
        elif hasattr(data, "writeTo"):
            raise OptionError("a DataFrame of Spark holds no rows here: write it as Parquet and give that folder")
        else:
            raise OptionError(
                f"a {type(data).__name__} holds no rows: give an Arrow table, batches, a data frame, or dictionaries"
            )

    def _of_each(self, data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for is_row, group in itertools.groupby(data, lambda each: isinstance(each, Mapping)):
            if is_row:
                while rows := list(itertools.islice(group, _PYTHON_ROWS)):
                    yield from python_rows(rows, self.forms, names_nulls=self.names_nulls).to_batches()
            else:
                stored = StoredRows(self.forms)
                for batch in group:
                    # One for all batches: each schema is looked at once.
                    is_batch = isinstance(batch, pa.RecordBatch)
                    yield from map(stored.convert, checked_batches([batch])) if is_batch else self.of(batch)

    def _stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(StoredRows(self.forms).convert, checked_batches(batches))


@dataclass(frozen=True)
class Unit:
    """Describe a part of a file that is read, and finished, as a whole: a row group, a stripe, or a range of text."""

    number: int
    entry: StoredObject
    part: int
    size_bytes: int
    exported: ExportFile | None = None
    """The file's entry in the manifest of an export."""
    columns: FolderColumns = ()
    json_format: JsonFormat = "auto"
    first_row: int | None = 0
    """The number of its first row in the file, or None if that cannot be known without reading the file."""
    forms: Mapping[str, TimeForm | None] = field(default_factory=dict)
    """How time columns are written, where it is declared."""
    schema: pa.Schema | None = None
    """The columns that the file was written with, if they are known and the file does not tell them."""
    width: int = 0
    """How many columns its footer tells."""


@dataclass(frozen=True)
class FileSource:
    """Hold the files of a source, and their units in the order of the rows; picklable.

    Attributes
    ----------
    rows
        The number of rows, or None if it cannot be known without reading the files.
    export
        The native export whose files they are, if any.
    types
        The declared columns of its text, by attribute.
    kinds
        One file of each set of columns that footers tell, and these columns.
    skipped
        Paths of files that were passed over though they may hold rows.
    null_values
        The words of CSV that are missing values; None are the usual ones.
    """

    store: ObjectStore
    files: tuple[StoredObject, ...]
    units: tuple[Unit, ...]
    rows: int | None
    export: ExportSource | None = None
    types: Mapping[str, pa.Field[Any]] = field(default_factory=dict)
    kinds: Mapping[str, pa.Schema] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    null_values: tuple[str, ...] | None = None


def read_options(
    plan: WritePlan, types: Mapping[str, pa.Field[Any]], null_values: tuple[str, ...] | None
) -> ReadOptions:
    """Return how a write understands text."""
    nulls = plan.nulls_matter
    return ReadOptions(
        dict(plan.key_types), types=types, null_values=null_values, names_nulls=nulls, takes_illegal=True
    )


def open_source(
    options: SourceOptions,
    keys: Mapping[str, str],
    timestamps: Iterable[tuple[str, str]] | None = None,
    *,
    splits_text: bool = False,
) -> FileSource:
    """Find the files of a file name, a folder or a glob, in the order of their names, and read their footers.

    In the folder of a native export, the files are those in its verified manifests.

    Parameters
    ----------
    keys
        Key attributes and their types, which apply to columns of folders too.
    timestamps
        The forms of time columns.
    splits_text
        Whether ranges of large files of text are units.

    Raises
    ------
    NotFoundError
        If no such file holds rows.
    ExportIncompleteError
        If an export has not completed, or not all of it is there.
    OptionError
        If an export is incremental or in Ion, or ``hive_partitions=refuse`` and a folder is named ``name=value``.
    DecodeError
        If a file is not in the format of its name.
    """
    found = find_data(options.source, options, options.input_format)
    if found.export is not None:
        return _export_files(found, found.export)
    require_items(found, "load")
    store, files, schemas = found.store, found.files, found.noted.schemas
    columns = _columns_of_folders(found, options, keys)

    def look(entry: StoredObject) -> tuple[Parts, pa.Schema | None]:
        opened = RowFiles(store, ReadOptions(splits_text=splits_text))
        # Its columns may have other names in the file than they were declared with.
        tells = is_splittable(entry) and entry.path not in schemas
        return opened.parts(entry), opened.first_schema(entry) if tells else None

    parts_of_files: list[Parts] = []
    widths: dict[str, int] = {}
    kinds: dict[Any, tuple[str, pa.Schema]] = {}
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="ddbio-footer") as pool:
        for entry, (parts, schema) in zip(files, pool.map(look, files), strict=True):
            parts_of_files.append(parts)
            if len(parts_of_files) % _FILES_PER_LINE == 0:
                _LOG.info("opened %d of %d files", len(parts_of_files), len(files))
            if schema is not None:
                widths[entry.path] = len(schema)
                kinds.setdefault((schema, tuple(name for name, *_ in columns[entry.path])), (entry.path, schema))
    forms = time_forms(timestamps)
    places = [
        (
            *(entry, part, size, None, columns[entry.path], options.json_format, first_row, forms),
            *(schemas.get(entry.path), widths.get(entry.path, 0)),
        )
        for entry, parts in zip(files, parts_of_files, strict=True)
        for part, (size, first_row) in enumerate(zip(parts.sizes_bytes, parts.first_rows, strict=True))
    ]
    units = tuple(Unit(number, *place) for number, place in enumerate(places))
    if all(is_splittable(each) or each.path in schemas for each in files):
        named = {name for each in files for name, *_ in columns[each.path]}
        told = (*(schema for _, schema in kinds.values()), *schemas.values())
        require_names(forms, named.union(*(each.names for each in told)), "no file has such a column")
    known = [parts.rows for parts in parts_of_files if parts.rows is not None]
    rows = sum(known) if len(known) == len(files) else None
    return FileSource(
        *(store, files, units, rows),
        kinds=dict(kinds.values()),
        skipped=found.skipped,
        null_values=options.null_values,
    )


def is_one_scan(source: FileSource, key_types: Iterable[tuple[str, str]]) -> bool:
    """Return whether all files come from one scan of a table with the same key, so that each key occurs once.

    It is False if the manifest of the scan cannot be read.
    """
    jobs = {job_of(entry.path) for entry in source.files}
    job_id = jobs.pop()
    if jobs or not job_id:
        return False
    path = manifest_path(job_id)
    try:
        manifest = read_state(source.store, path)
        origin, files = manifest["source"], {(each["path"], each["bytes"]) for each in manifest["files"]}
        found = (origin["key"], origin["index"])
    except (DdbioError, KeyError, TypeError):
        return False
    return found == (dict(key_types), None) and files.issuperset(
        (entry.path, entry.size_bytes) for entry in source.files
    )


def _export_files(found: DataFiles, export: ExportSource) -> FileSource:
    by_path = {export.path(file): file for file in export.files}
    units = (Unit(number, entry, 0, entry.size_bytes, by_path[entry.path]) for number, entry in enumerate(found.files))
    rows = sum(by_path[entry.path].items for entry in found.files)
    return FileSource(export.store, found.files, tuple(units), rows, replace(export, files=()))


def _columns_of_folders(found: DataFiles, options: SourceOptions, keys: Mapping[str, str]) -> dict[str, FolderColumns]:
    columns = found.columns(keys)
    if found.values is not None:
        return columns
    if options.hive_partitions == "ignore":
        return dict.fromkeys(columns, ())
    for path, each in columns.items():
        if each and options.hive_partitions == "refuse":
            raise OptionError(
                f"{path} lies in folders that say {', '.join(name for name, *_ in each)}: they are refused"
            )
    return columns


_LOG = logging.getLogger("ddbio.load")
_FILES_AT_ONCE = 16
_FILES_PER_LINE = 1000


def check_files(
    source: FileSource, plan: WritePlan, declared: Collection[str] = (), times: Collection[str] = ()
) -> None:
    """Check how every file begins, by its footer if it has one: whether it is of its format, and has the columns.

    Parameters
    ----------
    declared
        Columns that the source should have, one file or the other.
    times
        The same of columns of times, which JSON has not.

    Raises
    ------
    SchemaError
        If a file has no column that the write needs, or times of a form that they cannot have; if no file has a
        declared column, and none is JSON, whose later rows may have it.
    DecodeError
        If a file is not in the format of its name.
    """
    first_units = {unit.entry.path: unit for unit in reversed(source.units) if unit.exported is None}
    # What has a footer was opened before: one file of each kind is enough.
    units = [
        unit
        for path, unit in reversed(first_units.items())
        if path in source.kinds or not is_splittable(first_units[path].entry)
    ]

    def look(unit: Unit) -> pa.Schema | None:
        if unit.entry.path in source.kinds:
            return source.kinds[unit.entry.path]
        files = RowFiles(source.store, read_options(plan, source.types, source.null_values))
        return files.first_schema(unit.entry, unit.json_format, unit.schema)

    seen = set[tuple[pa.Schema, tuple[str, ...]]]()
    # What has a footer, and columns that are noted of it, is not opened.
    noted = [(unit.schema, unit.columns) for unit in first_units.values() if unit.schema is not None]
    names = {name for schema, columns in noted for name in (*schema.names, *(name for name, *_ in columns))}
    are_known = True
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="ddbio-head") as pool:
        for number, (unit, schema) in enumerate(zip(units, pool.map(look, units), strict=True), 1):
            if number % _FILES_PER_LINE == 0:
                _LOG.info("checked %d of %d files", number, len(units))
            # Later rows may have members that the first ones lack.
            are_known = are_known and schema is not None and names_columns(unit.entry)
            kind = (schema or pa.schema([]), tuple(name for name, *_ in unit.columns))
            if schema is None or kind in seen:
                continue
            seen.add(kind)
            none = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
            rows = StoredRows(unit.forms).convert(with_columns(none, unit.columns))
            names.update(rows.schema.names)
            check_file(unit.entry, rows.schema, plan)
    if source.export is None:
        require_names((*times, *(declared if are_known else ())), names, "no file has such a column")


def check_file(entry: StoredObject, schema: pa.Schema, plan: WritePlan) -> None:
    """Check that rows with the columns of a file can be written.

    Raises
    ------
    SchemaError
        See ``check_columns``; the message names the file.
    """
    try:
        check_columns(schema, plan)
    except SchemaError as error:
        raise SchemaError(f"{entry.path}: {error}") from None
