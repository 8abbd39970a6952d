"""Start the service's own imports, wait for them, and compare their tables with the files."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING

from ddbio.aws.table_description import region_of
from ddbio.budget.job_limits import check_estimate
from ddbio.errors import AccessDeniedError, EndpointError, NotFoundError, ValidationError
from ddbio.export import service_jobs
from ddbio.export.job_descriptions import FOLDER, ImportedFiles, failure_of, plan_import, s3_place
from ddbio.formats.export_manifest import MAX_MANIFEST_BYTES
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import prices_of
from ddbio.jobs.service_estimates import billed_figures, import_estimate
from ddbio.jobs.stores import open_store
from ddbio.jobs.waiting import await_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.export.job_descriptions import ImportEntry, ImportJob, ImportPlan
    from ddbio.export.options import ImportStartOptions, ImportWaitOptions
    from ddbio.options import ConnectionOptions

_LOG = logging.getLogger("ddbio.import")
_MANIFESTS = "_ddbio/"


def plan_of(options: ImportStartOptions) -> ImportPlan:
    """Return what :func:`start_import` would request, after the same checks; nothing is started.

    Raises
    ------
    NotFoundError
        If the prefix has no items: the service would make an empty table.
    OptionError, AccessDeniedError, EndpointError
        See :func:`ddbio.export.job_descriptions.plan_import`.
    """
    source, files, objects = objects_of(options.source, options, ": the service would make an empty table")
    token = options.client_token or str(uuid.uuid4())
    plan = plan_import(dataclasses.replace(options, source=source), files, objects, token)
    estimate = import_estimate(plan, prices_of(options.region, options.prices))
    check_estimate(options, estimate)
    return dataclasses.replace(plan, estimate=estimate)


def start(options: ImportStartOptions) -> ImportJob:
    """Start the service's own import of objects into a new table and return at once; it uses no write units.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError, ServiceError
        No import has then been started.
    """
    plan = plan_of(options)
    job = service_jobs.start_import(dynamodb_spec(options), plan)
    _LOG.info("import %s into %s: planned: %s", options.source, plan.table, plan.estimate.figures)
    return dataclasses.replace(job, items=plan.items, planned=plan.estimate.figures)


def wait(options: ImportWaitOptions, watch: Callable[[ImportJob, float], None] | None = None) -> ImportJob:
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
    job = await_end(lambda: describe(options.arn, options), options, watch)
    if job.status != "COMPLETED":
        counts = f"{job.imported_items} items are in the table, {job.errors} objects were given up at a line"
        left = f"{counts}; what was refused is in the log group {job.log_group}"
        raise failure_of(f"import {job.arn}", job.failure_code, job.failure_message, left)
    files = files_of_job(job.source, options)
    _check_count(job, files)
    if options.verify:
        _verify(job, files, options)
    return dataclasses.replace(job, items=files.items, verified=options.verify)


def describe(arn: str, options: ConnectionOptions) -> ImportJob:
    """Return what is known of an import.

    Parameters
    ----------
    arn
        As :func:`start_import` returned it.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    job: ImportJob = service_jobs.describe_job(dynamodb_spec(options), service_jobs.IMPORT, arn)
    if job.ended_at is None:
        return job
    actual = billed_figures("import", job.processed_bytes, job.started_at, job.ended_at, prices_of(region_of(arn)))
    return dataclasses.replace(job, actual=actual)


def list_of(table: str | None, options: ConnectionOptions) -> list[ImportEntry]:
    """Return the imports of the last 90 days, of a table or of all.

    Parameters
    ----------
    table
        Name or ARN.

    Raises
    ------
    DdbioError
        With what happened, to what, and what to do.
    """
    return service_jobs.list_jobs(dynamodb_spec(options), service_jobs.IMPORT, table)


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
