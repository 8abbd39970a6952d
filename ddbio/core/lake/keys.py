"""Write keys as text, the same in each table format and engine, and tell the bucket of each."""

from __future__ import annotations

import functools
import itertools
import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.attribute import decode_base64
from ddbio.core.items.first_calls import FIRST_CALLS
from ddbio.core.items.item_key import canonical_texts
from ddbio.core.kernel.arrays import spans_of
from ddbio.core.kernel.crc import tables_of
from ddbio.core.kernel.lake_keys import CRC_32, Keys, Texts, write_keys
from ddbio.core.kernel.memory import PAD
from ddbio.core.number import canonical_number
from ddbio.core.schema.arrow import RESCUE_NAME, name_of_field, tag_of_field
from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# The offsets of Arrow's texts have 31 bits.
_MOST_BYTES = (1 << 31) - 1 - PAD
_MOST_KEYS = 2


def key_texts(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array[Any]:
    """Return the key of each row as text: ``S:user#7|N:19``, a letter for each type, numbers in canonical form.

    In texts of a key of two attributes ``|`` and the backslash have a backslash before them; bytes are hexadecimal.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    parts = _parts(rows, keys)
    if any(part.null_count for _, part in parts):
        return _texts_with_rescued(rows, keys, parts)
    return _joined(parts)


def keys_and_buckets(rows: pa.RecordBatch, keys: Sequence[str], count: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the key of each row as text, and its bucket: as :func:`key_texts` and :func:`buckets_of`, in one pass.

    Raises
    ------
    SchemaError
        If a row lacks its key.
    """
    parts = _parts(rows, keys)
    if any(part.null_count for _, part in parts):
        texts = _texts_with_rescued(rows, keys, parts)
        return texts, buckets_of(texts, count)
    spans = [spans_of(part) for _, part in parts]
    size = sum(int(places[-1] - places[0]) for _, places in spans) + (3 * len(parts) - 1) * rows.num_rows
    if size > _MOST_BYTES or len(parts) > _MOST_KEYS:
        return _plainly(parts, count)
    return FIRST_CALLS.answer(size, functools.partial(_by_loop, spans, size), _plainly, parts, count)


def _plainly(parts: Sequence[tuple[str, Any]], count: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
    texts = _joined(parts)
    return texts, buckets_of(texts, count)


def _by_loop(
    spans: Sequence[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]],
    size: int,
    parts: Sequence[tuple[str, Any]],
    count: int,
) -> tuple[pa.Array[Any], pa.Array[Any]]:
    n_rows = len(parts[0][1])
    out, ends, crcs = np.empty(size + PAD, np.uint8), np.zeros(n_rows + 1, np.int32), np.empty(n_rows, np.uint32)
    tags = np.array([ord(tag) for tag, _ in parts], np.uint8)
    # Of a key of one attribute the second is not looked at.
    write_keys(Texts(*spans[0]), Texts(*spans[-1]), tags, _tables(), Keys(out, ends[1:], crcs))
    held: list[Any] = [ends, out]
    texts: Any = pa.Array.from_buffers(pa.string(), n_rows, [None, *map(pa.py_buffer, held)])
    return texts, pa.array((crcs % count).astype(np.int32))


@functools.cache
def _tables() -> npt.NDArray[np.uint64]:
    return tables_of(CRC_32)


def warm() -> None:
    """Compile the loop."""
    spans, parts = [spans_of(pa.array(["a"]))], [("S", pa.array(["a"]))]
    _by_loop(spans, 3, parts, 1)


def buckets_of(keys: pa.Array[Any], count: int) -> pa.Array[Any]:
    """Return the bucket of each key: the CRC-32 of its text, modulo the number of buckets."""
    data, offsets = spans_of(keys)
    text, ends = data.tobytes(), offsets.tolist()
    found = np.fromiter((crc32(text[start:end]) for start, end in itertools.pairwise(ends)), np.uint32, len(keys))
    return pa.array((found % count).astype(np.int32))


def _parts(rows: pa.RecordBatch, keys: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the type of each key attribute, and the texts of its values."""
    columns = {name_of_field(field): place for place, field in enumerate(rows.schema) if field.name != RESCUE_NAME}
    parts = []
    for name in keys:
        if name not in columns:
            raise SchemaError(f"{name}: the rows have no such attribute, which is of the key")
        place = columns[name]
        tag = tag_of_field(rows.schema.field(place))
        parts.append((tag, _texts(rows.column(place), tag, escaped=len(keys) > 1)))
    return parts


def _joined(parts: Sequence[tuple[str, Any]]) -> pa.Array[Any]:
    # Joined at once, texts are copied once.
    pieces: list[Any] = [
        each for number, (tag, part) in enumerate(parts) for each in (f"{'|' if number else ''}{tag}:", part)
    ]
    joined: Any = pc.binary_join_element_wise(*pieces, "")
    found: pa.Array[Any] = joined
    return found


def _texts_with_rescued(rows: pa.RecordBatch, keys: Sequence[str], parts: Sequence[tuple[str, Any]]) -> pa.Array[Any]:
    filled = _with_rescued(rows, keys, parts)
    joined: Any = filled[0] if len(filled) == 1 else pc.binary_join_element_wise(*filled, "|")
    if joined.null_count:
        raise SchemaError(f"{', '.join(keys)}: {joined.null_count} rows lack their key")
    found: pa.Array[Any] = joined
    return found


def _texts(column: Any, tag: str, *, escaped: bool) -> Any:
    found: Any
    if tag == "N":
        found = column.cast(pa.string()) if pa.types.is_integer(column.type) else canonical_texts(column)
    elif tag == "B":
        found = pa.array([None if each is None else each.hex() for each in column.to_pylist()], pa.string())
    elif tag == "S":
        found = column.cast(pa.string())
        if escaped and _has_signs(found):
            found = pc.replace_substring(pc.replace_substring(found, "\\", "\\\\"), "|", "\\|")
    else:
        raise SchemaError(f"a key attribute has type {tag}: keys are S, N or B")
    return found


def _has_signs(texts: Any) -> bool:
    """Return whether some text has a sign that is written with a backslash before it."""
    data = spans_of(texts)[0] if len(texts) else np.zeros(0, np.uint8)
    return bool((data == ord("|")).any() or (data == ord("\\")).any())


def _with_rescued(rows: pa.RecordBatch, keys: Sequence[str], parts: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return the parts of keys behind their types; those that columns could not hold are from the rescue column."""
    texts = rows.column(RESCUE_NAME).to_pylist() if RESCUE_NAME in rows.schema.names else [None] * rows.num_rows
    filled = []
    for name, (tag, part) in zip(keys, parts, strict=True):
        values = [None if each is None else f"{tag}:{each}" for each in part.to_pylist()]
        for row in np.flatnonzero(part.is_null().to_numpy(zero_copy_only=False)).tolist():
            found = json.loads(texts[row] or "{}").get(name)
            if found is not None:
                values[row] = _text_of(found, escaped=len(keys) > 1)
        filled.append(pa.array(values, pa.string()))
    return filled


def _text_of(value: dict[str, Any], *, escaped: bool) -> str:
    ((tag, content),) = value.items()
    if tag == "N":
        content = canonical_number(content)
    elif tag == "B":
        content = decode_base64(content).hex()
    elif escaped:
        content = content.replace("\\", "\\\\").replace("|", "\\|")
    return f"{tag}:{content}"
