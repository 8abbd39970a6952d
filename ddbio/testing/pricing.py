"""Prices of items and requests by the rules of AWS's developer guide.

The rules are implemented a second time here. Nothing comes from :mod:`ddbio.items.capacity`, so that a mistake in one
of
the two shows when a test compares them.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item


_KIB = 1024


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Return the units of one read: one per started 4 KiB, at least one, and half if eventually consistent.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    units = max(1, _rounded_up(size_bytes, 4 * _KIB))
    return units if consistent else units / 2


def write_units(size_bytes: int) -> float:
    """Return the units of one write: one per started KiB. The delete of a missing item also costs one.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
    """
    return float(max(1, _rounded_up(size_bytes, _KIB)))


def item_bytes(item: Item) -> int:
    """Return the size of an item: the UTF-8 bytes of its names, and its values.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _rounded_up(size_bytes: int, unit_bytes: int) -> int:
    return -(-size_bytes // unit_bytes)


def _value_bytes(value: AttributeValue) -> int:
    ((tag, content),) = value.items()
    match tag:
        case "S":
            return len(content.encode())
        case "N":
            return number_bytes(content)
        case "B":
            return len(base64.b64decode(content))
        case "BOOL" | "NULL":
            return 1
        case "SS" | "NS" | "BS":
            # The overhead of sets is not published.
            return sum(_value_bytes({tag[0]: element}) for element in content)
        case _:
            return _container_bytes(tag, content)


def _container_bytes(tag: str, content: Any) -> int:
    """Return the size of a list or map: 3 bytes, plus each element and 1 byte per element."""
    elements = item_bytes(content) if tag == "M" else sum(map(_value_bytes, content))
    return 3 + elements + len(content)


@lru_cache(maxsize=1 << 16)
def number_bytes(text: str) -> int:
    """Return the size of a number: 1 byte, 1 for each two significant digits, and 1 for a minus sign.

    The guide calls its rule approximate and does not mention the sign; calculators of item sizes add a byte for it.
    """
    coefficient = text.upper().split("E")[0]
    digits = coefficient.replace(".", "").strip("-+").strip("0")
    return 1 + _rounded_up(len(digits), 2) + (text[0] == "-" and digits != "")
