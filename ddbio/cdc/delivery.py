"""Writer of change records in the layout of Firehose: buffered objects below prefixes with time expressions."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from isal import igzip_lib

from ddbio.cdc.delivered_records import DeliveredReader, Failure, records_of
from ddbio.cdc.one_table import OneTable
from ddbio.cdc.plain_lines import PlainLines, plain_lines, text_parts
from ddbio.cdc.transform import change_line, change_time, partition_keys
from ddbio.commit.contents import require_target
from ddbio.errors import DecodeError, OptionError
from ddbio.items.plain_changes import ChangePrinter
from ddbio.jobs.report import Clock, JobReport
from ddbio.jobs.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ddbio.cdc.options import ChangesWriteOptions
    from ddbio.storage.object_store import ObjectStore

_EXPRESSION = re.compile(r"!\{([A-Za-z]+):([^{}]*)\}")
# The pattern letters of Java's DateTimeFormatter that prefixes use. Text in quotes is literal.
_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FORMATS = {
    "yyyy": "%Y",
    "YYYY": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


def expand(prefix: str, at: datetime, random: str, *, error_type: str | None = None, keys: Mapping[str, str]) -> str:
    """Return a prefix with its expressions filled in.

    Parameters
    ----------
    at
        The time for ``timestamp``.
    random
        The value of ``firehose:random-string``.
    error_type
        The value of ``firehose:error-output-type``; None outside of error prefixes.
    keys
        The partition keys of ``partitionKeyFromLambda`` and ``partitionKeyFromQuery``.

    Raises
    ------
    OptionError
        If an expression is unknown, or has no value here.
    """

    def value(match: re.Match[str]) -> str:
        space, name = match.groups()
        if space == "timestamp":
            return _format(name, at)
        values: Mapping[str, str | None] = {}
        if space == "firehose":
            values = {"random-string": random, "error-output-type": error_type}
        elif space in {"partitionKeyFromLambda", "partitionKeyFromQuery"}:
            values = keys
        expanded = values.get(name)
        if expanded is None:
            raise OptionError(f"the prefix {prefix!r} has {match[0]}, which has no value here")
        return expanded

    filled = _EXPRESSION.sub(value, prefix)
    if "!{" in filled:
        raise OptionError(f"the prefix {prefix!r} has an incomplete expression")
    return filled


def _format(pattern: str, at: datetime) -> str:
    parts = list[str]()
    for match in _FIELD.finditer(pattern):
        if match[1] is not None:
            parts.append(match[1].replace("''", "'") or "'")
        elif match[2] is None:
            parts.append(match[0])
        elif match[0] in _FORMATS:
            parts.append(at.strftime(_FORMATS[match[0]]))
        else:
            raise OptionError(f"the time {pattern!r} has {match[0]!r}: use {', '.join(_FORMATS)}")
    return "".join(parts)


_FAILED = "processing-failed"
_RANDOM_CHARACTERS = 11
_GZIP_LEVEL = 2
_HOUR_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class DeliveryReport(JobReport):
    """Result of writing in Firehose's layout.

    Attributes
    ----------
    dest
        The folder.
    records
        Changes that were written.
    rejected
        Records that are not changes. They are below the error prefix.
    foreign
        Changes of other tables, which were left out.
    files
        Objects, including those below the error prefix.
    """

    dest: str
    records: int
    rejected: int
    files: int
    foreign: int = 0


@dataclass
class _Buffer:
    """Text of one object until it is large enough, and the time of its first record."""

    keys: dict[str, str]
    began_at: datetime
    parts: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


@dataclass
class _Delivery:
    options: ChangesWriteOptions
    store: ObjectStore
    files: int = 0
    buffers: dict[tuple[str, ...], _Buffer] = field(default_factory=dict)
    failures: list[bytes] = field(default_factory=list)

    @property
    def is_partitioned(self) -> bool:
        """Whether dynamic partitioning uses one buffer for each partition."""
        return "!{partitionKey" in self.options.prefix

    def add_lines(self, lines: PlainLines) -> None:
        """Buffer lines as ``add`` does, many at a time."""
        if not self.is_partitioned:
            self._add_run(lines.data, lines.offsets, lines.hours[0])
            return
        # Each run of lines of one hour is added to the buffer of the hour.
        firsts = np.flatnonzero(np.diff(lines.hours, prepend=-1))
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(lines.hours)], strict=True):
            self._add_run(lines.data, lines.offsets[first : end + 1], lines.hours[first])

    def _add_run(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], hour: np.int64) -> None:
        keys = partition_keys(datetime.fromtimestamp(int(hour) * _HOUR_SECONDS, UTC))
        first = 0
        while first < len(offsets) - 1:
            buffer = self.buffers.get(self._buffer_key(keys))
            room = self.options.buffer_bytes - (0 if buffer is None else buffer.size_bytes)
            # The line that fills the buffer belongs to it.
            end = min(int(np.searchsorted(offsets, offsets[first] + room)), len(offsets) - 1)
            self.add(data[offsets[first] : offsets[end]].tobytes(), keys)
            first = end

    def _buffer_key(self, keys: dict[str, str]) -> tuple[str, ...]:
        return tuple(keys.values()) if self.is_partitioned else ()

    def add(self, data: bytes, keys: dict[str, str]) -> None:
        """Buffer one record, or several records of which only the last one can fill the buffer."""
        key = self._buffer_key(keys)
        buffer = self.buffers.get(key)
        if buffer is None:
            buffer = self.buffers[key] = _Buffer(keys, datetime.now(UTC))
        buffer.parts.append(data)
        buffer.size_bytes += len(data)
        if buffer.size_bytes >= self.options.buffer_bytes:
            self._write(self.buffers.pop(key))

    def finish(self) -> None:
        """Write the buffered records."""
        for buffer in self.buffers.values():
            self._write(buffer)
        if self.failures:
            at = datetime.now(UTC)
            prefix = expand(self.options.error_prefix, at, _random(), error_type=_FAILED, keys={})
            self._put(prefix, at, b"".join(self.failures))

    def _write(self, buffer: _Buffer) -> None:
        prefix = expand(self.options.prefix, buffer.began_at, _random(), keys=buffer.keys)
        self._put(prefix, buffer.began_at, b"".join(buffer.parts))

    def _put(self, prefix: str, at: datetime, text: bytes) -> None:
        name = f"{self.options.name}-1-{at:%Y-%m-%d-%H-%M-%S}-{uuid.uuid4()}"
        data, ending = (
            (igzip_lib.compress(text, _GZIP_LEVEL, igzip_lib.COMP_GZIP), ".gz") if self.options.gzip else (text, "")
        )
        self.store.put(f"{prefix}{name}{ending}", data)
        self.files += 1


def write_changes(changes: Iterable[bytes], options: ChangesWriteOptions) -> DeliveryReport:
    """Write change records below a prefix in the layout of Firehose.

    Invalid records are written below the error prefix.

    Parameters
    ----------
    changes
        Texts with any number of change records each. Replies of GetRecords are also accepted.

    Raises
    ------
    OptionError
        If a prefix has an unknown expression. Nothing is written then.
    """
    clock, now = Clock(), datetime.now(UTC)
    keys = defaultdict(str, partition_keys(now))
    expand(options.prefix, now, _random(), keys=keys)
    expand(options.error_prefix, now, _random(), error_type=_FAILED, keys={})
    store = open_store(options.dest, options)
    require_target(store)
    delivery, records, rejected = _Delivery(options, store), 0, 0
    table = None if options.table is None else OneTable(options.table)
    reader, images, foreign = DeliveredReader(table=table), ChangePrinter(), 0
    for text, seen in _parts(changes):
        lines = plain_lines(text, seen, images, table) if options.records == "lines" else None
        if lines is not None:
            for part in lines:
                delivery.add_lines(part)
                records += len(part.hours)
            continue
        delivered = reader.read(text, seen=seen)
        for change in delivered.changes:
            body = change.encode()
            try:
                line, at = change_line(body) if options.records == "lines" else (change, change_time(body))
            except DecodeError as error:
                delivered.failures.append(Failure(body, str(error)))
                continue
            delivery.add((f"{line}\n" if options.records == "lines" else line).encode(), partition_keys(at))
            records += 1
        rejected += len(delivered.failures)
        foreign += len(delivered.foreign)
        delivery.failures += [failure.line(int(time.time() * 1000)) for failure in delivered.failures]
    delivery.finish()
    return DeliveryReport(
        dest=options.dest,
        records=records,
        rejected=rejected,
        files=delivery.files,
        **clock.times(),
        foreign=foreign,
    )


def _parts(changes: Iterable[bytes]) -> Iterator[tuple[bytes, set[str]]]:
    """Yield the records of each text in parts, with the set of event ids seen before in the same text."""
    for text in changes:
        seen = set[str]()
        for part in text_parts(records_of(text)):
            yield part, seen


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_CHARACTERS)[:_RANDOM_CHARACTERS]
