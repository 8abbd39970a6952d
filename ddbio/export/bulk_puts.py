"""Start the service's own bulk puts, wait for them, cancel them, and read their reports.

Reading reports is experimental: AWS has not published what they look like, so every object below the place is read,
whatever its name. Names of their members are guessed; what is not understood stays in the record as text.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ddbio.aws.control_plane import check_bucket, describe_table
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import NotFoundError, PartialWriteError, ValidationError
from ddbio.export import service_jobs
from ddbio.export.imports import files_of_job, objects_of
from ddbio.export.job_descriptions import failure_of, plan_bulk, s3_place
from ddbio.formats.decompress import line_blocks
from ddbio.items.json_text import compact_json
from ddbio.jobs.clients import dynamodb_spec, s3_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.estimate import Figures
from ddbio.jobs.rejected_rows import RejectedRow, reject_line, require_reject_place
from ddbio.jobs.service_estimates import bulk_estimate, seconds_between
from ddbio.jobs.stores import new_job_id, open_store
from ddbio.jobs.table_limits import statistics_table
from ddbio.jobs.waiting import await_end
from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ddbio.export.job_descriptions import BulkEntry, BulkJob, BulkPlan
    from ddbio.export.options import BulkReportOptions, BulkStartOptions, WaitOptions
    from ddbio.options import ConnectionOptions
    from ddbio.storage.object_store import ObjectStore
    from ddbio.storage.staged import StoredObject

_LOG = logging.getLogger("ddbio.import")
_CHECKSUM_ENDINGS = (".md5", ".checksum")
# A row for each item that was not put; item, existing_item and rest are JSON.
_REPORT_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("kind", "reason", "message", "item", "existing_item", "rest", "object")]
)
BulkKind = Literal["error", "condition"]


def plan_of(options: BulkStartOptions, from_file: str | None = None) -> BulkPlan:
    """Return what :func:`start_bulk_put` would request, after the same checks; nothing is started.

    Parameters
    ----------
    from_file
        DescribeTable's answer as JSON, of a table that need not exist.

    Raises
    ------
    NotFoundError
        If the table, the objects or the bucket for reports do not exist.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.job_descriptions.plan_bulk`.
    """
    s3_place(options.source)
    facts = statistics_table(from_file) or describe_table(dynamodb_spec(options), options.table)
    source, files, objects = objects_of(options.source, options)
    token = options.client_token or str(uuid.uuid4())
    plan = plan_bulk(facts, dataclasses.replace(options, source=source), files, objects, token)
    estimate = bulk_estimate(plan, facts, prices_of(facts.region, options.prices))
    check_estimate(options, estimate)
    if from_file is None:
        check_bucket(s3_spec(options), plan.report_bucket)
    return dataclasses.replace(plan, estimate=estimate)


def start(options: BulkStartOptions) -> BulkJob:
    """Start the service's own put of objects into an existing table, and return at once; experimental.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No bulk put has then been started.
    """
    plan = plan_of(options)
    _LOG.info("bulk put of %s into %s: planned: %s", options.source, plan.table, plan.estimate.figures)
    return dataclasses.replace(service_jobs.start_bulk(dynamodb_spec(options), plan), planned=plan.estimate.figures)


def wait(options: WaitOptions, watch: Callable[[BulkJob, float], None] | None = None) -> BulkJob:
    """Return a bulk put once it has put every item of its objects.

    Raises
    ------
    PartialWriteError
        If some items were refused; the message says where the reports are.
    NotFoundError, AccessDeniedError, ServiceError
        If it failed or was cancelled; the items that it has put stay in the table.
    ValidationError
        If it read a different number of items than the files hold.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    job = await_end(lambda: describe(options.arn, options), options, watch)
    if job.status == "COMPLETED_WITH_ERRORS":
        put = job.processed_items - job.failed_items
        message = f"{put} items put into {job.table}, {job.failed_items} refused: see the reports at {job.reports}"
        raise PartialWriteError(message, put, job.failed_items, job.reports)
    if job.status != "COMPLETED":
        left = f"it is {job.status}, and what it has put stays"
        raise failure_of(f"bulk operation {job.arn}", job.failure_code, job.failure_message, left)
    files = files_of_job(job.source, options)
    if files.items not in (None, job.processed_items):
        raise ValidationError(
            f"bulk operation {job.arn} read {job.processed_items} items, but its files hold {files.items}",
            {"items": files.items, "processed_items": job.processed_items},
        )
    return job


def describe(arn: str, options: ConnectionOptions) -> BulkJob:
    """Return what is known of a bulk put.

    Parameters
    ----------
    arn
        As :func:`start_bulk_put` returned it.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    job: BulkJob = service_jobs.describe_job(dynamodb_spec(options), service_jobs.BULK, arn)
    if job.ended_at is None:
        return job
    # The service says neither units nor USD.
    return dataclasses.replace(
        job, actual=Figures(None, seconds_between(job.started_at, job.ended_at), job.processed_bytes)
    )


def cancel(arn: str, options: ConnectionOptions) -> BulkJob:
    """Ask that a bulk put stops; what it has put stays.

    Parameters
    ----------
    arn
        As for :func:`describe_bulk_put`.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    service_jobs.cancel_bulk(dynamodb_spec(options), arn)
    return describe(arn, options)


def list_of(options: ConnectionOptions) -> list[BulkEntry]:
    """Return the bulk operations of the last 90 days.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return service_jobs.list_jobs(dynamodb_spec(options), service_jobs.BULK)


@dataclass(frozen=True)
class BulkSummary(Result):
    """Count the items that were not put.

    Attributes
    ----------
    place
        The place that was read.
    objects, records
        Objects below the place, and records in them.
    errors, conditions
        Items that were refused, and items whose condition did not hold.
    reasons
        Items by the service's code.
    rejects
        Refused items that were written to ``reject_to``.
    """

    place: str
    objects: int
    records: int
    errors: int
    conditions: int
    reasons: dict[str, int]
    rejects: int


@dataclass(frozen=True)
class BulkReport(Result):
    """Hold the items that were not put, a row each, and their counts.

    Attributes
    ----------
    rows
        ``kind`` (``error`` or ``condition``), ``reason``, ``message``, ``object``, and as JSON ``item``,
        ``existing_item`` and ``rest``, which is whatever of the record was not understood.
    summary
        The counts.
    """

    rows: pa.Table
    summary: BulkSummary

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the rows as plain values."""
        return {"summary": self.summary.to_dict(), "rows": self.rows.to_pylist()}


def read_reports(options: BulkReportOptions) -> BulkReport:
    """Return what the service reports of items that a bulk put did not put: rows and counts; experimental.

    Raises
    ------
    NotFoundError
        If there is no report, or no such bulk operation.
    AccessDeniedError, EndpointError
        If the reports cannot be read.
    """
    require_reject_place(options.reject_to, options)
    place, name = options.place, ""
    if place.startswith("arn:"):
        place, name = describe(place, options).reports, place.rpartition("/")[2]
    store = open_store(place, options)
    entries = list(store.list())
    # One prefix may hold the reports of many operations. Their names probably contain the id of the operation.
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
    return BulkReport(_records_table(found), counts)


def _records(store: ObjectStore, entries: Iterable[StoredObject]) -> Iterator[tuple[str, BulkRecord]]:
    for entry in entries:
        if entry.path.endswith(_CHECKSUM_ENDINGS) or "manifest" in entry.path.rpartition("/")[2]:
            continue
        data = store.read(entry.path)
        for block in line_blocks([data], entry.path):
            yield from ((entry.path, record) for record in _parse_records(entry.path, bytes(block)))


def _rejects(records: Iterable[BulkRecord]) -> Iterator[RejectedRow]:
    """Yield the refused items. Items whose condition did not hold are left out: a load would put them."""
    for row, record in enumerate(records):
        if record.kind == "error" and record.item is not None:
            yield RejectedRow(row, record.reason, record.message or "", record.item)


@dataclass(frozen=True)
class BulkRecord:
    """Hold what a report says about one item that was not put.

    Attributes
    ----------
    kind
        ``error`` if the item was refused, ``condition`` if its condition did not hold.
    reason, message
        The service's code, or the kind if there is no code, and its message.
    item, existing_item
        The item and the one in the table, as DynamoDB JSON; None if the record does not have it.
    rest
        All other members as JSON, or the whole line if it is not JSON.
    """

    kind: BulkKind
    reason: str
    message: str | None
    item: str | None
    existing_item: str | None
    rest: str | None


def _parse_records(path: str, text: bytes) -> Iterator[BulkRecord]:
    """Yield the records of one object of a report, one for each line.

    The kind of a record that does not name it comes from the path of the object.
    """
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            members = None
        if isinstance(members, dict):
            yield _record(path, members)
        else:
            yield BulkRecord(_kind(path), _kind(path), None, None, None, line.decode(errors="replace"))


def _records_table(found: Iterable[tuple[str, BulkRecord]]) -> pa.Table:
    """Return records, each with its object, as the rows of a table."""
    rows = [{**vars(record), "object": path} for path, record in found]
    return pa.Table.from_pylist(rows, schema=_REPORT_SCHEMA)


def _record(path: str, members: Mapping[str, Any]) -> BulkRecord:
    items: dict[bool, str] = {}  # By whether it is the item in the table.
    texts: dict[bool, str] = {}  # By whether it is the message.
    rest = {}
    for name, value in members.items():
        word = name.lower()
        if word.endswith("item") and isinstance(value, dict):
            items["exist" in word] = compact_json(value)
        elif word.endswith(("code", "reason", "message")) and isinstance(value, str):
            texts["message" in word] = value
        else:
            rest[name] = value
    kind = _kind(f"{path} {texts.get(False, '')}")
    return BulkRecord(
        kind=kind,
        reason=texts.get(False, kind),
        message=texts.get(True),
        item=items.get(False),
        existing_item=items.get(True),
        rest=compact_json(rest) if rest else None,
    )


def _kind(text: str) -> BulkKind:
    return "condition" if "condition" in text.lower() else "error"
