"""What a table, its partitions and its account serve: the model of plans and simulations, and its statistics.

A simulation admits request by request (`advice/simulation.py`); a plan asks how long so many units take.
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
# Trials that say how unevenly few keys fall on partitions.
_TRIALS = 200


class Served(NamedTuple):
    """Say how long a table serves so many units: at the rates that last, and with the burst it has saved up."""

    lasting_seconds: float
    burst_seconds: float
    by_partitions: bool


@dataclass(frozen=True)
class TableLimits:
    """Say what a table and its account allow.

    Attributes
    ----------
    partitions
        Physical partitions.
    partition_rate
        The most that one serves a second.
    table_rate
        What the table serves a second; None is no limit of its own.
    account_rate
        The same of the account in this region.
    other_rate
        What others consume of the table and of the account a second, evenly over the partitions.
    burst_seconds
        How much of its unused capacity the table has saved up.
    adaptive
        Whether a partition may use what others leave, up to its own limit; else each has an equal share of the table.
    split_seconds
        After how long at its limit a partition splits in two; None is never.
    most_rate
        Up to what rate the partitions double every half hour under load, as those of an on-demand table do.
    """

    partitions: int
    partition_rate: float
    table_rate: float | None = None
    account_rate: float | None = None
    other_rate: float = 0.0
    burst_seconds: float = 0.0
    adaptive: bool = True
    split_seconds: float | None = None
    most_rate: float | None = None

    def serves(self, units: float, *, largest_share: float = 0.0) -> Served:
        """Return how long units take at the least, and what bounds them.

        Parameters
        ----------
        largest_share
            The share of the units that goes to one partition, if that is more than an equal one.
        """
        whole = 0.0 if self.table_rate is None else units / max(1e-9, self.table_rate - self.other_rate)
        share = max(largest_share, 1 / self.partitions)
        own = max(1e-9, self.partition_rate - self.other_rate / self.partitions) / share
        # Partitions that are all at their limit split; one that a few keys make hot need not gain by it.
        doubles = self.most_rate is not None and largest_share * self.partitions <= 1
        parts = Ramp(own).seconds(units, max(own, self.most_rate or own)) if doubles else units / own
        saved = max(0.0, whole - self.burst_seconds)
        return Served(max(whole, parts), max(saved, parts), by_partitions=parts > whole)


def partition_count(size_bytes: float, units_per_second: float, partition_rate: float) -> int:
    """Return how many physical partitions a table of that size has that bears that rate."""
    return max(1, math.ceil(size_bytes / PARTITION_BYTES), math.ceil(units_per_second / partition_rate))


def limits_of(table: TableDescription, what: Literal["reads", "writes"], index: str | None = None) -> TableLimits:
    """Return the limits of a table, or of a global index of it, as its description has them.

    Partitions follow from size, from provisioned capacity, and from warm throughput or that of a new on-demand table.
    """
    found = table.index(index) if index is not None else None
    part: TableDescription | IndexDescription = found if found is not None and found.is_global else table
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
        most_rate=DEFAULT_QUOTA_WCU if table.on_demand and own is None else None,
    )


def largest_share(weights: Sequence[float], partitions: int) -> float:
    """Return which share of all writes the busiest partition is expected to have, by the shares of frequent keys.

    Keys fall on partitions by chance: with few of them some partitions have several. What the frequent ones leave is
    spread evenly.
    """
    if not weights or partitions == 1:
        return 0.0
    # Verbs that only ask the service load this module too, and half of their start would be numpy.
    import numpy as np  # noqa: PLC0415

    places = np.random.default_rng(0).integers(partitions, size=(_TRIALS, len(weights)))
    sums = np.zeros((_TRIALS, partitions))
    np.add.at(sums, (np.arange(_TRIALS)[:, None], places), np.asarray(weights))
    return float(sums.max(axis=1).mean()) + (1 - sum(weights)) / partitions


_ASSUMED_ITEM_BYTES = 400.0


@dataclass(frozen=True)
class TableStatistics:
    """Hold a table's description, and numbers that go beyond it.

    Attributes
    ----------
    item_bytes
        The mean size of its items.
    changes_per_second
        How many items are written a second; None if that is not said.
    recovery
        Whether it has point-in-time recovery.
    """

    table: TableDescription
    item_bytes: float
    changes_per_second: float | None = None
    recovery: bool = False


def read_statistics(path: str) -> TableStatistics:
    """Return what a file of JSON says: DescribeTable's answer, and numbers beside or in its ``Table``.

    Only its size is needed; a table of which no capacity is said is on demand. The numbers are
    ``AverageItemSizeBytes``, else the mean is the size over the items, and ``ChangesPerSecond``; the answer of
    DescribeContinuousBackups may stand there as well.

    Raises
    ------
    OptionError
        If it cannot be read, or is no such file.
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
            f"statistics {path} describe no table ({type(error).__name__}: {error}): give the answer of DescribeTable "
            "as JSON, or at least TableSizeBytes and ItemCount"
        ) from None
    is_recoverable = backups.get("PointInTimeRecoveryStatus") == "ENABLED"
    return TableStatistics(table, mean or mean_item_bytes(table), changes, is_recoverable)


def statistics_table(path: str | None) -> TableDescription | None:
    """Return the table that a file describes, or None without a file."""
    return None if path is None else read_statistics(path).table


def mean_item_bytes(table: TableDescription) -> float:
    """Return a table's size over its items, or 400 bytes if it says nothing of them."""
    return max(1.0, table.size_bytes / table.item_count) if table.item_count else _ASSUMED_ITEM_BYTES
