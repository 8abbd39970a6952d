"""Keep what samples showed of each attribute, and join it: in any order, any grouping, any number of times.

Every part is a maximum, a minimum, a conjunction or a union, so that the join is a semilattice's. It therefore refuses
to add up counts: a joined count is that of the sample that showed most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ddbio.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

MAX_STRUCT_FIELDS = 64
"""A map with more names than this is taken for data as keys, and what its values have in common is all that is kept."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold what the values under one path looked like."""

    tags: Mapping[str, int] = field(default_factory=dict)
    """How many values of each DynamoDB type the largest sample showed."""
    place: int = 0
    """When a sample showed the name first, the earliest of all samples: the order of columns."""
    whole_digits: int = 0
    """The most digits before the point of any number."""
    scale: int = 0
    """The most digits behind the point of any number."""
    fits_int64: bool = True
    element: Shape | None = None
    """What the elements of lists looked like, all together."""
    members: Mapping[str, Shape] = field(default_factory=dict)
    others: Shape | None = None
    """What the members of maps looked like, all together, where there are too many names to keep."""


NOTHING_SEEN = Shape()


def join_shapes(one: Shape, other: Shape) -> Shape:
    """Return what both showed; the names of a map are forgotten where they are too many together."""
    joined = join_items(one, other)
    if joined.others is None and len(joined.members) <= MAX_STRUCT_FIELDS:
        return joined
    others = join_all([*joined.members.values(), *([joined.others] if joined.others else [])])
    return replace(joined, members={}, others=replace(others, place=0))


def join_items(one: Shape, other: Shape) -> Shape:
    """Return what both showed of items, every name kept."""
    return Shape(
        tags=_join(one.tags, other.tags, max),
        place=min(one.place, other.place),
        whole_digits=max(one.whole_digits, other.whole_digits),
        scale=max(one.scale, other.scale),
        fits_int64=one.fits_int64 and other.fits_int64,
        element=_join_perhaps(one.element, other.element),
        members=_join(one.members, other.members, join_shapes),
        others=_join_perhaps(one.others, other.others),
    )


def join_all(shapes: Iterable[Shape]) -> Shape:
    """Return what all showed together."""
    joined: Shape | None = None
    for shape in shapes:
        joined = _join_perhaps(joined, shape)
    return NOTHING_SEEN if joined is None else joined


def _join_perhaps(one: Shape | None, other: Shape | None) -> Shape | None:
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
    """Hold which columns a person chose under one path, whatever the samples show."""

    column: str | None = None
    place: int = 0
    inner: Declared | None = None
    """For the elements of a list or the values of a map."""
    members: Mapping[str, Declared] = field(default_factory=dict)
    column_name: str | None = None
    """What the column is called, where that is not for its attribute's name to say."""


NOTHING_DECLARED = Declared()


def join_declared(one: Declared, other: Declared, path: str = "") -> Declared:
    """Return the choices of both.

    Raises
    ------
    SchemaError
        They chose different columns, or names of columns, for one path.
    """
    for mine, theirs in ((one.column, other.column), (one.column_name, other.column_name)):
        if mine is not None and theirs is not None and mine != theirs:
            raise SchemaError(f"{path}: declared as {mine} and as {theirs}: keep one of them")
    members = dict(one.members)
    for name, declared in other.members.items():
        inside = f"{path}.{name}" if path else name
        members[name] = join_declared(members[name], declared, inside) if name in members else declared
    if one.inner is None or other.inner is None:
        inner = one.inner or other.inner
    else:
        inner = join_declared(one.inner, other.inner, f"{path}[]")
    column_name = one.column_name or other.column_name
    return Declared(one.column or other.column, min(one.place, other.place), inner, members, column_name)
