"""The service's imports: their plans, descriptions and course, and the comparison of their tables with the files."""

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
from ddbio.export.service_jobs import COURSE, ServiceJob, failure_of, s3_place, source_members
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
"""The folder of the objects of ``import files`` below its target: the service reads all that is below a prefix."""


@dataclass(frozen=True)
class ImportedFiles:
    """Hold what the manifest of import files says; a field is None if it says nothing."""

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
        """Return what a job's manifest says, or None if the job wrote no files for an import."""
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
    """Describe an import completely before it is requested.

    ``items`` and ``json_bytes`` are None without a manifest. ``unchecked`` are the indexes for whose keys the items
    were not checked when the files were written.
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
    """Hold one entry of a list of imports."""

    arn: str
    status: str
    table_arn: str
    source: str


@dataclass(frozen=True)
class ImportJob(Result):
    """Describe one import as the service does; times are ISO 8601, counts are 0 until it ends.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, table_arn, source
        The new table, and the prefix that is read.
    format, compression
        How the objects are read.
    started_at, ended_at
        Times of its start and its end.
    processed_items, imported_items, errors
        Items read, items written, and errors. The service stops reading an object at its first bad line: that line and
        the rest of the object count as one error.
    processed_bytes
        Bytes of text read, uncompressed.
    log_group
        The log group to which the service writes its errors.
    items, verified
        Items of the files, if their manifest was found; whether count and digest of the table were compared with them.
    client_token, failure_code, failure_message
        As the service gives them.
    planned, actual
        Bytes, USD and seconds, as planned where it was started, and as billed where it has ended.
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
    """Return what :func:`start_import` would request, after the same checks; nothing is started.

    Raises
    ------
    NotFoundError
        If the prefix has no items: the service would make an empty table.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.imports.plan_import`.
    """
    source, files, objects = objects_of(options.source, options, ": the service would make an empty table")
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
        What the manifest of the files says.
    objects
        Sizes of the objects below the prefix.

    Raises
    ------
    OptionError
        If key or compression are neither given nor in the manifest, or differ from it, there are too many objects, or
        the items have conditions.
    """
    bucket, prefix = s3_place(options.source)
    if files.condition is not None:
        raise OptionError(f"items with the condition {files.condition} are for a bulk put: write them without it")
    if len(objects) > _MAX_OBJECTS:
        raise OptionError(
            f"{options.source} holds {len(objects)} objects, an import takes {_MAX_OBJECTS}: make larger ones"
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
        unchecked=tuple(each for each in options.gsi if each not in files.gsi),
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


def resolved(name: str, given: str | None, recorded: str | None) -> str:
    """Return the value of an option, as given or from the manifest of the files.

    Raises
    ------
    OptionError
        If both are there and differ, or neither is there.
    """
    if given is not None and recorded is not None and given != recorded:
        raise OptionError(f"{name} is given as {given}, but the manifest of the files says {recorded}")
    value = given or recorded
    if value is None:
        raise OptionError(f"there is no manifest of these files that says their {name}: give {name}")
    return value


def _request(options: ImportStartOptions, plan: ImportPlan) -> ImportJob:
    """Start the service's own import of objects into a new table and return at once; it uses no write units.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No import has then been started.
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
    # A client token of an import of other objects: the service returns that import as if it were this one.
    for name in ("S3BucketSource", "InputFormat", "InputCompressionType"):
        if description.get(name, members[name]) != members[name]:
            raise ServiceError(
                f"the client token stands for the import {description['ImportArn']} of {description[name]}: give "
                "another one",
                "ImportConflictException",
            )
    return dataclasses.replace(IMPORT.parse(description, ImportJob), items=plan.items)


def _check(job: ImportJob, options: ImportWaitOptions) -> ImportJob:
    """Return an import once it has completed and wrote as many items as its files hold.

    Raises
    ------
    NotFoundError, AccessDeniedError, ServiceError
        If it has failed; which error depends on the code that the service gives.
    ValidationError
        If the table does not hold the items of the files.
    ThrottledError
        If it is still running after ``wait_seconds``.
    """
    if job.status != "COMPLETED":
        counts = f"{job.imported_items} items are in the table, {job.errors} objects were given up at a line"
        left = f"{counts}; what was refused is in the log group {job.log_group}"
        raise failure_of(f"import {job.arn}", job.failure_code, job.failure_message, left)
    files = files_of_job(job.source, options)
    _check_count(job, files)
    if options.verify:
        _verify(job, files, options)
    return dataclasses.replace(job, items=files.items, verified=options.verify)


def _check_count(job: ImportJob, files: ImportedFiles) -> None:
    if not job.imported_items or files.items not in (None, job.imported_items):
        wanted = "some" if files.items is None else str(files.items)
        raise ValidationError(
            f"import {job.arn} has completed with {job.imported_items} items, but its files hold {wanted}: "
            f"delete table {job.table} and import again",
            {"items": files.items, "imported_items": job.imported_items},
        )


def _verify(job: ImportJob, files: ImportedFiles, options: ImportWaitOptions) -> None:
    # Imports that are not verified read no table, and load nothing that does.
    from ddbio.scan.read import read_digest  # noqa: PLC0415

    found = read_digest(job.table, options).digest
    items = job.imported_items if files.items is None else files.items
    digest = found.hexdigest()
    if found.count != items or files.digest not in (None, digest):
        raise ValidationError(
            f"table {job.table} does not hold what its files do: {found.count} items of {items}, "
            f"digest {digest}, of the files {files.digest}",
            {"items": items, "table_items": found.count, "digest": files.digest, "table_digest": digest},
        )


def _actual(job: ImportJob) -> Figures | None:
    if job.ended_at is None:
        return None
    prices = prices_of(region_of(job.arn))
    return billed_figures("import", job.processed_bytes, job.started_at, job.ended_at, prices)


def objects_of(
    source: str, options: ConnectionOptions, consequence: str = ""
) -> tuple[str, ImportedFiles, tuple[int, ...]]:
    """Return the prefix that the service reads, what its manifest says, and the sizes of its objects.

    Raises
    ------
    NotFoundError
        If all objects are empty, or there are none; the message ends with the consequence.
    OptionError, AccessDeniedError, EndpointError
        If the source is not on S3, or cannot be read.
    """
    s3_place(source)
    prefix, files = files_of(source, options)
    objects = tuple(each.size_bytes for each in open_store(prefix, options).list())
    if not any(objects):
        raise NotFoundError(f"{prefix} holds no object with anything in it{consequence}")
    return prefix, files, objects


def files_of(source: str, options: ConnectionOptions) -> tuple[str, ImportedFiles]:
    """Return the prefix to import and what its manifest says.

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
    """Return what the manifest of a job's files says; all is None if there is no manifest or it may not be read."""
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
