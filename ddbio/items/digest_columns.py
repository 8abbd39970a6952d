"""Digests of the rows of record batches: compiled loops that compute the same value as ``digest``, column by column.

The item of a row is the item that writing the row would send: null means missing, and rescued attributes belong to it.
The loops that write a tape read columns of DynamoDB JSON text. The reference implementation reads the texts that the
loops refuse. An Arrow type without an encoding in DynamoDB, a number that DynamoDB cannot store, or a null in a set is
an error.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ddbio.errors import DecodeError, EncodeError, SchemaError
from ddbio.items import digest as plain
from ddbio.items.attribute import check_item, check_value
from ddbio.items.batch_size import batch_bytes
from ddbio.items.digest import Digest
from ddbio.items.encode import EncodeOptions
from ddbio.items.kernel.arrays import (
    as_type,
    binary_array,
    offsets_of,
    plain_array,
    spans_of,
    text_array,
    view_of,
    without_hidden,
    words_of,
)
from ddbio.items.kernel.encode.fields import plain_fields, time_array, unfit_times
from ddbio.items.kernel.hash import columns as loops
from ddbio.items.kernel.tape.texts import add_items, add_values
from ddbio.items.number import canonical_number
from ddbio.items.reference import checked_json
from ddbio.items.rescue import duplicate_error
from ddbio.items.schema.arrow import DDB_NAME, DDB_TYPE, RESCUE_NAME, SETS, fields_within, name_of_field, tag_of_field
from ddbio.items.schema.own_names import mark_own_columns
from ddbio.items.time_columns import declares_times, stored_batch, stored_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    # pyarrow's stubs lack the methods of the array classes.
    _Array: TypeAlias = Any
    _Prepare: TypeAlias = Callable[[_Array], _Array]
    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

_SLICE_BYTES = 4 << 20
_MIN_ROWS = 256
_MEASURE_INTERVAL = 16
_OPTIONS = EncodeOptions()
_CODES = {"S": plain.S, "B": plain.B, "SS": plain.SS, "NS": plain.NS, "BS": plain.BS, "L": plain.L, "M": plain.M}
_ELEMENT_KEY: _Words = np.array(plain.ELEMENT_KEY, np.uint64)
_KEY_TYPES = {"S", "N", "B"}
_MAX_SCALE = 80
_NO_BITS: Any = np.frombuffer(b"", np.uint8)
_NULLS_COUNT, _NULLS_ARE_MISSING = True, False


class _Column(NamedTuple):
    field: pa.Field[Any]
    prepare: _Prepare
    """Converts its arrays, including nested ones, to one of the few types that the loops read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _SchemaKey:
    """Schema as a cache key, with its metadata."""

    text: bytes
    schema: pa.Schema = dataclasses.field(compare=False)


class RowSums(NamedTuple):
    """Sums of the hashes of rows.

    Attributes
    ----------
    items
        ``[n_rows × 2]``: the sum of the hashes of a row's attributes, from which the item's hash is made.
    keys
        The first word of the same sum over only the key attributes. None unless each row has all of them in columns
        of type S, N or B.
    digest
        The digest of only these rows.
    """

    items: _Words
    keys: _Words | None
    digest: Digest


