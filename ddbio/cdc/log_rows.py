"""Conversion of records of DynamoDB Streams and Kinesis into rows of the log."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_order import sequences_of
from ddbio.errors import DecodeError
from ddbio.formats.log_columns import (
    ARCHIVE_COLUMNS,
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    LOG_COLUMNS,
    OLD_IMAGE,
    OLD_RESCUE,
    OPERATION,
    SEQUENCE,
    TIME_TO_LIVE,
)
from ddbio.items.change_lines import END_OF_TIME, NO_IMAGE
from ddbio.items.changes import ChangeDecoder
from ddbio.items.json_text import compact_json, parse_documents
from ddbio.items.kernel.arrays import bool_array, int64_values, texts_array
from ddbio.items.kernel.members import Openings
from ddbio.items.schema.arrow import RESCUE_FIELD, RESCUE_NAME, name_of_field, normalize_schema
from ddbio.items.schema.own_names import beside, is_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

# Attributes with these names have no column: their values are in `_rescue`.
_RESCUED = frozenset({OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, RESCUE_NAME})
_MICROS, _HOUR_MICROS = 1_000_000, 3_600_000_000

# A quote ends a JSON string unless escaped, and the value of an attribute is an object. So only a record's own members
# with string values match.
_MEMBERS = re.compile(rb'"(?:eventName"\s*:\s*"(INSERT|MODIFY|REMOVE)|SequenceNumber"\s*:\s*"(\d+))"')
_OPENINGS = Openings((b"eventName", b"SequenceNumber", b"PrincipalId", b"principalId"))
_NEXT = re.compile(rb'"NextShardIterator"\s*:\s*("(?:[^"\\]|\\.)*")')
_NEAR_BYTES = 4096
_HOUR_FOLDER = re.compile(r"year=(\d{4})/month=(\d{2})/day=(\d{2})/hour=(\d{2})/")
_NUMBER = b'"SequenceNumber"'
_REMOVE = texts_array("REMOVE")[0]
_SERVICE = f'"{TIME_TO_LIVE}"'.encode()


def next_iterator(body: bytes) -> str | None:
    """Return the iterator after the records of a reply, or None if the shard has ended."""
    match = _NEXT.search(body, max(0, len(body) - _NEAR_BYTES)) or _NEXT.search(body)
    return None if match is None else str(json.loads(match[1]))


def item_schema(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Return the columns of items for a new log. No column has the name of another column of logs or archives.

    Attributes with such names get a checksum as a suffix. Attributes with exactly the name of a column that each log
    has are not renamed, and :func:`log_schema` leaves them out unless they belong to the key.
    """
    rescued = [field for field in schema if field.name in _RESCUED and name_of_field(field) not in keys]
    named = beside([field for field in schema if field not in rescued], LOG_COLUMNS | ARCHIVE_COLUMNS)
    return pa.schema([*named, *rescued])


def log_schema(schema: pa.Schema, keys: Sequence[str], *, old_image: bool = False, event_id: bool = False) -> pa.Schema:
    """Return the columns of the log of a table, from the schema of its items.

    A column of items with the name of a column of the log is left out. Its values are in ``_rescue``.
    """
    reserved = _RESCUED | {EVENT_ID} if event_id else _RESCUED
    fields = {name_of_field(field): field for field in normalize_schema(schema) if field.name not in reserved}
    ordered = [*(fields[name] for name in keys), *(field for name, field in fields.items() if name not in keys)]
    own: list[pa.Field[Any]] = [
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(SEQUENCE, pa.string(), nullable=False),
        pa.field(EVENT_TIME, pa.timestamp("us", "UTC"), nullable=False),
        pa.field(EXPIRED, pa.bool_(), nullable=False),
    ]
    if event_id:
        own.append(pa.field(EVENT_ID, pa.string(), nullable=False))
    old: list[pa.Field[Any]] = [pa.field(OLD_IMAGE, pa.struct(ordered)), pa.field(OLD_RESCUE, pa.string())]
    return pa.schema([*own, *ordered, *(old if old_image else []), RESCUE_FIELD])


