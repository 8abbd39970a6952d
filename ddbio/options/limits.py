"""Options that bound what a job may consume, beside the rate at which it may consume it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import CONFIG


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LimitOptions(ConnectionOptions):
    """Bound a job: refuse it if its plan is above a limit, and stop it when it exceeds one by a tenth."""

    max_units: Annotated[float, Field(gt=0)] | None = None
    """Refuse the job if its plan has more capacity units than this; stop it at a tenth more."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Likewise for the seconds that it is expected to take, and takes."""
    max_usd: Annotated[float, Field(gt=0)] | None = None
    """Likewise for its capacity units in USD; those of provisioned tables cost nothing more."""
    prices: str | None = None
    """File with a book of prices, in the form of ddbio's own; default is the book that ddbio has."""
