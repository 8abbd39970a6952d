"""Options that price a job, and bound what it may consume, beside the rate at which it may consume it."""

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
    """Choose what a job may cost, and by which prices."""

    CHANGEABLE: ClassVar = ALL

    max_usd: Annotated[float, Field(gt=0)] | None = None
    """Refuse the job if its plan costs more; stop it at a tenth more."""
    prices: str | None = None
    """File with a book of prices, in the form of ddbio's own; default is the newest book of the region that is here."""
    compute: str | None = None
    """What the job runs on, for its price: ``glue:G.1X*10``, ``emr-serverless:4vCPU-16GB*10``, ``ec2:m5.xlarge*10``."""

    @model_validator(mode="after")
    def _check_compute(self) -> PriceOptions:
        if self.compute is not None and not _COMPUTE.fullmatch(self.compute):
            raise ValueError(
                f"compute {self.compute!r} is none that is known: give glue:G.1X*10, glue-flex:G.1X*10, "
                "emr-serverless:4vCPU-16GB*10, emr:m5.xlarge*10 or ec2:m5.xlarge*10"
            )
        return self


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class TimeLimitOptions(PriceOptions):
    """Bound a job that consumes no capacity units: refuse it by its plan, and stop it at a tenth above a limit."""

    CHANGEABLE: ClassVar = ALL

    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Refuse the job if it is expected to take longer than this; stop it at a tenth more."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LimitOptions(TimeLimitOptions):
    """Bound a job: refuse it if its plan is above a limit, and stop it when it exceeds one by a tenth."""

    CHANGEABLE: ClassVar = ALL

    max_units: Annotated[float, Field(gt=0)] | None = None
    """Refuse the job if its plan has more capacity units than this; stop it at a tenth more."""