@dataclass(frozen=True)
class LogRows:
    """Rows of some records of a shard in order, and the hour of each since 1970."""

    rows: pa.RecordBatch
    hours: NDArray[np.int64]
    to: str
    """The sequence number of the last record that was read, even if its row was left out."""
    texts: Any = None
    """The records as an array, if their order is determined only when they are written."""
    foreign: int = 0
    """Records of other tables or other producers that were left out."""

    @property
    def last_time(self) -> float:
        """Time of the last record, in seconds since 1970."""
        return int(int64_values(self.rows.column(2))[-1]) / _MICROS

    def until(self, sequence: str) -> LogRows:
        """Return the rows up to a sequence number."""
        is_kept = [int(str(number)) <= int(sequence) for number in self.rows.column(1).to_pylist()]
        return replace(self.keep(np.array(is_kept, np.bool_)), to=sequence)

    def since(self, seconds: float) -> LogRows:
        """Return the rows since a time. Fractions of its second are ignored, as streams have no fractions."""
        times = int64_values(self.rows.column(2))
        return self.keep(times >= int(seconds) * _MICROS)

    def keep(self, is_kept: NDArray[np.bool_]) -> LogRows:
        """Return the rows that a mask selects."""
        if is_kept.all():
            return self
        mask = bool_array(is_kept)
        texts = None if self.texts is None else self.texts.filter(mask)
        return LogRows(self.rows.filter(mask), self.hours[is_kept], self.to, texts)

    def of_hours(self) -> Iterator[tuple[int, LogRows]]:
        """Yield each hour with its rows, in order."""
        for hour in np.unique(self.hours):
            yield int(hour), self.keep(self.hours == hour)


class LogDecoder:
    """Decoder of GetRecords replies to rows of the log. Use one per thread.

    Parameters
    ----------
    schema
        The columns of the items.
    keys
        The table's key attributes.
    old_image
        Whether rows have the old image.
    """

    has_event_ids = False

    def __init__(self, schema: pa.Schema, keys: Sequence[str], *, old_image: bool = False) -> None:
        self.schema = log_schema(schema, keys, old_image=old_image, event_id=self.has_event_ids)
        fields = [field for field in self.schema if not is_own(field, LOG_COLUMNS)]
        self._keys, self._old_image = tuple(keys), old_image
        self._decoder = ChangeDecoder(pa.schema(fields), keys)

    def decode(self, body: bytes) -> LogRows | None:
        """Return one row per record, in order, or None if there is no record.

        Raises
        ------
        DecodeError
            If the body is not a reply of GetRecords.
        """
        if _NUMBER not in body:
            return None
        operations, sequences, expired = own_members(body)
        return self._rows(body, [operations, sequences], expired) if len(sequences) else None

    def _rows(self, text: Buffer, members: Sequence[Any], expired: NDArray[np.bool_] | None) -> LogRows:
        """Return the rows of some records.

        ``members`` are their operations, sequence numbers and other string members.
        """
        decoded = self._decoder.decode(text)
        if any(len(member) != decoded.num_rows for member in members):
            raise DecodeError(f"a reply of {decoded.num_rows} records has {len(members[1])} sequence numbers")
        _require_images(decoded, members[0])
        return self._log_rows(decoded, members, expired)

    def decode_records(self, text: bytes, rank: int = 0, *, needs_images: bool = False) -> LogRows | None:
        """Return one row per record of a text of records, in order, or None if there is no record.

        Records without a sequence number, such as those of Kinesis, get a number as in a capture: from their time, then
        ``rank``, then their rank among the records of the text with the same time. Changes of one item with the same
        time are in the order that their images imply.

        Parameters
        ----------
        rank
            The rank of the text among others, at most 12 digits.
        needs_images
            Whether each change except a delete must have a new image, as in replies.

        Raises
        ------
        DecodeError
            If the text has other content than records with an operation, or only some of the records have sequence
            numbers.
        """
        decoded = self._decoder.decode(text)
        if not decoded.num_rows:
            return None
        operations, sequences, expired = own_members(text)
        if len(operations) != decoded.num_rows or len(sequences) not in {0, decoded.num_rows}:
            raise DecodeError(
                f"of {decoded.num_rows} records, {len(operations)} have an operation, {len(sequences)} have a number"
            )
        if needs_images:
            _require_images(decoded, operations)
        if len(sequences):
            return self._log_rows(decoded, [operations, sequences], expired)
        rows = self._log_rows(decoded, [operations, operations], expired)
        changes = functools.cache(lambda: [record["dynamodb"] for record in _records(text)])
        table = pa.Table.from_batches([rows.rows])
        numbers = sequences_of(table, lambda row: changes()[row], self._keys, rank, by_rank=True)
        return LogRows(rows.rows.set_column(1, self.schema.field(1), numbers), rows.hours, str(numbers[-1]))

    def _log_rows(self, decoded: pa.RecordBatch, members: Sequence[Any], expired: NDArray[np.bool_] | None) -> LogRows:
        operations, sequences, *others = members
        times: Any = decoded.column(0)
        keys: Any = decoded.column(2)
        new: Any = decoded.column(3)
        micros = int64_values(times)
        if micros.max() >= END_OF_TIME * _MICROS:
            raise DecodeError("ApproximateCreationDateTime of a record is after the year 9999")
        # The nulls of the struct apply to its columns.
        columns: list[Any] = [*keys.flatten(), *new.flatten()[len(self._keys) :]]
        old = [decoded.column(4)] if self._old_image else []
        rescue = _rescued(decoded.column(5), len(old))
        rows = pa.RecordBatch.from_arrays(
            [
                operations,
                sequences,
                times.cast(pa.timestamp("us", "UTC")),
                bool_array(np.zeros(decoded.num_rows, np.bool_) if expired is None else expired),
                *others,
                *columns,
                *old,
                *rescue,
            ],
            schema=self.schema,
        )
        return LogRows(rows, np.floor_divide(micros, _HOUR_MICROS), str(sequences[-1]))


