"""Identities, 64-bit hashes and 128-bit fingerprints of item keys, and the search for duplicate keys.

The identity of a key is, for each key attribute in the given order: the letter of its type (``S``, ``N`` or ``B``), the
length of its content in four bytes, little-endian, and the content: UTF-8, the canonical number, or the bytes. Equal
identities mean equal keys, regardless of the text and the column types: N 1, 1.0 and 1E0 are one key, S "1" is another.
The hash is the XXH64 of the identity with seed 0. It is the same on every machine and in every release.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.attribute import decode_base64
from ddbio.items.decode import Decoder
from ddbio.items.encode import EncodeOptions
from ddbio.items.kernel.arrays import binary_array, plain_array, spans_of, take_rows, text_array, valid_of, words_of
from ddbio.items.kernel.encode.fields import plain_fields, time_array
from ddbio.items.kernel.hash.keys import DIGITS_BYTES, PREFIX_BYTES, hash_keys, print_decimals, print_numbers
from ddbio.items.kernel.memory import PAD
from ddbio.items.kernel.number import LONGEST_NUMBER
from ddbio.items.number import MAX_DIGITS, canonical_number
from ddbio.items.reference import items_of
from ddbio.items.schema.arrow import (
    DDB_NAME,
    DDB_TYPE,
    RESCUE_NAME,
    name_of_field,
    normalize_schema,
    tag_of_field,
    tagged_field,
)
from ddbio.items.schema.folded import fold
from ddbio.items.schema.own_names import column_name, mark_own_columns
from ddbio.items.time_columns import stored_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ddbio.items.attribute import Item

    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
    _Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
    _Columns: TypeAlias = Sequence[tuple[pa.Array[Any], pa.Field[Any]]]
    _Spans: TypeAlias = tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.int64]]]

_CONTENTS: dict[str, Callable[[str], bytes]] = {
    "S": str.encode,
    "N": lambda text: canonical_number(text).encode(),
    "B": decode_base64,
}
_LENGTH_BYTES = 4
# Columns of these types contain only keys of these types, encoded as they are hashed.
_EXACT_TYPES: dict[pa.DataType, str] = {
    pa.string(): "S",
    pa.large_string(): "S",
    pa.binary(): "B",
    pa.large_binary(): "B",
    pa.int64(): "N",
}
_OPTIONS = EncodeOptions()


def key_identity(item: Item, keys: Sequence[str]) -> bytes:
    """Return the identity of an item's key. Two keys are equal exactly if their identities are equal.

    Parameters
    ----------
    item
        The parsed DynamoDB JSON.
    keys
        The key attributes' names: partition key, then sort key.

    Raises
    ------
    SchemaError
        The item lacks a key attribute, or it is neither S, N nor B.
    DecodeError
        A number or a binary is invalid.
    """
    parts = []
    for name in keys:
        ((tag, content),) = item.get(name, {"": None}).items()
        if tag not in _CONTENTS:
            problem = f"of type {tag}" if tag else "missing"
            raise SchemaError(f"{name} is {problem}: every item has its key attributes, and each is S, N or B")
        encoded = _CONTENTS[tag](content)
        parts.append(tag.encode() + len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded)
    return b"".join(parts)


class KeyColumns(NamedTuple):
    """Keys of some rows of a batch, in columns without nulls.

    Attributes
    ----------
    rows
        The indices of the rows in the batch.
    columns
        A column for each key attribute, in the order of the attributes, and its field.
    """

    rows: np.ndarray[Any, np.dtype[np.int64]] | slice
    columns: _Columns

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns as a batch."""
        arrays, fields = zip(*self.columns, strict=True)
        return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))


def key_columns(rows: pa.RecordBatch | pa.Table, keys: Sequence[str]) -> list[KeyColumns]:
    """Return the keys of all rows. The rescue column is searched if a key column has no value.

    Usually each batch is one part with the columns of the batch. Rows with a rescued key attribute are in other parts,
    one per combination of the key attributes' types. There, a number is text in a column of type N.

    Parameters
    ----------
    keys
        The key attributes' names: partition key, then sort key.

    Raises
    ------
    SchemaError
        There is no such column, a row lacks a key attribute, or a key attribute is not S, N or B.
    DecodeError
        A number or a binary in the rescue column is invalid.
    """
    if isinstance(rows, pa.RecordBatch):
        return _columns_of_batch(rows, keys)
    start, parts = 0, list[KeyColumns]()
    for batch in key_rows(rows, keys).to_batches():
        end = start + batch.num_rows
        for batch_rows, columns in _columns_of_batch(batch, keys):
            parts.append(
                KeyColumns(slice(start, end) if isinstance(batch_rows, slice) else start + batch_rows, columns)
            )
        start = end
    return parts


