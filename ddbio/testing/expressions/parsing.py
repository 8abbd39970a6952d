"""Tokens of expressions, their placeholders, and the projection of items."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.testing.expressions.reserved import RESERVED_WORDS
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
# No list is longer. Python does not convert numbers of any length.
_MAX_INDEX_DIGITS = 18

_TOKEN = re.compile(r"\s*([#:]?[A-Za-z0-9_]+|<>|<=|>=|\S)")
_INVALID = re.compile(r"[^\sA-Za-z0-9_#:<>=()\[\].,+-]|[#:](?![A-Za-z0-9_])")


@lru_cache(maxsize=1024)
def _lexed(text: str) -> tuple[tuple[str, ...], int | None]:
    """Return the tokens of an expression, and the index of the first invalid one."""
    strange = _INVALID.search(text)
    at = None
    if strange is not None:
        at = next(at for at, match in enumerate(_TOKEN.finditer(text)) if match.start(1) == strange.start())
    return tuple(_TOKEN.findall(text)), at


class Tokens:
    """Tokens of one expression and the position of the next one."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        if not text.strip():
            raise self.refusal("The expression can not be empty;")
        self._text = text
        self._tokens, strange = _lexed(text)
        self._at = strange or 0
        if strange is not None:
            raise self.syntax_error(self.peek())

    def refusal(self, problem: str) -> Refusal:
        """Return the refusal of this expression."""
        return invalid(f"Invalid {self.kind}: {problem}")

    def syntax_error(self, token: str) -> Refusal:
        """Return the refusal of the next token, or of the token before it. The text also shows the adjacent tokens."""
        at = min(self._at if token == self.peek() else self._at - 1, len(self._tokens))
        around = list(_TOKEN.finditer(self._text))[max(0, at - 1) : at + 2]
        near = self._text[around[0].start(1) : around[-1].end(1)]
        return self.refusal(f'Syntax error; token: "{token or "<EOF>"}", near: "{near}"')

    def peek(self) -> str:
        """Return the next token, or empty text at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        """Return the next token and advance."""
        token = self.peek()
        self._at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        """Advance if the next token is one of these, regardless of its case."""
        if self.peek().upper() in tokens:
            self._at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Advance over a required token."""
        if not self.accept(token):
            raise self.syntax_error(self.peek())


