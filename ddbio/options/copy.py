"""Say which table is taken as a model, and which one its items go to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, connection_of
from ddbio.options.parsing import CONFIG
from ddbio.options.waiting import PatienceOptions


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CreateLikeOptions(PatienceOptions):
    """Say which table is created, and after which one's model."""

    source: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table that is the model."""
    target: Annotated[str, Field(min_length=3)]
    """Name of the table that is created."""
    target_endpoint_url: str | None = None
    """Endpoint of the target's DynamoDB; default is the source's."""
    target_region: str | None = None
    """AWS region of the target; default is the source's."""
    target_profile: str | None = None
    """Named profile for the target; default is the source's."""
    target_role_arn: str | None = None
    """Role to assume for the target; default is the source's."""
    target_external_id: str | None = None
    """External id that the trust policy of the target's role asks for."""
    billing: Literal["like", "on_demand"] = "like"
    """Bill the new table as the source is billed, or on demand."""
    kms_key: str | None = None
    """KMS key of the new table: ARN, ``aws/dynamodb``, or ``none`` for the one AWS owns; default is the source's."""
    warm_write_units: Annotated[int, Field(ge=4_000)] | None = None
    """Write units per second that the new table bears from its first moment on; AWS bills what exceeds 4,000."""
    warm_read_units: Annotated[int, Field(ge=12_000)] | None = None
    """Read units per second that the new table bears from its first moment on; AWS bills what exceeds 12,000."""

    @property
    def target_connection(self) -> ConnectionOptions:
        """Return the connection to the target."""
        own = connection_of(self)
        given = {name: getattr(self, f"target_{name}", None) for name in own}
        if self.target_role_arn is not None:
            # Another role has an external id of its own, or none.
            own["external_id"] = None
        return ConnectionOptions(**own | {name: value for name, value in given.items() if value is not None})

    @property
    def crosses(self) -> bool:
        """Return whether the target is reached in another way than the source."""
        return any((self.target_endpoint_url, self.target_region, self.target_profile, self.target_role_arn))


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CopyOptions(CreateLikeOptions):
    """Say how a table's items are copied into another one."""

    create: bool = False
    """Create the target like the source where there is no such table."""
    mode: Literal["upsert", "create"] = "upsert"
    """Put every item, or only where the target has none of its key."""
    newer_by: str | None = None
    """Attribute by which an older item never replaces a newer one."""
    consistent: bool = False
    """Read strongly consistent, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments of the scan; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Requests in flight at the same time, of reads and of writes; default is 8, and for writes that of a load."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that the copy may use of the source."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the source's provisioned (or maximum on-demand) read units."""
    wcu_per_second: Annotated[float, Field(ge=1)] | None = None
    """Write units per second that the copy may use of the target."""
    write_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of the target's provisioned (or maximum on-demand) write units."""
    warm_up: bool = False
    """Begin with the 4,000 WCU/s that a new on-demand table bears and double every half hour."""
    reject_to: str | None = None
    """Folder or s3:// prefix for items that the target refuses; without it, one such item fails the copy."""
    verify: bool = False
    """Digest what was read and what the target then holds; fail where they differ."""

    @model_validator(mode="after")
    def _check_copy(self) -> CopyOptions:
        if self.source == self.target and not self.crosses:
            raise ValueError("source and target are one table")
        for rate, ratio in (("rcu_per_second", "read_ratio"), ("wcu_per_second", "write_ratio")):
            if getattr(self, rate) is not None and getattr(self, ratio) is not None:
                raise ValueError(f"give {rate} or {ratio}, not both")
        if self.newer_by is not None and self.mode != "upsert":
            raise ValueError(f"newer_by has no meaning in mode {self.mode}")
        if self.verify and (self.mode, self.newer_by, self.reject_to) != ("upsert", None, None):
            raise ValueError("verify compares whole tables: leave mode, newer_by and reject_to out")
        return self
