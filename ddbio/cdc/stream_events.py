"""Write the records of a stream that Lambda hands over into a log, each once, however Lambda repeats and divides them.

A file is named by the first and the last number that it has. Before one is written, the numbers of those that overlap
are read, and left out: that is one list and, after a failure, the reading of a small file. Whoever reads the log next
records the files in batches.
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

from ddbio.cdc.delivered_records import Failure, keep_failures
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
from ddbio.jobs.rejected_rows import require_reject_place
from ddbio.jobs.stores import open_store
from ddbio.storage.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.cdc.options import StreamEventOptions

_RANGE = re.compile(r"-(\d+)-(\d+)\.parquet$")


class StreamEventLog:
    """Hold the log of one stream; keep it from one event to the next.

    Parameters
    ----------
    arn
        The stream's.

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
            require_reject_place(options.reject_to, options)
        self._require_table(table_of({"eventSourceARN": arn}))
        self._state.begin({"stream": arn, "old_image": options.old_image, "started_at": time.time()})
        if options.old_image:
            turn_on_old_images(self._state)
        self._old_image = options.old_image or has_old_images(self._state)
        self._decoder: LogDecoder | None = None

    def _require_table(self, table: str | None) -> None:
        """Refuse a stream of another table than that of the log."""
        if table is None:
            return
        begun = JobState(self._store, "log", "table")
        found = begun.read("name")
        if found is None:
            heads = (each.head() or {} for each in jobs_in(self._store, CAPTURE, HANDLER))
            tables = map(table_of_job, heads)
            # Of several functions that begin at the same time one stores the table.
            begun.put_once("name", {"table": next(filter(None, tables), table)})
            found = begun.read("name") or {}
        if found["table"] != table:
            raise OptionError(
                f"the log {self._store.uri} has the changes of table {found['table']!r}, and these are of {table!r}: "
                "give each table a log of its own, or say with table whose changes to take"
            )

    def write(self, records: Sequence[dict[str, Any]]) -> str | None:
        """Write the changes of some records; return the number of the first that is none, behind which all is left.

        With ``reject_to``, what is no change is kept there, and nothing is left.
        """
        for index, record in enumerate(records):
            if not isinstance(record.get("dynamodb"), dict):
                raise OptionError(
                    f"record {index} of the event is of no DynamoDB stream: {record.get('eventSource')!r}"
                )
        try:
            self._append(records)
        except DecodeError:
            return self._write_singly(records)
        return None

    def _write_singly(self, records: Sequence[dict[str, Any]]) -> str | None:
        """Write the records around those that are no changes."""
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
            given, stored = self._options.schema, read_columns(self._state)
            wanted = None if given is None else item_schema(arrow_schema_of(given), keys)
            if stored is None:
                known = columns_in(self._store, keys) if wanted is None else wanted
                chosen = item_schema(infer_schema_of_body(body).to_arrow(), keys) if known is None else known
                stored = keep_columns(self._state, Columns(chosen, keys))
            elif wanted is not None:
                stored = keep_columns(self._state, Columns(wanted, keys), replaces=True)
            self._decoder = LogDecoder(stored.schema, stored.keys, old_image=self._old_image)
        return self._decoder.decode(body)

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        found = self._decode(records) if records else None
        for hour, rows in found.of_hours() if found is not None else ():
            folder, numbers = hour_folder(hour), _numbers_of(rows.rows)
            written = self._written(folder, min(numbers), max(numbers))
            new = [each for each in numbers if each not in written]
            if new:
                kept = rows.keep(np.array([each not in written for each in numbers], np.bool_))
                path = f"{folder}{self._state.job_id}-{min(new)}-{max(new)}.parquet"
                data = parquet_bytes(pa.Table.from_batches([kept.rows]), self._options.compression)
                self._store.put_if_absent(path, data)

    def _written(self, folder: str, first: int, last: int) -> set[int]:
        """Return the numbers of files of the folder that overlap with these."""
        found = set[int]()
        for entry in self._store.list(f"{folder}{self._state.job_id}-"):
            match = _RANGE.search(entry.path)
            if match and int(match[1]) <= last and int(match[2]) >= first:
                found.update(_numbers_of(read_parquet(pa.BufferReader(self._store.read(entry.path)), [SEQUENCE])))
        return found

    def _reject(self, record: dict[str, Any], reason: str) -> None:
        failure = Failure(json.dumps(record).encode(), reason)
        store = open_store(self._options.reject_to or "", self._options)
        digest = hashlib.sha256(failure.raw).hexdigest()[:24]
        keep_failures(store, f"{datetime.now(UTC):%Y/%m/%d}/{self._state.job_id}-{digest}", [failure])


def _numbers_of(rows: pa.RecordBatch | pa.Table) -> list[int]:
    return [int(str(each)) for each in rows.column(SEQUENCE).to_pylist()]
