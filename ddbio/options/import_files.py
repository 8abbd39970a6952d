"""Say which rows become files for the service's own import."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.import_start import split_indexes
from ddbio.options.parsing import CONFIG
from ddbio.options.source import SourceOptions


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ImportFilesOptions(ConnectionOptions):
    """Say how rows become files from which the service makes a new table."""

    dest: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder; the objects to import appear in ``data/`` below it."""
    key: str | None = None
    """Key of the new table: ``pk:S`` or ``pk:S,sk:N``."""
    like: str | None = None
    """Table, by name or ARN, whose key the new one gets; or a ``.json`` file of what DescribeTable said of one."""
    duplicates: Literal["fail", "first", "last"] = "fail"
    """Refuse rows that share a key, or write the first or the last of them."""
    gsi: Annotated[tuple[str, ...], BeforeValidator(split_indexes)] = ()
    """Global indexes of the new table, as ``import start`` takes them: items are checked for their keys."""
    format: Literal["dynamodb_json", "ion", "csv"] = "dynamodb_json"
    """Format of the objects; Ion is written more slowly than JSON; in CSV all but keys becomes text."""
    delimiter: Literal[",", ";", ":", "|", "\t", " "] | None = None
    """What parts the fields of CSV: comma, semicolon, colon, bar, tab or space; default is a comma."""
    csv_strings: bool = False
    """Write numbers, booleans and dates that are in no key as text, which they then are in the table."""
    compression: Literal["zstd", "gzip", "none"] = "zstd"
    """Compression of the objects."""
    target_file_bytes: Annotated[ByteSize, Field(ge=64 * 1024, le=1024**3)] = ByteSize(64 * 1024 * 1024)
    """Size of an object before compression; so much is held in memory a few times."""
    if_absent: bool = False
    """For a bulk put: each item only where none has its key. Experimental, its form is not verified."""
    newer_by: str | None = None
    """For a bulk put: each item only where none is as new by this attribute. Experimental likewise."""
    mode: Literal["error", "overwrite"] = "error"
    """What to do where the target holds files already."""
    overwrite_foreign: bool = False
    """Let mode overwrite delete what no earlier job of ddbio wrote there, too."""
    job_id: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")] | None = None
    """Name of this run: a job that has this name and is committed is reported, not run again. Default is a new one."""
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
    """Say which files become files for an import."""
