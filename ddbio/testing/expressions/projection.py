"""Pick the wanted attributes out of items; refuses paths that overlap, conflict or are too deep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.testing.expressions.names import Placeholders, Tokens
from ddbio.testing.refusal import Refusal, constraint, invalid, invalid_values, malformed
from ddbio.testing.values import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.core.attribute import AttributeValue, Item

Path: TypeAlias = "tuple[str | int, ...]"
Tree: TypeAlias = "dict[str | int, Tree | None]"
"""What to pick: names of map members and places in lists; None below a step is all of it."""


def projection_paths(text: str, placeholders: Placeholders) -> list[Path]:
    """Return the paths of a ProjectionExpression."""
    tokens = Tokens("ProjectionExpression", text)
    paths = [_path(tokens, placeholders)]
    while tokens.accept(","):
        paths.append(_path(tokens, placeholders))
    if tokens.peek():
        raise tokens.syntax_error(tokens.peek())
    return paths


def _path(tokens: Tokens, placeholders: Placeholders) -> Path:
    steps: list[str | int] = [placeholders.name(tokens, tokens.next())]
    while True:
        if tokens.accept("."):
            steps.append(placeholders.name(tokens, tokens.next()))
        elif tokens.accept("["):
            index = tokens.next()
            if not (index.isascii() and index.isdigit()):
                raise tokens.syntax_error(index)
            steps.append(int(index))
            tokens.expect("]")
        else:
            break
    if len(steps) > MAX_DEPTH:
        raise tokens.refusal(f"The document path has too many nesting elements; nesting levels: {len(steps)}")
    return tuple(steps)


def attribute_paths(names: list[Any]) -> list[Path]:
    """Return the paths of AttributesToGet."""
    if not names:
        raise constraint("[]", "attributesToGet", "have length greater than or equal to 1")
    if any(type(name) is not str for name in names):
        raise malformed()
    if len(set(names)) != len(names):
        raise invalid_values(f"Duplicate value in attribute name: {next(n for n in names if names.count(n) > 1)}")
    return [(name,) for name in names]


def tree_of(paths: Iterable[Path]) -> Tree:
    """Return the tree of paths; refuse one that lies within another, or takes one value for both map and list."""
    tree: Tree = {}
    for path in paths:
        level = tree
        for step in path[:-1]:
            _check_kind(level, step)
            below = level.setdefault(step, {})
            if below is None:
                raise _clash("overlap", path)
            level = below
        _check_kind(level, path[-1])
        if path[-1] in level:
            raise _clash("overlap", path)
        level[path[-1]] = None
    return tree


def _check_kind(level: Tree, step: str | int) -> None:
    if any(type(other) is not type(step) for other in level):
        raise _clash("conflict", (step,))


def _clash(how: str, path: Path) -> Refusal:
    shown = ", ".join(str(step) for step in path)
    return invalid(
        f"Invalid ProjectionExpression: Two document paths {how} with each other; must remove or rewrite one of "
        f"these paths; path: [{shown}]"
    )


def pick(item: Item, tree: Tree) -> Item:
    """Return what an item has of the wanted attributes, which may be nothing."""
    picked = {}
    for name, below in tree.items():
        if name in item:
            value = _pick_value(item[str(name)], below)
            if value is not None:
                picked[str(name)] = value
    return picked


def _pick_value(value: AttributeValue, tree: Tree | None) -> AttributeValue | None:
    if tree is None:
        return value
    if "M" in value:
        members = pick(value["M"], tree)
        return {"M": members} if members else None
    if "L" in value:
        elements = [
            picked
            for at in sorted(step for step in tree if isinstance(step, int))
            if at < len(value["L"]) and (picked := _pick_value(value["L"][at], tree[at])) is not None
        ]
        return {"L": elements} if elements else None
    return None
