"""Read a file that describes a table which need not exist: DescribeTable's answer as JSON, with numbers beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddbio.aws.control_plane import parse_table_description
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.table_description import TableDescription

_NUMBERS = ("ItemBytes", "ChangesPerSecond")


@dataclass(frozen=True)
class StatedTable:
    """Hold what a file says of a table.

    Attributes
    ----------
    item_bytes, changes_per_second
        Its numbers, or None.
    recovery
        Whether it has point-in-time recovery.
    """

    table: TableDescription
    item_bytes: float | None
    changes_per_second: float | None
    recovery: bool


def read_stated_table(path: str) -> StatedTable:
    """Return what a file says of a table.

    Only its size is needed. What DescribeTable says of the rest is taken as it is; a table of which no capacity is said
    is on demand. ``ItemBytes`` and ``ChangesPerSecond`` may stand beside, and ``PointInTimeRecoveryStatus``.

    Raises
    ------
    OptionError
        If the file cannot be read, or does not describe a table.
    """
    try:
        stated: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        described = dict(stated.get("Table", stated))
        if "ProvisionedThroughput" not in described:
            described.setdefault("BillingModeSummary", {"BillingMode": "PAY_PER_REQUEST"})
        described.setdefault("TableName", Path(path).stem)
        int(described["TableSizeBytes"])
        numbers = {name: float(stated[name]) if name in stated else None for name in _NUMBERS}
        return StatedTable(
            parse_table_description(described),
            numbers["ItemBytes"],
            numbers["ChangesPerSecond"],
            '"PointInTimeRecoveryStatus": "ENABLED"' in json.dumps(stated),
        )
    except OSError as error:
        raise OptionError(f"table file {path} cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"table file {path} does not describe a table ({type(error).__name__}: {error}): give "
            'DescribeTable\'s answer as JSON, or {"TableSizeBytes": …, "ItemCount": …}'
        ) from None
