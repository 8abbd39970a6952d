"""Find the columns of text, declared or chosen over all that is read apart, and where ranges of CSV begin."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError, SchemaError
from ddbio.formats.file_format import TextLayout
from ddbio.formats.registry import format_of, is_text
from ddbio.formats.text_ranges import byte_ranges, count_csv, csv_starts
from ddbio.items.schema.arrow import tag_of_field
from ddbio.items.schema.declare import declared_fields
from ddbio.load.unit_reader import split_evenly
from ddbio.storage.checksums import checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ddbio.budget import Budget, LocalBudget
    from ddbio.formats.file_format import TextRows, TextStart
    from ddbio.formats.text_ranges import CsvCount
    from ddbio.jobs.engine import Engine
    from ddbio.load.options import LoadOptions
    from ddbio.load.plan import WritePlan
    from ddbio.load.sources import FileSource, Unit
    from ddbio.load.unit_reader import UnitReader

_LOG = logging.getLogger("ddbio.load")


def declared_types(options: LoadOptions, plan: WritePlan, source: FileSource) -> dict[str, pa.Field[Any]]:
    """Return the columns that the options declare, by attribute.

    Raises
    ------
    OptionError
        If no file is text.
    SchemaError
        If there is no such type, or a key of the table has another one.
    """
    found = declared_fields(options.schema, options.types)
    if found and not any(is_text(entry) for entry in source.files):
        raise OptionError("schema and types are for CSV and plain JSON: other files say the types of their columns")
    for name, tag in plan.key_types:
        if name in found and tag_of_field(found[name]) != tag:
            raise SchemaError(f"{name} is a key of type {tag} of table {plan.table!r}: declare it so, or not at all")
    return found


def read_layouts(
    reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget
) -> dict[str, TextLayout]:
    """Return what is found out of files of text by reading them once, before their rows are read.

    That is where the records of a large file of CSV begin, and columns for what is read apart: all files of CSV, and
    all ranges of a file of plain JSON. A file that is read as a whole finds both out itself.

    Raises
    ------
    DecodeError
        If a file is no such text.
    """
    texts = [(unit, text) for unit in units if (text := _text_of(unit)) is not None]
    counted = [unit for unit, text in texts if text.needs_starts and _is_range(unit)]
    starts = _starts(reader, counted, engine, budget)
    reader = replace(reader, texts={path: TextLayout(starts=each) for path, each in starts.items()})
    found: dict[str, pa.Schema | None] = {}
    with_header = [unit for unit, text in texts if text.has_header and unit.schema is None]
    if len(with_header) > 1:
        _LOG.info("choosing the columns of CSV in %d units", len(with_header))
        found |= dict.fromkeys((unit.entry.path for unit in with_header), _columns(reader, with_header, engine, budget))
    ranges = [unit for unit, text in texts if not text.has_header and unit.schema is None and _is_range(unit)]
    for path, group in itertools.groupby(ranges, attrgetter("entry.path")):
        parts = list(group)
        # What is written as raw items needs no columns, and DynamoDB JSON says its types.
        if not reader.open_files().is_split_items(parts[0].entry, parts[0].json_format):
            _LOG.info("choosing the columns of %s in %d ranges", path, len(parts))
            found[path] = _columns(reader, parts, engine, budget)
    return {path: TextLayout(found.get(path), starts.get(path, ())) for path in {**starts, **found}}


def _text_of(unit: Unit) -> type[TextRows] | None:
    found = format_of(unit.entry)
    return None if found is None or unit.exported is not None else found.text_rows


def _is_range(unit: Unit) -> bool:
    return unit.size_bytes < unit.entry.size_bytes


@dataclass(frozen=True)
class _UnitsTask:
    reader: UnitReader
    units: Sequence[Unit]


def _columns(reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget) -> pa.Schema | None:
    """Return columns that hold the rows of all units, which are of one format."""
    tasks = [_UnitsTask(reader, part) for part in split_evenly(units, engine.parallelism)]
    return _joined(units, engine.run(_columns_of_units, tasks, budget))


def _columns_of_units(task: _UnitsTask, budget: Budget) -> pa.Schema | None:
    del budget
    files = task.reader.open_files()
    found = (files.columns_of_text(unit.entry, unit.part, unit.json_format) for unit in task.units)
    return _joined(task.units, found)


def _joined(units: Sequence[Unit], columns: Iterable[pa.Schema | None]) -> pa.Schema | None:
    text = _text_of(units[0])
    return None if text is None else text.joined(columns)


def _starts(
    reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget
) -> dict[str, tuple[TextStart, ...]]:
    """Return where the records begin of each range of CSV."""
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
