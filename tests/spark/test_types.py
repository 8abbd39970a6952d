"""Arrow's types as Spark's, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType, VarcharType, _parse_datatype_json_string

from ddbio.errors import SchemaError
from ddbio.items.schema.arrow import name_of_field, normalize_schema
from ddbio.spark.types import to_arrow_schema, to_spark_schema, with_attribute_names

SCHEMA = normalize_schema(
    pa.schema(
        [
            ("s", pa.string()),
            ("whole", pa.int64()),
            ("exact", pa.decimal128(38, 4)),
            ("double", pa.float64()),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
            pa.field("set", pa.list_(pa.string()), metadata={"ddb:type": "SS"}),
            pa.field("anything", pa.string(), metadata={"ddb:type": "JSON"}),
            ("list", pa.list_(pa.struct([("x", pa.int64())]))),
            ("map", pa.map_(pa.string(), pa.decimal128(10, 2))),
            ("struct", pa.struct([("a", pa.string()), ("b", pa.list_(pa.binary()))])),
        ]
    )
)


def test_round_trip_through_sparks_json():
    """A schema is returned from Spark unchanged, including DynamoDB's types on its fields."""
    parsed = _parse_datatype_json_string(to_spark_schema(SCHEMA).json())
    back = to_arrow_schema(parsed)
    assert back == SCHEMA
    assert [field.metadata for field in back] == [field.metadata for field in SCHEMA]


def test_everything_is_nullable():
    """No column of an inferred schema is declared NOT NULL: a missing attribute is a null."""
    assert all(field.nullable for field in to_spark_schema(SCHEMA).fields)


@pytest.mark.parametrize(
    ("large", "plain"), [(pa.large_string(), pa.string()), (pa.large_list(pa.int64()), pa.list_(pa.int64()))]
)
def test_large_types_are_spark_types_too(large, plain):
    """Arrow's 64-bit offsets do not change the Spark type."""
    assert to_spark_schema(pa.schema([("x", large)])) == to_spark_schema(pa.schema([("x", plain)]))


@pytest.mark.parametrize("arrow_type", [pa.decimal256(60, 2), pa.uint64()])
def test_types_unknown_to_spark_are_refused(arrow_type):
    """A column without an exact Spark type is an error with its path."""
    with pytest.raises(SchemaError, match=r"^m\.x\[\]: Spark has no type"):
        to_spark_schema(pa.schema([("m", pa.struct([("x", pa.list_(arrow_type))]))]))


@pytest.mark.parametrize("spark_type", [DayTimeIntervalType(), VarcharType(3)])
def test_types_unknown_to_dynamodb_are_refused(spark_type):
    """A Spark column that no attribute can fill is an error with an alternative."""
    with pytest.raises(SchemaError, match=r"^at: no DynamoDB attribute has Spark's type"):
        to_arrow_schema(StructType([StructField("at", spark_type)]))


@pytest.mark.parametrize(
    ("columns", "names", "attributes"),
    [
        ("id", ["id", "total"], ["id"]),
        ("ID", ["id", "total"], ["id"]),
        ("Total", ["id", "TOTAL"], ["TOTAL"]),
        ("ID,id", ["id"], ["ID", "id"]),
        ("Id", ["id", "Id", "ID"], ["Id"]),
        ("rare", ["id"], ["rare"]),
        ("_rescue", ["_RESCUE"], ["_rescue"]),
        ("STRASSE", ["stra\u00dfe"], ["STRASSE"]),
        ("\u00c4", ["\u00e4"], ["\u00e4"]),
    ],
)
def test_columns_match_attributes_as_spark_matches_names(columns, names, attributes):
    """An equal name wins over one that differs by case. Others stay unchanged."""
    schema = pa.schema([(name, pa.string()) for name in columns.split(",")])
    matched = with_attribute_names(schema, names)
    assert [name_of_field(field) for field in matched] == attributes
    assert matched.names == schema.names


def test_a_column_that_several_attributes_match_is_refused():
    """The column is not assigned to any of them."""
    with pytest.raises(SchemaError, match="Id: there are attributes ID and id"):
        with_attribute_names(pa.schema([("Id", pa.string())]), ["id", "ID"])
