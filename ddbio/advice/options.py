"""Options of advice: plans, capacity, simulations, checks, policies."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.limits import PriceOptions
from ddbio.options.locations import parse_location
from ddbio.options.parsing import CONFIG, Names


def _on_s3(location: str) -> str:
    scheme, place = parse_location(location)
    if scheme != "s3":
        raise ValueError("give s3://bucket/prefix, and a table by option 'table'")
    return place


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DoctorOptions(ConnectionOptions):
    """Choose the table and the bucket that are checked; without either, only what every job needs is."""

    location: Annotated[str, AfterValidator(_on_s3)] | None = None
    """``s3://bucket/prefix`` that a job reads or writes."""
    table: Annotated[str, Field(min_length=1)] | None = None
    """Table, by its name or ARN, that a job reads or writes."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class IamOptions:
    """Say what a policy has to know that the verb's own options do not tell."""

    account: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account of tables, keys and catalogs that are named without an ARN; default is that of the role, else any."""
    principal: Literal["job", "target", "caller"] = "job"
    """Whose policy: of the job, of the other identity that ``target_role_arn`` or ``target_profile`` names, or of the
    caller, who assumes the roles."""
    vpc_endpoint: Names | None = None
    """Ids of the VPC endpoints by which all requests come, ``vpce-…``, separated by commas."""
    bucket_kms_key: str | None = None
    """KMS key by which the buckets encrypt what no option says otherwise of."""
    table_kms_key: str | None = None
    """KMS key of yours by which the tables are encrypted."""
    partition_key: str | None = None
    """Partition key of the table, or of the index: with it a Query is told from a Scan where ``where`` is given."""


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


# https://github.com/awslabs/emr-dynamodb-connector/issues/135
SCENARIOS: dict[str, dict[str, Any]] = {
    "long-tail": {
        "table_bytes": 80 * 10**12,
        "tasks": 1_000,
        "rcu_per_second": 311_000.0,
        "skew": 0.3,
        "seed": 2,
    }
}
"""Named simulations. ``long-tail``: 80 TB, of which fixed shares read 70 TB in 9 h and the rest in more than 5 days."""


def _as_changes(value: object) -> object:
    """Return ``2@600,1@900`` as pairs of a number and of seconds."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    found = [re.fullmatch(r"(\d+)@(\d+(?:\.\d+)?)", part) for part in parts]
    if not all(found):
        raise ValueError("write NUMBER@SECONDS, separated by commas")
    return tuple((int(each[1]), float(each[2])) for each in found if each is not None)


Changes = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_as_changes)]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateOptions:
    """Describe the cluster of a simulated job, and what limits its table."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Tasks that run at the same time."""
    lanes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests in flight: over all tasks of a scan, of each task of a load; default is the planner's choice."""
    skew: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How unequal segments or tasks are: 0 makes all equal, at 0.5 the largest of 1,000 has 16 times the mean."""
    hot_key: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of all data that belongs to one partition key: to one segment, one lane and one partition."""
    partitions: Annotated[int, Field(ge=1)] | None = None
    """Physical partitions of the table; default is one for each 10 GB and for what one serves of the budget."""
    table_rate: Annotated[float, Field(gt=0)] | None = None
    """Units per second that the table serves, provisioned or as its maximum; default is what its partitions serve."""
    account_rate: Annotated[float, Field(gt=0)] | None = None
    """Units per second of all tables of the account in the region; default is no limit."""
    other_rate: Annotated[float, Field(ge=0)] = 0.0
    """Units per second that others consume of the table."""
    burst_seconds: Annotated[float, Field(ge=0, le=300)] = 0.0
    """Seconds of unused capacity that the table has saved up when the job begins."""
    fixed_partitions: bool = False
    """Each partition has an equal share of ``table_rate``, as without adaptive capacity."""
    split_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds at its limit after which a partition splits in two, as on-demand tables do; default is never."""
    lose: Changes = ()
    """Executors that are lost: ``2@600`` for two after 600 s; several separated by commas."""
    join: Changes = ()
    """Executors that join, likewise."""
    executor_tasks: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Tasks that one executor runs at the same time."""
    static_shares: bool = False
    """Give each task a fixed share of the budget, as other connectors do, instead of leases."""
    spread: Annotated[float, Field(ge=0, le=2)] = 0.3
    """How much times of requests vary: the deviation of their logarithm; at 0.3 one of 100 takes twice as long."""
    seed: int = 0
    """Seed of everything that is random: sizes, times of requests, pauses after throttling, who is lost."""
    chart: str | None = None
    """File to write the course of the job to, as a page (``.html``) or a picture (``.png``)."""

    @model_validator(mode="after")
    def _check_simulation(self) -> SimulateOptions:
        if self.chart is not None and not self.chart.endswith((".html", ".png")):
            raise ValueError("chart is written as .html or .png")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateScanOptions(SimulateOptions):
    """Describe a table that need not exist, and the cluster that would scan it."""

    scenario: Literal["long-tail"] | None = None
    """A named simulation, whose values the other options change."""
    table_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of the table, as DescribeTable would say it; ``80TB`` works as well."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default is that of the policy."""
    policy: Literal["planner", "task", "gib", "128mb"] | None = None
    """How many segments: the planner's choice, one a task (default of static_shares), one a GiB, or one for 128 MB."""
    rcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Read units per second that the whole job may use; default is the quota of an on-demand table."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    page_seconds: Annotated[float, Field(gt=0, le=10)] = 0.07
    """Median time of a full page."""

    @model_validator(mode="before")
    @classmethod
    def _take_scenario(cls, values: Any) -> Any:
        given = values if isinstance(values, dict) else dict(values.kwargs or {})
        return {**SCENARIOS.get(str(given.get("scenario")), {}), **given}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateLoadOptions(SimulateOptions):
    """Describe rows that would be loaded into a table that need not exist, and the cluster that would do it."""

    source_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of all items, as DynamoDB counts it; ``10TB`` works as well."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean size of an item."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """As for a load: ``create`` and ``update`` send each row by itself."""
    indexes: Annotated[int, Field(ge=0, le=20)] = 0
    """Global indexes that hold all of each item; each costs as much as the table."""
    wcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Write units per second that the whole job may use; default is the quota of an on-demand table."""
    warm_up: bool = False
    """Begin at what a new on-demand table serves, and double it every half hour."""
    request_seconds: Annotated[float, Field(gt=0, le=10)] = 0.015
    """Median time of a request."""
