"""Bytes that a query engine which is billed by the bytes it reads would scan in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.errors import OptionError
from ddbio.formats.partitions import NULL_FOLDER
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.formats.layout import Footer

# https://aws.amazon.com/athena/pricing/ and https://aws.amazon.com/redshift/pricing/: rounded up to megabytes, at least
# 10 MB for each query.
_ROUNDED_BYTES = 1024**2
_MIN_BYTES = 10 * _ROUNDED_BYTES


@dataclass(frozen=True)
class QueryCost(Result):
    """Cost of a query that reads a part of a dataset once.

    Attributes
    ----------
    columns
        The read columns; null for all.
    partition
        The partition values that the query filters by; empty for all partitions.
    files, bytes
        Files, and their scanned bytes: the column chunks of Parquet, the column streams of ORC, otherwise whole files.
    athena_usd, spectrum_usd
        Cost in Athena and in Redshift Spectrum; null without a price.
    """

    columns: tuple[str, ...] | None
    partition: dict[str, str]
    files: int
    bytes: int
    athena_usd: float | None = None
    spectrum_usd: float | None = None


def charged_bytes(scanned_bytes: int) -> int:
    """Return the billed bytes of a query: rounded up to megabytes, at least 10 MB."""
    return max(_MIN_BYTES, -(-scanned_bytes // _ROUNDED_BYTES) * _ROUNDED_BYTES)


class ScannedBytes:
    """Counter of the files and bytes of one query.

    Parameters
    ----------
    columns
        The read columns; None for all.
    partition
        The partition values of the read files, as in folder names; empty for all files.
    """

    def __init__(self, columns: Sequence[str] | None, partition: Mapping[str, str]) -> None:
        self._columns, self._partition = columns, partition
        self._files = self._bytes = 0
        self._unknown = set(columns or ())

    def add(self, size_bytes: int, partition: Mapping[str, str | None], footer: Footer | None) -> None:
        """Count a file, if it is in the partition."""
        known_columns = {} if footer is None else footer.stored_bytes
        # A file without recorded columns may have any.
        self._unknown -= {*known_columns, *partition} if known_columns else self._unknown
        values = {name: NULL_FOLDER if value is None else value for name, value in partition.items()}
        if not self._partition.items() <= values.items():
            return
        self._files += 1
        if not known_columns:
            self._bytes += size_bytes
        elif self._columns is None:
            self._bytes += sum(known_columns.values())
        else:
            self._bytes += sum(known_columns.get(name, 0) for name in self._columns)

    def cost(self) -> QueryCost:
        """Return the counts, without prices.

        Raises
        ------
        OptionError
            If no file has a column, or is in the partition.
        """
        if self._unknown:
            raise OptionError(f"columns: no file has a column {min(self._unknown)!r}: give names that layout reports")
        if not self._files:
            named = ",".join(f"{name}={value}" for name, value in self._partition.items())
            raise OptionError(f"partition: no file is in {named}: give values that layout reports")
        columns = None if self._columns is None else tuple(self._columns)
        return QueryCost(columns, dict(self._partition), self._files, self._bytes)
