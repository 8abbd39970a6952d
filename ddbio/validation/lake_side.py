"""Sides of lake tables: the items of a version of a table, or its items at an earlier time."""

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
    from ddbio.validation.key_join import Summary
    from ddbio.validation.options import ValidateOptions
    from ddbio.validation.sides import Reading
    from ddbio.validation.sums import Checks, Hashing


class AsOf(Protocol):
    """State of a lake table at a time."""

    def is_settled(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the mask of the rows of a table's version that are the same as at that time."""
        ...

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the other rows in their state at that time."""
        ...


class LakeSide(Side):
    """Side with the items of a version of a lake table. Rows of deleted items are left out.

    Parameters
    ----------
    as_of
        The state of the table at a time. Without it the version is read unchanged.

    Attributes
    ----------
    deleted
        Number of rows of deleted items, after the side was read.
    """

    def __init__(self, name: str, items: LakeItems, as_of: AsOf | None = None) -> None:
        super().__init__(name, name)
        self.nulls = "merge"
        self.items, self._as_of = items, as_of
        self.keys = items.key_types
        self.schema = items.item_schema
        self.deleted = 0

    def outline(self, reading: Reading) -> SideOutline:
        """Return the estimates from the table's log."""
        del reading
        size = sum(file.size_bytes for file in self.items.state.files)
        seconds = ARROW_RATIO * size / DIGEST_SPEED
        return SideOutline(self.name, "lake table", None, size, read_bytes=size, seconds=seconds)

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the items."""
        del reading
        self.read_bytes += sum(file.size_bytes for file in self.items.state.files)
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
        live = self.items.live(rows)
        self.deleted += rows.num_rows - live.num_rows
        return live


class ExportWithout(ExportSide):
    """A native full export without some keys, which are identified by their words."""

    without: Words | None = None

    def batches(self, reading: Reading) -> Generator[pa.RecordBatch, None, None]:
        """Yield the export's rows, except those keys."""
        for batch in super().batches(reading):
            if self.without is None or not len(self.without):
                yield batch
            else:
                is_left_out = np.isin(key_words(batch, tuple(reading.keys)), self.without)
                yield batch.filter(pa.array(~is_left_out))


def open_side(
    data: Any, options: ValidateOptions, connection: ConnectionOptions, statistics: str | None = None
) -> Side:
    """Return a side of any kind: a lake table, an already open side, or a side of :mod:`sides`.

    Raises
    ------
    DdbioError
        As :func:`ddbio.validation.sides.open_side`.
    """
    if isinstance(data, LakeSide | ExportSide):
        return data
    if isinstance(data, os.PathLike) or (isinstance(data, str) and is_data(data)):
        uri = os.fspath(data)
        kind = lake_format(open_store(uri, connection))
        table = None if kind is None else open_lake_table(uri, kind, connection)
        state = None if table is None or table.foreign_files() is not None else table.load()
        if kind is not None and table is not None and state is not None and KEYS in state.properties:
            return LakeSide(uri, LakeItems(table, state, kind))
    return sides.open_side(data, options, connection, statistics)
