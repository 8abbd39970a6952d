"""Imports of the service: plans, descriptions, start and end, and the comparison of their tables with the files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.aws.control_plane import call
from ddbio.aws.table_description import region_of
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import AccessDeniedError, EndpointError, NotFoundError, OptionError, ServiceError, ValidationError
from ddbio.export.service_jobs import COURSE, ServiceJob, failure_of, source_members, split_s3_uri
from ddbio.formats.export_manifest import MAX_MANIFEST_BYTES
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.create_table import NewTable, format_key, new_table_request, parse_key
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.service_estimates import billed_figures, import_estimate
from ddbio.jobs.stores import open_store
from ddbio.result import Result

if TYPE_CHECKING:
    from ddbio.export.options import ImportStartOptions, ImportWaitOptions
    from ddbio.options import ConnectionOptions

_MANIFESTS = "_ddbio/"
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataImport.Validation.html
_MAX_OBJECTS = 50_000
FOLDER = "data/"
"""The folder of the objects of ``import files`` below its target, because the service reads a whole prefix."""


@dataclass(frozen=True)
class ImportedFiles:
    """Data of the manifest of import files; missing fields are None."""

    key: str | None = None
    format: str | None = None
    compression: str | None = None
    delimiter: str | None = None
    gsi: tuple[str, ...] = ()
    condition: str | None = None
    items: int | None = None
    json_bytes: int | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, manifest: bytes) -> ImportedFiles | None:
        """Return the data of a job's manifest, or None if the job wrote no files for an import."""
        try:
            members = json.loads(manifest)["source"]["import"]
            texts = {name: members[name] for name in ("key", "format", "compression", "digest")}
            texts |= {name: members.get(name) for name in ("delimiter", "condition")}
            gsi = tuple(members.get("gsi", ()))
            counts = {name: members[name] for name in ("items", "json_bytes")}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not all(isinstance(text, str) for text in (*texts.values(), *gsi) if text is not None):
            return None
        return cls(**texts, gsi=gsi, **counts) if all(type(count) is int for count in counts.values()) else None


@dataclass(frozen=True)
class ImportPlan(EstimatedPlan):
    """Complete plan of an import.

    ``items`` and ``json_bytes`` are None without a manifest. ``unchecked`` are the indexes whose keys were not checked
    when the files were written.
    """

    table: str
    bucket: str
    prefix: str
    key: str
    indexes: tuple[str, ...]
    unchecked: tuple[str, ...]
    billing: str
    rcu: int | None
    wcu: int | None
    format: str
    compression: str
    delimiter: str | None
    bucket_owner: str | None
    client_token: str
    objects: int
    object_bytes: int
    items: int | None
    json_bytes: int | None
    estimate: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True)
class ImportEntry(Result):
    """Entry of a list of imports."""

    arn: str
    status: str
    table_arn: str
    source: str


@dataclass(frozen=True)
class ImportJob(Result):
    """Description of an import by the service; times are ISO 8601, and counts are 0 until it ends.

    Attributes
    ----------
    arn, status
        Status: ``IN_PROGRESS``, ``COMPLETED``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, table_arn, source
        The new table, and the prefix of the objects.
    format, compression
        Format and compression of the objects.
    started_at, ended_at
        Times of its start and its end.
    processed_items, imported_items, errors
        Items read, items written, and errors. The service stops reading an object at its first invalid line, and counts
        the rest of the object as one error.
    processed_bytes
        Bytes of text read, uncompressed.
    log_group
        The log group of the service's errors.
    items, verified
        Items of the files, if their manifest exists; whether count and digest of the table were compared with it.
    client_token, failure_code, failure_message
        As reported by the service.
    planned, actual
        Planned bytes, USD and seconds, if it was started here; actual ones, as billed, after its end.
    """

    arn: str
    status: str
    table: str
    table_arn: str
    source: str
    format: str
    compression: str
    started_at: str | None
    ended_at: str | None
    processed_items: int
    imported_items: int
    errors: int
    processed_bytes: int
    log_group: str | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    items: int | None = None
    verified: bool = False
    planned: Figures | None = None
    actual: Figures | None = None


