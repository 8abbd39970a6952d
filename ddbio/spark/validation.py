"""Digest of a DataFrame, or a DataFrame as a side of a validation: its own tasks hash and search its rows."""

from __future__ import annotations

import itertools
import pickle
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from ddbio.errors import DdbioError, SchemaError
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.key_hashes import BUCKETS, Rows, buckets_of, key_words, repeated
from ddbio.items.schema.arrow import declare_types
from ddbio.spark.types import to_arrow_schema
from ddbio.validation.key_join import parts_of
from ddbio.validation.sums import RowHasher, Sums, chosen_buckets, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import ExitStack
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    from ddbio.validation.key_join import JoinSpec
    from ddbio.validation.sums import Checks, Hashing

    _Results: TypeAlias = Callable[[Iterator[pa.RecordBatch], RowHasher], Iterator[dict[str, Any]]]
    _Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Outcome:
    """Columns of a task's results: bytes and numbers, by name."""

    def __init__(self, **types: pa.DataType) -> None:
        self._schema = pa.schema(list(types.items()))
        self.sql = ", ".join(f"{name} {'binary' if kind == pa.binary() else 'long'}" for name, kind in types.items())

    def batch(self, row: dict[str, Any]) -> pa.RecordBatch:
        """Return one row. Missing values are null."""
        return pa.RecordBatch.from_pylist([row], self._schema)


_ROWS = _Outcome(rows=pa.binary())
_SUMS = _Outcome(sums=pa.binary(), error=pa.binary())
_WORDS = _Outcome(keys=pa.binary(), items=pa.binary(), error=pa.binary())
_KEYS = _Outcome(slot=pa.int64(), keys=pa.binary(), error=pa.binary())
# The input format of ``SparkEngine.run_joined``.
_PARTS = _Outcome(partition=pa.int64(), slot=pa.int64(), side=pa.int64(), data=pa.binary(), error=pa.binary())
_REPEATS = _Outcome(count=pa.int64(), error=pa.binary())
# Adjacent buckets make a slot, whose keys one task compares.
_SLOTS = 256
_GATHERED_ROWS = 500_000
# Tasks that add up the sums of the frame's tasks, some 66 KB each.
_MERGERS = 4


@dataclass(frozen=True)
class FrameSummary:
    """Sums of the tasks of a DataFrame."""

    frame: DataFrame
    declared: pa.Schema
    hashing: Hashing
    sums: Sums

    def rows(self, buckets: Sequence[int], group: int | None = None) -> Iterator[Rows]:
        """Yield two words of each row of some buckets, by reading the frame once more."""
        for row in self.read(_words_of(buckets, self._names(group)), _WORDS).toLocalIterator(prefetchPartitions=True):
            _raise_error(row["error"])
            yield Rows(np.frombuffer(row["keys"], np.uint64), np.frombuffer(row["items"], np.uint64))

    def repeated(self, buckets: Sequence[int], group: int | None = None) -> int:
        """Return the number of rows of some buckets with the key of another row.

        A shuffle brings equal keys together.
        """
        if not buckets:
            return 0
        keys = self.read(_keys_of(buckets, self._names(group)), _KEYS)
        counted = keys.repartition("slot").mapInArrow(_count_repeated, _REPEATS.sql).collect()
        for row in counted:
            _raise_error(row["error"])
        return sum(row["count"] for row in counted)

    def parts(self, wanted: JoinSpec, stack: ExitStack) -> DataFrame:
        """Return the requested rows as the parts that Spark's engine joins."""
        del stack
        return self.read(_parts_of(wanted), _PARTS)

    def _names(self, group: int | None) -> tuple[str, ...] | None:
        return None if group is None else self.sums.unique_names[group]

    def read(self, results: _Results, outcome: _Outcome) -> DataFrame:
        """Return the results of the frame's tasks for its rows."""
        task = _task(self.frame.columns, self.declared, self.hashing, results, outcome)
        return _numbered(self.frame).mapInArrow(task, outcome.sql)


def summarise(
    frame: DataFrame, schema: pa.Schema | None, hashing: Hashing, checks: Checks | None = None
) -> FrameSummary:
    """Hash the rows and evaluate rules in a DataFrame's tasks, in one pass. The driver adds up their sums.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None uses the frame's own field metadata.

    Raises
    ------
    SchemaError, DecodeError
        As ``RowHasher.hashed``.
    OptionError
        If a rule does not fit its column's type.
    """
    summary = FrameSummary(frame, _declared(frame, schema), hashing, Sums(checks))
    summed = summary.read(_sums_of(checks), _SUMS).repartition(_MERGERS)
    for row in summed.mapInArrow(_merging(checks), _SUMS.sql).collect():
        _raise_error(row["error"])
        summary.sums.add_bytes(row["sums"])
    return summary


