"""Estimates of jobs: units, requests, bytes, seconds, and USD by line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ddbio.jobs.prices import Cost, cost_values
from ddbio.options.locations import parse_location
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date

    from ddbio.jobs.prices import PriceBook

PROCESSORS = "the processors"
"""Bottleneck of a job that waits for nothing else."""

# Single steps: DynamoDB JSON into Arrow and back, Arrow into Parquet with zstd and back, gzip into text.
_DECODE, _ENCODE, _PARQUET_WRITE, _PARQUET_READ, _GUNZIP = 200e6, 150e6, 150e6, 500e6, 400e6
# A job does more than these steps: it achieves about half of their throughput.
_SHARE = 0.5


def _job(*steps: float) -> float:
    """Return the bytes per second of a job that executes these steps sequentially."""
    return _SHARE / sum(1 / step for step in steps)


SCAN_SPEED = 20.0 * 1024 * 1024
"""Items, from responses of DynamoDB to files."""
EXPORT_SPEED = _job(_GUNZIP, _DECODE, _PARQUET_WRITE)
"""Text of an export, from its files to others."""
REWRITE_SPEED = _job(_PARQUET_READ, _PARQUET_READ, _PARQUET_WRITE)
"""Arrow data, from files to other files, which are verified by reading."""
DIGEST_SPEED = _job(_PARQUET_READ)
"""Arrow data, from files into digests."""
LINES_SPEED = _job(_PARQUET_READ, _ENCODE, _PARQUET_WRITE)
"""DynamoDB JSON, from files into compressed objects."""


Part: TypeAlias = tuple[str, str, float]
"""Purpose, name of the price, and quantity."""

GB = 1024**3
"""A GB as AWS bills it."""
SECONDS_A_MONTH = 730 * 3600

START_SECONDS = 0.25
"""Assumed time before the first request of a job: describing tables and files, opening connections."""

S3_PART_BYTES = 8 * 1024 * 1024
"""Larger files are uploaded in parts of this size."""
COMMIT_REQUESTS = 10
"""Approximate number of writes and lists to claim a target and publish a job's files."""
_LISTED_PER_REQUEST = 1_000

# Glue: https://docs.aws.amazon.com/glue/latest/dg/add-job.html, DPUs of a worker.
_GLUE_DPUS = {"G.025X": 0.25, "G.1X": 1.0, "G.2X": 2.0, "G.4X": 4.0, "G.8X": 8.0}
_MIN_COMPUTE_SECONDS = 60.0


@dataclass(frozen=True)
class Prices:
    """Prices of jobs in one region on one day."""

    book: PriceBook
    region: str | None
    today: date

    def cost(self, parts: Iterable[Part]) -> Cost:
        """Return the total cost of several parts."""
        return self.book.cost(parts, self.region, self.today)


