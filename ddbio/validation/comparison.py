"""Say how two sides compare: the plan of a validation, and its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.errors import OptionError
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import parse_json
from ddbio.items.kernel.arrays import plain_array, take_rows
from ddbio.items.schema.arrow import DDB_TYPE, RESCUE_NAME, name_of_field
from ddbio.jobs.estimate import START_SECONDS, Figures
from ddbio.jobs.prices import cost_values, joined_cost
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from ddbio.validation.rules import ColumnRules, QualityRules

    _Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
    from collections.abc import Mapping

    from ddbio.items.rescue import Misfit
    from ddbio.jobs.prices import Cost

_NO: Any = pa.scalar(False)  # noqa: FBT003 - pyarrow's argument


@dataclass(frozen=True)
class RuleResult(Result):
    """Say what became of one rule.

    Attributes
    ----------
    rule
        The rule with its bounds, as the file has it.
    column
        The attribute, several with commas between; null for a rule about all rows.
    passed
        Whether it holds.
    failures
        Rows that break it; of ``row_count`` 1 if it is broken.
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
    """Hold a rule of one column, and count its failures."""

    column: str
    text: str
    kind: str
    bounds: Any
    failures: int = 0
    examples: list[dict[str, Any]] | None = None


class RuleChecker:
    """Evaluate the rules of columns batch by batch; those about keys and all rows are evaluated by whoever reads.

    Parameters
    ----------
    keys
        The attributes that name a row in an example.
    most_examples
        Examples to keep of each rule.
    """

    def __init__(self, rules: QualityRules, keys: Sequence[str], most_examples: int) -> None:
        self._keys, self._most = tuple(keys), most_examples
        self._rules = [rule for name, each in rules.columns.items() for rule in _rules_of(name, each)]

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Evaluate the rules on some rows.

        Raises
        ------
        OptionError
            If a rule does not suit its column's type; the message names both.
        """
        fields = {name_of_field(field): place for place, field in enumerate(batch.schema) if field.name != RESCUE_NAME}
        for rule in self._rules:
            place = fields.get(rule.column)
            column: Any = pa.nulls(batch.num_rows) if place is None else plain_array(batch.column(place))
            metadata = (None if place is None else batch.schema.field(place).metadata) or {}
            tag = metadata.get(DDB_TYPE, b"").decode()
            failing = _failing(rule, column, tag)
            self._count(rule, batch, np.flatnonzero(_with_rescued(rule, batch, failing)))

    def results(self) -> list[RuleResult]:
        """Return what became of each rule."""
        return [
            RuleResult(rule.text, rule.column, not rule.failures, rule.failures, tuple(rule.examples or ()))
            for rule in self._rules
        ]

    def merge(self, others: Sequence[RuleResult]) -> None:
        """Add what a checker of the same rules has counted elsewhere."""
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
    """Return the items that writing some rows would send, as DynamoDB JSON."""
    if not len(rows):
        return []
    return [parse_json(line) for line in to_dynamodb_json(take_rows(batch, rows.astype(np.int64))).splitlines()]


def rows_with(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows that have a value of each attribute: in its column, or rescued, if a key may hold it."""
    fields = {name_of_field(field): place for place, field in enumerate(batch.schema) if field.name != RESCUE_NAME}
    if not fields.keys() >= set(names):
        return batch.slice(0, 0)
    there = {name: _flags(batch.column(fields[name]).is_valid()) for name in names}
    present = np.logical_and.reduce(list(there.values()))
    if RESCUE_NAME in batch.schema.names:
        rescued: Any = batch.column(RESCUE_NAME)
        for row in np.flatnonzero(~present & _flags(rescued.is_valid())).tolist():
            item = parse_json(rescued[row].as_py().encode())
            present[row] = all(there[name][row] or not {"S", "N", "B"}.isdisjoint(item.get(name, ())) for name in names)
    return batch if present.all() else batch.filter(pa.array(present))


