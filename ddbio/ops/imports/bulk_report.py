"""Read the reports of bulk puts: count them, and keep refused items where a load can try them again.

Experimental: what the service writes is not published, so every object below the place is read, whatever its name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddbio.core.imports.bulk_report import parse_records, records_table
from ddbio.core.loads.rejected import RejectedRow
from ddbio.errors import NotFoundError
from ddbio.files.gunzip import GunzipLines
from ddbio.ops.imports.bulk import describe
from ddbio.ops.job.staging import new_job_id
from ddbio.ops.job.target import open_store
from ddbio.ops.loads.rejects import reject_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ddbio.core.imports.bulk_report import BulkRecord
    from ddbio.core.staged import StoredObject
    from ddbio.files.store import ObjectStore
    from ddbio.options import BulkReportOptions

_GZIP_MAGIC = b"\x1f\x8b"
_NO_RECORDS = (".md5", ".checksum")


@dataclass(frozen=True)
class BulkSummary:
    """Count what was not put.

    Attributes
    ----------
    place
        What was read.
    objects, records
        Objects below it, and what they tell of.
    errors, conditions
        Items that were refused, and items whose condition did not hold.
    reasons
        Items by the service's code.
    rejects
        Refused items that were kept.
    """

    place: str
    objects: int
    records: int
    errors: int
    conditions: int
    reasons: dict[str, int]
    rejects: int


@dataclass(frozen=True)
class BulkReport:
    """Hold what was not put: a row each, and in numbers."""

    rows: pa.Table
    summary: BulkSummary


def read(options: BulkReportOptions) -> BulkReport:
    """Return what reports say, after keeping the refused items where that is asked for.

    Raises
    ------
    NotFoundError
        If there is no report, or no such operation.
    AccessDeniedError, EndpointError
        If they cannot be read.
    """
    place, name = options.place, ""
    if place.startswith("arn:"):
        place, name = describe(place, options).reports, place.rpartition("/")[2]
    store = open_store(place, options)
    entries = list(store.list())
    # One prefix may hold the reports of many operations; that they are named by them is no more than likely.
    entries = [entry for entry in entries if name in entry.path] or entries
    if not entries:
        raise NotFoundError(f"{place} holds no report: the operation still runs, or has nothing to tell")
    found = list(_records(store, entries))
    rejects = [] if options.reject_to is None else list(_rejects(record for _, record in found))
    if options.reject_to is not None and rejects:
        path = f"rejects-{new_job_id()}.jsonl"
        open_store(options.reject_to, options).put(path, b"".join(map(reject_line, rejects)))
    kinds = Counter(record.kind for _, record in found)
    reasons = Counter(record.reason for _, record in found)
    counts = BulkSummary(
        place, len(entries), len(found), kinds["error"], kinds["condition"], dict(reasons.most_common()), len(rejects)
    )
    return BulkReport(records_table(found), counts)


def _records(store: ObjectStore, entries: Iterable[StoredObject]) -> Iterator[tuple[str, BulkRecord]]:
    for entry in entries:
        if entry.path.endswith(_NO_RECORDS) or "manifest" in entry.path.rpartition("/")[2]:
            continue
        data = store.read(entry.path)
        for block in GunzipLines([data], entry.path) if data.startswith(_GZIP_MAGIC) else [data]:
            yield from ((entry.path, record) for record in parse_records(entry.path, bytes(block)))


def _rejects(records: Iterable[BulkRecord]) -> Iterator[RejectedRow]:
    """Yield the refused items: a load would put those, too, whose condition did not hold."""
    for row, record in enumerate(records):
        if record.kind == "error" and record.item is not None:
            yield RejectedRow(row, record.reason, record.message or "", record.item)
