"""Answer for a table's time to live and its point-in-time recovery; refuses to expire anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.testing.calls.control import existing_table
from ddbio.testing.refusal import invalid, malformed, table_not_found
from ddbio.testing.tables.journal import Journal

if TYPE_CHECKING:
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PointInTimeRecoverySpecification.html
MAX_RECOVERY_DAYS = 35


def update_time_to_live(database: Database, request: Request) -> dict[str, Any]:
    """Name the attribute by which items would expire, or take the name away."""
    table = existing_table(database, request)
    specification = request.required("TimeToLiveSpecification")
    match specification:
        case {"Enabled": bool(enabled), "AttributeName": str(name)} if name:
            pass
        case _:
            raise malformed()
    if enabled == (table.expiry is not None):
        raise invalid(f"TimeToLive is already {'enabled' if enabled else 'disabled'}")
    if not enabled and name != table.expiry:
        raise invalid(f"TimeToLive is active on a different AttributeName: current AttributeName is {table.expiry}")
    table.expiry = name if enabled else None
    return {"TimeToLiveSpecification": {"Enabled": enabled, "AttributeName": name}}


def describe_time_to_live(database: Database, request: Request) -> dict[str, Any]:
    """Describe by which attribute items would expire."""
    expiry = existing_table(database, request).expiry
    if expiry is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": expiry}}


def update_continuous_backups(database: Database, request: Request) -> dict[str, Any]:
    """Turn point-in-time recovery on or off."""
    table = _backed_up(database, request)
    specification = request.required("PointInTimeRecoverySpecification")
    if type(specification) is not dict or type(specification.get("PointInTimeRecoveryEnabled")) is not bool:
        raise malformed()
    days = specification.get("RecoveryPeriodInDays", MAX_RECOVERY_DAYS)
    if type(days) is not int or not 1 <= days <= MAX_RECOVERY_DAYS:
        raise invalid(f"RecoveryPeriodInDays must be between 1 and {MAX_RECOVERY_DAYS}")
    if not specification["PointInTimeRecoveryEnabled"]:
        table.recovery = table.journal = table.shelf.told = None
    elif table.recovery is None:
        table.recovery = (database.wall.now(), days)
        table.journal = Journal(database.wall.now)
        table.shelf.told = table.journal.add
    else:
        table.recovery = (table.recovery[0], days)
    return _backups(table, database.wall.now())


def describe_continuous_backups(database: Database, request: Request) -> dict[str, Any]:
    """Describe whether point-in-time recovery is on, and since when."""
    return _backups(_backed_up(database, request), database.wall.now())


def _backed_up(database: Database, request: Request) -> Table:
    name = request.table_name()
    if name not in database.tables:
        raise table_not_found(f"Table not found: {name}")
    return database.tables[name]


def _backups(table: Table, now: float) -> dict[str, Any]:
    recovery: dict[str, Any] = {"PointInTimeRecoveryStatus": "DISABLED"}
    if table.recovery is not None:
        since, days = table.recovery
        recovery = {
            "PointInTimeRecoveryStatus": "ENABLED",
            "RecoveryPeriodInDays": days,
            "EarliestRestorableDateTime": round(since, 3),
            "LatestRestorableDateTime": round(now, 3),
        }
    described = {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}
    return {"ContinuousBackupsDescription": described}
