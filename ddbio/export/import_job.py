"""Plan imports and bulk puts, the two ways in which the service reads files itself, and describe their jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.errors import OptionError
from ddbio.export.job_descriptions import s3_place, service_key
from ddbio.jobs.create_table import NewTable, format_key, new_table_request, parse_key
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.result import Result

if TYPE_CHECKING:
    from ddbio.aws.table_description import TableDescription
    from ddbio.export.options import BulkStartOptions, ImportStartOptions


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


def table_definition(plan: ImportPlan) -> dict[str, Any]:
    """Return the new table as parameters of CreateTable.

    Raises
    ------
    OptionError
        If an index is not written as ``name=key``, or an attribute has two types.
    """
    return new_table_request(NewTable(plan.table, plan.key, plan.indexes, plan.rcu, plan.wcu))


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


@dataclass(frozen=True)
class BulkPlan(EstimatedPlan):
    """Describe a bulk put completely before it is requested; ``items`` is None if there is no manifest."""

    table: str
    bucket: str
    prefix: str
    report_bucket: str
    report_prefix: str
    format: str
    compression: str
    wcu_per_second: int | None
    tier: str
    kms_key: str | None
    bucket_owner: str | None
    client_token: str
    objects: int
    object_bytes: int
    items: int | None
    estimate: Estimate = field(default_factory=Estimate)
    report_owner: str | None = None


@dataclass(frozen=True)
class BulkEntry(Result):
    """Hold one entry of a list of bulk operations."""

    arn: str
    status: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True)
class BulkJob(Result):
    """Describe one bulk put as the service does; times are ISO 8601.

    Attributes
    ----------
    arn, status
        ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
    table, source, reports
        The table, the place of the objects, and the place of the reports about items that were not put.
    processed_items, failed_items
        Items read, and those of them that were errors. An item whose condition did not hold is no error.
    processed_bytes, total_bytes
        Bytes of the objects as stored; the total is None until the service knows it.
    planned, actual
        Units, bytes, USD and seconds as planned where it was started; seconds and bytes where it has ended.
    """

    arn: str
    status: str
    table: str
    source: str
    reports: str
    started_at: str | None
    ended_at: str | None
    processed_items: int
    failed_items: int
    processed_bytes: int
    total_bytes: int | None
    client_token: str | None
    failure_code: str | None
    failure_message: str | None
    planned: Figures | None = None
    actual: Figures | None = None


def plan_bulk(
    facts: TableDescription,
    options: BulkStartOptions,
    files: ImportedFiles,
    objects: tuple[int, ...],
    client_token: str,
) -> BulkPlan:
    """Return the plan of a bulk put.

    Raises
    ------
    OptionError
        If the files are CSV or were written for another key, their compression is not known, or the reports would lie
        among the objects.
    """
    bucket, prefix = s3_place(options.source)
    report_bucket, report_prefix = s3_place(options.reports)
    if report_bucket == bucket and f"{report_prefix}/".startswith(f"{prefix}/" if prefix else ""):
        raise OptionError(f"reports at {options.reports} would lie below the source {options.source}")
    if files.format == "csv":
        raise OptionError("a bulk put reads dynamodb_json or ion: write the files in one of these")
    key = ",".join(f"{name}:{tag}" for name, tag in facts.key_types)
    if files.key not in (None, key):
        raise OptionError(f"the files were written for the key {files.key}, table {facts.name!r} has {key}")
    return BulkPlan(
        table=options.table,
        bucket=bucket,
        prefix=f"{prefix}/" if prefix else "",
        report_bucket=report_bucket,
        report_prefix=report_prefix,
        format=resolved("format", options.format, files.format or options.format or "dynamodb_json"),
        compression=resolved("compression", options.compression, files.compression),
        wcu_per_second=options.wcu_per_second,
        tier=options.tier,
        kms_key=service_key(options, options.kms_key),
        bucket_owner=options.bucket_owner or options.s3_expected_bucket_owner,
        report_owner=options.s3_expected_bucket_owner,
        client_token=client_token,
        objects=len(objects),
        object_bytes=sum(objects),
        items=files.items,
    )
