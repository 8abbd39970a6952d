"""Find the prices of a table's region: ddbio's own book of that region, or a file."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.core.prices import OWN_REGION, PriceBook
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.table_description import TableDescription


def prices_of(table: TableDescription, path: str | None = None) -> tuple[PriceBook, tuple[str, ...]]:
    """Return a book of prices for a table, and what a reader of sums by it should know.

    Parameters
    ----------
    path
        A file with a book; default is ddbio's own book of the table's region, or that of us-east-1.

    Raises
    ------
    OptionError
        If the file cannot be read or is no book of prices.
    """
    region = _region_of(table)
    if path is not None:
        try:
            book = PriceBook.from_json(Path(path).read_text(encoding="utf-8"), path)
        except OSError as error:
            raise OptionError(f"prices {path} cannot be read: {error.strerror}") from None
    else:
        folder = resources.files("ddbio.core.prices")
        name = f"{region}.json" if folder.joinpath(f"{region}.json").is_file() else f"{OWN_REGION}.json"
        book = PriceBook.from_json(folder.joinpath(name).read_text(encoding="utf-8"), name)
    return book, book.notes(region, datetime.now(UTC).date())


def _region_of(table: TableDescription) -> str | None:
    parts = table.arn.split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None  # noqa: PLR2004 - arn:partition:service:region:…
