"""Transformation of Firehose records with changes, in a Lambda function, to one flat line of plain JSON per change."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError
from ddbio.formats.log_columns import (
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    OPERATION,
    SEQUENCE,
    TABLE,
    TIME_TO_LIVE,
    line_member,
)
from ddbio.items.change_lines import checked_changes
from ddbio.items.json_text import compact_json
from ddbio.items.number import canonical_number
from ddbio.items.stream_records import table_of

if TYPE_CHECKING:
    from ddbio.items.attribute import AttributeValue, Item
    from ddbio.items.change_lines import Change

# https://docs.aws.amazon.com/firehose/latest/dev/data-transformation.html: the response of the function has at most 6
# MB.
MAX_ANSWER_BYTES = 6_000_000
_FRAME_BYTES = 300
_MICROS = 1_000_000


def transform_event(event: dict[str, Any], table: str | None = None) -> dict[str, Any]:
    """Return the response to an event of Firehose's data transformation.

    Each change is one line with a line end. Its year, month, day and hour, in UTC, are the partition keys. A record
    that is not a change, or that exceeds the size limit of the response, is ``ProcessingFailed`` and is written to the
    error prefix.

    Parameters
    ----------
    table
        Changes of other tables are ``Dropped``, so that Firehose does not deliver them.
    """
    answers, size_bytes = list[dict[str, Any]](), 0
    for record in event["records"]:
        answer = _answer(record, table)
        size_bytes += len(answer["data"]) + len(record["recordId"]) + _FRAME_BYTES
        if size_bytes > MAX_ANSWER_BYTES and answer["result"] == "Ok":
            size_bytes -= len(answer["data"])
            # Without its data: Firehose keeps the data that it sent.
            answer = {"recordId": record["recordId"], "result": "ProcessingFailed"}
        answers.append(answer)
    return {"records": answers}


def change_line(body: bytes) -> tuple[str, datetime]:
    """Return one change as a line of plain JSON, and its time.

    Raises
    ------
    DecodeError
        If the text is not exactly one change.
    """
    change, record = _change_of(body)
    at = _time_of(change)
    identity = record.get("userIdentity") or {}
    principal = identity.get("principalId", identity.get("PrincipalId"))
    own = {
        OPERATION: record.get("eventName") or ("REMOVE" if change.is_delete else "MODIFY"),
        SEQUENCE: (record.get("dynamodb") or {}).get("SequenceNumber"),
        EVENT_ID: record.get("eventID"),
        TABLE: table_of(record),
        EVENT_TIME: at.isoformat(timespec="microseconds"),
        EXPIRED: principal == TIME_TO_LIVE,
    }
    members = [f"{compact_json(name)}:{compact_json(value)}" for name, value in own.items() if value is not None]
    item: Item = {**change.keys, **(change.new_image or {})}
    members += [f"{compact_json(line_member(name))}:{_plain(value)}" for name, value in item.items()]
    return f"{{{','.join(members)}}}", at


def change_time(body: bytes) -> datetime:
    """Return the time of one change. Errors are those of :func:`change_line`."""
    return _time_of(_change_of(body)[0])


def _change_of(body: bytes) -> tuple[Change, dict[str, Any]]:
    changes = list(checked_changes(body))
    if len(changes) != 1:
        raise DecodeError(f"a record has {len(changes)} changes, not one")
    return changes[0], json.loads(body)


def _time_of(change: Change) -> datetime:
    return datetime.fromtimestamp(change.write_time / _MICROS, UTC)


def partition_keys(at: datetime) -> dict[str, str]:
    """Return year, month, day and hour of a time in UTC, as text."""
    return {"year": f"{at:%Y}", "month": f"{at:%m}", "day": f"{at:%d}", "hour": f"{at:%H}"}


def _answer(record: dict[str, Any], table: str | None) -> dict[str, Any]:
    try:
        body = base64.b64decode(record["data"], validate=True)
        line, at = change_line(body)
        if table is not None and table_of(json.loads(body)) not in {None, table}:
            return {"recordId": record["recordId"], "result": "Dropped", "data": record["data"]}
    except (DecodeError, ValueError):
        return {"recordId": record["recordId"], "result": "ProcessingFailed", "data": record["data"]}
    return {
        "recordId": record["recordId"],
        "result": "Ok",
        "data": base64.b64encode(f"{line}\n".encode()).decode(),
        "metadata": {"partitionKeys": partition_keys(at)},
    }


def _plain(value: AttributeValue) -> str:
    """Return an attribute value as plain JSON. A number keeps its digits, binary stays base64."""
    ((tag, content),) = value.items()
    match tag:
        case "N":
            return canonical_number(content)
        case "NS":
            return f"[{','.join(map(canonical_number, content))}]"
        case "NULL":
            return "null"
        case "L":
            return f"[{','.join(map(_plain, content))}]"
        case "M":
            return f"{{{','.join(f'{compact_json(name)}:{_plain(element)}' for name, element in content.items())}}}"
        case _:
            return compact_json(content)
