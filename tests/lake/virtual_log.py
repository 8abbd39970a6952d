"""Random log of changes: new, late and repeated ones, with attributes that are added over time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pyarrow as pa

from ddbio.cdc.log_jobs import COMMITTED, Columns, batch_name, keep_columns
from ddbio.cdc.log_rows import log_schema
from ddbio.formats.parquet import parquet_bytes
from ddbio.storage.job_state import JobState

BEGAN = 1_793_491_200_000_000
KEYS = ("pk",)


def columns(*more):
    """Return columns of items: the key, a number, and additional texts."""
    tagged = [
        pa.field("pk", pa.string(), metadata={"ddb:type": "S"}),
        pa.field("n", pa.int64(), metadata={"ddb:type": "N"}),
    ]
    return pa.schema([*tagged, *(pa.field(name, pa.string(), metadata={"ddb:type": "S"}) for name in more)])


@dataclass
class Change:
    """State of an item: its attributes in the log, or None if it was deleted."""

    number: int
    key: str
    item: dict | None
    rescue: dict = field(default_factory=dict)
    time_us: int = BEGAN


@dataclass
class VirtualLog:
    """Writer of the batches of a capture."""

    store: object
    job_id: str = "job"
    stream: str = "arn:stream"
    batches: list = field(default_factory=list)
    schema: pa.Schema = field(default_factory=columns)

    def __post_init__(self):
        self.state = JobState(self.store, self.job_id, "capture")
        self.state.begin({"stream": self.stream, "started_at": 1.0})
        self.declare(self.schema)

    def declare(self, schema):
        """Set the columns of the following batches, like a capture."""
        self.schema = keep_columns(self.state, Columns(schema, KEYS), replaces=True).schema

    def append(self, changes):
        """Write a batch."""
        number = len(self.batches) + 1
        self.batches.append(list(changes))
        schema = log_schema(self.schema, KEYS)
        rows = [
            {
                "_op": "REMOVE" if change.item is None else "MODIFY",
                "_sequence": str(change.number),
                "_event_time": datetime.fromtimestamp(change.time_us / 1e6, UTC),
                "_expired": False,
                "pk": change.key,
                **{name: value for name, value in (change.item or {}).items() if name in schema.names},
                "_rescue": json.dumps(rescued, sort_keys=True) if (rescued := self._rescued(change)) else None,
            }
            for change in changes
        ]
        path = f"year=2026/month=11/day=01/hour=00/{self.job_id}-{number:012}.parquet"
        table = pa.Table.from_pylist(rows, schema)
        self.state.put_once(batch_name(number), {"batch": number, "files": [{"path": path, "rows": len(rows)}]})
        self.store.put_if_absent(path, parquet_bytes(table, "zstd"))
        self.state.put(COMMITTED, {"batch": number})

    def _rescued(self, change):
        texts = {name: {"S": value} for name, value in (change.item or {}).items() if name not in self.schema.names}
        return {**texts, **change.rescue}

    def model(self, batches=None):
        """Return the items after the given number of batches: the newest state of each key."""
        newest = {}
        for change in (logged for batch in self.batches[:batches] for logged in batch):
            if change.key not in newest or newest[change.key].number < change.number:
                newest[change.key] = change
        return {key: change for key, change in newest.items() if change.item is not None}


class Writer:
    """Generator of changes of a few items."""

    def __init__(self, seed):
        self.random, self.number, self.made = Random(seed), 0, 0
        self.seen, self.held = [], []

    def batch(self, attributes=()):
        """Return new, late and repeated changes."""
        changes = []
        for _ in range(self.random.randrange(1, 12)):
            drawn = self.random.random()
            if drawn < 0.2 and self.seen:
                changes.append(self.random.choice(self.seen))
            elif drawn < 0.35 and self.held:
                changes.append(self.held.pop(self.random.randrange(len(self.held))))
            else:
                change = self._new(attributes)
                if self.random.random() < 0.15:
                    self.held.append(change)
                    continue
                changes.append(change)
        self.seen += changes
        return changes or [self._new(attributes)]

    def _new(self, attributes):
        self.made += 1
        self.number += self.random.choice([1, 1, 1, 10**20]) if self.number < 10**25 else 1
        key, item = f"k|{self.random.randrange(9)}", None
        if self.random.random() > 0.3:
            item = {"pk": key, "n": self.random.randrange(10**6)}
            item |= {name: f"v{self.random.randrange(99)}" for name in attributes if self.random.random() < 0.7}
        rescue = {"n": {"S": "text"}} if item and self.random.random() < 0.1 else {}
        if rescue:
            del item["n"]
        return Change(self.number, key, item, rescue, BEGAN + self.made * 1_000_000)


def is_deleted(row):
    """Return whether a row is a tombstone; Iceberg reserves the name ``_deleted``."""
    assert ("_deleted" in row) != ("_is_deleted" in row)
    return row["_deleted"] if "_deleted" in row else row["_is_deleted"]


def items_of(rows, names):
    """Return the attributes of the live rows by key, including those in the rescue column."""
    items = {}
    for row in (live_row for live_row in rows if not is_deleted(live_row)):
        item = {names[name]: value for name, value in row.items() if value is not None and not name.startswith("_")}
        for name, value in json.loads(row["_rescue"] or "{}").items():
            assert name not in item
            item[name] = next(iter(value.values()))
        items[row["pk"]] = item
    return items


def expected(model):
    """Return the attributes of the items of a model."""
    return {
        key: {**change.item, **{name: next(iter(value.values())) for name, value in change.rescue.items()}}
        for key, change in model.items()
    }
