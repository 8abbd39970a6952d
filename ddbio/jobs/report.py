"""Reports: results of a verb as stable fields for scripts, and the clock that measures its time."""

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
    """File of the output.

    Attributes
    ----------
    path
        URI or local path.
    bytes
        Size.
    rows
        Number of rows.
    partition
        Hive column and text of each folder of the file; null is the null partition.
    """

    path: str
    bytes: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)


def file_reports(dest: str, files: Iterable[StagedFile]) -> tuple[FileReport, ...]:
    """Return the files of a target by their full names."""
    folder = dest.rstrip("/")
    return tuple(FileReport(f"{folder}/{file.path}", file.size_bytes, file.rows, file.partition) for file in files)


def layout_of(sizes: Iterable[int]) -> LayoutSummary:
    """Return the layout of files of these sizes. Small files are counted as in ``ddbio layout``."""
    # Jobs that write no files need no such import.
    from ddbio.formats.layout import LayoutSummary  # noqa: PLC0415
    from ddbio.options.files import SMALL_FILE_BYTES  # noqa: PLC0415

    return LayoutSummary.of_sizes(sizes, SMALL_FILE_BYTES)


@dataclass(frozen=True)
class MisfitReport(Result):
    """Values of an attribute that did not fit its column.

    Attributes
    ----------
    path
        The attribute and the path in it.
    kind
        The problem: another type, an unknown attribute, a number too large …
    count
        Number of values.
    example
        One of the values as DynamoDB JSON.
    dropped
        Number of dropped values: see ``on_misfit``.
    """

    path: str
    kind: str
    count: int
    example: str
    dropped: int = 0


def misfit_reports(logs: Iterable[MisfitLog]) -> tuple[MisfitReport, ...]:
    """Return the combined logs of all tasks, an entry per attribute and kind."""
    misfits = _merge_logs(logs).misfits()
    return tuple(
        MisfitReport(misfit.path, misfit.kind, misfit.count, misfit.example, misfit.dropped) for misfit in misfits
    )


def merged_nulls(logs: Iterable[MisfitLog]) -> dict[str, int]:
    """Return the number of NULLs that all tasks merged with missing values, by attribute."""
    return _merge_logs(logs).merged_nulls


def _merge_logs(logs: Iterable[MisfitLog]) -> MisfitLog:
    # Jobs that read no items have no such log.
    from ddbio.items.rescue import MisfitLog  # noqa: PLC0415

    joined = MisfitLog()
    for log in logs:
        joined.merge(log)
    return joined


@dataclass(frozen=True)
class Report(Result):
    """Base of reports. The fields are the keys in JSON, those of a class before those of its bases."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the report from the plain values of ``to_dict`` or ``to_json``."""
        fields_by_name = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        for name in ("planned", "actual"):
            if name in fields_by_name:
                fields_by_name[name] = Figures.from_dict(values[name])
        if "layout" in fields_by_name:
            from ddbio.formats.layout import LayoutSummary  # noqa: PLC0415 - as in `layout_of`

            fields_by_name["layout"] = LayoutSummary.from_dict(values["layout"])
        for name, kind in (("files", FileReport), ("misfits", MisfitReport)):
            if isinstance(fields_by_name.get(name), tuple):
                fields_by_name[name] = tuple(kind(**value) for value in fields_by_name[name])
        return cls(**fields_by_name)

    @classmethod
    def _fields(cls) -> list[Field[Any]]:
        """Return the fields of this class, then those of its bases."""
        groups: list[list[Field[Any]]] = []
        names: set[str] = set()
        for base in reversed(cls.__mro__):
            declared: dict[str, Field[Any]] = vars(base).get("__dataclass_fields__", {})
            groups.append([declared_field for name, declared_field in declared.items() if name not in names])
            names.update(declared)
        return [declared_field for group in reversed(groups) for declared_field in group]


@dataclass(frozen=True, kw_only=True)
class JobReport(Report):
    """Base of the reports of jobs.

    Attributes
    ----------
    seconds
        Wall time from the verb's start, including the engine start.
    cpu_seconds
        User and system seconds of this process, all workers and the JVM.
    """

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class PlannedReport(JobReport):
    """Base of the reports of jobs with a plan.

    Attributes
    ----------
    planned, actual
        Planned and actual units, seconds, bytes read and USD; null without a plan.
    """

    planned: Figures | None = None
    actual: Figures | None = None


