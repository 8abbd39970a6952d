"""Load of DynamoDB JSON items into a table, immediately and without capacity. A line that is no item is an error."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError, OptionError
from ddbio.testing.pricing import number_bytes
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import MAX_ITEM_BYTES, canonical_value, checked_name, stored_item, to_json
from ddbio.testing.tables.definition import key_schema, loaded_table
from ddbio.testing.tables.table import KEY_TAGS, KeySchema, Stored

if TYPE_CHECKING:
    from pathlib import Path

    from ddbio.items.attribute import Item
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Table

Items = bytes | bytearray | memoryview | Iterable[Mapping[str, Any] | bytes | str]
"""Lines of DynamoDB JSON, or items: bare, or each as ``{"Item": {…}}``."""

_MAX_KEY_ATTRIBUTES = 2
_FLAT_PUNCTUATION = len('"":{"S":""}')
# Below this size no name can be too long; larger items are parsed.
_MAX_VERBATIM_BYTES = 65_535


def parse_key(text: str) -> KeySchema:
    """Return the key in ``pk[:S][,sk[:S]]``. The default type is S.

    Raises
    ------
    OptionError
        The text has a different syntax.
    """
    parts = [part.rpartition(":") if ":" in part else (part, ":", "S") for part in text.split(",")]
    if len(parts) > _MAX_KEY_ATTRIBUTES or any(not name or tag not in KEY_TAGS for name, _, tag in parts):
        raise OptionError(f"{text!r} is no key: write the partition key and perhaps a sort key, like pk:S,sk:N")
    return key_schema([(name, tag) for name, _, tag in parts])


def load(database: Database, name: str, items: Items, key: str) -> int:
    """Put items into a table and return their number. The table is created from ``key`` if it does not exist.

    Raises
    ------
    DecodeError
        An item is not DynamoDB JSON, or the service would not store it.
    OptionError
        The key or the table's name is malformed.
    """
    try:
        table_name = checked_name(name, "table")
    except Refusal as refusal:
        raise OptionError(refusal.body["message"]) from None
    keys = parse_key(key)
    table = database.tables.get(table_name)
    if table is None:
        table = loaded_table(table_name, keys, database.defaults)
        database.add(table)
    if table.keys != keys:
        raise OptionError(f"{table_name} exists with the key {', '.join(table.keys.names)}, not {key}")
    return table.load(_entries(table, items))


def _entries(table: Table, items: Items) -> Iterator[tuple[Item, Stored]]:
    lines = bytes(items).split(b"\n") if isinstance(items, (bytes, bytearray, memoryview)) else items
    for number, entry in enumerate(lines, start=1):
        line = entry if isinstance(entry, Mapping) else entry.strip()
        if line in (b"", ""):
            continue
        try:
            parsed = line if isinstance(line, Mapping) else json.loads(line)
            item, stored = _verbatim(line, parsed) or _stored(_unwrapped(parsed, table.keys.partition.name))
            table.check_item(item)
            yield item, stored
        except Refusal as refusal:
            text = refusal.body.get("message", "not DynamoDB JSON")
            raise DecodeError(f"Item {number} cannot be loaded into {table.name}: {text}", line=number) from None
        except ValueError as error:
            raise DecodeError(f"Line {number} is not JSON: {error}", line=number) from None


def _stored(parsed: Any) -> tuple[Item, Stored]:
    item, size_bytes = stored_item(parsed)
    return item, Stored(to_json(item), size_bytes)


def _verbatim(line: Any, item: Any) -> tuple[Item, Stored] | None:
    """Return an item whose line is already the service's encoding, or None if that is not certain.

    Without escapes, a flat item has one compact encoding: a line of exactly its length has no blank and no duplicate
    name.
    """
    if type(line) is not bytes or type(item) is not dict or not line.isascii() or b"\\" in line:
        return None
    size_bytes = 0
    length = len(item) + 1
    for name, value in item.items():
        if type(value) is not dict or len(value) != 1 or not name:
            return None
        ((tag, text),) = value.items()
        if type(text) is not str or tag not in {"S", "N"}:
            return None
        size_bytes += len(name) + (len(text) if tag == "S" else _number_size_bytes(text))
        length += len(name) + len(text) + _FLAT_PUNCTUATION
    if length != len(line) or size_bytes > _MAX_VERBATIM_BYTES:
        return None
    return item, Stored(line, size_bytes)


@lru_cache(maxsize=1 << 16)
def _number_size_bytes(text: str) -> int:
    """Return the size of a number. A number that is not canonical counts as too large to be used verbatim."""
    canonical = canonical_value({"N": text})
    return number_bytes(text) if canonical["N"] == text else MAX_ITEM_BYTES


def _unwrapped(parsed: Any, partition_name: str) -> Any:
    """Return the item in an export's ``{"Item": {…}}``. A bare item has its key at the top."""
    is_wrapped = type(parsed) is dict and len(parsed) == 1 and "Item" in parsed and partition_name != "Item"
    return parsed["Item"] if is_wrapped else parsed


def file_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or ``.gz``."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        yield from lines
