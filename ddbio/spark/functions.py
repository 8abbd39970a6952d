"""Functions of Spark columns: DynamoDB JSON to a typed struct and back, and keys that identify rows.

Rows contain ``{"Item":{…}}`` or bare ``{…}``. Malformed rows, and items that DynamoDB would refuse, are errors; mode
``PERMISSIVE`` makes them null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from ddbio.errors import OptionError
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of
from ddbio.load.idempotency import ADVICE, NULL_PART
from ddbio.spark import column_functions
from ddbio.spark.types import to_arrow_schema, to_spark_schema, written_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ddbio.spark.column_functions import Mode, Nulls

    Schema: TypeAlias = ItemSchema | pa.Schema | StructType

__all__ = ["decode_column", "encode_column", "from_dynamodb_json", "idempotency_key", "to_dynamodb_json"]

# Spark 4.1 is the first version whose column functions get Arrow data.
_HAS_ARROW_FUNCTIONS = hasattr(sql, "arrow_udf")

# https://spark.apache.org/docs/4.0.0/sql-ref-datetime-pattern.html
_SECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIMES = {"timeZone": "UTC", "timestampFormat": _SECONDS + "'Z'", "timestampNTZFormat": _SECONDS}


def from_dynamodb_json(col: Column | str, schema: Schema, *, mode: Mode = "FAILFAST", nulls: Nulls = "merge") -> Column:
    """Return a struct of the schema's columns, and ``_rescue``, for each row of DynamoDB JSON; null for null.

    Parameters
    ----------
    schema
        A schema from ``ddbio.infer_schema`` or of Spark. A value that fits no column is in ``_rescue``.
    mode
        Handling of malformed rows, as in Spark's ``from_json``: ``FAILFAST`` fails with a DecodeError that names the
        row of
        its batch, ``PERMISSIVE`` makes all its columns null.
    nulls
        ``merge`` makes NULL and missing both null, ``keep`` puts each NULL into ``_rescue``.

    Raises
    ------
    OptionError
        ``mode`` or ``nulls`` has another value.
    SchemaError
        DynamoDB or Spark has no type for a column.
    """
    _require("mode", mode, column_functions.MODES)
    _require("nulls", nulls, column_functions.NULLS)
    schema_json, spark_schema = _described(schema)
    column = sql.col(col) if isinstance(col, str) else col
    # Spark fuses nested Python functions into one worker; casts between them prevent that.
    texts = column.cast(StringType()).cast(BinaryType())
    structs = _apply(_decoding(schema_json, mode, nulls), texts, _bare(spark_schema)).cast(spark_schema)
    return structs.alias(_name_of("from_dynamodb_json", col))


def to_dynamodb_json(struct_col: Column | str, schema: Schema, *, mode: Mode = "FAILFAST") -> Column:
    """Return each struct as one bare item of DynamoDB JSON; null for null. Null members are missing attributes.

    Parameters
    ----------
    schema
        The struct's fields, by name, with DynamoDB's types: ``df.schema["col"].dataType`` of a column from
        ``from_dynamodb_json``, or a schema from ``ddbio.infer_schema``.
    mode
        Handling of items that DynamoDB would refuse: ``FAILFAST`` fails with an EncodeError that names row, attribute
        and
        rule, ``PERMISSIVE`` makes the text null.

    Raises
    ------
    OptionError
        ``mode`` has another value.
    SchemaError
        DynamoDB or Spark has no type for a field.
    """
    _require("mode", mode, column_functions.MODES)
    stored, members = _written(schema)
    column = sql.col(struct_col) if isinstance(struct_col, str) else struct_col
    texts = _apply(_encoding(stored, mode), _struct_of(column, members), StringType())
    return texts.alias(_name_of("to_dynamodb_json", struct_col))


def decode_column(
    frame: DataFrame, name: str, schema: Schema, *, mode: Mode = "FAILFAST", nulls: Nulls = "merge"
) -> DataFrame:
    """Return the frame with a column of DynamoDB JSON replaced by the result of ``from_dynamodb_json``.

    Every version of Spark does this through Arrow, with all columns of the frame: select the needed columns first.

    Raises
    ------
    OptionError, SchemaError
        As ``from_dynamodb_json``; the frame has no such column.
    """
    _require("mode", mode, column_functions.MODES)
    _require("nulls", nulls, column_functions.NULLS)
    schema_json, spark_schema = _described(schema)
    texts = sql.col(_quoted(name)).cast(StringType())
    return _replace(frame, name, texts, _decoding(schema_json, mode, nulls), spark_schema)


def encode_column(frame: DataFrame, name: str, schema: Schema | None = None, *, mode: Mode = "FAILFAST") -> DataFrame:
    """Return the frame with a column of structs replaced by the result of ``to_dynamodb_json``.

    Every version of Spark does this through Arrow, with all columns of the frame: select the needed columns first.

    Parameters
    ----------
    schema
        As for ``to_dynamodb_json``; the column's own schema if None.

    Raises
    ------
    OptionError, SchemaError
        As ``to_dynamodb_json``; the frame has no such column, or it contains no structs.
    """
    _require("mode", mode, column_functions.MODES)
    own = _field_of(frame, name).dataType
    if not isinstance(own, StructType):
        raise OptionError(f"{name}: it holds {own.simpleString()}: name a column of structs")
    stored, members = _written(own if schema is None else schema)
    structs = _struct_of(sql.col(_quoted(name)), members)
    return _replace(frame, name, structs, _encoding(stored, mode), StringType())


def _name_of(function: str, col: Column | str) -> str:
    """Return the name of a function's column, as Spark's own functions do if the argument is a name."""
    return f"{function}({col})" if isinstance(col, str) else function


def _require(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{option}={value!r}: choose one of {', '.join(choices)}")


def _described(schema: Schema) -> tuple[str, StructType]:
    """Return the schema as text for the workers, in the Arrow types that Spark has, and as Spark's own."""
    arrow_schema = to_arrow_schema(schema) if isinstance(schema, StructType) else arrow_schema_of(schema)
    spark_schema = to_spark_schema(normalize_schema(arrow_schema))
    return schema_to_json(normalize_schema(to_arrow_schema(spark_schema))), spark_schema


