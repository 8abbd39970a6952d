"""Read some items of a table by their keys, consistently, as rows of its log."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.aws.control_plane import call
from ddbio.budget import LocalBudget
from ddbio.errors import ThrottledError
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.items.page import units_in
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.jobs.clients import dynamodb_spec

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.cdc.healing import ExportDecoder
    from ddbio.cdc.options import CaptureHealOptions

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
_MOST_KEYS = 100
_ROUNDS = 50


def read_items(options: CaptureHealOptions, keys: pa.Table, at: datetime, decoder: ExportDecoder) -> pa.Table:
    """Return a row of this time for each key: the item as it is now, or that there is none.

    Parameters
    ----------
    keys
        The key columns, and the rescue column if a key attribute is there.

    Raises
    ------
    ThrottledError
        If the table leaves keys unread again and again.
    """
    budget, lines = LocalBudget(options.rcu_per_second), list[str]()
    names = [name_of_field(each) for each in keys.schema if each.name != RESCUE_NAME]
    texts = [json.loads(line) for line in to_dynamodb_json(keys).splitlines()]
    rows = [each["Item"] if each.keys() == {"Item"} else each for each in texts]
    # The rescue column may have other attributes, too.
    wanted = [{name: each[name] for name in names} for each in rows]
    micros = str(round(at.timestamp() * 1_000_000))
    for start in range(0, len(wanted), _MOST_KEYS):
        asked = wanted[start : start + _MOST_KEYS]
        found = {compact_json({name: item[name] for name in names}): item for item in _read(options, asked, budget)}
        for key in asked:
            change: dict[str, Any] = {"Metadata": {"WriteTimestampMicros": {"N": micros}}, "Keys": key}
            item = found.get(compact_json(key))
            lines.append(compact_json(change | ({} if item is None else {"NewImage": item})))
    found_rows = decoder.decode_lines("\n".join(lines).encode())
    return decoder.schema.empty_table() if found_rows is None else pa.Table.from_batches([found_rows.rows])


def _read(options: CaptureHealOptions, keys: list[dict[str, Any]], budget: LocalBudget) -> list[dict[str, Any]]:
    found, left = list[dict[str, Any]](), [_from_text(each) for each in keys]
    table = options.table
    for _ in range(_ROUNDS):
        grant = budget.acquire(len(left))
        asked = {table: {"Keys": left, "ConsistentRead": True}}
        reply = call(
            dynamodb_spec(options),
            "BatchGetItem",
            f"table {table!r}",
            {"RequestItems": asked, "ReturnConsumedCapacity": "TOTAL"},
        )
        consumed = units_in(reply.get("ConsumedCapacity")) or 0.0
        budget.settle(grant, consumed)
        found += [_to_text(each) for each in next(iter(reply["Responses"].values()), [])]
        left = next((each["Keys"] for each in reply.get("UnprocessedKeys", {}).values()), [])
        if not left:
            return found
    raise ThrottledError(f"table {table!r} left {len(left)} items unread {_ROUNDS} times: try again later", 0.0, 0.0)


def _from_text(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as boto3 takes it, whose binary values are bytes."""
    return {name: _binary(value, base64.b64decode) for name, value in item.items()}


def _to_text(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of boto3 as DynamoDB JSON."""
    return {name: _binary(value, lambda raw: base64.b64encode(bytes(raw)).decode()) for name, value in item.items()}


def _binary(value: dict[str, Any], turn: Any) -> dict[str, Any]:
    ((tag, content),) = value.items()
    match tag:
        case "B":
            return {tag: turn(content)}
        case "BS":
            return {tag: [turn(each) for each in content]}
        case "L":
            return {tag: [_binary(each, turn) for each in content]}
        case "M":
            return {tag: {name: _binary(each, turn) for name, each in content.items()}}
    return value
