"""Say what reading an export did, in numbers that scripts can rely on; compute nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ddbio.ops.report import FileReport, MisfitReport, Report


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
