"""Export lines read by Spark's JSON reader, with expressions that remove the tags, as a user would write manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench import data, decoders
from bench.pyarrow_json.tagged import members_of
from ddbio.items.schema.arrow import tag_of_field

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def read_typed(session: SparkSession, folder: Path, shape: data.Shape) -> DataFrame:
    """Return the typed columns of the export lines in a folder."""
    tagged = decoders.parse_options(shape, "export").explicit_schema
    fields = [field for field in decoders.schema_of(shape) if field.name != "_rescue"]
    return read_columns(session, folder, fields, tagged.field("Item").type)


def read_columns(session: SparkSession, folder: Path, fields: list[pa.Field[Any]], item: pa.DataType) -> DataFrame:
    """Return these columns of the export lines in a folder. ``item`` is the type of an item with its tags."""
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415 - asv imports this module, and needs no Spark

    lines = session.read.schema(to_spark_schema(pa.schema([pa.field("Item", item)]))).json(str(folder))
    return lines.selectExpr(*(f"{_untagged(field, f'Item.`{field.name}`')} AS `{field.name}`" for field in fields))


def _untagged(field: pa.Field[Any], path: str) -> str:
    """Return the expression of a column's or member's values. ``path`` contains their tag."""
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
            inner = ", ".join(f"'{member.name}', {_untagged(member, f'{value}.`{member.name}`')}" for member in members)
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inner}) END"
    return value


def _number_type(arrow_type: pa.DataType) -> str:
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision}, {arrow_type.scale})"
    return "BIGINT"
