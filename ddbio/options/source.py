"""Say which files rows are read from, and how what their names and their text leave open is taken."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG

JsonFormat: TypeAlias = Literal["auto", "plain", "dynamodb"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SourceOptions(ConnectionOptions):
    """Say which files rows are read from."""

    source: Annotated[str, Field(min_length=1)]
    """File, folder or glob, on this machine or under s3://, of Parquet, ORC, JSON Lines, CSV or Arrow."""
    json_format: JsonFormat = "auto"
    """Take JSON for plain rows or for DynamoDB JSON, or tell by the first value of each file."""
    hive_partitions: Literal["add", "ignore", "refuse"] = "add"
    """Add what folders called name=value say as columns, leave it out, or refuse such folders."""
