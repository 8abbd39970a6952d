"""Say how long a job of the service is awaited."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PatienceOptions(ConnectionOptions):
    """Say how long a job of the service is awaited."""

    wait_seconds: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Stop waiting after so long; the job itself goes on."""
    poll_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Longest pause between two looks; the first ones are shorter."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WaitOptions(PatienceOptions):
    """Say which job of the service is awaited, and how long."""

    arn: Annotated[str, Field(pattern=r"^arn:")]
    """ARN of the job, as its start reported it."""