def _decoding(schema_json: str, mode: Mode, nulls: Nulls) -> Callable[[Any], Any]:
    def decode(texts: Any) -> Any:
        return column_functions.decode_texts(schema_json, mode, nulls, texts)

    return decode


def _encoding(stored: bytes, mode: Mode) -> Callable[[Any], Any]:
    def encode(structs: Any) -> Any:
        return column_functions.encode_structs(stored, mode, structs)

    return encode


def _written(schema: Schema) -> tuple[bytes, list[tuple[str, DataType]]]:
    """Return the schema for the workers in Arrow's serialization, and the members to pass to them in Spark's types."""
    if isinstance(schema, StructType):
        stored, members = written_schema(schema), schema.fields
    else:
        arrow_schema = arrow_schema_of(schema)
        spark_schema = to_spark_schema(arrow_schema)
        stored = to_arrow_schema(spark_schema)
        members = [field for field in spark_schema.fields if field.name in arrow_schema.names]
    return stored.serialize().to_pybytes(), [(field.name, field.dataType) for field in members]


def _struct_of(column: Column, members: list[tuple[str, DataType]]) -> Column:
    struct = sql.struct(*[column.getField(name).cast(_bare(kind)).alias(name) for name, kind in members])
    return sql.when(column.isNotNull(), struct)


