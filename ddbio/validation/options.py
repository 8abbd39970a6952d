"""Options of validations."""

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
    """Choose two sides that should hold the same items, how they are compared, and quality rules."""

    source: Annotated[str, Field(min_length=1)]
    """A table, an export, or files: ``s3://bucket/prefix``, or a local path."""
    target: str | None = None
    """What should hold the same items; without it only rules are evaluated."""
    input_format: InputFormat | None = None
    """Format of all files, whatever their names say; default is what the name, or else the bytes of each file tell."""
    key: Names | None = None
    """Key attributes by which rows are told apart; default is the table's key, or the one in the files' manifest."""
    schema: Any = None
    """``ItemSchema``, ``pyarrow.Schema`` or the JSON text of either: types of the columns of both sides."""
    nulls: Literal["auto", "keep", "merge"] = "auto"
    """``keep``: NULL and missing differ; ``merge``: they are the same; ``auto``: as the files tell them apart."""
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the keys to compare, chosen by the hash of the key: the same keys of both sides."""
    examples: Annotated[int, Field(ge=0, le=1_000)] = 10
    """Differing keys to show of each kind, with both items; 0 saves the second reading that finds them."""
    rules: str | None = None
    """YAML file of quality rules: of the target, or of the source if there is no target."""
    html: str | None = None
    """File to write the report to as a page of HTML, besides."""
    engine: Engine = "local"
    """Read tables, exports and files in this process (``local``) or by tasks of Spark; ``auto`` is Spark if a session
    is running. A DataFrame's own tasks read it anyway."""
    shared_paths: bool = False
    """All workers of the cluster see local paths as this machine does, for example through NFS."""
    consistent: bool = False
    """Use strongly consistent reads, at twice the read units."""
    segments: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """TotalSegments of the scan; default follows the table's size, the budget and the lanes."""
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Segments read at the same time."""
    rcu_per_second: Annotated[float, Field(gt=0)] | None = None
    """Read units per second that each table may be read with; two tables are read one after the other."""
    read_ratio: Annotated[float, Field(gt=0, le=1.5)] | None = None
    """The same as a share of each table's provisioned (or maximum on-demand) read units; provisioned: 0.5."""
    sample_items: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Items of a table or an export to read first, to infer the schema, if no side and no option says it."""
    target_endpoint_url: str | None = None
    """Endpoint of the target's DynamoDB; default is the source's."""
    target_region: str | None = None
    """AWS region of the target; default is the source's."""
    target_profile: str | None = None
    """Named profile for the target; default is the source's."""
    target_role_arn: str | None = None
    """Role to assume for the target; default is the source's."""
    target_external_id: str | None = None
    """External id that the trust policy of the target's role requires."""

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
