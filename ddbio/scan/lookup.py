"""Lookups of items by their keys: the keys of requests, and the items of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.items.arrow_input import checked_batches, record_batch_reader
from ddbio.items.attribute import decode_base64
from ddbio.items.encode import Encoder
from ddbio.items.item_key import KeySet, key_fingerprints, key_identity
from ddbio.items.json_text import compact_json, parse_json
from ddbio.items.number import canonical_number
from ddbio.items.page import Page, units_in
from ddbio.items.raw_items import PageSplitter
from ddbio.items.schema.arrow import name_of_field, tagged_field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.scan.options import GivenKeys

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


# A quote ends a JSON string unless escaped, and no type of an attribute value has a name as long as a table's.
_RESPONSES = re.compile(rb'"Responses"\s*:\s*\{\s*"[^"]{3,}"\s*:\s*\[')
_END = re.compile(rb'\]\s*\}\s*(?:,\s*(?=")|(?=\}\s*\Z))')
_MEMBERS = {"ConsumedCapacity", "UnprocessedKeys"}
_MOST_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Hold one answer: the items as the inside of a JSON list, and the keys to be asked for again."""

    items: bytes
    count: int
    scanned_count: int
    """Keys that were looked up, whether there is an item or not."""
    consumed_units: float | None
    wire_bytes: int
    unprocessed: tuple[bytes, ...]
    missing: tuple[bytes, ...]
    """Keys without an item, if their items' keys were asked for."""


class AnswerReader:
    """Read the answers of one lane."""

    def __init__(self) -> None:
        self._splitter = PageSplitter()

    def read(self, body: bytes, keys: Sequence[bytes]) -> LookupAnswer:
        """Return the answer to a request for some keys.

        Raises
        ------
        DecodeError
            The body is not the response of a BatchGetItem.
        """
        items, members = _split(body)
        unprocessed = tuple(
            compact_json(key).encode()
            for each in (members.get("UnprocessedKeys") or {}).values()
            for key in each["Keys"]
        )
        (lines,) = self._splitter.decode_batches(page_of([items]), "page")
        looked_up = len(keys) - len(unprocessed)
        missing = () if lines.items >= looked_up else _missing(items, keys, unprocessed)
        units = units_in(members.get("ConsumedCapacity"))
        return LookupAnswer(items, lines.items, looked_up, units, len(body), unprocessed, missing)


def page_of(answers: Sequence[bytes]) -> bytes:
    """Return the items of some answers as a page's are."""
    return b'{"Items":[' + b",".join(filter(None, answers)) + b"]}"


def page_of_answers(answers: Sequence[LookupAnswer]) -> Page:
    """Return several answers as one page."""
    units = [each.consumed_units for each in answers if each.consumed_units is not None]
    count, scanned = sum(each.count for each in answers), sum(each.scanned_count for each in answers)
    return Page(
        items=page_of([each.items for each in answers]),
        count=count,
        scanned_count=scanned,
        last_evaluated_key=None,
        consumed_units=sum(units) if units else None,
        wire_bytes=sum(each.wire_bytes for each in answers),
        missing=scanned - count,
        missing_keys=tuple(key for each in answers for key in each.missing),
    )


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    start = _RESPONSES.search(body)
    if start is not None:
        head = _members(body[: start.start()].rstrip().removesuffix(b",") + b"}")
        position = len(body)
        for _ in range(_MOST_CANDIDATES if head is not None else 0):
            position = body.rfind(b"]", start.end(), position)
            if position < 0:
                break
            found = _END.match(body, position)
            tail = None if found is None else _members(b"{" + body[found.end() :])
            if head is not None and tail is not None:
                return body[start.end() : position].strip(), {**head, **tail}
    return _split_slowly(body)


def _members(text: bytes) -> dict[str, Any] | None:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and members.keys() <= _MEMBERS else None


def _split_slowly(body: bytes) -> tuple[bytes, dict[str, Any]]:
    members = parse_json(body)
    responses = members.get("Responses") if isinstance(members, dict) else None
    if not isinstance(responses, dict) or not all(isinstance(each, list) for each in responses.values()):
        raise DecodeError("the body is not the response of a BatchGetItem: it has no Responses")
    items = [item for listed in responses.values() for item in listed]
    try:
        return compact_json(items).encode()[1:-1], members
    except UnicodeEncodeError:
        raise DecodeError("the body holds half of a surrogate pair, which is not UTF-8") from None


def _missing(items: bytes, keys: Sequence[bytes], unprocessed: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the keys that have no item; none if the items do not show their keys."""
    asked = {key_identity(key, sorted(key)): text for text in keys for key in (parse_json(text),)}
    names = sorted(parse_json(keys[0]))
    found = parse_json(b"[" + items + b"]")
    if any(name not in item for item in found for name in names):
        return ()
    gone = {key_identity(item, names) for item in found}
    gone |= {key_identity(parse_json(text), names) for text in unprocessed}
    return tuple(text for identity, text in asked.items() if identity not in gone)
