"""Options of change data capture, Firehose deliveries and archives."""

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
    """Table whose changes are captured, and their log."""

    CHANGEABLE: ClassVar = frozenset(
        {
            "fan_out",
            "leases",
            "available_now",
            "max_seconds",
            "job_id",
            "on_gap",
            # Once enabled, old images stay enabled for all later runs.
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
    """Folder of the log."""
    source: Literal["streams", "kinesis"] = "streams"
    """Read changes from the table's DynamoDB stream or from its Kinesis data stream."""
    stream: str | None = None
    """Kinesis data stream (name or ARN), if the table has several."""
    fan_out: Annotated[str, Field(min_length=1)] | None = None
    """Consumer (name or ARN) for enhanced fan-out. A missing one is registered and kept."""
    leases: Annotated[int, Field(ge=1, le=1000)] = 1
    """Leases of the shards: the most processes that share a capture."""
    available_now: bool = False
    """Stop after the existing changes."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Stop after this time, with all captured changes written."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture, to resume it. Default: from table and stream."""
    start: Literal["trim-horizon", "latest"] = "trim-horizon"
    """Start of a new capture: the oldest change of the stream, or now."""
    on_gap: Literal["fail", "continue"] = "fail"
    """Changes that expired unread: fail, or record the gap and continue."""
    flush_seconds: Annotated[float, Field(gt=0, le=3600)] = 1.0
    """Longest time before changes are written."""
    flush_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=128 * 1024 * 1024)] = ByteSize(8 * 1024 * 1024)
    """Most bytes of records before changes are written."""
    old_image: bool = False
    """Keep the item before each change in column ``_old_image``."""
    schema: Any = None
    """Columns of the items. Default: inferred from the table and the first changes."""
    numbers: Literal["exact", "float64", "text"] = "exact"
    """Type of number columns. ``float64`` rounds unless all are whole; ``text`` is exact."""
    types: Pairs | None = None
    """Column types by attribute: ``price=decimal(38, 9),payload=json``. Default: inferred."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items to sample for the schema."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureStatusOptions(ConnectionOptions):
    """Log of a capture."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture. Default: all captures of the log."""
    offline: bool = False
    """Read only the log, without lag and lost records of the stream."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureVerifyOptions(ConnectionOptions):
    """Log, and the extent of its verification."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture. Default: all captures of the log."""
    images: bool = True
    """Also read rows, to find repeated sequence numbers and, with old images, missing changes."""
    since: AwareDatetime | None = None
    """Read rows from this time on (with time zone), in memory."""
    until: AwareDatetime | None = None
    """Read rows before this time."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CaptureHealOptions(WaitPolicyOptions, LimitOptions):
    """Log whose gaps are filled, and the exports for them."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log."""
    export_to: str | None = None
    """``s3://bucket/prefix`` for the incremental exports that ddbio requests."""
    from_export: Names | None = None
    """Existing incremental exports that together cover a gap. No other is requested."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the capture. Default: all captures of the log."""
    rcu_per_second: Annotated[float, Field(ge=1)] = 100.0
    """Read budget in RCU/s, for items read from the table."""


DEFAULT_PREFIX = "!{timestamp:yyyy/MM/dd/HH}/"


