"""Read a DataFrame as a side of a validation: its own tasks hash and search its rows, and the driver gets little."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ddbio.core.digest import Digest
from ddbio.core.key_hashes import BUCKETS, BucketSums, Rows, buckets_of
from ddbio.core.key_words import key_words
from ddbio.core.schema.arrow import declare_types
from ddbio.errors import DdbioError
from ddbio.ops.validation.columns import ColumnsSeen
from ddbio.ops.validation.hashing import RowHasher
from ddbio.spark.digest import declared_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    from ddbio.ops.validation.hashing import Hashing

    _Results: TypeAlias = Callable[[Iterator[pa.RecordBatch], RowHasher], Iterator[dict[str, Any]]]

_ROWS = "rows binary"
_SUMS, _SUMS_SQL = ("sums", "error"), "sums binary, error binary"
_WORDS, _WORDS_SQL = ("keys", "items", "error"), "keys binary, items binary, error binary"
# Tasks that add up what the tasks of a frame have summed, some 66 KB each.
_MERGERS = 4


@dataclass(frozen=True)
class FrameSummary:
    """Hold what the tasks of a DataFrame have summed."""

    frame: DataFrame
    declared: pa.Schema
    hashing: Hashing
    digest: Digest
    types: dict[str, tuple[str, str]]
    sums: bytes

    def rows(self, buckets: Sequence[int]) -> Iterator[Rows]:
        """Yield two words of each row of some buckets, by reading the frame once more."""
        task = _task(self.frame.columns, self.declared, self.hashing, _words_of(buckets), _WORDS)
        for row in _numbered(self.frame).mapInArrow(task, _WORDS_SQL).toLocalIterator(prefetchPartitions=True):
            _require_fine(row["error"])
            yield Rows(np.frombuffer(row["keys"], np.uint64), np.frombuffer(row["items"], np.uint64))


def summarise(frame: DataFrame, schema: pa.Schema | None, hashing: Hashing) -> FrameSummary:
    """Have a DataFrame's tasks hash its rows, all at once; the driver adds up what they have summed.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None takes those of the frame's own field metadata.

    Raises
    ------
    SchemaError, DecodeError
        As ``RowHasher.hashed``.
    """
    declared, whole = _declared(frame, schema), _Sums()
    summed = _numbered(frame).mapInArrow(_task(frame.columns, declared, hashing, _sums_of, _SUMS), _SUMS_SQL)
    for row in summed.repartition(_MERGERS).mapInArrow(_merge, _SUMS_SQL).collect():
        _require_fine(row["error"])
        whole.add_bytes(row["sums"])
    return FrameSummary(frame, declared, hashing, whole.digest, whole.seen.types, whole.buckets.to_bytes())


def frame_batches(
    frame: DataFrame, schema: pa.Schema | None, wanted: tuple[Sequence[str], Any] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a DataFrame's rows; the driver holds little more than two partitions' at a time.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None takes those of the frame's own field metadata.
    wanted
        Names of the key attributes, and the hashes of those keys whose rows are yielded; default is all rows.
    """
    declared, names = _declared(frame, schema), frame.columns

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = batch
            if wanted is not None:
                words = key_words(declare_types(batch.rename_columns(names), declared), wanted[0])
                found = batch.filter(pa.array(np.isin(words, wanted[1])))
            if found.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, found.schema) as stream:
                    stream.write_batch(found)
                yield _batch(("rows",), {"rows": sink.getvalue().to_pybytes()})

    for row in _numbered(frame).mapInArrow(packed, _ROWS).toLocalIterator(prefetchPartitions=True):
        for batch in pa.ipc.open_stream(row.rows):
            yield declare_types(batch.rename_columns(names), declared)


@dataclass
class _Sums:
    """Add up what rows hash to, in a task, in those that merge, and in the driver."""

    digest: Digest = field(default_factory=Digest)
    seen: ColumnsSeen = field(default_factory=ColumnsSeen)
    buckets: BucketSums = field(default_factory=BucketSums)

    def add_bytes(self, data: bytes) -> None:
        """Add what another process has summed."""
        digest, types, buckets = pickle.loads(data)  # noqa: S301 - our own worker wrote it
        self.digest.merge(Digest(*digest))
        self.seen.merge(types)
        self.buckets.merge_bytes(buckets)

    def to_bytes(self) -> bytes:
        """Return the sums for ``add_bytes``."""
        return pickle.dumps((self.digest.as_tuple(), self.seen.types, self.buckets.to_bytes()))


def _sums_of(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
    sums = _Sums()
    for batch in batches:
        hashed = hasher.hashed(batch)
        if hashed.batch.num_rows:
            sums.digest.merge(hashed.digest)
            sums.seen.add(hashed.batch)
            sums.buckets.add(hashed.rows)
    yield {"sums": sums.to_bytes()}


def _merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sums, error = _Sums(), None
    for batch in batches:
        for row in batch.to_pylist():
            if row["error"] is not None:
                error = row["error"]
            else:
                sums.add_bytes(row["sums"])
    yield _batch(_SUMS, {"sums": sums.to_bytes(), "error": error})


def _words_of(buckets: Sequence[int]) -> _Results:
    chosen = np.zeros(BUCKETS, np.bool_)
    chosen[list(buckets)] = True

    def words(batches: Iterator[pa.RecordBatch], hasher: RowHasher) -> Iterator[dict[str, Any]]:
        for batch in batches:
            rows = hasher.hashed(batch).rows
            rows = rows.taken(chosen[buckets_of(rows.keys)])
            if len(rows.keys):
                yield {"keys": rows.keys.tobytes(), "items": rows.items.tobytes()}

    return words


def _task(
    names: list[str], declared: pa.Schema, hashing: Hashing, results: _Results, columns: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does: it hashes its rows, and tells of an error in place of failing."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = iter(batches)
        rows = (declare_types(batch.rename_columns(names), declared) for batch in given)
        try:
            for row in results(rows, RowHasher(hashing)):
                yield _batch(columns, row)
        except DdbioError as error:
            # The rest is only drained, else Spark could not use the worker again.
            for _ in given:
                pass
            yield _batch(columns, {"error": pickle.dumps(error)})

    return run


def _batch(columns: Sequence[str], row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([row.get(name)], pa.binary()) for name in columns})


def _declared(frame: DataFrame, schema: pa.Schema | None) -> pa.Schema:
    return declared_by(frame.schema) if schema is None else schema


def _numbered(frame: DataFrame) -> DataFrame:
    # Spark looks up names with dots as paths, and its workers cut names at a NUL.
    return frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])


def _require_fine(error: bytes | None) -> None:
    if error is not None:
        raise pickle.loads(error)  # noqa: S301 - our own worker wrote it
