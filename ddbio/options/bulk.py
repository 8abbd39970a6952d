"""Say which objects are put into which table by the service itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkStartOptions(ConnectionOptions):
    """Say which objects are put, into which table, how fast, and where reports go."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; all objects below it are read. Of ``import files`` it is the target or its ``data``."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table, which is there already."""
    reports: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` to which the service writes what it could not put; not below the source."""
    format: Literal["dynamodb_json", "ion"] | None = None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: Literal["zstd", "gzip", "none"] | None = None
    """Compression of the objects, the same for all; default is the manifest's."""
    wcu_per_second: Annotated[int, Field(ge=1024)] | None = None
    """Write units per second that the operation may use, at least 1,024; default is the service's."""
    tier: Literal["standard", "accelerated"] = "standard"
    """Performance tier."""
    kms_key: str | None = None
    """KMS key by which the reports are encrypted; default is the bucket's own way."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the source's bucket, where it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Token under which the same start is the same operation for eight hours; default is a new one."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BulkReportOptions(ConnectionOptions):
    """Say which bulk put's reports are read, and where refused items are kept."""

    place: Annotated[str, Field(min_length=1)]
    """ARN of the bulk operation, or the folder or ``s3://`` prefix of its reports."""
    reject_to: str | None = None
    """Folder or s3:// prefix for the refused items, as ``load`` with ``retry_rejects`` takes them."""
