"""Say which native export is read, and where its rows go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.columns import ColumnOptions
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
