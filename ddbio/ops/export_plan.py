"""Choose columns and tasks for reading an export; read no more than a sample."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ddbio.core.framing import checked_items
from ddbio.core.schema import infer_schema_of_items, normalize_schema, schema_from_json
from ddbio.ops.export_file import FileText
from ddbio.ops.export_task import ExportTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ddbio.core.attribute import Item
    from ddbio.core.manifest import ExportFile
    from ddbio.ops.export_source import ExportSource
    from ddbio.options import ExportReadOptions

_FILES_SAMPLED = 4


def schema_of_export(source: ExportSource, options: ExportReadOptions) -> pa.Schema:
    """Return the columns: the given ones, or those that a sample of several files needs.

    Raises
    ------
    SchemaError
        If the given schema is none.
    ExportIncompleteError, DecodeError
        If a sampled file is missing, or not an export's.
    """
    given = options.schema
    if given is not None:
        return normalize_schema(schema_from_json(given) if isinstance(given, str) else given)
    files = source.files[:: max(1, len(source.files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
    share = -(-options.sample_items // max(1, len(files)))
    return infer_schema_of_items(itertools.chain.from_iterable(_sample(source, file, share) for file in files))


def export_tasks(source: ExportSource, schema: pa.Schema, options: ExportReadOptions, tasks: int) -> list[ExportTask]:
    """Return at most so many tasks, alike in items, that together read every file once."""
    shares: list[list[ExportFile]] = [[] for _ in range(min(tasks, len(source.files)))]
    loads = [0] * len(shares)
    for file in sorted(source.files, key=lambda each: -each.items):
        lightest = loads.index(min(loads))
        shares[lightest].append(file)
        loads[lightest] += file.items
    return [
        ExportTask(number, source, tuple(files), schema, options.on_misfit, options.nulls)
        for number, files in enumerate(shares)
    ]


def _sample(source: ExportSource, file: ExportFile, count: int) -> Iterator[Item]:
    text = FileText(source, file)
    with text.blocks() as blocks:
        block = next(blocks, b"")
        yield from checked_items(b"\n".join(block.split(b"\n", count)[:count]), "export")
