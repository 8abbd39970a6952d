"""Read export lines by Spark's own JSON reader, and take the tags off by expressions: what one would write by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, decoders
from bench.pyarrow_json.tagged import members_of
from ddbio.core.schema.arrow import tag_of_field

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def read_typed(session: SparkSession, folder: Path, shape: data.Shape) -> DataFrame:
    """Return the typed columns of the export lines in a folder."""
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415 - asv imports this module, and needs no Spark

    tagged = decoders.parse_options(shape, "export").explicit_schema
    lines = session.read.schema(to_spark_schema(tagged)).json(str(folder))
    fields = [field for field in decoders.schema_of(shape) if field.name != "_rescue"]
    return lines.selectExpr(*(f"{_untagged(field, f'Item.`{field.name}`')} AS `{field.name}`" for field in fields))


def _untagged(field: pa.Field[Any], path: str) -> str:
    """Return the expression of a column's or member's values, ``path`` being what holds their tag."""
    tag, arrow_type = tag_of_field(field), field.type
    value = f"{path}.`{tag}`"
    match tag:
        case "NULL":
            return "CAST(NULL AS STRING)"
        case "N":
            return f"CAST({value} AS {_number_type(arrow_type)})"
        case "B":
            return f"unbase64({value})"
        case "L":
            return f"transform({value}, e -> {_untagged(arrow_type.field(0), 'e')})"
        case "M":
            members = members_of(arrow_type)
            inner = ", ".join(f"'{each.name}', {_untagged(each, f'{value}.`{each.name}`')}" for each in members)
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inner}) END"
    return value


def _number_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision}, {arrow_type.scale})"
    return "BIGINT"
