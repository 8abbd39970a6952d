"""Jobs that write a log, the records of their batches, and batch numbers for files without records.

The files of a log belong to its jobs: captures, jobs that heal gaps, replays and the Lambda handler. Captures and heals
record each batch before its files. Replays and the handler write only files: a file that exists is complete. Every
reader or compaction of the log records their new files as batches of the job, each file once. So all jobs can be read
by batch numbers, including those of older versions.
"""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ddbio.cdc.lineages import LogLineage, lineages_of
from ddbio.cdc.log_rows import hour_seconds
from ddbio.cdc.stream_registry import kind_of
from ddbio.commit.snapshot import log_job_of, read_history
from ddbio.errors import NotFoundError
from ddbio.formats.log_columns import EVENT_TIME
from ddbio.formats.parquet_input import open_footer
from ddbio.formats.registry import is_row_file
from ddbio.items.schema.arrow import RESCUE_NAME, name_of_field
from ddbio.items.schema.file import schema_from_json, schema_to_json
from ddbio.storage.job_state import JobState
from ddbio.storage.meta import META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    Record: TypeAlias = "dict[str, Any] | None"
    ReadAll: TypeAlias = Callable[[Callable[[int], Record], Iterable[int]], Iterable[Record]]
    from collections.abc import Iterable, Sequence

    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

CAPTURE, REPLAY, HANDLER = "capture", "replay", "lambda"
"""Kinds of jobs that write files of a log. Replays and the handler write no records."""
COLUMNS = "columns"
"""Record with the columns of items."""
_OLD_IMAGES = "old_images"
"""Record of a job that started without old images and has turned them on later."""
COMMITTED = "committed"
"""Record with the number of the last batch whose files are written."""
FOLD_BATCHES = 200
# The maximum number of folds after a batch, if the records were not folded before. The next batches make the others.
_MAX_FOLDS = 5


