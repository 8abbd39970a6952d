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
    scheme, uri = parse_location(location)
    if scheme != "s3":
        raise ValueError("give s3://bucket/prefix; a table is option 'table'")
    return uri


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DoctorOptions(ConnectionOptions):
    """Table and bucket to check. Without them, only the needs of every job are checked."""

    location: Annotated[str, AfterValidator(_on_s3)] | None = None
    """``s3://bucket/prefix`` that a job reads or writes."""
    table: Annotated[str, Field(min_length=1)] | None = None
    """Name or ARN of the table that a job reads or writes."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class IamOptions:
    """Facts for a policy that the verb's options do not contain."""

    account: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account of resources without an ARN. Default: the role's account, else any."""
    principal: Literal["job", "target", "caller"] = "job"
    """Identity: the job, the target (``target_role_arn``, ``target_profile``), or the caller that assumes the roles."""
    vpc_endpoint: Names | None = None
    """Comma-separated IDs of the VPC endpoints of all requests."""
    bucket_kms_key: str | None = None
    """KMS key of the buckets' default encryption."""
    table_kms_key: str | None = None
    """Customer managed KMS key of the tables."""
    partition_key: str | None = None
    """Partition key of the table or index, to choose Query or Scan for ``where``."""


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _as_seconds(value: object) -> object:
    """Return a time like ``15m`` in seconds."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)?", value.strip())
    if match is None:
        raise ValueError("write a number with s, m, h, d or w, like 15m")
    return float(match[1]) * _UNITS[match[2] or "s"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MetricsConnectionOptions(ConnectionOptions):
    """Endpoint of CloudWatch."""

    cloudwatch_endpoint_url: str | None = None
    """CloudWatch endpoint. With ``endpoint_url`` alone, CloudWatch is not called."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class AdviseOptions(MetricsConnectionOptions):
    """Table, and the requirements of its copy."""

    table: Annotated[str, Field(min_length=1)] | None = None
    """Name or ARN of the table."""
    from_file: str | None = None
    """JSON file with a DescribeTable response and figures."""
    freshness: Annotated[float, BeforeValidator(_as_seconds), Field(ge=1)] = 86_400.0
    """Update interval of the copy: ``1d``, ``1h``, ``1m``, or seconds."""
    point_in_time: bool = False
    """The copy must show the table at one point in time."""
    changes_per_second: Annotated[float, Field(ge=0)] | None = None
    """Item writes per second. Default: from the file, or 14 days of CloudWatch."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] | None = None
    """Mean item size in bytes. Default: table size divided by item count."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of a scan, in RCU/s. Default: half of provisioned, or all on-demand capacity."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity."""
    prices: str | None = None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None = None
    """HTML file for the report and its charts."""
    png: str | None = None
    """PNG file for the charts."""

    @model_validator(mode="after")
    def _check_advise(self) -> AdviseOptions:
        if (self.table is None) == (self.from_file is None):
            raise ValueError("give a table, or from_file with its description")
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanCapacityOptions(MetricsConnectionOptions):
    """Table whose consumption is analyzed, and the target of its capacity."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table. With ``csv`` it need not exist."""
    csv: str | None = None
    """Consumption file instead of CloudWatch: time, read and write, in units per second."""
    days: Annotated[float, Field(gt=0, le=455)] = 14.0
    """CloudWatch days: by minute up to 15, by 5 minutes up to 63, then by hour."""
    target: Annotated[float, Field(ge=0.2, le=0.9)] = 0.7
    """Target utilization of auto scaling."""
    table_class: Literal["standard", "standard-ia"] | None = None
    """Table class, with ``csv`` only. Default: standard."""
    table_gb: Annotated[float, Field(ge=0)] | None = None
    """Table size for storage costs, with ``csv`` only."""
    prices: str | None = None
    """Price book file of ddbio. Default: the newest local book of the region."""
    html: str | None = None
    """HTML file for the report and its charts."""
    png: str | None = None
    """PNG file for the charts."""

    @model_validator(mode="after")
    def _check_capacity(self) -> PlanCapacityOptions:
        if self.csv is None and (self.table_class is not None or self.table_gb is not None):
            raise ValueError("table_class and table_gb are for csv: DescribeTable has those of an existing table")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanCaptureOptions(PriceOptions):
    """Changes of a table that need not exist, and the method that writes them to S3."""

    records_per_second: Annotated[float, Field(gt=0)]
    """Mean item changes per second."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean item size in bytes."""
    through: Literal["streams", "lambda", "kinesis", "firehose"] = "streams"
    """Reader of the changes: a polling process, Lambda, Kinesis, or Kinesis with Firehose."""
    view: Literal["keys_only", "new_image", "old_image", "new_and_old_images"] = "new_and_old_images"
    """Images in stream records. Kinesis has both."""
    poll_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Time between two reads of a shard of the stream."""
    file_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time span of a file."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PricesRefreshOptions(ConnectionOptions):
    """Region of the prices from the AWS Price List: ``region``, by default us-east-1."""

    pricing_endpoint_url: str | None = None
    """Endpoint of the Price List. Default: that of AWS."""


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
"""Named simulations. ``long-tail``: fixed shares read 70 of 80 TB in 9 h, and the other 10 TB in more than 5 days."""


def _as_changes(value: object) -> object:
    """Return ``2@600,1@900`` as pairs of a number and of seconds."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    matches = [re.fullmatch(r"(\d+)@(\d+(?:\.\d+)?)", part) for part in parts]
    if not all(matches):
        raise ValueError("write NUMBER@SECONDS, separated by commas")
    return tuple((int(match[1]), float(match[2])) for match in matches if match is not None)


