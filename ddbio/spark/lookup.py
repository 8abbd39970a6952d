"""Join a DataFrame with the items of a table that have its keys; no other items are read."""

from __future__ import annotations

from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark import SparkFiles
from pyspark.sql import functions
from pyspark.sql.types import BinaryType, DecimalType, IntegralType, StringType

from ddbio.errors import OptionError
from ddbio.spark.registration import keep_budgets
from ddbio.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from ddbio.spark.lookup_tasks import LookupTask

_TYPES = {"S": (StringType,), "N": (IntegralType, DecimalType), "B": (BinaryType,)}
_KEY = "__ddbio_key"


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
    row whose key has no item has nulls. Rows without a key, or with a null in it, are asked for nothing. The DataFrame
    is computed twice, for its keys and for its rows: cache it if that is dear.

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
    from ddbio.spark.lookup_tasks import describe_lookup, read_keys  # noqa: PLC0415 - see above
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415 - see above

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
    names = [name for name, _ in task.key_types[: len(columns)]]
    unasked = set() if task.asked is None else {name for name, _ in task.key_types} - {*task.asked}
    kept = [field.name for field in attributes if field.name not in unasked.union(names)]
    twice = sorted({into} & {*frame.columns} if into else {*kept} & {*frame.columns})
    if twice:
        raise OptionError(
            f"the DataFrame and the items both have a column {twice[0]!r}: rename it before, choose columns, or give "
            "into, a column for the whole item"
        )
    keys = frame.select(*(_column(column).alias(name) for column, name in zip(columns, names, strict=True)))
    keys = keys.where(_all(functions.col(_quoted(name)).isNotNull() for name in names)).distinct()
    if task.tasks is not None:
        keys = keys.coalesce(task.tasks)
    found = keys.mapInArrow(partial(read_keys, task), attributes)
    sides = [f"{_KEY}_{place}" for place in range(len(names))]
    item = [_column(name) for name in (attributes.names if into else kept)]
    shown = [functions.struct(*item).alias(into)] if into else item
    found = found.select(*(_column(name).alias(side) for name, side in zip(names, sides, strict=True)), *shown)
    condition = _all(_column(column) == _column(side) for column, side in zip(columns, sides, strict=True))
    return frame.join(found, condition, how).drop(*sides)


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
        if not isinstance(types[column], _TYPES[tag]):
            raise OptionError(
                f"on: column {column!r} has Spark's type {types[column].simpleString()}, and the key {name!r} has type "
                f"{tag}: cast it"
            )
    return columns


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _column(name: str) -> Column:
    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


__all__ = ["lookup"]
