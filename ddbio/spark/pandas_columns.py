"""Do what ``columns`` does for a Spark before 4.1, which hands its functions pandas objects in the place of Arrow's.

Spark makes the objects before the function is called; on the way back, Arrow's memory is handed on as it is.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StringType, StructField, StructType

from ddbio.core.schema.arrow import schema_from_json
from ddbio.spark.columns import decode_objects, encode_structs

if TYPE_CHECKING:
    from ddbio.spark.columns import Mode, Nulls


def decode_series(schema_json: str, mode: Mode, nulls: Nulls, texts: Any) -> Any:
    """Return a series of lists of one struct of the schema's columns, one for each text of a series of bytes.

    A series of structs Spark would take for a frame, and spend as much on each of its columns as on one of lists.
    """
    structs = decode_objects(schema_json, mode, nulls, texts.tolist())
    ends: Any = np.arange(len(structs) + 1, dtype=np.int32)
    return _series_of(pa.ListArray.from_arrays(ends, structs))


def _series_of(array: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - only workers need it

    class Series(pd.Series):  # type: ignore[misc] # pandas is not imported where types are checked
        """Hold Arrow's memory as it is: Spark would apply a conversion to each nested value."""

        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    return Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])))


def spelled(spark_type: DataType) -> DataType:
    """Return the type with text in the place of numbers: pandas keeps no integer beside a null."""
    match spark_type:
        case NumericType():
            return StringType()
        case ArrayType():
            return ArrayType(spelled(spark_type.elementType))
        case MapType():
            return MapType(spark_type.keyType, spelled(spark_type.valueType))
        case StructType():
            return StructType([StructField(field.name, spelled(field.dataType)) for field in spark_type.fields])
    return spark_type


def encode_frame(schema_json: str, mode: Mode, structs: Any) -> Any:
    """Return the text of each row of a data frame of spelled columns as one item."""
    schema = schema_from_json(schema_json)
    fields = [field for field in schema if field.name in structs.columns]
    columns = [pa.array([_plain(value, field.type) for value in structs[field.name]], field.type) for field in fields]
    texts = encode_structs(schema_json, mode, pa.StructArray.from_arrays(columns, fields=fields))
    return texts.to_pandas()


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
