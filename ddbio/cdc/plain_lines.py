"""Splitting of texts of change records, and transformation to flat lines of plain JSON, with the compiled loops.

The lines equal those of ``change_line``, the reference implementation. It reads the texts that this module rejects.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.log_rows import expired_records
from ddbio.cdc.one_table import OPENINGS, OneTable, named_tables, table_names
from ddbio.errors import DecodeError
from ddbio.formats.log_columns import (
    EVENT_ID,
    EVENT_TIME,
    EXPIRED,
    LINE_MEMBERS,
    OPERATION,
    SEQUENCE,
    TABLE,
    TIME_TO_LIVE,
)
from ddbio.items.changes import plainly_encoded
from ddbio.items.kernel.arrays import (
    bool_array,
    int64_array,
    joined_texts,
    offsets_of,
    texts_array,
)
from ddbio.items.kernel.members import Marks, Openings
from ddbio.items.plain_changes import ChangePrinter
from ddbio.items.schema.folded import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ddbio.items.plain_changes import PlainChanges

_OPENINGS = Openings((b"eventName", b"SequenceNumber", b"eventID", *OPENINGS))
_NAMES = (b'"eventName"', b'"SequenceNumber"', b'"eventID"')
# A line is not a record, and a text with "Records" has nested records. An escaped letter may hide a name.
_TIME, _RECORDS, _SERVICE = f'"{EVENT_TIME}"'.encode(), b'"Records"', f'"{TIME_TO_LIVE}"'.encode()
_LETTERS = frozenset(b"\\u00%d" % digit for digit in range(2, 8))
_MARKS = Marks(_TIME, _RECORDS, _SERVICE, *_LETTERS)
_HAS_RECORDS = re.compile(rb'"Records"\s*:\s*\[')
# Border between two records. Within a JSON string, a letter cannot follow an unescaped quote.
_BORDER = re.compile(rb'\}[ \t\r\n]*(?=\{[ \t\r\n]*"[A-Za-z])')
PART_BYTES = 16 << 20
_BLANK = re.compile(r"[ \t\r\n,]*")
_SCANNER = json.JSONDecoder()
_OPERATIONS = texts_array("INSERT", "MODIFY", "REMOVE")
# A double has exact microseconds up to this number of seconds since 1970.
_MAX_MICROS = (1 << 32) * 1_000_000
_MAX_BYTES = 1 << 30
_HOUR_MICROS = 3_600_000_000


class PlainLines(NamedTuple):
    """Concatenated lines with line ends, and the hour of each since 1970."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    hours: npt.NDArray[np.int64]


def text_parts(text: bytes, part_bytes: int = PART_BYTES) -> Iterator[bytes]:
    """Yield a text in parts that end at the end of a record. Parts reuse memory, and limit the reference's work."""
    start = 0
    while (border := _BORDER.search(text, start + part_bytes)) is not None:
        yield text[start : border.end()]
        start = border.end()
    yield text[start:]


def plain_lines(
    text: bytes, seen: set[str] | None = None, images: ChangePrinter | None = None, table: OneTable | None = None
) -> list[PlainLines] | None:
    """Return the line of each change record, or None if the text has other content, or a record twice.

    It also returns None for records with unusual whitespace, escapes or times.

    Parameters
    ----------
    seen
        Earlier event ids, which must not occur again. Those of the text are added.
    images
        The printer of earlier changes.
    table
        The table whose changes are read. A text with changes of other tables also gives None.
    """
    checked = _checked(text, seen, images)
    if checked is None or (checked.has_tables and table and not table.own_rows(checked.members[-1]).all()):
        return None
    try:
        expired = expired_records(text) if checked.names_service else None
    except DecodeError:
        return None
    all_lines, start = list[PlainLines](), 0
    for changes in checked.changes:
        stop = start + len(changes.ends)
        own = [None if member is None else member[start:stop] for member in checked.members]
        lines = _lines(changes, own, None if expired is None else expired[start:stop])
        if lines is None:
            return None
        all_lines.append(lines)
        start = stop
    checked.note(seen)
    return all_lines


