"""Consistent reads of some items of a table by their keys, as rows of its log."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.aws.error_codes import BotoCoreError, ClientError, may_pass, to_ddbio_error
from ddbio.aws.transport import open_body_sender
from ddbio.budget import LocalBudget
from ddbio.errors import ThrottledError
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.items.page import units_in
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.jobs.clients import dynamodb_spec
from ddbio.retrying import retrying

if TYPE_CHECKING:
    from datetime import datetime

    from ddbio.aws.transport import BodySender
    from ddbio.cdc.healing import ExportDecoder
    from ddbio.cdc.options import CaptureHealOptions

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
_MAX_KEYS = 100
_ROUNDS = 50
_ATTEMPTS, _BASE_SECONDS = 9, 0.2


def read_items(options: CaptureHealOptions, keys: pa.Table, at: datetime, decoder: ExportDecoder) -> pa.Table:
    """Return a row with this time for each key: the current item, or a delete if there is none.

    Parameters
    ----------
    keys
        The key columns, and the rescue column if a key attribute is in it.

    Raises
    ------
    ThrottledError
        If the table leaves keys unread repeatedly.
    """
    budget, lines = LocalBudget(options.rcu_per_second), list[str]()
    names = [name_of_field(field) for field in keys.schema if field.name != RESCUE_NAME]
    texts = [json.loads(line) for line in to_dynamodb_json(keys).splitlines()]
    rows = [text["Item"] if text.keys() == {"Item"} else text for text in texts]
    # The rescue column may also have other attributes.
    key_items = [{name: row[name] for name in names} for row in rows]
    micros = str(round(at.timestamp() * 1_000_000))
    for start in range(0, len(key_items), _MAX_KEYS):
        requested = key_items[start : start + _MAX_KEYS]
        items = {compact_json({name: item[name] for name in names}): item for item in _read(options, requested, budget)}
        for key in requested:
            change: dict[str, Any] = {"Metadata": {"WriteTimestampMicros": {"N": micros}}, "Keys": key}
            item = items.get(compact_json(key))
            lines.append(compact_json(change | ({} if item is None else {"NewImage": item})))
    found_rows = decoder.decode_lines("\n".join(lines).encode())
    return decoder.schema.empty_table() if found_rows is None else pa.Table.from_batches([found_rows.rows])


def _read(options: CaptureHealOptions, keys: list[dict[str, Any]], budget: LocalBudget) -> list[dict[str, Any]]:
    items, remaining, table = list[dict[str, Any]](), keys, options.table
    with contextlib.closing(open_body_sender(dynamodb_spec(options), 1)) as sender:
        for _ in range(_ROUNDS):
            grant = budget.acquire(len(remaining))
            request_items = {table: {"Keys": remaining, "ConsistentRead": True}}
            reply = _send(sender, table, {"RequestItems": request_items, "ReturnConsumedCapacity": "TOTAL"})
            budget.settle(grant, units_in(reply.get("ConsumedCapacity")) or 0.0)
            items += next(iter(reply["Responses"].values()), [])
            remaining = next((unprocessed["Keys"] for unprocessed in reply.get("UnprocessedKeys", {}).values()), [])
            if not remaining:
                return items
    raise ThrottledError(
        f"table {table!r} left {len(remaining)} items unread {_ROUNDS} times: try again later", 0.0, 0.0
    )


def _send(sender: BodySender, table: str, request: dict[str, Any]) -> dict[str, Any]:
    body = compact_json(request).encode()
    try:
        reply = retrying(
            lambda: sender.begin("BatchGetItem", table, body).result(),
            on=may_pass,
            attempts=_ATTEMPTS,
            base_seconds=_BASE_SECONDS,
        )
    except (BotoCoreError, ClientError) as error:
        raise to_ddbio_error(error, action="dynamodb:BatchGetItem", resource=f"table {table!r}") from error
    response: dict[str, Any] = json.loads(reply)
    return response
