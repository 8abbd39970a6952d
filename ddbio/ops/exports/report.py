"""Say what reading an export did, in numbers that scripts can rely on; compute nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ddbio.ops.job.report import FileReport, MisfitReport, Report


@dataclass(frozen=True)
class ExportReadPlan(Report):
    """State what reading an export would do, its manifests verified and all its files there.

    Attributes
    ----------
    source, dest
        The export and the target as given.
    engine
        ``local`` or ``spark``.
    kind, encoding
        ``full`` or ``incremental``; ``json`` or ``ion``.
    filtered
        Whether the export says that it left out items or attributes.
    items
        Items of the export, as its manifests say.
    files, file_bytes
        Data files that hold something, and their bytes as stored.
    columns
        Names and Arrow types of the columns.
    """

    source: str
    dest: str
    engine: str
    kind: str
    encoding: str
    filtered: bool
    items: int
    files: int
    file_bytes: int
    columns: dict[str, str]


@dataclass(frozen=True)
class ExportReadReport(Report):
    """State what of an export was read and written.

    Attributes
    ----------
    source, dest
        The export and the target as given.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    engine, tasks
        ``local`` or ``spark``, and how many tasks shared the files.
    kind
        ``full`` or ``incremental``.
    filtered
        Whether the export says that it left out items or attributes.
    items
        Items of the export, as its manifests and its files agree.
    rows
        Rows in the files; equal to items.
    rescued
        Rows whose ``_rescue`` is not null.
    files_read
        Data files read and verified; empty ones are not opened.
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of the driver's Python, all workers and the JVM.
    json_bytes
        Bytes of text in the files, inflated.
    misfits
        Values that did not fit their column.
    files
        What was written.
    """

    source: str
    dest: str
    job_id: str
    engine: str
    tasks: int
    kind: str
    filtered: bool
    items: int
    rows: int
    rescued: int
    files_read: int
    seconds: float
    cpu_seconds: float
    json_bytes: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()


@dataclass(frozen=True)
class ExportFoldReport(Report):
    """State what of a full export and its increments was read, and the state that was written.

    Attributes
    ----------
    source, dest
        The full export and the target as given.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target.
    engine
        ``local`` or ``spark``.
    windows
        Incremental exports that were folded; those the full export has seen already are not.
    state_at
        The time at which the table held these rows.
    items, changes
        Items of the full export, and changes of the increments.
    rows
        Rows in the files: the items at that time.
    files_read
        Data files read and verified; empty ones are not opened.
    seconds
        Wall time from the verb's start, engine start included.
    cpu_seconds
        User + system seconds of the driver's Python, all workers and the JVM.
    json_bytes
        Bytes of text in the files, inflated.
    misfits
        Values that did not fit their column, in items and in images.
    files
        What was written.
    """

    source: str
    dest: str
    job_id: str
    engine: str
    windows: int
    state_at: str
    items: int
    changes: int
    rows: int
    files_read: int
    seconds: float
    cpu_seconds: float
    json_bytes: int
    misfits: tuple[MisfitReport, ...] = ()
    files: tuple[FileReport, ...] = ()
