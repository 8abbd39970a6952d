"""Tell whether and since when a table has point-in-time recovery, and turn it on; never turn it off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddbio.aws.control import call
from ddbio.core.table_description import RecoveryDescription
from ddbio.errors import ServiceError

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec

_PAUSE_SECONDS = 2.0
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateContinuousBackups.html
_NOT_YET = "ContinuousBackupsUnavailableException"


def describe_recovery(spec: ClientSpec, table: str) -> RecoveryDescription:
    """Return what DescribeContinuousBackups says of a table.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`ddbio.aws.control.call` says.

    References
    ----------
    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_DescribeContinuousBackups.html
    """
    reply = call(spec, "DescribeContinuousBackups", f"table {table!r}", {"TableName": table})
    stated = reply["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return RecoveryDescription(
        is_on=stated.get("PointInTimeRecoveryStatus") == "ENABLED",
        earliest=stated.get("EarliestRestorableDateTime"),
        latest=stated.get("LatestRestorableDateTime"),
    )


def enable_recovery(spec: ClientSpec, table: str, deadline_seconds: float) -> RecoveryDescription:
    """Turn point-in-time recovery on and return once the service says that it is.

    Raises
    ------
    ServiceError
        If the service does not get there within the deadline.
    NotFoundError, AccessDeniedError, EndpointError
        As :func:`ddbio.aws.control.call` says.
    """
    members = {"TableName": table, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
    ends_at = time.monotonic() + deadline_seconds
    asked = False
    while True:
        try:
            if not asked:
                call(spec, "UpdateContinuousBackups", f"table {table!r}", members)
                asked = True
            facts = describe_recovery(spec, table)
            if facts.is_on:
                return facts
        except ServiceError as error:
            # A table is not ready for it in its first seconds.
            if error.code != _NOT_YET or time.monotonic() > ends_at:
                raise
        if time.monotonic() > ends_at:
            raise ServiceError(
                f"table {table!r} has no point-in-time recovery {deadline_seconds:.0f} s after the request"
            )
        time.sleep(_PAUSE_SECONDS)
