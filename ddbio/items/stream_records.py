"""Source of a change record: its table, and the service that wrote it.

Kinesis Data Streams for DynamoDB encodes binary values as base64 twice: the text in ``B`` is the base64 of base64, in
keys and images, sets and nested values (https://github.com/awslabs/amazon-kinesis-client/issues/959 has a record of the
service). DynamoDB Streams, and Lambda events of it, encode once. The source decides, not the value: a record of Kinesis
has ``tableName`` and ``recordFormat``, which a record of DynamoDB Streams never has. If a value in such a record is not
base64 of base64, the service did not write the record (emulators encode once), and its values are unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK = re.compile(r"[ \t\r\n,]*")
_SCANNER = json.JSONDecoder()
# A quote within a text is escaped, and the value of an attribute is an object, so only these members match.
_SOURCE = re.compile(r'"(tableName|recordFormat)"(?=[ \t\r\n]*:[ \t\r\n]*")')
_BINARY = re.compile(r'("BS?"[ \t\r\n]*:[ \t\r\n]*)("[^"]*"|\[[^\]]*\])')
# Responses of DynamoDB Streams, and Lambda events of it, contain records but are not records.
_BODY = re.compile(r'"Records"[ \t\r\n]*:[ \t\r\n]*\[')
_TEXT = re.compile(r'"([^"]*)"')
_TABLE_OF_ARN = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/([^/]+)")


def table_of(record: Mapping[str, Any]) -> str | None:
    """Return the table in ``tableName`` or ``eventSourceARN`` of a change record, or None if it has neither."""
    name, arn = record.get("tableName"), record.get("eventSourceARN")
    if isinstance(name, str):
        return name
    match = _TABLE_OF_ARN.match(arn) if isinstance(arn, str) else None
    return None if match is None else match[1]


def once_encoded(text: bytes) -> bytes:
    """Return change records with binary values that are encoded once, as in DynamoDB's JSON.

    A changed record has ``TableName`` and ``RecordFormat``, so applying this function twice changes nothing more.
    """
    if not (b'"tableName"' in text or b'"recordFormat"' in text) or not (b'"B"' in text or b'"BS"' in text):
        return text
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return text
    parts, position = list[str](), 0
    while position < len(decoded):
        blank = _BLANK.match(decoded, position)
        try:
            _, end = _SCANNER.raw_decode(decoded, blank.end() if blank else position)
        except (ValueError, RecursionError):
            break
        parts.append(_decode_record(decoded[position:end]))
        position = end
    return "".join([*parts, decoded[position:]]).encode()


def _decode_record(record: str) -> str:
    if _SOURCE.search(record) is None or _BODY.search(record) is not None:
        return record
    try:
        decoded = _BINARY.sub(lambda match: match[1] + _TEXT.sub(_decode_twice_encoded, match[2]), record)
    except ValueError:
        return record
    return _SOURCE.sub(lambda match: f'"{match[1][0].upper()}{match[1][1:]}"', decoded)


def _decode_twice_encoded(match: re.Match[str]) -> str:
    """Return the inner base64 of a text that was encoded twice."""
    inner = base64.b64decode(match[1], validate=True)
    if base64.b64encode(base64.b64decode(inner, validate=True)) != inner:
        raise ValueError(match[1])
    return f'"{inner.decode()}"'
