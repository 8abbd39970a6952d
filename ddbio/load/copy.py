"""Copy of a table into another one, also across regions and accounts. The target can be created like the source."""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from ddbio.aws.control_plane import describe_table
from ddbio.budget import LocalBudget
from ddbio.budget.job_limits import STOP_RATIO, JobLimits, check_limits
from ddbio.budget.pacing import DEFAULT_RATIO
from ddbio.errors import NotFoundError, OptionError, SchemaError, ValidationError
from ddbio.items.capacity import READ_UNIT_BYTES, WriteCost, read_units, write_units
from ddbio.items.index_units import SampledWrites
from ddbio.items.vector_bytes import min_vector_bytes
from ddbio.jobs.clients import dynamodb_spec
from ddbio.jobs.costs import job_cost
from ddbio.jobs.estimate import Estimate, EstimatedPlan, Figures
from ddbio.jobs.prices import Cost, joined_cost
from ddbio.jobs.report import Clock, PlannedReport
from ddbio.jobs.service_estimates import verification_units
from ddbio.jobs.table_limits import limits_of, read_statistics
from ddbio.jobs.watch import JobOutline, Watch
from ddbio.load.encode import raw_item_reader
from ddbio.load.load import write_raw_items
from ddbio.load.options import WriteOptions
from ddbio.load.plan import BATCH_LANES, plan_write, requests_of, write_estimate
from ddbio.load.tables import create_like, define_like, is_table
from ddbio.options import connection_of
from ddbio.scan.describe import describe_scan, plan_of, plan_of_statistics, scan_tasks
from ddbio.scan.options import ScanOptions
from ddbio.scan.plan import ROTATED_PAGE_BYTES, budget_of, rotated_segments
from ddbio.scan.read import read_digest
from ddbio.scan.stream import PageStream, RotatedStream

if TYPE_CHECKING:
    from typing import Any

    from ddbio.aws.table_description import TableDescription
    from ddbio.items.digest import Digest
    from ddbio.items.raw_items import RawItems
    from ddbio.load.options import CopyOptions
    from ddbio.load.plan import WritePlan
    from ddbio.scan.plan import ScanPlan
    from ddbio.scan.stream import ScanTask

_LOG = logging.getLogger("ddbio.copy")


