"""Conditions of a read: parse them, and write them as DynamoDB expressions and Queries.

The language of conditions is that of the WHERE clause of PartiQL for DynamoDB, with the service's own functions:
``status = 'shipped' AND (total > 100 OR begins_with(note, 'urgent'))``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ddbio.errors import DecodeError, OptionError
from ddbio.items.attribute import AttributeValue, decode_base64, encode_base64
from ddbio.items.number import canonical_number, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Path: TypeAlias = "tuple[str | int, ...]"
"""An attribute name, followed by member names and list indexes."""

_COMPARATORS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PREFIX_OR_PART = ("begins_with", "contains")
_EXISTENCE = ("attribute_exists", "attribute_not_exists")
_COMPARED = frozenset({*_COMPARATORS.values(), "BETWEEN", "IN", "begins_with"})
_TYPES = ("S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M")
_WORDS = ("AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "MISSING", "NOT", "NULL", "OR", "TRUE")

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<binary>[xX]'(?:[0-9a-fA-F]{2})*')
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><=|>=|<>|!=|[=<>()\[\],.])
    )""",
    re.VERBOSE,
)


class Expressions:
    """Placeholders of the names and values in expressions; they allow reserved words and prevent injection."""

    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters
    max_operands_of_in = 100

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: list[AttributeValue] = []

    def name(self, name: str) -> str:
        """Return the placeholder of an attribute or a member."""
        return self._names.setdefault(name, f"#n{len(self._names)}")

    def path(self, path: Path) -> str:
        """Return the placeholders of a path."""
        steps = [f"[{step}]" if isinstance(step, int) else f".{self.name(step)}" for step in path]
        return "".join(steps).removeprefix(".")

    def value(self, value: AttributeValue) -> str:
        """Return the placeholder of a value."""
        self._values.append(value)
        return f":v{len(self._values) - 1}"

    def members(self) -> dict[str, Any]:
        """Return ExpressionAttributeNames and ExpressionAttributeValues, without those that are empty."""
        names = {placeholder: name for name, placeholder in self._names.items()}
        values = {f":v{number}": value for number, value in enumerate(self._values)}
        return {
            **({"ExpressionAttributeNames": names} if names else {}),
            **({"ExpressionAttributeValues": values} if values else {}),
        }


