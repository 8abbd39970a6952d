"""Shapes of sample items: types, digits, members and declared columns; inference and joins of shapes.

Shapes can be joined in any order, any grouping, and any number of times: every part is a maximum, a minimum, a
conjunction or a union (a semilattice). Therefore counts are not added: a joined count is the largest of the samples.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.attribute import AttributeValue, Item, check_item, check_value
from ddbio.items.number import canonical_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

MAX_STRUCT_FIELDS = 64
"""The names of a larger map are treated as data: only the joined shape of its values is stored."""

_INT64 = range(-(2**63), 2**63)
_SAFE_INT64_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of the values under one path. An item is a map."""

    tags: Mapping[str, int] = field(default_factory=dict)
    """The number of values of each DynamoDB type in the sample that had the most."""
    place: int = 0
    """The position at which a sample first showed the name, the lowest of all samples.

    It defines the order of columns.
    """
    whole_digits: int = 0
    """The maximum number of digits before the decimal point."""
    scale: int = 0
    """The maximum number of digits after the decimal point."""
    fits_int64: bool = True
    element: Shape | None = None
    """The joined shape of all elements of lists."""
    members: Mapping[str, Shape] = field(default_factory=dict)
    others: Shape | None = None
    """The joined shape of all members of maps, if there are too many names to store."""


NOTHING_SEEN = Shape()


def join_shapes(one: Shape, other: Shape) -> Shape:
    """Join two shapes. The names of a map are dropped if there are too many."""
    joined = join_items(one, other)
    if joined.others is None and len(joined.members) <= MAX_STRUCT_FIELDS:
        return joined
    others = join_all([*joined.members.values(), *([joined.others] if joined.others else [])])
    return replace(joined, members={}, others=replace(others, place=0))


def join_items(one: Shape, other: Shape) -> Shape:
    """Join two shapes of items, with every name."""
    return Shape(
        tags=_join(one.tags, other.tags, max),
        place=min(one.place, other.place),
        whole_digits=max(one.whole_digits, other.whole_digits),
        scale=max(one.scale, other.scale),
        fits_int64=one.fits_int64 and other.fits_int64,
        element=_join_optional(one.element, other.element),
        members=_join(one.members, other.members, join_shapes),
        others=_join_optional(one.others, other.others),
    )


def join_all(shapes: Iterable[Shape]) -> Shape:
    """Join all shapes."""
    joined: Shape | None = None
    for shape in shapes:
        joined = _join_optional(joined, shape)
    return NOTHING_SEEN if joined is None else joined


