"""Comparison of the items of two sides, and evaluation of quality rules in the same pass.

Each side is read once. Two words are kept per row, in memory or in a temporary file: the hash of its key, and the hash
of its item. Differing keys are found by their hashes. A second pass reads the items of a few of them.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from ddbio.budget.job_limits import check_limits
from ddbio.charts.page import report_page, write_page
from ddbio.errors import OptionError
from ddbio.items.key_hashes import BUCKETS, bucket_groups, differences, key_words
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.item_schema import arrow_schema_of
from ddbio.jobs.engine import cluster_of, open_engine, running_spark_parallelism
from ddbio.jobs.estimate import Figures
from ddbio.jobs.report import Clock
from ddbio.jobs.stores import require_shared
from ddbio.validation.comparison import Example, Kind, ValidationReport, plan_validation
from ddbio.validation.key_join import JoinResult, JoinSpec, RemoteRowStore, RowStore, join_keys
from ddbio.validation.lake_side import open_side
from ddbio.validation.quality import RuleResult, row_items
from ddbio.validation.rules import QualityRules, read_rules
from ddbio.validation.sides import Reading, TableSide
from ddbio.validation.sums import Checks, Hashing, Sums, differing_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddbio.items.digest import Digest
    from ddbio.items.key_hashes import BucketSums
    from ddbio.jobs.engine import ShufflingEngine
    from ddbio.validation.comparison import ValidatePlan
    from ddbio.validation.options import ValidateOptions
    from ddbio.validation.sides import Side
    from ddbio.validation.sums import ColumnsSeen

_LOG = logging.getLogger("ddbio.validate")


@dataclass(frozen=True)
class _Job:
    """The opened sides, and how they are read."""

    options: ValidateOptions
    source: Side
    target: Side | None
    reading: Reading
    rules: QualityRules | None

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.reading.keys)

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.source,) if self.target is None else (self.source, self.target)

    @property
    def checked(self) -> Side:
        """Return the side that the rules apply to."""
        return self.source if self.target is None else self.target


def plan_validate(
    options: ValidateOptions, source: Any = None, target: Any = None, from_file: str | None = None
) -> ValidatePlan:
    """Return the plan of a validation: its reads, cost and key.

    Parameters
    ----------
    source, target
        As for :func:`validate`.
    from_file
        JSON file in the format of DescribeTable that describes the tables among the sides, which need not exist.

    Raises
    ------
    DdbioError
        As :func:`validate`.
    """
    return _plan(options, _open(options, source, target, from_file))


def _plan(options: ValidateOptions, job: _Job) -> ValidatePlan:
    """Return the plan of a validation.

    Raises
    ------
    LimitError
        If the plan is above a limit.
    """
    plan = plan_validation(
        (job.source.outline(job.reading), None if job.target is None else job.target.outline(job.reading)),
        job.keys,
        job.reading.nulls,
        options.sample,
        0 if job.rules is None else job.rules.count,
        examples=options.examples > 0 and job.target is not None,
    )
    check_limits(options, plan.estimated_units, plan.seconds, plan.cost)
    return plan


def validate(
    options: ValidateOptions, source: Any = None, target: Any = None, *,
    master: str | None = None, conf: Mapping[str, str] | None = None,
) -> ValidationReport:  # fmt: skip
    """Return whether two sides contain the same items, the differing keys, and the results of quality rules.

    Parameters
    ----------
    source, target
        A ``pyarrow`` table or batch, a data frame with an Arrow C stream, or a Spark DataFrame; an ``s3://`` URI, a
        path
        with a slash or the name of a data file, for files or a native export; any other text is the name of a table.
        Without a target only rules are evaluated.
    master, conf
        Spark master and configuration, for a session that has to be started.

    Raises
    ------
    NotFoundError
        If there is no such table, folder or file.
    OptionError
        If the key is unknown, or the file of rules is invalid.
    SchemaError
        If a row lacks its key, or a column has a type that DynamoDB cannot represent exactly.
    DecodeError
        If a file is damaged.
    TargetError
        If the page cannot be written.
    """
    clock = Clock()
    job = _open(options, source, target)
    plan = _plan(options, job)
    _LOG.info("validate %s: planned: %s", options.source, plan.figures)
    planned_cpu = clock.cpu_seconds()
    with ExitStack() as stack:
        engine = _open_engine(job, stack, master, conf)
        job = replace(job, reading=replace(job.reading, engine=engine))
        readings = [_Pass(job, side, stack) for side in job.sides]
        for reading in readings:
            reading.read()
        joined = JoinResult() if job.target is None else _compare(readings[0], readings[1], engine, options.examples)
        repeats = _repeats(readings)
        wanted = _keys_to_read(joined, in_source=repeats[0] > 0, in_target=repeats[-1] > 0)
        items = [_items_by_key(job, side, keys) if keys else {} for side, keys in zip(job.sides, wanted, strict=False)]
        rules = readings[-1].rule_results()
        cpu_seconds = planned_cpu + engine.cpu_seconds() if engine is not None else clock.cpu_seconds()
    first, last = readings[0], readings[-1]
    has_target = job.target is not None
    misfits = MisfitLog()
    for side in job.sides:
        if side.misfits is not None:
            misfits.merge(side.misfits)
    consumed, seconds = sum(side.rcu_consumed for side in job.sides), round(clock.seconds(), 3)
    usd = sum(side.usd for side in job.sides if isinstance(side, TableSide))
    report = ValidationReport(
        source=job.source.name,
        target=None if job.target is None else job.target.name,
        equal=not any(joined.counts.values()) if has_target else None,
        source_rows=first.digest.count,
        target_rows=last.digest.count if has_target else None,
        **joined.counts,
        examples=tuple(_examples(joined, items, job.keys)) if has_target else (),
        key=job.keys,
        source_digest=first.digest.hexdigest(),
        target_digest=last.digest.hexdigest() if has_target else None,
        source_repeated=repeats[0],
        target_repeated=repeats[-1] if has_target else 0,
        columns=differing_columns(first.seen, last.seen) if has_target else (),
        misfits=tuple(misfits.misfits()),
        nulls=job.reading.nulls,
        sample=options.sample,
        rules=tuple(rules),
        rules_passed=None if job.rules is None else all(result.passed for result in rules),
        rcu_consumed=consumed,
        seconds=seconds,
        cpu_seconds=round(cpu_seconds, 3),
        planned=plan.figures,
        actual=Figures(consumed, seconds, sum(side.read_bytes for side in job.sides), usd),
    )
    if options.html is not None:
        title = f"Validation of {report.source}" + ("" if report.target is None else f" against {report.target}")
        result = ("result", "passed" if report.passed else "FAILED")
        write_page(report_page(title, report, facts=[result]), options.html, None)
    return report


def _open(options: ValidateOptions, source: Any, target: Any, from_file: str | None = None) -> _Job:
    rules = None if options.rules is None else read_rules(options.rules)
    first = open_side(options.source if source is None else source, options, options, from_file)
    target_name = options.target if target is None else target
    second = None if target_name is None else open_side(target_name, options, options.target_connection, from_file)
    sides = [side for side in (first, second) if side is not None]
    key_types = {name: tag for side in reversed(sides) for name, tag in side.keys.items()}
    names = options.key or next((tuple(side.keys) for side in sides if side.keys), ())
    if not names and second is not None:
        raise OptionError("the key that identifies rows is unknown: give key, the names of the key attributes")
    schema = None if options.schema is None else arrow_schema_of(options.schema)
    if schema is None:
        schema = next((side.schema for side in sides if side.schema is not None), None)
    if schema is None:
        schema = next((side.sampled_schema() for side in sides if isinstance(side, TableSide)), None)
    nulls = options.nulls
    if nulls == "auto":
        nulls = "merge" if any(side.nulls == "merge" for side in sides) else "keep"
    reading = Reading(schema, {name: key_types.get(name, "S") for name in names}, nulls)
    return _Job(options, first, second, reading, rules)


def _open_engine(
    job: _Job, stack: ExitStack, master: str | None, conf: Mapping[str, str] | None
) -> ShufflingEngine | None:
    """Return the engine whose tasks read the sides, or None if this process does."""
    options = job.options
    if options.engine == "local" or (options.engine == "auto" and running_spark_parallelism() is None):
        return None
    locations = {name: side.location for name, side in zip(("source", "target"), job.sides, strict=False)}
    require_shared(cluster_of(master, conf), locations, shared_paths=options.shared_paths)
    engine = cast("ShufflingEngine", open_engine("spark", master=master, conf=conf))
    return stack.enter_context(closing(engine))


class _Pass:
    """One pass over a side that counts, hashes, and evaluates its rules."""

    def __init__(self, job: _Job, side: Side, stack: ExitStack) -> None:
        self._job, self._side, self._stack = job, side, stack
        self._rules = job.rules if side is job.checked else None
        self._checks = None if self._rules is None else Checks(self._rules, job.keys, job.options.examples)
        self._sums = Sums(self._checks)
        self.store = stack.enter_context(RowStore())
        self._unique = [stack.enter_context(RowStore()) for _ in self._sums.unique_names]

    @property
    def digest(self) -> Digest:
        return self._sums.digest

    @property
    def sums(self) -> BucketSums:
        return self._sums.buckets

    @property
    def seen(self) -> ColumnsSeen:
        return self._sums.seen

    def read(self) -> None:
        hashing = Hashing(self._job.keys, self._job.options.sample)
        summary = self._side.summarised(self._job.reading, hashing, self._checks)
        if summary is not None:
            self._sums = summary.sums
            self.store = self._stack.enter_context(RemoteRowStore(summary))
            groups = range(len(self._unique))
            self._unique = [self._stack.enter_context(RemoteRowStore(summary, group)) for group in groups]
            return
        with closing(self._side.hashed(self._job.reading, hashing)) as read:
            for hashed in read:
                if hashed.batch.num_rows:
                    self.store.add(hashed.rows)
                    for store, rows in zip(self._unique, self._sums.add(hashed), strict=True):
                        store.add(rows)

    @property
    def has_unique_keys(self) -> bool:
        return self._side.has_unique_keys

    def rule_results(self) -> list[RuleResult]:
        totals = self._sums
        if self._rules is None or totals.checker is None:
            return []
        results = totals.checker.results()
        for names, sums, store in zip(totals.unique_names, totals.unique, self._unique, strict=True):
            count = store.repeated(range(BUCKETS), sums.counts)
            results.append(RuleResult("unique", ", ".join(names), not count, count))
        if self._rules.row_count is not None:
            least, most = self._rules.row_count.min, self._rules.row_count.max
            rows = self.digest.count
            broken = (least is not None and rows < least) or (most is not None and rows > most)
            shown = ", ".join(f"{name} {bound}" for name, bound in (("min", least), ("max", most)) if bound is not None)
            results.append(RuleResult(f"row_count: {shown}", None, not broken, int(broken)))
        return results


def _repeats(readings: Sequence[_Pass]) -> list[int]:
    """Return the number of rows of each side that have the key of another row.

    For the buckets that are equal on both sides, one side's keys are enough.
    """
    differing = range(BUCKETS) if len(readings) == 1 else readings[0].sums.differing(readings[1].sums)
    is_unique = any(reading.has_unique_keys for reading in readings)
    alike = [] if is_unique else sorted({*range(BUCKETS)} - {*differing})
    shared = readings[0].store.repeated(alike, readings[0].sums.counts)
    return [
        shared + (0 if reading.has_unique_keys else reading.store.repeated(differing, reading.sums.counts))
        for reading in readings
    ]


def _compare(source: _Pass, target: _Pass, engine: ShufflingEngine | None, most: int) -> JoinResult:
    """Return the differences. Only buckets with different counts or sums are compared."""
    joined = JoinResult()
    differing = source.sums.differing(target.sums)
    counts = source.sums.counts + target.sums.counts
    one, other = source.store, target.store
    if differing and engine is not None and isinstance(one, RemoteRowStore) and isinstance(other, RemoteRowStore):
        wanted = replace(JoinSpec.of(differing, counts, engine.parallelism), with_items=True)
        joined = join_keys(engine, (one.summary, other.summary), wanted, most)
        one.record_repeated(differing, joined.repeated[0])
        other.record_repeated(differing, joined.repeated[1])
        return joined
    for store in (one, other):
        store.load(differing)
    for group in bucket_groups(differing, counts):
        joined.add(differences(one.rows(group), other.rows(group)), most)
    return joined


def _keys_to_read(joined: JoinResult, *, in_source: bool, in_target: bool) -> tuple[set[int], set[int]]:
    """Return the keys whose items the source and the target may contain, given whether either has repeated keys.

    A key that a side seems to lack can only exist there if the other side has it more than once.
    """
    different, missing, extra = (joined.keys[kind] for kind in ("different", "missing", "extra"))
    source = {*different, *missing, *(extra if in_target else ())}
    return source, {*different, *extra, *(missing if in_source else ())}


def _items_by_key(job: _Job, side: Side, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """Read a side again until every key was found, and return the first item of each."""
    hashes = np.array(sorted(wanted), np.uint64)
    items: dict[int, dict[str, Any]] = {}
    with closing(side.batches_with(job.reading, job.keys, hashes)) as batches:
        for batch in batches:
            keys = key_words(batch, job.keys)
            rows = np.flatnonzero(np.isin(keys, hashes))
            for key, item in zip(keys[rows].tolist(), row_items(batch, rows), strict=True):
                items.setdefault(key, item)
            if len(items) == len(wanted):
                break
    return items


def _examples(joined: JoinResult, items: list[dict[int, dict[str, Any]]], keys: tuple[str, ...]) -> list[Example]:
    examples = []
    for kind in get_args(Kind):
        for hash_ in joined.keys[kind]:
            source, target = (items_of_side.get(hash_) for items_of_side in items)
            shown = source or target or {}
            examples.append(Example(kind, {name: shown[name] for name in keys if name in shown}, source, target))
    return examples
