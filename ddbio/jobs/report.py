"""Reports: what a verb did, in numbers that scripts can rely on, and the clock that measures its time."""

from __future__ import annotations

import time
from dataclasses import Field, dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.jobs.estimate import Figures
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from ddbio.catalog.glue import CatalogReport
    from ddbio.formats.layout import LayoutSummary
    from ddbio.items.rescue import MisfitLog
    from ddbio.storage.staged import StagedFile


@dataclass(frozen=True)
class FileReport(Result):
    """A file of the output.

    Attributes
    ----------
    path
        URI or local path.
    bytes
        Size.
    rows
        Number of rows.
    partition
        Hive column and text of each folder that the file lies in; null is the null partition.
    """

    path: str
    bytes: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)


def file_reports(dest: str, files: Iterable[StagedFile]) -> tuple[FileReport, ...]:
    """Return the files of a target by their whole names."""
    folder = dest.rstrip("/")
    return tuple(FileReport(f"{folder}/{each.path}", each.size_bytes, each.rows, each.partition) for each in files)


def layout_of(sizes: Iterable[int]) -> LayoutSummary:
    """Return how files of some sizes lie, small ones counted as ``ddbio layout`` does."""
    # Jobs that write no files need neither.
    from ddbio.formats.layout import LayoutSummary  # noqa: PLC0415
    from ddbio.options.files import SMALL_FILE_BYTES  # noqa: PLC0415

    return LayoutSummary.of_sizes(sizes, SMALL_FILE_BYTES)


@dataclass(frozen=True)
class MisfitReport(Result):
    """How many values of an attribute did not fit its column.

    Attributes
    ----------
    path
        The attribute, with the path below it.
    kind
        What was wrong: another type, an unknown attribute, a number too large …
    count
        How many values.
    example
        One of them, as DynamoDB JSON.
    dropped
        How many of them were dropped: see ``on_misfit``.
    """

    path: str
    kind: str
    count: int
    example: str
    dropped: int = 0


def misfit_reports(logs: Iterable[MisfitLog]) -> tuple[MisfitReport, ...]:
    """Return what all tasks' logs hold together, an entry per attribute and kind."""
    misfits = _joined(logs).misfits()
    return tuple(MisfitReport(each.path, each.kind, each.count, each.example, each.dropped) for each in misfits)


def merged_nulls(logs: Iterable[MisfitLog]) -> dict[str, int]:
    """Return how many NULLs all tasks merged with missing values, by attribute."""
    return _joined(logs).merged_nulls


def _joined(logs: Iterable[MisfitLog]) -> MisfitLog:
    # Jobs that read no items have none.
    from ddbio.items.rescue import MisfitLog  # noqa: PLC0415

    whole = MisfitLog()
    for log in logs:
        whole.merge(log)
    return whole


@dataclass(frozen=True)
class Report(Result):
    """Base of the reports; the fields are the keys of the JSON form, those of a class before those of its bases."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the report that ``to_dict`` or ``to_json`` turned into plain values."""
        found = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        for name in ("planned", "actual"):
            if name in found:
                found[name] = Figures.from_dict(values[name])
        if "layout" in found:
            from ddbio.formats.layout import LayoutSummary  # noqa: PLC0415 - as in `layout_of`

            found["layout"] = LayoutSummary.from_dict(values["layout"])
        for name, kind in (("files", FileReport), ("misfits", MisfitReport)):
            if isinstance(found.get(name), tuple):
                found[name] = tuple(kind(**each) for each in found[name])
        return cls(**found)

    @classmethod
    def _fields(cls) -> list[Field[Any]]:
        """Return the fields of this class, then those of its bases."""
        groups: list[list[Field[Any]]] = []
        known: set[str] = set()
        for base in reversed(cls.__mro__):
            declared: dict[str, Field[Any]] = vars(base).get("__dataclass_fields__", {})
            groups.append([each for name, each in declared.items() if name not in known])
            known.update(declared)
        return [each for group in reversed(groups) for each in group]


@dataclass(frozen=True, kw_only=True)
class JobReport(Report):
    """Base of the reports of jobs.

    Attributes
    ----------
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of this process, all workers and the JVM.
    """

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class PlannedReport(JobReport):
    """Base of the reports of jobs that have a plan.

    Attributes
    ----------
    planned, actual
        Units, seconds, bytes that are read and USD, as planned and as it was; null without a plan.
    """

    planned: Figures | None = None
    actual: Figures | None = None


@dataclass(frozen=True, kw_only=True)
class FilesReport(PlannedReport):
    """Base of the reports of jobs that write files.

    Attributes
    ----------
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    layout
        How the files lie: their sizes, and how many are small.
    """

    job_id: str
    layout: LayoutSummary | None = None


