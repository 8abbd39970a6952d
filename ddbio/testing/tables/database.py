"""Tables, backups and jobs of one server, their capacity and the log of their consumption."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.testing.faults import FaultInjector, Faults
from ddbio.testing.refusal import in_use, not_found
from ddbio.testing.tables.capacity import Capacity, ConsumptionLog, Draw
from ddbio.testing.tables.definition import Defaults
from ddbio.testing.tables.jobs import Jobs, WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddbio.items.attribute import Item
    from ddbio.testing.refusal import Refusal
    from ddbio.testing.request import Request
    from ddbio.testing.tables.jobs import S3Access
    from ddbio.testing.tables.kinesis import DataStream
    from ddbio.testing.tables.streams import Stream
    from ddbio.testing.tables.table import Change, Key, Stored, Table

_GIB = 1 << 30


class UsedToken(NamedTuple):
    """A used ClientRequestToken of a transaction.

    Attributes
    ----------
    until
        The time at which it expires.
    digest
        A digest of the request.
    reads
        The reads of a repeated request: the name of the table, the position of the item, and the units.
    reply
        The first reply, without its ConsumedCapacity.
    """

    until: float
    digest: bytes
    reads: list[tuple[str, Key, float]]
    reply: dict[str, Any]


@dataclass(slots=True)
class Backup:
    """State of a table at a time, and the time from which the backup is available."""

    arn: str
    name: str
    table: Table
    items: list[Stored]
    created_at: float
    ready_at: float

    def details(self, now: float) -> dict[str, Any]:
        """Return the BackupDetails."""
        return {
            "BackupArn": self.arn,
            "BackupName": self.name,
            "BackupSizeBytes": sum(stored.size_bytes for stored in self.items),
            "BackupStatus": "AVAILABLE" if now >= self.ready_at else "CREATING",
            "BackupType": "USER",
            "BackupCreationDateTime": round(self.created_at, 3),
        }

    def source(self) -> dict[str, Any]:
        """Return the SourceTableDetails."""
        described = self.table.description
        return {
            "TableName": self.table.name,
            "TableArn": self.table.arn,
            "ItemCount": len(self.items),
            "TableSizeBytes": sum(stored.size_bytes for stored in self.items),
            "TableCreationDateTime": described["CreationDateTime"],
            **{name: described[name] for name in ("TableId", "KeySchema", "ProvisionedThroughput")},
            "BillingMode": "PAY_PER_REQUEST" if "BillingModeSummary" in described else "PROVISIONED",
        }


@dataclass(slots=True)
class Database:
    """Every table of one server. It is not safe for concurrent use."""

    defaults: Defaults = field(default_factory=Defaults)
    capacity: Capacity = field(default_factory=Capacity)
    clock: Callable[[], float] = time.monotonic
    faults: Faults = field(default_factory=Faults)
    wall_clock: WallClock = field(default_factory=WallClock)
    s3: S3Access | None = None
    job_seconds: float = 0.0
    exports: Jobs = field(init=False)
    imports: Jobs = field(init=False)
    bulk: Jobs = field(init=False)
    backups: dict[str, Backup] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    data_streams: dict[str, DataStream] = field(default_factory=dict)
    transactions: dict[str, UsedToken] = field(default_factory=dict)
    """The tokens of transactions, the oldest first."""
    consumption: ConsumptionLog = field(init=False)
    fault_injector: FaultInjector = field(init=False)

    def __post_init__(self) -> None:
        self.consumption = ConsumptionLog(self.clock())
        self.fault_injector = FaultInjector(self.faults, self.clock())
        self.exports, self.imports, self.bulk = (
            Jobs(kind, self.wall_clock, self.job_seconds, self.faults.job_failure)
            for kind in ("Export", "Import", "BulkOperation")
        )

    def table(self, request: Request) -> Table:
        """Return the table that a request names."""
        return self.named(request.table_name())

    def named(self, name: str) -> Table:
        """Return a table by its name."""
        if name not in self.tables or self.tables[name].ready_at > self.wall_clock.now():
            raise not_found()
        return self.tables[name]

    def add(self, table: Table) -> None:
        """Add a new table with fresh buckets."""
        if table.name in self.tables:
            raise in_use(f"Table already exists: {table.name}")
        table.description["CreationDateTime"] = round(self.wall_clock.now(), 3)
        self.tables[table.name] = table
        now = self.clock()
        self.capacity.declare(table.arn, table.throughput, now)
        for index in table.indexes.values():
            self.capacity.declare(index.arn, index.throughput, now)

    def remove(self, table: Table) -> None:
        """Remove a table and its buckets."""
        del self.tables[table.name]
        for arn in (table.arn, *(index.arn for index in table.indexes.values())):
            self.capacity.forget(arn)

    def check_storms(self, operation: str, request: Request) -> None:
        """Raise if a request arrives during a storm."""
        if self.faults.storms:
            name = first_table(request.members)
            self.check_storm(operation, self.tables[name].arn if name in self.tables else name)

    def check_storm(self, operation: str, resource: str) -> None:
        """Raise if a request to a table (its ARN) arrives during a storm."""
        refusal = self.fault_injector.storm(operation, resource, self.clock())
        if refusal is not None:
            raise refusal

    def write(self, change: Change, failure: Refusal | None) -> None:
        """Execute a write, or raise if it is throttled or its condition failed.

        Only the table pays for a failed condition.
        """
        if failure is not None:
            # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
            self.take(change.draws[:1])
            raise failure
        self.take(change.draws)
        change.apply()

    def take(self, draws: Sequence[Draw]) -> None:
        """Consume the draws of a request. Raise if it is throttled."""
        self.check(draws)
        self.charge(draws)

    def check(self, draws: Sequence[Draw]) -> None:
        """Raise if a request is throttled."""
        refusal = self.capacity.refusal(draws, self.clock())
        if refusal is not None:
            raise refusal

    def charge(self, draws: Sequence[Draw]) -> None:
        """Consume the draws of an admitted request."""
        now = self.clock()
        self.capacity.charge(draws, now)
        self.consumption.add(draws, now)


def first_table(members: dict[str, Any]) -> str:
    """Return the name of the first table in the members of a request, or empty text."""
    match members:
        case {"TransactItems": [dict(item), *_]}:
            names = [action.get("TableName") for action in item.values() if type(action) is dict]
        case {"RequestItems": dict(items)}:
            names = list(items)
        case _:
            names = [members.get("TableName")]
    return next((name for name in names if type(name) is str), "")


def consumption_detail(request: Request) -> str:
    """Return the ReturnConsumedCapacity of a request: INDEXES, TOTAL or NONE."""
    return request.text("ReturnConsumedCapacity") or "NONE"


def consumed_capacity(table: Table, draws: Sequence[Draw], wanted: str) -> dict[str, Any]:
    """Return the ConsumedCapacity of the draws from one table and its indexes."""
    units_of_all = sum(draw.units for draw in draws if draw.kind != "Vector")
    capacity: dict[str, Any] = {"CapacityUnits": units_of_all, "TableName": table.name}
    if wanted != "INDEXES":
        return capacity
    units: dict[str, defaultdict[str, float]] = {"Table": defaultdict(float)}
    for draw in draws:
        member, name = _member_of(draw)
        units.setdefault(member, defaultdict(float))[name] += draw.units
    capacity["Table"] = {"CapacityUnits": units.pop("Table")[""]}
    for member, by_name in units.items():
        unit = "VectorWriteRequestBytes" if member == "VectorIndexes" else "CapacityUnits"
        capacity[member] = {name: {unit: value} for name, value in by_name.items()}
    return capacity


def _member_of(draw: Draw) -> tuple[str, str]:
    if draw.local_index is not None:
        return "LocalSecondaryIndexes", draw.local_index
    _, _, index = draw.resource.partition("/index/")
    if draw.kind == "Vector":
        return "VectorIndexes", index
    return ("GlobalSecondaryIndexes", index) if index else ("Table", "")


def consumed_member(request: Request, table: Table, draws: Sequence[Draw]) -> dict[str, Any]:
    """Return the ConsumedCapacity member of a reply. It is empty if it was not requested."""
    wanted = consumption_detail(request)
    return {} if wanted == "NONE" else {"ConsumedCapacity": consumed_capacity(table, draws, wanted)}


def collection_metrics(request: Request, table: Table, keys: list[Item]) -> list[dict[str, Any]]:
    """Return the ItemCollectionMetrics of written items if they are requested and the table has a local index.

    The size of the table is used for the size of a collection, which cannot be larger.
    """
    if request.members.get("ReturnItemCollectionMetrics") != "SIZE":
        return []
    local = [index for index in table.indexes.values() if index.kind == "Local"]
    if not local:
        return []
    low = (table.store.size_bytes + sum(index.store.size_bytes for index in local)) // _GIB
    name = table.keys.partition.name
    collections = {str(key[name]): {name: key[name]} for key in keys}
    return [
        {"ItemCollectionKey": collection, "SizeEstimateRangeGB": [float(low), low + 1.0]}
        for collection in collections.values()
    ]


def consumed_list(request: Request, draws: dict[str, list[Draw]], database: Database) -> dict[str, Any]:
    """Return the ConsumedCapacity member of a batch reply: one entry per table."""
    wanted = consumption_detail(request)
    if wanted == "NONE":
        return {}
    return {
        "ConsumedCapacity": [consumed_capacity(database.named(name), drawn, wanted) for name, drawn in draws.items()]
    }