DEFAULT_ERROR_PREFIX = "!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd/HH}/"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DeliveredOptions(ConnectionOptions):
    """Objects that Firehose delivered, and the decoding of their changes."""

    CHANGEABLE: ClassVar = frozenset({"keys", "schema", "reject_to"})

    source: Annotated[str, Field(min_length=1)]
    """Folder of the objects."""
    keys: Names | None = None
    """Key attributes, partition key first. Default: from the first change record. Transformed lines need it."""
    schema: Any = None
    """Columns of the items. Default: inferred."""
    old_image: bool = False
    """Keep the item before each change in column ``_old_image``."""
    reject_to: str | None = None
    """Folder for records that are not changes (Firehose error format). If unset, the first one is an error."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ChangesReadOptions(DeliveredOptions):
    """Changes to read from delivered objects."""

    table: str | None = None
    """Table whose changes are read. Required if the objects have several."""
    since: AwareDatetime | None = None
    """Read changes from this time on (with time zone). S3 objects a day older are skipped."""
    until: AwareDatetime | None = None
    """Read changes before this time."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ReplayOptions(DeliveredOptions, LimitOptions):
    """Objects to replay that Firehose delivered or failed to deliver."""

    CHANGEABLE: ClassVar = frozenset({"source_table", "newer_by", "wcu_per_second", "job_id", "state", "compression"})

    dest: str | None = None
    """Folder of the log."""
    table: str | None = None
    """Table to which the changes are applied instead, in order for each item."""
    source_table: str | None = None
    """Table whose changes are replayed. Default: ``table``."""
    newer_by: str | None = None
    """With ``table``. Version attribute: older changes never replace or delete newer items."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """With ``table``. Write budget of the whole job, in WCU/s."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the replay, which replays each object once. Default: from source and target."""
    state: str | None = None
    """With ``table``. Folder for progress. Default: ``_ddbio/`` of the source."""
    compression: Compression = "zstd"
    """Codec of the files."""

    @model_validator(mode="after")
    def _check_target(self) -> ReplayOptions:
        if (self.dest is None) == (self.table is None):
            raise ValueError("give a folder or a table as the target of the changes")
        names = ("newer_by", "wcu_per_second", "state", "max_units", "max_usd")
        unused = [name for name in names if getattr(self, name) is not None]
        if self.table is None and unused:
            raise ValueError(f"{unused[0]} needs table")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ChangesWriteOptions(ConnectionOptions):
    """Target and format of changes that are written like a Firehose delivery."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the prefixes."""
    table: str | None = None
    """Write only changes of this table."""
    prefix: str = DEFAULT_PREFIX
    """Object prefix, with ``!{timestamp:…}``, ``!{firehose:random-string}``, ``!{partitionKeyFromLambda:…}``."""
    error_prefix: str = DEFAULT_ERROR_PREFIX
    """Prefix of records that are not changes, also with ``!{firehose:error-output-type}``."""
    name: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$")] = "ddbio"
    """Name of the delivery stream: the start of object names."""
    records: Literal["lines", "raw"] = "lines"
    """Write plain JSON lines or raw records."""
    gzip: bool = True
    """Compress the objects. Their names end with ``.gz``."""
    buffer_bytes: Annotated[int, Field(ge=1024, le=128 * 1024 * 1024)] = 5 * 1024 * 1024
    """Size of the text at which an object is closed."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class StreamEventOptions(ConnectionOptions):
    """Log for the events of a stream, in a Lambda function."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder of the log."""
    table: str | None = None
    """Table whose changes are written. Default: only the table of the first change."""
    schema: Any = None
    """Columns of the items. Default: inferred from the first event."""
    old_image: bool = False
    """Keep the item before each change in column ``_old_image``."""
    reject_to: str | None = None
    """Folder for records that are not changes. If unset, Lambda retries them until they expire."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveOptions(ConnectionOptions):
    """Log whose expired items are archived, and the folder of the archive."""

    CHANGEABLE: ClassVar = frozenset({"job_id", "compression"})

    source: Annotated[str, Field(min_length=1)]
    """Log folder with old images. With ``log``: the table."""
    dest: Annotated[str, Field(min_length=1)]
    """Folder of the archive. ``s3_storage_class`` applies to its files."""
    log: str | None = None
    """Folder of the log for the changes of table ``source``."""
    ttl: str | None = None
    """TTL attribute. Default: the table's, or the time of each delete."""
    infer: bool = False
    """Also archive unmarked deletes of expired items, such as those from other Regions."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the archive job, to resume it. Default: from the log."""
    compression: Compression = "zstd"
    """Codec of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ArchiveRestoreOptions(LimitOptions):
    """Archived items, and the table that they are restored to."""

    source: Annotated[str, Field(min_length=1)]
    """Folder of the archive."""
    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    from_key: Names | None = None
    """First key to restore: partition key, sort key."""
    to_key: Names | None = None
    """Last key to restore. Without a sort key: all items of the partition."""
    since: AwareDatetime | None = None
    """Restore items that expired from this time on."""
    until: AwareDatetime | None = None
    """Restore items that expired before this time."""
    mode: Literal["create", "upsert"] = "create"
    """``create`` keeps existing items, ``upsert`` replaces them."""
    ttl: Literal["drop", "keep"] = "drop"
    """Drop or keep the TTL attribute. The service deletes kept items again."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write budget of the whole job, in WCU/s."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExpiredReadOptions(ConnectionOptions):
    """Table or export whose expired items are read that are not deleted yet."""

    source: Annotated[str, Field(min_length=1)]
    """Table, or folder of an export."""
    ttl: str | None = None
    """TTL attribute. Default: the table's."""
    at: AwareDatetime | None = None
    """Time of expiry (with time zone). Default: now."""
    schema: Any = None
    """Columns of the items."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
