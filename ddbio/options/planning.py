"""Options of verbs that plan and price, and of those that advise on copies and capacity."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.limits import PriceOptions
from ddbio.options.parsing import CONFIG

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _as_seconds(value: object) -> object:
    """Return a time like ``15m`` in seconds."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)?", value.strip())
    if found is None:
        raise ValueError("write a number with s, m, h, d or w, like 15m")
    return float(found[1]) * _UNITS[found[2] or "s"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MetricsConnectionOptions(ConnectionOptions):
    """Choose the endpoint of CloudWatch."""

    cloudwatch_endpoint_url: str | None = None
    """Endpoint of CloudWatch, which is not asked if only an endpoint of DynamoDB is given."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class AdviseOptions(MetricsConnectionOptions):
    """Choose a table, and what is asked of its copy."""

    table: Annotated[str, Field(min_length=1)] | None = None
    """Name of the table, or its ARN."""
    from_file: str | None = None
    """File that describes a table that need not exist: DescribeTable's answer as JSON, with numbers."""
    freshness: Annotated[float, BeforeValidator(_as_seconds), Field(ge=1)] = 86_400.0
    """How often the copy is brought up to date: ``1d``, ``1h``, ``1m``, or seconds."""
    point_in_time: bool = False
    """The copy has to show the table as it was at one time."""
    changes_per_second: Annotated[float, Field(ge=0)] | None = None
    """Items that are written a second; default is what the file says, or CloudWatch has counted in 14 days."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] | None = None
    """Mean size of an item; default is the table's size over its items."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that a scan may use; default is half of a provisioned table's, all of another's."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units."""
    prices: str | None = None
    """File with a book of prices, in the form of ddbio's own; default is the book that ddbio has."""
    html: str | None = None
    """File to write the comparison to as a page of HTML with charts, besides."""
    png: str | None = None
    """File to write the charts to as a PNG, besides."""

    @model_validator(mode="after")
    def _check_advise(self) -> AdviseOptions:
        if (self.table is None) == (self.from_file is None):
            raise ValueError("give a table, or from_file, which describes one")
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanCapacityOptions(MetricsConnectionOptions):
    """Choose a table whose consumption is looked at, and what its capacity should be like."""

    table: Annotated[str, Field(min_length=1)]
    """Name of the table, or its ARN; with ``csv`` it need not exist."""
    csv: str | None = None
    """File with what was consumed, instead of CloudWatch: columns time, read and write, in units a second."""
    days: Annotated[float, Field(gt=0, le=455)] = 14.0
    """How far back CloudWatch is asked: by the minute up to 15 days, by 5 minutes up to 63, by the hour beyond."""
    target: Annotated[float, Field(ge=0.2, le=0.9)] = 0.7
    """Share of the provisioned capacity that auto scaling keeps consumed."""
    table_class: Literal["standard", "standard-ia"] | None = None
    """Class of a table of which only the file is known; default is standard."""
    table_gb: Annotated[float, Field(ge=0)] | None = None
    """Size of a table of which only the file is known, for its storage."""
    prices: str | None = None
    """File with a book of prices, in the form of ddbio's own; default is the book that ddbio has."""
    html: str | None = None
    """File to write the report to as a page of HTML with charts, besides."""
    png: str | None = None
    """File to write the charts to as a PNG, besides."""

    @model_validator(mode="after")
    def _check_capacity(self) -> PlanCapacityOptions:
        if self.csv is None and (self.table_class is not None or self.table_gb is not None):
            raise ValueError("table_class and table_gb are for csv: those of a table that is there are known")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanCaptureOptions(PriceOptions):
    """Describe the changes of a table that need not exist, and the way that brings them to S3."""

    records_per_second: Annotated[float, Field(gt=0)]
    """Changes of items a second, on average."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    through: Literal["streams", "lambda", "kinesis", "firehose"] = "streams"
    """What reads the changes: a process that polls the stream, Lambda, Kinesis, or Kinesis and Firehose behind it."""
    view: Literal["keys_only", "new_image", "old_image", "new_and_old_images"] = "new_and_old_images"
    """Which images of an item a record of the stream has; Kinesis has both."""
    poll_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Time between two reads of a shard of the stream."""
    file_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time that a file holds."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PricesRefreshOptions(ConnectionOptions):
    """Choose the region whose prices are asked of the AWS Price List: ``region``, by default us-east-1."""

    pricing_endpoint_url: str | None = None
    """Endpoint of the Price List; default is that of AWS."""