def _rules_of(name: str, given: ColumnRules) -> Iterable[_Rule]:
    if given.not_null:
        yield _Rule(name, "not_null", "not_null", None)
    if given.range is not None:
        low, high = given.range.min, given.range.max
        shown = ", ".join(f"{word} {bound}" for word, bound in (("min", low), ("max", high)) if bound is not None)
        yield _Rule(name, f"range: {shown}", "range", (low, high))
    if given.regex is not None:
        yield _Rule(name, f"regex: {given.regex}", "regex", given.regex)
    if given.in_set is not None:
        yield _Rule(name, f"in_set: {', '.join(map(str, given.in_set))}", "in_set", given.in_set)


def _failing(rule: _Rule, column: Any, tag: str) -> _Flags:
    """Return which rows break a rule; a null breaks ``not_null`` only."""
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
    found: Any = pa.array(np.zeros(len(column), np.bool_))
    for value in values:
        found = pc.or_(found, pc.equal(column, _scalar(value, column.type)).fill_null(_NO))
    return found


def _scalar(value: Any, type_: pa.DataType) -> Any:
    """Return a value of a rule as what Arrow compares exactly with a column.

    Arrow turns decimals into doubles that are not the nearest, and two decimals of 128 bits need not fit one such type.
    """
    if not isinstance(value, Decimal):
        return pa.scalar(value)
    if pa.types.is_floating(type_):
        return pa.scalar(float(value))
    exact: Any = pa.scalar(value)
    return exact.cast(pa.decimal256(exact.type.precision, exact.type.scale))


def _comparable(column: Any, tag: str) -> Any:
    """Return numbers that are texts as decimals."""
    if tag == "N" and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return pa.array([None if text is None else Decimal(text) for text in column.to_pylist()])
    return column


def _with_rescued(rule: _Rule, batch: pa.RecordBatch, failing: _Flags) -> _Flags:
    """Return which rows break a rule when values in the rescue column count as well."""
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
    """Return whether one value breaks a rule; a value of another type than the rule's breaks it."""
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


Kind = Literal["missing", "extra", "different"]


@dataclass(frozen=True)
class SideOutline(Result):
    """Describe what is known of a side before it is read.

    Attributes
    ----------
    name, kind
        What was given, and whether that is a ``table``, an ``export``, ``files``, or ``data`` in memory.
    rows, bytes
        Rows and bytes, as the service, a manifest or the files say; null if nothing tells.
    estimated_units
        Read units of reading it once.
    rcu_per_second
        The budget of reading it, or null.
    requests, cost
        Pages of reading it once, and what they cost.
    read_bytes
        Bytes of reading it once, as they are sent or stored.
    seconds
        How long reading it once takes.
    """

    name: str
    kind: str
    rows: int | None = None
    bytes: int | None = None
    estimated_units: float = 0.0
    rcu_per_second: float | None = None
    requests: int = 0
    cost: Cost | None = None
    read_bytes: int | None = None
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the outline as plain values; the plan has the cost of both sides."""
        values = super().to_dict()
        del values["cost"]
        return values


@dataclass(frozen=True)
class ValidatePlan(Result):
    """Describe a validation before it starts.

    Attributes
    ----------
    source, target
        The sides; the target is null if only rules are evaluated.
    key
        The key attributes by which rows are told apart.
    nulls
        ``keep`` if NULL and missing are different, ``merge`` if they are not.
    sample
        Share of the keys that is compared.
    rules
        How many quality rules are evaluated.
    estimated_units
        Read units if the sides are equal: each is read once.
    most_units
        Read units if they differ: each is read once more, until the values of all examples are found.
    estimated_seconds
        Time of the first reading at the budget; null where there is none.
    seconds
        Time of the whole, both sides being read one after the other; null of data in memory alone.
    """

    source: SideOutline
    target: SideOutline | None
    key: tuple[str, ...]
    nulls: str
    sample: float
    rules: int
    estimated_units: float
    most_units: float
    estimated_seconds: float | None
    seconds: float | None = None

    @property
    def cost(self) -> Cost:
        """Return what reading each side once costs."""
        return joined_cost(side.cost for side in self._sides if side.cost is not None)

    @property
    def figures(self) -> Figures:
        """Return what is compared with what the validation took."""
        sizes = [side.read_bytes for side in self._sides if side.read_bytes is not None]
        return Figures(self.estimated_units, self.seconds, sum(sizes) if sizes else None, self.cost.usd)

    @property
    def _sides(self) -> tuple[SideOutline, ...]:
        return (self.source,) if self.target is None else (self.source, self.target)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, with the keys that every plan has."""
        requests = sum(side.requests for side in self._sides)
        return {**super().to_dict(), **self.figures.to_dict(), "requests": requests, **cost_values(self.cost)}