class ConditionText(Expressions):
    """Names and values in the syntax that ``parse_condition`` reads."""

    max_operands_of_in = sys.maxsize

    def name(self, name: str) -> str:
        """Return an attribute or a member in double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def value(self, value: AttributeValue) -> str:
        """Return a constant."""
        match value:
            case {"S": text}:
                return "'" + str(text).replace("'", "''") + "'"
            case {"B": base64}:
                return f"x'{decode_base64(base64).hex()}'"
            case {"BOOL": truth}:
                return "TRUE" if truth else "FALSE"
            case {"N": number}:
                return str(number)
        return "NULL"


@dataclass(frozen=True)
class Test:
    """One test of an attribute: an operator or a function of the service, and its constants."""

    operator: str
    path: Path
    values: tuple[AttributeValue, ...] = ()

    def write(self, to: Expressions) -> str:
        """Return the test as an expression."""
        path, values = to.path(self.path), [to.value(value) for value in self.values]
        if self.operator == "BETWEEN":
            return f"{path} BETWEEN {values[0]} AND {values[1]}"
        if self.operator == "IN":
            size = to.max_operands_of_in
            parts = [f"{path} IN ({', '.join(values[first : first + size])})" for first in range(0, len(values), size)]
            return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
        if self.operator.startswith("size "):
            return f"size({path}) {self.operator.removeprefix('size ')} {values[0]}"
        if self.operator in _COMPARATORS:
            return f"{path} {self.operator} {values[0]}"
        return f"{self.operator}({', '.join([path, *values])})"

    def names(self) -> Iterator[str]:
        """Yield the name of the tested attribute."""
        yield str(self.path[0])


@dataclass(frozen=True)
class Compound:
    """Conditions joined by AND or OR."""

    operator: str
    parts: tuple[Condition, ...]

    def write(self, to: Expressions) -> str:
        """Return the conditions as an expression."""
        return f" {self.operator} ".join(
            f"({part.write(to)})" if isinstance(part, Compound) else part.write(to) for part in self.parts
        )

    def names(self) -> Iterator[str]:
        """Yield the names of the tested attributes."""
        for part in self.parts:
            yield from part.names()


@dataclass(frozen=True)
class Negated:
    """A negated condition."""

    part: Condition

    def write(self, to: Expressions) -> str:
        """Return the condition as an expression."""
        return f"NOT ({self.part.write(to)})"

    def names(self) -> Iterator[str]:
        """Yield the names of the tested attributes."""
        yield from self.part.names()


Condition: TypeAlias = "Test | Compound | Negated"


def tests_of(condition: Condition) -> Iterator[Test]:
    """Yield the tests of a condition."""
    match condition:
        case Test():
            yield condition
        case Negated():
            yield from tests_of(condition.part)
        case Compound():
            for part in condition.parts:
                yield from tests_of(part)


@dataclass(frozen=True)
class Query:
    """The key condition of one Query."""

    partition: str
    partition_key: AttributeValue
    sort: Test | None = None

    @property
    def tests(self) -> tuple[Test, ...]:
        """The tests of the key attributes, in the order of the key schema."""
        partition = Test("=", (self.partition,), (self.partition_key,))
        return (partition,) if self.sort is None else (partition, self.sort)

    def key(self) -> dict[str, AttributeValue]:
        """Return the key attributes whose test is an equality."""
        return {str(test.path[0]): test.values[0] for test in self.tests if test.operator == "="}

    def write(self, to: Expressions) -> str:
        """Return the KeyConditionExpression."""
        return " AND ".join(test.write(to) for test in self.tests)


@dataclass(frozen=True)
class CompositeQuery(Query):
    """The key condition of a Query on an index whose key has several HASH or RANGE attributes.

    ``partition`` and ``sort`` test the first attribute of either kind.
    """

    others: tuple[Test, ...] = ()

    @property
    def tests(self) -> tuple[Test, ...]:
        """The tests of the key attributes."""
        return (*super().tests, *self.others)


class KeyQuery(NamedTuple):
    """A condition split for Queries: tests of the partition key and of the sort key, and the remaining condition."""

    partitions: tuple[Test, ...]
    sorts: tuple[Test, ...]
    remainder: Condition | None

    def queries(self) -> tuple[Query, ...]:
        """Return one Query for each combination of values of the partition key."""
        values = [tuple({str(value): value for value in test.values}.values()) for test in self.partitions]
        return tuple(self._query(key) for key in product(*values))

    def _query(self, key: tuple[AttributeValue, ...]) -> Query:
        partitions = [(str(test.path[0]), value) for test, value in zip(self.partitions, key, strict=True)]
        return query_of(partitions, self.sorts)


def query_of(partitions: Sequence[tuple[str, AttributeValue]], sorts: Sequence[Test]) -> Query:
    """Return the Query for these values of the partition attributes and tests of the sort attributes."""
    (name, value), *more = partitions
    others = (*(Test("=", (other,), (key,)) for other, key in more), *sorts[1:])
    sort = sorts[0] if sorts else None
    return CompositeQuery(name, value, sort, others) if others else Query(name, value, sort)


def parse_condition(text: str) -> Condition:
    """Return the condition that a text expresses.

    Raises
    ------
    OptionError
        If the text is not a condition; the message shows the position.
    """
    return _Parser(text).parsed()


def format_condition(condition: Condition) -> str:
    """Return the text of a condition; ``parse_condition`` of this text returns an equal condition."""
    return condition.write(ConditionText())


def key_query(condition: Condition, keys: Sequence[str], partition_count: int = 1) -> KeyQuery | None:
    """Return the condition as queries of item collections, or None if it does not bind the partition key.

    A condition binds the partition key if it limits all its attributes to one or several constants. The result is also
    None if a Query cannot express the condition: a second test of a sort attribute, a test of a later one without an
    equality of those before it, or a test of a key within OR.

    Parameters
    ----------
    keys
        The attributes of the partition key, then those of the sort key.
    partition_count
        The number of attributes of the partition key. A global index can have up to four of either kind.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.DesignPattern.MultiAttributeKeys.html
    """
    parts = list(condition.parts) if isinstance(condition, Compound) and condition.operator == "AND" else [condition]
    partitions = [_take(parts, name, ("=", "IN")) for name in keys[:partition_count]]
    sorts: list[Test] = []
    for name in keys[partition_count:]:
        sort = _take_range(parts, name) or _take(parts, name, ("=", "<", "<=", ">", ">=", "BETWEEN", "begins_with"))
        if sort is None:
            break
        sorts.append(sort)
        if sort.operator != "=":
            break
    if None in partitions or any(name in keys for part in parts for name in part.names()):
        return None
    remainder = None if not parts else parts[0] if len(parts) == 1 else Compound("AND", tuple(parts))
    return KeyQuery(tuple(test for test in partitions if test is not None), tuple(sorts), remainder)


def _take(parts: list[Condition], name: str, operators: tuple[str, ...]) -> Test | None:
    for index, part in enumerate(parts):
        if isinstance(part, Test) and part.path == (name,) and part.operator in operators:
            del parts[index]
            return part
    return None


def _take_range(parts: list[Condition], name: str) -> Test | None:
    """Replace the two bounds of a sort key by one BETWEEN, which includes both, because a Query takes only one test."""
    both = list(parts)
    low, high = _take(both, name, (">=",)), _take(both, name, ("<=",))
    if low is None or high is None:
        return None
    parts[:] = both
    return Test("BETWEEN", (name,), (*low.values, *high.values))


@dataclass
class _Parser:
    text: str
    _tokens: list[tuple[str, str, int]] = field(default_factory=list)
    _at: int = 0

    def parsed(self) -> Condition:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                start = len(self.text) - len(self.text[position:].lstrip())
                raise self._error(start, "is not understood: put text in single quotes; names may be in double quotes")
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)], match.start(str(match.lastgroup))))
            position = match.end()
        condition = self._alternatives()
        if self._at < len(self._tokens):
            raise self._unexpected("AND, OR or the end")
        return condition

    def _alternatives(self) -> Condition:
        return self._joined("OR", self._conjunction)

    def _conjunction(self) -> Condition:
        return self._joined("AND", self._negation)

    def _joined(self, word: str, parse: Any) -> Condition:
        parts: list[Condition] = []
        while True:
            part: Condition = parse()
            parts += part.parts if isinstance(part, Compound) and part.operator == word else [part]
            if not self._accepts(word):
                return parts[0] if len(parts) == 1 else Compound(word, tuple(parts))

    def _negation(self) -> Condition:
        if self._accepts("NOT"):
            return Negated(self._negation())
        if self._accepts("("):
            inner = self._alternatives()
            self._expect(")")
            return inner
        return self._test()

    def _test(self) -> Condition:
        kind, word, _ = self._peek()
        if kind == "word" and self._peek(1)[1] == "(":
            return self._function(word.lower())
        path = self._path()
        if self._accepts("IS"):
            negates = self._accepts("NOT")
            if self._accepts("MISSING"):
                return Test("attribute_exists" if negates else "attribute_not_exists", path)
            self._expect("NULL")
            return self._perhaps_not(Test("attribute_type", path, ({"S": "NULL"},)), negates=negates)
        negates = self._accepts("NOT")
        if self._accepts("BETWEEN"):
            low = self._value()
            self._expect("AND")
            return self._perhaps_not(Test("BETWEEN", path, (low, self._value())), negates=negates)
        if self._accepts("IN"):
            return self._perhaps_not(Test("IN", path, self._listed()), negates=negates)
        if negates or self._peek()[1] not in _COMPARATORS:
            raise self._unexpected("a comparison, BETWEEN, IN or IS" if not negates else "BETWEEN or IN")
        return Test(_COMPARATORS[self._next()[1]], path, (self._value(),))

    @staticmethod
    def _perhaps_not(test: Test, *, negates: bool) -> Condition:
        return Negated(test) if negates else test

    def _function(self, name: str) -> Test:
        position = self._next()[2]
        self._expect("(")
        path = self._path()
        test = Test(name, path)
        if name in _PREFIX_OR_PART:
            self._expect(",")
            test = Test(name, path, (self._value(),))
        elif name == "attribute_type":
            self._expect(",")
            test = Test(name, path, (self._type(),))
        elif name not in (*_EXISTENCE, "size"):
            functions = ", ".join(sorted((*_PREFIX_OR_PART, *_EXISTENCE, "attribute_type", "size")))
            raise self._error(position, f"is not a function of conditions; the functions are {functions}")
        self._expect(")")
        if name != "size":
            return test
        if self._peek()[1] not in _COMPARATORS:
            raise self._unexpected("a comparison")
        return Test(f"size {_COMPARATORS[self._next()[1]]}", path, (self._value(),))

    def _type(self) -> AttributeValue:
        position, value = self._peek()[2], self._value()
        if value.get("S") not in _TYPES:
            raise self._error(position, f"is not a DynamoDB type; the types are {', '.join(map(repr, _TYPES))}")
        return value

    def _listed(self) -> tuple[AttributeValue, ...]:
        closing = "]" if self._accepts("[") else ")"
        if closing == ")":
            self._expect("(")
        values = [self._value()]
        while self._accepts(","):
            values.append(self._value())
        self._expect(closing)
        return tuple(values)

    def _path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while True:
            if self._accepts("."):
                steps.append(self._name())
            elif self._accepts("["):
                kind, word, position = self._next()
                if kind != "number" or not word.isdecimal():
                    raise self._error(position, "is not a list index")
                steps.append(int(word))
                self._expect("]")
            else:
                return tuple(steps)

    def _name(self) -> str:
        kind, word, _ = self._peek()
        if kind == "quoted":
            self._at += 1
            return word[1:-1].replace('""', '"')
        if kind != "word" or word.upper() in _WORDS:
            raise self._unexpected('the name of an attribute (in double quotes if it is a word like "in")')
        self._at += 1
        return word

    def _value(self) -> AttributeValue:
        kind, word, position = self._peek()
        self._at += 1
        match kind, word.upper():
            case "text", _:
                return {"S": word[1:-1].replace("''", "'")}
            case "number", _:
                try:
                    return {"N": canonical_number(word)}
                except DecodeError as error:
                    raise self._error(position, f"is not a valid number: {error}") from error
            case "binary", _:
                return {"B": encode_base64(bytes.fromhex(word[2:-1]))}
            case "word", "TRUE" | "FALSE" as truth:
                return {"BOOL": truth == "TRUE"}
            case "word", "NULL":
                return {"NULL": True}
        self._at -= 1
        raise self._unexpected("a constant: 'text', a number, TRUE, FALSE, NULL or x'00ff'")

    def _peek(self, ahead: int = 0) -> tuple[str, str, int]:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else ("end", "", len(self.text))

    def _next(self) -> tuple[str, str, int]:
        token = self._peek()
        self._at += 1
        return token

    def _accepts(self, word: str) -> bool:
        kind, text, _ = self._peek()
        if kind not in {"word", "sign"} or text.upper() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accepts(word):
            raise self._unexpected(word)

    def _unexpected(self, expected: str) -> OptionError:
        return self._error(self._peek()[2], f"is unexpected; expected {expected}")

    def _error(self, position: int, problem: str) -> OptionError:
        excerpt = quoted(self.text[position : position + 20]) if self.text[position:].strip() else "its end"
        return OptionError(f"the condition {quoted(self.text)}: {excerpt} at character {position + 1} {problem}")


def check_key_tests(tests: Iterable[Test], types: Mapping[str, str]) -> None:
    """Check the constants that key attributes are compared with.

    Parameters
    ----------
    types
        The types of the key attributes. Tests of other attributes are not checked.

    Raises
    ------
    OptionError
        If a test compares a key attribute with a constant of another type.
    """
    for test in tests:
        name = str(test.path[0])
        key_type = types.get(name) if len(test.path) == 1 and test.operator in _COMPARED else None
        if key_type is None:
            continue
        for value in test.values:
            if key_type not in value:
                examples = {"S": "'text'", "N": "a number", "B": "x'00ff'"}
                raise OptionError(
                    f"the key {name!r} has type {key_type}, but the condition compares it with type "
                    f"{next(iter(value))}: write {examples.get(key_type, key_type)}"
                )
        if test.operator == "begins_with" and key_type == "N":
            raise OptionError(f"the key {name!r} has type N, which begins_with cannot test: use BETWEEN")
