"""Options of scans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.columns import ColumnOptions
from ddbio.options.files import FilesOptions, check_lake
from ddbio.options.format_names import FileFormatName, InputFormat, LakeFormatName
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, Names, check_columns

AcceptEncoding = Literal["identity", "gzip"]


@plain_dataclass(eq=False, repr=False)
class GivenKeys:
    """Keys of a read, and their encoding for a table's key attributes."""

    value: Any
    encoded: dict[Any, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a digest of the encoded keys: equal for equal keys."""
        digest = hashlib.blake2b(digest_size=16)
        for keys in self.encoded.values():
            digest.update(b",".join(sorted(keys.texts)))
        return f"GivenKeys({digest.hexdigest()})"


def _as_keys(value: Any) -> Any:
    if value is None or isinstance(value, GivenKeys):
        return value
    if isinstance(value, str):
        try:
            return GivenKeys([*json.loads(value, parse_float=Decimal)])
        except (TypeError, ValueError):
            raise ValueError('write keys as a JSON list: ["a"], [["a", 1]] or [{"pk": "a", "sk": 1}]') from None
    if isinstance(value, Mapping) or not (
        isinstance(value, Sequence) or hasattr(value, "__arrow_c_stream__") or hasattr(value, "columns")
    ):
        raise ValueError("give a list of keys, or an Arrow table or data frame with the key columns")
    return GivenKeys(list(value) if isinstance(value, Sequence) else value)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanOptions(ColumnOptions, LimitOptions):
    """Items to read from a table, the read rate, and the columns."""

    CHANGEABLE: ClassVar = frozenset({"segments", "lanes", "rcu_per_second", "read_ratio", "accept_encoding"})

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    index: str | None = None
    """Secondary index to scan instead of the table."""
    columns: Names | None = None
    """Attributes to read (ProjectionExpression). Default: all."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    keys: Annotated[GivenKeys | None, BeforeValidator(_as_keys), Field(repr=False)] = None
    """Keys (BatchGetItem) or partition keys (Query): a list, Arrow table or data frame."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments that are read in parallel, over all tasks."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Stop after this number of items. Their choice is undefined."""
    accept_encoding: AcceptEncoding = "identity"
    """``gzip`` compresses pages: fewer bytes for more CPU."""

    @model_validator(mode="after")
    def _check_scan(self) -> ScanOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        check_columns(self.columns)
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CountOptions(LimitOptions):
    """Items to count in a table, and the read rate."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    index: str | None = None
    """Secondary index to count instead of the table."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """PartiQL condition: ``id = 'a' AND total > 9``. Partition key values use Query."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    sample: Annotated[float, Field(gt=0, le=1)] | None = None
    """Count only this share of the segments, chosen at random, and estimate the total."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments. Default: from the table's size, the budget, the lanes and the sample."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments that are counted in parallel."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of the whole job, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""

    @model_validator(mode="after")
    def _check_count(self) -> CountOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class InspectOptions(ScanOptions):
    """Items of a table, or files, to inspect."""

    input_format: InputFormat | None = None
    """Format of all files. Default: detected by name, else by content."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class DigestOptions(InspectOptions):
    """Items to digest. NULL differs from missing, as in a table."""

    nulls: Literal["merge", "keep"] = "keep"
    """``merge``: NULL and missing are both null. ``keep``: NULL is kept in ``_rescue``."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ScanToFilesOptions(FilesOptions, ScanOptions):
    """Items to scan, and the output files."""

    CHANGEABLE: ClassVar = frozenset({"buckets", "page_journal"})

    format: Literal[FileFormatName, "dynamodb-export", LakeFormatName] = "parquet"
    """File format; ``dynamodb-export`` (native full export); or a lake table for ``apply``: ``delta``, ``iceberg``,
    ``hudi``."""
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    """Buckets (partitions ``_b``) of a new lake table. They never change."""
    digest: bool = False
    """Compute the order-independent digest of the items."""
    page_journal: Annotated[str, Field(min_length=1)] | None = None
    """Folder for pages of unfinished files, to resume a killed job. On S3: one PUT per page."""

    @model_validator(mode="after")
    def _check_format(self) -> ScanToFilesOptions:
        if self.page_journal is not None and self.job_id is None:
            raise ValueError("page_journal is for a later run of the same job: also give job_id")
        if self.page_journal is not None and self.format in {"dynamodb-export", *LAKE_FORMATS}:
            raise ValueError(f"a job of format {self.format} restarts from the beginning: leave page_journal out")
        check_lake(self, self.format, ("partition_by", "catalog", "index", "columns"))
        if self.format == "dynamodb-export" and self.mode == "append":
            raise ValueError("one job writes an export: give mode error or overwrite")
        if self.format == "dynamodb-export" and self.partition_by is not None:
            raise ValueError("an export has no partitions: leave partition_by out, or give another format")
        if self.format == "dynamodb-export" and self.compression not in {None, "gzip"}:
            raise ValueError("the files of an export are gzip: leave compression out")
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PlanScanOptions(ScanToFilesOptions):
    """Items of a planned scan, and its output files, if any."""

    dest: str | None = None  # type: ignore[assignment]
    """Target of the scan, which is also checked. Default: a scan into memory."""
