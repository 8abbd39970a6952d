"""Check every option once, where Python keywords, Spark option text and CLI flags meet; refuses unknown names.

Each verb has one frozen options class. A name may be given in snake_case, camelCase or, as PySpark hands it to a data
source, all lower case. Values may be text. What is wrong is one :class:`~ddbio.errors.OptionError`.
"""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)
from pydantic import ValidationError as PydanticError
from pydantic.dataclasses import dataclass

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["auto", "local", "spark"]
Mode = Literal["error", "append", "overwrite"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]

OptionsT = TypeVar("OptionsT", bound="ConnectionOptions")


def camel_case(name: str) -> str:
    """Return the Spark spelling of a field name: ``rcu_per_second`` is ``rcuPerSecond``."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _spellings(name: str) -> AliasChoices:
    camel = camel_case(name)
    return AliasChoices(name, camel, camel.lower())


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_split_names), Field(min_length=1)]

_CONFIG = ConfigDict(
    alias_generator=AliasGenerator(validation_alias=_spellings),
    arbitrary_types_allowed=True,
    extra="forbid",
    use_attribute_docstrings=True,
)


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ConnectionOptions:
    """Say which AWS endpoint, region and identity a verb uses; everything left out is boto3's own default chain."""

    endpoint_url: str | None = None
    """Endpoint of DynamoDB, for example of a local stand-in."""
    region: str | None = None
    """AWS region of the table."""
    profile: str | None = None
    """Named profile of the shared AWS configuration."""
    role_arn: str | None = None
    """Role to assume before any call; refreshed by botocore before it expires."""
    s3_endpoint_url: str | None = None
    """Endpoint of S3; the AWS_ENDPOINT_URL_S3 variable serves as well."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Give up when throttling or an unreachable endpoint let nothing through for this long."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ScanOptions(ConnectionOptions):
    """Say what of a table is read, how fast, and into which columns."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    index: str | None = None
    """Secondary index to scan instead of the table."""
    columns: Names | None = None
    """Attributes to read (ProjectionExpression); default is all."""
    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either (``ddbio schema --json``); default is inferred."""
    consistent: bool = False
    """Read strongly consistent, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments read at the same time, over all tasks."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the whole job may use."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) read units."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Stop after this many items; which ones is not defined."""
    on_misfit: Literal["rescue", "fail", "drop"] = "rescue"
    """Put values that do not fit their column into ``_rescue``, or fail, or drop those of attributes in ``drop``."""
    drop: Names | None = None
    """Attributes whose values are counted but not kept where they do not fit; others are kept in ``_rescue``."""
    nulls: Literal["merge", "keep"] = "merge"
    """Let NULL and missing both be null, or keep each NULL in ``_rescue``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items read, over several segments, to infer the schema."""

    @model_validator(mode="after")
    def _check(self) -> ScanOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns names an attribute twice")
        if (self.on_misfit == "drop") != (self.drop is not None):
            raise ValueError("on_misfit=drop and the attributes to drop belong together: give both or neither")
        return self


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ScanToFilesOptions(ScanOptions):
    """Say where the rows of a scan go, and in which files."""

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    mode: Mode = "error"
    """What to do where the target holds files already."""
    engine: Engine = "auto"
    """Run on threads of this process, on Spark, or choose by size."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    compression: Compression = "zstd"
    """Parquet codec."""
    digest: bool = False
    """Compute the order-independent digest of the items as they came over the wire."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Spark tasks; default is the cluster's parallelism, fewer for small tables."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class WriteOptions(ConnectionOptions):
    """Say how rows become items of a live table, how fast, and what becomes of rows that cannot."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    mode: Literal["upsert", "create", "delete", "update"] = "upsert"
    """Put every row's item; put it only where there is none; delete it; or set the row's attributes of it."""
    newer_by: str | None = None
    """Attribute by which an older row never replaces or deletes a newer item."""
    operation_by: str | None = None
    """Column that says put, delete or update for each row; it is no attribute."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the whole job may use."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the table's provisioned (or maximum on-demand) write units."""
    reject_to: str | None = None
    """Folder or s3:// prefix for rows that cannot be written; without it, one such row fails the job."""
    lanes: Annotated[int, Field(ge=1, le=256)] = 8
    """Requests in flight at the same time; rows of one key always share a lane."""

    @model_validator(mode="after")
    def _check_write(self) -> WriteOptions:
        if self.wcu_per_second is not None and self.write_ratio is not None:
            raise ValueError("give wcu_per_second or write_ratio, not both")
        if self.newer_by is not None and self.mode not in {"upsert", "delete"}:
            raise ValueError(f"newer_by has no meaning in mode {self.mode}")
        if self.operation_by is not None and (self.mode != "upsert" or self.newer_by is not None):
            raise ValueError("operation_by decides row by row: leave mode and newer_by out")
        return self


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class LoadOptions(WriteOptions):
    """Say which files are loaded into a live table."""

    source: Annotated[str, Field(min_length=1)]
    """File, folder or glob, on this machine or under s3://, of Parquet, ORC, JSON Lines, CSV or Arrow."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ExportReadOptions(ConnectionOptions):
    """Say which native export is read, and into which columns."""

    source: Annotated[str, Field(min_length=1)]
    """The export's folder, which holds manifest-summary.json: ``s3://bucket/…/AWSDynamoDB/ID`` or a local path."""
    schema: Any = None
    """``pyarrow.Schema`` of the items or its JSON text (``ddbio schema --json``); default is inferred from a sample."""
    on_misfit: Literal["rescue", "fail"] = "rescue"
    """Put values that do not fit their column into ``_rescue``, or fail."""
    nulls: Literal["merge", "keep"] = "merge"
    """Let NULL and missing both be null, or keep each NULL in ``_rescue``."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items read, from several files, to infer the schema."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ExportToFilesOptions(ExportReadOptions):
    """Say where the rows of an export go, and in which files."""

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    format: Literal["parquet", "orc"] = "parquet"
    """Format of the files."""
    mode: Mode = "error"
    """What to do where the target holds files already."""
    engine: Engine = "auto"
    """Run on threads of this process, on Spark, or on Spark where a session runs already."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024)] = ByteSize(256 * 1024 * 1024)
    """Size at which a file is closed and the next one begun."""
    compression: Compression = "zstd"
    """Codec of the files."""
    tasks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks that share the files; default is one per core, or the cluster's parallelism."""


