"""Map Arrow types to Spark's and back; a type that the other cannot hold exactly is a SchemaError."""

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

_Known: TypeAlias = tuple[tuple[pa.DataType, type[DataType]], ...]

_PLAIN: _Known = (
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
_TIMES: _Known = (
    (pa.timestamp("us", "UTC"), TimestampType),
    (pa.timestamp("us"), TimestampNTZType),
    (pa.date32(), DateType),
)
_DURATIONS: _Known = ((pa.duration("us"), DayTimeIntervalType),)
_WRITTEN: _Known = (*_PLAIN, *_TIMES, *_DURATIONS, (pa.null(), NullType))
_READ: _Known = (*_PLAIN, *_TIMES)
_SPARK_TYPES = {**dict(_READ), pa.large_string(): StringType, pa.large_binary(): BinaryType}


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema, all nullable; the fields keep the metadata that names DynamoDB's types.

    Raises
    ------
    SchemaError
        If Spark has no type for a column.
    """
    return StructType([_to_spark_field(field, field.name) for field in schema])


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches that Spark expects for its schema; fields keep their metadata.

    Raises
    ------
    SchemaError
        If a column has a type that no DynamoDB attribute has.
    """
    return pa.schema([_to_arrow_field(field, field.name, _READ) for field in schema.fields])


def with_attribute_names(given: pa.Schema, known: Collection[str]) -> pa.Schema:
    """Return columns with the names of the attributes that they stand for: the same, or else the same but for case.

    Spark matches names of columns so, unless ``spark.sql.caseSensitive`` is on. A name that no known attribute has
    stays: few items may have it.

    Raises
    ------
    SchemaError
        If several attributes differ from the column only by case.
    """
    fields = list(given)
    for place, field in enumerate(given):
        name = name_of_field(field)
        alike = [each for each in known if each.lower() == name.lower() and each not in given.names]
        if name in known or field.name == RESCUE_NAME or not alike:
            continue
        if len(alike) > 1:
            raise SchemaError(f"{name}: there are attributes {' and '.join(sorted(alike))}: write one as it is")
        metadata: dict[bytes | str, bytes | str] = {**(field.metadata or {})}  # type: ignore[dict-item] # stubs
        fields[place] = field.with_metadata(metadata | {DDB_NAME: alike[0].encode()})
    return pa.schema(fields)


def written_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the batches that Spark hands to a writer, which may hold dates, times and void.

    Raises
    ------
    SchemaError
        If a column has a type that is never written.
    """
    return pa.schema([_to_arrow_field(field, field.name, _WRITTEN) for field in schema.fields])


def is_carried(schema: StructType) -> bool:
    """Return whether rows with these columns may pass through Arrow, and be the same afterwards."""
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
        # Spark has microseconds, which hold the coarser units.
        return TimestampNTZType() if arrow_type.tz is None else TimestampType()
    if pa.types.is_decimal128(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return ArrayType(_to_spark_type(arrow_type.value_type, f"{path}[]"))
    if pa.types.is_map(arrow_type):
        return MapType(StringType(), _to_spark_type(arrow_type.item_type, f"{path}.*"))
    if pa.types.is_struct(arrow_type):
        children = [arrow_type.field(place) for place in range(arrow_type.num_fields)]
        return StructType([_to_spark_field(child, f"{path}.{child.name}") for child in children])
    raise SchemaError(f"{path}: Spark has no type for an Arrow {arrow_type}: declare string, decimal128 or float64")


def _to_arrow_field(field: StructField, path: str, known: _Known) -> pa.Field[Any]:
    metadata = {key: value for key, value in field.metadata.items() if isinstance(value, str)}
    arrow_type = _to_arrow_type(field.dataType, path, known)
    return _field(field.name, arrow_type, field.nullable, metadata)


def _field(name: str, arrow_type: pa.DataType, nullable: bool, metadata: Any = None) -> pa.Field[Any]:  # noqa: FBT001 - as Arrow's
    # Arrow has no field of nulls that may hold none; Spark has: the elements of array().
    return pa.field(name, arrow_type, nullable or pa.types.is_null(arrow_type), metadata)


def _to_arrow_type(spark_type: DataType, path: str, known: _Known) -> pa.DataType:
    match spark_type:
        case DecimalType():
            return pa.decimal128(spark_type.precision, spark_type.scale)
        case ArrayType():
            element = _to_arrow_type(spark_type.elementType, f"{path}[]", known)
            return pa.list_(_field("element", element, spark_type.containsNull))
        case MapType(keyType=StringType()):
            value = _to_arrow_type(spark_type.valueType, f"{path}.*", known)
            item: Any = _field("value", value, spark_type.valueContainsNull)
            return pa.map_(pa.string(), item)
        case StructType():
            return pa.struct([_to_arrow_field(field, f"{path}.{field.name}", known) for field in spark_type.fields])
    for arrow_type, plain in known:
        if isinstance(spark_type, plain):
            return arrow_type
    convert = (
        "write text instead"
        if known is not _READ
        else ("read string, a number type, binary, boolean, array, struct or map<string, …>, and convert afterwards")
    )
    raise SchemaError(f"{path}: no DynamoDB attribute has Spark's type {spark_type.simpleString()}: {convert}")
