"""Options of policies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ddbio.options.parsing import CONFIG, Names


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class IamOptions:
    """Say what a policy has to know that the verb's own options do not tell."""

    account: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """Account of tables, keys and catalogs that are named without an ARN; default is that of the role, else any."""
    principal: Literal["job", "target", "caller"] = "job"
    """Whose policy: of the job, of the other identity that ``target_role_arn`` or ``target_profile`` names, or of the
    caller, who assumes the roles."""
    vpc_endpoint: Names | None = None
    """Ids of the VPC endpoints by which all requests come, ``vpce-…``, separated by commas."""
    bucket_kms_key: str | None = None
    """KMS key by which the buckets encrypt what no option says otherwise of."""
    table_kms_key: str | None = None
    """KMS key of yours by which the tables are encrypted."""
    partition_key: str | None = None
    """Partition key of the table, or of the index: with it a Query is told from a Scan where ``where`` is given."""
