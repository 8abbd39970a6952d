"""Changes in lines of incremental exports and in stream records, read in plain Python.

This is the reference for the compiled loops, and reads changes that they refuse. A line that is not exactly one change
is a DecodeError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ddbio.errors import DecodeError
from ddbio.items.attribute import check_item
from ddbio.items.json_text import parse_documents
from ddbio.items.number import canonical_number
from ddbio.items.stream_records import once_encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddbio.items.attribute import Item

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
_TIME_NAME = "WriteTimestampMicros"
_MEMBERS = {"Metadata", "Keys", "NewImage", "OldImage"}
_MICROSECONDS = 1_000_000
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/kds_using-shards-and-metrics.html
_TICKS_PER_SECOND = {"MILLISECOND": 1_000, "MICROSECOND": _MICROSECONDS}
END_OF_TIME = 253_402_300_800
"""The year 10000, in seconds since 1970."""
NO_IMAGE = (
    "a change that removes no item has no NewImage: changes come from a stream with the view NEW_AND_OLD_IMAGES or "
    "NEW_IMAGE"
)
"""The reason to refuse a change that would look like an item with only a key in a log."""
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of an item. Its images are checked items."""

    write_time: int
    """The time of the write, in microseconds since 1970."""

    keys: Item
    new_image: Item | None
    old_image: Item | None
    is_delete: bool
    """Whether the item was deleted: there is no new image, or the event name of a stream is REMOVE."""


def checked_changes(body: bytes) -> Iterator[Change]:
    """Yield each change, checked.

    Raises
    ------
    DecodeError
        A line is not a change of an incremental export, a stream record or a body of records.
    """
    for line, document in parse_documents(once_encoded(body)):
        for location, change in _framed(document, line):
            try:
                yield _change(change)
            except DecodeError as error:
                raise DecodeError(f"{location}: {error}", line=line) from None
            except RecursionError:
                raise DecodeError(f"{location}: nested deeper than any DynamoDB item", line=line) from None


def is_change(document: Any) -> bool:
    """Return whether a document contains changes, not an item: none of its members is an attribute value."""
    if not isinstance(document, dict):
        return False
    if isinstance(document.get("Records"), list):
        return True
    record, metadata = document.get("dynamodb"), document.get("Metadata")
    if isinstance(record, dict) and isinstance(record.get("Keys"), dict):
        return True
    return isinstance(metadata, dict) and metadata.keys() == {_TIME_NAME}


def images_of(body: bytes) -> Iterator[Item]:
    """Yield the keys and the images of each change, checked.

    Raises
    ------
    DecodeError
        As ``checked_changes``.
    """
    for change in checked_changes(body):
        yield from (image for image in (change.keys, change.new_image, change.old_image) if image is not None)


def _framed(document: Any, line: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(document, dict) or isinstance(document.get("dynamodb"), dict) or "Records" not in document:
        yield f"line {line}", document
        return
    records = document["Records"]
    if not isinstance(records, list):
        raise DecodeError(f'line {line}: "Records" is no list', line=line)
    for index, record in enumerate(records):
        location = f"line {line}, record {index}"
        if not isinstance(record, dict) or not isinstance(record.get("dynamodb"), dict):
            raise DecodeError(f'{location}: expected a stream record: {{"dynamodb":{{…}}, …}}', line=line)
        yield location, record


def _change(document: Any) -> Change:
    if isinstance(document, dict) and isinstance(document.get("dynamodb"), dict):
        return _stream_record(document["dynamodb"], document.get("eventName"))
    if not isinstance(document, dict) or not _MEMBERS >= document.keys() >= {"Metadata", "Keys"}:
        raise DecodeError('expected a change: {"Metadata":…,"Keys":…} with "NewImage", "OldImage", both or neither')
    return _with_images(_write_time(document["Metadata"]), document, is_delete="NewImage" not in document)


def _with_images(write_time: int, members: dict[str, Any], *, is_delete: bool) -> Change:
    images = [members.get(name) for name in ("Keys", "NewImage", "OldImage")]
    for name, image in zip(("Keys", "NewImage", "OldImage"), images, strict=True):
        if name in members:
            try:
                check_item(image)
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
    keys, new_image, old_image = images
    return Change(write_time, keys or {}, new_image, old_image, is_delete)


def _write_time(metadata: Any) -> int:
    if not isinstance(metadata, dict) or metadata.keys() != {_TIME_NAME}:
        raise DecodeError(f'expected "Metadata":{{"{_TIME_NAME}":…}}')
    value = metadata[_TIME_NAME]
    # Real files have {"N":"…"}. The documentation's samples have plain text, which has a type in Ion.
    text = next(iter(value.values())) if isinstance(value, dict) and value.keys() in ({"N"}, {"S"}) else value
    if isinstance(text, str):
        return _integer(canonical_number(text))
    if type(value) is int:
        return _integer(str(value))
    raise DecodeError(f"{_TIME_NAME} is {value!r}, not a whole number")


def _integer(text: str) -> int:
    if "." in text or int(text) not in _INT64:
        raise DecodeError(f"{_TIME_NAME} is {text}, not a whole number of 64 bits")
    return int(text)


def _stream_record(record: dict[str, Any], event: Any) -> Change:
    """Return the change of a record of DynamoDB Streams, or of its copy in a Kinesis stream."""
    if not isinstance(record.get("Keys"), dict):
        raise DecodeError('expected a stream record: "dynamodb" without "Keys"')
    created = record.get("ApproximateCreationDateTime")
    if type(created) not in {int, float} or (isinstance(created, float) and not math.isfinite(created)):
        raise DecodeError(f"ApproximateCreationDateTime is {created!r}, not a number")
    time = Decimal(repr(created))
    ticks = ticks_per_second(time, record.get("ApproximateCreationDateTimePrecision"))
    write_time = int(time * _MICROSECONDS / ticks)
    if write_time not in _INT64:
        raise DecodeError(f"ApproximateCreationDateTime is {created!r}, not a time of 64 bits in microseconds")
    return _with_images(write_time, record, is_delete=event == "REMOVE" or (event is None and "NewImage" not in record))


def ticks_per_second(time: Decimal, precision: Any) -> int:
    """Return the number of units of a stream record's time per second.

    Records of DynamoDB Streams have seconds. Since January 2024 records of Kinesis state ``MILLISECOND`` or
    ``MICROSECOND``; older records have milliseconds without a unit. Without a unit, the result is the coarsest unit for
    which the time is before the year 10000. Times in the other units begin in 1978.
    """
    if precision in _TICKS_PER_SECOND:
        return _TICKS_PER_SECOND[precision]
    return next((ticks for ticks in (1, 1_000) if abs(time) < END_OF_TIME * ticks), _MICROSECONDS)