def plan_of(options: ImportStartOptions) -> ImportPlan:
    """Return the plan of :func:`start_import`, after the same checks; nothing is started.

    Raises
    ------
    NotFoundError
        If the prefix has no items, because the service would create an empty table.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.imports.plan_import`.
    """
    source, files, objects = objects_of(options.source, options, ": the service would create an empty table")
    token = options.client_token or str(uuid.uuid4())
    plan = plan_import(dataclasses.replace(options, source=source), files, objects, token)
    estimate = import_estimate(plan, prices_of(options.region, options.prices))
    check_estimate(options, estimate)
    return dataclasses.replace(plan, estimate=estimate)


def plan_import(
    options: ImportStartOptions, files: ImportedFiles, objects: tuple[int, ...], client_token: str
) -> ImportPlan:
    """Return the plan of an import.

    Parameters
    ----------
    files
        Data of the manifest of the files.
    objects
        Sizes of the objects below the prefix.

    Raises
    ------
    OptionError
        If key or compression are neither given nor in the manifest, or differ from it; if there are too many objects;
        or if the items have conditions.
    """
    bucket, prefix = split_s3_uri(options.source)
    if files.condition is not None:
        raise OptionError(f"items with the condition {files.condition} are for a bulk put: write them without it")
    if len(objects) > _MAX_OBJECTS:
        raise OptionError(
            f"{options.source} has {len(objects)} objects, but an import allows {_MAX_OBJECTS}: create larger ones"
        )
    key = resolved("key", None if options.key is None else format_key(parse_key(options.key)), files.key)
    file_format = resolved("format", options.format, files.format or options.format or "dynamodb_json")
    return ImportPlan(
        table=options.table,
        bucket=bucket,
        # Without the slash, "a/b" would also match the objects below "a/bc".
        prefix=f"{prefix}/" if prefix else "",
        key=key,
        indexes=options.gsi or files.gsi,
        unchecked=tuple(index for index in options.gsi if index not in files.gsi),
        billing=options.billing,
        rcu=options.rcu,
        wcu=options.wcu,
        format=file_format,
        compression=resolved("compression", options.compression, files.compression),
        delimiter=options.delimiter or files.delimiter,
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
        json_bytes=files.json_bytes,
    )


def resolved(name: str, option: str | None, recorded: str | None) -> str:
    """Return the value of an option, as given or from the manifest of the files.

    Raises
    ------
    OptionError
        If both exist and differ, or neither exists.
    """
    if option is not None and recorded is not None and option != recorded:
        raise OptionError(f"{name} is given as {option}, but the manifest of the files has {recorded}")
    value = option or recorded
    if value is None:
        raise OptionError(f"there is no manifest of these files with their {name}: give {name}")
    return value


def _request(options: ImportStartOptions, plan: ImportPlan) -> ImportJob:
    """Start the service's own import of objects into a new table and return immediately; it uses no write units.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No import was started.
    """
    # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ImportTable.html
    members = {
        "ClientToken": plan.client_token,
        "S3BucketSource": source_members(plan),
        "InputFormat": plan.format.upper(),
        "InputCompressionType": plan.compression.upper(),
        "TableCreationParameters": new_table_request(NewTable(plan.table, plan.key, plan.indexes, plan.rcu, plan.wcu)),
    }
    if plan.delimiter is not None:
        members["InputFormatOptions"] = {"Csv": {"Delimiter": plan.delimiter}}
    reply = call(dynamodb_spec(options), "ImportTable", f"table {plan.table!r}", members)
    description = reply[IMPORT.description]
    # For a client token of another import, the service returns that import as if it were this one.
    for name in ("S3BucketSource", "InputFormat", "InputCompressionType"):
        if description.get(name, members[name]) != members[name]:
            raise ServiceError(
                f"the client token belongs to the import {description['ImportArn']} of {description[name]}: use "
                "another one",
                "ImportConflictException",
            )
    return dataclasses.replace(IMPORT.parse(description, ImportJob), items=plan.items)


