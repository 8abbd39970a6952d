"""Compute the size of an item and the capacity units of a read by DynamoDB's documented rules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.core.attribute import AttributeValue, Item

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html#ItemSizeCalculations
CONTAINER_BYTES, ELEMENT_BYTES, NULL_BYTES = 3, 1, 1
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
READ_UNIT_BYTES = 4096
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
EVENTUAL_RATIO = 0.5

# A full eventually consistent page costs 128 units: from this budget on, it is at most a twentieth of a second's units.
UNBOUNDED_PAGE_RCU_PER_SECOND = 2560
PAGES_PER_SECOND = 20


def item_size_bytes(item: Item) -> int:
    """Return the size DynamoDB bills for an item: its names and values, in bytes.

    The service itself calls its rule for numbers approximate; measured items stay within five bytes of this figure.

    Parameters
    ----------
    item
        A checked item in DynamoDB JSON.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html#ItemSizeCalculations
    """
    return sum(_text_bytes(name) + _value_bytes(value) for name, value in item.items())


def read_units(size_bytes: int, consistent: bool) -> float:  # noqa: FBT001 - the service's own name for the choice
    """Return the read units of one request that reads ``size_bytes``: one per 4 KiB, half if eventually consistent."""
    units = max(1, math.ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if consistent else units * EVENTUAL_RATIO


def page_limit(rcu_per_second: float, item_bytes: float, consistent: bool) -> int | None:  # noqa: FBT001 - as above
    """Return the ``Limit`` with which a page costs at most 1/20 of a second's budget, or None if none is needed.

    A page holds at least one item, whatever that costs.
    """
    if rcu_per_second >= UNBOUNDED_PAGE_RCU_PER_SECOND:
        return None
    units = rcu_per_second / PAGES_PER_SECOND / (1 if consistent else EVENTUAL_RATIO)
    return max(1, int(math.floor(units) * READ_UNIT_BYTES / max(1, item_bytes)))


def _value_bytes(value: AttributeValue) -> int:
    ((tag, content),) = value.items()
    return _SIZES[tag](content)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _number_bytes(text: str) -> int:
    mantissa = text.lower().partition("e")[0]
    significant = mantissa.replace(".", "").lstrip("+-0").rstrip("0")
    negative = text.startswith("-") and bool(significant)
    return (len(significant) + 1) // 2 + 1 + negative


def _binary_bytes(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def _constant_bytes(_: bool) -> int:  # noqa: FBT001 - one content among others
    return 1


def _list_bytes(content: list[AttributeValue]) -> int:
    return CONTAINER_BYTES + sum(ELEMENT_BYTES + _value_bytes(element) for element in content)


def _map_bytes(content: Item) -> int:
    return CONTAINER_BYTES + len(content) * ELEMENT_BYTES + item_size_bytes(content)


_SIZES: dict[str, Callable[[Any], int]] = {
    "S": _text_bytes,
    "N": _number_bytes,
    "B": _binary_bytes,
    "BOOL": _constant_bytes,
    "NULL": _constant_bytes,
    "SS": lambda content: sum(map(_text_bytes, content)),
    "NS": lambda content: sum(map(_number_bytes, content)),
    "BS": lambda content: sum(map(_binary_bytes, content)),
    "L": _list_bytes,
    "M": _map_bytes,
}