@dataclass(frozen=True, kw_only=True)
class FilesReport(PlannedReport):
    """Base of the reports of jobs that write files.

    Attributes
    ----------
    job_id
        The job id; its manifest is ``_ddbio/<job_id>.json`` under the target.
    layout
        Sizes of the files, and the number of small ones.
    """

    job_id: str
    layout: LayoutSummary | None = None


@dataclass(frozen=True, kw_only=True)
class RowsReport(FilesReport):
    """Base of the reports of jobs that write items as rows of files.

    Attributes
    ----------
    dest
        The target as in the options.
    engine
        ``local`` or ``spark``.
    rows
        Rows in the files.
    misfits
        Values that did not fit their column.
    files
        The written files.
    merged_nulls
        NULLs merged with missing values, by attribute: see ``nulls``.
    catalog
        Registrations in the catalog, if requested.
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
    """Report of a scan.

    Attributes
    ----------
    table
        The source table.
    segments, tasks, lanes
        TotalSegments, number of Spark tasks, and segments read at the same time.
    items
        Items returned by the service, equal to the number of rows.
    rescued
        Rows whose ``_rescue`` is not null.
    wire_bytes
        Bytes of the response bodies.
    rcu_asked_per_second
        The budget, or null.
    rcu_consumed
        Read units charged by the service, including schema sampling.
    rcu_peak_10s_ratio
        The highest 10 s window of granted units over 10 × the budget; null without a budget or under 10 s of run.
    throttles
        Throttled requests by reason.
    digest
        Order-independent digest of the items returned by the service, or null.
    scanned_items
        Items that the service read and charged. With a condition it returns fewer; for lookups it is the number of
        keys.
    missing_keys, missing_examples
        Keys without an item in a lookup, and examples as DynamoDB JSON, if keys are among the columns.
    resumed_items
        Items read by earlier runs of the same job.
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
    """Report of the demo: a scan's report, and the comparison of the files with the table.

    Attributes
    ----------
    validated
        Whether count and digest of source and target are equal.
    digest_source, digest_target
        The digests of the items returned by the service, and of the rows read back from the files.
    """

    validated: bool = False
    digest_source: str = ""
    digest_target: str = ""


@dataclass(frozen=True, kw_only=True)
class WriteReport(PlannedReport):
    """Report of a load or a write.

    Attributes
    ----------
    rows
        Rows of the source.
    written
        Rows whose write the service acknowledged.
    skipped
        Rows whose condition failed: the item exists, or a newer one.
    rejected
        Rows that are not valid items, or that the service rejected.
    wcu_asked_per_second
        The budget, or null.
    wcu_consumed
        Write units charged by the service, including secondary indexes.
    wcu_peak_10s_ratio
        The highest 10 s window of granted units over 10 × the budget; null without a budget or under 10 s of run.
    write_seconds
        From the first to the last write request.
    throttles
        Throttled requests by reason; ``unprocessed`` counts responses with unprocessed rows.
    retries
        Requests that were repeated, completely or in part.
    job_id
        Id of the load; a run with the same id resumes it. Null if rows did not come from files.
    resumed_rows
        Rows finished by earlier runs of the same load.
    earlier_job_id
        The job that last loaded the same files into the same table with the same options under another id, or null.
    rejects_uri
        Location of the rejected rows of this run, or null.
    hottest_keys
        Partition keys with the most throttled or unprocessed rows, and their counts; at most five.
    source
        The source files, or null for rows in memory.
    table, mode
        The target table and the write mode.
    files_skipped
        Paths of skipped files, whose names mark them as no data.
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
    """Clock of wall time and of this process's CPU time since its creation."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Return the elapsed wall seconds."""
        return time.monotonic() - self._began

    def cpu_seconds(self) -> float:
        """Return the elapsed user and system seconds of this process."""
        return time.process_time() - self._cpu_began

    def times(self) -> dict[str, Any]:
        """Return both times, rounded, by the field names of reports."""
        return {"seconds": round(self.seconds(), 3), "cpu_seconds": round(self.cpu_seconds(), 3)}
