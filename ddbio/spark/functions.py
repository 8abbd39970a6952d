"""Turn DynamoDB JSON in a Spark column into a typed struct, and a struct into DynamoDB JSON.

Rows hold ``{"Item":{…}}`` or bare ``{…}``. Refuses malformed rows by name unless told to make them null.
"""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StringType, StructField, StructType

from ddbio.core.encode import to_dynamodb_json as encode_lines
from ddbio.core.item_schema import ItemSchema, arrow_schema_of
from ddbio.core.json_rows import RowDecoder
from ddbio.core.schema import normalize_schema, schema_from_json, schema_to_json
from ddbio.errors import OptionError
from ddbio.spark.types import to_arrow_schema, to_spark_schema

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import Column

    Mode: TypeAlias = Literal["FAILFAST", "PERMISSIVE"]
    Schema: TypeAlias = ItemSchema | pa.Schema | StructType

__all__ = ["from_dynamodb_json", "to_dynamodb_json"]

_MODES = ("FAILFAST", "PERMISSIVE")


def from_dynamodb_json(col: Column | str, schema: Schema, *, mode: Mode = "FAILFAST") -> Column:
    """Return a struct of the schema's columns, and ``_rescue``, for each row of DynamoDB JSON; null for null.

    Parameters
    ----------
    schema
        Of ``ddbio.infer_schema`` or Spark's own. A value that fits no column is kept in ``_rescue``.
    mode
        What a malformed row does, as in Spark's ``from_json``: ``FAILFAST`` fails with a DecodeError that names the row
        of its batch, ``PERMISSIVE`` makes all its columns null.

    Raises
    ------
    OptionError
        The mode is neither.
    SchemaError
        DynamoDB or Spark has no type for a column.
    """
    if mode not in _MODES:
        raise OptionError(f"mode={mode!r}: choose one of {', '.join(_MODES)}")
    arrow_schema = _arrow_schema(schema)
    column = sql.col(col) if isinstance(col, str) else col
    schema_json, spark_schema = schema_to_json(arrow_schema), to_spark_schema(arrow_schema)

    def decode(texts: Any) -> Any:
        return _decode(schema_json, mode, texts)

    function = _pandas_function(decode, ("Series", "DataFrame"), _bare(spark_schema))
    # A pandas function has no null among its structs.
    return sql.when(column.isNotNull(), function(column)).cast(spark_schema)


def to_dynamodb_json(struct_col: Column | str, schema: Schema) -> Column:
    """Return each struct as one bare item of DynamoDB JSON; null for null, null members are missing attributes.

    Parameters
    ----------
    schema
        The struct's fields, by name, with DynamoDB's types: ``df.schema["col"].dataType`` of what
        ``from_dynamodb_json`` made, or what ``ddbio.infer_schema`` returned.

    Raises
    ------
    SchemaError
        DynamoDB or Spark has no type for a field.
    """
    arrow_schema = _arrow_schema(schema)
    given = schema if isinstance(schema, StructType) else arrow_schema_of(schema)
    spark_schema = to_spark_schema(arrow_schema)
    column = sql.col(struct_col) if isinstance(struct_col, str) else struct_col
    schema_json = schema_to_json(arrow_schema)

    def encode(structs: Any) -> Any:
        return _encode(schema_json, structs)

    function = _pandas_function(encode, ("DataFrame", "Series"), StringType())
    members = [
        column.getField(field.name).cast(_spelled(field.dataType)).alias(field.name)
        for field in spark_schema
        if field.name in given.names
    ]
    return sql.when(column.isNotNull(), function(sql.struct(*members)))


def _pandas_function(function: Any, kinds: tuple[str, str], returned: DataType) -> Any:
    import pandas as pd  # noqa: PLC0415 - heavy

    # Spark reads from the annotations what the function takes and returns.
    taken, given = (getattr(pd, kind) for kind in kinds)
    function.__annotations__ = {**dict.fromkeys(function.__annotations__, taken), "return": given}
    return sql.pandas_udf(function, returned)  # type: ignore[call-overload, unused-ignore] # the stubs want literals


def _arrow_schema(schema: Schema) -> pa.Schema:
    return normalize_schema(to_arrow_schema(schema) if isinstance(schema, StructType) else arrow_schema_of(schema))


@functools.lru_cache(maxsize=8)
def _decoder(schema_json: str) -> RowDecoder:
    return RowDecoder(schema_from_json(schema_json))


def _decode(schema_json: str, mode: Mode, texts: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - only workers need it

    column = pa.array(texts, pa.string(), from_pandas=True)
    batch = _decoder(schema_json).decode(column, strict=mode == "FAILFAST")
    return _frame(pd, batch)


def _frame(pd: Any, batch: pa.RecordBatch) -> Any:
    class Series(pd.Series):  # type: ignore[misc] # pandas is not imported where types are checked
        """Hold Arrow's memory as it is: Spark would apply a conversion to each nested value."""

        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    class Frame(pd.DataFrame):  # type: ignore[misc] # as above
        @property
        def _constructor_sliced(self) -> Any:
            return Series

    columns = {}
    for name, spark_column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([spark_column])))
    return Frame(columns)


def _bare(spark_type: Any) -> Any:
    """Return the type without metadata: Spark compares it with what Arrow brings."""
    match spark_type:
        case ArrayType():
            return ArrayType(_bare(spark_type.elementType))
        case MapType():
            return MapType(spark_type.keyType, _bare(spark_type.valueType))
        case StructType():
            return StructType([StructField(field.name, _bare(field.dataType)) for field in spark_type.fields])
    return spark_type


def _spelled(spark_type: DataType) -> DataType:
    """Return the type with text in the place of numbers: pandas keeps no integer beside a null."""
    match spark_type:
        case NumericType():
            return StringType()
        case ArrayType():
            return ArrayType(_spelled(spark_type.elementType))
        case MapType():
            return MapType(spark_type.keyType, _spelled(spark_type.valueType))
        case StructType():
            return StructType([StructField(field.name, _spelled(field.dataType)) for field in spark_type.fields])
    return spark_type


def _encode(schema_json: str, structs: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - only workers need it

    schema = schema_from_json(schema_json)
    fields = [field for field in schema if field.name in structs.columns]
    columns = [pa.array([_plain(value, field.type) for value in structs[field.name]], field.type) for field in fields]
    lines = encode_lines(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
    return pd.Series(lines.decode().split("\n")[:-1], dtype=object)


def _plain(value: Any, arrow_type: Any) -> Any:  # noqa: PLR0911 - one line a type
    """Return a value of pandas as ``pyarrow.array`` takes it, spelled numbers exact."""
    if value is None:
        return None
    if pa.types.is_map(arrow_type):
        entries = value.items() if isinstance(value, dict) else value
        return [(name, _plain(member, arrow_type.item_type)) for name, member in entries]
    if pa.types.is_struct(arrow_type):
        return {field.name: _plain(value[field.name], field.type) for field in arrow_type}
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return [_plain(element, arrow_type.value_type) for element in value]
    if pa.types.is_integer(arrow_type):
        return int(value)
    if pa.types.is_floating(arrow_type):
        return float(value)
    return Decimal(value) if pa.types.is_decimal(arrow_type) else value
