"""Say how two sides compare: the plan of a validation, and its report."""

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
