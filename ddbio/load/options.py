"""Options of loads, copies, new tables and import files."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, WaitPolicyOptions, target_connection_of
from ddbio.options.format_names import ImportCompression, ImportFormat, InputFormat
from ddbio.options.limits import LimitOptions, TimeLimitOptions
from ddbio.options.parsing import CONFIG, Engine, Names, Pairs, split_indexes

JsonFormat: TypeAlias = Literal["auto", "plain", "dynamodb"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SourceOptions(ConnectionOptions):
    """Files that rows are read from."""

    source: Annotated[str, Field(min_length=1)]
    """File, folder or glob of Parquet, ORC, Avro, JSON Lines, CSV or Arrow."""
    input_format: InputFormat | None = None
    """Format of all files. Default: detected by name, else by content."""
    json_format: JsonFormat = "auto"
    """Plain rows or DynamoDB JSON. ``auto``: by the first value of each file."""
    null_values: Names | None = None
    """CSV values that mean missing, such as ``NA,null,n/a``. Default: ``NA,null``, except in text."""
    hive_partitions: Literal["add", "ignore", "refuse"] = "add"
    """Folders ``name=value``: add as columns, ignore, or refuse."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WriteOptions(LimitOptions):
    """Mode and rate of writes to a live table, and the handling of rejected rows."""

    CHANGEABLE: ClassVar = frozenset(
        {"wcu_per_second", "write_ratio", "warm_up", "reject_to", "max_rejects", "reject_format", "lanes"}
        | {"compress_requests"}
    )

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """``upsert`` replaces items, ``create`` adds missing ones, ``delete`` deletes, ``update`` sets attributes."""
    newer_by: str | None = None
    """Version attribute: older rows never replace or delete newer items."""
    timestamps: Pairs | None = None
    """Format of date and time columns: ``created_at=iso,ttl=epoch_s``. Default: ISO 8601."""
    operation_by: str | None = None
    """Column with put, delete or update for each row. It is not written."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write budget of the whole job, in WCU/s."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Write budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    warm_up: bool = False
    """Start at 4,000 WCU/s (new on-demand table); double every 30 minutes."""
    reject_to: str | None = None
    """Folder for rejected rows. If unset, one such row fails the job."""
    max_rejects: Annotated[int, Field(ge=0)] | None = None
    """Fail after more rejected rows than this. Default: no limit."""
    reject_format: Literal["json", "parquet"] = "json"
    """Format of rejected rows: JSON Lines or Parquet."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Parallel requests. Default: 8, or by the budget for requests of one row."""
    compress_requests: bool = False
    """Compress large requests: fewer bytes for more CPU."""

    @model_validator(mode="after")
    def _check_write(self) -> WriteOptions:
        if self.wcu_per_second is not None and self.write_ratio is not None:
            raise ValueError("give wcu_per_second or write_ratio, not both")
        if self.max_rejects is not None and self.reject_to is None:
            raise ValueError("max_rejects needs reject_to: without it the first rejected row fails the job")
        if self.newer_by is not None and self.mode not in {"upsert", "delete"}:
            raise ValueError(f"newer_by does not apply to mode {self.mode}")
        if self.operation_by is not None and self.mode != "upsert":
            raise ValueError("operation_by decides row by row: leave mode out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LoadOptions(SourceOptions, WriteOptions):
    """Files, and the writes of their rows to a live table."""

    CHANGEABLE: ClassVar = frozenset(
        {"engine", "tasks", "unique_keys", "job_id", "state", "shared_paths", "retry_rejects", "create_table", "key"}
    )

    schema: Any = None
    """Types of CSV and plain JSON: ``ItemSchema``, ``pyarrow.Schema`` or JSON text. Default: inferred."""
    types: Pairs | None = None
    """Types of single columns: ``id=string,price=number,paid=bool,more=json``."""
    engine: Engine = "auto"
    """Threads of this process (``local``) or Spark. ``auto``: by size."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of Spark tasks. Default: one per 32 MiB of the source."""
    unique_keys: bool = False
    """Keys are unique in the source: any read order, no shuffle."""
    job_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")] | None = None
    """Name of the load. A rerun resumes after the finished parts."""
    state: str | None = None
    """Folder for checkpoints. Default: the user's state folder."""
    shared_paths: bool = False
    """All Spark workers see the same local paths, for example by NFS."""
    retry_rejects: bool = False
    """Read the source as a folder of rejected rows, and retry them."""
    create_table: bool = False
    """Create a missing table (on-demand)."""
    key: str | None = None
    """Key for ``create_table``: ``pk:S`` or ``pk:S,sk:N``. Default: from the files."""

    @model_validator(mode="after")
    def _check_load(self) -> LoadOptions:
        if self.key is not None and not self.create_table:
            raise ValueError("key is for create_table: give both, or leave key out")
        if self.retry_rejects and (self.job_id is not None or self.state is not None):
            raise ValueError("retry_rejects moves the files that it has read: leave job_id and state out")
        twice = dict(self.timestamps or ()).keys() & dict(self.types or ()).keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is in timestamps and in types: keep one")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CreateTableOptions(WaitPolicyOptions):
    """Key, indexes and billing of a new table."""

    table: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    key: Annotated[str, Field(min_length=1)]
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, keys joined by ``+``, ``/KEYS_ONLY`` appended."""
    billing: Literal["on_demand", "provisioned"] = "on_demand"
    """Billing mode of the table."""
    rcu: Annotated[int, Field(ge=1)] | None = None
    """Provisioned RCU/s of the table and of each index."""
    wcu: Annotated[int, Field(ge=1)] | None = None
    """Provisioned WCU/s of the table and of each index."""

    @model_validator(mode="after")
    def _check_billing(self) -> CreateTableOptions:
        if (self.billing == "provisioned") != (self.rcu is not None and self.wcu is not None):
            raise ValueError("billing=provisioned and both rcu and wcu belong together")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CreateLikeOptions(WaitPolicyOptions):
    """Table, and the new table that is created like it."""

    source: Annotated[str, Field(min_length=1)]
    """Name or ARN of the source table."""
    target: Annotated[str, Field(min_length=3)]
    """Name of the new table."""
    target_endpoint_url: str | None = None
    """DynamoDB endpoint of the target. Default: the source's."""
    target_region: str | None = None
    """AWS region of the target. Default: the source's."""
    target_profile: str | None = None
    """Named profile for the target. Default: the source's."""
    target_role_arn: str | None = None
    """Role to assume for the target. Default: the source's."""
    target_external_id: str | None = None
    """External ID of the target's role."""
    billing: Literal["like", "on_demand"] = "like"
    """Billing of the new table: like the source, or on-demand."""
    kms_key: str | None = None
    """KMS key: ARN, ``aws/dynamodb`` or ``none`` (AWS owned key). Default: the source's."""
    warm_write_units: Annotated[int, Field(ge=4_000)] | None = None
    """Warm throughput in WCU/s. AWS bills units above 4,000."""
    warm_read_units: Annotated[int, Field(ge=12_000)] | None = None
    """Warm throughput in RCU/s. AWS bills units above 12,000."""
    copy_tags: bool = False
    """Also copy the tags of the source."""
    copy_policy: bool = False
    """Also copy the resource policy of the source, with the ARN of the new table."""

    @property
    def target_connection(self) -> ConnectionOptions:
        """Return the connection to the target."""
        return target_connection_of(self)

    @property
    def crosses(self) -> bool:
        """Whether the target has another connection than the source."""
        return any((self.target_endpoint_url, self.target_region, self.target_profile, self.target_role_arn))


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CopyOptions(CreateLikeOptions, LimitOptions):
    """Copy of a table's items into another table."""

    create_target: bool = False
    """Create a missing target like the source."""
    mode: Literal["upsert", "create"] = "upsert"
    """Overwrite existing items, or keep them."""
    newer_by: str | None = None
    """Version attribute: older items never replace newer ones."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Parallel reads and writes. Default: 8 reads, and the writes of a load."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write budget of the whole job, in WCU/s."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Write budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    warm_up: bool = False
    """Start at 4,000 WCU/s (new on-demand table); double every 30 minutes."""
    reject_to: str | None = None
    """Folder for items that the target refuses. If unset, one such item fails the job."""
    verify: bool = False
    """Compare the digests of items read and of the target; fail if they differ."""

    @model_validator(mode="after")
    def _check_copy(self) -> CopyOptions:
        if self.source == self.target and not self.crosses:
            raise ValueError("source and target are one table")
        for rate, ratio in (("rcu_per_second", "read_ratio"), ("wcu_per_second", "write_ratio")):
            if getattr(self, rate) is not None and getattr(self, ratio) is not None:
                raise ValueError(f"give {rate} or {ratio}, not both")
        if self.newer_by is not None and self.mode != "upsert":
            raise ValueError(f"newer_by does not apply to mode {self.mode}")
        if self.verify and (self.mode, self.newer_by, self.reject_to) != ("upsert", None, None):
            raise ValueError("verify compares whole tables: leave mode, newer_by and reject_to out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportFilesOptions(TimeLimitOptions):
    """Files for the service's import, and the key of the table."""

    dest: Annotated[str, Field(min_length=1)]
    """Folder. The objects are written to ``data`` below it."""
    key: str | None = None
    """Key of the new table: ``pk:S`` or ``pk:S,sk:N``."""
    like: str | None = None
    """Table with the same key, or a ``.json`` file with its DescribeTable response."""
    timestamps: Pairs | None = None
    """Format of date and time columns: ``created_at=iso,ttl=epoch_s``. Default: ISO 8601."""
    duplicates: Literal["fail", "first", "last"] = "fail"
    """Rows with the same key: fail, or write the first or last."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global secondary indexes, as for ``import start``, whose keys are checked."""
    format: ImportFormat = "dynamodb_json"
    """Format of the objects. Ion is slower than JSON; CSV has text except in keys."""
    delimiter: Literal[",", ";", ":", "|", "\t", " "] | None = None
    """CSV delimiter: comma, semicolon, colon, bar, tab or space. Default: comma."""
    csv_strings: bool = False
    """Write non-key numbers, booleans and dates as text. The table then has strings."""
    compression: ImportCompression = "zstd"
    """Compression of the objects."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=1024**3)] = ByteSize(64 * 1024 * 1024)
    """Size of an object before compression. Peak memory is several times this."""
    if_absent: bool = False
    """Bulk put: only if the key does not exist. Experimental: unverified format."""
    newer_by: str | None = None
    """Bulk put: only if no item as new by this attribute exists. Experimental: unverified format."""
    mode: Literal["error", "overwrite"] = "error"
    """Action if the target already has files."""
    overwrite_foreign: bool = False
    """Let ``mode=overwrite`` also delete files that ddbio did not write."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of the run. A committed run is reported, not repeated."""
    digest: bool = False
    """Compute the order-independent digest of the items."""

    @model_validator(mode="after")
    def _check_key(self) -> ImportFilesOptions:
        if (self.key is None) == (self.like is None):
            raise ValueError("give key, or like with a table of the same key")
        if self.if_absent and self.newer_by is not None:
            raise ValueError("give only one of if_absent and newer_by: newer_by also puts missing items")
        if (self.if_absent or self.newer_by is not None) and self.format != "dynamodb_json":
            raise ValueError("if_absent and newer_by are for format=dynamodb_json")
        if self.format != "csv" and (self.delimiter is not None or self.csv_strings):
            raise ValueError("delimiter and csv_strings are for format=csv")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportFilesFromOptions(SourceOptions, ImportFilesOptions):
    """Source files, and the files for the service's import."""
