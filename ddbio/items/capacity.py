"""Size of an item, and capacity units of reads and writes, by DynamoDB's documented rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddbio.items.attribute import AttributeValue, Item

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html#ItemSizeCalculations
CONTAINER_BYTES, ELEMENT_BYTES, NULL_BYTES = 3, 1, 1
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
READ_UNIT_BYTES = 4096
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
EVENTUAL_RATIO = 0.5
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
WRITE_UNIT_BYTES = 1024
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-capacity-handling
TRANSACTION_RATIO = 2
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html: a page ends with the item that reaches it.
PAGE_BYTES = 1024 * 1024
SEGMENT_BYTES = 512 * PAGE_BYTES
"""The bytes of a large table per segment of a scan."""
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/kds.html: a change is billed by the KB.
CHANGE_UNIT_BYTES = 1024

PAGES_PER_SECOND = 20


def item_size_bytes(item: Item) -> int:
    """Return the size DynamoDB bills for an item: its names and values, in bytes.

    The service calls its own rule for numbers approximate. Measured items differ by at most five bytes from this value.

    Parameters
    ----------
    item
        A checked item in DynamoDB JSON.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html#ItemSizeCalculations
    """
    return sum(_text_bytes(name) + _value_bytes(value) for name, value in item.items())


# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
BATCH_KEYS = 100


def read_units(size_bytes: int, consistent: bool) -> float:  # noqa: FBT001 - the service's own name for the choice
    """Return the read units of one request that reads ``size_bytes``: one per 4 KiB, half if eventually consistent."""
    units = max(1, math.ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if consistent else units * EVENTUAL_RATIO


def get_units(item_bytes: int, *, consistent: bool = False) -> float:
    """Return the read units of GetItem. A missing item has 0 bytes, and costs the minimum.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    return read_units(item_bytes, consistent)


def batch_get_units(item_bytes: Iterable[int], *, consistent: bool = False) -> float:
    """Return the read units of BatchGetItem. Each item is rounded up separately.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    return sum(read_units(size, consistent) for size in item_bytes)


def transact_get_units(item_bytes: Iterable[int]) -> float:
    """Return the read units of TransactGetItems: twice those of consistent reads, even if it is cancelled.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-capacity-handling
    """
    return TRANSACTION_RATIO * batch_get_units(item_bytes, consistent=True)


def query_units(page_bytes: int, *, consistent: bool = False) -> float:
    """Return the read units of one page of Query or Scan: the sizes of its items are summed, then rounded up once.

    Items that a filter drops and attributes outside the projection also count. An empty page costs the minimum.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    return read_units(page_bytes, consistent)


def scan_units(
    size_bytes: float, item_bytes: float, *, consistent: bool = False, segments: int = 1, page_items: int | None = None
) -> float:
    """Return the expected read units of a whole scan, including the rounding of its pages.

    A page ends with the item that reaches 1 MiB, so a full page costs about one unit more than 1 MiB.

    Parameters
    ----------
    size_bytes, item_bytes
        Size of the table or index, and the mean size of an item.
    page_items
        The maximum number of items of a page, by ``Limit``.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html
    """
    ratio = 1.0 if consistent else EVENTUAL_RATIO
    segment_bytes, page_bytes = size_bytes / segments, _mean_page_bytes(item_bytes, page_items)
    page_units = float(math.ceil(page_bytes / READ_UNIT_BYTES))
    if page_bytes >= PAGE_BYTES:
        page_units = PAGE_BYTES / READ_UNIT_BYTES + _mean_units(item_bytes)
    if segment_bytes <= page_bytes:
        return segments * ratio * max(1.0, segment_bytes / READ_UNIT_BYTES + (0.5 if segments > 1 else 0.0))
    # The last page of a segment is half full on average.
    full_pages = segment_bytes / page_bytes - 0.5
    last_units = max(1.0, page_bytes / 2 / READ_UNIT_BYTES + 0.5)
    return segments * ratio * (full_pages * page_units + last_units)


def scan_pages(size_bytes: float, item_bytes: float, *, segments: int = 1, page_items: int | None = None) -> int:
    """Return the expected number of pages of a whole scan. Each segment ends with a partial page.

    Parameters
    ----------
    size_bytes, item_bytes, page_items
        As for ``scan_units``.
    """
    return segments * max(1, math.ceil(size_bytes / segments / _mean_page_bytes(item_bytes, page_items)))


def _mean_page_bytes(item_bytes: float, page_items: int | None) -> float:
    """Return the mean size of a full page. ``Limit`` may end a page before an item reaches 1 MiB."""
    limited_bytes = math.inf if page_items is None else page_items * max(item_bytes, 1.0)
    return limited_bytes if limited_bytes < PAGE_BYTES else PAGE_BYTES + item_bytes / 2


def _mean_units(item_bytes: float) -> float:
    """Return the mean of ``ceil(x / 4 KiB)`` for ``x`` up to the item size: the excess of a page over 1 MiB."""
    ratio = max(item_bytes, 1.0) / READ_UNIT_BYTES
    full_units = math.floor(ratio)
    return (full_units * (full_units + 1) / 2 + (full_units + 1) * (ratio - full_units)) / ratio