class ColumnDigest:
    """Sum of the hashes of rows, which is the digest of their items, in ``digest``. Use one per thread.

    Parameters
    ----------
    keys
        Attributes whose part of each row's sum ``add_rows`` returns separately.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self.digest = Digest()
        self._keys = keys
        self._schema: pa.Schema | None = None
        self._key_columns: tuple[_Column, ...] = ()
        self._columns: tuple[_Column, ...] = ()
        self._slice_rows, self._measured = _MIN_ROWS, 0
        self._has_times = False

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add the item of each row.

        Raises
        ------
        SchemaError
            A column has an Arrow type without an exact encoding in DynamoDB, or a set contains a null.
        DecodeError
            A number is beyond 38 digits or out of range, or a text is not the expected DynamoDB JSON.
        EncodeError
            An attribute is in its column and in the rescue column.
        """
        for sums, _ in self._sums(batch):
            self._add(sums)

    def add_rows(self, batch: pa.RecordBatch) -> RowSums:
        """Add the item of each row, and return the sums of the rows.

        Raises
        ------
        SchemaError, DecodeError, EncodeError
            As ``add_batch``.
        """
        parts = list(self._sums(batch))
        sums = np.concatenate([new_sums(0), *(items for items, _ in parts)]) if len(parts) != 1 else parts[0][0]
        keys = [key_sums for _, key_sums in parts if key_sums is not None]
        all_keys = np.concatenate([new_sums(0), *keys]) if len(keys) == len(parts) else None
        return RowSums(sums.reshape(-1, 2), all_keys, self._add(sums))

    def _add(self, sums: _Words) -> Digest:
        high, low = loops.sum_items(sums)
        added = Digest(len(sums) >> 1, int(high) << 64 | int(low))
        self.digest.merge(added)
        return added

    def _sums(self, batch: pa.RecordBatch) -> Iterator[tuple[_Words, _Words | None]]:
        """Yield the sums of each row, and those of its key, a few megabytes of rows at a time."""
        if not batch.num_rows:
            return
        if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
            self._schema = batch.schema
            columns = _columns_of(_stored_key(batch.schema))
            self._key_columns = tuple(column for column in columns if self._is_key(column.field))
            self._columns = tuple(column for column in columns if column not in self._key_columns)
            self._has_times = declares_times(batch.schema)
            self._measured = 0
        if self._has_times:
            batch = stored_batch(batch)
        if not self._measured:
            # Measuring costs as much as hashing a column, so only every sixteenth batch of a schema is measured.
            self._slice_rows = max(_MIN_ROWS, _SLICE_BYTES * batch.num_rows // max(batch_bytes(batch), 1))
        self._measured = (self._measured + 1) % _MEASURE_INTERVAL
        for start in range(0, batch.num_rows, self._slice_rows):
            yield self._sums_of_rows(batch.slice(start, self._slice_rows), start)

    def _sums_of_rows(self, batch: pa.RecordBatch, first_row: int) -> tuple[_Words, _Words | None]:
        sums = new_sums(batch.num_rows)
        _add_columns(batch, self._key_columns, sums)
        keys = sums[::2].copy() if self._has_all_keys(batch) else None
        _add_columns(batch, self._columns, sums)
        if RESCUE_NAME in batch.schema.names and batch.column(RESCUE_NAME).null_count < batch.num_rows:
            skipped = {RESCUE_NAME, *_own_columns(batch.schema)}
            fields = (field for field, _ in (*self._key_columns, *self._columns) if field.name not in skipped)
            columns_by_name = {name_of_field(field): batch.column(field.name) for field in fields}
            _add_members(batch.column(RESCUE_NAME), columns_by_name, sums, first_row)
        return sums, keys

    def _is_key(self, field: pa.Field[Any]) -> bool:
        return field.name != RESCUE_NAME and name_of_field(field) in self._keys

    def _has_all_keys(self, batch: pa.RecordBatch) -> bool:
        """Return whether each row has all keys in their columns, as S, N or B."""
        fields = [field for field, _ in self._key_columns]
        return (
            bool(self._keys)
            and len(fields) == len(self._keys)
            and all(tag_of_field(field) in _KEY_TYPES and not batch.column(field.name).null_count for field in fields)
        )


def _own_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are not attributes, as in a log. Rescued attributes may have their names."""
    if DDB_TYPE not in (schema.field(RESCUE_NAME).metadata or {}):
        return []
    return [field.name for field in schema if DDB_TYPE not in (field.metadata or {})]


def digest_of_batches(batches: Iterable[pa.RecordBatch]) -> Digest:
    """Return the digest of all rows of some batches.

    Raises
    ------
    SchemaError, DecodeError, EncodeError
        As ``ColumnDigest.add_batch``.
    """
    columns = ColumnDigest()
    for batch in batches:
        columns.add_batch(batch)
    return columns.digest


def require_digest(schema: pa.Schema) -> None:
    """Raise SchemaError if a column has an Arrow type without an exact encoding in DynamoDB."""
    _columns_of(_stored_key(schema))


def _stored_key(schema: pa.Schema) -> _SchemaKey:
    stored = stored_columns(schema)
    text = stored.serialize().to_pybytes()
    if DDB_NAME in text:
        # One of ddbio's own columns may have the name of an attribute with another column.
        stored = stored_columns(mark_own_columns(schema))
        text = stored.serialize().to_pybytes()
    return _SchemaKey(text, stored)


@functools.lru_cache(maxsize=64)
def _columns_of(key: _SchemaKey) -> tuple[_Column, ...]:
    fields, _ = plain_fields(key.schema, _OPTIONS)
    types = {field.name: field.type for field in key.schema}
    return tuple(_Column(field, _unchanged if field.type == types[field.name] else _simplify) for field in fields)


def _add_columns(batch: pa.RecordBatch, columns: Sequence[_Column], sums: _Words) -> None:
    for field, prepare in columns:
        if field.name != RESCUE_NAME:
            under = (_key_of(name_of_field(field)), _NULLS_ARE_MISSING)
            _add(batch.column(field.name), field, prepare, under, sums)


@functools.lru_cache(maxsize=1 << 12)
def _key_of(name: str) -> _Words:
    return np.array(plain.name_key(name), np.uint64)


def new_sums(n_entries: int) -> _Words:
    """Return sums of zero, one per entry."""
    return np.zeros(2 * n_entries, np.uint64)


def _unchanged(array: _Array) -> _Array:
    return array


def _simplify(array: _Array) -> _Array:
    simple = plain_array(array)
    unfit, message = unfit_times(simple, _OPTIONS)
    if unfit:
        raise EncodeError(f"entry {unfit[0]} of a column of {simple.type}: {message}")
    return time_array(simple, _OPTIONS)


def _add(values: _Array, field: pa.Field[Any], prepare: _Prepare, under: tuple[_Words, bool], sums: _Words) -> None:
    """Add the hash of each value of a column to its entry's sum. ``under`` contains keys, and whether nulls count."""
    array = prepare(values)
    match tag := tag_of_field(field):
        case "JSON":
            _add_values(array, field.name, under, sums)
        case "N":
            _add_numbers(array, field.name, under, sums)
        case "S" | "B":
            _add_bytes(array, tag, under, sums)
        case "BOOL":
            bits = view_of(array.buffers()[1], np.uint8)
            loops.add_booleans(bits, array.offset, plain.BOOL, *_validity(array), *under, sums)
        case "NULL":
            loops.add_booleans(_NO_BITS, 0, plain.NULL, *_validity(array), *under, sums)
        case "M" if pa.types.is_struct(array.type):
            inner = new_sums(len(array))
            for member, column in zip(fields_within(field.type), array.flatten(), strict=True):
                _add(column, member, prepare, (_key_of(name_of_field(member)), _NULLS_ARE_MISSING), inner)
            loops.add_structs(inner, *_validity(array), *under, sums)
        case _:
            _add_container(array, field, prepare, under, sums)


def _add_numbers(array: _Array, path: str, under: tuple[_Words, bool], sums: _Words) -> None:
    arrow_type = array.type
    if pa.types.is_integer(arrow_type):
        is_signed = pa.types.is_signed_integer(arrow_type)
        words = words_of(as_type(array, pa.int64() if is_signed else pa.uint64()), 1)
        loops.add_words(words, is_signed, *_validity(array), *under, sums)
        return
    if (
        pa.types.is_decimal(arrow_type)
        and not pa.types.is_decimal256(arrow_type)
        and abs(arrow_type.scale) <= _MAX_SCALE
    ):
        words = words_of(as_type(array, pa.decimal128(arrow_type.precision, arrow_type.scale)), 2)
        loops.add_decimals(words, arrow_type.scale, *_validity(array), *under, sums)
        return
    texts = text_array(array)
    digits = np.zeros(loops.DIGITS_BYTES, np.uint8)
    refused = loops.add_number_texts(*spans_of(texts), digits, *_validity(texts), *under, sums)
    if refused != loops.FINE:
        _refuse_number(texts[refused].as_buffer().to_pybytes(), path)


def _refuse_number(text: bytes, path: str) -> None:
    try:
        canonical_number(text.decode(errors="replace"))
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None


def _add_bytes(array: _Array, tag: str, under: tuple[_Words, bool], sums: _Words) -> None:
    array = binary_array(array) if tag == "B" else text_array(array)
    loops.add_bytes(*spans_of(array), _CODES[tag], *_validity(array), *under, sums)


def _add_container(
    array: _Array, field: pa.Field[Any], prepare: _Prepare, under: tuple[_Words, bool], sums: _Words
) -> None:
    tag = tag_of_field(field)
    is_map = pa.types.is_map(array.type)
    bounds, values = _entries(array, array.items if is_map else array.values)
    (element,) = fields_within(field.type)
    inner = new_sums(len(values))
    if tag in SETS:
        if values.null_count:
            raise SchemaError(f"{field.name}: a set of DynamoDB holds no null: drop it, or make the column a list")
        _add(values, element, prepare, (_ELEMENT_KEY, _NULLS_COUNT), inner)
    elif not is_map:
        keys = new_sums(len(values))
        loops.key_indices(bounds, keys)
        _add(values, element, prepare, (keys, _NULLS_COUNT), inner)
    else:
        keys = new_sums(len(values))
        _, names = _entries(array, array.keys)
        loops.key_names(*spans_of(text_array(prepare(names))), keys)
        _add(values, element, prepare, (keys, _NULLS_COUNT), inner)
        longest = int(np.diff(bounds).max(initial=0))
        slots = np.zeros(1 << (2 * longest).bit_length(), np.int64)
        loops.drop_repeated(bounds, keys, slots, inner)
    loops.add_containers(bounds, inner, _CODES[tag], *_validity(array), *under, sums)


def _entries(array: _Array, values: _Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], _Array]:
    """Return the bounds of each list or map, and the values or keys within them."""
    offsets = offsets_of(array).astype(np.int64)
    if array.null_count and np.diff(offsets)[array.is_null()].any():
        return without_hidden(array, offsets, values)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets - first, values.slice(first, count)


