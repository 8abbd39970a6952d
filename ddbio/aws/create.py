"""Create tables and wait until they can be used; delete and alter none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.failure import to_ddbio_error
from ddbio.errors import EndpointError, NotFoundError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.client import ClientSpec

_POLL_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


def definition_of(spec: ClientSpec, table: str) -> tuple[dict[str, Any], str | None]:
    """Return DescribeTable's ``Table`` as it is, and the attribute by which items expire, if any.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError
        The table is not there, or may not be described.
    """
    client: Any = spec.client("dynamodb")
    try:
        described = client.describe_table(TableName=table)["Table"]
        expiry = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    except (BotoCoreError, ClientError) as error:
        raise to_ddbio_error(error, action="dynamodb:DescribeTable", resource=f"table {table!r}") from error
    enabled = expiry.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
    return described, expiry.get("AttributeName") if enabled else None


def is_table(spec: ClientSpec, table: str) -> bool:
    """Return whether a table exists.

    Raises
    ------
    AccessDeniedError, EndpointError
        It may not be described, or nobody answers.
    """
    try:
        definition_of(spec, table)
    except NotFoundError:
        return False
    return True


def create_table(spec: ClientSpec, request: Mapping[str, Any], expiry: str | None, deadline_seconds: float) -> None:
    """Create a table, wait until it and its indexes are ACTIVE, then let its items expire by an attribute.

    Raises
    ------
    TargetError
        If there is a table of that name.
    EndpointError
        If it is not ACTIVE within the deadline; it may become so later.
    DdbioError
        If the service refuses the request.
    """
    client: Any = spec.client("dynamodb")
    name = request["TableName"]
    try:
        client.create_table(**request)
        _wait(client, name, time.monotonic() + deadline_seconds)
        if expiry is not None:
            wanted = {"Enabled": True, "AttributeName": expiry}
            client.update_time_to_live(TableName=name, TimeToLiveSpecification=wanted)
    except client.exceptions.ResourceInUseException as error:
        raise TargetError(f"table {name!r} exists already: choose another name", name) from error
    except (BotoCoreError, ClientError) as error:
        raise to_ddbio_error(error, action="dynamodb:CreateTable", resource=f"table {name!r}") from error


def _wait(client: Any, name: str, deadline: float) -> None:
    for attempt in range(1_000_000):
        described = client.describe_table(TableName=name)["Table"]
        if described["TableStatus"] == "ACTIVE":
            return
        if time.monotonic() > deadline:
            where = client.meta.endpoint_url
            raise EndpointError(f"table {name!r} is still {described['TableStatus']}: wait, then go on", where)
        time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