@dataclass(frozen=True)
class CopyPlan(EstimatedPlan):
    """Plan of a copy: its scan, its write, and the CreateTable request of a new target.

    Attributes
    ----------
    write
        None if the target does not exist yet.
    write_units
        Write units of the target, including its global indexes, if every item is new there.
    verify_units
        Read units of reading the target to verify it.
    limited_by
        The bottleneck of the estimated seconds.
    vector_write_bytes
        Bytes of writing new items to each vector index. They are billed, but ``cost`` does not include them.
    """

    scan: ScanPlan
    write: WritePlan | None
    creates: dict[str, Any] | None
    write_units: float = 0.0
    requests: int = 0
    estimated_seconds: float = 0.0
    limited_by: str = ""
    cost: Cost | None = None
    verify_units: float = 0.0
    vector_write_bytes: dict[str, float] = field(default_factory=dict)

    @property
    def units(self) -> float:
        """Return the units of all reads and writes."""
        return self.scan.units + self.write_units + self.verify_units

    @property
    def outline(self) -> JobOutline:
        """Return the extent of the copy for a progress display."""
        target, rate = ("", None) if self.write is None else (self.write.table, self.write.wcu_per_second)
        return JobOutline(f"copy {self.scan.table} to {target}", "WCU", self.scan.item_count or None, rate)

    @property
    def estimate(self) -> Estimate:
        """Return the expected units, time and cost of the copy."""
        cost = self.cost or Cost(())
        requests, seconds = self.requests, self.estimated_seconds
        return Estimate(self.units, requests, self.scan.bytes, seconds, self.limited_by, cost)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values. ``units`` are those of reads and writes together."""
        values = super().to_dict()
        del values["cost"]
        return values


@dataclass(frozen=True, kw_only=True)
class CopyReport(PlannedReport):
    """Result of a copy.

    Attributes
    ----------
    source, target
        The tables.
    created
        Whether the target was created.
    items
        Items read.
    written, skipped, rejected
        Counts of the items by their result.
    rcu_consumed, wcu_consumed
        Units the service charged, including schema sampling and secondary indexes.
    throttles
        Throttled requests by reason, of reads and writes.
    verified
        Whether the target has exactly the items that were read; null without ``verify``.
    digest
        Digest of the items that were read, with ``verify``.
    scanned_items
        Items the service read and charged. With ``where``, these are more than the copied ones.
    """

    source: str
    target: str
    created: bool
    items: int
    written: int
    skipped: int
    rejected: int
    rcu_consumed: float
    wcu_consumed: float
    throttles: dict[str, int]
    verified: bool | None = None
    digest: str | None = None
    scanned_items: int = 0


def plan_copy(options: CopyOptions, from_file: str | None = None) -> CopyPlan:
    """Return the plan of a copy, after describing both tables and sampling the source. Nothing is written.

    Parameters
    ----------
    from_file
        JSON that describes the source, which then need not exist, and a new target like it: DescribeTable's response
        with ``AverageItemSizeBytes``.

    Raises
    ------
    SchemaError
        If the tables' keys differ.
    DdbioError
        See :func:`copy`.
    """
    if from_file is not None:
        source = read_statistics(from_file).table
        scan = plan_of_statistics(_scan_options(options, source), from_file)
        copy_plan, _ = _plan(options, _like(source, options), scan, plan_write(source, _write_options(options)))
        return copy_plan
    created = _must_create(options)
    target = _target_of(options, created=created)
    table, options_of_scan = _scan_of(options)
    copy_plan, _ = _plan(
        options, target, plan_of(options_of_scan, None, table, target), plan_write(target, _write_options(options))
    )
    if created:
        copy_plan = replace(copy_plan, write=None, creates=define_like(options).request)
    return copy_plan


def _plan(
    options: CopyOptions, target: TableDescription, scan: ScanPlan, write: WritePlan
) -> tuple[CopyPlan, JobLimits]:
    """Return the plan of a copy into an existing or future target, and the limits at which the copy is stopped.

    Raises
    ------
    LimitError
        If the plan is above a limit.
    """
    writes = scan.writes or SampledWrites(WriteCost(write_units(math.ceil(scan.item_bytes))))
    estimate = write_estimate(target, target.indexes, scan.item_count, writes, write.wcu_per_second)
    units, seconds, limited_by = estimate.units, estimate.seconds - estimate.burst_saves_seconds, estimate.limited_by
    read_seconds = scan.estimated_seconds - scan.burst_saves_seconds
    if read_seconds > seconds:
        seconds, limited_by = read_seconds, f"reading: {scan.limited_by}"
    # The sample was read, and charged to the budget, before.
    seconds += scan.seconds - read_seconds
    # The scan's own plan has the reads. The cluster runs for the duration of the whole copy.
    used: list[tuple[Literal["reads", "writes"], float | None, TableDescription]] = [("writes", units, target)]
    verify_units = 0.0
    if options.verify:
        # The target then has the source's items. It is read strongly consistent, at half of its provisioned capacity.
        verify_units = verification_units(scan.bytes_of_items, scan.item_bytes)
        rate = None if target.on_demand or target.rcu is None else target.rcu * DEFAULT_RATIO
        seconds += max(
            verify_units / rate if rate else 0.0, limits_of(target, "reads").serves(verify_units).burst_seconds
        )
        used.append(("reads", verify_units, target))
    cost = joined_cost(filter(None, [scan.cost, job_cost(options, used, [], seconds)]))
    limits = check_limits(options, scan.units + units + verify_units, seconds, cost)
    copy_plan = CopyPlan(
        scan=scan,
        write=write,
        creates=None,
        write_units=units,
        verify_units=verify_units,
        requests=scan.requests + requests_of(scan.item_count, write),
        estimated_seconds=seconds,
        limited_by=limited_by,
        cost=cost,
        vector_write_bytes=_vector_bytes(target, scan, dict(writes.vector_bytes)),
    )
    return copy_plan, limits


def _vector_bytes(target: TableDescription, scan: ScanPlan, means: dict[str, float]) -> dict[str, float]:
    """Return the bytes of writing all items to each vector index. Without a sample, all items have only a vector."""
    return {
        index.name: means.get(index.name, float(min_vector_bytes(index))) * scan.item_count
        for index in target.vector_indexes
    }


class CopyWatch(Watch[CopyPlan], Protocol):
    """Observer of a running copy, to show its progress."""

    def verifying(self, table: str) -> None:
        """Show that the target is being read to verify it."""
        ...


def copy(options: CopyOptions, watch: CopyWatch | None = None) -> CopyReport:
    """Copy every item of a table, exactly as it is, into another table, also of another region or account.

    Raises
    ------
    SchemaError
        If the tables' keys differ.
    PartialWriteError
        If the target refuses an item and ``reject_to`` is not given.
    ValidationError
        If ``verify`` is given and the target then has other items.
    DdbioError
        The error that ended the copy. Items that were acknowledged before stay written.
    """
    clock = Clock()
    created = _must_create(options)
    target = _target_of(options, created=created)
    table, scan = _scan_of(options)
    budget = LocalBudget(budget_of(table, scan))
    plan, write = plan_of(scan, budget, table, target), plan_write(target, _write_options(options))
    copy_plan, limits = _plan(options, target, plan, write)
    _LOG.info("copy %s to %s: planned: %s", options.source, options.target, copy_plan.figures)
    # Reads and writes are each stopped at the limit of both.
    budget.bound(limits)
    if created:
        create_like(options)
    (task,) = scan_tasks(plan, scan, table)
    # Raw items: the bytes of the source's responses are used in the target's requests, and no value is decoded.
    stream = _stream_of(replace(task, digest=options.verify), budget, write)
    progress = None if watch is None else lambda _, budget: watch.running(copy_plan, budget)
    with budget.within_limits(), closing(iter(stream)) as items:
        report = write_raw_items(items, _write_options(options, limits), progress, _read_bytes_per_second(plan))
    read = stream.counts.digest
    if options.verify and watch is not None:
        watch.verifying(options.target)
    verify_units = _verify(read, options) if options.verify else 0.0
    usage = budget.usage()
    units: list[tuple[Literal["reads", "writes"], float | None, TableDescription]] = [
        ("reads", usage.consumed_units, table),
        ("writes", report.wcu_consumed, target),
        ("reads", verify_units, target),
    ]
    seconds = round(clock.seconds(), 3)
    cost = job_cost(options, units, [], seconds)
    return CopyReport(
        source=options.source,
        target=options.target,
        created=created,
        items=stream.counts.items,
        written=report.written,
        skipped=report.skipped,
        rejected=report.rejected,
        rcu_consumed=usage.consumed_units,
        wcu_consumed=report.wcu_consumed,
        throttles=dict(Counter(usage.throttles) + Counter(report.throttles)),
        seconds=seconds,
        cpu_seconds=round(clock.cpu_seconds(), 3),
        verified=True if options.verify else None,
        digest=read.hexdigest() if options.verify else None,
        planned=copy_plan.figures,
        actual=Figures(
            usage.consumed_units + report.wcu_consumed + verify_units, seconds, stream.counts.wire_bytes, cost.usd
        ),
        scanned_items=stream.counts.scanned_items,
    )


def _must_create(options: CopyOptions) -> bool:
    return options.create_target and not is_table(dynamodb_spec(options.target_connection), options.target)


def _target_of(options: CopyOptions, *, created: bool) -> TableDescription:
    """Return the description of the target, or of the future one. Problems are raised before it is created."""
    source = describe_table(dynamodb_spec(options), options.source)
    if created:
        target = _like(source, options)
    else:
        try:
            target = describe_table(dynamodb_spec(options.target_connection), options.target)
        except NotFoundError as error:
            raise NotFoundError(f"{error}; or use create_target to create it like the source") from error
        if source.table_id and (source.arn, source.table_id) == (target.arn, target.table_id):
            raise OptionError(f"source and target are one table, {source.arn}: name another target")
    if source.key_types != target.key_types:
        raise SchemaError(
            f"table {options.source!r} has the key {_key_text(source.key_types)}, table {options.target!r} "
            f"{_key_text(target.key_types)}: copy to a table with the same key, or create one with create_target"
        )
    return target


def _like(source: TableDescription, options: CopyOptions) -> TableDescription:
    """Return the description of a target that is created like the source."""
    like = options.billing == "like"
    return replace(source, on_demand=source.on_demand or not like, wcu=source.wcu if like else None)


def _key_text(keys: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}:{tag}" for name, tag in keys)


def _scan_of(options: CopyOptions) -> tuple[TableDescription, ScanOptions]:
    table = describe_scan(_scan_options(options))
    return table, _scan_options(options, table)


def _scan_options(options: CopyOptions, table: TableDescription | None = None) -> ScanOptions:
    scan = ScanOptions(
        **connection_of(options),
        table=options.source,
        consistent=options.consistent,
        segments=options.segments,
        lanes=options.lanes or BATCH_LANES,
        rcu_per_second=options.rcu_per_second,
        read_ratio=options.read_ratio,
        where=options.where,
        nulls="keep",
        prices=options.prices,
    )
    if table is None:
        return scan
    return replace(scan, segments=options.segments or rotated_segments(table.size_bytes))


def _read_bytes_per_second(plan: ScanPlan) -> float | None:
    """Return the maximum bytes of items that the budget lets a scan read per second."""
    if plan.rcu_per_second is None:
        return None
    return plan.rcu_per_second * READ_UNIT_BYTES * (1 if plan.consistent else 2)


def _stream_of(task: ScanTask, budget: LocalBudget, write: WritePlan) -> RotatedStream[RawItems] | PageStream[RawItems]:
    """Return a reader of a small page of each segment in turn.

    Item collections and keys are read one after the other.

    A scan reads the table's partitions one after the other, and the target has the same hash ranges. Items read in that
    order would be written at the rate of one partition.
    """
    if any(request.queries or request.keys for request in task.requests):
        return PageStream(task, budget, partial(raw_item_reader, write))
    requests = []
    for request in task.requests:
        most = read_units(ROTATED_PAGE_BYTES, request.consistent)
        requests.append(replace(request, page_units=min(request.page_units or most, most)))
    return RotatedStream(replace(task, requests=tuple(requests)), budget, raw_item_reader(write))


def _write_options(options: CopyOptions, limits: JobLimits | None = None) -> WriteOptions:
    most_units = None if limits is None or math.isinf(limits.units) else limits.units / STOP_RATIO
    return WriteOptions(
        **connection_of(options.target_connection),
        table=options.target,
        mode=options.mode,
        newer_by=options.newer_by,
        wcu_per_second=options.wcu_per_second,
        write_ratio=options.write_ratio,
        warm_up=options.warm_up,
        reject_to=options.reject_to,
        lanes=options.lanes,
        max_units=most_units,
        max_seconds=options.max_seconds,
    )


def _verify(read: Digest, options: CopyOptions) -> float:
    """Compare the target with the items that were read, and return the read units that it took."""
    target, units = read_digest(options.target, options.target_connection)
    if (target.count, target.hexdigest()) != (read.count, read.hexdigest()):
        details = {
            "read": read.hexdigest(),
            "read_items": read.count,
            "held": target.hexdigest(),
            "held_items": target.count,
        }
        raise ValidationError(
            f"table {options.target!r} has {target.count:,} items of digest {target.hexdigest()}, and {read.count:,} "
            f"of digest {read.hexdigest()} were read from {options.source!r}: a table was written to in the meantime, "
            "or the target was not empty; copy again",
            details,
        )
    return units
