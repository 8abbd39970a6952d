"""Options of validation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.connection import ConnectionOptions, target_connection_of
from ddbio.options.format_names import InputFormat
from ddbio.options.limits import LimitOptions
from ddbio.options.parsing import CONFIG, Engine, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ValidateOptions(LimitOptions):
    """Two sides to compare, the comparison, and quality rules."""

    source: Annotated[str, Field(min_length=1)]
    """Table, export, or files."""
    target: str | None = None
    """Table, export or files to compare with. Default: only evaluate rules."""
    input_format: InputFormat | None = None
    """Format of all files. Default: detected by name, else by content."""
    key: Names | None = None
    """Key attributes. Default: from the table or the files' manifest."""
    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or JSON text: column types of both sides."""
    nulls: Literal["auto", "keep", "merge"] = "auto"
    """``keep``: NULL and missing differ. ``merge``: they are equal. ``auto``: by the files."""
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the keys to compare, by key hash."""
    examples: Annotated[int, Field(ge=0, le=1_000)] = 10
    """Differing keys of each kind, with both items. 0 saves the second read."""
    rules: str | None = None
    """Quality rules (YAML file) for the target, or for a source alone."""
    html: str | None = None
    """HTML file for the report."""
    engine: Engine = "local"
    """This process or Spark tasks. ``auto``: Spark if a session is running."""
    shared_paths: bool = False
    """All Spark workers see the same local paths, for example by NFS."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments. Default: from the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments that are read in parallel."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read budget of each table in turn, in RCU/s."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """Read budget as a share of provisioned or maximum on-demand capacity. Default if provisioned: 0.5."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items to sample, if nothing else defines the schema."""
    target_endpoint_url: str | None = None
    """DynamoDB endpoint of the target. Default: the source's."""
    target_region: str | None = None
    """AWS region of the target. Default: the source's."""
    target_profile: str | None = None
    """Named profile for the target. Default: the source's."""
    target_role_arn: str | None = None
    """Role to assume for the target. Default: the source's."""
    target_external_id: str | None = None
    """External ID of the target's role."""

    @property
    def target_connection(self) -> ConnectionOptions:
        """Return the connection to the target."""
        return target_connection_of(self)

    @model_validator(mode="after")
    def _check_validate(self) -> ValidateOptions:
        if self.rcu_per_second is not None and self.read_ratio is not None:
            raise ValueError("give rcu_per_second or read_ratio, not both")
        if self.target is None and self.sample < 1:
            raise ValueError("sample chooses keys to compare: give a target, or leave it out")
        if self.target is None and self.rules is None:
            raise ValueError("give a target to compare with, or rules to evaluate on the source alone")
        return self
