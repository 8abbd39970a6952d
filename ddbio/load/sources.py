"""Rows to write: in memory, or in files whose first rows and footers are checked, and the units to read."""

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
from ddbio.items.schema.declare import time_formats
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
    from ddbio.items.schema.times import TimeFormat
    from ddbio.load.options import JsonFormat, SourceOptions
    from ddbio.load.plan import WritePlan
    from ddbio.sources.data_files import DataFiles
    from ddbio.sources.export_source import ExportSource
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any"
"""Rows to write: Arrow rows, any data frame with an Arrow stream, dictionaries of rows or of columns."""

_FOOTER_THREADS = 16
# The number of dictionaries in a batch. Its columns have one type each.
_PYTHON_ROWS = 10_000


def batches_of(
    data: Rows, timestamps: Iterable[tuple[str, str]] | None = None, *, names_nulls: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield rows in memory as record batches. Declared times are converted to the text or numbers to write.

    Parameters
    ----------
    timestamps
        The formats of time columns.
    names_nulls
        Whether rows that are dictionaries list their null attributes; see ``python_rows``.

    Raises
    ------
    OptionError
        If the data has no rows, the format of a time is unknown, or no column has the name of a format.
    SchemaError
        If Arrow has no type for a column of a data frame, or a column cannot have its format.
    DecodeError
        If an array points outside its own memory.
    """
    forms = time_formats(timestamps)
    batches = _Batches(forms, names_nulls).of(data)
    if forms:
        first = next(batches, None)
        batches = itertools.chain([] if first is None else [first], batches)
        if first is not None:
            require_names(forms, first.schema.names, "option timestamps: the rows have no such column")
    yield from batches


@dataclass(frozen=True)
class _Batches:
    """Conversion of rows to batches, with declared times in their stored format."""

    forms: Mapping[str, TimeFormat | None]
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
            yield from self._of_elements(data)
        elif hasattr(data, "writeTo"):
            raise OptionError(
                "a DataFrame of Spark has no rows in this process: write it as Parquet and give that folder"
            )
        else:
            raise OptionError(
                f"a {type(data).__name__} holds no rows: give an Arrow table, batches, a data frame, or dictionaries"
            )

    def _of_elements(self, data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for is_row, group in itertools.groupby(data, lambda element: isinstance(element, Mapping)):
            if is_row:
                while rows := list(itertools.islice(group, _PYTHON_ROWS)):
                    yield from python_rows(rows, self.forms, names_nulls=self.names_nulls).to_batches()
            else:
                stored = StoredRows(self.forms)
                for batch in group:
                    # One converter for all batches: it inspects each schema once.
                    is_batch = isinstance(batch, pa.RecordBatch)
                    yield from map(stored.convert, checked_batches([batch])) if is_batch else self.of(batch)

    def _stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(StoredRows(self.forms).convert, checked_batches(batches))


@dataclass(frozen=True)
class Unit:
    """Part of a file that is read, and finished, as one: a row group, a stripe, or a range of text."""

    number: int
    entry: StoredObject
    part: int
    size_bytes: int
    exported: ExportFile | None = None
    """The file's entry in the manifest of an export."""
    columns: FolderColumns = ()
    json_format: JsonFormat = "auto"
    first_row: int | None = 0
    """The number of its first row in the file, or None if it is unknown before the file is read."""
    forms: Mapping[str, TimeFormat | None] = field(default_factory=dict)
    """The declared formats of time columns."""
    schema: pa.Schema | None = None
    """The columns that the file was written with, if they are known and the file does not have them."""
    width: int = 0
    """The number of columns in its footer."""


@dataclass(frozen=True)
class FileSource:
    """Files of a source, and their units in the order of the rows. Picklable.

    Attributes
    ----------
    rows
        The number of rows, or None if it is unknown before the files are read.
    export
        The native export that the files belong to, if any.
    types
        The declared columns of its text, by attribute.
    kinds
        One file of each set of columns in footers, and these columns.
    skipped
        Paths of files that were left out although they may have rows.
    null_values
        The words of CSV that are missing values; None for the usual ones.
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
    """Return the options with which a write reads text."""
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
        Key attributes and their types, which also apply to columns of folders.
    timestamps
        The formats of time columns.
    splits_text
        Whether ranges of large text files are units.

    Raises
    ------
    NotFoundError
        If no such file has rows.
    ExportIncompleteError
        If an export has not completed, or a part of it is missing.
    OptionError
        If an export is incremental or in Ion, or ``hive_partitions=refuse`` and a folder is named ``name=value``.
    DecodeError
        If the format of a file is not that of its name.
    """
    data_files = find_data(options.source, options, options.input_format)
    if data_files.export is not None:
        return _export_files(data_files, data_files.export)
    require_items(data_files, "load")
    store, files, schemas = data_files.store, data_files.files, data_files.noted.schemas
    columns = _columns_of_folders(data_files, options, keys)

    def look(entry: StoredObject) -> tuple[Parts, pa.Schema | None]:
        opened = RowFiles(store, ReadOptions(splits_text=splits_text))
        # The file's names of its columns may differ from the declared ones.
        tells = is_splittable(entry) and entry.path not in schemas
        return opened.parts(entry), opened.first_schema(entry) if tells else None

    parts_of_files: list[Parts] = []
    widths: dict[str, int] = {}
    kinds: dict[Any, tuple[str, pa.Schema]] = {}
    with ThreadPoolExecutor(_FOOTER_THREADS, thread_name_prefix="ddbio-footer") as pool:
        for entry, (parts, schema) in zip(files, pool.map(look, files), strict=True):
            parts_of_files.append(parts)
            if len(parts_of_files) % _FILES_PER_LINE == 0:
                _LOG.info("opened %d of %d files", len(parts_of_files), len(files))
            if schema is not None:
                widths[entry.path] = len(schema)
                kinds.setdefault((schema, tuple(name for name, *_ in columns[entry.path])), (entry.path, schema))
    forms = time_formats(timestamps)
    arguments = [
        (
            *(entry, part, size, None, columns[entry.path], options.json_format, first_row, forms),
            *(schemas.get(entry.path), widths.get(entry.path, 0)),
        )
        for entry, parts in zip(files, parts_of_files, strict=True)
        for part, (size, first_row) in enumerate(zip(parts.sizes_bytes, parts.first_rows, strict=True))
    ]
    units = tuple(Unit(number, *unit_arguments) for number, unit_arguments in enumerate(arguments))
    if all(is_splittable(file) or file.path in schemas for file in files):
        named = {name for file in files for name, *_ in columns[file.path]}
        schemas_with_names = (*(schema for _, schema in kinds.values()), *schemas.values())
        require_names(forms, named.union(*(schema.names for schema in schemas_with_names)), "no file has such a column")
    row_counts = [parts.rows for parts in parts_of_files if parts.rows is not None]
    rows = sum(row_counts) if len(row_counts) == len(files) else None
    return FileSource(
        *(store, files, units, rows),
        kinds=dict(kinds.values()),
        skipped=data_files.skipped,
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
        origin, files = manifest["source"], {(file["path"], file["bytes"]) for file in manifest["files"]}
        key_of_scan = (origin["key"], origin["index"])
    except (DdbioError, KeyError, TypeError):
        return False
    return key_of_scan == (dict(key_types), None) and files.issuperset(
        (entry.path, entry.size_bytes) for entry in source.files
    )


def _export_files(data_files: DataFiles, export: ExportSource) -> FileSource:
    by_path = {export.path(file): file for file in export.files}
    units = (
        Unit(number, entry, 0, entry.size_bytes, by_path[entry.path]) for number, entry in enumerate(data_files.files)
    )
    rows = sum(by_path[entry.path].items for entry in data_files.files)
    return FileSource(export.store, data_files.files, tuple(units), rows, replace(export, files=()))


def _columns_of_folders(
    data_files: DataFiles, options: SourceOptions, keys: Mapping[str, str]
) -> dict[str, FolderColumns]:
    columns = data_files.columns(keys)
    if data_files.values is not None:
        return columns
    if options.hive_partitions == "ignore":
        return dict.fromkeys(columns, ())
    for path, folder_columns in columns.items():
        if folder_columns and options.hive_partitions == "refuse":
            raise OptionError(
                f"folders of {path} have the columns {', '.join(name for name, *_ in folder_columns)}: they are refused"
            )
    return columns


_LOG = logging.getLogger("ddbio.load")
_FILE_THREADS = 16
_FILES_PER_LINE = 1000


def check_files(
    source: FileSource, plan: WritePlan, declared: Collection[str] = (), times: Collection[str] = ()
) -> None:
    """Check the start or the footer of every file: its format, and whether it has the needed columns.

    Parameters
    ----------
    declared
        Columns that at least one file of the source should have.
    times
        The declared columns that have times. JSON has no type for times.

    Raises
    ------
    SchemaError
        If a file lacks a column that the write needs, or if the type of a column of times does not allow its time
        format. If no file has a declared column, and no file is JSON: later rows of a JSON file may have the column.
    DecodeError
        If the format of a file is not that of its name.
    """
    first_units = {unit.entry.path: unit for unit in reversed(source.units) if unit.exported is None}
    # Files with a footer were opened before. One file of each kind is enough.
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
    # A file with a footer and recorded columns is not opened.
    noted = [(unit.schema, unit.columns) for unit in first_units.values() if unit.schema is not None]
    names = {name for schema, columns in noted for name in (*schema.names, *(name for name, *_ in columns))}
    are_known = True
    with ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="ddbio-head") as pool:
        for number, (unit, schema) in enumerate(zip(units, pool.map(look, units), strict=True), 1):
            if number % _FILES_PER_LINE == 0:
                _LOG.info("checked %d of %d files", number, len(units))
            # Later rows may have members that the first ones lack.
            are_known = are_known and schema is not None and names_columns(unit.entry)
            kind = (schema or pa.schema([]), tuple(name for name, *_ in unit.columns))
            if schema is None or kind in seen:
                continue
            seen.add(kind)
            none = pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in schema], schema=schema)
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
        See ``check_columns``. The message has the name of the file.
    """
    try:
        check_columns(schema, plan)
    except SchemaError as error:
        raise SchemaError(f"{entry.path}: {error}") from None
