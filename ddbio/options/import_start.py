"""Say which objects the service makes which table of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG
from ddbio.options.waiting import WaitOptions


def split_indexes(value: object) -> object:
    """Return the definitions of indexes that are parted by semicolons."""
    return tuple(each.strip() for each in value.split(";") if each.strip()) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportStartOptions(ConnectionOptions):
    """Say which objects are imported, how to read them, and what the new table is like."""

    source: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix``; all objects below it are read. Of ``import files`` it is the target or its ``data``."""
    table: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    key: str | None = None
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``; default is what the manifest of ``import files`` says."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes, parted by ``;``: ``name=pk:S,sk:N``, with ``/KEYS_ONLY`` behind it where nothing else is held.

    Default is what the manifest of ``import files`` says.
    """
    billing: Literal["on_demand", "provisioned"] = "on_demand"
    """How the table is billed."""
    rcu: Annotated[int, Field(ge=1)] | None = None
    """Read units per second of a provisioned table and of each of its indexes."""
    wcu: Annotated[int, Field(ge=1)] | None = None
    """Write units per second likewise; the import itself uses none."""
    format: Literal["dynamodb_json", "ion", "csv"] | None = None
    """Format of the objects; default is the manifest's, else dynamodb_json."""
    compression: Literal["zstd", "gzip", "none"] | None = None
    """Compression of the objects, the same for all; default is the manifest's."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """What parts the fields of CSV: comma, semicolon, colon, bar, tab or space; default is a comma."""
    bucket_owner: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account that owns the bucket, where it is another one."""
    client_token: Annotated[str, Field(pattern=r"^[^$]+$")] | None = None
    """Token under which the same start is the same import while it runs; default is a new one."""

    @model_validator(mode="after")
    def _check_start(self) -> ImportStartOptions:
        if (self.billing == "provisioned") != (self.rcu is not None and self.wcu is not None):
            raise ValueError("billing=provisioned and both rcu and wcu belong together")
        if self.delimiter is not None and self.format != "csv":
            raise ValueError("delimiter is for format=csv")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportWaitOptions(WaitOptions):
    """Say which import is awaited, and what of its table is compared with the files."""

    verify: bool = False
    """Scan the new table, at the price of a scan, and compare count and digest with those of the files."""
