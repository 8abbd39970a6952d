"""Read what a file says of itself at its end, by one request where the end is short, and none of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.folders.layout import Footer
from ddbio.errors import DecodeError
from ddbio.files.formats import format_of
from ddbio.files.orc import ORC
from ddbio.files.parquet import PARQUET
from ddbio.files.parquet_input import open_parquet
from ddbio.files.row_files import RowFiles

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ddbio.core.folders.staged import StoredObject
    from ddbio.files.object_store import ObjectStore

# A footer of some row groups and a hundred columns; a longer one takes a second request.
_TAIL_BYTES = 64 * 1024
# The length of the footer, and the mark PAR1.
# https://parquet.apache.org/docs/file-format/
_END_BYTES = 8


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
        metadata = open_footer(self._store, entry).metadata
        names = self._columns_of(metadata)
        sums: dict[str, list[int]] = {name: [0, 0] for name in names}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for place, name in enumerate(names):
                chunk = group.column(place)
                sums[name][0] += chunk.total_compressed_size
                sums[name][1] += chunk.total_uncompressed_size
        return Footer(
            metadata.num_rows, metadata.num_row_groups, {name: (each[0], each[1]) for name, each in sums.items()}
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
    tail = _tail(store, entry, _TAIL_BYTES)
    needed = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if needed > len(tail) and tail.endswith(b"PAR1"):
        tail = _tail(store, entry, needed)
    try:
        # Places in a footer count from the file's beginning, and none is looked at.
        return open_parquet(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        uri = f"{store.uri}/{entry.path}"
        raise DecodeError(f"{uri} cannot be read as its name says: {error}", uri=uri) from error


def _tail(store: ObjectStore, entry: StoredObject, length: int) -> bytes:
    length = min(length, entry.size_bytes)
    return store.read_range(entry, entry.size_bytes - length, length)


def _leaves(given: Any) -> int:
    """Return how many leaves of Parquet a type has."""
    return sum(_leaves(given.field(place).type) for place in range(given.num_fields)) or 1
