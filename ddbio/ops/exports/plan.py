"""Choose columns and tasks for reading an export; read no more than a sample."""

from __future__ import annotations

import heapq
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ddbio.core.decode import observe_parts
from ddbio.core.schema.arrow import infer_schema_of_items
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.core.text.change_lines import checked_changes
from ddbio.core.text.framing import checked_items
from ddbio.errors import DecodeError
from ddbio.ops.exports.file import FileText
from ddbio.ops.exports.layout import Layout
from ddbio.ops.exports.task import ExportTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddbio.core.exports.manifest import ExportFile
    from ddbio.ops.exports.source import ExportSource
    from ddbio.options import ExportReadOptions

_FILES_SAMPLED = 4

# Some twenty seconds of a core: what Spark spends on a task is little beside it, and little is lost with one.
_TASK_BYTES = 256 * 1024 * 1024

# What opening a file costs, in bytes that could be read meanwhile: many small files weigh more than their bytes.
_FILE_BYTES = 256 * 1024


def layout_of_export(source: ExportSource, options: ExportReadOptions) -> Layout:
    """Return the columns: the given ones, or those that a sample of several files needs.

    Raises
    ------
    SchemaError
        If the given schema is none.
    ExportIncompleteError, DecodeError
        If a sampled file is missing, or not an export's.
    """
    given = options.schema
    schema = None if given is None else arrow_schema_of(given)
    if source.summary.kind == "full" and schema is not None:
        return Layout(schema)
    files = source.files[:: max(1, len(source.files) // _FILES_SAMPLED)][:_FILES_SAMPLED]
    share = -(-options.sample_items // max(1, len(files)))
    lines = [_sample(source, file, share) for file in files]
    if source.summary.kind == "full":
        with suppress(DecodeError):
            return Layout(observe_parts([(_head(source, file, share), "export") for file in files]).to_arrow())
        # Once more: to say which file is broken.
        return Layout(infer_schema_of_items(itertools.chain.from_iterable(lines)))
    changes = list(itertools.chain.from_iterable(lines))
    images = (image for change in changes for image in (change.keys, change.new_image, change.old_image) if image)
    keys = tuple(changes[0].keys) if changes else ()
    return Layout(schema or infer_schema_of_items(images), keys)


def spark_task_count(sizes: Mapping[str, int], parallelism: int) -> int:
    """Return how many tasks Spark should make of files of such sizes: one for each core, more of a large export."""
    return max(parallelism, -(-sum(sizes.values()) // _TASK_BYTES))


def export_tasks(
    source: ExportSource, layout: Layout, options: ExportReadOptions, tasks: int, sizes: Mapping[str, int] | None = None
) -> list[ExportTask]:
    """Return at most so many tasks, alike in bytes, that together read every file once.

    Raises
    ------
    ExportIncompleteError
        If the store, asked for the sizes, lacks a file.
    """
    shares: list[list[ExportFile]] = [[] for _ in range(min(tasks, len(source.files)))]
    if len(shares) > 1:
        sizes = source.sizes() if sizes is None else sizes
        loads = [(0, number) for number in range(len(shares))]
        for file in sorted(source.files, key=lambda each: -sizes[each.name]):
            load, number = heapq.heappop(loads)
            shares[number].append(file)
            heapq.heappush(loads, (load + sizes[file.name] + _FILE_BYTES, number))
    elif shares:
        shares = [list(source.files)]
    return [
        ExportTask(number, source, tuple(files), layout, options.on_misfit, options.nulls, options.drop or ())
        for number, files in enumerate(shares)
    ]


def _sample(source: ExportSource, file: ExportFile, count: int) -> Iterator[Any]:
    with FileText(source, file).blocks() as blocks:
        lines = _first_lines(next(blocks, b""), count)
        yield from checked_items(lines, "export") if source.summary.kind == "full" else checked_changes(lines)


def _head(source: ExportSource, file: ExportFile, count: int) -> bytes:
    with FileText(source, file).blocks() as blocks:
        return _first_lines(next(blocks, b""), count)


def _first_lines(block: bytes | memoryview, count: int) -> bytes:
    return b"\n".join(bytes(block).split(b"\n", count)[:count])