def plan_validation(
    sides: tuple[SideOutline, SideOutline | None], key: tuple[str, ...], nulls: str, sample: float, rules: int,
    *, examples: bool,
) -> ValidatePlan:  # fmt: skip
    """Return the plan of a validation."""
    there = [side for side in sides if side is not None]
    units = sum(side.estimated_units for side in there)
    budgeted = [side for side in there if side.rcu_per_second]
    at_budget = sum(side.estimated_units / (side.rcu_per_second or 1.0) for side in budgeted) if budgeted else None
    timed = [side.seconds for side in there if side.seconds is not None]
    seconds = START_SECONDS + sum(timed) if timed else None
    again = 2 if examples else 1
    return ValidatePlan(*sides, key, nulls, sample, rules, units, again * units, at_budget, seconds)


@dataclass(frozen=True)
class Example(Result):
    """Show one key that differs.

    Attributes
    ----------
    kind
        ``missing`` in the target, ``extra`` there, or ``different``.
    key
        The key, as DynamoDB JSON.
    source, target
        The item of each side as DynamoDB JSON; null where there is none.
    """

    kind: Kind
    key: Mapping[str, Any]
    source: Mapping[str, Any] | None
    target: Mapping[str, Any] | None


@dataclass(frozen=True)
class ColumnDifference(Result):
    """Describe an attribute that has values on one side only, or another type.

    Attributes
    ----------
    name
        The attribute.
    source, target
        DynamoDB's type and, in brackets, Arrow's; null where no row has a value.
    """

    name: str
    source: str | None
    target: str | None


@dataclass(frozen=True)
class ValidationReport(Result):
    """Say how two sides compare, and which rules hold.

    Attributes
    ----------
    source, target
        The sides as given; the target is null if only rules were evaluated.
    equal
        Whether both hold the same items; null without a target.
    source_rows, target_rows
        Rows that were compared; of the target null without one.
    missing, extra, different
        Rows only in the source, rows only in the target, and keys whose items differ.
    examples
        Some of them, with key and both items.
    key
        The key attributes.
    source_digest, target_digest
        The digests of the rows that were compared, as ``ddbio digest`` has them.
    source_repeated, target_repeated
        Rows whose key an earlier row of the same side has; of a table 0.
    columns
        Attributes that differ in type, or that only one side has values of.
    misfits
        Values of a table that did not fit the columns it was read into; they are compared all the same.
    nulls
        ``keep`` if NULL and missing are different, ``merge`` if they were taken for the same.
    sample
        Share of the keys that was compared.
    rules
        What became of each quality rule.
    rules_passed
        Whether all rules hold; null without rules.
    rcu_consumed
        Read units that the service charged.
    seconds, cpu_seconds
        Wall time, and user + system seconds of this process.
    planned, actual
        Units, seconds, bytes and USD, as planned if the sides are equal, and as it was; bytes that were read are not
        counted.
    """

    source: str
    target: str | None
    equal: bool | None
    source_rows: int
    target_rows: int | None
    missing: int
    extra: int
    different: int
    examples: tuple[Example, ...]
    key: tuple[str, ...]
    source_digest: str
    target_digest: str | None
    source_repeated: int
    target_repeated: int
    columns: tuple[ColumnDifference, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    nulls: str = "keep"
    sample: float = 1.0
    rules: tuple[RuleResult, ...] = field(default=())
    rules_passed: bool | None = None
    rcu_consumed: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    planned: Figures | None = None
    actual: Figures | None = None

    @property
    def passed(self) -> bool:
        """Return whether the sides are equal, as far as there are two, and all rules hold."""
        return self.equal is not False and self.rules_passed is not False
