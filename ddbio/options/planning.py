"""Options of plans that are no job's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.limits import PriceOptions
from ddbio.options.parsing import CONFIG


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
