"""See what sample items look like; refuses to guess beyond them, for what does not fit is rescued, never lost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ddbio.core.attribute import AttributeValue, Item, canonical_number, check_item, check_value
from ddbio.core.schema.lattice import MAX_STRUCT_FIELDS, Shape
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT64 = range(-(2**63), 2**63)
_SURELY_INT64 = 18


def observe_items(items: Iterable[Item]) -> Shape:
    """Return what the items look like, as the shape of a map.

    Raises
    ------
    DecodeError
        An item is not DynamoDB JSON.
    """
    root, count = Seen(), 0
    for item in items:
        try:
            root.add_members(item, sys.maxsize)
        except (AttributeError, DecodeError, TypeError, ValueError):
            # Once more, slowly: to say where it is broken.
            check_item(item)
            raise
        count += 1
    return root.shape_of_items(count)


class Seen:
    """Count what one attribute, or all elements of one list, looked like."""

    __slots__ = ("element", "fits_int64", "members", "place", "rest", "scale", "tags", "whole_digits")

    def __init__(self, place: int = 0) -> None:
        self.place = place
        self.tags: dict[str, int] = {}
        self.members: dict[str, Seen] = {}
        self.element: Seen | None = None
        self.rest: Seen | None = None
        self.whole_digits = 0
        self.scale = 0
        self.fits_int64 = True

    def add(self, value: AttributeValue) -> None:
        """Count a value, which is checked where a look is not enough."""
        ((tag, content),) = value.items()
        if tag == "S" and type(content) is str and content.isascii():
            # The common value needs no second look.
            pass
        elif tag == "N":
            self._add_number(content)
        elif tag == "M":
            self.add_members(content)
        elif tag == "L" and type(content) is list:
            self.element = element = self.element or Seen()
            for each in content:
                element.add(each)
        elif tag == "NS" and type(content) is list:
            for text in content:
                self._add_number(text)
        else:
            check_value(value)
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def add_members(self, members: Item, most_names: int = MAX_STRUCT_FIELDS) -> None:
        """Count the values of a map or an item, each under its name; those of names beyond so many together."""
        for name, value in members.items():
            seen = self.members.get(name)
            if seen is None:
                check_value({"S": name})
                if len(self.members) < most_names:
                    seen = self.members[name] = Seen(len(self.members))
                else:
                    seen = self.rest = self.rest or Seen()
            seen.add(value)

    def _add_number(self, text: str) -> None:
        if len(text) <= _SURELY_INT64 and text.isdigit() and text.isascii() and text[0] != "0":
            # The common spelling neither.
            self.whole_digits = max(self.whole_digits, len(text))
            return
        whole, _, fraction = canonical_number(text).partition(".")
        self.whole_digits = max(self.whole_digits, len(whole.lstrip("-0")))
        self.scale = max(self.scale, len(fraction))
        self.fits_int64 = self.fits_int64 and not fraction and int(whole) in _INT64

    def add_seen(self, other: Seen) -> None:
        """Count all that the other counted."""
        for tag, count in other.tags.items():
            self.tags[tag] = self.tags.get(tag, 0) + count
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.scale = max(self.scale, other.scale)
        self.fits_int64 = self.fits_int64 and other.fits_int64
        if other.element is not None:
            self.element = self.element or Seen()
            self.element.add_seen(other.element)
        for name, seen in other.members.items():
            self.members.setdefault(name, Seen(len(self.members))).add_seen(seen)
        if other.rest is not None:
            self.rest = self.rest or Seen()
            self.rest.add_seen(other.rest)

    def shape_of_items(self, count: int) -> Shape:
        """Return what so many items looked like, every name of theirs kept."""
        members = {name: seen.shape() for name, seen in self.members.items()}
        return Shape(tags={"M": count} if count else {}, members=members)

    def shape(self) -> Shape:
        """Return what was counted; the names of a map are forgotten where they are too many."""
        others, members = None, self.members
        if self.rest is not None or len(members) > MAX_STRUCT_FIELDS:
            others, members = Seen(), {}
            for seen in self.members.values():
                others.add_seen(seen)
            if self.rest is not None:
                others.add_seen(self.rest)
        return Shape(
            tags=self.tags,
            place=self.place,
            whole_digits=self.whole_digits,
            scale=self.scale,
            fits_int64=self.fits_int64,
            element=self.element.shape() if self.element is not None and self.element.tags else None,
            members={name: seen.shape() for name, seen in members.items()},
            others=others.shape() if others is not None else None,
        )
