"""Read a Parquet footer, and what it says of column chunks: pyarrow 25 ends the process where some of that is damaged.

Arrow parses the footer, too, and finds what is no footer at all; it believes what the footer says of sizes and bounds.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError
from ddbio.formats.layout import Footer
from ddbio.formats.parquet_input import open_parquet
from ddbio.items.kernel.column_chunks import (
    BOUNDS,
    COMPRESSED,
    DEFINITIONS,
    ENCRYPTED,
    KIND,
    REPETITIONS,
    TEXT_BYTES,
    UNCOMPRESSED,
    chunks_by_loop,
    chunks_plainly,
)
from ddbio.items.kernel.first_calls import FIRST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

# A footer of some row groups and a hundred columns; a longer one takes a second request.
_TAIL_BYTES = 64 * 1024
# The length of the footer, and the mark PAR1.
# https://parquet.apache.org/docs/file-format/
_END_BYTES, _MARK = 8, b"PAR1"
_NAMES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_KINDS = {name: number for number, name in enumerate(_NAMES)}
# A damaged schema may name another; no column chunk has this number.
_NO_KIND = -2
_WIDTHS = np.array([1, 4, 8, 12, 4, 8, -1, -1])
TEXT = _KINDS["BYTE_ARRAY"]
"""The number of the physical type of texts."""
_FIXED = _KINDS["FIXED_LEN_BYTE_ARRAY"]


def read_tail(store: ObjectStore, entry: StoredObject) -> bytes:
    """Return the end of a file, with its whole footer if it is Parquet, by one request if the footer is short."""
    tail = _end(store, entry, _TAIL_BYTES)
    needed = int.from_bytes(tail[-_END_BYTES : -len(_MARK)], "little") + _END_BYTES
    return _end(store, entry, needed) if needed > len(tail) and tail.endswith(_MARK) else tail


def _end(store: ObjectStore, entry: StoredObject, length: int) -> bytes:
    length = min(length, entry.size_bytes)
    return store.read_range(entry, entry.size_bytes - length, length)


def facts_of_chunks(tail: bytes, metadata: pq.FileMetaData) -> NDArray[np.int64]:
    """Return the facts of each row group's column chunks, after a check that pyarrow can make objects of them.

    Parameters
    ----------
    tail
        What ``read_tail`` returned.
    metadata
        The footer that pyarrow found in it.

    Raises
    ------
    DecodeError
        A column is encrypted, or what the footer says of it does not fit its type.
    """
    size = int.from_bytes(tail[-_END_BYTES : -len(_MARK)], "little")
    text = tail[-_END_BYTES - size : -_END_BYTES]
    groups, leaves = metadata.num_row_groups, metadata.num_columns
    facts = FIRST_CALLS.answer(size, chunks_by_loop, chunks_plainly, text, groups, leaves)
    schema: Any = metadata.schema
    columns = [schema.column(place) for place in range(leaves)]
    kinds = np.array([_KINDS.get(each.physical_type, _NO_KIND) for each in columns], np.int64)
    misfits = (facts[..., KIND] != kinds) | ((facts[..., TEXT_BYTES] >= 0) & (kinds != TEXT))
    if (facts[..., REPETITIONS : DEFINITIONS + 1] > 0).any():
        levels = np.array([(each.max_repetition_level, each.max_definition_level) for each in columns])
        counts = facts[..., REPETITIONS : DEFINITIONS + 1]
        misfits |= ((counts > 0) & (counts != levels + 1)).any(axis=-1)
    encrypted = facts[..., ENCRYPTED] >= 0
    if encrypted.any():
        raise DecodeError(f"column {_first(columns, encrypted)} is encrypted, which is not read")
    _refuse(columns, misfits)
    return facts


def check_bounds(facts: NDArray[np.int64], metadata: pq.FileMetaData) -> None:
    """Check that pyarrow can make objects of the bounds of column chunks.

    Raises
    ------
    DecodeError
        A bound does not fit the type of its column.
    """
    schema: Any = metadata.schema
    columns = [schema.column(place) for place in range(metadata.num_columns)]
    kinds = facts[..., KIND]
    lengths = np.array([each.length for each in columns])
    widths = np.where(kinds == _FIXED, lengths, _WIDTHS[kinds])[..., np.newaxis]
    bounds = facts[..., BOUNDS:TEXT_BYTES]
    _refuse(columns, ((widths >= 0) & (bounds > 0) & (bounds != widths)).any(axis=-1))


def _refuse(columns: list[Any], misfits: NDArray[np.bool_]) -> None:
    if misfits.any():
        path = _first(columns, misfits)
        raise DecodeError(f"its footer is damaged: what it says of column {path} does not fit its type")


def _first(columns: list[Any], found: NDArray[np.bool_]) -> str:
    return str(columns[int(found.any(axis=0).argmax())].path)


def read_footer(store: ObjectStore, entry: StoredObject, columns: dict[tuple[str, ...], tuple[str, ...]]) -> Footer:
    """Return what a file of Parquet says of itself.

    Parameters
    ----------
    columns
        Keeps the columns of the leaves of each schema, which are found once for all files.

    Raises
    ------
    DecodeError
        If it is no file of Parquet.
    NotFoundError
        If the file is gone.
    """
    opened, facts = _opened(store, entry)
    names = _columns_of(opened.metadata, columns)
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


def _columns_of(metadata: pq.FileMetaData, known: dict[tuple[str, ...], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the name of the column that each leaf is a part of."""
    schema: Any = metadata.schema
    paths = tuple(schema.column(place).path for place in range(metadata.num_columns))
    names = known.get(paths)
    if names is None:
        fields = schema.to_arrow_schema()
        names = tuple(field.name for field in fields for _ in range(_leaves(field.type)))
        known[paths] = names if len(names) == len(paths) else paths
    return known[paths]


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
