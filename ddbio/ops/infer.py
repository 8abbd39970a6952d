"""Infer a schema from a table, from files of DynamoDB JSON, or from bytes."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ddbio.budget import LocalBudget
from ddbio.core.items.decode import infer_schema_of_bodies, infer_schema_of_body, iterate_items
from ddbio.core.items.plain_columns import plain_schema
from ddbio.core.items.time_columns import sampled_forms
from ddbio.core.scans.plan import budget_of
from ddbio.core.schema.arrow import normalize_schema
from ddbio.core.schema.declare import ColumnRules
from ddbio.core.schema.item_schema import ItemSchema
from ddbio.core.text.framing import framed_items
from ddbio.errors import DecodeError
from ddbio.files.row_files import read_schema
from ddbio.ops.data_files import find_data, is_data, is_json, named_errors, read_decompressed, read_lines
from ddbio.ops.scans.plan import describe_scan, observe_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from ddbio.core.attribute import Item
    from ddbio.files.object_store import ObjectStore
    from ddbio.options import ScanOptions

    Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview

_FILES_SAMPLED = 4


def infer_schema(source: Source, options: ScanOptions) -> ItemSchema:
    """Return the schema of a source's items, or of a sample of them.

    Parameters
    ----------
    source
        Bytes are data; an ``s3://`` URI, a path with a slash or the name of a data file is a file, a folder or a native
        export; any other text is the name of a table.

    Raises
    ------
    NotFoundError
        If there is no such table, or no file that could be read.
    OptionError
        If a name may be that of a table, and is that of a folder here.
    DecodeError
        If the data is not DynamoDB JSON.
    """
    if not isinstance(source, (str, os.PathLike)):
        rules, found = ColumnRules.of(options), infer_schema_of_body(source)
        return rules.declare(found, sampled_forms(rules.sampled, [framed_items(source)]) if rules.sampled else {})
    name = os.fspath(source)
    if isinstance(source, os.PathLike) or is_data(name):
        return _of_files(name, options)
    table = describe_scan(options)
    return observe_table(table, options, LocalBudget(budget_of(table, options)))


def _of_files(name: str, options: ScanOptions) -> ItemSchema:
    store, paths = find_data(name, options)
    rules = ColumnRules.of(options)
    if not is_json(paths[0]):
        return ItemSchema.from_arrow(rules.apply(normalize_schema(plain_schema(read_schema(store, paths[0])))))
    count_per_file = -(-options.sample_items // min(len(paths), _FILES_SAMPLED))
    sampled = _spread(paths, _FILES_SAMPLED)
    with suppress(DecodeError):
        bodies = [framed_items(read_lines(store, path, count_per_file)) for path in sampled]
        return rules.declare(infer_schema_of_bodies(bodies), sampled_forms(rules.sampled, bodies))
    # A document is longer than those lines, or a file is broken: read it whole.
    return rules.declare(ItemSchema.of_items(item for path in sampled for item in _sample(store, path, count_per_file)))


def _sample(store: ObjectStore, path: str, count: int) -> Iterator[Item]:
    with named_errors(store, path):
        yield from itertools.islice(iterate_items(read_decompressed(store, path)), count)


def _spread(paths: list[str], count: int) -> list[str]:
    step = max(1, len(paths) // count)
    return paths[::step][:count]
