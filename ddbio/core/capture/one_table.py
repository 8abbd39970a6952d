"""Keep the changes of one table apart from those of others, which may be delivered to the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.kernel.members import Openings
from ddbio.core.text.stream_records import table_of
from ddbio.errors import OptionError

if TYPE_CHECKING:
    import numpy.typing as npt

_OPENINGS = Openings((b"tableName", b"eventSourceARN"))
_NAMES = (b'"tableName"', b'"eventSourceARN"')


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

    def own_rows(self, tables: Any, count: int) -> npt.NDArray[np.bool_]:
        """Return which of some changes are of the table, by their tables as :func:`named_tables` has found them."""
        if not len(tables):
            return np.ones(count, np.bool_)
        encoded = table_names(tables).dictionary_encode()
        owned = np.array([self.owns(each) for each in encoded.dictionary.to_pylist()], np.bool_)
        found: npt.NDArray[np.bool_] = owned[encoded.indices.to_numpy()]
        return found


def named_tables(text: bytes, count: int) -> Any:
    """Return the table, or the ARN, that each of some records names; none if no record does.

    None is the answer where only a parser may tell.
    """
    found = _OPENINGS.find(text)
    if found is None:
        return None
    for values, name in zip(found, _NAMES, strict=True):
        if len(values) not in {0, count} or (not len(values) and name in text):
            return None
    return found[0] if len(found[0]) else found[1]


def table_names(tables: Any) -> Any:
    """Return the names of tables, of which some may be ARNs."""
    encoded = tables.dictionary_encode()
    names = [table_of({"eventSourceARN": each}) or each for each in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)
