"""Find the book of prices of a region, and price the capacity units of a table by it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddbio.core.prices import OWN_REGION, PriceBook, capacity_cost
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.prices import Cost
    from ddbio.core.table_description import TableDescription


def cost_of(what: Literal["reads", "writes"], units: float, table: TableDescription, path: str | None = None) -> Cost:
    """Return what capacity units of a table cost.

    Parameters
    ----------
    path
        A file with a book of prices; default is ddbio's own book of the table's region, or that of us-east-1.

    Raises
    ------
    OptionError
        If the file cannot be read or is no book of prices.
    """
    return capacity_cost(book_of(table.region, path), what, units, table, datetime.now(UTC).date())


def book_of(region: str | None, path: str | None = None) -> PriceBook:
    """Return the prices of a region: those of a file, else ddbio's own book of it, else that of us-east-1.

    Raises
    ------
    OptionError
        If the file cannot be read or is no book of prices.
    """
    if path is not None:
        try:
            return PriceBook.from_json(Path(path).read_text(encoding="utf-8"), path)
        except OSError as error:
            raise OptionError(f"prices {path} cannot be read: {error.strerror}") from None
    folder = resources.files("ddbio.core.prices")
    name = f"{region}.json" if folder.joinpath(f"{region}.json").is_file() else f"{OWN_REGION}.json"
    return PriceBook.from_json(folder.joinpath(name).read_text(encoding="utf-8"), name)
