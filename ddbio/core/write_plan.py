"""Decide how rows are written, how fast and by how many lanes, from facts alone; start nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.facts import TableFacts
    from ddbio.options import WriteOptions


@dataclass(frozen=True)
class WritePlan:
    """State a write completely before it starts.

    ``key_types`` are the table's key attributes and their types, the partition key first.
    """

    table: str
    key_types: tuple[tuple[str, str], ...]
    mode: Literal["upsert", "create", "delete", "update"]
    newer_by: str | None
    operation_by: str | None
    lanes: int
    wcu_per_second: float | None

    @property
    def nulls_matter(self) -> bool:
        """Return whether a null removes an attribute, where a missing column leaves it alone."""
        return self.mode == "update" or self.operation_by is not None


def plan_write(facts: TableFacts, options: WriteOptions) -> WritePlan:
    """Return how some rows are written to a table.

    Raises
    ------
    OptionError
        If the table cannot be written now, or states no capacity that a ratio could be of.
    """
    if facts.status not in {"ACTIVE", "UPDATING"}:
        raise OptionError(f"table {facts.name!r} is {facts.status}: wait until it is ACTIVE")
    return WritePlan(
        table=options.table,
        key_types=facts.key_types,
        mode=options.mode,
        newer_by=options.newer_by,
        operation_by=options.operation_by,
        lanes=options.lanes,
        wcu_per_second=write_budget_of(facts, options),
    )


def write_budget_of(facts: TableFacts, options: WriteOptions) -> float | None:
    """Return the write units per second that a job may use, or None for no bound; one unit is the least.

    Raises
    ------
    OptionError
        If a ratio is asked for and the table states no write capacity.
    """
    if options.write_ratio is None:
        return options.wcu_per_second
    if facts.wcu is None:
        raise OptionError(
            f"write_ratio is a share of the table's write capacity, and on-demand table {facts.name!r} states none: "
            "give wcu_per_second"
        )
    return max(1.0, facts.wcu * options.write_ratio)
