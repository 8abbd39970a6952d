"""Selection of a read: the items of given keys, the item collections of a condition, or the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.aws.table_description import IndexKey
from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.attribute import decode_base64
from ddbio.items.encode import EncodeOptions, Encoder
from ddbio.items.item_key import KeySet, key_fingerprints
from ddbio.items.json_text import parse_json
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import name_of_field, tagged_field
from ddbio.scan.conditions import Test, check_key_tests, key_query, parse_condition, query_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.aws.table_description import IndexDescription, TableDescription
    from ddbio.scan.conditions import Condition, Query
    from ddbio.scan.options import GivenKeys, ScanOptions

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys
_MAX_KEY_BYTES = 2048
_ARROW: dict[str, pa.DataType] = {"S": pa.string(), "N": pa.string(), "B": pa.binary()}


@dataclass(frozen=True)
class LookupKeys:
    """Distinct keys as DynamoDB JSON.

    Attributes
    ----------
    names
        The key attributes of each key: the partition key, and the attributes of the sort key that were given.
    given_count
        The number of given keys, including duplicates.
    """

    texts: tuple[bytes, ...]
    names: tuple[str, ...]
    given_count: int


def encode_keys(keys: GivenKeys, key_types: Sequence[tuple[str, str]], partition_count: int = 1) -> LookupKeys:
    """Return the given keys for a table or an index with these key attributes. The encoded keys are cached.

    Raises
    ------
    OptionError
        If there are no keys, or a key lacks a key attribute or has one of another type.
    """
    encoded = keys.encoded.get(tuple(key_types))
    if encoded is None:
        try:
            encoded = _encoded(_table_of(keys.value, key_types), key_types, partition_count)
        except (DecodeError, SchemaError) as error:
            raise OptionError(f"keys: {error}") from error
        keys.encoded[tuple(key_types)] = encoded
    lookup_keys: LookupKeys = encoded
    return lookup_keys


def _encoded(rows: pa.Table, key_types: Sequence[tuple[str, str]], partition_count: int) -> LookupKeys:
    types = dict(key_types)
    columns = {name_of_field(field): field.name for field in rows.schema}
    names = tuple(name for name in types if name in columns)
    for position, name in enumerate(types):
        if name not in names and (position < partition_count or names[position:]):
            role = "of the partition key" if position < partition_count else f"which precedes {names[position]!r}"
            raise OptionError(f"keys have no {name!r}, {role}: they have {', '.join(columns)}")
    rows = rows.select([columns[name] for name in names])
    encoder, seen, texts = _key_encoder(rows.schema, {name: types[name] for name in names}), KeySet(), list[bytes]()
    first = 0
    for batch in checked_batches(rows.to_batches()):
        for name, column in zip(names, batch.columns, strict=True):
            if column.null_count:
                raise OptionError(f"key {first + column.is_null().index(True).as_py()} has no {name!r}")
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


def _key_encoder(schema: pa.Schema, types: Mapping[str, str]) -> Encoder:
    """Return an encoder that checks up to two attributes as a table's key, and more as keys of an index."""
    names = tuple(types)
    if len(names) <= 2:  # noqa: PLR2004 - a table's key
        return Encoder(schema, keys=types)
    keys = tuple(IndexKey(name, types[name], _MAX_KEY_BYTES, "") for name in names[1:])
    return Encoder(schema, keys={names[0]: types[names[0]]}, options=EncodeOptions(index_keys=keys))


def _table_of(value: Any, key_types: Sequence[tuple[str, str]]) -> pa.Table:
    if not isinstance(value, (list, tuple)):
        return record_batch_reader(value).read_all()
    if not value:
        raise OptionError("keys are empty: there is nothing to look up")
    names = [name for name, _ in key_types]
    rows = [_row_of(key, names) for key in value]
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
        raise OptionError(f"key {number} has no {name!r}, but other keys have it: give all keys the same attributes")
    return row[name]


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"key {value!r} is not text, but the key attribute has type S")
    return value


def _as_number(value: Any) -> str:
    if isinstance(value, (bool, str, bytes)):
        raise OptionError(f"key {value!r} is not a number, but the key attribute has type N")
    return canonical_number(str(value))


def _as_binary(value: Any) -> bytes:
    if isinstance(value, str):
        # JSON input has binary values as Base64 text.
        return decode_base64(value)
    if not isinstance(value, (bytes, bytearray)):
        raise OptionError(f"key {value!r} is not binary, but the key attribute has type B")
    return bytes(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {"S": _as_text, "N": _as_number, "B": _as_binary}


@dataclass(frozen=True)
class Selection:
    """The selection of a read: the items of ``keys``, the item collections of ``queries``, or the whole table.

    Of these, the read returns the items that match ``condition``. The service reads and charges all items of the
    collections, whether they match or not.
    """

    queries: tuple[Query, ...] = ()
    condition: Condition | None = None
    warnings: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()


def selection_of(table: TableDescription, options: ScanOptions) -> Selection:
    """Return the selection that the options ``where`` and ``keys`` describe.

    Raises
    ------
    OptionError
        If ``where`` is not a condition, or compares a key with a constant of another type; if ``keys`` are not keys of
        the table; or if ``where`` and ``keys`` cannot be combined.
    """
    condition = None if options.where is None else parse_condition(options.where)
    index = table.index(options.index) if options.index else None
    if options.keys is not None:
        return _of_keys(table, options.keys, index, condition)
    if condition is None:
        return Selection()
    types = {**dict(table.key_types), **{key.name: key.tag for key in (index.keys if index else ())}}
    keys = index.key_names if index else tuple(name for name, _ in table.key_types)
    partition_count = index.partition_key_count if index else 1
    query = key_query(condition, keys, partition_count)
    if query is None:
        partition = ", ".join(map(repr, keys[:partition_count]))
        unbound = set(keys[:partition_count]).isdisjoint(condition.names())
        warning = (
            f"the condition names the partition key {partition}, but a Query cannot express it: it takes one or more "
            "values of the partition key, and one test of the sort key; the whole table is read and filtered"
        )
        return Selection((), condition, () if unbound else (warning,))
    check_key_tests((*query.partitions, *query.sorts), types)
    return Selection(query.queries(), query.remainder)


def _of_keys(
    table: TableDescription, keys: GivenKeys, index: IndexDescription | None, condition: Condition | None
) -> Selection:
    types = tuple((key.name, key.tag) for key in index.keys) if index else tuple(table.key_types)
    partition_count = index.partition_key_count if index else 1
    lookup = encode_keys(keys, types, partition_count)
    if index is None and len(lookup.names) == len(types):
        if condition is not None:
            raise OptionError(
                "where and keys: BatchGetItem, which reads items by their keys, takes no condition; filter the result"
            )
        return Selection(keys=lookup.texts)
    if condition is not None and not {name for name, _ in types}.isdisjoint(condition.names()):
        raise OptionError("where and keys both test the keys: use only one of the two")
    queries = []
    for text in lookup.texts:
        values = [(name, parse_json(text)[name]) for name in lookup.names]
        sorts = [Test("=", (name,), (value,)) for name, value in values[partition_count:]]
        queries.append(query_of(values[:partition_count], sorts))
    return Selection(tuple(queries), condition)
