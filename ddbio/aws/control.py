"""Make one call of DynamoDB's control plane; repeat what failed on the way, and only that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import botocore
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.failure import THROTTLE_CODES, error_code, is_transient, to_ddbio_error
from ddbio.errors import ServiceError

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.client import ClientSpec

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.5


def call(spec: ClientSpec, operation: str, resource: str, members: dict[str, Any], *, repeat: bool = True) -> Any:
    """Return the reply to one call; ask again where the endpoint failed or throttled.

    Parameters
    ----------
    operation
        As the service names it, like ``DescribeTable``.
    resource
        What it is done to, for messages.
    repeat
        Whether asking twice does no harm.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        With the action, the resource and what to do.
    """
    client: Any = spec.client("dynamodb")
    where = f"{resource} ({client.meta.region_name}, {client.meta.endpoint_url})"
    method = getattr(client, xform_name(operation), None)
    if method is None:
        raise ServiceError(f"botocore {botocore.__version__} does not know dynamodb:{operation}: install a newer boto3")
    for attempt in range(_ATTEMPTS):
        try:
            return method(**members)
        except (BotoCoreError, ClientError) as error:
            passes = is_transient(error) or error_code(error) in THROTTLE_CODES
            if not (repeat and passes) or attempt + 1 == _ATTEMPTS:
                raise to_ddbio_error(error, action=f"dynamodb:{operation}", resource=where) from error
            time.sleep(_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def pages(
    spec: ClientSpec, operation: str, resource: str, members: dict[str, Any], token: str, start: str | None = None
) -> list[Any]:
    """Return the replies to all pages of a listing.

    Parameters
    ----------
    token
        The member by which replies name the next page.
    start
        The member by which requests ask for it, where that has another name.

    Raises
    ------
    NotFoundError, AccessDeniedError, EndpointError, ServiceError
        As :func:`call` says.
    """
    replies = [call(spec, operation, resource, members)]
    while token in replies[-1]:
        replies.append(call(spec, operation, resource, {**members, start or token: replies[-1][token]}))
    return replies


def time_text(at: datetime | None) -> str | None:
    """Return a time of a reply as ISO 8601."""
    return None if at is None else at.isoformat()
