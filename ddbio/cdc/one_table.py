"""Keep the changes of one table apart from those of others, which may be delivered to the same place."""

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
"""The members of records that name their table."""
# An attribute may be called so, too: its value is no text.
_TEXTS = tuple(re.compile(b'"' + name + rb'"\s*:\s*"') for name in OPENINGS)


@dataclass
class OneTable:
    """Know the table whose changes are wanted: the one that is given, or that of the first change.

    Attributes
    ----------
    name
        The table's name or ARN; None takes the first that comes.
    option
        The option that chooses it, for messages.
    """

    name: str | None = None
    option: str = "table"

    def __post_init__(self) -> None:
        """Take the name out of an ARN."""
        self._is_given = self.name is not None
        self.name = table_of({"eventSourceARN": self.name}) or self.name

    def owns(self, table: str | None) -> bool:
        """Return whether a change is of the table; one that names no table is.

        Raises
        ------
        OptionError
            If it is of another one than the first change, and none was given.
        """
        if table is None or table == self.name:
            return True
        if self.name is None:
            self.name = table
            return True
        if self._is_given:
            return False
        raise OptionError(
            f"there are changes of several tables, {self.name!r} and {table!r}: say with {self.option} whose to take"
        )

    def own_rows(self, tables: Any) -> npt.NDArray[np.bool_]:
        """Return which of some changes are of the table, by the name of each one's table."""
        encoded = tables.dictionary_encode()
        owned = np.array([self.owns(each) for each in encoded.dictionary.to_pylist()], np.bool_)
        found: npt.NDArray[np.bool_] = owned[encoded.indices.to_numpy()]
        return found


def named_tables(found: Sequence[Any], text: bytes, count: int) -> Any:
    """Return the table, or the ARN, that each of some records names; an empty array if no record does.

    None is the answer where only a parser may tell.

    Parameters
    ----------
    found
        The values of the members of :data:`OPENINGS` in the text.
    """
    if count and len(found[0]) == count:
        return found[0]
    for values, name, is_text in zip(found, OPENINGS, _TEXTS, strict=True):
        if len(values) not in {0, count} or (not len(values) and name in text and is_text.search(text)):
            return None
    return found[1]


def table_names(tables: Any) -> Any:
    """Return the names of tables, of which some may be ARNs."""
    encoded = tables.dictionary_encode()
    names = [table_of({"eventSourceARN": each}) or each for each in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)
