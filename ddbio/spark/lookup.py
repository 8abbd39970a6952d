"""Join of a DataFrame with the items of a table that have its keys. No other items are read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark import SparkFiles
from pyspark.sql.types import BinaryType, DecimalType, IntegralType, StringType, StructField, StructType

from ddbio.errors import OptionError
from ddbio.spark.registration import keep_budgets
from ddbio.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from ddbio.spark.lookup_tasks import LookupTask

_TYPES = {"S": (StringType,), "N": (IntegralType, DecimalType), "B": (BinaryType,)}


def lookup(
    frame: DataFrame,
    table: str,
    *,
    on: str | Sequence[str] | None = None,
    how: str = "left",
    into: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a DataFrame joined with the items of a table that have its keys, and their attributes as columns.

    Each key is read once, by BatchGetItem, or by Query if ``on`` has no sort key, and all tasks share one budget. A row
    whose key has no item has nulls. Rows without a key, or with a null in it, cause no reads. Texts match by their
    bytes,
    as DynamoDB's keys do, regardless of the collation of their Spark column.

    Spark moves all rows with the same key into one task, which adds the items to them. A DataFrame with columns that
    Arrow
    cannot represent, such as intervals of months, is computed twice and joined. Leave out these columns if that is too
    expensive.

    Parameters
    ----------
    table
        Name or ARN.
    on
        Columns with the partition key, and sort key, of the table or the index; default is the columns with their
        names.
    how
        ``left`` keeps rows without an item, ``inner`` does not.
    into
        A struct column for the complete item; default is a column for each attribute.
    **options
        Options of ``spark.read.format("dynamodb")``: ``columns``, ``schema``, ``rcu_per_second``, ``index``, ``tasks``.

    Raises
    ------
    OptionError
        If a column does not exist, has a different type than the key, or is in both the DataFrame and the items.
    DdbioError
        As a read of the table.
    """
    # PySpark imports this package when it looks for data sources, and must not wait for Arrow.
    from ddbio.spark.lookup_tasks import describe_lookup  # noqa: PLC0415 - see above
    from ddbio.spark.types import can_pass_arrow, to_spark_schema  # noqa: PLC0415 - see above

    if how not in {"left", "inner"}:
        raise OptionError(f"how={how!r} is neither 'left' nor 'inner'")
    spark = frame.sparkSession
    has_driver = not is_connect(spark)
    if has_driver:
        keep_budgets(spark)
    application = SparkFiles.getRootDirectory() if has_driver else None
    settings = {name: value for name, value in options.items() if value is not None}
    task = describe_lookup({**settings, "table": table}, application)
    columns = _key_columns(frame, task, on)
    attributes = to_spark_schema(task.sample.schema)
    task = replace(
        task, key_columns=tuple(map(frame.columns.index, columns)), keeps_rows=how == "left", into=bool(into)
    )
    kept = [attributes[name] for name in task.shown]
    twice = sorted(({into} if into else {field.name for field in kept}) & {*frame.columns})
    if twice:
        raise OptionError(
            f"the DataFrame and the items both have a column {twice[0]!r}: rename it before, choose columns, or give "
            "into, a column for the whole item"
        )
    items = [StructField(into, StructType(kept))] if into else kept
    if can_pass_arrow(frame.schema):
        return _join_items(frame, task, items)
    # Arrow cannot represent all of the rows: only their keys are looked up, and Spark joins them with the rows.
    indexes, numbered = task.key_columns, frame.toDF(*_numbered(frame.columns))
    names = [f"key_{number}" for number in range(len(columns))]
    asked = [_by_bytes(numbered[f"_{index}"], frame.schema.fields[index].dataType) for index in indexes]
    keys = numbered.select(*(key.alias(name) for key, name in zip(asked, names, strict=True)))
    task = replace(task, key_columns=(*range(len(names)),), keeps_rows=False)
    pairs = _join_items(keys.distinct(), task, items)
    pairs = pairs.toDF(*names, *(f"item_{number}" for number in range(len(items))))
    same = [key == pairs[name] for key, name in zip(asked, names, strict=True)]
    return (
        numbered.join(pairs, reduce(and_, same), how).drop(*names).toDF(*frame.columns, *(item.name for item in items))
    )


def _join_items(frame: DataFrame, task: LookupTask, items: list[StructField]) -> DataFrame:
    """Move rows with the same key together, sorted by a hash, and add the items to them in tasks."""
    # PySpark imports this package when it looks for data sources, and must not wait for Arrow.
    from ddbio.spark.lookup_tasks import look_up_rows  # noqa: PLC0415 - see above

    # Spark parses names with dots as paths, and a name may occur twice: columns have numbers until the end.
    numbers = _numbered(frame.columns)
    keys = [f"_{index}" for index in task.key_columns]
    has_key = " and ".join(f"{key} is not null" for key in keys)
    rows = frame.toDF(*numbers)
    if not task.keeps_rows:
        rows = rows.where(has_key)
    # Rows without a key keep their partitions, so that they are not all moved to one task.
    hashed = f"case when {has_key} then xxhash64({', '.join(keys)}) else spark_partition_id() end as hash"
    rows = rows.selectExpr("*", hashed)
    rows = rows.repartition(task.tasks, "hash") if task.tasks else rows.repartition("hash")
    fields = [*frame.schema.fields, *items]
    numbered = [
        StructField(f"_{number}", field.dataType, field.nullable, field.metadata) for number, field in enumerate(fields)
    ]
    joined = rows.sortWithinPartitions("hash").mapInArrow(partial(look_up_rows, task), StructType(numbered))
    return joined.toDF(*(field.name for field in fields))


def _by_bytes(key: Column, data_type: DataType) -> Column:
    """Return a key whose texts Spark compares by their bytes, as DynamoDB does, and not by a collation."""
    return key.cast(StringType()) if isinstance(data_type, StringType) else key


def _numbered(columns: list[str]) -> list[str]:
    return [f"_{number}" for number in range(len(columns))]


def _key_columns(frame: DataFrame, task: LookupTask, on: str | Sequence[str] | None) -> list[str]:
    key_types = task.key_types
    if on is None:
        columns = [name for name, _ in key_types if name in frame.columns]
        columns = columns if columns[:1] == [key_types[0][0]] else []
    else:
        columns = [on] if isinstance(on, str) else list(on)
    if not 0 < len(columns) <= len(key_types):
        names = " and ".join(repr(name) for name, _ in key_types)
        raise OptionError(f"on names the columns of the key, {names}, in this order; the sort key may be left out")
    types = {field.name: field.dataType for field in frame.schema.fields}
    for column, (name, tag) in zip(columns, key_types, strict=False):
        if column not in types:
            raise OptionError(f"on: the DataFrame has no column {column!r}")
        if frame.columns.count(column) > 1:
            raise OptionError(f"on: the DataFrame has several columns {column!r}: rename those that are no key")
        if not isinstance(types[column], _TYPES[tag]):
            raise OptionError(
                f"on: column {column!r} has Spark's type {types[column].simpleString()}, and the key {name!r} has type "
                f"{tag}: cast it"
            )
    return columns


__all__ = ["lookup"]