@dataclass(frozen=True)
class Estimate(Result):
    """Expected resources and cost of a job.

    Attributes
    ----------
    units
        Capacity units; None if unknown.
    requests
        Requests to DynamoDB and S3; None if unknown.
    bytes
        Bytes to read; None if unknown.
    seconds
        Time; None if unknown.
    limited_by
        The bottleneck that determines the seconds.
    cost
        USD by line, with notes.
    """

    units: float | None = 0.0
    requests: int | None = 0
    bytes: int | None = 0
    seconds: float | None = None
    limited_by: str = ""
    cost: Cost = field(default_factory=lambda: Cost(()))

    @property
    def figures(self) -> Figures:
        """Return the figures to compare with the actual ones."""
        return Figures(self.units, self.seconds, self.bytes, self.cost.usd)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of every plan in JSON."""
        return {
            "units": self.units,
            "requests": self.requests,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "limited_by": self.limited_by,
            **cost_values(self.cost),
        }


@dataclass(frozen=True)
class Figures(Result):
    """Planned or actual resources of a job. A figure is None if it is unknown.

    Attributes
    ----------
    units
        Capacity units.
    seconds
        Time.
    bytes
        Bytes to read, as transferred or stored.
    usd
        Cost of the job.
    """

    units: float | None = None
    seconds: float | None = None
    bytes: int | None = None
    usd: float | None = None

    def __str__(self) -> str:
        """Return the figures that are not None as readable text."""
        usd = self.usd
        parts = [
            f"{self.units:,.1f} units" if self.units else "",
            f"{self.seconds:,.1f} s" if self.seconds is not None else "",
            f"{self.bytes / 1e6:,.1f} MB" if self.bytes else "",
            "" if usd is None else f"${usd:,.2f}" if usd >= 1 else f"${usd:.2g}",
        ]
        return ", ".join(filter(None, parts)) or "unknown"

    @staticmethod
    def from_dict(values: Mapping[str, Any] | None) -> Figures | None:
        """Return the figures from the plain values of ``to_dict``."""
        return None if values is None else Figures(**values)


class EstimatedPlan(Result):
    """Base of plans. Each has an estimate, whose figures are among its keys in JSON."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def estimate(self) -> Estimate:
            """Return the expected resources and cost of the job."""

    @property
    def figures(self) -> Figures:
        """Return the figures to compare with the actual ones."""
        return self.estimate.figures

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, including those of its estimate."""
        values = super().to_dict()
        values.pop("estimate", None)
        return {**values, **self.estimate.to_dict()}


ARROW_RATIO = 3.0
"""Assumed size of files as Arrow data, relative to their stored size."""

SENT_RATIO = 1.4
"""Assumed size of items as DynamoDB JSON, relative to their size, if no sample exists."""


def is_s3(location: str) -> bool:
    """Return whether a location is on S3, where requests and storage are billed."""
    return parse_location(location)[0] == "s3"


def upload_requests(files: int, size_bytes: float) -> int:
    """Return the number of requests that write ``files`` of equal size: one each, or its parts, a start and an end."""
    if not files:
        return 0
    parts = math.ceil(size_bytes / files / S3_PART_BYTES)
    return files * (1 if parts <= 1 else parts + 2)


def output_parts(dest: str, files: int, size_bytes: float, *, is_encrypted: bool = False) -> list[Part]:
    """Return the cost of files at a target: none in a local folder.

    Parameters
    ----------
    is_encrypted
        Whether each object is encrypted with a KMS key.
    """
    if not is_s3(dest):
        return []
    return [
        ("S3 writes", "s3_writes", upload_requests(files, size_bytes) + COMMIT_REQUESTS),
        ("S3 storage for a month", "s3_storage", size_bytes / GB),
        ("KMS", "kms_requests", files if is_encrypted else 0),
    ]


def input_parts(source: str, files: int, requests: int | None = None) -> list[Part]:
    """Return the cost of reading files: a list, and one request per file unless ``requests`` is set."""
    if not is_s3(source):
        return []
    return [
        ("S3 lists", "s3_writes", math.ceil(files / _LISTED_PER_REQUEST)),
        ("S3 reads", "s3_reads", files if requests is None else requests),
    ]


def s3_requests(parts: Iterable[Part]) -> int:
    """Return the number of S3 requests of the parts of a job."""
    return round(sum(quantity for _, name, quantity in parts if name in {"s3_writes", "s3_reads"}))


def compute_parts(compute: str | None, seconds: float | None) -> list[Part]:
    """Return the cost of a job's cluster for ``seconds``. The option ``compute`` documents its syntax."""
    if compute is None or seconds is None:
        return []
    service, _, size = compute.partition(":")
    kind, _, count = size.rpartition("*")
    hours = max(seconds, _MIN_COMPUTE_SECONDS) / 3600 * int(count)
    if service in {"glue", "glue-flex"}:
        name = "glue_dpu_hours" if service == "glue" else "glue_flex_dpu_hours"
        return [("Glue", name, hours * _GLUE_DPUS[kind])]
    if service == "emr-serverless":
        cores, memory = (amount.rstrip("vCPUGB") for amount in kind.split("-"))
        return [
            ("EMR Serverless processors", "emr_serverless_vcpu_hours", hours * int(cores)),
            ("EMR Serverless memory", "emr_serverless_gb_hours", hours * int(memory)),
        ]
    instances = [("EC2", f"ec2_{kind}_hours", hours)]
    return instances if service == "ec2" else [*instances, ("EMR", f"emr_{kind}_hours", hours)]