def key_rows(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the key columns of rows, and the rescue column if it may contain a key attribute of a row."""
    names, schema = {*keys}, mark_own_columns(rows.schema)
    indices = [index for index, field in enumerate(schema) if name_of_field(field) in names]
    if len(indices) < len(names) or any(rows.column(index).null_count for index in indices):
        indices += [index for index, field in enumerate(rows.schema) if field.name == RESCUE_NAME]
    return rows.select(indices)


def key_values(columns: _Columns) -> list[list[Any]]:
    """Return the values of the columns of :func:`key_columns` as Python objects that sort as in DynamoDB."""
    return [
        [Decimal(str(text)) for text in canonical_texts(column).to_pylist()]
        if tag_of_field(field) == "N" and not pa.types.is_integer(field.type)
        else column.to_pylist()
        for column, field in columns
    ]


def _columns_of_batch(batch: pa.RecordBatch, keys: Sequence[str]) -> list[KeyColumns]:
    schema = batch.schema
    attributes = _attributes_of(schema)
    columns = _hashable_columns(batch, schema, keys, attributes)
    if columns is not None:
        return [KeyColumns(slice(None), columns)]
    if any(attributes.count(name) > 1 for name in keys):
        # One of ddbio's own columns may have the name of a key attribute that has another column.
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=mark_own_columns(batch.schema))
        attributes = _attributes_of(batch.schema)
    for name in keys:
        if name not in attributes:
            if RESCUE_NAME not in batch.schema.names:
                raise SchemaError(
                    f"{name}: the batch has no such attribute: it has {', '.join(filter(None, attributes))}"
                )
            # Another attribute or one of ddbio's own columns may have this name.
            own = column_name(name, {fold(column) for column in batch.schema.names})
            column = tagged_field(own, pa.string(), "S", attribute=name)
            batch = batch.append_column(column, pa.nulls(batch.num_rows, pa.string()))
            attributes.append(name)
    batch = _convertible(batch, keys)
    fields = {name_of_field(field): field for field in normalize_schema(batch.schema) if field.name != RESCUE_NAME}
    columns = [(batch.column(fields[name].name), fields[name]) for name in keys]
    if any(tag_of_field(field) not in _CONTENTS for _, field in columns):
        return _parsed_keys(batch, np.arange(batch.num_rows), keys)
    has_keys = np.logical_and.reduce([valid_of(column) for column, _ in columns])
    if has_keys.all():
        return [KeyColumns(slice(None), columns)]
    complete, rows = np.flatnonzero(has_keys), np.flatnonzero(~has_keys)
    parts = [KeyColumns(complete, _take(columns, complete))] if len(complete) else []
    return [*parts, *_rescued_keys(take_rows(batch, rows), rows, [fields[name] for name in keys])]


def _attributes_of(schema: pa.Schema) -> list[str]:
    """Return the attribute name of each column, and an empty name for the rescue column."""
    attributes = []
    for name, field in zip(schema.names, schema, strict=True):
        kept = (field.metadata or {}).get(DDB_NAME)
        attributes.append("" if name == RESCUE_NAME else name if kept is None else kept.decode())
    return attributes


def key_hashes(batch: pa.RecordBatch, keys: Sequence[str]) -> _Words:
    """Return the hash of each row's key. Equal identities have equal hashes.

    Parameters
    ----------
    batch
        Its columns' types do not matter: int64 1, decimal 1.0 and the text ``1E0`` of type N have one hash.
    keys
        The key attributes' names: partition key, then sort key.

    Raises
    ------
    SchemaError, DecodeError
        As ``key_columns``; or a number is beyond 38 digits or out of range.
    """
    parts = key_columns(batch, keys)
    if len(parts) == 1 and isinstance(parts[0].rows, slice):
        return _hashes(parts[0].columns)
    hashes = np.empty(batch.num_rows, np.uint64)
    for rows, columns in parts:
        hashes[rows] = _hashes(columns)
    return hashes


def _hashable_columns(
    batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[str], attributes: Sequence[str]
) -> list[tuple[pa.Array[Any], pa.Field[Any]]] | None:
    """Return the columns of keys if they can be hashed without conversion, or None if not or if one is missing."""
    columns = []
    for name in keys:
        if attributes.count(name) != 1:
            return None
        index = attributes.index(name)
        column, field = batch.column(index), schema.field(index)
        tag = (field.metadata or {}).get(DDB_TYPE)
        if column.null_count or tag is None or _exact_tag(field.type) != tag.decode():
            return None
        columns.append((column, field))
    return columns


def _exact_tag(arrow_type: Any) -> str | None:
    """Return the key type of columns of an Arrow type, or None if their values must be converted before hashing."""
    tag = _EXACT_TYPES.get(arrow_type)
    is_decimal = tag is None and pa.types.is_decimal128(arrow_type) and 0 <= arrow_type.scale <= MAX_DIGITS
    return "N" if is_decimal else tag


def _convertible(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the columns that may contain keys, converted to types that DynamoDB has."""
    kept = [index for index, field in enumerate(batch.schema)
            if field.name == RESCUE_NAME or name_of_field(field) in keys]  # fmt: skip
    batch = stored_batch(batch.select(kept))
    fields, _ = plain_fields(batch.schema, _OPTIONS)
    columns = [time_array(plain_array(batch.column(field.name)), _OPTIONS).cast(field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _take(columns: _Columns, rows: np.ndarray[Any, Any]) -> _Columns:
    """Return the given rows of the key columns."""
    return [(column.take(pa.array(rows, pa.int64())), field) for column, field in columns]


def _rescued_keys(
    batch: pa.RecordBatch, rows: np.ndarray[Any, Any], fields: Sequence[pa.Field[Any]]
) -> list[KeyColumns]:
    """Return the keys of rows from their columns or from the rescue column."""
    counts, parts = np.zeros(len(rows), np.int64), list[KeyColumns]()
    rescued = _rescue_columns(batch, [name_of_field(field) for field in fields])
    choices = [[(batch.column(field.name), field), *others] for field, others in zip(fields, rescued, strict=True)]
    for columns in itertools.product(*choices):
        complete = np.flatnonzero(np.logical_and.reduce([valid_of(column) for column, _ in columns]))
        if len(complete):
            parts.append(KeyColumns(rows[complete], _take(columns, complete)))
            counts[complete] += 1
    if (counts == 1).all():
        return parts
    return _parsed_keys(batch, rows, [name_of_field(field) for field in fields])


def _rescue_columns(batch: pa.RecordBatch, names: Sequence[str]) -> list[list[tuple[pa.Array[Any], pa.Field[Any]]]]:
    """Return for each key attribute one column per type that it may have in the rescue column."""
    columns_of_keys: list[list[tuple[pa.Array[Any], pa.Field[Any]]]] = [[] for _ in names]
    if RESCUE_NAME not in batch.schema.names:
        return columns_of_keys
    texts = [text or b"{}" for text in binary_array(batch.column(RESCUE_NAME)).to_pylist()]
    if not all(text.startswith(b"{") and text.endswith(b"}") for text in texts):
        return columns_of_keys
    for tag in _CONTENTS:
        schema = pa.schema([_text_field(name, tag) for name in names])
        try:
            items = Decoder(schema).decode(b"\n".join(texts), "items")
        except DecodeError:
            return columns_of_keys
        # Each text starts and ends an item. If there are as many items as texts, each text is one item.
        if items.num_rows != batch.num_rows:
            return columns_of_keys
        for columns, name in zip(columns_of_keys, names, strict=True):
            columns.append((items.column(name), schema.field(name)))
    return columns_of_keys


def _text_field(name: str, tag: str) -> pa.Field[Any]:
    return tagged_field(name, pa.binary() if tag == "B" else pa.string(), tag)


def _parsed_keys(batch: pa.RecordBatch, rows: np.ndarray[Any, Any], keys: Sequence[str]) -> list[KeyColumns]:
    """Return the keys of rows by the reference implementation, whose errors name the row and the cause."""
    by_type: dict[tuple[str, ...], list[tuple[int, Item]]] = {}
    for row, item in zip(rows.tolist(), items_of(batch), strict=True):
        try:
            key_identity(item, keys)
        except SchemaError as error:
            raise SchemaError(f"row {row}: {error}") from None
        by_type.setdefault(tuple(next(iter(item[name])) for name in keys), []).append((row, item))
    parts = []
    for tags, items in by_type.items():
        columns = []
        for name, tag in zip(keys, tags, strict=True):
            field, contents = _text_field(name, tag), [item[name][tag] for _, item in items]
            columns.append(
                (pa.array([_CONTENTS[tag](content) for content in contents], pa.binary()).cast(field.type), field)
            )
        parts.append(KeyColumns(np.array([row for row, _ in items], np.int64), columns))
    return parts


def _hashes(columns: _Columns, times: int = 1) -> _Words:
    """Return the hash of each key, or of each key repeated ``times`` times."""
    tags = [tag_of_field(field) for _, field in columns]
    contents = [
        _numbers(column) if tag == "N" else spans_of(column) for (column, _), tag in zip(columns, tags, strict=True)
    ]
    return _hash_contents(contents * times, np.array([ord(tag) for tag in tags] * times, np.uint8))


def _numbers(column: pa.Array[Any]) -> _Spans:
    """Return the canonical texts of numbers."""
    ends = np.zeros(len(column) + 1, np.int64)
    out = np.empty(LONGEST_NUMBER * len(column) + PAD, np.uint8)
    digits = np.zeros(DIGITS_BYTES, np.uint8)
    column_type: Any = column.type
    if pa.types.is_decimal128(column_type) and 0 <= column_type.scale <= MAX_DIGITS:
        print_decimals(words_of(column, 2), column_type.scale, digits, out, ends[1:])
        return out, ends
    texts: Any = text_array(column)
    data, offsets = spans_of(texts)
    if pa.types.is_integer(column_type):
        return data, offsets
    refused = print_numbers(data, offsets, digits, out, ends[1:])
    if refused >= 0:
        canonical_number(texts[refused].as_buffer().to_pybytes().decode(errors="replace"))
    return out, ends


def canonical_texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the canonical texts of a column of numbers, as DynamoDB stores them. Null stays null.

    Raises
    ------
    DecodeError
        A number is beyond 38 digits or out of range.
    """
    data, ends = _numbers(column)
    missing = None if not column.null_count else pa.array(~valid_of(column))
    buffers: list[Any] = [ends, data]
    texts: Any = pa.Array.from_buffers(pa.large_string(), len(column), [None, *map(pa.py_buffer, buffers)])
    canonical: pa.Array[Any] = texts.cast(pa.string())
    return canonical if missing is None else pc.if_else(missing, pa.scalar(None, pa.string()), canonical)


def _hash_contents(contents: Sequence[_Spans], tags: np.ndarray[Any, Any]) -> _Words:
    n_rows = len(contents[0][1]) - 1
    offsets_of_keys, parts, end = np.empty((len(contents), n_rows + 1), np.int64), [], 0
    for key, (data, offsets) in enumerate(contents):
        first, stop = int(offsets[0]), int(offsets[-1])
        offsets_of_keys[key] = offsets + (end - first)
        parts.append(data[first:stop])
        end += stop - first
    # No row's keys are longer than the sum of the longest key in each column.
    widest = (
        sum(int((key_offsets[1:] - key_offsets[:-1]).max(initial=0)) for key_offsets in offsets_of_keys)
        + len(tags) * PREFIX_BYTES
    )
    hashes = np.empty(n_rows, np.uint64)
    hash_keys(
        np.concatenate([*parts, np.zeros(widest + 2 * PAD, np.uint8)]), offsets_of_keys.ravel(), tags, end, hashes
    )
    return hashes


class Fingerprints(NamedTuple):
    """128 bits of each row's key in two words. Collisions among 100 million keys are practically impossible."""

    high: _Words
    low: _Words

    @classmethod
    def joined(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        """Return the fingerprints of several batches as one."""
        return cls(np.concatenate([part.high for part in parts]), np.concatenate([part.low for part in parts]))


def key_fingerprints(rows: pa.RecordBatch | pa.Table, keys: Sequence[str]) -> Fingerprints:
    """Return the fingerprint of each row's key. Equal keys have equal fingerprints.

    Raises
    ------
    SchemaError, DecodeError
        As ``key_hashes``.
    """
    result = Fingerprints(np.empty(rows.num_rows, np.uint64), np.empty(rows.num_rows, np.uint64))
    for part_rows, columns in key_columns(rows, keys):
        result.high[part_rows], result.low[part_rows] = _hashes(columns), _hashes(columns, 2)
    return result


class KeySet:
    """Search for repeated keys in a long stream, with 16 bytes of memory per key.

    Fingerprints are stored in sorted runs. Each run is at least twice as long as the next.

    Parameters
    ----------
    kept
        The minimum number of the latest keys to keep. Older keys are forgotten.
    """

    def __init__(self, kept: float = math.inf) -> None:
        self._runs: list[Fingerprints] = []
        self._kept = kept

    def add(self, fingerprints: Fingerprints) -> _Flags:
        """Return a mask of the rows with a new key. Of several rows with the same key, the first is new."""
        order = _order(fingerprints)
        sorted_ = Fingerprints(fingerprints.high[order], fingerprints.low[order])
        new = _is_first(sorted_)
        for run in self._runs:
            new &= _positions_in(run, sorted_) < 0
        self._insert(Fingerprints(sorted_.high[new], sorted_.low[new]))
        mask = np.empty(len(order), bool)
        mask[order] = new
        return mask

    def _insert(self, run: Fingerprints) -> None:
        if not len(run.high):
            return
        # Merging stops at a quarter of the limit, so that the oldest long run can be forgotten alone.
        while self._runs and len(self._runs[-1].high) < 2 * len(run.high) <= max(1, self._kept / 4):
            other = self._runs.pop()
            run = Fingerprints.joined([other, run])
            order = _order(run)
            run = Fingerprints(run.high[order], run.low[order])
        self._runs.append(run)
        while sum(len(run.high) for run in self._runs[1:]) >= self._kept:
            del self._runs[0]


class KeyGroups:
    """Rows grouped by their keys, and the search for the group of a fingerprint.

    Attributes
    ----------
    known
        The fingerprint of each group's key, sorted.
    rows
        The row numbers, group by group.
    starts, counts
        The index in ``rows`` at which each group starts, and the number of its rows.
    """

    def __init__(self, fingerprints: Fingerprints) -> None:
        self.rows = _order(fingerprints)
        sorted_ = Fingerprints(fingerprints.high[self.rows], fingerprints.low[self.rows])
        self.starts = np.flatnonzero(_is_first(sorted_))
        self.counts = np.diff(self.starts, append=len(self.rows))
        self.known = Fingerprints(sorted_.high[self.starts], sorted_.low[self.starts])

    def find(self, fingerprints: Fingerprints) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return the group of each key, or -1 if no group has it."""
        return _positions_in(self.known, fingerprints)


def _is_first(fingerprints: Fingerprints) -> _Flags:
    """Return a mask of the sorted fingerprints that differ from the previous one."""
    begins = np.ones(len(fingerprints.high), bool)
    begins[1:] = (fingerprints.high[1:] != fingerprints.high[:-1]) | (fingerprints.low[1:] != fingerprints.low[:-1])
    return begins


def _order(fingerprints: Fingerprints) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the indices that sort the fingerprints, stably."""
    order = np.argsort(fingerprints.high, kind="stable")
    high = fingerprints.high[order]
    if not (high[1:] == high[:-1]).any():
        return order
    # Fingerprints with equal first words may differ in the second.
    return np.lexsort((fingerprints.low, fingerprints.high))


def _positions_in(run: Fingerprints, fingerprints: Fingerprints) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the position of each fingerprint in a sorted run without duplicates, or -1 if the run lacks it."""
    positions = np.full(len(fingerprints.high), -1, np.intp)
    if not len(run.high):
        return positions
    first = np.searchsorted(run.high, fingerprints.high)
    while True:
        # Several fingerprints of a run can have the same first word, so each of them is compared.
        candidate = np.minimum(first, len(run.high) - 1)
        same = (first < len(run.high)) & (run.high[candidate] == fingerprints.high) & (positions < 0)
        positions = np.where(same & (run.low[candidate] == fingerprints.low), candidate, positions)
        same &= positions < 0
        if not same.any():
            return positions
        first = first + same
