"""Parser of delivered change records: concatenated, without line ends, in all formats that Firehose objects can have.

A document is a change record of a stream, a line written by ``ddbio.lambda_handlers.firehose_transform``, a failed
record in the format of Firehose's error prefix, or a body of records: the reply of GetRecords or the event of a Lambda
function. All are converted to change records as text. Row files (Parquet, ORC) have lines or records in columns of any
type that a Glue table may use.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
import json
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ddbio.cdc.plain_lines import split_records
from ddbio.errors import DecodeError, OptionError
from ddbio.formats.log_columns import (
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    LINE_MEMBERS,
    OLD_IMAGE,
    OLD_RESCUE,
    OPERATION,
    SEQUENCE,
    TABLE,
    TIME_TO_LIVE,
    attribute_of_member,
)
from ddbio.items.attribute import from_python
from ddbio.items.change_lines import NO_IMAGE, checked_changes
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.json_text import EXACT_DECODER, compact_json
from ddbio.items.number import canonical_number
from ddbio.items.schema.arrow import SETS
from ddbio.items.stream_records import table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ddbio.cdc.one_table import OneTable
    from ddbio.storage.object_store import ObjectStore

_COLUMNS = (*LINE_MEMBERS, OLD_IMAGE, OLD_RESCUE)
_RECORD_MEMBERS = {
    name.lower(): name
    for name in ("eventID", "eventName", "dynamodb", "userIdentity", "ApproximateCreationDateTime", "Keys", "NewImage",
                 "ApproximateCreationDateTimePrecision", "OldImage", "SequenceNumber", "principalId", "type",
                 "tableName", "recordFormat", "eventSourceARN")
}  # fmt: skip
_IMAGES, _OBJECTS = {"Keys", "NewImage", "OldImage"}, {"dynamodb", "userIdentity"}
_TEXTS = {"eventID", "eventName", "tableName", "recordFormat", "eventSourceARN", "ApproximateCreationDateTimePrecision"}
_CREATED, _PRECISION, _NUMBER = "ApproximateCreationDateTime", "ApproximateCreationDateTimePrecision", "SequenceNumber"
_TRUE = re.compile("true", re.IGNORECASE)
_NUMBER_TEXT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_RAW = "rawData"
_BLANK = re.compile(r"[ \t\r\n,]*")
# Possible start of the next document after an unreadable one.
_BEGINNINGS = re.compile(r"[}\n]\s*(?=\{)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Failure:
    """Record that is not a change: its bytes, the reason, the attempts, and its arrival in milliseconds since 1970."""

    raw: bytes
    reason: str
    attempts: int = 1
    arrived_at: int | None = None

    def line(self, at: int) -> bytes:
        """Return the line that Firehose writes for a failed record. ``at`` is in milliseconds since 1970."""
        values = {
            "attemptsMade": self.attempts,
            "arrivalTimestamp": at if self.arrived_at is None else self.arrived_at,
            "errorCode": "Ddbio.NotAChange",
            "errorMessage": self.reason,
            "attemptEndingTimestamp": at,
            _RAW: base64.b64encode(self.raw).decode(),
        }
        return f"{compact_json(values)}\n".encode()


def write_failures(store: ObjectStore, name: str, failures: Iterable[Failure]) -> None:
    """Write invalid records to the error prefix of Firehose, once. A repeated run finds the same failures."""
    now = int(time.time() * 1000)
    store.put_if_absent(f"processing-failed/{name}", b"".join(failure.line(now) for failure in failures))


@dataclass
class Delivered:
    """Content of an object: change records as text, failures, and counts of skipped error lines and duplicates.

    ``foreign`` has the table names of changes that were left out because they belong to other tables.
    """

    changes: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    errors: int = 0
    duplicates: int = 0
    foreign: list[str] = field(default_factory=list)

    def text(self) -> bytes:
        """Return the change records, one per line."""
        return "\n".join(self.changes).encode()


@dataclass(frozen=True)
class DeliveredReader:
    """Reader of the text of objects that Firehose has delivered.

    Attributes
    ----------
    keys
        The key attributes, for lines without ``Keys``.
    tags
        DynamoDB types by attribute, for types that plain JSON does not have: binary and sets.
    replays
        Whether changes are replayed. A replay tries records that failed before again, and requires a new image
        unless the change is a delete. Otherwise, records that failed before are left out.
    table
        The table whose changes are read; None reads those of all tables.
    """

    keys: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    replays: bool = False
    table: OneTable | None = None

    def read(self, text: bytes, most: int | None = None, seen: set[str] | None = None) -> Delivered:
        """Return the content of a text. Changes with an event id that the text already had are left out.

        Parameters
        ----------
        most
            The maximum number of documents to read.
        seen
            Earlier event ids. Those of the text are added.
        """
        text = records_of(text)
        # The compiled loops check a text that has only records.
        records = None if self.table is not None else split_records(text, most, seen)
        if records is not None:
            return Delivered(records)
        delivered, seen = Delivered(), set[str]() if seen is None else seen
        for document, raw in itertools.islice(_documents(text), most):
            self._take(document, raw, delivered, seen)
        return delivered

    def read_rows(self, table: pa.Table) -> Delivered:
        """Return the content of a row file whose columns are those of a line or of a record.

        Raises
        ------
        DecodeError
            If the columns are neither.
        """
        delivered = Delivered()
        names = {name.lower() for name in table.column_names}
        if {OPERATION, EVENT_TIME} <= names:
            self._take_rows(table, delivered)
        elif {"dynamodb", "eventname"} <= names:
            seen = set[str]()
            for row in _rows(table):
                try:
                    record = _record_of(row)
                except (DecodeError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
                    delivered.failures.append(Failure(json.dumps(row, default=_plain_text).encode(), str(error)))
                else:
                    self._take(record, compact_json(record), delivered, seen)
        else:
            raise DecodeError(
                f"the columns are neither those of change records (eventName, dynamodb) nor of lines ({OPERATION}, "
                f"{EVENT_TIME}): {', '.join(table.column_names[:8])}"
            )
        return delivered

    def _take(self, document: Any, raw: str, delivered: Delivered, seen: set[str], attempts: int = 1) -> None:
        try:
            if isinstance(document, DecodeError):
                raise document
            if isinstance(document, dict) and isinstance(document.get(_RAW), str) and "dynamodb" not in document:
                self._take_error(document, raw, delivered, seen)
                return
            table = _table_of(document)
            if self.table is not None and not self.table.owns(table):
                delivered.foreign.append(str(table))
                return
            text, event_id = self._record(document, raw)
        except OptionError:
            raise
        except (DecodeError, ValueError, TypeError, ArithmeticError) as error:
            delivered.failures.append(Failure(raw.encode("utf-8", "surrogateescape"), str(error), attempts))
            return
        if event_id is not None and event_id in seen:
            delivered.duplicates += 1
            return
        if event_id is not None:
            seen.add(event_id)
        delivered.changes.append(text)

    def _take_error(self, document: dict[str, Any], raw: str, delivered: Delivered, seen: set[str]) -> None:
        if not self.replays:
            delivered.errors += 1
            return
        attempts = 1 + int(document.get("attemptsMade") or 0)
        try:
            inside = base64.b64decode(document[_RAW], validate=True)
        except (binascii.Error, ValueError):
            delivered.failures.append(
                Failure(raw.encode("utf-8", "surrogateescape"), "rawData is not base64", attempts)
            )
            return
        failures_before = len(delivered.failures)
        for inner, text in _documents(inside):
            self._take(inner, text, delivered, seen, attempts)
        arrived = document.get("arrivalTimestamp")
        arrived_at = int(arrived) if isinstance(arrived, Decimal) else None
        delivered.failures[failures_before:] = [
            Failure(failure.raw, failure.reason, attempts, arrived_at)
            for failure in delivered.failures[failures_before:]
        ]

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
        if self.replays and changes[0].new_image is None and not changes[0].is_delete:
            raise DecodeError(NO_IMAGE)
        event_id = document.get("eventID")
        return raw, event_id if isinstance(event_id, str) else None

    def _record_of(self, line: Mapping[str, Any], item: Mapping[str, Any]) -> str:
        """Return the change record of a line. ``item`` is its item as attribute values."""
        missing = [name for name in self.keys if name not in item]
        if missing or not self.keys:
            raise DecodeError(f"the line has no key {missing[0]!r}" if missing else "give keys, the key attributes")  # fmt: skip # noqa: E501
        at = line[EVENT_TIME]
        moment = _utc(at if isinstance(at, datetime) else datetime.fromisoformat(at))
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

    def _take_rows(self, table: pa.Table, delivered: Delivered) -> None:
        own = [name for name in _COLUMNS if name in table.column_names]
        items = to_dynamodb_json(table.drop_columns(own)).splitlines()
        for line, encoded in zip(_rows(table.select(own)), items, strict=True):
            item = json.loads(encoded)
            if self.table is not None and not self.table.owns(line.get(TABLE)):
                delivered.foreign.append(str(line[TABLE]))
                continue
            try:
                item = item.get("Item", item) if item.keys() == {"Item"} else item
                named = {attribute_of_member(name): value for name, value in item.items()}
                delivered.changes.append(self._record_of(line, named))
            except (DecodeError, ValueError, TypeError) as error:
                delivered.failures.append(Failure(encoded, str(error)))


def _table_of(document: Any) -> str | None:
    """Return the table of a record or of a line, or None if it has none."""
    if not isinstance(document, dict) or not document.keys() & {"dynamodb", OPERATION}:
        return None
    name = document.get(TABLE) if OPERATION in document else table_of(document)
    return name if isinstance(name, str) else None


def _documents(text: bytes) -> Iterator[tuple[Any, str]]:
    """Yield each document with its text. An unreadable one is a DecodeError with the text up to the next document."""
    decoded = text.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    position = _after_blank(decoded, 0)
    while position < len(decoded):
        document: Any
        try:
            document, end = EXACT_DECODER.raw_decode(decoded, position)
        except (DecodeError, json.JSONDecodeError, RecursionError) as error:
            following = _BEGINNINGS.search(decoded, position + 1)
            end = len(decoded) if following is None else following.start() + 1
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            document = DecodeError(f"this is not JSON: {reason}")
        yield document, decoded[position:end].rstrip()
        position = _after_blank(decoded, end)


def _after_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _attribute(value: Any, tag: str | None) -> dict[str, Any]:
    """Return a value of plain JSON as an attribute value. The tag is for types that JSON does not have."""
    if tag == "B" and isinstance(value, str):
        return {"B": value}
    if tag in SETS and isinstance(value, list):
        return {str(tag): [canonical_number(str(element)) if tag == "NS" else element for element in value]}
    return from_python(value)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    try:
        return table.to_pylist()
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"a value of a row cannot be read: {error}") from None


def _record_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a record, with the service's spelling of its members."""
    record = _named(row)
    inside = record.get("dynamodb")
    if isinstance(inside, dict) and _NUMBER not in inside and table_of(record) is None:
        # Records of DynamoDB Streams have a sequence number. This one is of Kinesis, regardless of the columns of the
        # Glue table.
        record.setdefault("recordFormat", "application/json")
    return record


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a record, with the member names of the service and without nulls."""
    record = dict[str, Any]()
    for name, value in row.items():
        spelled = _RECORD_MEMBERS.get(name.lower(), name)
        if value is None:
            continue
        if spelled in _IMAGES:
            record[spelled] = {
                attribute: _typed(content) for attribute, content in _pairs(value) if content is not None
            }
        elif spelled in _OBJECTS:
            record[spelled] = _named(dict(_pairs(value)))
        elif spelled == _CREATED:
            record |= _time(value)
        elif spelled == _NUMBER:
            record[spelled] = _sequence_text(value)
        elif spelled in _TEXTS:
            # The time may have determined the unit before.
            record.setdefault(spelled, str(value))
        else:
            record[spelled] = json.loads(json.dumps(value, default=_plain_text))
    return record


def _time(value: Any) -> dict[str, Any]:
    """Return the time of a record, and its unit if the value has one."""
    if isinstance(value, str):
        value = Decimal(value) if _NUMBER_TEXT.fullmatch(value.strip()) else datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return {_CREATED: (_utc(value) - _EPOCH) // _EPOCH.resolution, _PRECISION: "MICROSECOND"}
    return {_CREATED: _number_text(Decimal(str(value)))}


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _sequence_text(value: Any) -> str:
    """Return a sequence number as text. Raises for a double, which has lost digits."""
    if isinstance(value, float):
        raise DecodeError(f"{_NUMBER} is a double, {value!r}, which has lost digits: make its column a string")
    return str(value)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a struct, of a map, or of JSON text."""
    members = json.loads(value) if isinstance(value, str) else value
    return list(members.items()) if isinstance(members, dict) else [(name, member) for name, member in members]


