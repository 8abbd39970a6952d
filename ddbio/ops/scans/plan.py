"""Describe a table, sample its items and plan a scan of it."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from ddbio.aws.control_plane import describe_table
from ddbio.aws.retry import RetryPolicy
from ddbio.aws.scan import SegmentRequest, scan_pages
from ddbio.aws.transport import open_page_source
from ddbio.budget import LocalBudget
from ddbio.core.capacity import PAGES_PER_SECOND, READ_UNIT_BYTES, read_units
from ddbio.core.decode import infer_schema_of_bodies
from ddbio.core.plan import Resources, Sample, ScanPlan, budget_of, check_scan, plan_scan
from ddbio.core.schema.arrow import name_of_field, project_schema, tag_of_field, tagged_field
from ddbio.core.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.engine import available_cores, is_spark_installed, running_spark_parallelism
from ddbio.errors import SchemaError
from ddbio.files import commit
from ddbio.ops.job.storage import dynamodb_spec, open_store, target_of
from ddbio.ops.scans.stream import ScanTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.budget import Budget
    from ddbio.core.table_description import TableDescription
    from ddbio.core.text.page import Page
    from ddbio.options import ScanOptions, ScanToFilesOptions

# A probe at the table's start, then samples at a quarter, half and three quarters of the hash range.
SAMPLE_SEGMENTS = 64
QUARTERS = 4
PROBE_ITEMS = 100

# Bounds the first pages of a table that does not state its size.
ASSUMED_ITEM_BYTES = 400.0


def describe_scan(options: ScanOptions) -> TableDescription:
    """Return the table's facts after checking that such a scan is possible at all.

    Raises
    ------
    OptionError, NotFoundError, AccessDeniedError, EndpointError
        See :func:`ddbio.aws.control_plane.describe_table` and :func:`ddbio.core.plan.check_scan`.
    """
    facts = describe_table(dynamodb_spec(options), options.table)
    check_scan(facts, options)
    return facts


def sample_table(facts: TableDescription, options: ScanOptions, budget: Budget) -> Sample:
    """Return the columns and the mean item of a table; a given schema needs no items, only the mean.

    What the sample reads is charged to the budget like any other page.

    Raises
    ------
    SchemaError
        If the given schema contradicts the table's keys.
    """
    given = _given_schema(facts, options)
    if given is not None and facts.item_count and facts.size_bytes and not options.index:
        return Sample(given, 0, facts.size_bytes / facts.item_count, 0.0, complete=False)
    wanted = _wanted(options) if given is None else PROBE_ITEMS
    pages = list(_sample_pages(facts, options, budget, wanted))
    scanned = sum(page.scanned_count for page in pages)
    units = sum(page.consumed_units or 0.0 for page in pages)
    schema = given
    if schema is None:
        schema = _with_asked(_observed(pages), facts, options).to_arrow()
    unit_bytes = READ_UNIT_BYTES / (1.0 if options.consistent else 0.5)
    complete = len(pages) == 1 and pages[0].last_evaluated_key is None
    return Sample(schema, scanned, units * unit_bytes / scanned if scanned else 0.0, units, complete)


def observe_table(facts: TableDescription, options: ScanOptions, budget: Budget) -> ItemSchema:
    """Return what a sample of a table's items looks like, every key and every asked attribute included.

    A given schema needs no sample. What the sample reads is charged to the budget like any other page.

    Raises
    ------
    SchemaError
        If the given schema contradicts the table's keys.
    """
    given = _given_schema(facts, options)
    if given is not None:
        return ItemSchema.from_arrow(given)
    pages = _sample_pages(facts, options, budget, _wanted(options))
    return _with_asked(_observed(pages), facts, options)


def plan_of(options: ScanOptions, budget: LocalBudget | None = None, facts: TableDescription | None = None) -> ScanPlan:
    """Return the plan of a scan after describing and sampling the table.

    Raises
    ------
    DdbioError
        As :func:`ddbio.ops.scans.plan.describe_scan` and :func:`ddbio.ops.scans.plan.sample_table` say.
    """
    facts = facts or describe_scan(options)
    sample = sample_table(facts, options, budget or LocalBudget(budget_of(facts, options)))
    return plan_scan(facts, sample, options, available_resources())


def plan_to_files(options: ScanToFilesOptions) -> ScanPlan:
    """Return the plan of a scan into files, after looking at their target too; nothing is written.

    Raises
    ------
    TargetError, OptionError
        If the target would be refused.
    DdbioError
        As of ``plan_of``.
    """
    store = open_store(options.dest, options)
    if options.job_id is None:
        # A job of a known id may be one that is committed, whose report is then given again.
        commit.check_target(target_of(options, store))
    return plan_of(options)


def available_resources() -> Resources:
    """Return what this process could run a plan on; start nothing."""
    return Resources(available_cores(), running_spark_parallelism(), is_spark_installed())


def scan_tasks(plan: ScanPlan, options: ScanOptions, facts: TableDescription) -> list[ScanTask]:
    """Return the tasks of a plan; each reads its own segments, together they read every segment once."""
    whole = request_of(facts, options, plan.item_bytes)
    return [
        ScanTask(
            number=number,
            spec=dynamodb_spec(options),
            requests=tuple(whole.of_segment(segment, plan.segments) for segment in group),
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


def request_of(facts: TableDescription, options: ScanOptions, item_bytes: float) -> SegmentRequest:
    """Return the request of a whole scan, from which each segment's is made."""
    budget = budget_of(facts, options)
    item_units = item_bytes / READ_UNIT_BYTES * (1.0 if options.consistent else 0.5)
    bounded = budget is not None and budget < read_units(1024 * 1024, options.consistent) * PAGES_PER_SECOND
    return SegmentRequest(
        table=options.table,
        index=options.index,
        consistent=options.consistent,
        columns=options.columns,
        page_units=budget / PAGES_PER_SECOND if bounded and budget is not None else None,
        item_units=item_units or None,
        max_items=options.limit,
    )


