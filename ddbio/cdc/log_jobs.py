"""Find the jobs that write a log, and number the files of those jobs that write no records of batches.

The files of a log are those of its jobs: captures, jobs that heal gaps, replays and the Lambda handler. Captures and
heals record each batch before its files. Replays and the handler write files only: a file is whole when it is there.
Whoever reads the log, or compacts it, records their new files as batches of the job, each file once. So all jobs can be
read by the numbers of batches, also those of older versions.
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
"""The kinds of jobs that write files of a log; replays and the handler write no records."""
COLUMNS = "columns"
"""The record that has the columns of items."""
_OLD_IMAGES = "old_images"
"""The record of a job that was begun without old images and has them since."""
COMMITTED = "committed"
"""The record that has the number of the last batch whose files are written."""
FOLD_BATCHES = 200
# Of a log whose records were never folded, so many folds are made after a batch: the next ones go on.
_FOLDS_AT_ONCE = 5


@dataclass
class BatchRecords:
    """Read and write the records of one capture's batches; threads may read.

    Attributes
    ----------
    state
        The state of the capture.
    fold_batches
        So many batches become one object; the same for all who read and write a log.
    """

    state: JobState
    fold_batches: int = FOLD_BATCHES
    _own: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Records that were written here and are not folded yet."""
    _fold: tuple[int, dict[int, dict[str, Any]]] = (0, {})
    """The last fold that was read."""

    @property
    def committed(self) -> int:
        """The number of the last batch whose files are written; 0 if there is none."""
        found: int = (self.state.read(COMMITTED) or {"batch": 0})["batch"]
        return found

    def commit(self, number: int) -> None:
        """Note that the files of a batch are written, and fold records if it is time to."""
        self.state.put(COMMITTED, {"batch": number})
        if number % self.fold_batches == 0:
            self.fold(number)

    def read(self, number: int) -> dict[str, Any] | None:
        """Return the record of a batch, or None if there is none."""
        if number in (known := self._fold[1]):
            return known[number]
        record = self.state.read(batch_name(number))
        # A record is folded before it is deleted, and what has its name after that is nobody's.
        folded = self._folded(self._end_of(number))
        return folded.get(number) if folded else record

    def between(self, first: int, last: int, read_all: ReadAll = map) -> list[dict[str, Any] | None]:
        """Return the records of batches from one to another; None stands for one that is not there.

        Parameters
        ----------
        read_all
            Applies a function to many numbers, as ``map`` does, perhaps by threads.
        """
        found = list[dict[str, Any] | None]()
        if first > last:
            return found
        for end in range(self._end_of(first), self._end_of(last) + 1, self.fold_batches):
            numbers = range(max(first, end - self.fold_batches + 1), min(last, end) + 1)
            if not self._folded(end):
                records = list(read_all(lambda number: self.state.read(batch_name(number)), numbers))
                if not self._folded(end):
                    found += records
                    continue
            found += [self._folded(end).get(number) for number in numbers]
        return found

    def last(self) -> dict[str, Any] | None:
        """Return the record of the last batch, or None if there is no batch."""
        number = self.committed
        found = self.read(number) if number else None
        # The note of what is committed may be older than the last batch.
        while (following := self.read(number + 1)) is not None:
            number, found = number + 1, following
        return found

    def written_at(self, record: Mapping[str, Any]) -> float:
        """Return when a record was written by the clock of the store, or the time that it notes if it is folded."""
        return self.state.listed(batch_name(record["batch"])).get(batch_name(record["batch"])) or float(record["at"])

    def add(self, number: int, record: Mapping[str, Any]) -> bool:
        """Write the record of a batch; return False if there is or was one."""
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
        ends = {each for each in map(_fold_end, names) if each}
        singles = {int(each) for each in names if _is_batch(each)}
        starts = {end - self.fold_batches + 1: end for end in ends}
        for number in sorted({each for each in singles if self._end_of(each) not in ends} | starts.keys()):
            if number in starts:
                yield from self._folded(starts[number]).values()
                continue
            record = self.state.read(batch_name(number)) or self.read(number)
            if record is not None:
                yield record

    def fold(self, committed: int) -> None:
        """Fold the records of all batches up to one whose files are written, and delete what was folded."""
        names = self.state.listed()
        singles = sorted(int(each) for each in names if _is_batch(each) and int(each) <= committed)
        made, folded = 0, list[str]()
        for end in sorted({self._end_of(each) for each in singles}):
            if end > committed:
                break
            if _fold_name(end) not in names:
                records = self._whole(end, names)
                # Something removed a record: what is left stays as it is, for whoever looks into that.
                if records is None:
                    continue
                if made == _FOLDS_AT_ONCE:
                    break
                made += 1
                self.state.put_once(_fold_name(end), {"batches": records})
            folded += [batch_name(each) for each in singles if self._end_of(each) == end]
        self.state.delete(folded)
        self._own = {number: each for number, each in self._own.items() if number > committed}

    def _whole(self, end: int, names: Mapping[str, float]) -> list[dict[str, Any]] | None:
        """Return the records of a fold, or None if one is missing."""
        found = list[dict[str, Any]]()
        for number in range(end - self.fold_batches + 1, end + 1):
            record = self._own.get(number) or self.state.read(batch_name(number))
            if record is None:
                return None
            # Older versions did not note the time.
            found.append({"at": names.get(batch_name(number), 0.0), **record})
        return found

    def _folded(self, end: int) -> dict[int, dict[str, Any]]:
        known = self._fold
        if known[0] != end:
            stored = self.state.read(_fold_name(end))
            if stored is None:
                return {}
            known = self._fold = end, {each["batch"]: each for each in stored["batches"]}
        return known[1]

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
    """Return the last batch of a fold by its name, or 0 if it is none's."""
    return int(name.removeprefix("folded-")) if name.startswith("folded-") else 0