def _replace(
    frame: DataFrame, name: str, argument: Column, function: Callable[[Any], Any], returned: DataType
) -> DataFrame:
    index = frame.columns.index(_field_of(frame, name).name)

    def replace(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [*batch.columns]
            arrays[index] = function(arrays[index])
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    fields = [*frame.schema.fields]
    fields[index] = StructField(name, returned, metadata=fields[index].metadata)
    # These names are valid in every frame: Spark would parse names with dots as paths.
    carried = [StructField(f"_{n}", _bare(field.dataType), field.nullable) for n, field in enumerate(fields)]
    numbered = frame.withColumn(name, argument).toDF(*[field.name for field in carried])
    replaced = numbered.mapInArrow(replace, StructType(carried))
    return replaced.select(
        *[
            sql.col(f"_{n}").cast(field.dataType).alias(field.name, metadata=field.metadata)
            for n, field in enumerate(fields)
        ]
    )


def _field_of(frame: DataFrame, name: str) -> StructField:
    if frame.columns.count(name) != 1:
        raise OptionError(f"{name}: the frame has {frame.columns.count(name)} such columns: it has {frame.columns}")
    return frame.schema[name]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _apply(function: Callable[[Any], Any], column: Column, returned: DataType) -> Column:
    """Return the column of the results of a function of Arrow arrays."""
    if _HAS_ARROW_FUNCTIONS:
        # Without annotations Spark treats it as a function that maps an array to an array.
        function.__annotations__ = {}
        return sql.arrow_udf(function, returned)(column)

    import pandas as pd  # noqa: PLC0415 - heavy

    def map_series(batches: Any) -> Any:
        return column_functions.map_series(function, batches)

    # Spark reads the argument and return types from the annotations.
    map_series.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    return sql.pandas_udf(map_series, ArrayType(returned))(column)[0]  # type: ignore[call-overload, unused-ignore]


def _bare(spark_type: Any) -> Any:
    """Return the type without metadata: Spark compares it with the type of Arrow's data."""
    match spark_type:
        case ArrayType():
            return ArrayType(_bare(spark_type.elementType), spark_type.containsNull)
        case MapType():
            return MapType(spark_type.keyType, _bare(spark_type.valueType), spark_type.valueContainsNull)
        case StructType():
            fields = [StructField(field.name, _bare(field.dataType), field.nullable) for field in spark_type.fields]
            return StructType(fields)
    return spark_type


def idempotency_key(*cols: Column | str) -> Column:
    """Return a key for each row, 64 hexadecimal digits: equal if and only if all the columns are equal.

    It is the same key as :func:`ddbio.idempotency_key` of the same values in Arrow. A column of floats or of nested
    values
    fails the query.

    Raises
    ------
    OptionError
        If no column is named.
    """
    if not cols:
        raise OptionError("idempotency_key needs at least one column")
    return sql.sha2(sql.concat(*(_part(sql.col(col) if isinstance(col, str) else col) for col in cols)), 256)


def _part(column: Column) -> Column:
    # A column's type is known when Spark plans: it keeps one of these branches.
    kind, text = sql.typeof(column), column.cast("string")
    part = (
        sql.when(kind == "string", _prefixed("S", text))
        .when(kind.isin("tinyint", "smallint", "int", "bigint"), _prefixed("N", text))
        .when(kind.startswith("decimal"), _prefixed("N", _plain(text)))
        .when(kind == "binary", _prefixed("B", text))
        .when(kind == "boolean", _prefixed("Z", text))
        .when(kind == "date", _prefixed("D", text))
        .when(kind == "timestamp", _prefixed("T", _time(column)))
        .when(kind == "timestamp_ntz", _prefixed("L", _time(column)))
        .when(kind == "void", sql.lit(None).cast("binary"))
        .otherwise(sql.raise_error(sql.concat(sql.lit("a column is of type "), kind, sql.lit(f": {ADVICE}"))))
    )
    return sql.coalesce(part, sql.lit(NULL_PART.decode()).cast("binary"))


def _prefixed(letter: str, text: Column) -> Column:
    content = text.cast("binary")
    head = sql.concat(sql.lit(letter), sql.octet_length(content).cast("string"), sql.lit(":"))
    return sql.concat(head.cast("binary"), content)


def _plain(text: Column) -> Column:
    """Return a decimal's text without exponent and superfluous zeros."""
    sign = sql.when(text.startswith("-"), "-").otherwise("")
    # Small numbers look like 1.23E-7. There are no large exponents.
    digits = sql.regexp_replace(text, r"[-.]|E.*", "")
    exponent = sql.call_function("try_to_number", sql.regexp_extract(text, r"E-(\d+)", 1), sql.lit("99")).cast("int")
    zeros = sql.call_function("repeat", sql.lit("0"), exponent - 1)
    written = sql.when(text.contains("E"), sql.concat(sign, sql.lit("0."), zeros, digits)).otherwise(text)
    return sql.when(written.contains("."), sql.regexp_replace(written, r"\.?0+$", "")).otherwise(written)


def _time(column: Column) -> Column:
    # The only way to print a time of either kind independently of the session's zone.
    return sql.get_json_object(sql.to_json(sql.struct(column.alias("at")), _TIMES), "$.at")
