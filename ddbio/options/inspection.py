"""Options of the verbs that look at what is there, and change nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import ByteSize, Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LayoutOptions(ConnectionOptions):
    """Choose a dataset whose layout is wanted, and where it is shown."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    small_than: Annotated[ByteSize, Field(ge=1)] = ByteSize(128 * 1024 * 1024)
    """Size below which a file is small."""
    html: str | None = None
    """File to write the report to as a page of HTML with charts, besides."""
    png: str | None = None
    """File to write the charts to as a PNG, besides."""
