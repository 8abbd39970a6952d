"""Read what a file says of itself at its end, by one request where the end is short, and none of its rows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.layout import Footer
from ddbio.formats.orc import ORC
from ddbio.formats.parquet import PARQUET
from ddbio.formats.parquet_footer import check_bounds, facts_of_chunks, read_tail
from ddbio.formats.parquet_input import open_parquet
from ddbio.formats.registry import format_of
from ddbio.formats.row_files import RowFiles
from ddbio.items.kernel.column_chunks import COMPRESSED, UNCOMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject


class FooterReader:
    """Read the footers of files of one store, from any number of threads.

    Which column each leaf of a Parquet file belongs to is found once for all files of one schema.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._columns: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, entry: StoredObject) -> Footer | None:
        """Return a file's footer, or None if its format has none.

        Raises
        ------
        DecodeError
            If the bytes are not of the format that the name tells.
        NotFoundError
            If the file is gone.
        """
        found = format_of(entry)
        if found is PARQUET:
            return self._of_parquet(entry)
        if found is ORC:
            parts = RowFiles(self._store).parts(entry)
            return Footer(parts.rows or 0, len(parts.sizes_bytes))
        return None

    def _of_parquet(self, entry: StoredObject) -> Footer:
        opened, facts = _opened(self._store, entry)
        names = self._columns_of(opened.metadata)
        stored, whole = (facts[..., which].sum(axis=0).tolist() for which in (COMPRESSED, UNCOMPRESSED))
        sums: dict[str, list[int]] = {name: [0, 0] for name in names}
        for place, name in enumerate(names):
            sums[name][0] += stored[place]
            sums[name][1] += whole[place]
        return Footer(
            opened.metadata.num_rows,
            opened.metadata.num_row_groups,
            {name: (each[0], each[1]) for name, each in sums.items()},
        )

    def _columns_of(self, metadata: pq.FileMetaData) -> tuple[str, ...]:
        """Return the name of the column that each leaf is a part of."""
        schema: Any = metadata.schema
        paths = tuple(schema.column(place).path for place in range(metadata.num_columns))
        names = self._columns.get(paths)
        if names is None:
            fields = schema.to_arrow_schema()
            names = tuple(field.name for field in fields for _ in range(_leaves(field.type)))
            self._columns[paths] = names if len(names) == len(paths) else paths
        return self._columns[paths]


def open_footer(store: ObjectStore, entry: StoredObject) -> pq.ParquetFile:
    """Return a file of Parquet of which nothing but the end was read: its footer, and no row.

    Raises
    ------
    DecodeError
        If it is no file of Parquet.
    NotFoundError
        If the file is gone.
    """
    opened, facts = _opened(store, entry)
    with _naming(store, entry):
        check_bounds(facts, opened.metadata)
    return opened


def _opened(store: ObjectStore, entry: StoredObject) -> tuple[pq.ParquetFile, NDArray[np.int64]]:
    """Return a file as ``open_footer`` does, and the facts of its column chunks; their bounds are not checked."""
    tail = read_tail(store, entry)
    with _naming(store, entry):
        # Places in a footer count from the file's beginning, and none is looked at.
        opened = open_parquet(pa.BufferReader(tail))
        return opened, facts_of_chunks(tail, opened.metadata)


@contextlib.contextmanager
def _naming(store: ObjectStore, entry: StoredObject) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, DecodeError) as error:
        uri = f"{store.uri}/{entry.path}"
        raise DecodeError(f"{uri} cannot be read as its name says: {error}", uri=uri) from error


def _leaves(given: Any) -> int:
    """Return how many leaves of Parquet a type has."""
    return sum(_leaves(given.field(place).type) for place in range(given.num_fields)) or 1
