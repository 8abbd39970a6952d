"""Read the description of a table that need not exist, for plans."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import parse_table_description
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from ddbio.core.table_description import TableDescription

_ASSUMED_ITEM_BYTES = 400.0


@dataclass(frozen=True)
class TableStatistics:
    """Hold a table's description, and the mean size of its items."""

    table: TableDescription
    item_bytes: float


def read_statistics(path: str) -> TableStatistics:
    """Return what a file of JSON says: DescribeTable's answer, and ``AverageItemSizeBytes`` beside or in its ``Table``.

    Without that, the mean is the table's size over its items.

    Raises
    ------
    OptionError
        If it cannot be read, or is no such file.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        table = parse_table_description(values)
        given = values.get("AverageItemSizeBytes", values.get("Table", {}).get("AverageItemSizeBytes"))
        mean = float(given) if given else None
    except OSError as error:
        raise OptionError(f"statistics {path} cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"statistics {path} describe no table ({type(error).__name__}: {error}): give the answer of DescribeTable "
            "as JSON, and AverageItemSizeBytes"
        ) from None
    if mean is None:
        mean = table.size_bytes / table.item_count if table.item_count else _ASSUMED_ITEM_BYTES
    return TableStatistics(table, mean)
