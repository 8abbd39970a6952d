"""Read objects that Firehose has delivered: their changes as rows of the log, and what is none to an error prefix."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ddbio.core.capture.columns import EVENT_TIME
from ddbio.core.capture.delivered import Delivered, DeliveredReader, sample_keys
from ddbio.core.capture.log_rows import LogDecoder, item_schema
from ddbio.core.items.batch_stream import RecordBatchStream
from ddbio.core.items.decode import infer_schema_of_body
from ddbio.core.schema.arrow import name_of_field, tag_of_field
from ddbio.core.schema.item_schema import arrow_schema_of
from ddbio.errors import DecodeError, NotFoundError
from ddbio.files.decompress import decompress, decompress_head
from ddbio.files.meta import META
from ddbio.files.parquet_input import read_parquet
from ddbio.ops.data_files import named_errors
from ddbio.ops.job.reject_place import require_reject_place
from ddbio.ops.job.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Generator

    from ddbio.core.capture.delivered import Failure
    from ddbio.core.capture.log_rows import LogRows
    from ddbio.core.folders.staged import StoredObject
    from ddbio.files.object_store import ObjectStore
    from ddbio.options.changes import ChangesReadOptions, DeliveredOptions

log = logging.getLogger("ddbio.changes")

_PARQUET = b"PAR1"
_SAMPLED_OBJECTS, _SAMPLE_BYTES, _SAMPLED_CHANGES = 8, 1024 * 1024, 250
# A folder says when the oldest record of an object came, in a time zone that may be a user's own.
_MARGIN = timedelta(days=1)
_DAY = re.compile(r"(?:^|/)(?:year=)?(\d{4})/(?:month=)?(\d{2})/(?:day=)?(\d{2})(?:/|$)")


@dataclass
class DeliveredObjects:
    """Hold the objects under a prefix, and how their changes are decoded.

    Attributes
    ----------
    replays
        Whether records that failed before are tried again.
    old_image
        Whether rows have the item as it was before, whatever the options say.
    since, until
        Times of changes: folders of other days are left out.
    objects
        In the order of their paths.
    changes, failures, skipped, duplicates
        What was read so far: changes; what is none; records that failed earlier, if they are not tried again; changes
        that came twice in an object.
    """

    options: DeliveredOptions
    replays: bool = False
    old_image: bool = False
    since: datetime | None = None
    until: datetime | None = None
    store: ObjectStore = field(init=False)
    objects: list[StoredObject] = field(init=False)
    changes: int = 0
    failures: int = 0
    skipped: int = 0
    duplicates: int = 0
    _decoder: LogDecoder | None = None
    _reader: DeliveredReader = field(init=False)

    def __post_init__(self) -> None:
        """List the objects."""
        self.store = open_store(self.options.source, self.options)
        self.objects = sorted((each for each in self.store.list() if self._is_wanted(each)), key=lambda each: each.path)
        if not self.objects:
            raise NotFoundError(f"{self.store.uri}: there are no objects")
        require_reject_place(self.options.reject_to, self.options)
        self._reader = DeliveredReader(self.options.keys or (), {}, self.replays)

    def prepare(self, schema: pa.Schema | None = None, keys: tuple[str, ...] = ()) -> None:
        """Decide the columns: those given, those of the options, or those that some objects show.

        Raises
        ------
        DecodeError
            If no object has a change.
        """
        is_new = schema is None
        if schema is None and self.options.schema is not None:
            schema = arrow_schema_of(self.options.schema)
        keys = self.options.keys or keys
        self._reader = DeliveredReader(keys, {}, self.replays)
        if schema is None or not keys:
            found, named = self._inferred()
            schema, keys = schema or found, keys or named
        if is_new:
            schema = item_schema(schema, keys)
        self._decoder = LogDecoder(schema, keys, old_image=self.old_image or self.options.old_image)
        tags = {name_of_field(each): tag_of_field(each) for each in schema}
        self._reader = DeliveredReader(keys, tags, self.replays)
        self.items, self.keys = schema, keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        if self._decoder is None:
            raise RuntimeError("prepare comes first")
        return self._decoder.schema

    def rows(self, entry: StoredObject) -> LogRows | None:
        """Return the changes of an object; what is none goes to the error prefix.

        Raises
        ------
        DecodeError
            If something is no change, and there is no error prefix.
        """
        if self._decoder is None:
            raise RuntimeError("prepare comes first")
        with named_errors(self.store, entry.path):
            data = decompress(self.store.read(entry.path), entry.path)
            rows = None if data.startswith(_PARQUET) else self._plain_rows(data)
            if rows is None:
                found = self._read(data)
                if found.failures:
                    self._reject(entry, found.failures)
                self.skipped += found.errors
                self.duplicates += found.duplicates
                rows = self._decoder.decode_records(found.text()) if found.changes else None
        if rows is not None:
            self.changes += rows.rows.num_rows
        return rows

    def _plain_rows(self, data: bytes) -> LogRows | None:
        """Return the changes of a text that holds nothing but records, each once; None if it holds other things."""
        ids = re.findall(rb'"eventID"\s*:\s*"([^"]+)"', data)
        if self._decoder is None or len(set(ids)) != len(ids):
            return None
        try:
            return self._decoder.decode_records(data)
        except DecodeError:
            return None

    def _read(self, data: bytes, most: int | None = None) -> Delivered:
        if data.startswith(_PARQUET):
            rows = read_parquet(pa.BufferReader(data))
            return self._reader.read_rows(rows if most is None else rows.slice(0, most))
        return self._reader.read(data, most)

    def _reject(self, entry: StoredObject, failures: list[Failure]) -> None:
        self.failures += len(failures)
        if self.options.reject_to is None:
            first = failures[0]
            raise DecodeError(
                f"{len(failures)} of its records are no changes, the first: {first.reason}; reject_to keeps them apart"
            )
        store = open_store(self.options.reject_to, self.options)
        lines = b"".join(each.line(int(time.time() * 1000)) for each in failures)
        day = datetime.fromtimestamp(entry.modified_at, UTC)
        name = hashlib.sha256(f"{self.store.uri}/{entry.path} {entry.version}".encode()).hexdigest()[:24]
        # A run that is repeated finds the same failures: one object of them is enough.
        store.put_if_absent(f"processing-failed/{day:%Y/%m/%d/%H}/{name}", lines)
        log.warning("%s: %d records are no changes: they are in %s", entry.path, len(failures), store.uri)

    def _inferred(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns and the keys that some objects show."""
        step = max(1, len(self.objects) // _SAMPLED_OBJECTS)
        schema, keys, reasons = None, self._reader.keys, list[str]()
        for entry in self.objects[::step]:
            with named_errors(self.store, entry.path):
                found = self._read(self._head(entry), _SAMPLED_CHANGES)
            reasons += [each.reason for each in found.failures]
            if not found.changes:
                continue
            keys = keys or sample_keys(found.changes)
            shown = infer_schema_of_body(found.text())
            schema = shown if schema is None else schema.merge(shown)
        if schema is None:
            raise DecodeError(
                f"{self.store.uri}: no object has changes{f': {reasons[0]}' if reasons else ''}", self.store.uri
            )
        return schema.to_arrow(), keys

    def _head(self, entry: StoredObject) -> bytes:
        """Return the text that an object begins with, or a whole file of Parquet."""
        head = self.store.read_range(entry, 0, min(entry.size_bytes, _SAMPLE_BYTES))
        return self.store.read(entry.path) if head.startswith(_PARQUET) else decompress_head(head, _SAMPLE_BYTES)[0]

    def _is_wanted(self, entry: StoredObject) -> bool:
        if entry.path.startswith(META) or not entry.size_bytes:
            return False
        found = _DAY.search(entry.path)
        if found is None:
            return True
        try:
            day = datetime(*map(int, found.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
        except ValueError:
            return True
        is_before = self.since is not None and day + timedelta(days=1) < self.since - _MARGIN
        return not is_before and (self.until is None or day <= self.until + 2 * _MARGIN)


def read_changes_batches(options: ChangesReadOptions) -> RecordBatchStream:
    """Return the changes under a prefix as a stream of batches, one for each object."""
    found = DeliveredObjects(options, since=options.since, until=options.until)
    found.prepare()
    return RecordBatchStream(found.schema, _batches(found))


def _batches(found: DeliveredObjects) -> Generator[pa.RecordBatch, None, None]:
    for entry in found.objects:
        rows = found.rows(entry)
        if rows is None:
            continue
        batch = rows.rows
        for bound, keeps in ((found.since, pc.greater_equal), (found.until, pc.less)):
            if bound is not None:
                batch = batch.filter(keeps(batch.column(EVENT_TIME), pa.scalar(bound, pa.timestamp("us", "UTC"))))
        if batch.num_rows:
            yield batch
