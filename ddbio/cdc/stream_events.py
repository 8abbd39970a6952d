"""Log of the stream records that Lambda passes to a function.

Each record is written once, even if Lambda repeats or splits events.

The name of a file has its first and its last sequence number. Before a file is written, the sequence numbers of files
with an overlapping range are read, and these records are left out. This costs one list request and, after a failure,
reading one small file. The next reader of the log records the files in batches.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.cdc.delivered_records import Failure, write_failures
from ddbio.cdc.log_jobs import (
    CAPTURE,
    HANDLER,
    Columns,
    columns_in,
    has_old_images,
    jobs_in,
    keep_columns,
    read_columns,
    turn_on_old_images,
)
from ddbio.cdc.log_rows import LogDecoder, LogRows, hour_folder, item_schema
from ddbio.cdc.stream_registry import table_of_job
from ddbio.commit.contents import require_target
from ddbio.errors import DecodeError, OptionError
from ddbio.formats.log_columns import SEQUENCE
from ddbio.formats.parquet import parquet_bytes
from ddbio.formats.parquet_input import read_parquet
from ddbio.items.decode import infer_schema_of_body
from ddbio.items.json_text import compact_json
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.items.stream_records import table_of
from ddbio.jobs.rejected_rows import require_reject_location
from ddbio.jobs.stores import open_store
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.cdc.options import StreamEventOptions

_RANGE = re.compile(r"-(\d+)-(\d+)\.parquet$")


class StreamEventLog:
    """Log of one stream. Keep the object between events.

    Parameters
    ----------
    options
        The options of the log.
    arn
        The ARN of the stream.

    Raises
    ------
    OptionError
        If the log has the changes of another table.
    """

    def __init__(self, options: StreamEventOptions, arn: str) -> None:
        self._options = options
        self._store = open_store(options.dest, options)
        job_id = f"stream_{hashlib.sha256(arn.encode()).hexdigest()[:12]}"
        self._state = JobState(self._store, job_id, HANDLER)
        if self._state.head() is None:
            require_target(self._store)
            require_reject_location(options.reject_to, options)
        self._require_table(table_of({"eventSourceARN": arn}))
        self._state.begin({"stream": arn, "old_image": options.old_image, "started_at": time.time()})
        if options.old_image:
            turn_on_old_images(self._state)
        self._old_image = options.old_image or has_old_images(self._state)
        self._decoder: LogDecoder | None = None

    def _require_table(self, table: str | None) -> None:
        """Raise if the stream belongs to another table than the log."""
        if table is None:
            return
        begun = JobState(self._store, "log", "table")
        stored = begun.read("name")
        if stored is None:
            heads = (job.head() or {} for job in jobs_in(self._store, CAPTURE, HANDLER))
            tables = map(table_of_job, heads)
            # If several functions start at the same time, one of them stores the table.
            begun.put_once("name", {"table": next(filter(None, tables), table)})
            stored = begun.read("name") or {}
        if stored["table"] != table:
            raise OptionError(
                f"the log {self._store.uri} has the changes of table {stored['table']!r}, and these are of {table!r}: "
                "use a separate log for each table, or choose the table with the option table"
            )

    def write(self, records: Sequence[dict[str, Any]]) -> str | None:
        """Write the changes of some records. Return the sequence number of the first invalid record, or None.

        Without ``reject_to``, the invalid record and all records after it are not written. With ``reject_to``, invalid
        records are written there and all others are written to the log.
        """
        for index, record in enumerate(records):
            if not isinstance(record.get("dynamodb"), dict):
                raise OptionError(
                    f"record {index} of the event is not of a DynamoDB stream: {record.get('eventSource')!r}"
                )
        try:
            self._append(records)
        except DecodeError:
            return self._write_singly(records)
        return None

    def _write_singly(self, records: Sequence[dict[str, Any]]) -> str | None:
        """Write the valid records one by one, up to the first invalid one, or all of them with ``reject_to``."""
        good = list[dict[str, Any]]()
        for record in records:
            try:
                self._decode([record])
            except DecodeError as error:
                if self._options.reject_to is None:
                    self._append(good)
                    return str(record["dynamodb"]["SequenceNumber"])
                self._reject(record, str(error))
            else:
                good.append(record)
        self._append(good)
        return None

    def _decode(self, records: Sequence[dict[str, Any]]) -> LogRows | None:
        body = compact_json({"Records": list(records)}).encode()
        if self._decoder is None:
            keys = tuple(records[0]["dynamodb"].get("Keys") or {})
            schema, stored = self._options.schema, read_columns(self._state)
            declared = None if schema is None else item_schema(arrow_schema_of(schema), keys)
            if stored is None:
                columns = columns_in(self._store, keys) if declared is None else declared
                chosen = item_schema(infer_schema_of_body(body).to_arrow(), keys) if columns is None else columns
                stored = keep_columns(self._state, Columns(chosen, keys))
            elif declared is not None:
                stored = keep_columns(self._state, Columns(declared, keys), replaces=True)
            self._decoder = LogDecoder(stored.schema, stored.keys, old_image=self._old_image)
        return self._decoder.decode(body)

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        decoded = self._decode(records) if records else None
        for hour, rows in decoded.of_hours() if decoded is not None else ():
            folder, numbers = hour_folder(hour), _numbers_of(rows.rows)
            written = self._written(folder, min(numbers), max(numbers))
            new = [number for number in numbers if number not in written]
            if new:
                new_rows = rows.keep(np.array([number not in written for number in numbers], np.bool_))
                path = f"{folder}{self._state.job_id}-{min(new)}-{max(new)}.parquet"
                data = parquet_bytes(pa.Table.from_batches([new_rows.rows]), self._options.compression)
                self._store.put_if_absent(path, data)

    def _written(self, folder: str, first: int, last: int) -> set[int]:
        """Return the sequence numbers in the files of the folder whose range overlaps with this one."""
        written = set[int]()
        for entry in self._store.list(f"{folder}{self._state.job_id}-"):
            match = _RANGE.search(entry.path)
            if match and int(match[1]) <= last and int(match[2]) >= first:
                written.update(_numbers_of(read_parquet(pa.BufferReader(self._store.read(entry.path)), [SEQUENCE])))
        return written

    def _reject(self, record: dict[str, Any], reason: str) -> None:
        failure = Failure(json.dumps(record).encode(), reason)
        store = open_store(self._options.reject_to or "", self._options)
        digest = hashlib.sha256(failure.raw).hexdigest()[:24]
        write_failures(store, f"{datetime.now(UTC):%Y/%m/%d}/{self._state.job_id}-{digest}", [failure])


def _numbers_of(rows: pa.RecordBatch | pa.Table) -> list[int]:
    return [int(str(number)) for number in rows.column(SEQUENCE).to_pylist()]
