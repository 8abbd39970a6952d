"""Options of the verbs about folders of files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class FilesListOptions(ConnectionOptions):
    """Choose a folder of files, and which version of it."""

    path: Annotated[str, Field(min_length=1)]
    """``s3://bucket/prefix`` or a local folder."""
    at_version: Annotated[int, Field(ge=1)] | None = None
    """Version of the folder; default is the newest."""