def _wanted(options: ScanOptions) -> int:
    return options.sample_items if options.limit is None else min(options.limit, options.sample_items)


def _sample_pages(facts: TableDescription, options: ScanOptions, budget: Budget, wanted: int) -> Iterator[Page]:
    policy = RetryPolicy(options.deadline_seconds, threading.Event())
    share = _probe_items(facts, options, wanted)
    mean_bytes = facts.size_bytes / facts.item_count if facts.item_count else ASSUMED_ITEM_BYTES
    whole = dataclasses.replace(request_of(facts, options, mean_bytes), max_items=share)
    with closing(open_page_source(dynamodb_spec(options), 1, accept_encoding=options.accept_encoding)) as source:
        probe = list(_first(scan_pages(source, whole, budget, policy), share))
        yield from probe
        if probe[-1].last_evaluated_key is None or share == wanted:
            return
        # A segment that holds fewer items than its share would make the sample smaller than was asked.
        roomy = facts.item_count // share // QUARTERS * QUARTERS if facts.item_count else SAMPLE_SEGMENTS
        segments = min(SAMPLE_SEGMENTS, max(QUARTERS, roomy))
        for quarter in range(1, QUARTERS):
            request = whole.of_segment(segments * quarter // QUARTERS, segments)
            yield from _first(scan_pages(source, request, budget, policy), share)


def _probe_items(facts: TableDescription, options: ScanOptions, wanted: int) -> int:
    """Return how many items are sampled at the table's start: all where there are no more, or none else is read."""
    is_all = 0 < facts.item_count <= wanted or options.limit == wanted
    return wanted if is_all else -(-wanted // QUARTERS)


def _first(pages: Iterator[Page], share: int) -> Iterator[Page]:
    """Yield pages until ``share`` items were scanned: a sparse segment must not be read to its end."""
    scanned = 0
    for page in pages:
        yield page
        scanned += page.scanned_count
        if scanned >= share:
            return


def _observed(pages: Iterable[Page]) -> ItemSchema:
    return infer_schema_of_bodies([(page.items, "page") for page in pages])


def _given_schema(facts: TableDescription, options: ScanOptions) -> pa.Schema | None:
    if options.schema is None:
        return None
    schema = arrow_schema_of(options.schema)
    tags = {name_of_field(field): tag_of_field(field) for field in schema}
    for name, key_type in facts.key_types:
        declared = tags.get(name, key_type)
        if declared != key_type:
            raise SchemaError(
                f"key attribute {name!r} of table {facts.name!r} has type {key_type}, the schema says {declared}: "
                "mend the schema, or leave it out to have it inferred"
            )
    return project_schema(schema, options.columns) if options.columns else schema


def _with_asked(observed: ItemSchema, facts: TableDescription, options: ScanOptions) -> ItemSchema:
    """Return the observed schema with every asked column, or else every key, though the sample may not show it."""
    key_types = dict(facts.key_types)
    asked = options.columns or tuple(name for name in key_types if options.index is None)
    missing = [tagged_field(name, _KEY_ARROW[key_types.get(name, "NULL")], key_types.get(name, "NULL"))
               for name in asked if name not in observed.seen.members]  # fmt: skip
    unknown = [field.name for field in missing if field.name not in key_types] if observed.item_count else []
    if unknown:
        raise SchemaError(
            f"columns: no item that was sampled has an attribute {unknown[0]!r}: mend the name (whole "
            "attributes only), raise sample_items, or give a schema that has it"
        )
    schema = observed.merge(ItemSchema.from_arrow(pa.schema(missing)))
    return schema.project(options.columns) if options.columns else schema


# What a column that no sampled item showed can hold: text, for numbers the service's own spelling.
_KEY_ARROW: dict[str, pa.DataType] = {"S": pa.string(), "N": pa.string(), "B": pa.binary(), "NULL": pa.string()}
