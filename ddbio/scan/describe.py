"""Describe a table, sample its items and plan a scan of it."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ddbio.aws.control_plane import describe_table
from ddbio.aws.retry import RetryPolicy
from ddbio.aws.transport import open_page_source
from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import check_limits
from ddbio.catalog.sync import check_catalog
from ddbio.commit import protocol as commit
from ddbio.errors import SchemaError
from ddbio.formats.file_facts import file_bytes
from ddbio.items.capacity import READ_UNIT_BYTES, item_units, page_units
from ddbio.items.decode import Decoder, infer_schema_of_bodies
from ddbio.items.index_units import sample_writes
from ddbio.items.json_text import parse_json
from ddbio.items.schema.arrow import attributes_of, name_of_field, project_schema, tag_of_field, tagged_field
from ddbio.items.schema.declare import ColumnRules
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.items.time_columns import sampled_formats
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import job_cost
from ddbio.jobs.engine import available_cores, is_spark_installed, running_spark_parallelism
from ddbio.jobs.estimate import output_parts
from ddbio.jobs.file_estimates import sampled_partitions
from ddbio.jobs.staging import open_staging, require_same_columns, stored_format, target_of
from ddbio.jobs.stores import open_store
from ddbio.jobs.table_limits import read_statistics
from ddbio.options.lake_formats import LAKE_FORMATS
from ddbio.scan.pages import ReadRequest, scan_pages
from ddbio.scan.plan import Resources, Sample, ScanPlan, budget_of, check_scan, plan_scan
from ddbio.scan.selection import selection_of
from ddbio.scan.stream import ScanTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget
    from ddbio.items.attribute import Item
    from ddbio.items.page import Page
    from ddbio.items.schema.times import TimeFormat
    from ddbio.jobs.estimate import Part
    from ddbio.jobs.file_estimates import PartitionSample
    from ddbio.jobs.prices import Cost
    from ddbio.scan.conditions import Query
    from ddbio.scan.options import PlanScanOptions, ScanOptions, ScanToFilesOptions

# One sample at the table's start, then samples at a quarter, half and three quarters of the hash range.
SAMPLE_SEGMENTS = 64
QUARTERS = 4
PROBE_ITEMS = 100

# Assumed item size for the first pages of a table that does not report its size.
ASSUMED_ITEM_BYTES = 400.0

# The type of a column that no sampled item has. Numbers are text in DynamoDB's canonical spelling.
_KEY_ARROW: dict[str, pa.DataType] = {"S": pa.string(), "N": pa.string(), "B": pa.binary(), "NULL": pa.string()}


def describe_scan(options: ScanOptions) -> TableDescription:
    """Return the description of a table, after checking that the service would accept the scan.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.aws.control_plane.describe_table` and :func:`ddbio.scan.plan.check_scan`.
    """
    table = describe_table(dynamodb_spec(options), options.table)
    check_scan(table, options)
    return table


def sample_table(
    table: TableDescription, options: ScanOptions, budget: Budget, target: TableDescription | None = None
) -> Sample:
    """Return the columns and the mean item size of a table. With a given schema, only the mean size is needed.

    The sample is charged to the budget like any other page.

    Parameters
    ----------
    target
        The table that the items are copied to; the sample then includes the cost of the writes.

    Raises
    ------
    SchemaError
        If the given schema contradicts the table's keys.
    """
    given_schema, rules = _given_schema(table, options), ColumnRules.of(options)
    if given_schema is not None:
        rules.require(attributes_of(given_schema))
    if given_schema is not None and not rules.sampled:
        given_schema = rules.apply(given_schema)
    selection = selection_of(table, options)
    queries, keys = selection.queries, selection.keys
    is_known = bool(table.item_count and table.size_bytes and not options.index and not queries and not keys)
    if given_schema is not None and not rules.sampled and is_known:
        return Sample(given_schema, 0, table.size_bytes / table.item_count, 0.0, complete=False)
    sample_size = _sample_size(options) if given_schema is None else PROBE_ITEMS
    pages = list(_sample_pages(table, options, budget, sample_size))
    scanned = sum(page.scanned_count for page in pages)
    units = sum(page.consumed_units or 0.0 for page in pages)
    schema = given_schema
    if schema is None:
        schema = _with_requested(_observed(pages), table, options).to_arrow()
        rules.require(attributes_of(schema) if scanned else ())
    if given_schema is None or rules.sampled:
        schema = rules.apply(schema, _sampled_forms(rules, pages), dict(table.key_types))
    _require_key_types(table, schema)
    complete = not queries and not keys and len(pages) == 1 and pages[0].last_evaluated_key is None
    partitions = _sampled_partitions(options, schema, pages)
    read_bytes = units * READ_UNIT_BYTES / (1.0 if options.consistent else 0.5)
    if not complete:
        # Each page was rounded up to whole units, by half a unit on average.
        read_bytes -= len(pages) * READ_UNIT_BYTES / 2
    item_bytes = read_bytes / scanned if scanned else 0.0
    sent_bytes = sum(page.wire_bytes for page in pages) / scanned if scanned else 0.0
    writes = None if target is None else sample_writes(list(_items_of(pages)), target)
    collections = len(_sampled_collections(queries))
    return Sample(schema, scanned, item_bytes, units, complete, partitions, sent_bytes, writes, collections)


def unsampled(table: TableDescription, options: ScanOptions) -> Sample:
    """Return the table's statistics and the columns of a given schema, without reading items.

    Raises
    ------
    SchemaError
        If the given schema contradicts the table's keys.
    """
    schema = _given_schema(table, options) or pa.schema([])
    counted = table.index(options.index) if options.index else table
    is_counted = counted is not None and counted.item_count and counted.size_bytes
    item_bytes = counted.size_bytes / counted.item_count if counted is not None and is_counted else ASSUMED_ITEM_BYTES
    return Sample(schema, 0, item_bytes, 0.0, complete=False)


def _items_of(pages: Iterable[Page]) -> Iterator[Item]:
    for page in pages:
        yield from parse_json(page.items)["Items"]


def _sampled_partitions(options: ScanOptions, schema: pa.Schema, pages: Sequence[Page]) -> PartitionSample | None:
    """Return the partitions of the sampled rows and the size of a row in a file; None without partitions."""
    files = _of_files(options)
    if files is None or files.partition_by is None:
        return None
    decoder = Decoder(schema)
    return sampled_partitions(files, schema, (decoder.decode(page.items, "page") for page in pages))


def observe_table(table: TableDescription, options: ScanOptions, budget: Budget) -> ItemSchema:
    """Return the schema of a sample of a table's items, with all keys and all requested attributes.

    A given schema needs no sample. The sample is charged to the budget like other pages.

    Raises
    ------
    SchemaError
        If the given schema contradicts the table's keys.
    """
    given_schema, rules = _given_schema(table, options), ColumnRules.of(options)
    if given_schema is not None and not rules.sampled:
        return ItemSchema.from_arrow(rules.apply(given_schema))
    pages = list(_sample_pages(table, options, budget, _sample_size(options)))
    forms = _sampled_forms(rules, pages)
    if given_schema is not None:
        return ItemSchema.from_arrow(rules.apply(given_schema, forms))
    observed = _with_requested(_observed(pages), table, options)
    rules.require(attributes_of(observed.to_arrow()) if observed.item_count else ())
    return rules.declare(observed, forms, dict(table.key_types))


def plan_of(
    options: ScanOptions,
    budget: LocalBudget | None = None,
    table: TableDescription | None = None,
    target: TableDescription | None = None,
) -> ScanPlan:
    """Return the plan of a scan after describing and sampling the table; a budget gets the limits of the job.

    Parameters
    ----------
    target
        The table that the items are written to, if they are copied.

    Raises
    ------
    LimitError
        If the plan exceeds a limit of the options.
    DdbioError
        As :func:`ddbio.scan.describe.describe_scan` and :func:`ddbio.scan.describe.sample_table` describe.
    """
    table = table or describe_scan(options)
    sample = sample_table(table, options, budget or LocalBudget(budget_of(table, options)), target)
    return _bounded_plan(table, sample, options, budget)


def plan(options: PlanScanOptions | ScanToFilesOptions, from_file: str | None = None) -> ScanPlan:
    """Return the plan of a scan after describing and sampling the table; nothing is written.

    Raises
    ------
    DdbioError
        If the scan would be refused.
    """
    if from_file is not None:
        return plan_of_statistics(options, from_file)
    return plan_of(options) if options.dest is None else plan_to_files(options)


def plan_of_statistics(options: ScanOptions, path: str) -> ScanPlan:
    """Return the plan of a scan from a file that describes the table, without calls of AWS; the table need not exist.

    Raises
    ------
    OptionError
        If the file does not describe a table.
    LimitError
        If the plan exceeds a limit of the options.
    """
    statistics = read_statistics(path)
    check_scan(statistics.table, options)
    schema = _given_schema(statistics.table, options) or pa.schema([])
    return _bounded_plan(statistics.table, Sample(schema, 0, statistics.item_bytes, 0.0, complete=False), options, None)


def _bounded_plan(
    table: TableDescription, sample: Sample, options: ScanOptions, budget: LocalBudget | None
) -> ScanPlan:
    plan = plan_scan(table, sample, options, available_resources())
    plan = dataclasses.replace(plan, cost=_planned_cost(plan, table, options))
    limits = check_limits(options, plan.units, plan.seconds, plan.cost)
    if budget is not None:
        budget.bound(limits)
    return plan


def _planned_cost(plan: ScanPlan, table: TableDescription, options: ScanOptions) -> Cost:
    parts: list[Part] = []
    if (written := _of_files(options)) is not None:
        size = file_bytes(
            stored_format(written.format), plan.item_bytes * min(plan.item_count, options.limit or plan.item_count)
        )
        files = plan.estimated_files or max(plan.tasks, -(-size // written.target_file_bytes))
        parts = output_parts(written.dest, files, size, is_encrypted=options.s3_sse_kms_key_id is not None)
    return job_cost(options, [("reads", plan.units, table)], parts, plan.seconds)


def _of_files(options: ScanOptions) -> ScanToFilesOptions | None:
    """Return the options if they are those of a scan to files, else None; this does not import their class."""
    return cast("ScanToFilesOptions", options) if getattr(options, "dest", None) is not None else None


def plan_to_files(options: ScanToFilesOptions) -> ScanPlan:
    """Return the plan of a scan into files, after checking their target; nothing is written.

    Raises
    ------
    TargetError, OptionError
        If the target would be refused.
    DdbioError
        As ``plan_of``.
    """
    store = open_store(options.dest, options)
    is_lake = options.format in LAKE_FORMATS
    if options.job_id is None and not is_lake:
        # A job with an explicit id may be committed already; its run then returns the report.
        commit.check_target(target_of(options, store))
    plan = plan_of(options)
    if options.format != "dynamodb-export" and not is_lake:
        require_same_columns(options, open_staging(options), plan.schema)
    check_catalog(options, open_staging(options), plan.schema, options.format)
    return plan


def available_resources() -> Resources:
    """Return the cores and the Spark parallelism that a plan can use, without starting Spark."""
    return Resources(available_cores(), running_spark_parallelism(), is_spark_installed())


def scan_tasks(plan: ScanPlan, options: ScanOptions, table: TableDescription) -> list[ScanTask]:
    """Return the tasks of a plan; together they read every segment exactly once."""
    base_request, selection = request_of(table, options, plan.item_bytes), selection_of(table, options)
    queries, keys = selection.queries, selection.keys

    def request(segment: int) -> ReadRequest:
        if keys:
            return dataclasses.replace(base_request, keys=keys[segment :: plan.segments], segment=segment)
        if queries:
            return dataclasses.replace(base_request, queries=queries[segment :: plan.segments], segment=segment)
        return base_request.of_segment(segment, plan.segments)

    return [
        ScanTask(
            number=number,
            spec=dynamodb_spec(options),
            requests=tuple(map(request, group)),
            lanes=plan.lanes_per_task,
            schema=plan.schema,
            on_misfit=options.on_misfit,
            nulls=options.nulls,
            drop=options.drop or (),
            digest=getattr(options, "digest", False),
            deadline_seconds=options.deadline_seconds,
            accept_encoding=options.accept_encoding,
        )
        for number, group in enumerate(plan.groups())
    ]


def request_of(table: TableDescription, options: ScanOptions, item_bytes: float) -> ReadRequest:
    """Return the request of a scan of the whole table, from which the requests of segments are derived."""
    budget = budget_of(table, options)
    return ReadRequest(
        table=options.table,
        index=options.index,
        consistent=options.consistent,
        columns=options.columns,
        page_units=None if budget is None else page_units(budget, options.consistent),
        item_units=item_units(item_bytes, options.consistent) or None,
        max_items=options.limit,
        condition=selection_of(table, options).condition,
    )


def _sample_size(options: ScanOptions) -> int:
    # Items that do not match a condition are sampled too: they have the columns of the table.
    is_limited = options.limit is not None and options.where is None
    return min(options.limit or 0, options.sample_items) if is_limited else options.sample_items


def _sample_pages(table: TableDescription, options: ScanOptions, budget: Budget, sample_size: int) -> Iterator[Page]:
    policy = RetryPolicy(options.deadline_seconds, threading.Event())
    share = _probe_items(table, options, sample_size)
    mean_bytes = table.size_bytes / table.item_count if table.item_count else ASSUMED_ITEM_BYTES
    base_request = dataclasses.replace(request_of(table, options, mean_bytes), max_items=share, condition=None)
    selection = selection_of(table, options)
    collections = _sampled_collections(selection.queries)
    with closing(open_page_source(dynamodb_spec(options), 1, accept_encoding=options.accept_encoding)) as source:
        if selection.keys:
            step = max(1, len(selection.keys) // sample_size)
            lookup = dataclasses.replace(base_request, keys=selection.keys[::step][:sample_size], max_items=None)
            yield from scan_pages(source, lookup, budget, policy)
            return
        if collections:
            for query in collections:
                yield from scan_pages(source, dataclasses.replace(base_request, queries=(query,)), budget, policy)
            return
        probe = list(_first(scan_pages(source, base_request, budget, policy), share))
        yield from probe
        if probe[-1].last_evaluated_key is None or share == sample_size:
            return
        # Segments with fewer items than the share would make the sample smaller than requested.
        max_segments = table.item_count // share // QUARTERS * QUARTERS if table.item_count else SAMPLE_SEGMENTS
        segments = min(SAMPLE_SEGMENTS, max(QUARTERS, max_segments))
        for quarter in range(1, QUARTERS):
            request = base_request.of_segment(segments * quarter // QUARTERS, segments)
            yield from _first(scan_pages(source, request, budget, policy), share)


def _sampled_collections(queries: Sequence[Query]) -> Sequence[Query]:
    """Return a few of the item collections, spread over their list."""
    return queries[:: max(1, len(queries) // QUARTERS)][:QUARTERS]


def _probe_items(table: TableDescription, options: ScanOptions, sample_size: int) -> int:
    """Return the number of items sampled at the table's start: all of them if the table or the limit has no more."""
    is_all = 0 < table.item_count <= sample_size or options.limit == sample_size
    return sample_size if is_all else -(-sample_size // QUARTERS)


def _first(pages: Iterator[Page], share: int) -> Iterator[Page]:
    """Yield pages until ``share`` items were scanned, so that a sparse segment is not read to its end."""
    scanned = 0
    for page in pages:
        yield page
        scanned += page.scanned_count
        if scanned >= share:
            return


def _observed(pages: Iterable[Page]) -> ItemSchema:
    return infer_schema_of_bodies([(page.items, "page") for page in pages])


def _sampled_forms(rules: ColumnRules, pages: Iterable[Page]) -> dict[str, TimeFormat]:
    return sampled_formats(rules.sampled, [(page.items, "page") for page in pages])


def _given_schema(table: TableDescription, options: ScanOptions) -> pa.Schema | None:
    if options.schema is None:
        return None
    schema = arrow_schema_of(options.schema)
    _require_key_types(table, schema)
    return project_schema(schema, options.columns) if options.columns else schema


def _require_key_types(table: TableDescription, schema: pa.Schema) -> None:
    # The rescue column is not an attribute, but may have the same name as one.
    name_tags = ((name_of_field(field), tag_of_field(field)) for field in schema)
    tags = {name: tag for name, tag in name_tags if tag != "RESCUE"}
    for name, key_type in table.key_types:
        declared = tags.get(name, key_type)
        if declared != key_type:
            raise SchemaError(
                f"key attribute {name!r} of table {table.name!r} has type {key_type}, but the schema has "
                f"{declared}: fix the schema, or omit it so that it is inferred"
            )


def _with_requested(observed: ItemSchema, table: TableDescription, options: ScanOptions) -> ItemSchema:
    """Return the observed schema with all requested columns, or all keys, including those absent from the sample."""
    key_types = dict(table.key_types)
    requested = options.columns or tuple(name for name in key_types if options.index is None)
    missing = [tagged_field(name, _KEY_ARROW[key_types.get(name, "NULL")], key_types.get(name, "NULL"))
               for name in requested if name not in observed.seen.members]  # fmt: skip
    unknown = [field.name for field in missing if field.name not in key_types] if observed.item_count else []
    if unknown:
        raise SchemaError(
            f"columns: no sampled item has an attribute {unknown[0]!r}: correct the name "
            "(top-level attributes only), raise sample_items, or give a schema that has it"
        )
    schema = observed.merge(ItemSchema.from_arrow(pa.schema(missing)))
    return schema.project(options.columns) if options.columns else schema
