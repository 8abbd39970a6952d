"""What items, reads and writes cost by DynamoDB's rules: sizes of Arrow rows and JSON items, units of every operation.

Nothing here asks AWS. Each rule names the page of the developer guide that it comes from.
"""

from __future__ import annotations

from ddbio.items.capacity import (
    PAGE_BYTES,
    READ_UNIT_BYTES,
    WRITE_UNIT_BYTES,
    SecondaryIndex,
    WriteCost,
    batch_get_units,
    change_units,
    expired_cost,
    get_units,
    item_size_bytes,
    query_units,
    scan_pages,
    scan_units,
    stream_read_units,
    transact_get_units,
    write_cost,
    write_units,
)
from ddbio.items.item_sizes import item_bytes, item_bytes_of_json

__all__ = [
    "PAGE_BYTES",
    "READ_UNIT_BYTES",
    "WRITE_UNIT_BYTES",
    "SecondaryIndex",
    "WriteCost",
    "batch_get_units",
    "change_units",
    "expired_cost",
    "get_units",
    "item_bytes",
    "item_bytes_of_json",
    "item_size_bytes",
    "query_units",
    "scan_pages",
    "scan_units",
    "stream_read_units",
    "transact_get_units",
    "write_cost",
    "write_units",
]
