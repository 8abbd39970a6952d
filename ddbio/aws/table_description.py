"""Descriptions of a table, its indexes and its point-in-time recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.errors import OptionError
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime


def region_of(arn: str) -> str | None:
    """Return the region in an ARN, or None."""
    parts = arn.split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None  # noqa: PLR2004 - arn:partition:service:region:…


@dataclass(frozen=True)
class IndexKey:
    """Required type and maximum size of an index key attribute in items that have it."""

    name: str
    tag: str
    longest_bytes: int
    index: str


@dataclass(frozen=True)
class IndexDescription:
    """Description of a secondary index."""

    name: str
    is_global: bool
    key_names: tuple[str, ...]
    item_count: int
    size_bytes: int
    rcu: float | None = None
    keys: tuple[IndexKey, ...] = ()
    wcu: float | None = None
    projected: tuple[str, ...] | None = None
    """Projected attributes in addition to the keys, or None for all."""
    partition_key_count: int = 1
    """The number of ``key_names`` that are the partition key; the others are the sort key."""
    warm_rcu: float | None = None
    warm_wcu: float | None = None

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The attributes of the partition key."""
        return self.key_names[: self.partition_key_count]


@dataclass(frozen=True)
class VectorIndexDescription:
    """Description of a vector index.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_VectorIndexDescription.html
    """

    name: str
    attribute: str
    """The attribute with the vectors."""
    dimensions: int
    distance_function: str
    item_count: int
    size_bytes: int
    partition_name: str | None = None
    """The HASH attribute of the search schema. The index omits items without it."""
    filter_names: tuple[str, ...] = ()
    """The INLINE_FILTER attributes of the search schema."""
    keys: tuple[IndexKey, ...] = ()
    """The HASH attribute with its type and maximum size. Items with another value are refused."""
    projected: tuple[str, ...] | None = None
    """Projected attributes in addition to the keys, the search schema and the vector, or None for all."""


@dataclass(frozen=True)
class TableDescription(Result):
    """Description of a table by DescribeTable.

    ``item_count`` and ``size_bytes`` are those of the service, refreshed about every six hours: 0 can mean unknown.
    ``rcu`` and ``wcu`` are the provisioned rates, or the on-demand maxima if they are set, else None.
    """

    name: str
    arn: str
    table_id: str
    status: str
    key_types: tuple[tuple[str, str], ...]
    item_count: int
    size_bytes: int
    on_demand: bool
    rcu: float | None = None
    indexes: tuple[IndexDescription, ...] = field(default=())
    wcu: float | None = None
    warm_wcu: float | None = None
    """Write units per second of the table's warm throughput, or None."""
    warm_rcu: float | None = None
    """Read units per second of the table's warm throughput, or None."""
    idle_seconds: float = 0.0
    """Time over which unused capacity may have accumulated: since the table was created; 0 if unknown."""
    infrequent_access: bool = False
    """Whether the table class is Standard-Infrequent Access, which has different prices."""
    vector_indexes: tuple[VectorIndexDescription, ...] = field(default=())
    """Vector indexes. botocore older than 1.43.64 does not show them."""

    @property
    def region(self) -> str | None:
        """Return the region in the ARN, or None."""
        return region_of(self.arn)

    def index(self, name: str) -> IndexDescription | None:
        """Return the index with that name, or None."""
        return next((index for index in self.indexes if index.name == name), None)


@dataclass(frozen=True)
class RecoveryDescription:
    """Point-in-time recovery of a table: whether it is enabled, and its recovery window."""

    is_on: bool
    earliest: datetime | None
    latest: datetime | None

    def check(self, name: str, at: datetime) -> None:
        """Raise if the table cannot be recovered to a time.

        Raises
        ------
        OptionError
            With the name of the option.
        """
        if not self.is_on or self.earliest is None or self.latest is None:
            raise OptionError(f"{name} is {at.isoformat()}, but point-in-time recovery is being enabled only now")
        # The service also compares whole seconds.
        if not self.earliest.replace(microsecond=0) <= at <= self.latest:
            span = f"{self.earliest.isoformat()} to {self.latest.isoformat()}"
            raise OptionError(f"{name} is {at.isoformat()}, but the table can be recovered from {span}")
