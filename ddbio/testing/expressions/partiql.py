"""Parser of PartiQL statements, whose conditions and changes become expressions.

References
----------
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ddbio.testing.expressions.legacy import Aliases
from ddbio.testing.expressions.parsing import list_index
from ddbio.testing.refusal import Refusal, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.testing.expressions.parsing import Path

Kind: TypeAlias = Literal["SELECT", "INSERT", "UPDATE", "DELETE"]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>"(?:[^"]|"")+")
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark><<|>>|<>|<=|>=|!=|[=<>()\[\]{},.:*?+-])
    | (?P<strange>\S)
    )""",
    re.VERBOSE,
)
_OPERATORS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN"})
_STOPS = frozenset({"SET", "REMOVE", "WHERE", "RETURNING", "ORDER"})
_CONSTANTS: dict[str, AttributeValue] = {"TRUE": {"BOOL": True}, "FALSE": {"BOOL": False}, "NULL": {"NULL": True}}
_RETURNING = {
    ("ALL", "OLD"): "ALL_OLD",
    ("ALL", "NEW"): "ALL_NEW",
    ("MODIFIED", "OLD"): "UPDATED_OLD",
    ("MODIFIED", "NEW"): "UPDATED_NEW",
}
_SET_FUNCTIONS = {"SET_ADD": "ADD", "SET_DELETE": "DELETE"}
_SETS = {"S": "SS", "N": "NS", "B": "BS"}


class Token(NamedTuple):
    """One token of a statement: its kind, and its text as written."""

    kind: str
    text: str


@dataclass(slots=True)
class Statement:
    """One statement. Its condition is a list of the tokens of an expression.

    Attributes
    ----------
    paths
        The projection of a SELECT. None is everything.
    changes
        The clauses of an UPDATE by section.
    is_check
        Whether the statement only checks whether an item exists.
    """

    kind: Kind
    table: str = ""
    index: str | None = None
    paths: list[Path] | None = None
    item: Item | None = None
    changes: dict[str, list[list[str]]] = field(default_factory=dict)
    condition: list[str] = field(default_factory=list)
    returning: str | None = None
    order: str | None = None
    descending: bool = False
    is_check: bool = False
    aliases: Aliases = field(default_factory=Aliases)

    def members(self, **expressions: list[str]) -> dict[str, Any]:
        """Return the members of a request with these expressions and the placeholders that they use."""
        used = {token for tokens in expressions.values() for token in tokens}
        kept = Aliases()
        kept.names = {alias: name for alias, name in self.aliases.names.items() if alias in used}
        kept.values = {alias: value for alias, value in self.aliases.values.items() if alias in used}
        texts = {name: " ".join(tokens) for name, tokens in expressions.items() if tokens}
        return {"TableName": self.table, **texts, **kept.members()}

    def conjuncts(self) -> list[list[str]]:
        """Return the parts of the condition that AND joins. A condition with OR is one part."""
        return _conjuncts(self.condition) if self.condition else []

    def comparison(self, conjunct: list[str]) -> tuple[str, str] | None:
        """Return the attribute and the operator of a comparison that is valid in a key condition, or None."""
        match conjunct:
            case [name, ("=" | "<" | "<=" | ">" | ">=") as operator, value] if value.startswith(":"):
                return self._attribute(name, operator)
            case [value, ("=" | "<" | "<=" | ">" | ">=") as operator, name] if value.startswith(":"):
                return self._attribute(name, operator)
            case [name, "BETWEEN", low, "AND", high] if low.startswith(":") and high.startswith(":"):
                return self._attribute(name, "BETWEEN")
            case ["begins_with", "(", name, ",", value, ")"] if value.startswith(":"):
                return self._attribute(name, "begins_with")
        return None

    def _attribute(self, alias: str, operator: str) -> tuple[str, str] | None:
        name = self.aliases.names.get(alias)
        return None if name is None else (name, operator)

    def split_key(self, names: Sequence[str]) -> tuple[Item, list[list[str]]]:
        """Return the key attributes that the condition sets, and its other conjuncts."""
        key: Item = {}
        others = []
        for conjunct in self.conjuncts():
            compared = self.comparison(conjunct)
            if compared is not None and compared[1] == "=" and compared[0] in names and compared[0] not in key:
                value = next(token for token in conjunct if token.startswith(":"))
                key[compared[0]] = self.aliases.values[value]
            else:
                others.append(conjunct)
        return key, others


