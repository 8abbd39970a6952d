"""Calls for the tags and the resource policies of tables."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import access_denied, invalid, invalid_values, malformed, not_found, service_refusal
from ddbio.testing.request import table_in_arn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.refusal import Refusal
    from ddbio.testing.request import Request
    from ddbio.testing.tables.database import Database
    from ddbio.testing.tables.table import Table

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-dynamodb-tags
_MAX_TAGS = 50


def tag_resource(database: Database, request: Request) -> dict[str, Any]:
    """Add tags to a table. A tag replaces one with the same key."""
    table = _table(database, request, not_found)
    tags = {**table.tags, **request.tags()}
    if len(tags) > _MAX_TAGS:
        raise invalid_values(f"A table can have at most {_MAX_TAGS} tags")
    table.tags = tags
    return {}


def untag_resource(database: Database, request: Request) -> dict[str, Any]:
    """Remove tags from a table by their keys."""
    table = _table(database, request, not_found)
    keys = request.listing("TagKeys") or []
    if any(type(key) is not str for key in keys):
        raise malformed()
    for key in keys:
        table.tags.pop(key, None)
    return {}


def list_tags(database: Database, request: Request) -> dict[str, Any]:
    """List the tags of a table."""
    table = _table(database, request, access_denied)
    return {"Tags": [{"Key": key, "Value": value} for key, value in table.tags.items()]}


def put_policy(database: Database, request: Request) -> dict[str, Any]:
    """Set the resource policy of a table. The text must be a JSON object."""
    table = _table(database, request, not_found)
    text = request.required("Policy")
    try:
        is_object = type(json.loads(text)) is dict
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        raise invalid("Resource-based policy is not a JSON object")
    table.policy = text
    return {"RevisionId": _revision(text)}


def get_policy(database: Database, request: Request) -> dict[str, Any]:
    """Return the resource policy of a table."""
    table = _table(database, request, not_found)
    if table.policy is None:
        raise service_refusal("PolicyNotFoundException", f"Resource-based policy not found for: {table.arn}")
    return {"Policy": table.policy, "RevisionId": _revision(table.policy)}


def delete_policy(database: Database, request: Request) -> dict[str, Any]:
    """Remove the resource policy of a table."""
    _table(database, request, not_found).policy = None
    return {}


def _revision(policy: str) -> str:
    return str(zlib.crc32(policy.encode()))


def _table(database: Database, request: Request, missing: Callable[[str], Refusal]) -> Table:
    arn = request.text("ResourceArn") or ""
    name = table_in_arn(arn)
    if name is None:
        raise invalid(f"Invalid TableArn: Invalid ResourceArn provided as input {arn}")
    if name not in database.tables:
        raise missing(f"Requested resource not found: ResourceArn: {arn} not found")
    return database.tables[name]
