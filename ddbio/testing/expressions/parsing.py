"""Split expressions into tokens, resolve their placeholders, and pick the projected attributes out of items."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.testing.refusal import Refusal, constraint, invalid, invalid_values, malformed
from ddbio.testing.request import MAX_DEPTH, canonical_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.request import Request


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
MAX_EXPRESSION_BYTES = 4096
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-attributes
MAX_EXPRESSION_NAME_BYTES = 255

_TOKEN = re.compile(r"\s*([#:]?[A-Za-z0-9_]+|<>|<=|>=|[=<>()\[\].,])")


class Tokens:
    """Hold the tokens of one expression and the position of the next one."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        if not text.strip():
            raise self.refusal("The expression can not be empty;")
        if len(text.encode(errors="replace")) > MAX_EXPRESSION_BYTES:
            raise self.refusal("Expression size has exceeded the maximum allowed size;")
        self._tokens: list[str] = []
        self._at = 0
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            match = _TOKEN.match(stripped, place)
            if match is None:
                raise self.syntax_error(stripped[place:].strip()[:1])
            self._tokens.append(match[1])
            place = match.end()

    def refusal(self, problem: str) -> Refusal:
        """Return the refusal of this expression."""
        return invalid(f"Invalid {self.kind}: {problem}")

    def syntax_error(self, token: str) -> Refusal:
        """Return the refusal of one token."""
        return self.refusal(f'Syntax error; token: "{token or "<EOF>"}"')

    def peek(self) -> str:
        """Return the next token, or empty text at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        """Return the next token and step over it."""
        token = self.peek()
        self._at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        """Step over the next token if it is one of these, whatever its case."""
        if self.peek().upper() in tokens:
            self._at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Step over a token that must come next."""
        if not self.accept(token):
            raise self.syntax_error(self.peek())


class Placeholders:
    """Hold ``ExpressionAttributeNames`` and ``-Values``, and which of them were used."""

    def __init__(self, request: Request, *, has_expression: bool) -> None:
        self._names = request.mapping("ExpressionAttributeNames")
        self._values = request.mapping("ExpressionAttributeValues")
        self._unused: dict[str, set[str]] = {}
        for member, given in (("Names", self._names), ("Values", self._values)):
            if given is None:
                continue
            if not has_expression:
                raise invalid(f"ExpressionAttribute{member} can only be specified when using expressions")
            if not given:
                raise invalid(f"ExpressionAttribute{member} must not be empty")
            self._unused[member] = set(given)

    def name(self, tokens: Tokens, token: str) -> str:
        """Return the attribute name that a token stands for."""
        if token.startswith("#"):
            if token not in (self._names or {}):
                raise tokens.refusal(
                    f"An expression attribute name used in the document path is not defined; attribute name: {token}"
                )
            self._unused["Names"].discard(token)
            name = (self._names or {})[token]
            if type(name) is not str:
                raise malformed()
        elif not token or not (token[0].isalpha() or token[0] == "_"):
            raise tokens.syntax_error(token)
        else:
            name = token
        if not 0 < len(name.encode(errors="replace")) <= MAX_EXPRESSION_NAME_BYTES:
            raise tokens.refusal("An attribute name has 1 to 255 bytes")
        return name

    def value(self, tokens: Tokens, token: str) -> AttributeValue:
        """Return the attribute value that a token stands for."""
        if not token.startswith(":"):
            raise tokens.syntax_error(token)
        if token not in (self._values or {}):
            raise tokens.refusal(
                f"An expression attribute value used in expression is not defined; attribute value: {token}"
            )
        self._unused["Values"].discard(token)
        value: Any = (self._values or {})[token]
        return canonical_value(value)

    def check_all_used(self) -> None:
        """Refuse names or values that no expression used."""
        for member, unused in self._unused.items():
            if unused:
                raise invalid(
                    f"Value provided in ExpressionAttribute{member} unused in expressions: "
                    f"keys: {{{', '.join(sorted(unused))}}}"
                )


Path: TypeAlias = "tuple[str | int, ...]"
Tree: TypeAlias = "dict[str | int, Tree | None]"
"""What to pick: names of map members and places in lists; None below a step is all of it."""


def projection_paths(text: str, placeholders: Placeholders) -> list[Path]:
    """Return the paths of a ProjectionExpression."""
    tokens = Tokens("ProjectionExpression", text)
    paths = [document_path(tokens, placeholders, tokens.next())]
    while tokens.accept(","):
        paths.append(document_path(tokens, placeholders, tokens.next()))
    if tokens.peek():
        raise tokens.syntax_error(tokens.peek())
    return paths


def document_path(tokens: Tokens, placeholders: Placeholders, first: str) -> Path:
    """Return the path that begins with a token that was taken already."""
    steps: list[str | int] = [placeholders.name(tokens, first)]
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
    """Return the projected attributes of an item, which may be none."""
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
