"""Options of waiting for what DynamoDB does by itself: jobs, and new tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class WaitPolicyOptions(ConnectionOptions):
    """Choose how long a job of the service is awaited."""

    wait_seconds: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Stop waiting after this long; the job itself continues."""
    poll_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Longest pause between two status requests; the first pauses are shorter."""