def _join_optional(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is None or other is None:
        return one or other
    return join_shapes(one, other)


def _join(one: Mapping[str, T], other: Mapping[str, T], join: Callable[[T, T], T]) -> dict[str, T]:
    joined = dict(one)
    for name, value in other.items():
        joined[name] = join(joined[name], value) if name in joined else value
    return joined


@dataclass(frozen=True, slots=True)
class Declared:
    """Columns that a person declared under one path, regardless of the samples."""

    column: str | None = None
    place: int = 0
    inner: Declared | None = None
    """Of the elements of a list or the values of a map."""
    members: Mapping[str, Declared] = field(default_factory=dict)
    column_name: str | None = None
    """The column's name, if a person chose another name than the attribute's."""


NOTHING_DECLARED = Declared()


def join_declared(one: Declared, other: Declared, path: str = "") -> Declared:
    """Join the declarations.

    Raises
    ------
    SchemaError
        They declare different columns, or different names of columns, for one path.
    """
    for mine, theirs in ((one.column, other.column), (one.column_name, other.column_name)):
        if mine is not None and theirs is not None and mine != theirs:
            raise SchemaError(f"{path}: declared as {mine} and as {theirs}: keep one of them")
    members = dict(one.members)
    for name, declared in other.members.items():
        child_path = f"{path}.{name}" if path else name
        members[name] = join_declared(members[name], declared, child_path) if name in members else declared
    if one.inner is None or other.inner is None:
        inner = one.inner or other.inner
    else:
        inner = join_declared(one.inner, other.inner, f"{path}[]")
    column_name = one.column_name or other.column_name
    return Declared(one.column or other.column, min(one.place, other.place), inner, members, column_name)


def infer_shape(items: Iterable[Item]) -> Shape:
    """Return the shape of the items, which is that of a map.

    Raises
    ------
    DecodeError
        An item is not DynamoDB JSON.
    """
    root, count = ShapeBuilder(), 0
    for item in items:
        try:
            root.add_members(item, sys.maxsize)
        except (AttributeError, DecodeError, TypeError, ValueError):
            # Check again, with the slow check that names the invalid value.
            check_item(item)
            raise
        except RecursionError:
            raise DecodeError("nested deeper than any DynamoDB item") from None
        count += 1
    return root.shape_of_items(count)


class ShapeBuilder:
    """Builder of the shape of one attribute, or of all elements of one list, value by value."""

    __slots__ = ("element", "fits_int64", "members", "place", "rest", "scale", "tags", "whole_digits")

    def __init__(self, position: int = 0) -> None:
        self.place = position
        self.tags: dict[str, int] = {}
        self.members: dict[str, ShapeBuilder] = {}
        self.element: ShapeBuilder | None = None
        self.rest: ShapeBuilder | None = None
        self.whole_digits = 0
        self.scale = 0
        self.fits_int64 = True

    def add(self, value: AttributeValue) -> None:
        """Add a value, checked as far as its shape depends on it."""
        ((tag, content),) = value.items()
        if tag == "S" and type(content) is str and content.isascii():
            # The most common value needs no more checks.
            pass
        elif tag == "N":
            self._add_number(content)
        elif tag == "M":
            self.add_members(content)
        elif tag == "L" and type(content) is list:
            self.element = element = self.element or ShapeBuilder()
            for element_value in content:
                element.add(element_value)
        elif tag == "NS" and type(content) is list:
            for text in content:
                self._add_number(text)
        else:
            check_value(value)
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def add_members(self, members: Item, max_names: int = MAX_STRUCT_FIELDS) -> None:
        """Add the values of a map or an item, each under its name. Names beyond ``max_names`` share one shape."""
        for name, value in members.items():
            seen = self.members.get(name)
            if seen is None:
                check_value({"S": name})
                if len(self.members) < max_names:
                    seen = self.members[name] = ShapeBuilder(len(self.members))
                else:
                    seen = self.rest = self.rest or ShapeBuilder()
            seen.add(value)

    def _add_number(self, text: str) -> None:
        if len(text) <= _SAFE_INT64_DIGITS and text.isdigit() and text.isascii() and text[0] != "0":
            # The most common text is canonical.
            self.whole_digits = max(self.whole_digits, len(text))
            return
        digits, _, fraction = canonical_number(text).partition(".")
        self.whole_digits = max(self.whole_digits, len(digits.lstrip("-0")))
        self.scale = max(self.scale, len(fraction))
        self.fits_int64 = self.fits_int64 and not fraction and int(digits) in _INT64

    def merge(self, other: ShapeBuilder) -> None:
        """Add all values of another builder."""
        for tag, count in other.tags.items():
            self.tags[tag] = self.tags.get(tag, 0) + count
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.scale = max(self.scale, other.scale)
        self.fits_int64 = self.fits_int64 and other.fits_int64
        if other.element is not None:
            self.element = self.element or ShapeBuilder()
            self.element.merge(other.element)
        for name, seen in other.members.items():
            self.members.setdefault(name, ShapeBuilder(len(self.members))).merge(seen)
        if other.rest is not None:
            self.rest = self.rest or ShapeBuilder()
            self.rest.merge(other.rest)

    def shape_of_items(self, count: int) -> Shape:
        """Return the shape of ``count`` items, with every name."""
        members = {name: seen.shape() for name, seen in self.members.items()}
        return Shape(tags={"M": count} if count else {}, members=members)

    def shape(self) -> Shape:
        """Return the shape. The names of a map are dropped if there are too many."""
        others, members = None, self.members
        if self.rest is not None or len(members) > MAX_STRUCT_FIELDS:
            others, members = ShapeBuilder(), {}
            for seen in self.members.values():
                others.merge(seen)
            if self.rest is not None:
                others.merge(self.rest)
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
