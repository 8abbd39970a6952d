"""Parser of UpdateExpressions, and their application to items.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.errors import DecodeError
from ddbio.items.number import canonical_number
from ddbio.testing.expressions.conditions import value_at
from ddbio.testing.expressions.parsing import Path, Placeholders, Tree, document_path, pick, tree_of
from ddbio.testing.refusal import invalid, invalid_values
from ddbio.testing.request import number_refusal

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.expressions.conditions import Operand
    from ddbio.testing.request import Request
    from ddbio.testing.tables.table import KeySchema

# 38 digits of each operand, at most 126 + 130 decimal places apart, have an exact sum.
_EXACT = Context(prec=300)
_SET_TAGS = ("SS", "NS", "BS")
_SECTIONS = ("SET", "REMOVE", "ADD", "DELETE")
_OPERAND_TAGS = {"ADD": ("N", *_SET_TAGS), "DELETE": _SET_TAGS}
_TYPE_NAMES = {
    "S": "STRING", "N": "NUMBER", "B": "BINARY", "BOOL": "BOOLEAN", "NULL": "NULL",
    "SS": "STRING_SET", "NS": "NUMBER_SET", "BS": "BINARY_SET", "L": "LIST", "M": "MAP",
}  # fmt: skip
_ABSENT = "The provided expression refers to an attribute that does not exist in the item"
_WRONG_TYPE = "An operand in the update expression has an incorrect data type"
_WRONG_PATH = "The document path provided in the update expression is invalid for update"


class Action(NamedTuple):
    """One change of an update: its section, the changed path, and its operand, which REMOVE lacks."""

    section: str
    path: Path
    operand: Operand | None


@dataclass(slots=True)
class Update:
    """The changes of an UpdateExpression."""

    actions: list[Action] = field(default_factory=list)

    @property
    def tree(self) -> Tree:
        """The paths that the update changes."""
        return tree_of((action.path for action in self.actions), "UpdateExpression")

    def applied(self, key: Item, old: Item | None) -> Item | None:
        """Return the item after the update. An update that only removes does not create an item."""
        if old is None and self.actions and all(action.section in {"REMOVE", "DELETE"} for action in self.actions):
            return None
        before = old or key
        changed = [(action.path, _changed(action, before)) for action in self.actions]
        after: Item = dict(before)
        # Elements after the end of a list are appended in the order of their indexes.
        for path, value in sorted(changed, key=lambda pair: _last_index(pair[0])):
            if value is not None:
                _put(after, path, value)
        # The last elements of a list are removed first, so that the indexes of the others stay valid.
        emptied = [path for path, value in changed if value is None]
        for path in sorted(emptied, key=lambda path: [(isinstance(step, int), step) for step in path], reverse=True):
            _remove(after, path, before)
        return after

    @property
    def is_nested(self) -> bool:
        """Whether the update changes anything below an attribute."""
        return any(len(action.path) > 1 for action in self.actions)

    def touched(self, item: Item | None) -> Item:
        """Return the attributes of an item at the changed paths."""
        return pick(item or {}, self.tree)


def _last_index(path: Path) -> int:
    return path[-1] if isinstance(path[-1], int) else -1


def _changed(action: Action, item: Item) -> AttributeValue | None:
    """Return the value that an action assigns to its path of an item. None removes it."""
    if action.operand is None:
        return None
    operand = action.operand(item)
    if action.section == "SET":
        return operand
    ((tag, content),) = (operand or {}).items()
    old = value_at(item, action.path)
    if old is None:
        return operand if action.section == "ADD" else None
    if tag not in old:
        raise invalid(_WRONG_TYPE)
    if tag == "N":
        return _sum(old, operand, 1)
    if action.section == "ADD":
        return {tag: [*old[tag], *(element for element in content if element not in old[tag])]}
    kept = [element for element in old[tag] if element not in content]
    return {tag: kept} if kept else None


def _sum(left: AttributeValue | None, right: AttributeValue | None, sign: int) -> AttributeValue:
    if left is None or right is None:
        raise invalid(_ABSENT)
    if "N" not in left or "N" not in right:
        raise invalid(_WRONG_TYPE)
    result = _EXACT.add(Decimal(left["N"]), _EXACT.multiply(Decimal(right["N"]), sign))
    try:
        return {"N": canonical_number(str(result))}
    except DecodeError as error:
        raise number_refusal(str(result), str(error)) from None


def _put(item: Item, path: Path, value: AttributeValue) -> None:
    holder: Any = _holder(item, path)
    step = path[-1]
    if holder is None:
        raise invalid(_WRONG_PATH)
    if isinstance(step, int) and step >= len(holder):
        holder.append(value)
    else:
        holder[step] = value


def _remove(item: Item, path: Path, before: Item) -> None:
    """Remove the value that was at a path before the update, but not a value that the update assigned."""
    if len(path) > 1 and path[0] not in before:
        raise invalid(_WRONG_PATH)
    if value_at(before, path) is not None:
        del _holder(item, path)[path[-1]]


def _holder(item: Item, path: Path) -> Any:
    """Return the map or list with the last step of a path, or None.

    The map or list and its parents are replaced by copies in the item, because other values may share them.
    """
    holder: Any = item
    for step, following in pairwise(path):
        has_step = step in holder if isinstance(step, str) else step < len(holder)
        tag = "M" if isinstance(following, str) else "L"
        if not has_step or tag not in holder[step]:
            return None
        copied = holder[step][tag].copy()
        holder[step] = {tag: copied}
        holder = copied
    return holder


def requested_update(request: Request, placeholders: Placeholders) -> Update:
    """Return the update of a request. Raise if its paths overlap."""
    text = request.text("UpdateExpression")
    update = Update() if text is None else _UpdateParser(text, placeholders).parsed()
    if len(update.actions) > 1:
        tree_of((action.path for action in update.actions), "UpdateExpression")
    return update


def check_keys_unchanged(update: Update, keys: KeySchema) -> None:
    """Raise if an update changes a key attribute."""
    changed = {action.path[0] for action in update.actions}
    for name in keys.names:
        if name in changed:
            raise invalid_values(f"Cannot update attribute {name}. This attribute is part of the key")


class _UpdateParser:
    def __init__(self, text: str, placeholders: Placeholders) -> None:
        self._tokens = placeholders.tokens("UpdateExpression", text)
        self._placeholders = placeholders

    def parsed(self) -> Update:
        """Return the changes of all sections."""
        update = Update()
        seen: set[str] = set()
        while self._tokens.peek():
            token = self._tokens.next()
            section = token.upper()
            if section not in _SECTIONS:
                raise self._tokens.syntax_error(token)
            if section in seen:
                raise self._tokens.refusal(f'The "{section}" section can only be used once in an update expression;')
            seen.add(section)
            update.actions.append(self._action(section))
            while self._tokens.accept(","):
                update.actions.append(self._action(section))
        return update

    def _action(self, section: str) -> Action:
        path = document_path(self._tokens, self._placeholders, self._tokens.next())
        if section == "REMOVE":
            return Action(section, path, None)
        if section == "SET":
            self._tokens.expect("=")
            return Action(section, path, self._value())
        value = self._placeholders.value(self._tokens, self._tokens.next())
        ((tag, _),) = value.items()
        if tag not in _OPERAND_TAGS[section]:
            raise self._tokens.refusal(
                f"Incorrect operand type for operator or function; operator: {section}, "
                f"operand type: {_TYPE_NAMES[tag]}, typeSet: ALLOWED_FOR_{section}_OPERAND"
            )
        return Action(section, path, lambda _: value)

    def _value(self) -> Operand:
        left = self._operand()
        operator = self._tokens.peek()
        if operator not in {"+", "-"}:
            return left
        self._tokens.next()
        right = self._operand()
        for operand in (left, right):
            self._check_literal(operand, operator, "N")
        sign = 1 if operator == "+" else -1
        return lambda item: _sum(left(item), right(item), sign)

    def _operand(self) -> Operand:
        if self._tokens.accept("("):
            inner = self._value()
            self._tokens.expect(")")
            return inner
        token = self._tokens.next()
        if token.startswith(":"):
            return Literal(self._placeholders.value(self._tokens, token))
        if self._tokens.peek() == "(":
            return self._function(token)
        path = document_path(self._tokens, self._placeholders, token)
        return lambda item: _required(value_at(item, path))

    def _function(self, function: str) -> Operand:
        if function not in {"if_not_exists", "list_append"}:
            raise self._tokens.refusal(f"Invalid function name; function: {function}")
        self._tokens.expect("(")
        if function == "if_not_exists":
            path = document_path(self._tokens, self._placeholders, self._tokens.next())
            self._tokens.expect(",")
            default = self._operand()
            self._tokens.expect(")")
            return lambda item: default(item) if (there := value_at(item, path)) is None else there
        first = self._operand()
        self._tokens.expect(",")
        second = self._operand()
        self._tokens.expect(")")
        for operand in (first, second):
            self._check_literal(operand, function, "L")
        return lambda item: _joined(first(item), second(item))

    def _check_literal(self, operand: Operand, operator: str, tag: str) -> None:
        if isinstance(operand, Literal) and tag not in operand.value:
            raise self._tokens.refusal(
                "Incorrect operand type for operator or function; "
                f"operator or function: {operator}, operand type: {next(iter(operand.value))}"
            )


@dataclass(frozen=True, slots=True)
class Literal:
    """Operand with the same value for every item."""

    value: AttributeValue

    def __call__(self, _: Item) -> AttributeValue:
        """Return the value."""
        return self.value


def _required(value: AttributeValue | None) -> AttributeValue:
    if value is None:
        raise invalid(_ABSENT)
    return value


def _joined(first: AttributeValue | None, second: AttributeValue | None) -> AttributeValue:
    if first is None or second is None:
        raise invalid(_ABSENT)
    if "L" not in first or "L" not in second:
        raise invalid(_WRONG_TYPE)
    return {"L": [*first["L"], *second["L"]]}
