"""Decide how rows are written, how fast and by how many lanes, from facts alone; start nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ddbio.core.ramp import DEFAULT_QUOTA_WCU, NEW_TABLE_WCU, Ramp
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.table_description import IndexKey, TableDescription
    from ddbio.options import WriteOptions

BATCH_LANES = 8
# A lane sends when its last request is answered: so many lanes spend a budget by requests of one unit that take 50 ms.
# Those that are not needed cost nothing, not even a connection.
_ROW_SECONDS = 0.05
_MOST_ROW_LANES = 128
# Where nothing bounds the rate the processor's time does, at some ten thousand requests a second.
_UNBOUND_ROW_LANES = 64
# More would leave too few rows of a chunk to a lane for its batches to be full.
_MOST_MIXED_LANES = 32


@dataclass(frozen=True)
class WritePlan:
    """State a write completely before it starts.

    ``key_types`` are the table's key attributes and their types, the partition key first. ``ramp`` bounds the rate of a
    table that has to get used to it.
    """

    table: str
    key_types: tuple[tuple[str, str], ...]
    mode: Literal["upsert", "create", "delete", "update"]
    newer_by: str | None
    operation_by: str | None
    lanes: int
    wcu_per_second: float | None
    ramp: Ramp | None = None
    index_keys: tuple[IndexKey, ...] = ()
    compress_requests: bool = False

    @property
    def nulls_matter(self) -> bool:
        """Return whether a null removes an attribute, where a missing column leaves it alone."""
        return self.mode == "update" or self.operation_by is not None

    @property
    def rows_go_alone(self) -> bool:
        """Return whether each request takes one row: a batch takes no condition, and no update."""
        return _goes_alone(self.mode, self.newer_by)

    @property
    def order_matters(self) -> bool:
        """Return whether the end depends on the order in which rows of one key are written."""
        return self.operation_by is not None or (self.mode != "delete" and self.newer_by is None)


def plan_write(facts: TableDescription, options: WriteOptions) -> WritePlan:
    """Return how some rows are written to a table.

    Raises
    ------
    OptionError
        If the table cannot be written now, or states no capacity that a ratio could be of.
    """
    if facts.status not in {"ACTIVE", "UPDATING"}:
        raise OptionError(f"table {facts.name!r} is {facts.status}: wait until it is ACTIVE")
    budget = write_budget_of(facts, options)
    return WritePlan(
        table=options.table,
        key_types=facts.key_types,
        mode=options.mode,
        newer_by=options.newer_by,
        operation_by=options.operation_by,
        lanes=options.lanes or _lanes(options, budget, facts.wcu),
        wcu_per_second=budget,
        ramp=ramp_of(facts, options),
        compress_requests=options.compress_requests,
        index_keys=tuple(key for index in facts.indexes for key in index.keys),
    )


def _goes_alone(mode: str, newer_by: str | None) -> bool:
    return newer_by is not None or mode in {"create", "update"}


def _lanes(options: WriteOptions, *rates: float | None) -> int:
    """Return how many lanes spend the lowest of some rates: more would only be throttled, and each for longer."""
    if _goes_alone(options.mode, options.newer_by):
        most = _MOST_ROW_LANES
    elif options.operation_by is not None:
        most = _MOST_MIXED_LANES
    else:
        return BATCH_LANES
    known = [rate for rate in rates if rate is not None]
    asked = math.ceil(min(known) * _ROW_SECONDS) if known else _UNBOUND_ROW_LANES
    return min(most, max(BATCH_LANES, asked))


def ramp_of(facts: TableDescription, options: WriteOptions) -> Ramp | None:
    """Return how the rate of a warm-up begins: with what the table bears at once.

    Raises
    ------
    OptionError
        If a warm-up is asked for and the table is not on demand.
    """
    if not options.warm_up:
        return None
    if not facts.on_demand:
        raise OptionError(f"table {facts.name!r} has provisioned capacity, which needs no warm_up: leave it out")
    return Ramp(max(NEW_TABLE_WCU, facts.warm_wcu or 0.0))


def write_budget_of(facts: TableDescription, options: WriteOptions) -> float | None:
    """Return the write units per second that a job may use, or None for no bound; one unit is the least.

    Raises
    ------
    OptionError
        If a ratio is asked for and the table states no write capacity.
    """
    if options.write_ratio is None:
        # A warm-up has to end somewhere: at what a table may use unless its account has asked for more.
        return options.wcu_per_second or (DEFAULT_QUOTA_WCU if options.warm_up else None)
    if facts.wcu is None:
        raise OptionError(
            f"write_ratio is a share of the table's write capacity, and on-demand table {facts.name!r} states none: "
            "give wcu_per_second"
        )
    return max(1.0, facts.wcu * options.write_ratio)
