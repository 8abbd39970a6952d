"""Tell where a change record comes from: its table, and the service that wrote it.

Kinesis Data Streams for DynamoDB encodes binary values as base64 twice: the text in ``B`` is the base64 of base64, in
keys and images, sets and nested values (https://github.com/awslabs/amazon-kinesis-client/issues/959 has a record of the
service). DynamoDB Streams, and Lambda events of it, encode once. The source decides, not the value: a record of Kinesis
has ``tableName`` and ``recordFormat``, which a record of DynamoDB Streams never has. A record of this form in which
some value is no base64 of base64 was not written by the service (emulators encode once); its values are left as they
are.
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
# A quote within a text is escaped, and the value of an attribute is an object: only these members match.
_SOURCE = re.compile(r'"(tableName|recordFormat)"(?=[ \t\r\n]*:[ \t\r\n]*")')
_BINARY = re.compile(r'("BS?"[ \t\r\n]*:[ \t\r\n]*)("[^"]*"|\[[^\]]*\])')
# Answers of DynamoDB Streams, and Lambda events of it, hold records and are none.
_BODY = re.compile(r'"Records"[ \t\r\n]*:[ \t\r\n]*\[')
_TEXT = re.compile(r'"([^"]*)"')
_TABLE_OF_ARN = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/([^/]+)")


def table_of(record: Mapping[str, Any]) -> str | None:
    """Return the table that ``tableName`` or ``eventSourceARN`` of a change record names; None if none does."""
    name, arn = record.get("tableName"), record.get("eventSourceARN")
    if isinstance(name, str):
        return name
    found = _TABLE_OF_ARN.match(arn) if isinstance(arn, str) else None
    return None if found is None else found[1]


def once_encoded(text: bytes) -> bytes:
    """Return change records in which binary values are encoded once, as DynamoDB's own JSON has them.

    A record that was changed has ``TableName`` and ``RecordFormat``: doing it twice is the same as doing it once.
    """
    if not (b'"tableName"' in text or b'"recordFormat"' in text) or not (b'"B"' in text or b'"BS"' in text):
        return text
    try:
        whole = text.decode()
    except UnicodeDecodeError:
        return text
    parts, place = list[str](), 0
    while place < len(whole):
        blank = _BLANK.match(whole, place)
        try:
            _, end = _SCANNER.raw_decode(whole, blank.end() if blank else place)
        except (ValueError, RecursionError):
            break
        parts.append(_once_encoded(whole[place:end]))
        place = end
    return "".join([*parts, whole[place:]]).encode()


def _once_encoded(record: str) -> str:
    if _SOURCE.search(record) is None or _BODY.search(record) is not None:
        return record
    try:
        decoded = _BINARY.sub(lambda found: found[1] + _TEXT.sub(_decoded, found[2]), record)
    except ValueError:
        return record
    return _SOURCE.sub(lambda found: f'"{found[1][0].upper()}{found[1][1:]}"', decoded)


def _decoded(found: re.Match[str]) -> str:
    """Return the base64 that is within base64."""
    inner = base64.b64decode(found[1], validate=True)
    if base64.b64encode(base64.b64decode(inner, validate=True)) != inner:
        raise ValueError(found[1])
    return f'"{inner.decode()}"'
