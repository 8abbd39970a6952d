"""Tag the members of structs by Spark's own expressions, as text: what Spark makes objects of soonest is one of bytes.

It is the way into a worker, and no DynamoDB JSON for anybody else: members have the numbers of their places, sets are
lists, strings bytes, for JSON would replace what is not UTF-8 in them, floats texts, for NaN is a value until an item
is made of it, and times whole numbers, of days or microseconds, for their text would depend on the session's time zone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column


def tagged_json(members: Iterable[tuple[Column, DataType]]) -> Column:
    """Return the text of each row's members, as bytes and without line ends; null members are left out."""
    tagged = [(str(place), _member(column, kind)) for place, (column, kind) in enumerate(members)]
    return sql.to_json(_struct(tagged), {"ignoreNullFields": "true"}).cast(BinaryType())


def tagged_schema(types: Iterable[pa.DataType]) -> pa.Schema:
    """Return the schema of such texts; columns of it can be cast to the types that are given."""
    return pa.schema([(str(place), _tagged_type(arrow_type)) for place, arrow_type in enumerate(types)])


def _struct(members: list[tuple[str, Column]]) -> Column:
    # With aliases in it, Spark fails to name the column of a function that takes it.
    return sql.named_struct(*[part for name, column in members for part in (sql.lit(name), column)])


def _member(column: Column, kind: DataType) -> Column:
    return sql.when(column.isNotNull(), _struct([_value(column, kind)]))


def _element(column: Column, kind: DataType) -> Column:
    return _struct([_value(column, kind), ("NULL", sql.when(column.isNull(), True))])  # noqa: FBT003 - its value


def _value(column: Column, kind: DataType) -> tuple[str, Column]:  # noqa: PLR0911 - one line a type
    """Return the value behind its tag."""
    match kind:
        case StringType() | BinaryType():
            return "B", column.cast(BinaryType())
        case BooleanType():
            return "BOOL", column
        case ArrayType():
            return "L", sql.transform(column, lambda element: _element(element, kind.elementType))
        case MapType():
            return "M", sql.transform_values(column, lambda _, value: _element(value, kind.valueType))
        case StructType():
            members = [(field.name, _member(column.getField(field.name), field.dataType)) for field in kind.fields]
            return "M", sql.when(column.isNotNull(), _struct(members))
        case DateType():
            return "N", sql.unix_date(column).cast(StringType())
        case TimestampType() | TimestampNTZType() | DayTimeIntervalType():
            return "N", _microseconds(column, kind).cast(StringType())
    return "S" if isinstance(kind, FloatType | DoubleType) else "N", column.cast(StringType())


def _microseconds(column: Column, kind: DataType) -> Column:
    """Return the microseconds since 1970, or of a duration, by what is as long after the epoch."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if isinstance(kind, TimestampNTZType):
        column = column - sql.lit(epoch.replace(tzinfo=None)).cast(TimestampNTZType())
    return sql.unix_micros(column if isinstance(kind, TimestampType) else sql.lit(epoch) + column)


def _tagged_type(arrow_type: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - one line a type
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        return pa.binary()
    if pa.types.is_floating(arrow_type):
        return pa.string()
    if pa.types.is_temporal(arrow_type):
        return pa.int32() if pa.types.is_date(arrow_type) else pa.int64()
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return pa.list_(_tagged_type(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return pa.map_(pa.string(), _tagged_type(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _tagged_type(field.type)) for field in arrow_type])
    return arrow_type