def parse_options(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Return checked options of one verb, or raise with the first thing that is wrong.

    Raises
    ------
    OptionError
        If a name is unknown (with the nearest known one), a value malformed, or two options contradict each other.
    """
    try:
        return TypeAdapter(cls).validate_python({name: value for name, value in values.items() if value is not None})
    except PydanticError as error:
        raise OptionError(_explain(cls, error)) from None


def descriptions_of(cls: type[ConnectionOptions]) -> dict[str, str]:
    """Return what each option is for, by field name: the docstrings of the fields, inherited ones included."""
    own = (vars(each).get("__pydantic_fields__", {}) for each in cls.__mro__)
    found = [(name, field.description) for described in own for name, field in described.items()]
    return {name: text for name, text in found if text is not None}


def _explain(cls: type[ConnectionOptions], error: PydanticError) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    known = [field.name for field in fields(cls)]
    if first["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
        near = difflib.get_close_matches(name, [*known, *map(camel_case, known)], n=1, cutoff=0.6)
        advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        return f"unknown option {name!r}: {advice}"
    if first["type"] in {"missing", "missing_argument"}:
        return f"option {name!r} is missing"
    message = str(first["msg"]).removeprefix("Value error, ")
    if not name:
        return f"options contradict each other: {message}"
    return f"option {name!r} has value {first.get('input')!r}: {message[:1].lower()}{message[1:]}"
