"""Keys as text, the same in each table format and engine, their buckets, and row versions as text."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import SchemaError
from ddbio.items.item_key import canonical_texts, key_columns
from ddbio.items.kernel.arrays import spans_of
from ddbio.items.kernel.crc import tables_of
from ddbio.items.kernel.lake_keys import CRC_32, Keys, Texts, write_keys
from ddbio.items.kernel.memory import PAD
from ddbio.items.schema.arrow import tag_of_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ddbio.items.item_key import KeyColumns

_EPOCH_DIGITS, _ORDER_DIGITS = 4, 40

BASE: Final = "0" * (_EPOCH_DIGITS + _ORDER_DIGITS)
"""The version of rows of a base load."""

_LAST_EPOCH: Final = 16**_EPOCH_DIGITS - 1


def versions(epoch: int, sequences: Any) -> pa.Array[Any]:
    """Return the row version for each sequence number of an epoch.

    Raises
    ------
    SchemaError
        If a sequence number is longer than those of the service.
    """
    if not 0 < epoch <= _LAST_EPOCH:
        raise SchemaError(f"a table has no epoch {epoch}: streams have 1 to {_LAST_EPOCH}")
    longest: Any = pc.max(pc.binary_length(sequences))
    if longest.is_valid and longest.as_py() > _ORDER_DIGITS:
        raise SchemaError(f"a sequence number has {longest.as_py()} digits, but the service uses at most 40")
    padded: Any = pc.utf8_lpad(sequences, _ORDER_DIGITS, "0")
    row_versions: pa.Array[Any] = pc.binary_join_element_wise(pa.scalar(prefix_of(epoch)), padded, "")
    return row_versions


def prefix_of(epoch: int) -> str:
    """Return the prefix of the versions of an epoch."""
    return f"{epoch:04x}"


def epoch_of(version: str) -> int:
    """Return the epoch of a version."""
    return int(version[:_EPOCH_DIGITS], 16)


# The offsets of Arrow strings have 31 bits.
_MAX_BYTES = (1 << 31) - 1 - PAD
_MAX_LOOP_KEYS = 2


def key_texts(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array[Any]:
    """Return the key of each row as text: ``S:user#7|N:19``, a letter for each type, canonical numbers.

    For a key of two attributes, ``|`` and the backslash are escaped by a backslash. Bytes are hexadecimal.

    Raises
    ------
    SchemaError
        If a row has no key.
    """
    return _texts_of(key_columns(rows, keys), rows.num_rows)


def keys_and_buckets(rows: pa.RecordBatch, keys: Sequence[str], count: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the key texts and buckets of rows: like :func:`key_texts` and :func:`buckets_of`, but in one pass.

    Raises
    ------
    SchemaError
        If a row has no key.
    """
    key_groups = key_columns(rows, keys)
    if len(key_groups) != 1 or not isinstance(key_groups[0].rows, slice):
        texts = _texts_of(key_groups, rows.num_rows)
        return texts, buckets_of(texts, count)
    parts = _parts(key_groups[0].columns)
    spans = [spans_of(part) for _, part in parts]
    size = sum(int(offsets[-1] - offsets[0]) for _, offsets in spans) + (3 * len(parts) - 1) * rows.num_rows
    if size > _MAX_BYTES or len(parts) > _MAX_LOOP_KEYS:
        return _with_arrow(parts, count)
    return _with_loop(spans, size, parts, count)


def _with_arrow(parts: Sequence[tuple[str, Any]], count: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    texts = _joined(parts)
    return texts, buckets_of(texts, count)


def _with_loop(
    spans: Sequence[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]],
    size: int,
    parts: Sequence[tuple[str, Any]],
    count: int,
) -> tuple[pa.Array[Any], pa.Array[Any]]:
    n_rows = len(parts[0][1])
    out, ends, crcs = np.empty(size + PAD, np.uint8), np.zeros(n_rows + 1, np.int32), np.empty(n_rows, np.uint32)
    tags = np.array([ord(tag) for tag, _ in parts], np.uint8)
    # For a key of one attribute the second argument is not used.
    write_keys(Texts(*spans[0]), Texts(*spans[-1]), tags, _tables(), Keys(out, ends[1:], crcs))
    buffers: list[Any] = [ends, out]
    texts: Any = pa.Array.from_buffers(pa.string(), n_rows, [None, *map(pa.py_buffer, buffers)])
    return texts, pa.array((crcs % count).astype(np.int32))


@functools.cache
def _tables() -> npt.NDArray[np.uint64]:
    return tables_of(CRC_32)


def buckets_of(keys: pa.Array[Any], count: int) -> pa.Array[Any]:
    """Return the bucket of each key: the CRC-32 of its text, modulo the number of buckets."""
    data, offsets = spans_of(keys)
    text, ends = data.tobytes(), offsets.tolist()
    checksums = np.fromiter((crc32(text[start:end]) for start, end in itertools.pairwise(ends)), np.uint32, len(keys))
    return pa.array((checksums % count).astype(np.int32))


def _texts_of(key_groups: Sequence[KeyColumns], count: int) -> pa.Array[Any]:
    """Return the key texts in the order of the rows."""
    if len(key_groups) == 1 and isinstance(key_groups[0].rows, slice):
        return _joined(_parts(key_groups[0].columns))
    texts = np.empty(count, object)
    for rows, columns in key_groups:
        texts[rows] = _joined(_parts(columns)).to_pylist()
    return pa.array(texts, pa.string())


def _parts(columns: Sequence[tuple[pa.Array[Any], pa.Field[Any]]]) -> list[tuple[str, Any]]:
    """Return the type of each key attribute, and the texts of its values."""
    tagged = [(tag_of_field(field), column) for column, field in columns]
    return [(tag, _texts(column, tag, escaped=len(tagged) > 1)) for tag, column in tagged]


def _joined(parts: Sequence[tuple[str, Any]]) -> pa.Array[Any]:
    # In one call, so that texts are copied only once.
    pieces: list[Any] = [
        piece for number, (tag, part) in enumerate(parts) for piece in (f"{'|' if number else ''}{tag}:", part)
    ]
    joined: Any = pc.binary_join_element_wise(*pieces, "")
    texts: pa.Array[Any] = joined
    return texts


def _texts(column: Any, tag: str, *, escaped: bool) -> Any:
    texts: Any
    if tag == "N":
        texts = column.cast(pa.string()) if pa.types.is_integer(column.type) else canonical_texts(column)
    elif tag == "B":
        texts = pa.array([value.hex() for value in column.to_pylist()], pa.string())
    else:
        texts = column.cast(pa.string())
        if escaped and _has_signs(texts):
            texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "|", "\\|")
    return texts


def _has_signs(texts: Any) -> bool:
    """Return whether any text has a character that must be escaped."""
    data = spans_of(texts)[0] if len(texts) else np.zeros(0, np.uint8)
    return bool((data == ord("|")).any() or (data == ord("\\")).any())
