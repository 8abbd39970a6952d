"""Deletion of items whose time to live has expired, as in the service's background process."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

from ddbio.errors import NotFoundError

if TYPE_CHECKING:
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.kinesis import Destination
    from ddbio.testing.tables.streams import Stream
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html
_MAX_AGE_SECONDS = 5 * 365 * 24 * 3600


def expire_items(database: Database, name: str) -> int:
    """Delete the expired items of a table without consuming capacity, and return their number.

    A time that is no number, or more than five years ago, never expires an item.

    Raises
    ------
    NotFoundError
        If there is no such table.
    """
    table = database.tables.get(name)
    if table is None:
        raise NotFoundError(f"there is no table {name}")
    if table.expiry is None:
        return 0
    now = Decimal(str(database.wall_clock.now()))
    streams = database.data_streams.values()
    listeners: list[Stream | Destination] = [
        stream.destinations[name] for stream in streams if name in stream.destinations
    ]
    if table.stream is not None:
        listeners.append(table.stream)
    for listener in listeners:
        listener.expires = True
    try:
        return _delete(table, table.expiry, now)
    finally:
        for listener in listeners:
            listener.expires = False


def _delete(table: Table, attribute: str, now: Decimal) -> int:
    expired = []
    for key, stored in table.store.snapshot().entries():
        at = json.loads(stored.json).get(attribute, {}).get("N")
        if at is not None and now - _MAX_AGE_SECONDS <= Decimal(at) < now:
            expired.append(key)
    for key in expired:
        table.plan_write(key, None).apply()
    return len(expired)
