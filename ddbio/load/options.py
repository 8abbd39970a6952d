"""Options of loads, copies, new tables and files for imports."""

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
    """Choose the files that rows are read from."""

    source: Annotated[str, Field(min_length=1)]
    """File, folder or glob, local or under s3://, of Parquet, ORC, Avro, JSON Lines, CSV or Arrow."""
    input_format: InputFormat | None = None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    json_format: JsonFormat = "auto"
    """Read JSON as plain rows or as DynamoDB JSON; ``auto`` decides by the first value of each file."""
    null_values: Names | None = None
    """Words that are missing in all columns of CSV: ``NA,null,n/a``; default is ``NA,null``, but not in text."""
    hive_partitions: Literal["add", "ignore", "refuse"] = "add"
    """Folders called name=value: ``add`` them as columns, ``ignore`` them, or ``refuse`` to load."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WriteOptions(LimitOptions):
    """Choose how rows are written to a live table, how fast, and what happens to rows that cannot be written."""

    CHANGEABLE: ClassVar = frozenset(
        {"wcu_per_second", "write_ratio", "warm_up", "reject_to", "max_rejects", "reject_format", "lanes"}
        | {"compress_requests"}
    )

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """Replace the item of each row's key, insert it only if there is none, delete it, or set the row's attributes."""
    newer_by: str | None = None
    """Attribute by which an older row never replaces or deletes a newer item."""
    timestamps: Pairs | None = None
    """How columns of dates and times are written, by column: ``created_at=iso,ttl=epoch_s``; default is ISO 8601."""
    operation_by: str | None = None
    """Column that says put, delete or update for each row; it is not written as an attribute."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the whole job may use."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) write units; provisioned: 0.5."""
    warm_up: bool = False
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None = None
    """Folder or s3:// prefix for rows that cannot be written; without it, one such row fails the job."""
    max_rejects: Annotated[int, Field(ge=0)] | None = None
    """Fail the job if more rows than this are rejected; the rejected rows are kept. Default is no limit."""
    reject_format: Literal["json", "parquet"] = "json"
    """Keep rejected rows as lines of JSON or as Parquet."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Requests in flight at the same time; default is 8, or what the budget needs if each request takes one row."""
    compress_requests: bool = False
    """Send large requests gzip-compressed: fewer bytes for more CPU."""

    @model_validator(mode="after")
    def _check_write(self) -> WriteOptions:
        if self.wcu_per_second is not None and self.write_ratio is not None:
            raise ValueError("give wcu_per_second or write_ratio, not both")
        if self.max_rejects is not None and self.reject_to is None:
            raise ValueError("max_rejects asks for reject_to: without it the first rejected row fails the job")
        if self.newer_by is not None and self.mode not in {"upsert", "delete"}:
            raise ValueError(f"newer_by has no meaning in mode {self.mode}")
        if self.operation_by is not None and self.mode != "upsert":
            raise ValueError("operation_by decides row by row: leave mode out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LoadOptions(SourceOptions, WriteOptions):
    """Choose files, and how their rows are written to a live table."""

    CHANGEABLE: ClassVar = frozenset(
        {"engine", "tasks", "unique_keys", "job_id", "state", "shared_paths", "retry_rejects", "create_table", "key"}
    )

    schema: Any = None
    """Types of CSV and plain JSON: ``ItemSchema``, ``pyarrow.Schema`` or JSON text; default is inferred."""
    types: Pairs | None = None
    """The same for some columns by name: ``id=string,price=number,paid=bool,more=json``."""
    engine: Engine = "auto"
    """Run on threads of this process (``local``), on Spark, or choose by size."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of Spark tasks; default is one for each 32 MiB of the source."""
    unique_keys: bool = False
    """Each key occurs once in the source, so that its parts may be read in any order, and need no shuffle on Spark."""
    job_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")] | None = None
    """Name of this load: run again under the same name, it continues after what is finished."""
    state: str | None = None
    """Folder or s3:// prefix for checkpoints; default is this user's state folder."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    retry_rejects: bool = False
    """Read the source as a folder of rejected rows, and try those again."""
    create_table: bool = False
    """Create the table, on demand, if it does not exist."""
    key: str | None = None
    """Key of the table that ``create_table`` creates: ``pk:S`` or ``pk:S,sk:N``; default is that which files state."""

    @model_validator(mode="after")
    def _check_load(self) -> LoadOptions:
        if self.key is not None and not self.create_table:
            raise ValueError("key is that of the table which create_table creates: give both, or leave key out")
        if self.retry_rejects and (self.job_id is not None or self.state is not None):
            raise ValueError("retry_rejects moves aside what was tried: it has no use for job_id and state")
        twice = dict(self.timestamps or ()).keys() & dict(self.types or ()).keys()
        if twice:
            raise ValueError(f"{min(twice)!r} is in timestamps and in types: keep one")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CreateTableOptions(WaitPolicyOptions):
    """Choose the key, the indexes and the billing of a new table."""

    table: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    key: Annotated[str, Field(min_length=1)]
    """Key of the table: ``pk:S`` or ``pk:S,sk:N``."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes, separated by ``;``: ``name=pk:S,sk:N``, with ``/KEYS_ONLY`` appended to project keys only."""
    billing: Literal["on_demand", "provisioned"] = "on_demand"
    """How the table is billed."""
    rcu: Annotated[int, Field(ge=1)] | None = None
    """Read units per second of a provisioned table and of each of its indexes."""
    wcu: Annotated[int, Field(ge=1)] | None = None
    """Write units per second likewise."""

    @model_validator(mode="after")
    def _check_billing(self) -> CreateTableOptions:
        if (self.billing == "provisioned") != (self.rcu is not None and self.wcu is not None):
            raise ValueError("billing=provisioned and both rcu and wcu belong together")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CreateLikeOptions(WaitPolicyOptions):
    """Choose a table and the new table that is created like it."""

    source: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table that is the model."""
    target: Annotated[str, Field(min_length=3)]
    """Name of the table that is created."""
    target_endpoint_url: str | None = None
    """Endpoint of the target's DynamoDB; default is the source's."""
    target_region: str | None = None
    """AWS region of the target; default is the source's."""
    target_profile: str | None = None
    """Named profile for the target; default is the source's."""
    target_role_arn: str | None = None
    """Role to assume for the target; default is the source's."""
    target_external_id: str | None = None
    """External id that the trust policy of the target's role requires."""
    billing: Literal["like", "on_demand"] = "like"
    """Bill the new table as the source is billed, or on demand."""
    kms_key: str | None = None
    """KMS key of the new table: ARN, ``aws/dynamodb``, or ``none`` for the one AWS owns; default is the source's."""
    warm_write_units: Annotated[int, Field(ge=4_000)] | None = None
    """Write units per second that the new table bears from the start (warm throughput); AWS bills those over 4,000."""
    warm_read_units: Annotated[int, Field(ge=12_000)] | None = None
    """Read units per second that the new table bears from the start (warm throughput); AWS bills those over 12,000."""

    @property
    def target_connection(self) -> ConnectionOptions:
        """Return the connection to the target."""
        return target_connection_of(self)

    @property
    def crosses(self) -> bool:
        """Return whether the target is reached through another connection than the source."""
        return any((self.target_endpoint_url, self.target_region, self.target_profile, self.target_role_arn))


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CopyOptions(CreateLikeOptions, LimitOptions):
    """Choose how a table's items are copied into another one."""

    create_target: bool = False
    """Create the target like the source if it does not exist."""
    mode: Literal["upsert", "create"] = "upsert"
    """Overwrite existing items, or skip keys that already exist."""
    newer_by: str | None = None
    """Attribute by which an older item never replaces a newer one."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """Items to copy, as PartiQL's WHERE: ``id = 'a' AND total > 9``. A partition key with values asks by Query."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments of the scan; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Reads, and writes, in flight at the same time; default is 8, and for writes that of a load."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the copy may use of the source."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the source's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the copy may use of the target."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the target's provisioned (or maximum on-demand) write units; provisioned: 0.5."""
    warm_up: bool = False
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None = None
    """Folder or s3:// prefix for items that the target refuses; without it, one such item fails the copy."""
    verify: bool = False
    """Compare the digest of what was read with that of the target afterwards; fail if they differ."""

    @model_validator(mode="after")
    def _check_copy(self) -> CopyOptions:
        if self.source == self.target and not self.crosses:
            raise ValueError("source and target are one table")
        for rate, ratio in (("rcu_per_second", "read_ratio"), ("wcu_per_second", "write_ratio")):
            if getattr(self, rate) is not None and getattr(self, ratio) is not None:
                raise ValueError(f"give {rate} or {ratio}, not both")
        if self.newer_by is not None and self.mode != "upsert":
            raise ValueError(f"newer_by has no meaning in mode {self.mode}")
        if self.verify and (self.mode, self.newer_by, self.reject_to) != ("upsert", None, None):
            raise ValueError("verify compares whole tables: leave mode, newer_by and reject_to out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportFilesOptions(TimeLimitOptions):
    """Choose the files for the service's import that rows are written to."""

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder; the objects to import appear in ``data`` below it."""
    key: str | None = None
    """Key of the new table: ``pk:S`` or ``pk:S,sk:N``."""
    like: str | None = None
    """Table, by name or ARN, whose key the new one gets; or a ``.json`` file with DescribeTable's answer about one."""
    timestamps: Pairs | None = None
    """How columns of dates and times are written, by column: ``created_at=iso,ttl=epoch_s``; default is ISO 8601."""
    duplicates: Literal["fail", "first", "last"] = "fail"
    """If rows share a key: refuse them, or write the first or the last of them."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes of the new table, as ``import start`` takes them: items are checked for their keys."""
    format: ImportFormat = "dynamodb_json"
    """Format of the objects. Ion is written more slowly than JSON; in CSV everything but the key becomes text."""
    delimiter: Literal[",", ";", ":", "|", "\t", " "] | None = None
    """Delimiter of CSV fields: comma, semicolon, colon, bar, tab or space; default is a comma."""
    csv_strings: bool = False
    """Write numbers, booleans and dates outside the key as text; the table then holds them as strings."""
    compression: ImportCompression = "zstd"
    """Compression of the objects."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=1024**3)] = ByteSize(64 * 1024 * 1024)
    """Size of an object before compression; peak memory is several times this."""
    if_absent: bool = False
    """For a bulk put: write each item only if its key does not exist. Experimental: the format is unverified."""
    newer_by: str | None = None
    """For a bulk put: write each item only if no item as new by this attribute exists. Experimental likewise."""
    mode: Literal["error", "overwrite"] = "error"
    """What to do if the target holds files already."""
    overwrite_foreign: bool = False
    """Let ``mode=overwrite`` also delete files that no earlier job of ddbio wrote."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: if a job of this name is committed, it is reported and not run again. Default is a new one."""
    digest: bool = False
    """Compute the order-independent digest of the items, for a comparison with the table."""

    @model_validator(mode="after")
    def _check_key(self) -> ImportFilesOptions:
        if (self.key is None) == (self.like is None):
            raise ValueError("give the key of the new table, or like, a table that has the same")
        if self.if_absent and self.newer_by is not None:
            raise ValueError("give if_absent or newer_by: what is newer is put where nothing is, too")
        if (self.if_absent or self.newer_by is not None) and self.format != "dynamodb_json":
            raise ValueError("if_absent and newer_by are for format=dynamodb_json")
        if self.format != "csv" and (self.delimiter is not None or self.csv_strings):
            raise ValueError("delimiter and csv_strings are for format=csv")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportFilesFromOptions(SourceOptions, ImportFilesOptions):
    """Choose files, and the files for the service's import that their rows are written to."""