def _require_images(decoded: pa.RecordBatch, operations: Any) -> None:
    new: Any = decoded.column(3)
    if new.null_count and pc.any(pc.and_(new.is_null(), pc.not_equal(operations, _REMOVE))).as_py():
        raise DecodeError(NO_IMAGE)


def own_members(text: bytes) -> tuple[Any, Any, NDArray[np.bool_] | None]:
    """Return the operation and the number of each record, and a mask of deletes by the time to live if there is one."""
    members_found = _OPENINGS.find(text)
    is_numbered = members_found is not None and (len(members_found[1]) > 0 or _NUMBER in text)
    if (
        members_found is not None
        and len(members_found[0]) > 0
        and len(members_found[1]) == (len(members_found[0]) if is_numbered else 0)
    ):
        operations, sequences, *principals = members_found
    else:
        # The text has whitespace that the service does not write.
        members = _MEMBERS.findall(text)
        operations, sequences = (strings([member[group] for member in members if member[group]]) for group in (0, 1))
        principals = [b"rincipalId" in text]
    return operations, sequences, expired_records(text) if any(map(bool, principals)) else None


def strings(texts: Sequence[bytes]) -> Any:
    """Return texts as an array."""
    return pa.array(texts, pa.binary()).cast(pa.string())


def expired_records(text: bytes) -> NDArray[np.bool_] | None:
    """Return a mask of deletes by the time to live, or None if no record names the service."""
    if _SERVICE not in text:
        return None
    identities = (record.get("userIdentity") or {} for record in _records(text))
    # The API and Lambda spell the members differently.
    principals = [identity.get("PrincipalId", identity.get("principalId")) for identity in identities]
    return np.array([principal == TIME_TO_LIVE for principal in principals], np.bool_)


def _records(text: bytes) -> Iterator[dict[str, Any]]:
    return (record for _, document in parse_documents(text) for record in document.get("Records", [document]))


def _rescued(texts: pa.Array[Any], with_old: int) -> list[pa.Array[Any]]:
    """Return the rescued attributes of the new image, or of the key if there is none, and those of the old image."""
    if texts.null_count == len(texts):
        return [pa.nulls(len(texts), pa.string())] * (1 + with_old)
    new, old = list[str | None](), list[str | None]()
    for text in texts.to_pylist():
        images = json.loads(text) if text else {}
        attributes = images.get("new_image") or images.get("keys")
        new.append(compact_json(attributes) if attributes else None)
        old.append(compact_json(images["old_image"]) if "old_image" in images else None)
    columns: list[pa.Array[Any]] = [pa.array(new, pa.string())]
    return [pa.array(old, pa.string()), *columns] if with_old else columns


def hour_folder(hour: int) -> str:
    """Return the folder of an hour since 1970, in UTC."""
    at = np.datetime64(hour, "h").item()
    return f"year={at.year:04}/month={at.month:02}/day={at.day:02}/hour={at.hour:02}/"


def hour_of(path: str) -> datetime | None:
    """Return the hour of a log file from its folder, or None if the folder is not an hour."""
    match = _HOUR_FOLDER.match(path)
    return None if match is None else datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]


def hour_seconds(path: str) -> float:
    """Return the start of the hour of a log file in seconds since 1970, or 0 if its folder is not an hour."""
    hour = hour_of(path)
    return 0.0 if hour is None else hour.timestamp()