HOURS = "year="
"""What the paths of all files of a log begin with."""

_BATCH_ROWS = 100_000
_THREADS = 16


def folder_of(path: str) -> str:
    """Return the folder of a file of a log, which stands for an hour; a later one is greater."""
    return path[: path.rfind("/") + 1]


def jobs_in(store: ObjectStore, *kinds: str) -> list[JobState]:
    """Return the jobs of some kinds that have written a folder, in the order of their ids."""
    head = re.compile(rf"{re.escape(META)}([A-Za-z0-9_]+)\.({'|'.join(kinds)})\.json")
    found = (match for each in store.list(META) if (match := head.fullmatch(each.path)))
    return sorted((JobState(store, match[1], match[2]) for match in found), key=lambda state: state.job_id)


def log_jobs(store: ObjectStore) -> list[JobState]:
    """Return the jobs that write files of a log, and replays into tables."""
    return jobs_in(store, CAPTURE, REPLAY, HANDLER)


class Columns(NamedTuple):
    """Hold the columns of items that a job writes, and the key attributes of the table if they are known."""

    schema: pa.Schema
    keys: tuple[str, ...]


def read_columns(state: JobState) -> Columns | None:
    """Return the columns that a job writes; None if they are not decided."""
    stored = state.read(COLUMNS)
    if stored is None or "schema" not in stored:
        return None
    return Columns(schema_from_json(stored["schema"]), tuple(stored.get("keys", ())))


def keep_columns(state: JobState, columns: Columns, *, replaces: bool = False) -> Columns:
    """Store the columns that a job writes from now on, and return those that are stored.

    Parameters
    ----------
    replaces
        Whether they replace columns that were decided before; a column that they lack stays, since files have it.
    """
    stored = read_columns(state)
    if stored is not None:
        if not replaces:
            return stored
        names = {name_of_field(each) for each in columns.schema}
        kept = [each for each in stored.schema if name_of_field(each) not in names]
        # The rescue column is the last one.
        fields = sorted([*columns.schema, *kept], key=lambda each: each.name == RESCUE_NAME)
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
    """Let a job write old images from now on, whoever runs it."""
    if not has_old_images(state):
        state.put(_OLD_IMAGES, {"since": time.time()})


def columns_in(store: ObjectStore, keys: Iterable[str]) -> pa.Schema | None:
    """Return the columns of items that a log has already: catalogs and views want one type for all files of a folder.

    Parameters
    ----------
    keys
        The key attributes of the table.
    """
    for each in log_jobs(store):
        columns = read_columns(each)
        if columns is not None and {*columns.keys} == {*keys}:
            return columns.schema
    return None


def jobs_of(store: ObjectStore, job_id: str | None = None) -> list[JobState]:
    """Return the jobs that have written the log in a folder.

    Parameters
    ----------
    job_id
        Take this job alone, with those that have healed its gaps.

    Raises
    ------
    NotFoundError
        If there is no log, or no such job.
    """
    found = log_jobs(store)
    if all(each.kind == REPLAY for each in found):
        # The state of a replay into a table has no files beside it.
        ids = {log_job_of(each.path) for each in store.list(HOURS)} if found else set()
        if found and ids.isdisjoint(each.job_id for each in found):
            # A compaction may have replaced them all.
            ids = {log_job_of(path) for each in read_history(store) for path in each.removed}
            ids |= {each.job_id for each in found if BatchRecords(each).last() is not None}
        found = [each for each in found if each.job_id in ids]
    if not found:
        raise NotFoundError(f"{store.uri} is no log of changes: ddbio has never written one there")
    chosen = [each for each in found if job_id is None or f"{each.job_id}_heal_".startswith(f"{job_id}_heal_")]
    if not chosen:
        names = ", ".join(each.job_id for each in found)
        raise NotFoundError(f"no job {job_id!r} has written the log {store.uri}: give one of {names}, or no job_id")
    return chosen


