"""Say which native export is read, and where its rows go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field
from pydantic.dataclasses import dataclass

from ddbio.options.columns import ColumnOptions
from ddbio.options.connection import ConnectionOptions
from ddbio.options.files import FilesOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportReadOptions(ColumnOptions):
    """Say which native export is read, and into which columns."""

    source: Annotated[str, Field(min_length=1)]
    """The export's folder, which holds manifest-summary.json: ``s3://bucket/…/AWSDynamoDB/ID`` or a local path."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportToFilesOptions(FilesOptions, ExportReadOptions):
    """Say where the rows of an export go, and in which files."""

    format: Literal["parquet", "orc"] = "parquet"
    """Format of the files."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportFoldOptions(ExportToFilesOptions):
    """Say which full export is brought up to which time, and where the rows go."""

    as_of: AwareDatetime | None = None
    """Time at which the state is wanted, the end of a window; default is the end of the last."""
    spill: str | None = None
    """Folder for rows meanwhile, reached by all workers; default is a temporary one, with Spark one in the target."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ExportWindowsOptions(ConnectionOptions):
    """Say from which full export on, and until when, changes are wanted."""

    source: Annotated[str, Field(min_length=1)]
    """The full export's folder, as for reading it."""
    until: AwareDatetime | None = None
    """Time until which changes are wanted; default is now."""
