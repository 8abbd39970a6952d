"""Say what writing files for an import did, in numbers that scripts can rely on; compute nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ddbio.ops.job.report import FileReport, Report


@dataclass(frozen=True)
class ImportFilesReport(Report):
    """State what was written for an import.

    Attributes
    ----------
    dest, uri
        The target as given, and the prefix to import.
    job_id
        The job; its manifest is ``_ddbio/<job_id>.json`` under the target, outside the prefix.
    key
        The key that every item was checked for.
    format, compression, delimiter
        What the service has to be told.
    gsi
        Indexes whose keys every item was checked for.
    condition
        Condition of each item, which only a bulk put knows of.
    rows, items, duplicates
        Rows read, items written, and rows left out because another one has their key.
    json_bytes
        Bytes of text before compression; AWS bills an import by them.
    digest
        Digest of the items, if it was asked for.
    seconds, cpu_seconds
        Wall time, and user + system seconds of this process.
    files
        What was written.
    """

    dest: str
    uri: str
    job_id: str
    key: str
    format: str
    compression: str
    delimiter: str | None
    gsi: tuple[str, ...]
    condition: str | None
    rows: int
    items: int
    duplicates: int
    json_bytes: int
    digest: str | None
    seconds: float
    cpu_seconds: float
    files: tuple[FileReport, ...] = ()