@dataclass
class BatchRecords:
    """Records of one capture's batches. Threads may read them.

    Attributes
    ----------
    state
        The state of the capture.
    fold_batches
        The number of batches that are folded into one object. All readers and writers of a log must use the same
        number.
    """

    state: JobState
    fold_batches: int = FOLD_BATCHES
    _own: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Records that were written here and are not folded yet."""
    _fold: tuple[int, dict[int, dict[str, Any]]] = (0, {})
    """The last fold that was read."""

    @property
    def committed(self) -> int:
        """Number of the last batch whose files are written; 0 if there is none."""
        number: int = (self.state.read(COMMITTED) or {"batch": 0})["batch"]
        return number

    def commit(self, number: int) -> None:
        """Record that the files of a batch are written. Fold records if a fold is complete."""
        self.state.put(COMMITTED, {"batch": number})
        if number % self.fold_batches == 0:
            self.fold(number)

    def read(self, number: int) -> dict[str, Any] | None:
        """Return the record of a batch, or None if there is none."""
        if number in (folded_records := self._fold[1]):
            return folded_records[number]
        record = self.state.read(batch_name(number))
        # A record is folded before it is deleted. A record that is written under its name after that is not valid.
        folded = self._folded(self._end_of(number))
        return folded.get(number) if folded else record

    def between(self, first: int, last: int, read_all: ReadAll = map) -> list[dict[str, Any] | None]:
        """Return the records of a range of batches. A missing record is None.

        Parameters
        ----------
        read_all
            Applies a function to many numbers, as ``map`` does, possibly in threads.
        """
        records_found = list[dict[str, Any] | None]()
        if first > last:
            return records_found
        for end in range(self._end_of(first), self._end_of(last) + 1, self.fold_batches):
            numbers = range(max(first, end - self.fold_batches + 1), min(last, end) + 1)
            if not self._folded(end):
                records = list(read_all(lambda number: self.state.read(batch_name(number)), numbers))
                if not self._folded(end):
                    records_found += records
                    continue
            records_found += [self._folded(end).get(number) for number in numbers]
        return records_found

    def last(self) -> dict[str, Any] | None:
        """Return the record of the last batch, or None if there is no batch."""
        number = self.committed
        record = self.read(number) if number else None
        # The stored number may be older than the last batch.
        while (following := self.read(number + 1)) is not None:
            number, record = number + 1, following
        return record

    def written_at(self, record: Mapping[str, Any]) -> float:
        """Return the time at which a record was written, from the store's clock, or from the record if it is folded."""
        return self.state.listed(batch_name(record["batch"])).get(batch_name(record["batch"])) or float(record["at"])

    def add(self, number: int, record: Mapping[str, Any]) -> bool:
        """Write the record of a batch. Return False if the batch has or had a record."""
        name = batch_name(number)
        if not self.state.put_once(name, record):
            return False
        if self.state.read(_fold_name(self._end_of(number))) is not None:
            self.state.delete([name])
            return False
        self._own[number] = dict(record)
        return True

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield all records in the order of their numbers."""
        names = self.state.listed()
        ends = {end for end in map(_fold_end, names) if end}
        singles = {int(name) for name in names if _is_batch(name)}
        starts = {end - self.fold_batches + 1: end for end in ends}
        for number in sorted({batch for batch in singles if self._end_of(batch) not in ends} | starts.keys()):
            if number in starts:
                yield from self._folded(starts[number]).values()
                continue
            record = self.state.read(batch_name(number)) or self.read(number)
            if record is not None:
                yield record

    def fold(self, committed: int) -> None:
        """Fold the records of all batches up to a finished one, and delete the folded records."""
        names = self.state.listed()
        singles = sorted(int(name) for name in names if _is_batch(name) and int(name) <= committed)
        folds, folded = 0, list[str]()
        for end in sorted({self._end_of(batch) for batch in singles}):
            if end > committed:
                break
            if _fold_name(end) not in names:
                records = self._read_records(end, names)
                # A record was deleted by another program. Keep the remaining records for an investigation.
                if records is None:
                    continue
                if folds == _MAX_FOLDS:
                    break
                folds += 1
                self.state.put_once(_fold_name(end), {"batches": records})
            folded += [batch_name(batch) for batch in singles if self._end_of(batch) == end]
        self.state.delete(folded)
        self._own = {number: record for number, record in self._own.items() if number > committed}

    def _read_records(self, end: int, names: Mapping[str, float]) -> list[dict[str, Any]] | None:
        """Return the records of a fold, or None if one is missing."""
        records = list[dict[str, Any]]()
        for number in range(end - self.fold_batches + 1, end + 1):
            record = self._own.get(number) or self.state.read(batch_name(number))
            if record is None:
                return None
            # Older versions did not record the time.
            records.append({"at": names.get(batch_name(number), 0.0), **record})
        return records

    def _folded(self, end: int) -> dict[int, dict[str, Any]]:
        fold = self._fold
        if fold[0] != end:
            stored = self.state.read(_fold_name(end))
            if stored is None:
                return {}
            fold = self._fold = end, {batch["batch"]: batch for batch in stored["batches"]}
        return fold[1]

    def _end_of(self, number: int) -> int:
        return -(-number // self.fold_batches) * self.fold_batches


def batch_name(number: int) -> str:
    """Return the name of the record of a batch."""
    return f"{number:012}"


def _is_batch(name: str) -> bool:
    return name.isdecimal()


def _fold_name(end: int) -> str:
    return f"folded-{end:012}"


def _fold_end(name: str) -> int:
    """Return the last batch of a fold from its name, or 0 if the name is not of a fold."""
    return int(name.removeprefix("folded-")) if name.startswith("folded-") else 0


HOURS = "year="
"""Prefix of the paths of all files of a log."""

_BATCH_ROWS = 100_000
_THREADS = 16


def folder_of(path: str) -> str:
    """Return the folder of a file of a log. It represents an hour, and later hours are greater."""
    return path[: path.rfind("/") + 1]


def jobs_in(store: ObjectStore, *kinds: str) -> list[JobState]:
    """Return the jobs of some kinds that have written into a folder, in the order of their ids."""
    head = re.compile(rf"{re.escape(META)}([A-Za-z0-9_]+)\.({'|'.join(kinds)})\.json")
    matches = (match for entry in store.list(META) if (match := head.fullmatch(entry.path)))
    return sorted((JobState(store, match[1], match[2]) for match in matches), key=lambda state: state.job_id)


def log_jobs(store: ObjectStore) -> list[JobState]:
    """Return the jobs that write files of a log, and replays into tables."""
    return jobs_in(store, CAPTURE, REPLAY, HANDLER)


class Columns(NamedTuple):
    """Columns of items that a job writes, and the key attributes of the table if they are known."""

    schema: pa.Schema
    keys: tuple[str, ...]


def read_columns(state: JobState) -> Columns | None:
    """Return the columns that a job writes, or None if they are not stored yet."""
    stored = state.read(COLUMNS)
    if stored is None or "schema" not in stored:
        return None
    return Columns(schema_from_json(stored["schema"]), tuple(stored.get("keys", ())))


def keep_columns(state: JobState, columns: Columns, *, replaces: bool = False) -> Columns:
    """Store the columns that a job writes from now on, and return the stored columns.

    Parameters
    ----------
    replaces
        Whether they replace stored columns. Stored columns that are missing in the new ones are kept, as files have
        them.
    """
    stored = read_columns(state)
    if stored is not None:
        if not replaces:
            return stored
        names = {name_of_field(field) for field in columns.schema}
        kept_fields = [field for field in stored.schema if name_of_field(field) not in names]
        # The rescue column must be the last one.
        fields = sorted([*columns.schema, *kept_fields], key=lambda field: field.name == RESCUE_NAME)
        columns = Columns(pa.schema(fields), columns.keys or stored.keys)
        if columns.schema.equals(stored.schema, check_metadata=True) and columns.keys == stored.keys:
            return stored
    described: dict[str, Any] = {"schema": schema_to_json(columns.schema)}
    if columns.keys:
        described["keys"] = list(columns.keys)
    if stored is not None:
        state.put(COLUMNS, described)
        return columns
    return columns if state.put_once(COLUMNS, described) else read_columns(state) or columns


def has_old_images(state: JobState) -> bool:
    """Return whether a job writes old images."""
    return bool((state.head() or {}).get("old_image")) or state.read(_OLD_IMAGES) is not None


def turn_on_old_images(state: JobState) -> None:
    """Make a job write old images from now on, in every run."""
    if not has_old_images(state):
        state.put(_OLD_IMAGES, {"since": time.time()})


def columns_in(store: ObjectStore, keys: Iterable[str]) -> pa.Schema | None:
    """Return the columns of items of an existing log: catalogs and views need one type for all files of a folder.

    Parameters
    ----------
    keys
        The key attributes of the table.
    """
    for job in log_jobs(store):
        columns = read_columns(job)
        if columns is not None and {*columns.keys} == {*keys}:
            return columns.schema
    return None


def jobs_of(store: ObjectStore, job_id: str | None = None) -> list[JobState]:
    """Return the jobs that have written the log in a folder.

    Parameters
    ----------
    job_id
        Return only this job, with the jobs that have healed its gaps.

    Raises
    ------
    NotFoundError
        If the folder has no log, or the job does not exist.
    """
    jobs = log_jobs(store)
    if all(job.kind == REPLAY for job in jobs):
        # The state of a replay into a table has no files next to it.
        ids = {log_job_of(entry.path) for entry in store.list(HOURS)} if jobs else set()
        if jobs and ids.isdisjoint(job.job_id for job in jobs):
            # A compaction may have replaced them all.
            ids = {log_job_of(path) for snapshot in read_history(store) for path in snapshot.removed}
            ids |= {job.job_id for job in jobs if BatchRecords(job).last() is not None}
        jobs = [job for job in jobs if job.job_id in ids]
    if not jobs:
        raise NotFoundError(f"{store.uri} is not a log of changes: ddbio has never written one there")
    chosen = [job for job in jobs if job_id is None or f"{job.job_id}_heal_".startswith(f"{job_id}_heal_")]
    if not chosen:
        names = ", ".join(job.job_id for job in jobs)
        raise NotFoundError(f"no job {job_id!r} has written the log {store.uri}: give one of {names}, or no job_id")
    return chosen


def lineages_in(jobs: Iterable[JobState]) -> list[LogLineage]:
    """Return the lineages of some jobs, in the order of their start.

    A replay has changes of the lineages that others have captured. If there are no others, its source is used as a
    lineage.
    """
    states = list(jobs)
    lineages = [lineage for state in states if state.kind != REPLAY for lineage in lineages_of(state)]
    if not lineages:
        heads = {state.job_id: state.head() or {} for state in states}
        lineages = [
            LogLineage(job_id, 1, str(head.get("source", "")), "", "", 0.0, str(head.get("source", "")))
            for job_id, head in heads.items()
        ]
    # A job that heals gaps has no stream and no start time.
    by_name = dict[str, LogLineage]()
    for lineage in sorted(lineages, key=lambda lineage: lineage.started_at or math.inf):
        by_name.setdefault(lineage.name, lineage)
    return list(by_name.values())


def began_at(lineage: LogLineage) -> float:
    """Return the time from which changes belong to a lineage, in seconds since 1970."""
    is_first = lineage.name == lineage.stream
    began = kind_of(lineage.stream).began_at(lineage.stream) if is_first else None
    return lineage.started_at if began is None else began


def replayed(lineages: Iterable[LogLineage]) -> list[LogLineage]:
    """Return the lineages that changes of a replay may belong to, in the order of their start."""
    # Sequence numbers assigned by a capture do not occur in a replay.
    return sorted((lineage for lineage in lineages if not kind_of(lineage.stream).has_event_ids), key=began_at)


@dataclass
class NumberedFiles:
    """Batches of a job that writes files without records. Each new file gets a batch number.

    Attributes
    ----------
    number
        The number of the last batch.
    """

    records: BatchRecords
    number: int = 0
    _paths: set[str] = field(default_factory=set)

    def add(self, files: Mapping[str, StoredObject | None], lineages: Sequence[LogLineage]) -> None:
        """Record the files of the job that no batch has. Other processes may do the same at the same time.

        Parameters
        ----------
        files
            All files of the job by path; None for a file that a compaction has replaced.
        lineages
            The lineages of the log.
        """
        while not self._recorded(files, lineages):
            pass

    def _recorded(self, files: Mapping[str, StoredObject | None], lineages: Sequence[LogLineage]) -> bool:
        """Record new files. Return False if another process has recorded some in the meantime."""
        self._read()
        new = sorted(files.keys() - self._paths)
        store = self.records.state.store
        candidates = replayed(lineages) if self.records.state.kind == REPLAY else []
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-number") as pool:
            described_files = list(pool.map(lambda path: _described(store, path, files[path]), new))
        batch, rows = list[dict[str, Any]](), 0
        for count, (described, began) in enumerate(described_files, 1):
            if candidates:
                described["lineage"] = next(
                    (candidate.name for candidate in candidates[::-1] if began_at(candidate) <= began),
                    candidates[0].name,
                )
            batch.append(described)
            rows += described["rows"]
            if rows < _BATCH_ROWS and count < len(described_files):
                continue
            number, at = (
                self.number + 1,
                max((entry.modified_at for path in new if (entry := files[path])), default=0.0),
            )
            record = {"batch": number, "shards": {}, "positions": {}, "files": batch, "gaps": [], "at": at}
            if not self.records.add(number, record):
                return False
            # This number is only a hint: other processes may commit at the same time.
            self.records.commit(number)
            self._paths |= {file["path"] for file in batch}
            self.number, batch, rows = number, [], 0
        return True

    def _read(self) -> None:
        last = (self.records.last() or {"batch": 0})["batch"]
        for record in self.records.between(self.number + 1, last):
            self._paths |= {file["path"] for file in (record or {"files": []})["files"]}
        self.number = last


def number_files(store: ObjectStore, jobs: Mapping[str, NumberedFiles], lineages: Sequence[LogLineage]) -> None:
    """Record the files of some jobs that no batch has."""
    if not jobs:
        return
    files: dict[str, dict[str, StoredObject | None]] = {job_id: {} for job_id in jobs}
    for path in (path for snapshot in read_history(store) for path in snapshot.removed):
        if (job_id := log_job_of(path)) in files:
            files[job_id][path] = None
    for entry in store.list(HOURS):
        if is_row_file(entry.path) and (job_id := log_job_of(entry.path)) in files:
            files[job_id][entry.path] = entry
    for job_id, files_of_job in files.items():
        jobs[job_id].add(files_of_job, lineages)


def number_log(store: ObjectStore) -> None:
    """Record the files of replays and of the Lambda handler that no batch has. Other folders are not changed."""
    states = log_jobs(store)
    jobs = {state.job_id: NumberedFiles(BatchRecords(state)) for state in states if state.kind != CAPTURE}
    number_files(store, jobs, lineages_in(states) if jobs else [])


def _described(store: ObjectStore, path: str, entry: StoredObject | None) -> tuple[dict[str, Any], float]:
    """Return the description of a file for its batch, and the time of its first change in seconds since 1970."""
    if entry is None:
        return {"path": path, "rows": 0}, hour_seconds(path)
    try:
        footer = open_footer(store, entry).metadata
    except NotFoundError:
        # A compaction has just replaced it.
        return {"path": path, "rows": 0}, hour_seconds(path)
    column = footer.schema.to_arrow_schema().get_field_index(EVENT_TIME)
    groups = (footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups))
    firsts: list[Any] = [statistics.min for statistics in groups if statistics is not None and statistics.has_min_max]
    return {"path": path, "rows": footer.num_rows}, min(firsts).timestamp() if firsts else hour_seconds(path)