def frame_batches(
    frame: DataFrame, schema: pa.Schema | None, wanted: tuple[Sequence[str], Any] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a DataFrame's rows. The driver holds little more than two partitions at a time.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None uses the frame's own field metadata.
    wanted
        Names of the key attributes, and the hashes of the keys whose rows are yielded; default is all rows.
    """
    declared, names = _declared(frame, schema), frame.columns

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            selected = batch
            if wanted is not None:
                words = key_words(declare_types(batch.rename_columns(names), declared), wanted[0])
                selected = batch.filter(pa.array(np.isin(words, wanted[1])))
            if selected.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, selected.schema) as stream:
                    stream.write_batch(selected)
                yield _ROWS.batch({"rows": sink.getvalue().to_pybytes()})

    for row in _numbered(frame).mapInArrow(packed, _ROWS.sql).toLocalIterator(prefetchPartitions=True):
        for batch in pa.ipc.open_stream(row.rows):
            yield declare_types(batch.rename_columns(names), declared)


def _sums_of(checks: Checks | None) -> _Results:
    def sums(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
        totals = Sums(checks)
        for batch in batches:
            hashed = hasher.hashed(batch)
            if hashed.batch.num_rows:
                totals.add(hashed)
        yield {"sums": totals.to_bytes()}

    return sums


def _merging(checks: Checks | None) -> _Task:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums, error = Sums(checks), None
        for batch in batches:
            for row in batch.to_pylist():
                if row["error"] is not None:
                    error = row["error"]
                else:
                    sums.add_bytes(row["sums"])
        yield _SUMS.batch({"sums": sums.to_bytes(), "error": error})

    return merge


def _words_of(buckets: Sequence[int], names: Sequence[str] | None) -> _Results:
    chosen = chosen_buckets(buckets)

    def words(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
        for batch in batches:
            rows = rows_in(hasher.hashed(batch), chosen, names)
            if len(rows.keys):
                yield {"keys": rows.keys.tobytes(), "items": rows.items.tobytes()}

    return words


def _parts_of(wanted: JoinSpec) -> _Results:
    def parts(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
        for (partition, slot, side), data in parts_of(map(hasher.hashed, batches), wanted):
            yield {"partition": partition, "slot": slot, "side": side, "data": data}

    return parts


def _keys_of(buckets: Sequence[int], names: Sequence[str] | None) -> _Results:
    """Return a function that yields the keys of some buckets, by the number of their slot."""
    chosen = chosen_buckets(buckets)

    def keys(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
        gathered, count = list[Rows](), 0
        for batch in itertools.chain(batches, [None]):
            if batch is not None:
                gathered.append(rows_in(hasher.hashed(batch), chosen, names))
                count += len(gathered[-1].keys)
            if count >= _GATHERED_ROWS or (batch is None and count):
                held = np.sort(Rows.joined(gathered).keys)
                slots = buckets_of(held) // (BUCKETS // _SLOTS)
                starts = np.searchsorted(slots, np.arange(_SLOTS + 1))
                for slot in np.flatnonzero(np.diff(starts)).tolist():
                    yield {"slot": slot, "keys": held[starts[slot] : starts[slot + 1]].tobytes()}
                gathered, count = [], 0

    return keys


def _count_repeated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the repeated keys of some slots."""
    by_slot, error = defaultdict[int, list[Any]](list), None
    for batch in batches:
        for row in batch.to_pylist():
            error = row["error"] or error
            if row["keys"] is not None:
                by_slot[row["slot"]].append(np.frombuffer(row["keys"], np.uint64))
    count = sum(repeated(np.concatenate(parts)) for parts in by_slot.values())
    yield _REPEATS.batch({"count": count, "error": error})


def _task(names: list[str], declared: pa.Schema, hashing: Hashing, results: _Results, outcome: _Outcome) -> _Task:
    """Return the function of a task, which hashes its rows and yields an error instead of raising it."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        remaining = iter(batches)
        rows = (declare_types(batch.rename_columns(names), declared) for batch in remaining)
        try:
            for row in results(rows, RowHasher(hashing)):
                yield outcome.batch(row)
        except DdbioError as error:
            # Drain the remaining input, else Spark could not use the worker again.
            for _ in remaining:
                pass
            yield outcome.batch({"error": pickle.dumps(error)})

    return run


def _declared(frame: DataFrame, schema: pa.Schema | None) -> pa.Schema:
    return declared_by(frame.schema) if schema is None else schema


def _numbered(frame: DataFrame) -> DataFrame:
    # Spark parses names with dots as paths, and its workers cut names at a NUL.
    return frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])


def _raise_error(error: bytes | None) -> None:
    if error is not None:
        raise pickle.loads(error)  # noqa: S301 - our own worker wrote it


_OUTCOME = "count long, digest string, error binary"


def digest_frame(frame: DataFrame, schema: pa.Schema | None) -> Digest:
    """Return the digest and count of a DataFrame's rows.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None uses the frame's own field metadata.

    Raises
    ------
    SchemaError, DecodeError
        As ``ColumnDigest.add_batch``.
    """
    declared = declared_by(frame.schema) if schema is None else schema
    total = Digest()
    # Spark parses names with dots as paths, and its workers cut names at a NUL.
    numbered = frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])
    for row in numbered.mapInArrow(_digesting(frame.columns, declared), _OUTCOME).collect():
        if row.error is not None:
            raise pickle.loads(row.error)  # noqa: S301 - our own worker wrote it
        total.merge(Digest(row["count"], int(row["digest"], 16)))
    return total


def declared_by(spark_schema: StructType) -> pa.Schema:
    """Return the columns whose DynamoDB type is known from their field metadata or Spark type."""
    fields: list[pa.Field[Any]] = []
    for field in spark_schema.fields:
        try:
            fields += to_arrow_schema(StructType([field]))
        except SchemaError:
            # A type that no attribute has, such as Spark's times: there is nothing to declare.
            continue
    return pa.schema(fields)


def _digesting(names: list[str], declared: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns, error = ColumnDigest(), None
        for batch in batches:
            # After an error the remaining input is only drained, else Spark could not use the worker again.
            if error is None:
                try:
                    columns.add_batch(declare_types(batch.rename_columns(names), declared))
                except DdbioError as raised:
                    error = pickle.dumps(raised)
        sums: list[Any] = [[columns.digest.count], [columns.digest.hexdigest()], pa.array([error], pa.binary())]
        yield pa.RecordBatch.from_pydict(dict(zip(("count", "digest", "error"), sums, strict=True)))

    return digest
