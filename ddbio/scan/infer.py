"""Infer a schema from a table, from files of DynamoDB JSON, or from bytes."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import DecodeError
from ddbio.formats.registry import format_of
from ddbio.formats.row_files import schema_of
from ddbio.items.decode import infer_schema_of_bodies, infer_schema_of_body, iterate_items
from ddbio.items.framing import framed_items
from ddbio.items.plain_columns import plain_schema
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.items.time_columns import sampled_formats
from ddbio.scan.describe import describe_scan, observe_table
from ddbio.scan.plan import budget_of
from ddbio.sources.data_files import find_data, is_data, is_json, named_errors, read_decompressed, read_lines
from ddbio.storage.paths import with_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from ddbio.items.attribute import Item
    from ddbio.scan.options import InspectOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.paths import FolderColumns
    from ddbio.storage.staged import StoredObject

    Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview

_FILES_SAMPLED = 4
_T = TypeVar("_T")


def infer_schema(source: Source, options: InspectOptions) -> ItemSchema:
    """Return the schema of a source's items, which can be merged, compared, saved and passed as ``schema=``.

    Parameters
    ----------
    source
        Bytes are DynamoDB JSON; an ``s3://`` URI, a path with a slash or the name of a data file is a file, a folder or
        a native export; any other text is the name of a table.

    Raises
    ------
    NotFoundError
        If there is no such table, or no file to read.
    OptionError
        If a name is that of an existing local folder, but may also be the name of a table.
    DecodeError
        If the data is not DynamoDB JSON.
    """
    if not isinstance(source, (str, os.PathLike)):
        rules, inferred = ColumnRules.of(options), infer_schema_of_body(source)
        return rules.declare(inferred, sampled_formats(rules.sampled, [framed_items(source)]) if rules.sampled else {})
    name = os.fspath(source)
    if isinstance(source, os.PathLike) or is_data(name):
        return _of_files(name, options)
    table = describe_scan(options)
    return observe_table(table, options, LocalBudget(budget_of(table, options)))


def _of_files(name: str, options: InspectOptions) -> ItemSchema:
    """Return the schema of data files: lines of JSON are sampled, other files declare their columns."""
    data = find_data(name, options, options.input_format)
    rules, folders = ColumnRules.of(options), data.columns({})
    lines = [file for file in data.files if is_json(file) and data.schema(file) is None]
    others = [file for file in data.files if file not in lines]
    fields: dict[str, pa.Field[Any]] = {}
    # Some files of each format.
    for _, files in itertools.groupby(sorted(others, key=_format_name), key=_format_name):
        for entry in _spread(list(files)):
            schema = schema_of(data.store, entry, data.schema(entry))
            _add_fields(fields, schema, folders[entry.path])
    for entry in lines:
        _add_fields(fields, pa.schema([]), folders[entry.path])
    if lines and not fields:
        return _of_lines(data.store, lines, options)
    declared = ItemSchema.from_arrow(rules.apply(normalize_schema(plain_schema(pa.schema(list(fields.values()))))))
    return _of_lines(data.store, lines, options).merge(declared) if lines else declared


def _format_name(entry: StoredObject) -> str:
    file_format = format_of(entry)
    return "" if file_format is None else file_format.name


def _add_fields(fields: dict[str, pa.Field[Any]], schema: pa.Schema, folders: FolderColumns) -> None:
    """Add the columns of a file and of its folders; if a name has two types, the first one wins."""
    none = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    for field in with_columns(none, folders).schema:
        fields.setdefault(field.name, field)


def _of_lines(store: ObjectStore, files: Sequence[StoredObject], options: InspectOptions) -> ItemSchema:
    rules, paths = ColumnRules.of(options), [file.path for file in files]
    count_per_file = -(-options.sample_items // min(len(paths), _FILES_SAMPLED))
    sampled = _spread(paths)
    with suppress(DecodeError):
        bodies = [framed_items(read_lines(store, path, count_per_file)) for path in sampled]
        return rules.declare(infer_schema_of_bodies(bodies), sampled_formats(rules.sampled, bodies))
    # A document is longer than the lines that were read, or a file is broken: read the whole file.
    return rules.declare(ItemSchema.of_items(item for path in sampled for item in _sample(store, path, count_per_file)))


def _sample(store: ObjectStore, path: str, count: int) -> Iterator[Item]:
    with named_errors(store, path):
        yield from itertools.islice(iterate_items(read_decompressed(store, path)), count)


def _spread(files: Sequence[_T]) -> Sequence[_T]:
    return files[:: max(1, len(files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
