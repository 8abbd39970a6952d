"""Selection of one table's changes, where a folder or a stream has the changes of several tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import OptionError
from ddbio.items.stream_records import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

OPENINGS = (b"tableName", b"eventSourceARN")
"""Members of change records that name the table."""
# An attribute may have the same name. Its value is not a string.
_TEXTS = tuple(re.compile(b'"' + name + rb'"\s*:\s*"') for name in OPENINGS)


@dataclass
class OneTable:
    """Filter for the changes of one table: the given one, or the table of the first change."""

    name: str | None = None
    option: str = "table"

    def __post_init__(self) -> None:
        """Extract the table name from an ARN."""
        self._is_given = self.name is not None
        self.name = table_of({"eventSourceARN": self.name}) or self.name

    def owns(self, table: str | None) -> bool:
        """Return whether a change belongs to the table. A change without a table name does.

        Raises
        ------
        OptionError
            If it belongs to another table than the first change, and no table was given.
        """
        if table is None or table == self.name:
            return True
        if self.name is None:
            self.name = table
            return True
        if self._is_given:
            return False
        raise OptionError(
            f"there are changes of several tables, {self.name!r} and {table!r}: choose one with {self.option}"
        )

    def own_rows(self, tables: Any) -> npt.NDArray[np.bool_]:
        """Return a mask of the changes that belong to the table, from the table name of each change."""
        encoded = tables.dictionary_encode()
        owned = np.array([self.owns(name) for name in encoded.dictionary.to_pylist()], np.bool_)
        mask: npt.NDArray[np.bool_] = owned[encoded.indices.to_numpy()]
        return mask


def named_tables(values_by_member: Sequence[Any], text: bytes, count: int) -> Any:
    """Return the table name or ARN of each record, or an empty array if no record has one.

    Returns None if only a JSON parser can decide.

    Parameters
    ----------
    values_by_member
        The values of the members of :data:`OPENINGS` in the text.
    """
    if count and len(values_by_member[0]) == count:
        return values_by_member[0]
    for values, name, is_text in zip(values_by_member, OPENINGS, _TEXTS, strict=True):
        if len(values) not in {0, count} or (not len(values) and name in text and is_text.search(text)):
            return None
    return values_by_member[1]


def table_names(tables: Any) -> Any:
    """Return the names of tables. The input may contain ARNs."""
    encoded = tables.dictionary_encode()
    names = [table_of({"eventSourceARN": table}) or table for table in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)
