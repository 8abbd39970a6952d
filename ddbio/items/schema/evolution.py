"""Compare two schemas: new and missing attributes, new types, widened and changed columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.items.attribute import TAGS
from ddbio.items.schema.column import column_of, names_of, values_of
from ddbio.items.schema.shape import NOTHING_DECLARED, NOTHING_SEEN, Declared, Shape, join_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Known: TypeAlias = tuple[Shape, Declared]

NEW_ATTRIBUTE, GONE_ATTRIBUTE, NEW_TYPE = "new attribute", "gone attribute", "new type"
WIDENED, CHANGED = "widened", "changed"
DECLARED, MIXED = "declared", "mixed"


@dataclass(frozen=True, slots=True)
class Change:
    """Say how one attribute changed."""

    path: str
    """``name``, ``map.name``, ``list[]``, ``map.*`` for the values of a map with data as names."""
    kind: str
    """``new attribute``, ``gone attribute``, ``new type``, ``widened`` (all values that fitted still fit), ``changed``,
    ``declared`` (all values fit the declared column) or ``mixed`` (another of the known types is now the most
    frequent)."""
    before: str | None
    """The column before; None for a new attribute."""
    after: str | None
    """The column after; None for an attribute that is gone."""
    new_types: tuple[str, ...] = ()
    """The DynamoDB types that the attribute did not have before."""

    def __str__(self) -> str:
        """Return the change as a line."""
        columns = " -> ".join(column for column in (self.before, self.after) if column is not None)
        if self.before == self.after:
            columns = f"{self.after} as before"
        types = f" (now also {', '.join(self.new_types)})" if self.new_types else ""
        return f"{self.kind:<15} {self.path}: {columns}{types}"


@dataclass(frozen=True, slots=True)
class Evolution:
    """Hold the changes from one schema to another, in the order of the columns."""

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self.changes)

    @property
    def is_drift(self) -> bool:
        """Whether the data changed, and not only which types a sample shows of a declared or mixed attribute."""
        return any(change.kind not in {DECLARED, MIXED} for change in self.changes)

    def __str__(self) -> str:
        """Return a line per change."""
        return "\n".join(map(str, self.changes)) or "no change"

    def to_dict(self) -> dict[str, Any]:
        """Return the changes as plain values."""
        names = Change.__dataclass_fields__
        return {"changes": [{name: getattr(change, name) for name in names} for change in self.changes]}


def compare(before: Known, after: Known) -> Evolution:
    """Return the changes of attributes from one schema to another."""
    return Evolution(tuple(_compare_members(before, after, "")))


def _compare_members(before: Known, after: Known, path: str) -> Iterator[Change]:
    names_before, names_after = names_of(*before), names_of(*after)
    for name in dict.fromkeys([*names_after, *names_before]):
        inside = f"{path}.{name}" if path else name
        if name not in names_before:
            yield Change(inside, NEW_ATTRIBUTE, None, _shown(_member(after, name)))
        elif name not in names_after:
            yield Change(inside, GONE_ATTRIBUTE, _shown(_member(before, name)), None)
        else:
            yield from _compare(_member(before, name), _member(after, name), inside)


def _compare(before: Known, after: Known, path: str) -> Iterator[Change]:
    columns, shown = (_column(before), _column(after)), (_shown(before), _shown(after))
    new = after[0].tags.keys() - before[0].tags.keys() - {"NULL"} if before[0].tags else set()
    if new:
        yield Change(path, NEW_TYPE, *shown, tuple(tag for tag in TAGS if tag in new))
    elif shown[0] != shown[1]:
        yield Change(path, _kind_of(before, after), *shown)
    match [column.partition(" ")[::2] for column in columns]:
        case [("M", "struct"), ("M", "struct")]:
            yield from _compare_members(before, after, path)
        case [("M", "map"), ("M", "map")]:
            yield from _compare(_values(before), _values(after), f"{path}.*")
        case [("L", _), ("L", _)]:
            yield from _compare(_element(before), _element(after), f"{path}[]")


def _kind_of(before: Known, after: Known) -> str:
    if after[1].column is None and after[1].column_name is None:
        given = before[1].column
        if _column(before) == _column(after) or (given is not None and _fits(given, after[0])):
            return DECLARED
    is_declared = before[1].column is not None or after[1].column is not None
    tags = [_column(known).partition(" ")[0] for known in (before, after)]
    if not is_declared and tags[0] != tags[1] and {*tags} <= before[0].tags.keys():
        return MIXED
    return WIDENED if _is_wider(before, after) else CHANGED


def _fits(column: str, shape: Shape) -> bool:
    """Return whether all values seen fit a scalar column."""
    tag, _, kind = column.partition(" ")
    if not shape.tags.keys() <= {tag, "NULL"}:
        return False
    if tag == "N" and kind == "int64":
        return shape.fits_int64
    if decimal := re.fullmatch(r"decimal128\((\d+), (\d+)\)", kind):
        precision, scale = map(int, decimal.groups())
        return shape.scale <= scale and shape.whole_digits <= precision - scale
    return tag in {"S", "N", "B", "BOOL"} and kind in {"string", "binary", "bool", "double"}


def _is_wider(before: Known, after: Known) -> bool:
    if any(known[1].column is not None for known in (before, after)) or _column(before) == _column(after):
        return False
    return column_of(join_shapes(before[0], after[0])) == column_of(after[0])


def _column(known: Known) -> str:
    return known[1].column or column_of(known[0])


def _shown(known: Known) -> str:
    name = known[1].column_name
    return _column(known) if name is None else f"{_column(known)}, called {name}"


def _member(known: Known, name: str) -> Known:
    return known[0].members.get(name, NOTHING_SEEN), known[1].members.get(name, NOTHING_DECLARED)


def _values(known: Known) -> Known:
    return values_of(known[0]), known[1].inner or NOTHING_DECLARED


def _element(known: Known) -> Known:
    return known[0].element or NOTHING_SEEN, known[1].inner or NOTHING_DECLARED
