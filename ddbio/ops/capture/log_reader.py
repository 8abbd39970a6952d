"""Read the log of a table's changes by the records of its batches, as far as their files are written."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ddbio.core.capture.columns import LOG_COLUMNS
from ddbio.core.capture.log_rows import log_schema
from ddbio.core.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.core.schema.file import schema_from_json
from ddbio.core.schema.own_names import is_own
from ddbio.errors import NotFoundError, SchemaError, TargetError
from ddbio.files.job_state import JobState
from ddbio.files.meta import META
from ddbio.files.parquet_input import open_parquet
from ddbio.ops.capture.batch_records import BatchRecords
from ddbio.ops.capture.batches import CAPTURE, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddbio.files.object_store import ObjectStore

_HEAD = re.compile(rf"{re.escape(META)}([A-Za-z0-9_]+)\.{CAPTURE}\.json")
_READERS = 16
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class LogFile:
    """Name one file of a log, and how many changes it has."""

    path: str
    rows: int


class CapturedLog:
    """Read the batches of the captures that write one folder; picklable as far as the store is.

    A position is a number for each capture: that of the last batch that was read.

    Parameters
    ----------
    job_ids
        The captures.
    """

    def __init__(self, store: ObjectStore, job_ids: Sequence[str]) -> None:
        self._store = store
        self._states = {job_id: JobState(store, job_id, CAPTURE) for job_id in job_ids}
        self._records = {job_id: BatchRecords(state) for job_id, state in self._states.items()}

    def schema(self) -> pa.Schema:
        """Return the columns of the log.

        Raises
        ------
        NotFoundError
            If no change was captured yet.
        """
        fields: dict[str, pa.Field[Any]] = {}
        for state in self._states.values():
            stored, head = state.read(COLUMNS), state.head() or {}
            if stored is not None:
                items = schema_from_json(stored["schema"])
                found = log_schema(
                    items, stored.get("keys", ()), old_image=head.get("old_image", False), event_id="table" in head
                )
                fields |= {each.name: each for each in found if each.name not in fields}
        if not fields:
            raise NotFoundError(f"the log {self._store.uri} has no columns yet: no change was captured")
        rescue = fields.pop(RESCUE_NAME)
        return pa.schema([*fields.values(), rescue])

    def keys(self) -> tuple[str, ...]:
        """Return the key attributes of the table whose changes these are.

        Raises
        ------
        NotFoundError
            If no change was captured yet.
        """
        for state in self._states.values():
            if (stored := state.read(COLUMNS)) is not None:
                return tuple(stored["keys"])
        raise NotFoundError(f"the log {self._store.uri} has no columns yet: no change was captured")

    def heads(self) -> dict[str, dict[str, Any]]:
        """Return what each capture was begun with: its stream, and when."""
        return {job_id: state.head() or {} for job_id, state in self._states.items()}

    def written(self) -> dict[str, int]:
        """Return the position behind all batches whose files are written."""
        return {job_id: records.committed for job_id, records in self._records.items()}

    def limit(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Return the position behind so many changes from another one; one batch at least is passed."""
        found, left = dict(start), records
        for job_id, last in end.items():
            for number in range(start.get(job_id, 0) + 1, last + 1):
                record = self._known(job_id, number, self._records[job_id].read(number))
                count = sum(each["rows"] for each in record["files"])
                if left < count and left < records:
                    return found
                found[job_id], left = number, left - count
        return found

    def files(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[LogFile]:
        """Return the files of the batches behind one position up to another, in their order."""
        found = list[LogFile]()
        with ThreadPoolExecutor(_READERS) as readers:
            for job_id, last in sorted(end.items()):
                first = start.get(job_id, 0) + 1
                records = self._records[job_id].between(first, last, readers.map)
                for number, record in enumerate(records, first):
                    files = self._known(job_id, number, record)["files"]
                    found += [LogFile(each["path"], each["rows"]) for each in files]
        return found

    def _known(self, job_id: str, number: int, record: dict[str, Any] | None) -> dict[str, Any]:
        if record is None:
            raise TargetError(
                f"batch {number} of job {job_id} of the log {self._store.uri} has no record: something removed it",
                self._store.uri,
            )
        return record


def captures_of(store: ObjectStore, job_id: str | None = None) -> list[str]:
    """Return the ids of the captures that have written a folder, and of the jobs that have healed their gaps.

    Parameters
    ----------
    job_id
        Take this capture alone.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    found = [match[1] for each in store.list(META) if (match := _HEAD.fullmatch(each.path))]
    if not found:
        raise NotFoundError(f"{store.uri} is no log of changes: ddbio capture has never written it")
    if job_id is not None:
        found = [job_id, *(each for each in found if each.startswith(f"{job_id}_heal_"))]
    return sorted(found)


def read_log_file(store: ObjectStore, file: LogFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in these columns; one that the file does not have yet is null.

    Raises
    ------
    NotFoundError
        If the file is gone.
    SchemaError
        If a value does not fit the type of its column.
    """
    try:
        parquet = open_parquet(pa.BufferReader(store.read(file.path)))
    except NotFoundError:
        raise NotFoundError(
            f"{file.path} of the log {store.uri} is gone: a compaction that does not keep old files, or a vacuum, was "
            "ahead of this reader. Compact hours that every reader has behind it, or with keep_old"
        ) from None
    names = _names_in(parquet.schema_arrow, columns)
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=[name for name in names if name is not None]):
        arrays = []
        for each, name in zip(columns, names, strict=True):
            try:
                arrays.append(pa.nulls(len(batch), each.type) if name is None else batch.column(name).cast(each.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SchemaError(f"{each.name} of {file.path}: {error}") from error
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _names_in(file: pa.Schema, columns: pa.Schema) -> list[str | None]:
    """Return what a file calls each column: an attribute may have another column in files of an older release."""
    own = {each.name: is_own(each, LOG_COLUMNS) for each in file}
    attributes = {name_of_field(each): each.name for each in file if not own[each.name]}
    return [
        each.name if own.get(each.name) is is_own(each, LOG_COLUMNS) else attributes.get(name_of_field(each))
        for each in columns
    ]
