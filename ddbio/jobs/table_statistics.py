"""Read the description of a table that need not exist, for plans and for advice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import parse_table_description
from ddbio.errors import OptionError
from ddbio.options.locations import local_path

if TYPE_CHECKING:
    from ddbio.aws.table_description import TableDescription

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
