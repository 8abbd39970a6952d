"""Reader of objects that Firehose has delivered.

Changes become rows of the log, invalid records go to an error prefix.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.cdc.delivered_records import Delivered, DeliveredReader, sample_keys, write_failures
from ddbio.cdc.log_order import within_times
from ddbio.cdc.log_rows import LogDecoder, item_schema
from ddbio.cdc.one_table import OPENINGS, OneTable, named_tables, table_names
from ddbio.errors import DecodeError, NotFoundError, OptionError
from ddbio.formats.delivered_text import delivered_head, delivered_text
from ddbio.formats.file_format import BATCH_ROWS, ReadOptions
from ddbio.formats.registry import FORMATS, MAGIC_BYTES, format_of_bytes
from ddbio.items.batch_stream import RecordBatchStream
from ddbio.items.decode import infer_schema_of_body
from ddbio.items.kernel.members import Openings
from ddbio.items.schema.arrow import name_of_field, tag_of_field
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.rejected_rows import require_reject_location
from ddbio.jobs.stores import open_store
from ddbio.sources.data_files import named_errors
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from ddbio.cdc.delivered_records import Failure
    from ddbio.cdc.log_rows import LogRows
    from ddbio.cdc.options import ChangesReadOptions, DeliveredOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

log = logging.getLogger("ddbio.changes")

_OPENINGS = Openings((b"eventID", *OPENINGS))
_ROW_FILES = ("parquet", "orc")
_SAMPLED_OBJECTS, _SAMPLE_BYTES, _SAMPLED_CHANGES = 8, 1024 * 1024, 250
# Clocks of services differ. A margin of one day costs little.
_MARGIN = timedelta(days=1)
# Firehose puts the time of the oldest record into the name of an object.
_NAMED_AT = re.compile(r"-(\d{4})-(\d{2})-(\d{2})-(\d{2})-(\d{2})-(\d{2})-[^/]*$")
_MAX_RANK_IN_SECOND = 99


@dataclass
class DeliveredObjects:
    """Objects under a prefix, and the decoding of their changes.

    Attributes
    ----------
    replays
        Whether records that failed before are tried again.
    old_image
        Whether rows have the old image, regardless of the options.
    table
        The table whose changes are read.
    objects
        The objects in the order of their delivery.
    changes, failures, skipped, duplicates, foreign
        Counts so far: changes; records that are not changes; records that failed before and are not tried again;
        changes that are in an object twice; changes of other tables.
    """

    options: DeliveredOptions
    replays: bool = False
    old_image: bool = False
    table: OneTable = field(default_factory=OneTable)
    store: ObjectStore = field(init=False)
    objects: list[StoredObject] = field(init=False)
    changes: int = 0
    failures: int = 0
    skipped: int = 0
    duplicates: int = 0
    foreign: int = 0
    _ranks: dict[str, int] = field(default_factory=dict)
    _decoder: LogDecoder | None = None
    _reader: DeliveredReader = field(init=False)

    def __post_init__(self) -> None:
        """List the objects."""
        self.store = open_store(self.options.source, self.options)
        entries = [entry for entry in self.store.list() if not entry.path.startswith(META) and entry.size_bytes]
        if not entries:
            raise NotFoundError(f"{self.store.uri}: there are no objects")
        require_reject_location(self.options.reject_to, self.options)
        self.objects = sorted(entries, key=lambda entry: (_delivered_at(entry), entry.path))
        seconds = Counter[int]()
        for entry in self.objects:
            at = _delivered_at(entry)
            self._ranks[entry.path] = 100 * at + min(seconds[at], _MAX_RANK_IN_SECOND)
            seconds[at] += 1
        self._reader = self._reader_of(self.options.keys or ())

    def prepare(self, schema: pa.Schema | None = None, keys: tuple[str, ...] = ()) -> None:
        """Determine the columns: the given ones, those of the options, or those inferred from some objects.

        Raises
        ------
        DecodeError
            If no object has a change.
        OptionError
            If the changes are of other tables, or of several tables and none was chosen.
        """
        is_new = schema is None
        if schema is None and self.options.schema is not None:
            schema = arrow_schema_of(self.options.schema)
        keys = self.options.keys or keys
        self._reader = self._reader_of(keys)
        if schema is None or not keys:
            inferred, named = self._inferred()
            schema, keys = schema or inferred, keys or named
        if is_new:
            schema = item_schema(schema, keys)
        self._decoder = LogDecoder(schema, keys, old_image=self.old_image or self.options.old_image)
        tags = {name_of_field(field): tag_of_field(field) for field in schema}
        self._reader = self._reader_of(keys, tags)
        self.items, self.keys = schema, keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        if self._decoder is None:
            raise RuntimeError("prepare comes first")
        return self._decoder.schema

    def rows(self, entry: StoredObject) -> LogRows | None:
        """Return the changes of an object. Records that are not changes are written to the error prefix.

        Raises
        ------
        DecodeError
            If a record is not a change, and there is no error prefix.
        OptionError
            If a change is of another table than the earlier ones, and no table was chosen.
        """
        if self._decoder is None:
            raise RuntimeError("prepare comes first")
        with named_errors(self.store, entry.path):
            data = self._data(entry)
            rows = self._plain_rows(entry, data) if isinstance(data, bytes) else None
            if rows is None:
                delivered = self._read(data)
                if delivered.failures:
                    self._reject(entry, delivered.failures)
                self.skipped += delivered.errors
                self.duplicates += delivered.duplicates
                self.foreign += len(delivered.foreign)
                rank = self._ranks[entry.path]
                rows = self._decoder.decode_records(delivered.text(), rank) if delivered.changes else None
        self.changes += 0 if rows is None else rows.rows.num_rows
        return rows if rows is not None and rows.rows.num_rows else None

    def _reader_of(self, keys: tuple[str, ...], tags: Mapping[str, str] | None = None) -> DeliveredReader:
        return DeliveredReader(keys, tags or {}, self.replays, self.table)

    def _plain_rows(self, entry: StoredObject, data: bytes) -> LogRows | None:
        """Return the changes of a text that has only records, each once. Returns None for any other text."""
        members = _OPENINGS.find(data)
        ids: Any = pa.array([], pa.string()) if members is None else members[0]
        if self._decoder is None or members is None or pc.count_distinct(ids).as_py() < len(ids):
            return None
        try:
            rows = self._decoder.decode_records(data, self._ranks[entry.path], needs_images=self.replays)
        except DecodeError:
            return None
        count = 0 if rows is None else rows.rows.num_rows
        tables = named_tables(members[1:], data, count)
        if rows is None or tables is None or (len(ids) != count and b'"eventID"' in data):
            return None
        if not len(tables):
            return rows
        own = self.table.own_rows(table_names(tables))
        self.foreign += int((~own).sum())
        return rows.keep(own)

    def _data(self, entry: StoredObject, most: int | None = None) -> bytes | pa.Table:
        """Return the text of an object, or its rows. ``most`` limits the read to the start of the object."""
        head = self.store.read_range(entry, 0, min(entry.size_bytes, _SAMPLE_BYTES if most else MAGIC_BYTES))
        kind = format_of_bytes(head, None)
        if kind in _ROW_FILES:
            reader = FORMATS[kind].open_reader(self.store, entry, ReadOptions())
            batches = list[pa.RecordBatch]()
            for part in range(len(reader.parts().sizes_bytes)):
                if most is None or sum(batch.num_rows for batch in batches) < most:
                    batches += reader.read(part, BATCH_ROWS)
            return pa.Table.from_batches(batches, batches[0].schema if batches else reader.schema()).slice(0, most)
        text = None if most is None else delivered_head(head, entry.path, _SAMPLE_BYTES)
        return delivered_text(self.store.read(entry.path), entry.path) if text is None else text

    def _read(self, data: bytes | pa.Table, most: int | None = None) -> Delivered:
        return self._reader.read(data, most) if isinstance(data, bytes) else self._reader.read_rows(data)

    def _reject(self, entry: StoredObject, failures: list[Failure]) -> None:
        self.failures += len(failures)
        if self.options.reject_to is None:
            first = failures[0]
            raise DecodeError(
                f"{len(failures)} of its records are not changes, the first: {first.reason}; reject_to separates them"
            )
        store = open_store(self.options.reject_to, self.options)
        day = datetime.fromtimestamp(entry.modified_at, UTC)
        name = hashlib.sha256(f"{self.store.uri}/{entry.path} {entry.version}".encode()).hexdigest()[:24]
        write_failures(store, f"{day:%Y/%m/%d/%H}/{name}", failures)
        log.warning("%s: %d records are not changes, and were written to %s", entry.path, len(failures), store.uri)

    def _inferred(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns and the keys inferred from some objects."""
        step = max(1, len(self.objects) // _SAMPLED_OBJECTS)
        schema, keys, reasons, foreign = None, self._reader.keys, list[str](), set[str]()
        # If the samples have only changes of other tables, the first object with changes of the table determines the
        # columns.
        sampled = [(entry, _SAMPLED_CHANGES) for entry in self.objects[::step]]
        for entry, most in [*sampled, *((entry_, None) for entry_ in self.objects)]:
            if most is None and (schema is not None or not foreign):
                break
            with named_errors(self.store, entry.path):
                delivered = self._read(self._data(entry, most), most)
            reasons += [failure.reason for failure in delivered.failures]
            foreign.update(delivered.foreign)
            if not delivered.changes:
                continue
            keys = keys or sample_keys(delivered.changes)
            shown = infer_schema_of_body(delivered.text())
            schema = shown if schema is None else schema.merge(shown)
        if schema is None and foreign:
            raise OptionError(
                f"{self.store.uri}: there are no changes of table {self.table.name!r}, but of "
                f"{', '.join(sorted(foreign))}: choose the table with {self.table.option}"
            )
        if schema is None:
            raise DecodeError(
                f"{self.store.uri}: no object has changes{f': {reasons[0]}' if reasons else ''}", self.store.uri
            )
        return schema.to_arrow(), keys


def _delivered_at(entry: StoredObject) -> int:
    """Return the time of delivery of an object, in seconds since 1970.

    The time is taken from the object's name, which copies keep, or from its date if the name has no time. The names of
    folders are ignored, as they may have any time.
    """
    match = _NAMED_AT.search(entry.path)
    try:
        named = None if match is None else datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        named = None
    return max(0, int(entry.modified_at if named is None else named.timestamp()))


def read_changes(options: ChangesReadOptions) -> pa.Table:
    """Return the changes under a prefix as an Arrow table.

    Raises
    ------
    NotFoundError
        If there are no objects.
    OptionError
        If there are changes of several tables, and ``table`` is not given.
    DecodeError
        If a record is not a change, and ``reject_to`` is not given.
    """
    return read_changes_batches(options).read_all()


def read_changes_batches(options: ChangesReadOptions) -> RecordBatchStream:
    """Return the same changes as :func:`read_changes` as a stream of batches, one for each object.

    Raises
    ------
    NotFoundError, OptionError, DecodeError
        As for :func:`read_changes`.
    """
    delivered = DeliveredObjects(options, table=OneTable(options.table))
    delivered.prepare()
    return RecordBatchStream(delivered.schema, _batches(delivered, options.since, options.until))


def may_have_changes(uri: str, entry: StoredObject, since: datetime | None) -> bool:
    """Return whether an object may have changes since a time, from the date of an S3 object. Local files always may."""
    is_old = since is not None and entry.modified_at < (since - _MARGIN).timestamp()
    return not (is_old and uri.startswith("s3://"))


def _batches(
    delivered: DeliveredObjects, since: datetime | None, until: datetime | None
) -> Generator[pa.RecordBatch, None, None]:
    for entry in delivered.objects:
        rows = delivered.rows(entry) if may_have_changes(delivered.store.uri, entry, since) else None
        batch = None if rows is None else within_times(rows.rows, since, until)
        if batch is not None and batch.num_rows:
            yield batch
    if delivered.foreign:
        log.warning("%s: %d changes of other tables were left out", delivered.store.uri, delivered.foreign)
