"""Look at the beginning or the footer of every file of a source, so that what is broken is found before a write."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.errors import SchemaError
from ddbio.formats.registry import is_splittable, names_columns
from ddbio.formats.row_files import RowFiles
from ddbio.items.schema.arrow import require_names
from ddbio.items.time_columns import StoredRows
from ddbio.load.encode import check_columns
from ddbio.load.sources import read_options
from ddbio.storage.paths import with_columns

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddbio.load.plan import WritePlan
    from ddbio.load.sources import FileSource, Unit
    from ddbio.storage.staged import StoredObject

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