Changes = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_as_changes)]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateOptions:
    """Cluster of a simulated job, and the limits of its table."""

    tasks: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Number of parallel tasks."""
    lanes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Parallel requests: of a scan, or of each task of a load."""
    skew: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Inequality of segments or tasks. At 0.5, the largest of 1,000 is 16 times the mean."""
    hot_key: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the data in one partition key."""
    partitions: Annotated[int, Field(ge=1)] | None = None
    """Physical partitions. Default: from the table's size (10 GB each) and the budget."""
    table_rate: Annotated[float, Field(gt=0)] | None = None
    """Capacity units per second of the table. Default: those of its partitions."""
    account_rate: Annotated[float, Field(gt=0)] | None = None
    """Capacity units per second of the account. Default: unlimited."""
    other_rate: Annotated[float, Field(ge=0)] = 0.0
    """Capacity units per second that other clients consume."""
    burst_seconds: Annotated[float, Field(ge=0, le=300)] = 0.0
    """Burst capacity at the start, in seconds."""
    fixed_partitions: bool = False
    """Give each partition an equal share of ``table_rate``: no adaptive capacity."""
    split_seconds: Annotated[float, Field(gt=0)] | None = None
    """Split a partition after this time at its limit. Default: never."""
    lose: Changes = ()
    """Lost executors: ``2@600`` for two after 600 s, comma-separated."""
    join: Changes = ()
    """Added executors, in the same format."""
    executor_tasks: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Parallel tasks of one executor."""
    static_shares: bool = False
    """Give each task a fixed share of the budget instead of leases."""
    spread: Annotated[float, Field(ge=0, le=2)] = 0.3
    """Standard deviation of the logarithm of request times. At 0.3, 1 % take twice as long."""
    seed: int = 0
    """Random seed."""
    chart: str | None = None
    """File for the chart of the job: ``.html`` or ``.png``."""

    @model_validator(mode="after")
    def _check_simulation(self) -> SimulateOptions:
        if self.chart is not None and not self.chart.endswith((".html", ".png")):
            raise ValueError("chart must end with .html or .png")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateScanOptions(SimulateOptions):
    """Table that need not exist, and the cluster that scans it."""

    scenario: Literal["long-tail"] | None = None
    """Named simulation. Other options override its values."""
    table_bytes: Annotated[ByteSize, Field(ge=1)]
    """Table size as in DescribeTable, such as ``80TB``."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean item size in bytes."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments. Default: from ``policy``."""
    policy: Literal["planner", "task", "gib", "128mb"] | None = None
    """Segments: planned, one per task (default of ``static_shares``), per GiB, or per 128 MB."""
    rcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Read budget in RCU/s, by default the on-demand quota."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    page_seconds: Annotated[float, Field(gt=0, le=10)] = 0.07
    """Median time of a full page."""

    @model_validator(mode="before")
    @classmethod
    def _take_scenario(cls, values: Any) -> Any:
        options = values if isinstance(values, dict) else dict(values.kwargs or {})
        return {**SCENARIOS.get(str(options.get("scenario")), {}), **options}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SimulateLoadOptions(SimulateOptions):
    """Rows to load into a table that need not exist, and the cluster of the load."""

    source_bytes: Annotated[ByteSize, Field(ge=1)]
    """Size of all items as DynamoDB counts it, such as ``10TB``."""
    item_bytes: Annotated[float, Field(ge=1, le=400 * 1024)] = 400.0
    """Mean item size in bytes."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """Load mode. ``create`` and ``update`` send one row per request."""
    indexes: Annotated[int, Field(ge=0, le=20)] = 0
    """Global secondary indexes with all attributes. Each costs as much as the table."""
    wcu_per_second: Annotated[float, Field(gt=0)] = 40_000.0
    """Write budget in WCU/s, by default the on-demand quota."""
    warm_up: bool = False
    """Start at the capacity of a new on-demand table; double every 30 minutes."""
    request_seconds: Annotated[float, Field(gt=0, le=10)] = 0.015
    """Median time of a request."""
