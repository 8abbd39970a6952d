"""Compare tables of a lake: a side of the items that a version of one has, or that it had at a time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ddbio.items.key_hashes import key_words
from ddbio.jobs.estimate import ARROW_RATIO, DIGEST_SPEED
from ddbio.jobs.stores import open_store
from ddbio.lake_formats.items import LakeItems
from ddbio.lake_formats.registry import lake_format, open_lake_table
from ddbio.lake_formats.table import KEYS
from ddbio.sources.data_files import is_data
from ddbio.validation import sides
from ddbio.validation.comparison import SideOutline
from ddbio.validation.sides import ExportSide, Side

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    from ddbio.items.key_hashes import Words
    from ddbio.options import ConnectionOptions
    from ddbio.validation.meeting import Summary
    from ddbio.validation.options import ValidateOptions
    from ddbio.validation.sides import Reading
    from ddbio.validation.sums import Checks, Hashing


class AsOf(Protocol):
    """Say what a lake table held at a time."""

    def is_settled(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows of a table's version are as they were."""
        ...

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the others as they were."""
        ...


class LakeSide(Side):
    """Read the items of a version of a lake table; rows of deleted items are left out.

    Parameters
    ----------
    as_of
        Says what the table held at a time; without it the version is read as it is.

    Attributes
    ----------
    deleted
        Rows of deleted items, once the side was read.
    """

    def __init__(self, name: str, items: LakeItems, as_of: AsOf | None = None) -> None:
        super().__init__(name, name)
        self.nulls = "merge"
        self.items, self._as_of = items, as_of
        self.keys = items.key_types
        self.schema = items.item_schema
        self.deleted = 0

    def outline(self, reading: Reading) -> SideOutline:
        """Return what the table's own log says."""
        del reading
        size = sum(each.size_bytes for each in self.items.state.files)
        seconds = ARROW_RATIO * size / DIGEST_SPEED
        return SideOutline(self.name, "lake table", None, size, read_bytes=size, seconds=seconds)

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the items."""
        del reading
        self.read_bytes += sum(each.size_bytes for each in self.items.state.files)
        self.deleted = 0
        for batch in self.items.rows():
            settled = batch
            if self._as_of is not None:
                settled = batch.filter(pa.array(self._as_of.is_settled(batch)))
            yield self._live(settled)
        if self._as_of is not None:
            for batch in self._as_of.rows():
                yield self._live(batch)

    def summarised(self, reading: Reading, hashing: Hashing, checks: Checks | None) -> Summary | None:
        """Return None: a lake table is read in this process."""
        del reading, hashing, checks
        return None

    def _live(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = self.items.live(rows)
        self.deleted += rows.num_rows - found.num_rows
        return found


class ExportWithout(ExportSide):
    """Read a native full export but for some keys, which are named by their words."""

    without: Words | None = None

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the export's rows but for those keys."""
        for batch in super().batches(reading):
            if self.without is None or not len(self.without):
                yield batch
            else:
                is_left_out = np.isin(key_words(batch, tuple(reading.keys)), self.without)
                yield batch.filter(pa.array(~is_left_out))


def open_side(
    given: Any, options: ValidateOptions, connection: ConnectionOptions, statistics: str | None = None
) -> Side:
    """Return a side of any kind: a lake table, one that is open already, or what :mod:`sides` knows.

    Raises
    ------
    DdbioError
        As :func:`ddbio.validation.sides.open_side` says.
    """
    if isinstance(given, LakeSide | ExportSide):
        return given
    if isinstance(given, os.PathLike) or (isinstance(given, str) and is_data(given)):
        uri = os.fspath(given)
        kind = lake_format(open_store(uri, connection))
        table = None if kind is None else open_lake_table(uri, kind, connection)
        state = None if table is None or table.foreign_files() is not None else table.load()
        if kind is not None and table is not None and state is not None and KEYS in state.properties:
            return LakeSide(uri, LakeItems(table, state, kind))
    return sides.open_side(given, options, connection, statistics)
