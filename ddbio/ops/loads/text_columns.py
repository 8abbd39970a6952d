"""Choose the columns of text: those that are declared, and of CSV one type for each over all files of a load."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.core.schema.arrow import tag_of_field
from ddbio.core.schema.declare import declared_fields
from ddbio.errors import OptionError, SchemaError
from ddbio.files.formats import FORMATS, format_of, is_read_in_pieces
from ddbio.files.text_rows import joined_columns
from ddbio.ops.loads.unit_reader import split_evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ddbio.budget import Budget, LocalBudget
    from ddbio.core.loads.plan import WritePlan
    from ddbio.engine import Engine
    from ddbio.ops.loads.sources import FileSource, Unit
    from ddbio.ops.loads.unit_reader import UnitReader
    from ddbio.options import LoadOptions

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
    if found and not any(is_read_in_pieces(entry.path) for entry in source.files):
        raise OptionError("schema and types are for CSV and plain JSON: other files say the types of their columns")
    for name, tag in plan.key_types:
        if name in found and tag_of_field(found[name]) != tag:
            raise SchemaError(f"{name} is a key of type {tag} of table {plan.table!r}: declare it so, or not at all")
    return found


def choose_columns(reader: UnitReader, units: Sequence[Unit], engine: Engine, budget: LocalBudget) -> pa.Schema | None:
    """Return the columns of several files of CSV that nobody has declared, which are read for that; else None.

    Raises
    ------
    DecodeError
        If a file is no CSV.
    """
    asked = [unit for unit in units if unit.schema is None and format_of(unit.entry.path) is FORMATS["csv"]]
    if len(asked) < 2:  # noqa: PLR2004 - one file chooses its columns as it is read
        return None
    _LOG.info("choosing the columns of %d files of CSV", len(asked))
    tasks = [_ColumnsTask(reader, part) for part in split_evenly(asked, engine.parallelism)]
    return functools.reduce(joined_columns, engine.run(_columns_of_files, tasks, budget))


@dataclass(frozen=True)
class _ColumnsTask:
    reader: UnitReader
    units: Sequence[Unit]


def _columns_of_files(task: _ColumnsTask, budget: Budget) -> pa.Schema:
    del budget
    files = task.reader.open_files()
    return functools.reduce(joined_columns, (files.columns_of_text(unit.entry) for unit in task.units))