def _check(job: ImportJob, options: ImportWaitOptions) -> ImportJob:
    """Return an import once it has completed with the number of items of its files.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; the class of the error depends on the code of the service.
    ValidationError
        If the table does not have the items of the files.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    if job.status != "COMPLETED":
        counts = f"{job.imported_items} items are in the table, {job.errors} objects were abandoned at an invalid line"
        remaining = f"{counts}; the errors are in the log group {job.log_group}"
        raise failure_of(f"import {job.arn}", job.failure_code, job.failure_message, remaining)
    files = files_of_job(job.source, options)
    _check_count(job, files)
    if options.verify:
        _verify(job, files, options)
    return dataclasses.replace(job, items=files.items, verified=options.verify)


def _check_count(job: ImportJob, files: ImportedFiles) -> None:
    if not job.imported_items or files.items not in (None, job.imported_items):
        expected = "some" if files.items is None else str(files.items)
        raise ValidationError(
            f"import {job.arn} has completed with {job.imported_items} items, but its files contain {expected}: "
            f"delete table {job.table} and import again",
            {"items": files.items, "imported_items": job.imported_items},
        )


def _verify(job: ImportJob, files: ImportedFiles, options: ImportWaitOptions) -> None:
    # Imported only here, because imports without verification read no table.
    from ddbio.scan.read import read_digest  # noqa: PLC0415

    table_digest = read_digest(job.table, options).digest
    items = job.imported_items if files.items is None else files.items
    digest = table_digest.hexdigest()
    if table_digest.count != items or files.digest not in (None, digest):
        raise ValidationError(
            f"table {job.table} does not have the items of its files: {table_digest.count} of {items} items, "
            f"digest {digest} instead of {files.digest}",
            {"items": items, "table_items": table_digest.count, "digest": files.digest, "table_digest": digest},
        )


def _actual(job: ImportJob) -> Figures | None:
    if job.ended_at is None:
        return None
    prices = prices_of(region_of(job.arn))
    return billed_figures("import", job.processed_bytes, job.started_at, job.ended_at, prices)


def objects_of(
    source: str, options: ConnectionOptions, consequence: str = ""
) -> tuple[str, ImportedFiles, tuple[int, ...]]:
    """Return the prefix that the service reads, the data of its manifest, and the sizes of its objects.

    Raises
    ------
    NotFoundError
        If there are no objects, or all are empty; the message ends with ``consequence``.
    OptionError, AccessDeniedError, EndpointError
        If the source is not on S3, or cannot be read.
    """
    split_s3_uri(source)
    prefix, files = files_of(source, options)
    objects = tuple(entry.size_bytes for entry in open_store(prefix, options).list())
    if not any(objects):
        raise NotFoundError(f"{prefix} has no objects with data{consequence}")
    return prefix, files, objects


def files_of(source: str, options: ConnectionOptions) -> tuple[str, ImportedFiles]:
    """Return the prefix to import, and the data of its manifest.

    If the source is the target of ``import files``, the prefix is the folder of its objects; else it is the source.
    """
    folder = FOLDER.rstrip("/")
    root, _, last = source.rstrip("/").rpartition("/")
    root = root if last == folder else source.rstrip("/")
    store = open_store(root, options)
    for entry in store.list(_MANIFESTS):
        if entry.path.endswith(".json") and entry.size_bytes <= MAX_MANIFEST_BYTES:
            files = ImportedFiles.parse(store.read(entry.path))
            if files is not None:
                return f"{root}/{folder}", files
    return source, ImportedFiles()


def files_of_job(source: str, options: ConnectionOptions) -> ImportedFiles:
    """Return the data of the manifest of a job's files; it is empty if there is no manifest or it cannot be read."""
    with contextlib.suppress(AccessDeniedError, EndpointError):
        return files_of(source, options)[1] if source else ImportedFiles()
    return ImportedFiles()


IMPORT = ServiceJob(
    name="import",
    job=ImportJob,
    entry=ImportEntry,
    description="ImportTableDescription",
    entries="ImportSummaryList",
    members=f"{COURSE} arn=ImportArn status=ImportStatus table_arn=TableArn source=S3BucketSource "
    "processed_items=ProcessedItemCount imported_items=ImportedItemCount errors=ErrorCount "
    "processed_bytes=ProcessedSizeBytes log_group=CloudWatchLogGroupArn",
    computed={
        "table": lambda job: job["TableArn"].rpartition("/")[2],
        "format": lambda job: job.get("InputFormat", "").lower(),
        "compression": lambda job: job.get("InputCompressionType", "NONE").lower(),
    },
    plan=plan_of,
    request=_request,
    check=_check,
    actual=_actual,
    started_by="start_import",
    lists="Return the imports of the last 90 days, of a table or of all.",
)
start, wait, describe, list_of = IMPORT.public_functions()