@dataclass(frozen=True, kw_only=True)
class RowsReport(FilesReport):
    """Base of the reports of jobs that write items as rows of files.

    Attributes
    ----------
    dest
        The target as given.
    engine
        ``local`` or ``spark``.
    rows
        Rows in the files.
    misfits
        Values that did not fit their column.
    files
        What was written.
    merged_nulls
        NULLs that are no longer told from missing values, by attribute: see ``nulls``.
    catalog
        What was registered in the catalog, if that was asked for.
    """

    dest: str
    engine: str
    rows: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()
    merged_nulls: dict[str, int] = field(default_factory=dict)
    catalog: CatalogReport | None = None


@dataclass(frozen=True, kw_only=True)
class ScanReport(RowsReport):
    """What a scan read and wrote.

    Attributes
    ----------
    table
        The table that was read.
    segments, tasks, lanes
        How the table was split: TotalSegments, Spark tasks, segments read at the same time.
    items
        Items the service returned, as many as there are rows.
    rescued
        Rows whose ``_rescue`` is not null.
    wire_bytes
        Bytes of the response bodies.
    rcu_asked_per_second
        The budget, or null.
    rcu_consumed
        Read units the service charged, schema sampling included.
    rcu_peak_10s_ratio
        The highest 10 s window of granted units over 10 × the budget; null without a budget or under 10 s of run.
    throttles
        Throttled requests by reason.
    digest
        Order-independent digest of the items as the service returned them, or null.
    scanned_items
        Items the service read and charged: more than it returned where they had to meet a condition; of items that
        were looked up, their keys.
    missing_keys, missing_examples
        Keys that were looked up and have no item, and some of them, as DynamoDB JSON, if keys are among the columns.
    resumed_items
        Items that earlier runs of the same job had read.
    """

    table: str
    segments: int
    tasks: int
    lanes: int
    items: int
    rescued: int
    wire_bytes: int
    rcu_asked_per_second: float | None
    rcu_consumed: float
    rcu_peak_10s_ratio: float | None
    throttles: dict[str, int] = field(default_factory=dict)
    digest: str | None = None
    scanned_items: int = 0
    missing_keys: int = 0
    missing_examples: tuple[str, ...] = ()
    resumed_items: int = 0


@dataclass(frozen=True, kw_only=True)
class DemoReport(ScanReport):
    """What the demo did: a scan's report, and whether the files hold what the table held.

    Attributes
    ----------
    validated
        Whether count and digest of source and target are equal.
    digest_source, digest_target
        The digests of the items as the service returned them, and of the rows read back from the files.
    """

    validated: bool = False
    digest_source: str = ""
    digest_target: str = ""


@dataclass(frozen=True, kw_only=True)
class WriteReport(PlannedReport):
    """What a load or a write did.

    Attributes
    ----------
    rows
        Rows of the source.
    written
        Rows whose write the service acknowledged.
    skipped
        Rows whose condition failed: an item was there, or a newer one.
    rejected
        Rows that make no legal item or that the service refused.
    wcu_asked_per_second
        The budget, or null.
    wcu_consumed
        Write units the service charged, secondary indexes included.
    wcu_peak_10s_ratio
        The highest 10 s window of granted units over 10 × the budget; null without a budget or under 10 s of run.
    write_seconds
        From the first to the last write request.
    throttles
        Throttled requests by reason; ``unprocessed`` counts answers that left some rows.
    retries
        Requests that were sent again, whole or in part.
    job_id
        The load; under the same one it goes on where it stopped. Null where rows did not come from files.
    resumed_rows
        Rows that earlier runs of the same load had finished.
    earlier_job_id
        The job that last loaded the same files into the same table in the same way under another id, or null.
    rejects_uri
        Where the rejected rows of this run lie, or null.
    hottest_keys
        Partition keys whose rows were throttled most often, or came back unprocessed, and how often; at most five.
    source
        The files that were written, or null for rows in memory.
    table, mode
        What was written to, and how.
    files_skipped
        Paths of files that were passed over, since their names say that they are no data.
    """

    rows: int
    written: int
    skipped: int
    rejected: int
    wcu_asked_per_second: float | None
    wcu_consumed: float
    wcu_peak_10s_ratio: float | None
    write_seconds: float
    throttles: dict[str, int]
    retries: int
    job_id: str | None = None
    resumed_rows: int = 0
    earlier_job_id: str | None = None
    rejects_uri: str | None = None
    hottest_keys: dict[str, int] = field(default_factory=dict)
    source: str | None = None
    table: str = ""
    mode: str = "upsert"
    files_skipped: tuple[str, ...] = ()


class Clock:
    """Measure wall time and this process's CPU time since the clock was made."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Return wall seconds so far."""
        return time.monotonic() - self._began

    def cpu_seconds(self) -> float:
        """Return user + system seconds of this process so far."""
        return time.process_time() - self._cpu_began

    def times(self) -> dict[str, Any]:
        """Return both, rounded, by the names of their fields in reports."""
        return {"seconds": round(self.seconds(), 3), "cpu_seconds": round(self.cpu_seconds(), 3)}
