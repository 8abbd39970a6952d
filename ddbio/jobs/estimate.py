"""Estimate what a job takes and costs: units, requests, bytes, seconds, and USD by line."""

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
"""What limits a job that waits for nothing else."""

# Single steps: DynamoDB JSON into Arrow and back, Arrow into Parquet with zstd and back, gzip into text.
_DECODE, _ENCODE, _PARQUET_WRITE, _PARQUET_READ, _GUNZIP = 200e6, 150e6, 150e6, 500e6, 400e6
# A job does more than its steps: it reaches about half of what they alone would.
_SHARE = 0.5


def _job(*steps: float) -> float:
    """Return the bytes a second of a job that does these steps one after the other."""
    return _SHARE / sum(1 / step for step in steps)


SCAN_SPEED = 20.0 * 1024 * 1024
"""Items, from answers of DynamoDB to files."""
EXPORT_SPEED = _job(_GUNZIP, _DECODE, _PARQUET_WRITE)
"""Text of an export, from its files to others."""
REWRITE_SPEED = _job(_PARQUET_READ, _PARQUET_READ, _PARQUET_WRITE)
"""Arrow data, from files to others, which are read once more."""
DIGEST_SPEED = _job(_PARQUET_READ)
"""Arrow data, from files into digests."""
LINES_SPEED = _job(_PARQUET_READ, _ENCODE, _PARQUET_WRITE)
"""DynamoDB JSON, from files into compressed objects."""


Part: TypeAlias = tuple[str, str, float]
"""What something is needed for, the name of its price, and how much of it."""

GB = 1024**3
"""What AWS bills as a GB."""
SECONDS_A_MONTH = 730 * 3600

START_SECONDS = 0.25
"""Assumed: what a job takes before its first request: describing tables and files, opening connections."""

S3_PART_BYTES = 8 * 1024 * 1024
"""Files above this are uploaded in parts of it."""
COMMIT_REQUESTS = 10
"""Writes and lists that claiming a target and publishing a job's files take, about."""
_LISTED_AT_ONCE = 1_000

# Glue: https://docs.aws.amazon.com/glue/latest/dg/add-job.html, DPUs of a worker.
_GLUE_DPUS = {"G.025X": 0.25, "G.1X": 1.0, "G.2X": 2.0, "G.4X": 4.0, "G.8X": 8.0}
_LEAST_COMPUTE_SECONDS = 60.0


@dataclass(frozen=True)
class Prices:
    """Price parts of jobs of one region on one day."""

    book: PriceBook
    region: str | None
    today: date

    def cost(self, parts: Iterable[Part]) -> Cost:
        """Return what several parts cost together."""
        return self.book.cost(parts, self.region, self.today)


@dataclass(frozen=True)
class Estimate(Result):
    """Say what a job is expected to take and to cost.

    Attributes
    ----------
    units
        Capacity units; None if unknown.
    requests
        Requests to DynamoDB and S3; None if unknown.
    bytes
        Bytes that are read; None if unknown.
    seconds
        Time; None if unknown.
    limited_by
        What the seconds come from.
    cost
        USD by line, and what a reader of the sum should know.
    """

    units: float | None = 0.0
    requests: int | None = 0
    bytes: int | None = 0
    seconds: float | None = None
    limited_by: str = ""
    cost: Cost = field(default_factory=lambda: Cost(()))

    @property
    def figures(self) -> Figures:
        """Return what is compared with what the job took."""
        return Figures(self.units, self.seconds, self.bytes, self.cost.usd)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that every plan in JSON has."""
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
    """Hold what a job was planned to take, or what it took; a figure is None if it is unknown.

    Attributes
    ----------
    units
        Capacity units.
    seconds
        Time.
    bytes
        Bytes that are read, as they are sent or stored.
    usd
        What it costs.
    """

    units: float | None = None
    seconds: float | None = None
    bytes: int | None = None
    usd: float | None = None

    def __str__(self) -> str:
        """Return the known figures as text for people."""
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
        """Return the figures that ``to_dict`` turned into plain values."""
        return None if values is None else Figures(**values)


class EstimatedPlan(Result):
    """Base of the plans: each has an estimate, whose figures are among its keys in JSON."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def estimate(self) -> Estimate:
            """Return what the job is expected to take and to cost."""

    @property
    def figures(self) -> Figures:
        """Return what is compared with what the job took."""
        return self.estimate.figures

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, those of its estimate among them."""
        values = super().to_dict()
        values.pop("estimate", None)
        return {**values, **self.estimate.to_dict()}


ARROW_RATIO = 3.0
"""Assumed: what files take as Arrow data, of their size as stored."""

SENT_RATIO = 1.4
"""Assumed, where nothing was sampled: what items take as DynamoDB JSON, of their size."""


def is_s3(place: str) -> bool:
    """Return whether a place is on S3, where requests and storage are billed."""
    return parse_location(place)[0] == "s3"


def upload_requests(files: int, size_bytes: float) -> int:
    """Return how many requests write so many files of equal size: one, or its parts, a begin and an end."""
    if not files:
        return 0
    parts = math.ceil(size_bytes / files / S3_PART_BYTES)
    return files * (1 if parts <= 1 else parts + 2)


def output_parts(dest: str, files: int, size_bytes: float, *, is_encrypted: bool = False) -> list[Part]:
    """Return what files at a target cost: nothing in a local folder.

    Parameters
    ----------
    is_encrypted
        Whether a KMS key encrypts each object.
    """
    if not is_s3(dest):
        return []
    return [
        ("S3 writes", "s3_writes", upload_requests(files, size_bytes) + COMMIT_REQUESTS),
        ("S3 storage for a month", "s3_storage", size_bytes / GB),
        ("KMS", "kms_requests", files if is_encrypted else 0),
    ]


def input_parts(source: str, files: int, requests: int | None = None) -> list[Part]:
    """Return what reading files costs: a list, and a request for each file unless their number is given."""
    if not is_s3(source):
        return []
    return [
        ("S3 lists", "s3_writes", math.ceil(files / _LISTED_AT_ONCE)),
        ("S3 reads", "s3_reads", files if requests is None else requests),
    ]


def s3_requests(parts: Iterable[Part]) -> int:
    """Return the requests to S3 among the parts of a job."""
    return round(sum(quantity for _, name, quantity in parts if name in {"s3_writes", "s3_reads"}))


def compute_parts(compute: str | None, seconds: float | None) -> list[Part]:
    """Return what the cluster costs on which a job runs for so long; the option ``compute`` says how it is written."""
    if compute is None or seconds is None:
        return []
    service, _, rest = compute.partition(":")
    kind, _, count = rest.rpartition("*")
    hours = max(seconds, _LEAST_COMPUTE_SECONDS) / 3600 * int(count)
    if service in {"glue", "glue-flex"}:
        name = "glue_dpu_hours" if service == "glue" else "glue_flex_dpu_hours"
        return [("Glue", name, hours * _GLUE_DPUS[kind])]
    if service == "emr-serverless":
        cores, memory = (each.rstrip("vCPUGB") for each in kind.split("-"))
        return [
            ("EMR Serverless processors", "emr_serverless_vcpu_hours", hours * int(cores)),
            ("EMR Serverless memory", "emr_serverless_gb_hours", hours * int(memory)),
        ]
    instances = [("EC2", f"ec2_{kind}_hours", hours)]
    return instances if service == "ec2" else [*instances, ("EMR", f"emr_{kind}_hours", hours)]
