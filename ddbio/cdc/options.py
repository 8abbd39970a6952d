"""Options of change data capture, of what Firehose delivers, and of archives."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, WaitPolicyOptions
from ddbio.options.format_names import Compression
from ddbio.options.limits import LimitOptions, PriceOptions
from ddbio.options.parsing import CONFIG, Names, Pairs


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureOptions(PriceOptions):
    """Choose a table whose changes are captured, and the log that they go to."""

    CHANGEABLE: ClassVar = frozenset(
        {
            "fan_out",
            "leases",
            "available_now",
            "max_seconds",
            "job_id",
            "on_gap",
            # Wanted once, old images stay for all who run the capture.
            "old_image",
            "flush_seconds",
            "flush_bytes",
            "schema",
            "numbers",
            "types",
            "sample_items",
            "compression",
        }
    )

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    source: Literal["streams", "kinesis"] = "streams"
    """Where changes are read: the table's own stream, or the Kinesis data stream that they go to."""
    stream: str | None = None
    """The data stream, by name or ARN, if the changes of the table go to several."""
    fan_out: Annotated[str, Field(min_length=1)] | None = None
    """A consumer of the data stream, by name or ARN, that gets its records by enhanced fan-out instead of polling
    them; one that is named and not there is registered, and stays."""
    leases: Annotated[int, Field(ge=1, le=1000)] = 1
    """Parts of the shards that processes take leases of: so many processes can share a capture."""
    available_now: bool = False
    """Stop when the changes that are there are captured; otherwise go on until it is told to stop."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """End after this time, with what was captured by then written."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture, under which later runs go on; default follows from the table and its stream."""
    start: Literal["trim-horizon", "latest"] = "trim-horizon"
    """Where a new capture begins: at the oldest change that the stream has, or now."""
    on_gap: Literal["fail", "continue"] = "fail"
    """What to do if changes are gone before they were read: stop, or note that and go on behind the gap."""
    flush_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0
    """How long changes are gathered at most until they are written."""
    flush_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=128 * 1024 * 1024)] = ByteSize(8 * 1024 * 1024)
    """How many bytes of records are gathered at most until they are written."""
    old_image: bool = False
    """Keep the item as it was before each change, in the column ``_old_image``."""
    schema: Any = None
    """Columns of the items, as for a scan; default is inferred from a sample of the table and the first changes."""
    numbers: Literal["exact", "float64", "text"] = "exact"
    """Type of inferred columns of numbers: ``float64`` takes the nearest double unless all are whole."""
    types: Pairs | None = None
    """Types of columns by attribute, instead of those inferred: ``price=decimal(38, 9),payload=json``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items of the table to read to infer the columns."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureStatusOptions(ConnectionOptions):
    """Choose a log."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""
    offline: bool = False
    """Look at the log alone; otherwise the stream says how late the capture is, and what it has lost."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureVerifyOptions(ConnectionOptions):
    """Choose a log, and what of it is verified."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""
    images: bool = True
    """Read the rows, too: whether numbers repeat, and, with old images, before which changes one is missing."""
    since: AwareDatetime | None = None
    """Read rows from this time on, with its zone: the rows of the time that is read are held in memory."""
    until: AwareDatetime | None = None
    """Read rows before this time."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureHealOptions(WaitPolicyOptions, LimitOptions):
    """Choose a log whose gaps are healed, and the exports that heal them."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log: ``s3://bucket/prefix`` or a local folder."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for the incremental exports that the service is asked for."""
    from_export: Names | None = None
    """Folders of incremental exports that are there already, which together cover a gap; no other is asked for."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture; default is all that write this log."""
    rcu_per_second: Annotated[float, Field(ge=1)] = 100.0
    """Read units per second for the items that only the table itself can tell."""


DEFAULT_PREFIX = "!{timestamp:yyyy/MM/dd/HH}/"


DEFAULT_ERROR_PREFIX = "!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd/HH}/"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DeliveredOptions(ConnectionOptions):
    """Choose objects that Firehose has delivered, and how their changes are decoded."""

    CHANGEABLE: ClassVar = frozenset({"keys", "schema", "reject_to"})

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

    CHANGEABLE: ClassVar = frozenset({"source_table", "newer_by", "wcu_per_second", "job_id", "state", "compression"})

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


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveOptions(ConnectionOptions):
    """Choose a log whose expired items are archived, and the folder that they go to."""

    CHANGEABLE: ClassVar = frozenset({"job_id", "compression"})

    source: Annotated[str, Field(min_length=1)]
    """Folder of the log of ``capture``, with old images; or, with ``log``, the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the archive: ``s3://bucket/prefix`` or a local folder; ``s3_storage_class`` is for its files."""
    log: str | None = None
    """Folder of the log that the changes of the table ``source`` are captured into first."""
    ttl: str | None = None
    """Attribute by which items expire; default is the table's own, or the time of each delete."""
    infer: bool = False
    """Take unmarked deletes of expired items too: replicas of global tables get those of other Regions unmarked."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the archive, under which later runs go on; default follows from the log."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveRestoreOptions(LimitOptions):
    """Choose archived items, and the table that they are put back into."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the archive."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    from_key: Names | None = None
    """The first key that is restored: the partition key, and the sort key behind it, as text."""
    to_key: Names | None = None
    """The last key; one without a sort key stands for all items with that partition key."""
    since: AwareDatetime | None = None
    """Restore what expired from this time on."""
    until: AwareDatetime | None = None
    """Restore what expired before this time."""
    mode: Literal["create", "upsert"] = "create"
    """``create`` leaves items alone that the table has; ``upsert`` replaces them."""
    ttl: Literal["drop", "keep"] = "drop"
    """Leave the attribute out by which the items expired, or keep it: the service then deletes them again."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the whole job may use."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExpiredReadOptions(ConnectionOptions):
    """Choose a table or an export whose expired items are wanted that are not deleted yet."""

    source: Annotated[str, Field(min_length=1)]
    """The table, or the folder of an export."""
    ttl: str | None = None
    """Attribute by which items expire; default is the table's own."""
    at: AwareDatetime | None = None
    """Time, with its zone, at which items have to be expired; default is now."""
    schema: Any = None
    """Columns of the items, as for a scan."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that a scan may use."""
