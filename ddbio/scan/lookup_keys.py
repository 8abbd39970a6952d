"""Encode the keys that a read asks for as DynamoDB JSON: each key once, whatever its rows or its text form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.attribute import decode_base64
from ddbio.items.encode import Encoder
from ddbio.items.item_key import KeySet, key_fingerprints
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import name_of_field, tagged_field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.options.reading import GivenKeys

_ARROW: dict[str, pa.DataType] = {"S": pa.string(), "N": pa.string(), "B": pa.binary()}


@dataclass(frozen=True)
class LookupKeys:
    """Hold keys as DynamoDB JSON, none twice.

    Attributes
    ----------
    names
        The key attributes that each of them has: the partition key, and the sort key if it was given.
    asked
        How many were given, repeated ones included.
    """

    texts: tuple[bytes, ...]
    names: tuple[str, ...]
    asked: int


def encode_keys(given: GivenKeys, key_types: Sequence[tuple[str, str]]) -> LookupKeys:
    """Return the keys that were given, for a table or an index with these key attributes; they are encoded once.

    Raises
    ------
    OptionError
        If there are none, or one lacks a key attribute or has one of another type.
    """
    known = given.encoded.get(tuple(key_types))
    if known is None:
        try:
            known = _encoded(_table_of(given.value, key_types), key_types)
        except (DecodeError, SchemaError) as error:
            raise OptionError(f"keys: {error}") from error
        given.encoded[tuple(key_types)] = known
    found: LookupKeys = known
    return found


def _encoded(rows: pa.Table, key_types: Sequence[tuple[str, str]]) -> LookupKeys:
    types = dict(key_types)
    columns = {name_of_field(field): field.name for field in rows.schema}
    names = tuple(name for name in types if name in columns)
    if names[:1] != tuple(types)[:1]:
        raise OptionError(f"keys have no {next(iter(types))!r}, the partition key: they have {', '.join(columns)}")
    rows = rows.select([columns[name] for name in names])
    encoder, seen, texts = Encoder(rows.schema, keys={name: types[name] for name in names}), KeySet(), list[bytes]()
    first = 0
    for batch in checked_batches(rows.to_batches()):
        items = encoder.encode_view(batch)
        for refusal in items.refusals:
            raise OptionError(f"key {first + refusal.row}: {refusal.attribute}: {refusal.message}")
        data, new = items.buffer.tobytes(), seen.add(key_fingerprints(batch, names))
        spans = compress(pairwise(items.offsets.tolist()), new.tolist())
        texts += [data[start:end] for start, end in spans]
        first += batch.num_rows
    if not texts:
        raise OptionError("keys are empty: there is nothing to look up")
    return LookupKeys(tuple(texts), names, first)


def _table_of(value: Any, key_types: Sequence[tuple[str, str]]) -> pa.Table:
    if not isinstance(value, (list, tuple)):
        return record_batch_reader(value).read_all()
    if not value:
        raise OptionError("keys are empty: there is nothing to look up")
    names = [name for name, _ in key_types]
    rows = [_row_of(each, names) for each in value]
    used = [name for name in names if any(name in row for row in rows)]
    types, fields, columns = dict(key_types), [], []
    for name in used:
        convert = _CONVERTERS[types[name]]
        values = [convert(_value_of(row, name, number)) for number, row in enumerate(rows)]
        fields.append(tagged_field(name, _ARROW[types[name]], types[name]))
        columns.append(pa.array(values, _ARROW[types[name]]))
    return pa.table(columns, schema=pa.schema(fields))


def _row_of(key: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(key, Mapping):
        return key
    values = key if isinstance(key, (list, tuple)) else (key,)
    if len(values) > len(names):
        raise OptionError(f"key {key!r} has more values than there are key attributes: {', '.join(names)}")
    return dict(zip(names, values, strict=False))


def _value_of(row: Mapping[str, Any], name: str, number: int) -> Any:
    if row.get(name) is None:
        raise OptionError(f"key {number} has no {name!r}, and others have: give the same attributes of each")
    return row[name]


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"key {value!r} is no text, and the key attribute has type S")
    return value


def _as_number(value: Any) -> str:
    if isinstance(value, (bool, str, bytes)):
        raise OptionError(f"key {value!r} is no number, and the key attribute has type N")
    return canonical_number(str(value))


def _as_binary(value: Any) -> bytes:
    if isinstance(value, str):
        # As JSON has it.
        return decode_base64(value)
    if not isinstance(value, (bytes, bytearray)):
        raise OptionError(f"key {value!r} is not binary, and the key attribute has type B")
    return bytes(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {"S": _as_text, "N": _as_number, "B": _as_binary}
