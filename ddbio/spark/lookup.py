"""Join a DataFrame with the items of a table that have its keys; no other items are read."""

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

    Each key is asked for once, by BatchGetItem, or by Query if ``on`` has no sort key, and all tasks keep one budget. A
    row whose key has no item has nulls. Rows without a key, or with a null in it, are asked for nothing. Texts match by
    their bytes, as DynamoDB's keys do, whatever collation Spark gives their column.

    Spark brings all rows with one key into one task, which puts the items beside them. A DataFrame with columns that
    Arrow cannot hold, such as intervals of months, is computed twice and joined: leave these out if that is dear.

    Parameters
    ----------
    table
        Name or ARN.
    on
        Columns that hold the partition key, and sort key, of the table or the index; default is those of their names.
    how
        ``left`` keeps rows without an item, ``inner`` does not.
    into
        A column for the item as a whole, a struct; default is a column for each attribute.
    **options
        Those of ``spark.read.format("dynamodb")``: ``columns``, ``schema``, ``rcu_per_second``, ``index``, ``tasks``.

    Raises
    ------
    OptionError
        If a column is not there, is of another type than the key, or is in both the DataFrame and the items.
    DdbioError
        As a read of the table.
    """
    # PySpark imports this package to look for data sources, and should not wait for Arrow.
    from ddbio.spark.lookup_tasks import describe_lookup  # noqa: PLC0415 - see above
    from ddbio.spark.types import is_carried, to_spark_schema  # noqa: PLC0415 - see above

    if how not in {"left", "inner"}:
        raise OptionError(f"how={how!r} is neither 'left' nor 'inner'")
    spark = frame.sparkSession
    has_driver = not is_connect(spark)
    if has_driver:
        keep_budgets(spark)
    application = SparkFiles.getRootDirectory() if has_driver else None
    given = {name: value for name, value in options.items() if value is not None}
    task = describe_lookup({**given, "table": table}, application)
    columns = _key_columns(frame, task, on)
    attributes = to_spark_schema(task.sample.schema)
    task = replace(task, places=tuple(map(frame.columns.index, columns)), keeps_rows=how == "left", into=bool(into))
    kept = [attributes[name] for name in task.shown]
    twice = sorted(({into} if into else {field.name for field in kept}) & {*frame.columns})
    if twice:
        raise OptionError(
            f"the DataFrame and the items both have a column {twice[0]!r}: rename it before, choose columns, or give "
            "into, a column for the whole item"
        )
    items = [StructField(into, StructType(kept))] if into else kept
    if is_carried(frame.schema):
        return _looked_up(frame, task, items)
    # Arrow cannot hold all of the rows: their keys alone are looked up, and Spark joins them with the rows.
    places, numbered = task.places, frame.toDF(*_numbered(frame.columns))
    names = [f"key_{number}" for number in range(len(columns))]
    asked = [_by_bytes(numbered[f"_{place}"], frame.schema.fields[place].dataType) for place in places]
    keys = numbered.select(*(key.alias(name) for key, name in zip(asked, names, strict=True)))
    task = replace(task, places=(*range(len(names)),), keeps_rows=False)
    found = _looked_up(keys.distinct(), task, items)
    found = found.toDF(*names, *(f"item_{number}" for number in range(len(items))))
    same = [key == found[name] for key, name in zip(asked, names, strict=True)]
    return (
        numbered.join(found, reduce(and_, same), how).drop(*names).toDF(*frame.columns, *(item.name for item in items))
    )


def _looked_up(frame: DataFrame, task: LookupTask, items: list[StructField]) -> DataFrame:
    """Bring rows with the same key together, in order of a hash, and let tasks put the items beside them."""
    # PySpark imports this package to look for data sources, and should not wait for Arrow.
    from ddbio.spark.lookup_tasks import look_up_rows  # noqa: PLC0415 - see above

    # Spark looks up names with dots as paths, and a name may occur twice: columns have numbers until the end.
    numbers = _numbered(frame.columns)
    keys = [f"_{place}" for place in task.places]
    has_key = " and ".join(f"{key} is not null" for key in keys)
    rows = frame.toDF(*numbers)
    if not task.keeps_rows:
        rows = rows.where(has_key)
    # Rows without a key stay apart, so that they do not all come to one task.
    hashed = f"case when {has_key} then xxhash64({', '.join(keys)}) else spark_partition_id() end as hash"
    rows = rows.selectExpr("*", hashed)
    rows = rows.repartition(task.tasks, "hash") if task.tasks else rows.repartition("hash")
    fields = [*frame.schema.fields, *items]
    numbered = [
        StructField(f"_{number}", field.dataType, field.nullable, field.metadata) for number, field in enumerate(fields)
    ]
    found = rows.sortWithinPartitions("hash").mapInArrow(partial(look_up_rows, task), StructType(numbered))
    return found.toDF(*(field.name for field in fields))


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