class Placeholders:
    """``ExpressionAttributeNames`` and ``-Values``, and their use."""

    def __init__(self, request: Request, *, has_expression: bool, absent: tuple[str, ...] = ()) -> None:
        self._names = request.mapping("ExpressionAttributeNames")
        self._values = request.mapping("ExpressionAttributeValues")
        self._is_sent = request.is_sent
        self._unused: dict[str, set[str]] = {}
        for member, placeholders in (("Names", self._names), ("Values", self._values)):
            if placeholders is None:
                continue
            if not has_expression:
                missing = f": {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} null" if absent else ""
                reason = missing if member == "Values" else ""
                raise invalid(f"ExpressionAttribute{member} can only be specified when using expressions{reason}")
            if not placeholders:
                raise invalid(f"ExpressionAttribute{member} must not be empty")
            self._unused[member] = set(placeholders)

    @classmethod
    def of(cls, request: Request, *expressions: str) -> Placeholders:
        """Return the placeholders of a request, which may have any of these expressions."""
        members = request.members
        for name in expressions:
            if members.get(name) is not None:
                return cls(request, has_expression=True)
        return cls(request, has_expression=False, absent=expressions)

    def tokens(self, kind: str, text: str) -> Tokens:
        """Return the tokens of an expression. Raise if an expression of the client is too long."""
        if self._is_sent and len(text.encode(errors="replace")) > MAX_EXPRESSION_BYTES:
            raise invalid(f"Invalid {kind}: Expression size has exceeded the maximum allowed size;")
        return Tokens(kind, text)

    def name(self, tokens: Tokens, token: str) -> str:
        """Return the attribute name of a token."""
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
            if name.upper() in RESERVED_WORDS:
                raise tokens.refusal(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        if not 0 < len(name.encode(errors="replace")) <= MAX_EXPRESSION_NAME_BYTES:
            raise tokens.refusal("An attribute name has 1 to 255 bytes")
        return name

    def value(self, tokens: Tokens, token: str) -> AttributeValue:
        """Return the attribute value of a token."""
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
        """Raise on names or values that no expression used."""
        for member, unused in self._unused.items():
            if unused:
                raise invalid(
                    f"Value provided in ExpressionAttribute{member} unused in expressions: "
                    f"keys: {{{', '.join(sorted(unused))}}}"
                )


Path: TypeAlias = "tuple[str | int, ...]"
Tree: TypeAlias = "dict[str | int, Tree | None]"
"""Projection: names of map members and indexes of lists. None is the complete value."""


def projection_paths(text: str, placeholders: Placeholders) -> list[Path]:
    """Return the paths of a ProjectionExpression."""
    tokens = placeholders.tokens("ProjectionExpression", text)
    paths = [document_path(tokens, placeholders, tokens.next())]
    while tokens.accept(","):
        paths.append(document_path(tokens, placeholders, tokens.next()))
    if tokens.peek():
        raise tokens.syntax_error(tokens.peek())
    return paths


def document_path(tokens: Tokens, placeholders: Placeholders, first: str) -> Path:
    """Return the path that starts with a token that was already consumed."""
    steps: list[str | int] = [placeholders.name(tokens, first)]
    while True:
        if tokens.accept("."):
            steps.append(placeholders.name(tokens, tokens.next()))
        elif tokens.accept("["):
            token = tokens.next()
            index = list_index(token)
            if index is None:
                raise tokens.syntax_error(token)
            steps.append(index)
            tokens.expect("]")
        else:
            break
    if len(steps) > MAX_DEPTH:
        raise tokens.refusal(f"The document path has too many nesting elements; nesting levels: {len(steps)}")
    return tuple(steps)


def list_index(token: str) -> int | None:
    """Return the list index of a token, or None if the token is no index."""
    return int(token) if token.isascii() and token.isdigit() and len(token) <= _MAX_INDEX_DIGITS else None


def attribute_paths(names: list[Any]) -> list[Path]:
    """Return the paths of AttributesToGet."""
    if not names:
        raise constraint("[]", "attributesToGet", "have length greater than or equal to 1")
    if any(type(name) is not str for name in names):
        raise malformed()
    if len(set(names)) != len(names):
        raise invalid_values(f"Duplicate value in attribute name: {next(n for n in names if names.count(n) > 1)}")
    return [(name,) for name in names]


def tree_of(paths: Iterable[Path], kind: str = "ProjectionExpression") -> Tree:
    """Return the tree of paths. Raise if two paths overlap, or use one value both as a map and as a list."""
    tree: Tree = {}
    added: list[Path] = []
    for path in paths:
        level = tree
        for depth, step in enumerate(path):
            if type(next(iter(level), step)) is not type(step):
                raise _clash(kind, "conflict", _beginning(added, path[:depth]), path)
            is_last = depth == len(path) - 1
            if step in level and (is_last or level[step] is None):
                raise _clash(kind, "overlap", _beginning(added, path[: depth + 1]), path)
            below = level.setdefault(step, None if is_last else {})
            if below is not None:
                level = below
        added.append(path)
    return tree


def _beginning(paths: list[Path], start: Path) -> Path:
    """Return the first path that starts with these steps."""
    return next(path for path in paths if path[: len(start)] == start)


def _clash(kind: str, how: str, one: Path, two: Path) -> Refusal:
    shown = (", ".join(f"[{step}]" if isinstance(step, int) else step for step in path) for path in (one, two))
    return invalid(
        f"Invalid {kind}: Two document paths {how} with each other; must remove or rewrite one of these paths; "
        "path one: [{}], path two: [{}]".format(*shown)
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
