"""Hold one backup of a table; refuses to restore it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddbio.testing.tables.shelf import Stored
    from ddbio.testing.tables.table import Table


@dataclass(slots=True)
class Backup:
    """Hold a table as it was, and since when the backup can be used."""

    arn: str
    name: str
    table: Table
    items: list[Stored]
    created_at: float
    ready_at: float

    def details(self, now: float) -> dict[str, Any]:
        """Return the BackupDetails."""
        return {
            "BackupArn": self.arn,
            "BackupName": self.name,
            "BackupSizeBytes": sum(stored.size_bytes for stored in self.items),
            "BackupStatus": "AVAILABLE" if now >= self.ready_at else "CREATING",
            "BackupType": "USER",
            "BackupCreationDateTime": round(self.created_at, 3),
        }

    def source(self) -> dict[str, Any]:
        """Return the SourceTableDetails."""
        stated = self.table.description
        return {
            "TableName": self.table.name,
            "TableArn": self.table.arn,
            "ItemCount": len(self.items),
            "TableSizeBytes": sum(stored.size_bytes for stored in self.items),
            "TableCreationDateTime": stated["CreationDateTime"],
            **{name: stated[name] for name in ("TableId", "KeySchema", "ProvisionedThroughput")},
            "BillingMode": "PAY_PER_REQUEST" if "BillingModeSummary" in stated else "PROVISIONED",
        }
