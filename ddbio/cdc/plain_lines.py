"""Split texts of change records, and transform them to flat lines of plain JSON, checked by the compiled loops.

The lines are those of ``change_line``, which is the reference, and reads what this refuses.
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
# A line is no record, and what holds records is none; a letter that is escaped may hide a name.
_TIME, _RECORDS, _SERVICE = f'"{EVENT_TIME}"'.encode(), b'"Records"', f'"{TIME_TO_LIVE}"'.encode()
_LETTERS = frozenset(b"\\u00%d" % digit for digit in range(2, 8))
_MARKS = Marks(_TIME, _RECORDS, _SERVICE, *_LETTERS)
_HAS_RECORDS = re.compile(rb'"Records"\s*:\s*\[')
# Where one record ends and another begins: behind an opening quote no letter follows within JSON's texts.
_BORDER = re.compile(rb'\}[ \t\r\n]*(?=\{[ \t\r\n]*"[A-Za-z])')
PART_BYTES = 16 << 20
_BLANK = re.compile(r"[ \t\r\n,]*")
_SCANNER = json.JSONDecoder()
_OPERATIONS = texts_array("INSERT", "MODIFY", "REMOVE")
# Of such seconds since 1970 a double keeps all microseconds.
_MOST_MICROS = (1 << 32) * 1_000_000
_MOST_BYTES = 1 << 30
_HOUR_MICROS = 3_600_000_000


class PlainLines(NamedTuple):
    """Hold lines, each with its end, one behind the other, and the hour of each since 1970."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    hours: npt.NDArray[np.int64]


def text_parts(text: bytes, part_bytes: int = PART_BYTES) -> Iterator[bytes]:
    """Yield a text in parts that end where a record does: each is read in memory that is warm, or by the reference."""
    start = 0
    while (border := _BORDER.search(text, start + part_bytes)) is not None:
        yield text[start : border.end()]
        start = border.end()
    yield text[start:]


def plain_lines(
    text: bytes, seen: set[str] | None = None, images: ChangePrinter | None = None, table: OneTable | None = None
) -> list[PlainLines] | None:
    """Return the line of each change record, or None if the text holds other things, or a record twice.

    None is also the answer where a record has blanks, escapes or times that are unusual.

    Parameters
    ----------
    seen
        Event ids that came before, which are not taken again; those of the text are added.
    images
        What has printed changes before.
    table
        The table whose changes are wanted: a text with those of others is refused, too.
    """
    checked = _checked(text, seen, images)
    if checked is None or (checked.has_tables and table and not table.own_rows(checked.members[-1]).all()):
        return None
    try:
        expired = expired_records(text) if checked.names_service else None
    except DecodeError:
        return None
    found, start = list[PlainLines](), 0
    for changes in checked.changes:
        stop = start + len(changes.ends)
        own = [None if each is None else each[start:stop] for each in checked.members]
        lines = _lines(changes, own, None if expired is None else expired[start:stop])
        if lines is None:
            return None
        found.append(lines)
        start = stop
    checked.note(seen)
    return found


def split_records(text: bytes, most: int | None = None, seen: set[str] | None = None) -> list[str] | None:
    """Return the text of each change record, at most so many; None if something else is there, or a record twice.

    ``seen`` is as of :func:`plain_lines`.
    """
    try:
        whole = text.decode()
    except UnicodeDecodeError:
        return None
    found, place = list[str](), _BLANK.match(whole, 0).end()  # type: ignore[union-attr] # it matches nothing, too
    while place < len(whole) and len(found) != most:
        try:
            _, end = _SCANNER.raw_decode(whole, place)
        except (ValueError, RecursionError):
            return None
        found.append(whole[place:end])
        place = _BLANK.match(whole, end).end()  # type: ignore[union-attr]
    checked = _checked("\n".join(found).encode(), seen)
    if checked is None:
        return None
    checked.note(seen)
    return found


class _Checked(NamedTuple):
    members: list[Any]
    changes: list[PlainChanges]
    names_service: bool
    event_ids: list[str]

    @property
    def has_tables(self) -> bool:
        """Whether the records name their tables."""
        return self.members[-1] is not None

    def note(self, seen: set[str] | None) -> None:
        """Add the event ids to those that came before."""
        if seen is not None:
            seen.update(self.event_ids)


def _checked(text: bytes, seen: set[str] | None = None, images: ChangePrinter | None = None) -> _Checked | None:
    """Return the members of the records and their images; None where only the reference may judge them."""
    marks = _MARKS.found(text)
    if _TIME in marks or not marks.isdisjoint(_LETTERS) or (_RECORDS in marks and _HAS_RECORDS.search(text)):
        return None
    members, images = _own_members(text), images or ChangePrinter()
    try:
        changes = None if members is None else images.print_changes(memoryview(plainly_encoded(text)))
    except DecodeError:
        return None
    if members is None or changes is None or sum(len(each.ends) for each in changes) != len(members[0]):
        return None
    event_ids = [] if seen is None or members[2] is None else members[2].to_pylist()
    if (seen and not seen.isdisjoint(event_ids)) or not LINE_MEMBERS.isdisjoint(map(fold, images.names)):
        return None
    if any(len(each.times) and not 0 <= each.times.min() <= each.times.max() < _MOST_MICROS for each in changes):
        return None
    return _Checked(members, changes, _SERVICE in marks, event_ids)


def _own_members(text: bytes) -> list[Any] | None:
    """Return operation, sequence number, event id and table of each record; None for a member that no record has."""
    found = _OPENINGS.find(text)
    if found is None or not len(found[0]):
        return None
    operations, _, event_ids, *tables = found
    if not pc.all(pc.is_in(operations, _OPERATIONS)).as_py() or pc.count_distinct(event_ids).as_py() < len(event_ids):
        return None
    members = list[Any]()
    for values, name in zip(found, _NAMES, strict=False):
        if len(values) not in {0, len(operations)} or (not len(values) and name in text):
            return None
        members.append(values if len(values) else None)
    named = named_tables(tables, text, len(operations))
    return None if named is None else [*members, table_names(named) if len(named) else None]


def _lines(changes: PlainChanges, own: list[Any], expired: npt.NDArray[np.bool_] | None) -> PlainLines | None:
    data, ends, times = changes
    if len(data) > _MOST_BYTES:
        return None
    places = np.concatenate([[0], ends]).astype(np.int32)
    items = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(places.data), pa.py_buffer(data.data)])
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
    found = offsets_of(lines).astype(np.int64)
    joined = np.frombuffer(lines.buffers()[2], np.uint8)
    return PlainLines(joined[found[0] : found[-1]], found - found[0], times // _HOUR_MICROS)
