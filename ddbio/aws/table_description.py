"""Describe a table, its indexes and its point-in-time recovery, as plans need to know them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.errors import OptionError
from ddbio.result import Result

if TYPE_CHECKING:
    from datetime import datetime


def region_of(arn: str) -> str | None:
    """Return the region that an ARN names, or None."""
    parts = arn.split(":")
    return parts[3] if len(parts) > 3 and parts[3] else None  # noqa: PLR2004 - arn:partition:service:region:…


@dataclass(frozen=True)
class IndexKey:
    """Say what an attribute of an index's key must be in the items that have it."""

    name: str
    tag: str
    longest_bytes: int
    index: str


@dataclass(frozen=True)
class IndexDescription:
    """Describe one secondary index."""

    name: str
    is_global: bool
    key_names: tuple[str, ...]
    item_count: int
    size_bytes: int
    rcu: float | None = None
    keys: tuple[IndexKey, ...] = ()
    wcu: float | None = None
    projected: tuple[str, ...] | None = None
    """Attributes it holds besides the keys, or None for all."""
    partition_key_count: int = 1
    """The number of ``key_names`` that are the partition key; the others are the sort key."""
    warm_rcu: float | None = None
    warm_wcu: float | None = None

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The attributes of the partition key."""
        return self.key_names[: self.partition_key_count]


@dataclass(frozen=True)
class TableDescription(Result):
    """Describe a table by what DescribeTable returns.

    ``item_count`` and ``size_bytes`` are the service's own, refreshed about every six hours: 0 can mean unknown.
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
    """Read units per second likewise."""
    idle_seconds: float = 0.0
    """How long unused capacity can have been saved up: since the table was created; 0 if that is unknown."""
    infrequent_access: bool = False
    """Whether its class is Standard-Infrequent Access, which has prices of its own."""

    @property
    def region(self) -> str | None:
        """Return the region that the ARN names, or None."""
        return region_of(self.arn)

    def index(self, name: str) -> IndexDescription | None:
        """Return the index of that name, or None."""
        return next((index for index in self.indexes if index.name == name), None)


@dataclass(frozen=True)
class RecoveryDescription:
    """Say whether a table has point-in-time recovery, and between which times it can be recovered."""

    is_on: bool
    earliest: datetime | None
    latest: datetime | None

    def check(self, name: str, at: datetime) -> None:
        """Refuse a time that the table cannot be recovered to.

        Raises
        ------
        OptionError
            Naming the option that holds it.
        """
        if not self.is_on or self.earliest is None or self.latest is None:
            raise OptionError(
                f"{name} is {at.isoformat()}, but recovery that is turned on only now reaches nothing before"
            )
        # The service itself compares whole seconds.
        if not self.earliest.replace(microsecond=0) <= at <= self.latest:
            span = f"{self.earliest.isoformat()} to {self.latest.isoformat()}"
            raise OptionError(f"{name} is {at.isoformat()}, but the table can be recovered from {span}")
