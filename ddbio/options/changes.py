"""Options of what Firehose delivers: reading it, writing its layout, trying again what failed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.files import Compression  # noqa: TC001 - pydantic reads the types at run time
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, Names

DEFAULT_PREFIX = "!{timestamp:yyyy/MM/dd/HH}/"
DEFAULT_ERROR_PREFIX = "!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd/HH}/"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DeliveredOptions(ConnectionOptions):
    """Choose objects that Firehose has delivered, and how their changes are decoded."""

    source: Annotated[str, Field(min_length=1)]
    """Folder or prefix of the objects: ``s3://bucket/prefix`` or a local folder."""
    keys: Names | None = None
    """Key attributes, partition key first; default is what the first change record names. Transformed lines need it."""
    schema: Any = None
    """Columns of the items, as for a scan; default is inferred from some of the objects."""
    old_image: bool = False
    """Keep the item as it was before each change, in the column ``_old_image``."""
    reject_to: str | None = None
    """Folder or s3:// prefix for what is no change, in Firehose's own form; without it the first one fails the verb."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ChangesReadOptions(DeliveredOptions):
    """Choose which of their changes are read."""

    table: str | None = None
    """Table whose changes are taken, by the name in their records; without it, several tables are refused."""
    since: AwareDatetime | None = None
    """Take changes from this time on, with its zone; objects of S3 that were written a day before it are not read."""
    until: AwareDatetime | None = None
    """Take changes before this time."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ReplayOptions(DeliveredOptions, LimitOptions):
    """Choose what is put through again: objects that Firehose has delivered, or could not deliver."""

    dest: str | None = None
    """Folder of the log that changes go to: ``s3://bucket/prefix`` or a local folder."""
    table: str | None = None
    """Table that changes are applied to instead, those of an item in their order."""
    source_table: str | None = None
    """Table whose changes are put through, by the name in their records; default is ``table``."""
    newer_by: str | None = None
    """With ``table``: the attribute by which an older change never replaces or deletes a newer item."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """With ``table``: write units per second that the whole job may use."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the replay, under which objects are put through once; default follows from the source and the target."""
    state: str | None = None
    """With ``table``: folder or s3:// prefix for what was done already; default is ``_ddbio/`` of the source."""
    compression: Compression = "zstd"
    """Codec of the files of the log."""

    @model_validator(mode="after")
    def _check_target(self) -> ReplayOptions:
        if (self.dest is None) == (self.table is None):
            raise ValueError("give a folder that changes go to, or a table")
        names = ("newer_by", "wcu_per_second", "state", "max_units", "max_usd")
        given = {name: getattr(self, name) for name in names}
        useless = [name for name, value in given.items() if value is not None]
        if self.table is None and useless:
            raise ValueError(f"{useless[0]} has a meaning with table alone")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ChangesWriteOptions(ConnectionOptions):
    """Choose where and in which form changes are written as Firehose would deliver them."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder below which the prefixes lie: ``s3://bucket/prefix`` or a local folder."""
    table: str | None = None
    """Table whose changes are written, by the name in their records; default is all, each with the name of its own."""
    prefix: str = DEFAULT_PREFIX
    """Prefix of objects, with ``!{timestamp:…}``, ``!{firehose:random-string}``, ``!{partitionKeyFromLambda:…}``."""
    error_prefix: str = DEFAULT_ERROR_PREFIX
    """Prefix of what is no change, with ``!{firehose:error-output-type}`` besides."""
    name: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$")] = "ddbio"
    """Name of the delivery stream, with which names of objects begin."""
    records: Literal["lines", "raw"] = "lines"
    """Write lines of plain JSON, as the transformation function makes them, or the records as they are."""
    gzip: bool = True
    """Compress the objects; their names end with ``.gz``."""
    buffer_bytes: Annotated[int, Field(ge=1024, le=128 * 1024 * 1024)] = 5 * 1024 * 1024
    """Close an object when its text has so many bytes."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class StreamEventOptions(ConnectionOptions):
    """Choose the log that the events of a stream go to, in a Lambda function."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    table: str | None = None
    """Table whose changes are written; without it, the log takes those of the first table that comes, and no others."""
    schema: Any = None
    """Columns of the items, as for a scan; default is inferred from the first event."""
    old_image: bool = False
    """Keep the item as it was before each change, in the column ``_old_image``."""
    reject_to: str | None = None
    """Folder or s3:// prefix for what is no change; without it Lambda repeats it until its record expires."""
    compression: Compression = "zstd"
    """Codec of the files."""