def write_units(item_bytes: int, old_bytes: int = 0) -> float:
    """Return the write units of a put, update or delete: one per KiB of the larger of both images, at least one.

    An update counts the whole item, not only the change. A delete has no new image. The delete of a missing item costs
    one unit. A write whose condition fails costs as much as the existing item.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
    """
    return float(max(1, math.ceil(max(item_bytes, old_bytes) / WRITE_UNIT_BYTES)))


@dataclass(frozen=True)
class SecondaryIndex:
    """Secondary index, as far as the cost of writes depends on it.

    Attributes
    ----------
    key_names
        Attributes of its key. An item without one of them is not in the index.
    projected
        Projected attributes in addition to the keys of index and table, or None for all.
    is_global
        Whether it has its own capacity. A local index uses the table's.
    """

    name: str
    key_names: tuple[str, ...]
    projected: tuple[str, ...] | None = None
    is_global: bool = True


@dataclass(frozen=True)
class WriteCost:
    """Write units of one or more writes.

    Attributes
    ----------
    table
        Units of the table itself, without those of its indexes.
    indexes
        Units by index, global and local. Those of local indexes use the table's capacity.
    """

    table: float
    indexes: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Return the units of table and indexes together, as in ConsumedCapacity."""
        return self.table + sum(self.indexes.values())


def write_cost(
    old: Item | None,
    new: Item | None,
    table_keys: Iterable[str],
    indexes: Iterable[SecondaryIndex] = (),
    *,
    transactional: bool = False,
) -> WriteCost:
    """Return the cost of one write for the table and each of its indexes.

    Parameters
    ----------
    old, new
        The item before and after, in DynamoDB JSON; None if there is none. Both None is the delete of a missing item.
    table_keys
        Names of the table's key attributes, which every index contains.
    transactional
        Whether it is a part of TransactWriteItems, which costs twice as much.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.ThroughputConsiderations.Writes
    """
    ratio, keys = (TRANSACTION_RATIO if transactional else 1), tuple(table_keys)
    units = write_units(_bytes_of(new), _bytes_of(old))
    own = {index.name: ratio * _entry_units(old, new, keys, index) for index in indexes}
    return WriteCost(ratio * units, {name: value for name, value in own.items() if value})


def expired_cost() -> WriteCost:
    """Return the cost of a delete by time to live: nothing, in the region where the item expires.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html
    """
    return WriteCost(0.0)


def stream_read_units(requests: int) -> int:
    """Return the stream read units of GetRecords: one per request, of at most 1 MB, regardless of the response.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CostOptimization_StreamsUsage.html
    """
    return requests


def change_units(old_bytes: int, new_bytes: int) -> int:
    """Return the change data capture units of one change for Kinesis: one per KB of the larger image.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/kds.html
    """
    return max(1, math.ceil(max(old_bytes, new_bytes) / CHANGE_UNIT_BYTES))


def _bytes_of(item: Item | None) -> int:
    return 0 if item is None else item_size_bytes(item)


def _entry_units(old: Item | None, new: Item | None, table_keys: tuple[str, ...], index: SecondaryIndex) -> float:
    """Return the units of an index. A changed key deletes one entry and writes another. An unchanged entry is free."""
    before, after = _entry(old, table_keys, index), _entry(new, table_keys, index)
    if before == after:
        return 0.0
    if before is not None and after is not None:
        if all(before[name] == after[name] for name in index.key_names):
            return write_units(item_size_bytes(after), item_size_bytes(before))
        return write_units(item_size_bytes(before)) + write_units(item_size_bytes(after))
    return write_units(_bytes_of(after), _bytes_of(before))


def _entry(item: Item | None, table_keys: tuple[str, ...], index: SecondaryIndex) -> Item | None:
    if item is None or not all(name in item for name in index.key_names):
        return None
    if index.projected is None:
        return item
    attributes = {*table_keys, *index.key_names, *index.projected}
    return {name: value for name, value in item.items() if name in attributes}


def page_units(rcu_per_second: float, consistent: bool) -> float | None:  # noqa: FBT001 - as above
    """Return the maximum units of a page so that it takes 1/20 of a second's budget, or None if a full page takes less.

    A page costs at least one unit, or half of one.
    """
    if rcu_per_second >= read_units(PAGE_BYTES, consistent) * PAGES_PER_SECOND:
        return None
    ratio = 1.0 if consistent else EVENTUAL_RATIO
    return max(1, math.floor(rcu_per_second / PAGES_PER_SECOND / ratio)) * ratio


def item_units(item_bytes: float, consistent: bool) -> float:  # noqa: FBT001 - as above
    """Return the mean cost of an item in a page."""
    return item_bytes / READ_UNIT_BYTES * (1.0 if consistent else EVENTUAL_RATIO)


def page_limit(rcu_per_second: float, item_bytes: float, consistent: bool) -> int | None:  # noqa: FBT001 - as above
    """Return the ``Limit`` with which a page costs at most :func:`page_units`, or None if none is needed.

    A page has at least one item, regardless of its cost.
    """
    units = page_units(rcu_per_second, consistent)
    return None if units is None else max(1, int(units / item_units(max(1, item_bytes), consistent)))


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
