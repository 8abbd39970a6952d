"""Read what Firehose delivers of changes: records behind each other without line ends, in the forms that there are.

A document is a change record of a stream, a line that ``ddbio.lambda_handlers.firehose_transform`` has made, or a
record that failed, as Firehose writes it under the error prefix. All become change records as text.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ddbio.core.capture.columns import (
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    LINE_MEMBERS,
    OLD_IMAGE,
    OLD_RESCUE,
    OPERATION,
    SEQUENCE,
    TIME_TO_LIVE,
    attribute_of_member,
)
from ddbio.core.capture.log_rows import END_OF_TIME
from ddbio.core.capture.plain_lines import split_records
from ddbio.core.items.encode import to_dynamodb_json
from ddbio.core.number import canonical_number
from ddbio.core.schema.arrow import SETS
from ddbio.core.text.change_lines import checked_changes
from ddbio.core.text.json_text import EXACT_DECODER, compact_json
from ddbio.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

_COLUMNS = (*LINE_MEMBERS, OLD_IMAGE, OLD_RESCUE)
_RECORD_MEMBERS = {
    each.lower(): each
    for each in ("eventID", "eventName", "dynamodb", "userIdentity", "ApproximateCreationDateTime", "Keys", "NewImage",
                 "ApproximateCreationDateTimePrecision", "OldImage", "SequenceNumber", "principalId", "type")
}  # fmt: skip
_IMAGES = {"Keys", "NewImage", "OldImage"}
_RAW = "rawData"
_BLANK = re.compile(r"[ \t\r\n,]*")
# Where another document may begin behind one that cannot be read.
_BEGINNINGS = re.compile(r"[}\n]\s*(?=\{)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Failure:
    """Hold what is no change: its bytes, why, how often it was tried, and when it came, in milliseconds since 1970."""

    raw: bytes
    reason: str
    attempts: int = 1
    arrived_at: int | None = None

    def line(self, at: int) -> bytes:
        """Return the line that Firehose writes of it, with a time in milliseconds since 1970."""
        values = {
            "attemptsMade": self.attempts,
            "arrivalTimestamp": at if self.arrived_at is None else self.arrived_at,
            "errorCode": "Ddbio.NotAChange",
            "errorMessage": self.reason,
            "attemptEndingTimestamp": at,
            _RAW: base64.b64encode(self.raw).decode(),
        }
        return f"{compact_json(values)}\n".encode()


@dataclass
class Delivered:
    """Hold what an object has: change records as text, one each; what failed; and error lines that were left out."""

    changes: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    errors: int = 0
    duplicates: int = 0

    def text(self) -> bytes:
        """Return the change records, one a line."""
        return "\n".join(self.changes).encode()


@dataclass(frozen=True)
class DeliveredReader:
    """Read the text of objects that Firehose has delivered.

    Attributes
    ----------
    keys
        The key attributes, for lines whose items do not tell them.
    tags
        DynamoDB's types by attribute, for what plain JSON cannot tell: binary and sets.
    replays
        Whether records that failed before are tried again; otherwise they are left out.
    """

    keys: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    replays: bool = False

    def read(self, text: bytes, most: int | None = None, seen: set[str] | None = None) -> Delivered:
        """Return what a text has; a change whose event id came before in the text is left out.

        Parameters
        ----------
        most
            Read so many documents at most.
        seen
            Event ids that came before; those of the text are added.
        """
        # The loops check a text of nothing but records.
        records = split_records(text, most, seen)
        if records is not None:
            return Delivered(records)
        found, seen = Delivered(), set[str]() if seen is None else seen
        for document, raw in itertools.islice(_documents(text), most):
            self._take(document, raw, found, seen)
        return found

    def read_rows(self, table: pa.Table) -> Delivered:
        """Return what a file of Parquet has, whose columns are those of a line or of a record.

        Raises
        ------
        DecodeError
            If they are neither.
        """
        found = Delivered()
        names = {name.lower() for name in table.column_names}
        if {OPERATION, EVENT_TIME} <= names:
            self._take_rows(table, found)
        elif {"dynamodb", "eventname"} <= names:
            for row in table.to_pylist():
                record = _named(row)
                self._take(record, json.dumps(record, default=_plain_text), found, set())
        else:
            raise DecodeError(
                f"these columns are neither those of change records (eventName, dynamodb) nor of lines ({OPERATION}, "
                f"{EVENT_TIME}): {', '.join(table.column_names[:8])}"
            )
        return found

    def _take(self, document: Any, raw: str, found: Delivered, seen: set[str], attempts: int = 1) -> None:
        try:
            if isinstance(document, DecodeError):
                raise document
            if isinstance(document, dict) and isinstance(document.get(_RAW), str) and "dynamodb" not in document:
                self._take_error(document, raw, found, seen)
                return
            text, event_id = self._record(document, raw)
        except (DecodeError, ValueError, TypeError, ArithmeticError) as error:
            found.failures.append(Failure(raw.encode("utf-8", "surrogateescape"), str(error), attempts))
            return
        if event_id is not None and event_id in seen:
            found.duplicates += 1
            return
        if event_id is not None:
            seen.add(event_id)
        found.changes.append(text)

    def _take_error(self, document: dict[str, Any], raw: str, found: Delivered, seen: set[str]) -> None:
        if not self.replays:
            found.errors += 1
            return
        attempts = 1 + int(document.get("attemptsMade") or 0)
        try:
            inside = base64.b64decode(document[_RAW], validate=True)
        except (binascii.Error, ValueError):
            found.failures.append(Failure(raw.encode("utf-8", "surrogateescape"), "rawData is no base64", attempts))
            return
        inner = Delivered()
        for each, text in _documents(inside):
            self._take(each, text, inner, seen, attempts)
        arrived = document.get("arrivalTimestamp")
        arrived_at = int(arrived) if isinstance(arrived, Decimal) else None
        found.changes += inner.changes
        found.duplicates += inner.duplicates
        found.failures += [Failure(each.raw, each.reason, attempts, arrived_at) for each in inner.failures]

    def _record(self, document: Any, raw: str) -> tuple[str, str | None]:
        if isinstance(document, dict) and {OPERATION, EVENT_TIME} <= document.keys():
            named = {attribute_of_member(name): value for name, value in document.items() if name not in LINE_MEMBERS}
            item = {name: _attribute(value, self.tags.get(name)) for name, value in named.items()}
            return self._record_of(document, item), document.get(EVENT_ID)
        changes = list(checked_changes(raw.encode()))
        if len(changes) != 1 or not isinstance(document.get("dynamodb"), dict):
            raise DecodeError("expected a change record of a stream, or a line with _op and _event_time")
        if document.get("eventName") not in {"INSERT", "MODIFY", "REMOVE"}:
            raise DecodeError(f"eventName is {document.get('eventName')!r}")
        at = document["dynamodb"].get("ApproximateCreationDateTime", 0)
        if "ApproximateCreationDateTimePrecision" not in document["dynamodb"] and at >= END_OF_TIME:
            raise DecodeError(f"{at} counts no seconds: ApproximateCreationDateTimePrecision has to say what it counts")
        event_id = document.get("eventID")
        return raw, event_id if isinstance(event_id, str) else None

    def _record_of(self, line: Mapping[str, Any], item: Mapping[str, Any]) -> str:
        """Return the change record of a line with its item as attribute values."""
        missing = [name for name in self.keys if name not in item]
        if missing or not self.keys:
            raise DecodeError(f"the line has no key {missing[0]!r}" if missing else "say with keys which attributes are the key")  # fmt: skip # noqa: E501
        at = line[EVENT_TIME]
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
        inside: dict[str, Any] = {
            "ApproximateCreationDateTime": (moment - _EPOCH) // (_EPOCH.resolution),
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
            "Keys": {name: item[name] for name in self.keys},
        }
        if line[OPERATION] != "REMOVE":
            inside["NewImage"] = item
        if line.get(SEQUENCE) is not None:
            inside["SequenceNumber"] = str(line[SEQUENCE])
        record: dict[str, Any] = {"eventName": line[OPERATION], "dynamodb": inside}
        if line.get(EXPIRED):
            record["userIdentity"] = {"type": "Service", "principalId": TIME_TO_LIVE}
        text = compact_json(record)
        list(checked_changes(text.encode()))
        return text

    def _take_rows(self, table: pa.Table, found: Delivered) -> None:
        own = [name for name in _COLUMNS if name in table.column_names]
        items = to_dynamodb_json(table.drop_columns(own)).splitlines()
        for line, encoded in zip(table.select(own).to_pylist(), items, strict=True):
            item = json.loads(encoded)
            try:
                item = item.get("Item", item) if item.keys() == {"Item"} else item
                named = {attribute_of_member(name): value for name, value in item.items()}
                found.changes.append(self._record_of(line, named))
            except (DecodeError, ValueError, TypeError) as error:
                found.failures.append(Failure(encoded, str(error)))


def _documents(text: bytes) -> Iterator[tuple[Any, str]]:
    """Yield each document with its text; what cannot be read is a DecodeError, with the text up to the next one."""
    whole = text.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    position = _after_blank(whole, 0)
    while position < len(whole):
        document: Any
        try:
            document, end = EXACT_DECODER.raw_decode(whole, position)
        except (DecodeError, json.JSONDecodeError, RecursionError) as error:
            following = _BEGINNINGS.search(whole, position + 1)
            end = len(whole) if following is None else following.start() + 1
            said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            document = DecodeError(f"this is not JSON: {said}")
        yield document, whole[position:end].rstrip()
        position = _after_blank(whole, end)


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _attribute(value: Any, tag: str | None) -> dict[str, Any]:
    """Return a value of plain JSON as an attribute value; a tag says what JSON cannot tell."""
    match value:
        case None | bool():
            return {"NULL": True} if value is None else {"BOOL": value}
        case Decimal():
            return {"N": canonical_number(str(value))}
        case str():
            return {"B" if tag == "B" else "S": value}
        case dict():
            return {"M": {name: _attribute(each, None) for name, each in value.items()}}
    if tag in SETS:
        return {str(tag): [canonical_number(str(each)) if tag == "NS" else each for each in value]}
    return {"L": [_attribute(each, None) for each in value]}


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a record: its own members as the service spells them, without those that are null."""
    found = dict[str, Any]()
    for name, value in row.items():
        spelled = _RECORD_MEMBERS.get(name.lower(), name)
        if value is None:
            continue
        if spelled in _IMAGES:
            found[spelled] = {attribute: _untyped(each) for attribute, each in value.items() if each is not None}
        else:
            found[spelled] = _named(value) if isinstance(value, dict) else value
    return found


def _untyped(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one member of an attribute value that a struct with all its types holds."""
    return {tag.upper(): _members(each) for tag, each in value.items() if each is not None}


def _members(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _untyped(each) for name, each in content.items() if each is not None}
    if isinstance(content, list):
        return [_untyped(each) if isinstance(each, dict) else _plain_text(each) for each in content]
    return _plain_text(content)


def _plain_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


def sample_keys(changes: Sequence[str]) -> tuple[str, ...]:
    """Return the key attributes that the first change names."""
    return tuple(json.loads(changes[0])["dynamodb"]["Keys"])


def records_of(text: bytes) -> bytes:
    """Return the records of a text behind each other, also of answers of GetRecords and events of Lambda."""
    if not re.match(rb'\s*\{\s*"(?:Records|NextShardIterator)"', text):
        return text
    lines = list[str]()
    for document, raw in _documents(text):
        if isinstance(document, dict) and document.keys() & {"Records", "NextShardIterator"}:
            lines += [json.dumps(each, default=_number_text) for each in document.get("Records", [])]
        else:
            lines.append(raw)
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _number_text(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
