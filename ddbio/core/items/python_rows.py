"""Make Arrow tables of Python's dictionaries: rows as people have them in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.schema.arrow import tagged_field
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SETS = (set, frozenset)


def python_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return a table of dictionaries, a row each; what one of them lacks is null, which means missing.

    Raises
    ------
    SchemaError
        As :func:`python_columns`.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return python_columns({name: [row.get(name) for row in rows] for name in names})


def python_columns(columns: Mapping[str, Iterable[Any]]) -> pa.Table:
    """Return a table of columns by name; a column of Python sets is a column of DynamoDB's sets.

    Raises
    ------
    SchemaError
        If a name is no text, the values of a column have no common type, or a set is inside of another value.
    """
    made = [_column(name, list(values)) for name, values in columns.items()]
    try:
        return pa.table([array for _, array in made], schema=pa.schema([field for field, _ in made]))
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(f"the columns make no table: {error}") from error


def _column(name: str, values: list[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    if not isinstance(name, str):
        raise SchemaError(f"column {name!r}: a name is text")
    are_sets = [isinstance(value, _SETS) for value in values if value is not None]
    if any(are_sets) and not all(are_sets):
        raise SchemaError(f"column {name!r} has sets and other values: write their rows apart")
    if any(are_sets):
        values = [None if value is None else list(value) for value in values]
    if any(map(_holds_set, values)):
        raise SchemaError(f"column {name!r} has a set inside of another value: give an Arrow table that declares it")
    try:
        array = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the values of column {name!r} have no common type: {error}") from error
    if not any(are_sets):
        return pa.field(name, array.type), array
    element = array.type.value_type
    tag = "SS" if pa.types.is_string(element) else "BS" if pa.types.is_binary(element) else "NS"
    return tagged_field(name, array.type, tag), array


def _holds_set(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return any(isinstance(each, _SETS) or _holds_set(each) for each in value)
