"""Cost and resource limits of a job."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions
from ddbio.options.parsing import ALL, CONFIG

_COMPUTE = re.compile(
    r"((glue|glue-flex):G\.(025|1|2|4|8)X|emr-serverless:[0-9]+vCPU-[0-9]+GB|(ec2|emr):[a-z0-9-]+\.[a-z0-9-]+)\*[0-9]+"
)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PriceOptions(ConnectionOptions):
    """Cost limit of a job, and its prices."""

    CHANGEABLE: ClassVar = ALL

    max_usd: Annotated[float, Field(gt=0)] | None = None
    """Refuse a job with a more expensive plan. Stop it at 110 %."""
    prices: str | None = None
    """Price book file of ddbio. Default: the newest local book of the region."""
    compute: str | None = None
    """Compute for the price: ``glue:G.1X*10``, ``emr-serverless:4vCPU-16GB*10``, ``ec2:m5.xlarge*10``."""

    @model_validator(mode="after")
    def _check_compute(self) -> PriceOptions:
        if self.compute is not None and not _COMPUTE.fullmatch(self.compute):
            raise ValueError(
                f"compute {self.compute!r} is unknown: give glue:G.1X*10, glue-flex:G.1X*10, "
                "emr-serverless:4vCPU-16GB*10, emr:m5.xlarge*10 or ec2:m5.xlarge*10"
            )
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class TimeLimitOptions(PriceOptions):
    """Limits of a job without capacity units: refuse it by its plan, and stop it at 110 % of a limit."""

    CHANGEABLE: ClassVar = ALL

    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Refuse a job with a longer expected time. Stop it at 110 %."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LimitOptions(TimeLimitOptions):
    """Limits of a job: refuse it by its plan, and stop it at 110 % of a limit."""

    CHANGEABLE: ClassVar = ALL

    max_units: Annotated[float, Field(gt=0)] | None = None
    """Refuse a job that needs more capacity units. Stop it at 110 %."""
