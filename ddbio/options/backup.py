"""Say which table is backed up or restored, and what is compared afterwards."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field, model_validator
from pydantic.dataclasses import dataclass

from ddbio.options.parsing import CONFIG
from ddbio.options.waiting import PatienceOptions

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateBackup.html
_NAME = r"^[a-zA-Z0-9_.-]{3,255}$"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BackupCreateOptions(PatienceOptions):
    """Say which table is backed up."""

    table: Annotated[str, Field(min_length=1)]
    """Name or ARN of the table."""
    name: Annotated[str, Field(pattern=_NAME)] | None = None
    """Name of the backup; default is the table's with the time."""
    digest: bool = False
    """Scan the table and report its count and digest, for a comparison after a restore; nobody should write to it."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RestoreOptions(PatienceOptions):
    """Say which new table is made of what, and what it is compared with."""

    source: Annotated[str, Field(min_length=1)]
    """ARN of a backup; or a table, by name or ARN, that has point-in-time recovery."""
    target: Annotated[str, Field(min_length=3, max_length=255)]
    """Name of the new table."""
    at: AwareDatetime | None = None
    """Time, with its zone, whose state of the table is restored; default is the latest that can be."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """Digest that the new table must have; it is scanned for that."""
    verify: bool = False
    """Compare count and digest with those of the source table as it is now; both are scanned."""

    @model_validator(mode="after")
    def _check_restore(self) -> RestoreOptions:
        if self.at is not None and "/backup/" in self.source:
            raise ValueError("a backup has one time: at is for a table with point-in-time recovery")
        if self.verify and self.digest is not None:
            raise ValueError("digest compares with what was, verify with what is: give one of them")
        return self
