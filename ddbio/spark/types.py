"""Conversion of Arrow types to Spark's and back. A type without an exact counterpart is a SchemaError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ddbio.errors import SchemaError
from ddbio.items.schema.arrow import DDB_NAME, RESCUE_NAME, name_of_field

if TYPE_CHECKING:
    from collections.abc import Collection

_TypePairs: TypeAlias = tuple[tuple[pa.DataType, type[DataType]], ...]

_PLAIN: _TypePairs = (
    (pa.string(), StringType),
    (pa.binary(), BinaryType),
    (pa.bool_(), BooleanType),
    (pa.int64(), LongType),
    (pa.int32(), IntegerType),
    (pa.int16(), ShortType),
    (pa.int8(), ByteType),
    (pa.float64(), DoubleType),
    (pa.float32(), FloatType),
)
_TIMES: _TypePairs = (
    (pa.timestamp("us", "UTC"), TimestampType),
    (pa.timestamp("us"), TimestampNTZType),
    (pa.date32(), DateType),
)
_DURATIONS: _TypePairs = ((pa.duration("us"), DayTimeIntervalType),)
_WRITTEN: _TypePairs = (*_PLAIN, *_TIMES, *_DURATIONS, (pa.null(), NullType))
_READ: _TypePairs = (*_PLAIN, *_TIMES)
_SPARK_TYPES = {**dict(_READ), pa.large_string(): StringType, pa.large_binary(): BinaryType}


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema, all nullable. The fields keep the metadata with DynamoDB's types.

    Raises
    ------
    SchemaError
        If Spark has no type for a column.
    """
    return StructType([_to_spark_field(field, field.name) for field in schema])


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches that Spark expects for its schema. Fields keep their metadata.

    Raises
    ------
    SchemaError
        If a column has a type that no DynamoDB attribute has.
    """
    return pa.schema([_to_arrow_field(field, field.name, _READ) for field in schema.fields])


def with_attribute_names(columns: pa.Schema, attributes: Collection[str]) -> pa.Schema:
    """Return columns with the names of their attributes: equal, or else equal except for case.

    Spark matches names of columns in this way, unless ``spark.sql.caseSensitive`` is on. A name without a known
    attribute
    stays: only few items may have it.

    Raises
    ------
    SchemaError
        If several attributes differ from the column only by case.
    """
    fields = list(columns)
    for index, field in enumerate(columns):
        name = name_of_field(field)
        alike = [
            attribute
            for attribute in attributes
            if attribute.lower() == name.lower() and attribute not in columns.names
        ]
        if name in attributes or field.name == RESCUE_NAME or not alike:
            continue
        if len(alike) > 1:
            raise SchemaError(f"{name}: there are attributes {' and '.join(sorted(alike))}: write one as it is")
        metadata: dict[bytes | str, bytes | str] = {**(field.metadata or {})}  # type: ignore[dict-item] # stubs
        fields[index] = field.with_metadata(metadata | {DDB_NAME: alike[0].encode()})
    return pa.schema(fields)


def written_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the batches that Spark passes to a writer, which may have dates, times and void.

    Raises
    ------
    SchemaError
        If a column has a type that cannot be written.
    """
    return pa.schema([_to_arrow_field(field, field.name, _WRITTEN) for field in schema.fields])


def can_pass_arrow(schema: StructType) -> bool:
    """Return whether rows with these columns can pass through Arrow without changes."""
    try:
        written_schema(schema)
    except SchemaError:
        return False
    return True


def _to_spark_field(field: pa.Field[Any], path: str) -> StructField:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return StructField(field.name, _to_spark_type(field.type, path), nullable=True, metadata=metadata)


def _to_spark_type(arrow_type: pa.DataType, path: str) -> DataType:
    if (plain := _SPARK_TYPES.get(arrow_type)) is not None:
        return plain()
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit != "ns":
        # Spark has microseconds, which represent the coarser units.
        return TimestampNTZType() if arrow_type.tz is None else TimestampType()
    if pa.types.is_decimal128(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return ArrayType(_to_spark_type(arrow_type.value_type, f"{path}[]"))
    if pa.types.is_map(arrow_type):
        return MapType(StringType(), _to_spark_type(arrow_type.item_type, f"{path}.*"))
    if pa.types.is_struct(arrow_type):
        children = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return StructType([_to_spark_field(child, f"{path}.{child.name}") for child in children])
    raise SchemaError(f"{path}: Spark has no type for an Arrow {arrow_type}: declare string, decimal128 or float64")


def _to_arrow_field(field: StructField, path: str, types: _TypePairs) -> pa.Field[Any]:
    metadata = {key: value for key, value in field.metadata.items() if isinstance(value, str)}
    arrow_type = _to_arrow_type(field.dataType, path, types)
    return _field(field.name, arrow_type, field.nullable, metadata)


def _field(name: str, arrow_type: pa.DataType, nullable: bool, metadata: Any = None) -> pa.Field[Any]:  # noqa: FBT001 - as Arrow's
    # Arrow requires that a field of nulls is nullable. In Spark, the elements of array() are not.
    return pa.field(name, arrow_type, nullable or pa.types.is_null(arrow_type), metadata)


def _to_arrow_type(spark_type: DataType, path: str, types: _TypePairs) -> pa.DataType:
    match spark_type:
        case DecimalType():
            return pa.decimal128(spark_type.precision, spark_type.scale)
        case ArrayType():
            element = _to_arrow_type(spark_type.elementType, f"{path}[]", types)
            return pa.list_(_field("element", element, spark_type.containsNull))
        case MapType(keyType=StringType()):
            value = _to_arrow_type(spark_type.valueType, f"{path}.*", types)
            item: Any = _field("value", value, spark_type.valueContainsNull)
            return pa.map_(pa.string(), item)
        case StructType():
            return pa.struct([_to_arrow_field(field, f"{path}.{field.name}", types) for field in spark_type.fields])
    for arrow_type, plain in types:
        if isinstance(spark_type, plain):
            return arrow_type
    convert = (
        "write text instead"
        if types is not _READ
        else ("read string, a number type, binary, boolean, array, struct or map<string, …>, and convert afterwards")
    )
    raise SchemaError(f"{path}: no DynamoDB attribute has Spark's type {spark_type.simpleString()}: {convert}")