def _validity(array: _Array) -> tuple[Any, int]:
    """Return Arrow's validity bits and their offset, or no bits if every entry is valid."""
    if not array.null_count:
        return _NO_BITS, 0
    bits = array.buffers()[0]
    if bits is None or pa.types.is_null(array.type):
        # An array of type null has no bits, or the bits of its struct.
        return np.frombuffer(bytes(len(array) // 8 + 1), np.uint8), 0
    return view_of(bits, np.uint8), array.offset


def _add_members(array: _Array, columns: Mapping[str, _Array], sums: _Words, first_row: int) -> None:
    """Add the attributes in each row's text to the row's sum.

    Parameters
    ----------
    columns
        The column of each attribute. A row must not have an attribute both there and in its text.

    Raises
    ------
    DecodeError
        A text is not an item.
    EncodeError
        An attribute is also in its column.
    """
    texts = text_array(plain_array(array))
    for row in add_items(texts, columns, sums):
        item = checked_json(texts[row].as_buffer().to_pybytes(), check_item, RESCUE_NAME)
        for name in filter(columns.__contains__, item):
            if columns[name][row].is_valid:
                raise duplicate_error(first_row + row, name)
        sums[2 * row : 2 * row + 2] += np.array(plain.members_hash(item), np.uint64)


def _add_values(array: _Array, path: str, under: tuple[_Words, bool], sums: _Words) -> None:
    """Add the hash of the attribute value in each entry's text. ``under`` contains keys, and whether nulls count.

    Raises
    ------
    DecodeError
        A text is not an attribute value. The message begins with ``path``.
    """
    keys, nulls_count = under
    texts = text_array(array)
    for entry in add_values(texts, keys, sums):
        word = 2 * entry if len(keys) > 2 else 0  # noqa: PLR2004 - one key for all
        value = checked_json(texts[entry].as_buffer().to_pybytes(), check_value, path)
        key = int(keys[word]), int(keys[word + 1])
        sums[2 * entry : 2 * entry + 2] += np.array(plain.value_hash(key, value), np.uint64)
    if nulls_count and texts.null_count:
        loops.add_nulls(*_validity(texts), keys, sums)
