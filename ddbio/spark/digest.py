"""Digest a DataFrame's rows in its own partitions; the driver merges one digest of each."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ddbio.errors import DdbioError, SchemaError
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.schema.arrow import declare_types
from ddbio.spark.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

_OUTCOME = "count long, digest string, error binary"


def digest_frame(frame: DataFrame, schema: pa.Schema | None) -> Digest:
    """Return the digest and count of a DataFrame's rows.

    Parameters
    ----------
    schema
        DynamoDB's types by column; None takes those of the frame's own field metadata.

    Raises
    ------
    SchemaError, DecodeError
        As ``ColumnDigest.add_batch``.
    """
    declared = declared_by(frame.schema) if schema is None else schema
    whole = Digest()
    # Spark looks up names with dots as paths, and its workers cut names at a NUL.
    numbered = frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])
    for row in numbered.mapInArrow(_digesting(frame.columns, declared), _OUTCOME).collect():
        if row.error is not None:
            raise pickle.loads(row.error)  # noqa: S301 - our own worker wrote it
        whole.merge(Digest(row["count"], int(row["digest"], 16)))
    return whole


def declared_by(spark_schema: StructType) -> pa.Schema:
    """Return the columns whose field metadata or Spark type tells DynamoDB's type."""
    fields: list[pa.Field[Any]] = []
    for field in spark_schema.fields:
        try:
            fields += to_arrow_schema(StructType([field]))
        except SchemaError:
            # A type that no attribute has, as Spark's times: there is nothing to declare.
            continue
    return pa.schema(fields)


def _digesting(names: list[str], declared: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns, error = ColumnDigest(), None
        for batch in batches:
            # After an error the rest is only drained, else Spark could not use the worker again.
            if error is None:
                try:
                    columns.add_batch(declare_types(batch.rename_columns(names), declared))
                except DdbioError as raised:
                    error = pickle.dumps(raised)
        sums: list[Any] = [[columns.digest.count], [columns.digest.hexdigest()], pa.array([error], pa.binary())]
        yield pa.RecordBatch.from_pydict(dict(zip(("count", "digest", "error"), sums, strict=True)))

    return digest
