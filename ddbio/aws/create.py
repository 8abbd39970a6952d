"""Read what defines a table and ask for one like it; wait for none, delete and alter none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.aws.control import call

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec


def definition_of(spec: ClientSpec, table: str) -> tuple[dict[str, Any], str | None]:
    """Return DescribeTable's ``Table`` as it is, and the attribute by which items expire, if any.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    members = {"TableName": table}
    described = call(spec, "DescribeTable", f"table {table!r}", members)["Table"]
    expiry = call(spec, "DescribeTimeToLive", f"table {table!r}", members)["TimeToLiveDescription"]
    enabled = expiry.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
    return described, expiry.get("AttributeName") if enabled else None


def start_table(spec: ClientSpec, request: dict[str, Any]) -> None:
    """Ask for a table; it can be used once it is ACTIVE.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    call(spec, "CreateTable", f"table {request['TableName']!r}", request, repeat=False)


def expire_by(spec: ClientSpec, table: str, attribute: str) -> None:
    """Let the items of a table expire by an attribute.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`ddbio.aws.control.call` says.
    """
    wanted = {"Enabled": True, "AttributeName": attribute}
    members = {"TableName": table, "TimeToLiveSpecification": wanted}
    call(spec, "UpdateTimeToLive", f"table {table!r}", members, repeat=False)