def lineages_in(jobs: Iterable[JobState]) -> list[LogLineage]:
    """Return the lineages of some jobs, in the order in which they began.

    A replay has changes of the lineages that others have captured. If there are no others, its source stands for one.
    """
    states = list(jobs)
    found = [each for state in states if state.kind != REPLAY for each in lineages_of(state)]
    if not found:
        heads = {state.job_id: state.head() or {} for state in states}
        found = [
            LogLineage(job_id, 1, str(head.get("source", "")), "", "", 0.0, str(head.get("source", "")))
            for job_id, head in heads.items()
        ]
    # A job that heals gaps has no stream of its own, and no time at which it began.
    by_name = dict[str, LogLineage]()
    for each in sorted(found, key=lambda each: each.started_at or math.inf):
        by_name.setdefault(each.name, each)
    return list(by_name.values())


def began_at(lineage: LogLineage) -> float:
    """Return from when on changes are of a lineage, in seconds since 1970."""
    is_first = lineage.name == lineage.stream
    began = kind_of(lineage.stream).began_at(lineage.stream) if is_first else None
    return lineage.started_at if began is None else began


def replayed(lineages: Iterable[LogLineage]) -> list[LogLineage]:
    """Return those lineages that changes of a replay may be of, in the order in which they began."""
    # Numbers that a capture makes are not those of a replay.
    return sorted((each for each in lineages if not kind_of(each.stream).has_event_ids), key=began_at)


@dataclass
class NumberedFiles:
    """Hold the batches of one job whose files have no records until they are numbered.

    Attributes
    ----------
    number
        Of the last batch.
    """

    records: BatchRecords
    number: int = 0
    _paths: set[str] = field(default_factory=set)

    def add(self, files: Mapping[str, StoredObject | None], lineages: Sequence[LogLineage]) -> None:
        """Record those files of the job that no batch has; others may do the same at the same time.

        Parameters
        ----------
        files
            All files of the job by their paths; None stands for one that a compaction has replaced.
        lineages
            Of the log.
        """
        while not self._recorded(files, lineages):
            pass

    def _recorded(self, files: Mapping[str, StoredObject | None], lineages: Sequence[LogLineage]) -> bool:
        """Record new files; return False if somebody else has recorded some meanwhile."""
        self._read()
        new = sorted(files.keys() - self._paths)
        store = self.records.state.store
        known = replayed(lineages) if self.records.state.kind == REPLAY else []
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-number") as pool:
            found = list(pool.map(lambda path: _described(store, path, files[path]), new))
        batch, rows = list[dict[str, Any]](), 0
        for place, (described, began) in enumerate(found, 1):
            if known:
                described["lineage"] = next(
                    (each.name for each in known[::-1] if began_at(each) <= began), known[0].name
                )
            batch.append(described)
            rows += described["rows"]
            if rows < _BATCH_ROWS and place < len(found):
                continue
            number, at = self.number + 1, max((each.modified_at for path in new if (each := files[path])), default=0.0)
            record = {"batch": number, "shards": {}, "positions": {}, "files": batch, "gaps": [], "at": at}
            if not self.records.add(number, record):
                return False
            # Only a hint where the last batch is: others may commit at the same time.
            self.records.commit(number)
            self._paths |= {each["path"] for each in batch}
            self.number, batch, rows = number, [], 0
        return True

    def _read(self) -> None:
        last = (self.records.last() or {"batch": 0})["batch"]
        for record in self.records.between(self.number + 1, last):
            self._paths |= {each["path"] for each in (record or {"files": []})["files"]}
        self.number = last


def number_files(store: ObjectStore, jobs: Mapping[str, NumberedFiles], lineages: Sequence[LogLineage]) -> None:
    """Record the files of some jobs that no batch has."""
    if not jobs:
        return
    files: dict[str, dict[str, StoredObject | None]] = {job_id: {} for job_id in jobs}
    for path in (path for each in read_history(store) for path in each.removed):
        if (job_id := log_job_of(path)) in files:
            files[job_id][path] = None
    for each in store.list(HOURS):
        if is_row_file(each.path) and (job_id := log_job_of(each.path)) in files:
            files[job_id][each.path] = each
    for job_id, found in files.items():
        jobs[job_id].add(found, lineages)


def number_log(store: ObjectStore) -> None:
    """Record the files of replays and of the Lambda handler that no batch has; do nothing in other folders."""
    states = log_jobs(store)
    jobs = {each.job_id: NumberedFiles(BatchRecords(each)) for each in states if each.kind != CAPTURE}
    number_files(store, jobs, lineages_in(states) if jobs else [])


def _described(store: ObjectStore, path: str, entry: StoredObject | None) -> tuple[dict[str, Any], float]:
    """Return what a record says of a file, and when its first change was made, in seconds since 1970."""
    if entry is None:
        return {"path": path, "rows": 0}, hour_seconds(path)
    try:
        footer = open_footer(store, entry).metadata
    except NotFoundError:
        # A compaction has just replaced it.
        return {"path": path, "rows": 0}, hour_seconds(path)
    place = footer.schema.to_arrow_schema().get_field_index(EVENT_TIME)
    groups = (footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups))
    firsts: list[Any] = [each.min for each in groups if each is not None and each.has_min_max]
    return {"path": path, "rows": footer.num_rows}, min(firsts).timestamp() if firsts else hour_seconds(path)
