"""Evaluation of quality rules on the columns of record batches."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import parse_json
from ddbio.items.kernel.arrays import plain_array, take_rows
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, name_of_field
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from ddbio.validation.rules import ColumnRules, QualityRules

    _Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


_NO: Any = pa.scalar(False)  # noqa: FBT003 - pyarrow's argument


@dataclass(frozen=True)
class RuleResult(Result):
    """Result of one rule.

    Attributes
    ----------
    rule
        The rule with its bounds, as in the file.
    column
        The attribute, several separated by commas; null for a rule about all rows.
    passed
        Whether the rule passed.
    failures
        Number of rows that break the rule; of ``row_count`` 1 if it is broken.
    examples
        The keys, and the values, of some of these rows, as DynamoDB JSON.
    """

    rule: str
    column: str | None
    passed: bool
    failures: int
    examples: tuple[dict[str, Any], ...] = ()


@dataclass
class _Rule:
    """A rule of one column, with the count of its failures."""

    column: str
    text: str
    kind: str
    bounds: Any
    failures: int = 0
    examples: list[dict[str, Any]] | None = None


class RuleChecker:
    """Evaluation of column rules, batch by batch. The reader evaluates the rules about keys and all rows.

    Parameters
    ----------
    keys
        The attributes that identify a row in an example.
    most_examples
        Maximum number of examples per rule.
    """

    def __init__(self, rules: QualityRules, keys: Sequence[str], most_examples: int) -> None:
        self._keys, self._most = tuple(keys), most_examples
        self._rules = [rule for name, column_rules in rules.columns.items() for rule in _rules_of(name, column_rules)]

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Evaluate the rules on some rows.

        Raises
        ------
        OptionError
            If a rule does not fit its column's type. The message names both.
        """
        fields = {name_of_field(field): index for index, field in enumerate(batch.schema) if field.name != RESCUE_NAME}
        for rule in self._rules:
            index = fields.get(rule.column)
            column: Any = pa.nulls(batch.num_rows) if index is None else plain_array(batch.column(index))
            metadata = (None if index is None else batch.schema.field(index).metadata) or {}
            tag = metadata.get(DDB_TYPE, b"").decode()
            failing = _failing(rule, column, tag)
            self._count(rule, batch, np.flatnonzero(_with_rescued(rule, batch, failing)))

    def results(self) -> list[RuleResult]:
        """Return the result of each rule."""
        return [
            RuleResult(rule.text, rule.column, not rule.failures, rule.failures, tuple(rule.examples or ()))
            for rule in self._rules
        ]

    def merge(self, others: Sequence[RuleResult]) -> None:
        """Add the counts of another checker of the same rules."""
        for rule, other in zip(self._rules, others, strict=True):
            rule.failures += other.failures
            examples = rule.examples = [] if rule.examples is None else rule.examples
            examples += other.examples[: max(0, self._most - len(examples))]

    def _count(self, rule: _Rule, batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> None:
        rule.failures += len(rows)
        examples = rule.examples = [] if rule.examples is None else rule.examples
        wanted = rows[: max(0, self._most - len(examples))]
        for item in row_items(batch, wanted):
            key = {name: item[name] for name in self._keys if name in item}
            examples.append({"key": key, "value": item.get(rule.column)})


def row_items(batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the items that a load of some rows would write, as DynamoDB JSON."""
    if not len(rows):
        return []
    return [parse_json(line) for line in to_dynamodb_json(take_rows(batch, rows.astype(np.int64))).splitlines()]


def rows_with(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows with a value of each attribute, in its column or rescued, if the value can be a key."""
    fields = {name_of_field(field): index for index, field in enumerate(batch.schema) if field.name != RESCUE_NAME}
    if not fields.keys() >= set(names):
        return batch.slice(0, 0)
    valid = {name: _flags(batch.column(fields[name]).is_valid()) for name in names}
    present = np.logical_and.reduce(list(valid.values()))
    if RESCUE_NAME in batch.schema.names:
        rescued: Any = batch.column(RESCUE_NAME)
        for row in np.flatnonzero(~present & _flags(rescued.is_valid())).tolist():
            item = parse_json(rescued[row].as_py().encode())
            present[row] = all(valid[name][row] or not {"S", "N", "B"}.isdisjoint(item.get(name, ())) for name in names)
    return batch if present.all() else batch.filter(pa.array(present))


def _rules_of(name: str, rules: ColumnRules) -> Iterable[_Rule]:
    if rules.not_null:
        yield _Rule(name, "not_null", "not_null", None)
    if rules.range is not None:
        low, high = rules.range.min, rules.range.max
        shown = ", ".join(f"{word} {bound}" for word, bound in (("min", low), ("max", high)) if bound is not None)
        yield _Rule(name, f"range: {shown}", "range", (low, high))
    if rules.regex is not None:
        yield _Rule(name, f"regex: {rules.regex}", "regex", rules.regex)
    if rules.in_set is not None:
        yield _Rule(name, f"in_set: {', '.join(map(str, rules.in_set))}", "in_set", rules.in_set)


def _failing(rule: _Rule, column: Any, tag: str) -> _Flags:
    """Return the mask of rows that break a rule. A null breaks ``not_null`` only."""
    if rule.kind == "not_null":
        return _flags(column.is_null())
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    try:
        match rule.kind:
            case "range":
                broken = _outside(column, tag, *rule.bounds)
            case "regex":
                broken = pc.invert(pc.match_substring_regex(column.cast(pa.string()), f"^(?:{rule.bounds})$"))
            case _:
                broken = pc.invert(_is_in(column, tag, rule.bounds))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OptionError(
            f"rule {rule.text!r} does not suit column {rule.column!r}, which is {column.type}: {error}"
        ) from error
    return _flags(pc.and_(broken.fill_null(_NO), column.is_valid()))


def _outside(column: Any, tag: str, low: Any, high: Any) -> Any:
    column = _comparable(column, tag)
    broken: Any = pa.array(np.zeros(len(column), np.bool_))
    for bound, compare in ((low, pc.less), (high, pc.greater)):
        if bound is not None:
            broken = pc.or_(broken, compare(column, _scalar(bound, column.type)).fill_null(_NO))
    return broken


def _is_in(column: Any, tag: str, values: Sequence[Any]) -> Any:
    column = _comparable(column, tag)
    matches: Any = pa.array(np.zeros(len(column), np.bool_))
    for value in values:
        matches = pc.or_(matches, pc.equal(column, _scalar(value, column.type)).fill_null(_NO))
    return matches


def _scalar(value: Any, type_: pa.DataType) -> Any:
    """Return a value of a rule as an Arrow scalar that compares exactly with a column.

    Arrow converts decimals to doubles that are not the nearest, and two decimals of 128 bits need not fit one such
    type.
    """
    if not isinstance(value, Decimal):
        return pa.scalar(value)
    if pa.types.is_floating(type_):
        return pa.scalar(float(value))
    exact: Any = pa.scalar(value)
    return exact.cast(pa.decimal256(exact.type.precision, exact.type.scale))


def _comparable(column: Any, tag: str) -> Any:
    """Return numbers in text columns as decimals."""
    if tag == "N" and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return pa.array([None if text is None else Decimal(text) for text in column.to_pylist()])
    return column


def _with_rescued(rule: _Rule, batch: pa.RecordBatch, failing: _Flags) -> _Flags:
    """Return the mask of rows that break a rule, including values in the rescue column."""
    if RESCUE_NAME not in batch.schema.names:
        return failing
    rescued: Any = batch.column(RESCUE_NAME)
    if rescued.null_count == len(rescued):
        return failing
    failing = failing.copy()
    for row in np.flatnonzero(_flags(rescued.is_valid())).tolist():
        ((tag, content),) = parse_json(rescued[row].as_py().encode()).get(rule.column, {"": None}).items()
        if tag:
            failing[row] = _breaks(rule, tag, content)
    return failing


def _breaks(rule: _Rule, tag: str, content: Any) -> bool:
    """Return whether one value breaks a rule. A value of a different type than the rule's breaks it."""
    if rule.kind == "not_null" or tag == "NULL":
        return rule.kind == "not_null" and tag == "NULL"
    if tag not in {"S", "N", "BOOL"}:
        return True
    value: Any = Decimal(content) if tag == "N" else content
    try:
        return bool(_failing(rule, pa.array([value]), tag)[0])
    except OptionError:
        return True


def _flags(array: Any) -> _Flags:
    flags: _Flags = array.to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags
