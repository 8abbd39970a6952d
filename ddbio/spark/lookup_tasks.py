"""Tasks that look up the keys of a partition's rows, and add the items to the rows."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.budget import LocalBudget
from ddbio.errors import OptionError
from ddbio.items.item_key import KeyGroups, KeySet, key_fingerprints
from ddbio.items.kernel.arrays import joined_batches, take_rows, valid_of
from ddbio.items.schema.arrow import tagged_field
from ddbio.options import ScanOptions, parse_options
from ddbio.scan.describe import describe_scan, sample_table, scan_tasks
from ddbio.scan.options import GivenKeys
from ddbio.scan.plan import Resources, budget_of, plan_scan
from ddbio.scan.stream import SegmentStream
from ddbio.spark.lease_server import request_lease_terms
from ddbio.spark.reading import BATCH_BYTES, DataFrameOptions, fit_batch, open_budget
from ddbio.spark.types import to_arrow_schema, to_spark_schema
from ddbio.spark.worker import tidy_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    from ddbio.aws.table_description import TableDescription
    from ddbio.budget import Budget, BudgetAddress
    from ddbio.scan.plan import Sample

    _Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Rows whose keys are looked up at the same time: enough for all lanes.
_CHUNK_ROWS = 50_000
_CHUNK_BYTES = 64 * 1024 * 1024
_HOT_ROWS = 64
_NONE = ("keys", "limit", "segments")


@dataclass(frozen=True)
class LookupTask:
    """Input of a worker that looks up keys.

    Attributes
    ----------
    key_types
        The names and types of the key attributes of the table, or of the index.
    asked
        The selected attributes, or None for all. Keys are always read.
    portion
        Read units per second of a task that reaches no budget.
    tasks
        Number of tasks that may run at the same time, if their budget is divided among them.
    key_columns
        The indexes of the rows' columns with the key.
    keeps_rows
        Whether rows without an item are kept.
    into
        Whether the item is one struct.
    """

    options: ScanOptions
    table: TableDescription
    sample: Sample
    key_types: tuple[tuple[str, str], ...]
    asked: tuple[str, ...] | None
    lease: BudgetAddress | None
    portion: float | None
    tasks: int | None
    key_columns: tuple[int, ...] = ()
    keeps_rows: bool = True
    into: bool = False

    @property
    def shown(self) -> list[str]:
        """Return the attributes that are added to the rows."""
        names = list[str](self.sample.schema.names)
        if self.into:
            return names
        hidden = {name for name, _ in self.key_types[: len(self.key_columns)]}
        if self.asked is not None:
            hidden |= {name for name, _ in self.key_types} - {*self.asked}
        return [name for name in names if name not in hidden]


def describe_lookup(values: Mapping[str, Any], application: str | None) -> LookupTask:
    """Return the task of a lookup, after describing and sampling its table.

    Parameters
    ----------
    application
        The name of the lease server of the driver; None if the driver has none.

    Raises
    ------
    OptionError
        If an option is wrong, or nothing could enforce a requested rate over all tasks.
    """
    frame_options = parse_options(DataFrameOptions, values)
    for name in _NONE:
        if getattr(frame_options, name) is not None:
            raise OptionError(f"a lookup takes no option {name!r}")
    options = ScanOptions(**{field.name: getattr(frame_options, field.name) for field in fields(ScanOptions)})
    table = describe_scan(options)
    index = table.index(options.index) if options.index else None
    key_types = tuple((key.name, key.tag) for key in index.keys) if index else tuple(table.key_types)
    if options.columns is not None:
        # Items are identified by their keys.
        keys = tuple(name for name, _ in key_types if name not in options.columns)
        options = replace(options, columns=(*keys, *options.columns))
    rate = budget_of(table, options)
    terms = None if application is None else request_lease_terms(application, rate)
    lease = None if terms is None else terms.lease
    if rate is not None and lease is None and frame_options.tasks is None:
        raise OptionError(
            f"nothing would hold {rate:g} read units/s over all tasks: give tasks, the number of tasks that run at the "
            "same time"
        )
    with closing(LocalBudget(rate) if lease is None else open_budget(lease, rate)) as budget:
        sample = sample_table(table, options, budget)
    unknown = [name for name, _ in key_types if name not in sample.schema.names]
    if unknown:
        raise OptionError(f"the schema of a lookup has the keys of the table, and this one has no {unknown[0]!r}")
    portion = None if rate is None else rate / (frame_options.tasks or (terms.parallelism if terms else 1))
    return LookupTask(options, table, sample, key_types, frame_options.columns, lease, portion, frame_options.tasks)


def look_up_rows(task: LookupTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, sorted by their last column, with the items of their keys instead of it."""
    asked, read = KeySet(), list[pa.RecordBatch]()
    with closing(open_budget(task.lease, task.portion)) as budget:
        for rows, may_continue in _chunks(batches):
            pairs = _Pairs(task, rows)
            for items in read:
                yield from pairs.of(items)
            for items in _read(task, pairs.new_keys(asked), budget):
                if may_continue:
                    read.append(items)
                yield from pairs.of(items)
            yield from pairs.without_item()
            if not may_continue:
                asked, read = KeySet(), []
    tidy_worker()


