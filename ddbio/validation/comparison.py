"""Plan and report of a validation of two sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ddbio.jobs.estimate import START_SECONDS, Figures
from ddbio.jobs.prices import cost_values, joined_cost
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.items.rescue import Misfit
    from ddbio.jobs.prices import Cost
    from ddbio.validation.quality import RuleResult

Kind = Literal["missing", "extra", "different"]


@dataclass(frozen=True)
class SideOutline(Result):
    """Estimates of a side before it is read.

    Attributes
    ----------
    name, kind
        The side as passed, and its kind: ``table``, ``export``, ``files``, or ``data`` in memory.
    rows, bytes
        Rows and bytes, from the service, a manifest or the files; null if unknown.
    estimated_units
        Read units of one pass.
    rcu_per_second
        The read budget, or null.
    requests, cost
        Pages of one pass, and their cost.
    read_bytes
        Bytes of one pass, as they are sent or stored.
    seconds
        Duration of one pass.
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
        """Return the outline as plain values. The plan contains the cost of both sides."""
        values = super().to_dict()
        del values["cost"]
        return values


@dataclass(frozen=True)
class ValidatePlan(Result):
    """Plan of a validation.

    Attributes
    ----------
    source, target
        The sides. The target is null if only rules are evaluated.
    key
        The key attributes that identify rows.
    nulls
        ``keep`` if NULL and missing are different, ``merge`` if they are equal.
    sample
        Share of the keys to compare.
    rules
        Number of quality rules.
    estimated_units
        Read units if the sides are equal: each is read once.
    most_units
        Read units if they differ: each is read once more, until the values of all examples are found.
    estimated_seconds
        Time of the first pass at the budget; null without a budget.
    seconds
        Total time, if both sides are read one after the other; null for data in memory alone.
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
        """Return the cost of reading each side once."""
        return joined_cost(side.cost for side in self._sides if side.cost is not None)

    @property
    def figures(self) -> Figures:
        """Return the figures to compare with those of the finished validation."""
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
    given_sides = [side for side in sides if side is not None]
    units = sum(side.estimated_units for side in given_sides)
    budgeted = [side for side in given_sides if side.rcu_per_second]
    at_budget = sum(side.estimated_units / (side.rcu_per_second or 1.0) for side in budgeted) if budgeted else None
    timed = [side.seconds for side in given_sides if side.seconds is not None]
    seconds = START_SECONDS + sum(timed) if timed else None
    again = 2 if examples else 1
    return ValidatePlan(*sides, key, nulls, sample, rules, units, again * units, at_budget, seconds)


@dataclass(frozen=True)
class Example(Result):
    """One key that differs.

    Attributes
    ----------
    kind
        ``missing`` in the target, ``extra`` in the target, or ``different``.
    key
        The key, as DynamoDB JSON.
    source, target
        The item of each side as DynamoDB JSON; null if the side has no such item.
    """

    kind: Kind
    key: Mapping[str, Any]
    source: Mapping[str, Any] | None
    target: Mapping[str, Any] | None


@dataclass(frozen=True)
class ColumnDifference(Result):
    """An attribute that has values on one side only, or a different type on each side.

    Attributes
    ----------
    name
        The attribute.
    source, target
        DynamoDB's type and, in brackets, Arrow's; null if no row has a value.
    """

    name: str
    source: str | None
    target: str | None


@dataclass(frozen=True)
class ValidationReport(Result):
    """Result of the comparison of two sides, and of quality rules.

    Attributes
    ----------
    source, target
        The sides as passed. The target is null if only rules were evaluated.
    equal
        Whether both contain the same items; null without a target.
    source_rows, target_rows
        Number of compared rows; null for a missing target.
    missing, extra, different
        Rows only in the source, rows only in the target, and keys whose items differ.
    examples
        Some of them, with key and both items.
    key
        The key attributes.
    source_digest, target_digest
        The digests of the compared rows, as computed by ``ddbio digest``.
    source_repeated, target_repeated
        Rows with the key of an earlier row of the same side; 0 for a table.
    columns
        Attributes that differ in type, or have values on one side only.
    misfits
        Values of a table that did not fit their columns. They are compared nevertheless.
    nulls
        ``keep`` if NULL and missing are different, ``merge`` if they were treated as equal.
    sample
        Share of the keys that was compared.
    rules
        The result of each quality rule.
    rules_passed
        Whether all rules passed; null without rules.
    rcu_consumed
        Read units that the service charged.
    seconds, cpu_seconds
        Wall time, and user + system seconds of this process.
    planned, actual
        Units, seconds, bytes and USD, as planned for equal sides, and as measured.
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
        """Return whether the sides are equal (if there are two) and all rules passed."""
        return self.equal is not False and self.rules_passed is not False
