"""Say what became of a schema: attributes new and gone, types new, columns widened or changed; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddbio.core.attribute import TAGS
from ddbio.core.schema.column import column_of, names_of, values_of
from ddbio.core.schema.lattice import NOTHING_DECLARED, NOTHING_SEEN, Declared, Shape, join_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Known: TypeAlias = tuple[Shape, Declared]

NEW_ATTRIBUTE, GONE_ATTRIBUTE, NEW_TYPE = "new attribute", "gone attribute", "new type"
WIDENED, CHANGED = "widened", "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """Say what became of one attribute."""

    path: str
    """``name``, ``map.name``, ``list[]``, ``map.*`` for the values of a map with data as names."""
    kind: str
    """``new attribute``, ``gone attribute``, ``new type``, ``widened`` (all that fitted still fits) or ``changed``."""
    before: str | None
    """The column as it was, None for a new attribute."""
    after: str | None
    """The column as it is, None for one that is gone."""
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
    """Hold all changes from one schema to another, in the order of the columns."""

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self.changes)

    def __str__(self) -> str:
        """Return a line per change."""
        return "\n".join(map(str, self.changes)) or "no change"

    def to_dict(self) -> dict[str, Any]:
        """Return the changes as plain values."""
        names = Change.__dataclass_fields__
        return {"changes": [{name: getattr(change, name) for name in names} for change in self.changes]}


def compare(before: Known, after: Known) -> Evolution:
    """Return what became of the attributes of one schema in another."""
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
        yield Change(path, WIDENED if _is_wider(before, after) else CHANGED, *shown)
    match [column.partition(" ")[::2] for column in columns]:
        case [("M", "struct"), ("M", "struct")]:
            yield from _compare_members(before, after, path)
        case [("M", "map"), ("M", "map")]:
            yield from _compare(_values(before), _values(after), f"{path}.*")
        case [("L", _), ("L", _)]:
            yield from _compare(_element(before), _element(after), f"{path}[]")


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
