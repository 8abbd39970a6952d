"""Capacity limits of a table, its partitions and its account for plans and simulations, and table statistics.

A simulation admits individual requests (`advice/simulation.py`); a plan needs the time for a total of units.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ddbio.aws.control_plane import parse_table_description
from ddbio.budget.pacing import DEFAULT_QUOTA_WCU, NEW_TABLE_RCU, NEW_TABLE_WCU, Ramp
from ddbio.errors import OptionError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.aws.table_description import IndexDescription, TableDescription

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
PARTITION_RCU, PARTITION_WCU = 3_000.0, 1_000.0
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.Partitions.html
PARTITION_BYTES = 10 * 10**9
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html
BURST_SECONDS = 300.0
# Trials that estimate the unequal distribution of few keys over partitions.
_TRIALS = 200


class Served(NamedTuple):
    """Time in which a table serves a number of units: at sustained rates, and with its accumulated burst capacity."""

    lasting_seconds: float
    burst_seconds: float
    by_partitions: bool


@dataclass(frozen=True)
class TableLimits:
    """Limits of a table and its account.

    Attributes
    ----------
    partitions
        Physical partitions.
    partition_rate
        Maximum rate of a partition per second.
    table_rate
        Rate of the table per second; None if it has no limit.
    account_rate
        Rate of the account in this region.
    other_rate
        Rate that others consume of the table and of the account, evenly distributed over the partitions.
    burst_seconds
        Accumulated unused capacity of the table in seconds.
    adaptive
        Whether a partition may use the capacity that others leave, up to its limit; otherwise each has an equal share.
    split_seconds
        Time at its limit after which a partition splits in two; None if it never splits.
    max_rate
        Rate up to which the partitions double every 30 min under load, as those of an on-demand table.
    """

    partitions: int
    partition_rate: float
    table_rate: float | None = None
    account_rate: float | None = None
    other_rate: float = 0.0
    burst_seconds: float = 0.0
    adaptive: bool = True
    split_seconds: float | None = None
    max_rate: float | None = None

    def serves(self, units: float, *, largest_share: float = 0.0) -> Served:
        """Return the minimum time for a number of units, and the limit that determines it.

        Parameters
        ----------
        largest_share
            The largest share of the units in one partition, if larger than an equal share.
        """
        table_seconds = 0.0 if self.table_rate is None else units / max(1e-9, self.table_rate - self.other_rate)
        share = max(largest_share, 1 / self.partitions)
        own = max(1e-9, self.partition_rate - self.other_rate / self.partitions) / share
        # Partitions split if all are at their limit. A partition with few hot keys may not benefit from a split.
        doubles = self.max_rate is not None and largest_share * self.partitions <= 1
        parts = Ramp(own).seconds(units, max(own, self.max_rate or own)) if doubles else units / own
        saved = max(0.0, table_seconds - self.burst_seconds)
        return Served(max(table_seconds, parts), max(saved, parts), by_partitions=parts > table_seconds)


def partition_count(size_bytes: float, units_per_second: float, partition_rate: float) -> int:
    """Return the number of physical partitions of a table with this size and rate."""
    return max(1, math.ceil(size_bytes / PARTITION_BYTES), math.ceil(units_per_second / partition_rate))


def limits_of(table: TableDescription, what: Literal["reads", "writes"], index: str | None = None) -> TableLimits:
    """Return the limits of a table or its global index from its description.

    Partitions follow from size, from provisioned capacity, and from warm throughput or that of a new on-demand table.
    """
    described = table.index(index) if index is not None else None
    part: TableDescription | IndexDescription = described if described is not None and described.is_global else table
    warm_rcu, warm_wcu = part.warm_rcu or 0.0, part.warm_wcu or 0.0
    needed = 0
    if table.on_demand:
        warm_rcu, warm_wcu = warm_rcu or NEW_TABLE_RCU, warm_wcu or NEW_TABLE_WCU
    else:
        needed = math.ceil((part.rcu or 0.0) / PARTITION_RCU + (part.wcu or 0.0) / PARTITION_WCU)
    needed = max(needed, math.ceil(warm_rcu / PARTITION_RCU), math.ceil(warm_wcu / PARTITION_WCU))
    partition_rate, own = (PARTITION_RCU, part.rcu) if what == "reads" else (PARTITION_WCU, part.wcu)
    return TableLimits(
        partitions=max(needed, partition_count(part.size_bytes, 0.0, partition_rate)),
        partition_rate=partition_rate,
        table_rate=own,
        burst_seconds=min(BURST_SECONDS, table.idle_seconds),
        # The quota of a table is the same for reads and writes.
        max_rate=DEFAULT_QUOTA_WCU if table.on_demand and own is None else None,
    )


def largest_share(weights: Sequence[float], partitions: int) -> float:
    """Return the expected share of writes of the busiest partition, given the shares of frequent keys.

    Keys are distributed randomly: with few keys some partitions have several. Other writes are distributed evenly.
    """
    if not weights or partitions == 1:
        return 0.0
    # Verbs that only call the service load this module too, and numpy would take half of their start time.
    import numpy as np  # noqa: PLC0415

    partition_of_key = np.random.default_rng(0).integers(partitions, size=(_TRIALS, len(weights)))
    sums = np.zeros((_TRIALS, partitions))
    np.add.at(sums, (np.arange(_TRIALS)[:, None], partition_of_key), np.asarray(weights))
    return float(sums.max(axis=1).mean()) + (1 - sum(weights)) / partitions


_ASSUMED_ITEM_BYTES = 400.0


@dataclass(frozen=True)
class TableStatistics:
    """Description of a table with additional statistics.

    Attributes
    ----------
    item_bytes
        The mean size of its items.
    changes_per_second
        Items written per second; None if unknown.
    recovery
        Whether the table has point-in-time recovery.
    """

    table: TableDescription
    item_bytes: float
    changes_per_second: float | None = None
    recovery: bool = False


def read_statistics(path: str) -> TableStatistics:
    """Read statistics from a JSON file: a response of DescribeTable, with statistics next to or in its ``Table``.

    Only its size is required. A table without stated capacity is on demand. The statistics are ``ChangesPerSecond`` and
    ``AverageItemSizeBytes``, whose default is size divided by items. The file may also contain the response of
    DescribeContinuousBackups.

    Raises
    ------
    OptionError
        If the file cannot be read, or has another format.
    """
    try:
        values: dict[str, Any] = json.loads(local_path(path).read_text(encoding="utf-8"))
        described = dict(values.get("Table", values))
        if "ProvisionedThroughput" not in described:
            described.setdefault("BillingModeSummary", {"BillingMode": "PAY_PER_REQUEST"})
        described.setdefault("TableName", Path(path).stem)
        int(described["TableSizeBytes"])
        table = parse_table_description(described)
        stated = {**described, **values}
        mean, changes = (
            float(stated[name]) if name in stated else None for name in ("AverageItemSizeBytes", "ChangesPerSecond")
        )
        backups = stated.get("ContinuousBackupsDescription", {}).get("PointInTimeRecoveryDescription", {})
    except OSError as error:
        raise OptionError(f"statistics {path} cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"statistics {path} describe no table ({type(error).__name__}: {error}): give the response of "
            "DescribeTable as JSON, or at least TableSizeBytes and ItemCount"
        ) from None
    is_recoverable = backups.get("PointInTimeRecoveryStatus") == "ENABLED"
    return TableStatistics(table, mean or mean_item_bytes(table), changes, is_recoverable)


def statistics_table(path: str | None) -> TableDescription | None:
    """Return the table in a file, or None without a file."""
    return None if path is None else read_statistics(path).table


def mean_item_bytes(table: TableDescription) -> float:
    """Return a table's size divided by its items, or 400 bytes if unknown."""
    return max(1.0, table.size_bytes / table.item_count) if table.item_count else _ASSUMED_ITEM_BYTES