def _typed(value: Any) -> dict[str, Any]:
    """Return the only member of an attribute value, from a struct with all types, a map, or JSON text."""
    return {tag.upper(): _content(tag.upper(), content) for tag, content in _pairs(value) if content is not None}


def _content(tag: str, value: Any) -> Any:
    match tag:
        case "M":
            return {name: _typed(content) for name, content in _pairs(value) if content is not None}
        case "L":
            return [_typed(element) for element in (json.loads(value) if isinstance(value, str) else value)]
        case "SS" | "NS" | "BS":
            return [_plain_text(element) for element in (json.loads(value) if isinstance(value, str) else value)]
        case "BOOL" | "NULL":
            return _TRUE.fullmatch(value) is not None if isinstance(value, str) else value
    return _plain_text(value)


def _plain_text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def sample_keys(changes: Sequence[str]) -> tuple[str, ...]:
    """Return the key attributes of the first change."""
    return tuple(json.loads(changes[0])["dynamodb"]["Keys"])


def records_of(text: bytes) -> bytes:
    """Return the records of a text, concatenated. Replies of GetRecords and events of Lambda are unwrapped."""
    if not re.match(rb'\s*\{\s*"(?:Records|NextShardIterator|MillisBehindLatest)"', text):
        return text
    lines = list[str]()
    for document, raw in _documents(text):
        if isinstance(document, dict) and document.keys() & {"Records", "NextShardIterator"}:
            lines += [_record_text(record) for record in document.get("Records", [])]
        else:
            lines.append(raw)
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _record_text(record: Any) -> str:
    """Return a record of a body as text. Records of Kinesis are in base64."""
    members = record if isinstance(record, dict) else {}
    data = members["kinesis"].get("data") if isinstance(members.get("kinesis"), dict) else members.get("Data")
    if isinstance(data, str):
        with contextlib.suppress(ValueError):
            return base64.b64decode(data, validate=True).decode("utf-8", "surrogateescape")
    return json.dumps(record, default=_number_text, ensure_ascii=False, separators=(",", ":"))


def _number_text(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