def _read(task: LookupTask, keys: pa.RecordBatch, budget: Budget) -> Iterator[pa.RecordBatch]:
    """Yield the items with some distinct keys."""
    if not keys.num_rows:
        return
    options = replace(task.options, keys=GivenKeys(pa.Table.from_batches([keys])))
    plan = plan_scan(task.table, task.sample, options, Resources(1))
    (scan,) = scan_tasks(plan, options, task.table)
    with closing(iter(SegmentStream(scan, budget))) as batches:
        yield from batches


class _Pairs:
    """Joiner of items with the rows that have their keys."""

    def __init__(self, task: LookupTask, rows: pa.RecordBatch) -> None:
        self._task, self._rows = task, rows
        self._names = [name for name, _ in task.key_types[: len(task.key_columns)]]
        columns = [rows.column(index) for index in task.key_columns]
        self._has_key = np.flatnonzero(np.logical_and.reduce([valid_of(column) for column in columns]))
        fields = [tagged_field(name, column.type, tag)
                  for column, (name, tag) in zip(columns, task.key_types, strict=False)]  # fmt: skip
        self._keys = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        if len(self._has_key) < rows.num_rows:
            self._keys = take_rows(self._keys, self._has_key)
        self._groups = KeyGroups(key_fingerprints(self._keys, self._names))
        self._is_found = np.zeros(rows.num_rows, bool)
        self._columns = to_arrow_schema(to_spark_schema(task.sample.schema)).remove_metadata()
        shown = [self._columns.field(name) for name in task.shown]
        first = rows.num_columns - 1
        self._item = (
            [pa.field(f"_{first}", pa.struct(shown))]
            if task.into
            else [pa.field(f"_{number}", field.type) for number, field in enumerate(shown, first)]
        )

    def new_keys(self, asked: KeySet) -> pa.RecordBatch:
        """Return each key once, except those that were read before."""
        groups = self._groups
        return take_rows(self._keys, groups.rows[groups.starts[asked.add(groups.known)]])

    def of(self, items: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some items, each with its item."""
        groups = self._groups.find(key_fingerprints(items, self._names))
        items = fit_batch(items, self._columns).select(self._task.shown)
        counts = np.where(groups < 0, 0, self._groups.counts[groups])
        # An item of many rows is measured separately: it may be much larger than the others.
        for hot in np.flatnonzero(counts > _HOT_ROWS):
            yield from self._joined(items.slice(int(hot), 1), groups[hot : hot + 1], counts[hot : hot + 1])
        yield from self._joined(items, groups, np.where(counts > _HOT_ROWS, 0, counts))

    def _joined(self, items: pa.RecordBatch, groups: _Numbers, counts: _Numbers) -> Iterator[pa.RecordBatch]:
        ends, is_single = np.cumsum(counts), bool((counts == 1).all())
        for pair in self._windows(int(counts.sum()), items):
            item = pair if is_single else np.searchsorted(ends, pair, "right")
            index = self._groups.starts[groups[item]] + pair - (ends - counts)[item]
            rows = self._has_key[self._groups.rows[index]]
            self._is_found[rows] = True
            taken = items.slice(int(pair[0]), len(pair)) if is_single else take_rows(items, item)
            columns = taken.columns
            if self._task.into:
                columns = [pa.StructArray.from_arrays(columns, fields=list(self._item[0].type))]
            yield self._batch(rows, columns)

    def without_item(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have had no item, with nulls, if rows without one are kept."""
        rows = np.flatnonzero(~self._is_found) if self._task.keeps_rows else np.empty(0, np.int64)
        for window in self._windows(len(rows)):
            yield self._batch(rows[window], [pa.nulls(len(window), field.type) for field in self._item])

    def _windows(self, count: int, items: pa.RecordBatch | None = None) -> Iterator[_Numbers]:
        """Yield the numbers below a count in parts that fit into the JVM's default memory."""
        size = sum(part.nbytes / max(1, part.num_rows) for part in (self._rows, items) if part is not None)
        step = max(1, int(BATCH_BYTES / max(1.0, size)))
        for first in range(0, count, step):
            yield np.arange(first, min(count, first + step))

    def _batch(self, rows: _Numbers, items: list[pa.Array[Any]]) -> pa.RecordBatch:
        left = take_rows(self._rows.select(range(self._rows.num_columns - 1)), rows)
        return pa.RecordBatch.from_arrays([*left.columns, *items], schema=pa.schema([*left.schema, *self._item]))


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield rows, sorted by their last column, and whether the next ones may have the same key.

    Rows with the same hash are only split if they exceed a chunk.
    """
    held, count, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count < _CHUNK_ROWS and size < _CHUNK_BYTES:
            continue
        rows = joined_batches(held)
        hashes = rows.column(rows.num_columns - 1).to_numpy()
        cut = int(np.searchsorted(hashes, hashes[-1]))
        yield (rows.slice(0, cut), False) if cut else (rows, True)
        held = [rows.slice(cut)] if cut else []
        count, size = sum(batch_held.num_rows for batch_held in held), sum(batch_held.nbytes for batch_held in held)
    if held:
        yield joined_batches(held), False