def split_records(text: bytes, most: int | None = None, seen: set[str] | None = None) -> list[str] | None:
    """Return the text of each change record, or None if the text has other content, or a record twice.

    ``most`` is the maximum number of records. ``seen`` is as of :func:`plain_lines`.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return None
    records, position = list[str](), _BLANK.match(decoded, 0).end()  # type: ignore[union-attr] # it also matches an empty string
    while position < len(decoded) and len(records) != most:
        try:
            _, end = _SCANNER.raw_decode(decoded, position)
        except (ValueError, RecursionError):
            return None
        records.append(decoded[position:end])
        position = _BLANK.match(decoded, end).end()  # type: ignore[union-attr]
    checked = _checked("\n".join(records).encode(), seen)
    if checked is None:
        return None
    checked.note(seen)
    return records


class _Checked(NamedTuple):
    members: list[Any]
    changes: list[PlainChanges]
    names_service: bool
    event_ids: list[str]

    @property
    def has_tables(self) -> bool:
        """Whether the records have table names."""
        return self.members[-1] is not None

    def note(self, seen: set[str] | None) -> None:
        """Add the event ids to the set of earlier ones."""
        if seen is not None:
            seen.update(self.event_ids)


def _checked(text: bytes, seen: set[str] | None = None, images: ChangePrinter | None = None) -> _Checked | None:
    """Return the members of the records and their images, or None if only the reference can decide."""
    marks = _MARKS.find(text)
    if _TIME in marks or not marks.isdisjoint(_LETTERS) or (_RECORDS in marks and _HAS_RECORDS.search(text)):
        return None
    members, images = _own_members(text), images or ChangePrinter()
    try:
        changes = None if members is None else images.print_changes(memoryview(plainly_encoded(text)))
    except DecodeError:
        return None
    if members is None or changes is None or sum(len(part.ends) for part in changes) != len(members[0]):
        return None
    event_ids = [] if seen is None or members[2] is None else members[2].to_pylist()
    if (seen and not seen.isdisjoint(event_ids)) or not LINE_MEMBERS.isdisjoint(map(fold, images.names)):
        return None
    if any(len(part.times) and not 0 <= part.times.min() <= part.times.max() < _MAX_MICROS for part in changes):
        return None
    return _Checked(members, changes, _SERVICE in marks, event_ids)


def _own_members(text: bytes) -> list[Any] | None:
    """Return operation, sequence number, event id and table of each record; None for a member that no record has."""
    members_found = _OPENINGS.find(text)
    if members_found is None or not len(members_found[0]):
        return None
    operations, _, event_ids, *tables = members_found
    if not pc.all(pc.is_in(operations, _OPERATIONS)).as_py() or pc.count_distinct(event_ids).as_py() < len(event_ids):
        return None
    members = list[Any]()
    for values, name in zip(members_found, _NAMES, strict=False):
        if len(values) not in {0, len(operations)} or (not len(values) and name in text):
            return None
        members.append(values if len(values) else None)
    named = named_tables(tables, text, len(operations))
    return None if named is None else [*members, table_names(named) if len(named) else None]


def _lines(changes: PlainChanges, own: list[Any], expired: npt.NDArray[np.bool_] | None) -> PlainLines | None:
    data, ends, times = changes
    if len(data) > _MAX_BYTES:
        return None
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    items = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)])
    texts: Any = int64_array(times).cast(pa.timestamp("us")).cast(pa.string())
    parts: list[Any] = ["{"]
    for name, values in zip((OPERATION, SEQUENCE, EVENT_ID, TABLE), own, strict=True):
        if values is not None:
            parts += [f'"{name}":"', values, '",']
    parts += [f'"{EVENT_TIME}":"', pc.replace_substring(texts, " ", "T", max_replacements=1), '+00:00",']
    if expired is None:
        parts.append(f'"{EXPIRED}":false,')
    else:
        parts += [f'"{EXPIRED}":', bool_array(expired).cast(pa.string()), ","]
    lines: Any = joined_texts(*parts, items, "}\n")
    offsets_of_lines = offsets_of(lines).astype(np.int64)
    joined = np.frombuffer(lines.buffers()[2], np.uint8)
    return PlainLines(
        joined[offsets_of_lines[0] : offsets_of_lines[-1]],
        offsets_of_lines - offsets_of_lines[0],
        times // _HOUR_MICROS,
    )