def joined(conjuncts: list[list[str]]) -> list[str]:
    """Return the tokens of the conjunction of all parts."""
    tokens: list[str] = []
    for conjunct in conjuncts:
        tokens += [*(["AND"] if tokens else []), "(", *conjunct, ")"]
    return tokens if len(conjuncts) > 1 else tokens[1:-1]


def _conjuncts(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    depth = 0
    is_between = False
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == "OR":
            return [words]
        if depth == 0 and word == "AND" and not is_between:
            parts.append([])
            continue
        if depth == 0 and word in {"BETWEEN", "AND"}:
            is_between = word == "BETWEEN"
        parts[-1].append(word)
    if not all(parts):
        raise _malformed("A part of the condition is empty")
    return [conjunct for part in parts for conjunct in _without_parentheses(part)]


def _without_parentheses(part: list[str]) -> list[list[str]]:
    """Return the parts within the parentheses of a part, or the part itself."""
    if part[0] == "(" and _closing_index(part) == len(part) - 1:
        return _conjuncts(part[1:-1])
    return [part]


def _closing_index(words: list[str]) -> int:
    """Return the index of the parenthesis that closes the first one."""
    depth = 0
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return at
    return -1


def parse_statement(text: str, parameters: list[AttributeValue]) -> Statement:
    """Return the parsed statement. Its question marks are replaced by the parameters in order."""
    return _StatementParser(text, parameters).parsed()


class _StatementParser:
    def __init__(self, text: str, parameters: list[AttributeValue]) -> None:
        self._tokens: list[Token] = []
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup or ""
            if kind == "strange":
                raise _malformed(f"Unexpected character: {match[kind]}")
            self._tokens.append(Token(kind, match[kind]))
        self._at = 0
        self._parameters = iter(parameters)
        self._aliases = Aliases()

    def parsed(self) -> Statement:
        """Return the statement. Raise on text after its end and on unused parameters."""
        statement = self._statement()
        if self._accept("EXISTS") or self._at < len(self._tokens):
            raise self._unexpected()
        if next(self._parameters, None) is not None:
            raise invalid("Number of parameters in request and statement don't match.")
        return statement

    def _statement(self) -> Statement:
        if self._accept("EXISTS"):
            self._expect("(")
            self._expect("SELECT")
            statement = self._select()
            self._expect(")")
            statement.is_check = True
            return statement
        if self._accept("SELECT"):
            return self._select()
        if self._accept("INSERT"):
            return self._insert()
        if self._accept("UPDATE"):
            return self._update()
        if self._accept("DELETE"):
            self._expect("FROM")
            statement = Statement("DELETE", self._name(), aliases=self._aliases)
            return self._conditioned(statement)
        raise self._unexpected()

    def _select(self) -> Statement:
        statement = Statement("SELECT", aliases=self._aliases)
        if not self._accept("*"):
            statement.paths = [self._path()]
            while self._accept(","):
                statement.paths.append(self._path())
        self._expect("FROM")
        statement.table = self._name()
        if self._accept("."):
            statement.index = self._name()
        self._conditioned(statement)
        if self._accept("ORDER"):
            self._expect("BY")
            statement.order = self._name()
            statement.descending = self._accept("DESC")
            if not statement.descending:
                self._accept("ASC")
        return statement

    def _insert(self) -> Statement:
        self._expect("INTO")
        table = self._name()
        self._expect("VALUE")
        value = self._literal()
        if "M" not in value:
            raise _malformed("The value to insert is no item")
        return Statement("INSERT", table, item=value["M"], aliases=self._aliases)

    def _update(self) -> Statement:
        statement = Statement("UPDATE", self._name(), aliases=self._aliases)
        while (section := self._peek().upper()) in {"SET", "REMOVE"}:
            self._at += 1
            while True:
                changed, clause = self._change(section)
                statement.changes.setdefault(changed, []).append(clause)
                if not self._accept(","):
                    break
        if not statement.changes:
            raise self._unexpected()
        return self._conditioned(statement)

    def _change(self, section: str) -> tuple[str, list[str]]:
        """Return the section and the clause in an UpdateExpression of one assignment or removal."""
        target = list(self._expression(stops={"="}))
        if section == "REMOVE":
            return section, target
        self._expect("=")
        function = _SET_FUNCTIONS.get(self._peek().upper())
        if function is None:
            return section, [*target, "=", *self._expression(stops={","})]
        self._at += 1
        self._expect("(")
        changed = list(self._expression(stops={","}))
        if self._named(changed) != self._named(target):
            raise _malformed("set_add and set_delete change only the attribute to which they are assigned")
        self._expect(",")
        clause = [*changed, self._aliases.value(self._literal())]
        self._expect(")")
        return function, clause

    def _named(self, tokens: list[str]) -> list[str]:
        """Return tokens with the names of attributes instead of their placeholders."""
        return [self._aliases.names.get(token, token) for token in tokens]

    def _conditioned(self, statement: Statement) -> Statement:
        """Parse the condition and the RETURNING clause of a statement."""
        if self._accept("WHERE"):
            statement.condition = list(self._expression(stops=set()))
        if statement.kind != "SELECT" and self._accept("RETURNING"):
            words = (self._next().upper(), self._next().upper())
            if words not in _RETURNING:
                raise self._unexpected()
            statement.returning = _RETURNING[words]
            self._expect("*")
        return statement

    def _expression(self, stops: set[str]) -> Iterator[str]:
        """Return the tokens of the expression that is equivalent to the statement's tokens up to the next clause."""
        written: list[str] = []
        depth = 0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            word = token.text.upper() if token.kind == "word" else token.text
            if depth == 0 and (word in stops or (token.kind == "word" and word in _STOPS) or word == ")"):
                break
            depth += (word == "(") - (word == ")")
            follows_path = bool(written) and (written[-1].startswith("#") or written[-1] == "]")
            follows_operand = follows_path or (bool(written) and (written[-1].startswith(":") or written[-1] == ")"))
            self._write(token, written, follows_path=follows_path, follows_operand=follows_operand)
        if not written:
            raise self._unexpected()
        return iter(written)

    def _write(self, token: Token, written: list[str], *, follows_path: bool, follows_operand: bool) -> None:
        word = token.text.upper()
        following = self._tokens[self._at + 1].text if self._at + 1 < len(self._tokens) else ""
        is_value = _plain(token) is not None or word in {"?", "{", "<<"} or (word == "-" and not follows_operand)
        if word == "[" and follows_path:
            written += [self._next(), self._next(), self._next()]
        elif word == "[" and written[-1:] == ["IN"]:
            elements = self._literal()["L"]
            members = [part for element in elements for part in (self._aliases.value(element), ",")]
            written += ["(", *members[:-1], ")"]
        elif is_value or word == "[":
            written.append(self._aliases.value(self._literal()))
        elif token.kind == "word" and word == "IS":
            self._write_test(written)
        elif token.kind == "name" or (token.kind == "word" and word not in _OPERATORS and following != "("):
            written.append(self._aliases.name(self._name()))
        else:
            written.append({"!=": "<>"}.get(word, word if word in _OPERATORS else token.text.lower()))
            self._at += 1

    def _write_test(self, written: list[str]) -> None:
        """Replace the path at the end of the written tokens by a test for MISSING or NULL."""
        self._at += 1
        negated = self._accept("NOT")
        begin = len(written)
        while begin and (
            written[begin - 1].startswith("#") or written[begin - 1] in {".", "[", "]"} or written[begin - 1].isdigit()
        ):
            begin -= 1
        path = written[begin:]
        del written[begin:]
        if self._accept("MISSING"):
            written += ["attribute_exists" if negated else "attribute_not_exists", "(", *path, ")"]
        elif self._accept("NULL"):
            null = self._aliases.value({"S": "NULL"})
            written += [*(["NOT"] if negated else []), "attribute_type", "(", *path, ",", null, ")"]
        else:
            raise self._unexpected()

    def _path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while True:
            if self._accept("."):
                steps.append(self._name())
            elif self._accept("["):
                index = list_index(self._peek())
                if index is None:
                    raise self._unexpected()
                steps.append(index)
                self._at += 1
                self._expect("]")
            else:
                return tuple(steps)

    def _literal(self) -> AttributeValue:
        token = self._tokens[self._at] if self._at < len(self._tokens) else Token("", "")
        plain = _plain(token)
        if plain is None and token.text not in {"-", "?", "[", "<<", "{"}:
            raise self._unexpected()
        self._at += 1
        return self._composed(token.text) if plain is None else plain

    def _composed(self, mark: str) -> AttributeValue:
        match mark:
            case "-":
                if self._at == len(self._tokens) or self._tokens[self._at].kind != "number":
                    raise self._unexpected()
                return {"N": f"-{self._next()}"}
            case "?":
                parameter = next(self._parameters, None)
                if parameter is None:
                    raise invalid("Number of parameters in request and statement don't match.")
                return parameter
            case "[":
                return {"L": self._elements("]")}
            case "<<":
                return self._set(self._elements(">>"))
        return {"M": self._members()}

    def _elements(self, end: str) -> list[AttributeValue]:
        elements: list[AttributeValue] = []
        while not self._accept(end):
            elements.append(self._literal())
            if self._peek() != end:
                self._expect(",")
        return elements

    def _set(self, elements: list[AttributeValue]) -> AttributeValue:
        tags = {tag for element in elements for tag in element}
        if len(tags) != 1 or not tags <= _SETS.keys():
            raise _malformed("The elements of a set have one type: string, number or binary")
        (tag,) = tags
        return {_SETS[tag]: [element[tag] for element in elements]}

    def _members(self) -> Item:
        members: Item = {}
        while not self._accept("}"):
            name = self._literal().get("S")
            if name is None:
                raise self._unexpected()
            self._expect(":")
            members[name] = self._literal()
            if self._peek() != "}":
                self._expect(",")
        return members

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        text = self._peek()
        self._at += 1
        return text

    def _accept(self, word: str) -> bool:
        is_next = (
            self._at < len(self._tokens) and self._peek().upper() == word and self._tokens[self._at].kind != "name"
        )
        self._at += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._unexpected()

    def _name(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else Token("", "")
        if token.kind not in {"name", "word"}:
            raise self._unexpected()
        self._at += 1
        return token.text[1:-1].replace('""', '"') if token.kind == "name" else token.text

    def _unexpected(self) -> Refusal:
        return _malformed(f"Unexpected token: {self._peek() or '<EOF>'}")


def _plain(token: Token) -> AttributeValue | None:
    """Return the value of a literal token, or None."""
    if token.kind == "text":
        return {"S": token.text[1:-1].replace("''", "'")}
    if token.kind == "number":
        return {"N": token.text}
    return _CONSTANTS.get(token.text.upper()) if token.kind == "word" else None


def _malformed(problem: str) -> Refusal:
    return invalid(f"Statement wasn't well formed, can't be processed: {problem}")
