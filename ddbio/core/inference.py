"""Infer a schema from sample items; refuses to guess beyond them, for what does not fit is rescued, never lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.attribute import MAX_DIGITS, TAGS, AttributeValue, Item, canonical_number, check_item
from ddbio.core.field import ELEMENT, RESCUE_FIELD, RESCUE_NAME, SETS, list_of, tagged_field

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_STRUCT_FIELDS = 64
"""A map with more names than this in the sample is taken for data as keys, and kept as JSON text."""

_INT64 = range(-(2**63), 2**63)


def infer_schema_of_items(items: Iterable[Item]) -> pa.Schema:
    """Return the schema of the sample: a column per attribute in the order first seen, and ``_rescue`` at the end.

    An attribute of several types gets the most frequent one, NULL aside. Whole numbers that fit are ``int64``, others
    ``decimal128(38, widest scale seen)``, and text in the service's spelling where 38 digits cannot hold all.

    Raises
    ------
    DecodeError
        An item is not DynamoDB JSON.
    """
    root = _Seen()
    for item in items:
        check_item(item)
        root.add_members(item)
    columns = [seen.field(name) for name, seen in root.members.items() if name != RESCUE_NAME]
    return pa.schema([*columns, RESCUE_FIELD])


class _Seen:
    """Count what one attribute, or all elements of one list, looked like."""

    def __init__(self) -> None:
        self.tags: Counter[str] = Counter()
        self.members: dict[str, _Seen] = {}
        self.element: _Seen | None = None
        self.whole_digits = 0
        self.scale = 0
        self.fits_int64 = True

    def add(self, value: AttributeValue) -> None:
        ((tag, content),) = value.items()
        self.tags[tag] += 1
        match tag:
            case "N":
                self._add_number(content)
            case "NS":
                for text in content:
                    self._add_number(text)
            case "M":
                self.add_members(content)
            case "L":
                self.element = self.element or _Seen()
                for element in content:
                    self.element.add(element)

    def add_members(self, members: Item) -> None:
        for name, value in members.items():
            seen = self.members.get(name)
            if seen is None:
                seen = self.members[name] = _Seen()
            seen.add(value)

    def _add_number(self, text: str) -> None:
        whole, _, fraction = canonical_number(text).partition(".")
        self.whole_digits = max(self.whole_digits, len(whole.lstrip("-0")))
        self.scale = max(self.scale, len(fraction))
        self.fits_int64 = self.fits_int64 and not fraction and int(whole) in _INT64

    def field(self, name: str) -> pa.Field[Any]:  # noqa: PLR0911 - one line a type
        tag = self._tag()
        match tag:
            case "S" | "NULL":
                return tagged_field(name, pa.string(), tag)
            case "N":
                return tagged_field(name, self._number_type(), tag)
            case "B":
                return tagged_field(name, pa.binary(), tag)
            case "BOOL":
                return tagged_field(name, pa.bool_(), tag)
            case "L":
                return self._list_field(name)
            case "M":
                return self._struct_field(name)
            case _:
                return tagged_field(name, list_of(self._set_element(SETS[tag])), tag)

    def _tag(self) -> str:
        typed = [tag for tag in TAGS if tag != "NULL" and self.tags[tag]]
        return max(typed, key=self.tags.__getitem__, default="NULL")

    def _number_type(self) -> pa.DataType:
        if self.fits_int64:
            return pa.int64()
        fits_decimal = self.whole_digits + self.scale <= MAX_DIGITS
        return pa.decimal128(MAX_DIGITS, self.scale) if fits_decimal else pa.string()

    def _set_element(self, tag: str) -> pa.Field[Any]:
        types = {"S": pa.string(), "N": self._number_type(), "B": pa.binary()}
        return tagged_field(ELEMENT, types[tag], tag)

    def _list_field(self, name: str) -> pa.Field[Any]:
        element = self.element or _Seen()
        if len(element.tags.keys() - {"NULL"}) != 1:
            return _json_field(name)
        return tagged_field(name, list_of(element.field(ELEMENT)), "L")

    def _struct_field(self, name: str) -> pa.Field[Any]:
        if not 0 < len(self.members) <= MAX_STRUCT_FIELDS:
            return _json_field(name)
        return tagged_field(name, pa.struct([seen.field(member) for member, seen in self.members.items()]), "M")


def _json_field(name: str) -> pa.Field[Any]:
    return tagged_field(name, pa.string(), "JSON")
