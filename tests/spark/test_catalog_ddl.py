"""The statements for Spark SQL, executed over the files of a scan."""

from __future__ import annotations

import json

import boto3
import pyarrow as pa
import pytest

import ddbio
from ddbio.catalog.ddl import ddl
from ddbio.catalog.definition import Column, TableDefinition, TableName
from ddbio.formats.file_facts import FILE_FACTS


def test_spark_executes_its_table(spark, fake, tmp_path):
    """The table has every row, partitions with unusual names, and struct members with any name."""
    items = (
        {"pk": {"S": f"o{n}"}, "Tenant": {"S": "it's/1" if n % 2 else "b"}, "m": {"M": {"a b": {"N": str(n)}}}}
        | {"at": {"S": f"202{n % 3}-05-01T00:00:00Z"}, "tags": {"SS": ["a"]}}
        for n in range(60)
    )
    fake.load("odd", [json.dumps(item).encode() for item in items], "pk:S")
    options = {"partition_by": ["Tenant", "year(at)"], "timestamps": {"at": "iso"}, "engine": "local"}
    ddbio.scan_to_files("odd", tmp_path / "o'rders", endpoint_url=fake.endpoint_url, **options)
    for statement in ddbio.catalog_ddl(tmp_path / "o'rders", "spark", name="shop_ddl.orders").split(";\n"):
        if statement.strip():
            spark.sql(statement)
    try:
        query = "SELECT Tenant, year, count(*), sum(m.`a b`) FROM shop_ddl.orders GROUP BY ALL ORDER BY ALL"
        rows = [tuple(row) for row in spark.sql(query).collect()]
        assert [row[:3] for row in rows] == [(t, y, 10) for t in ("b", "it's/1") for y in (2020, 2021, 2022)]
        assert sum(row[3] for row in rows) == sum(range(60))
        kinds = {field.name: field.dataType.simpleString() for field in spark.table("shop_ddl.orders").schema}
        assert (kinds["at"], kinds["tags"], kinds["m"]) == ("timestamp", "array<string>", "struct<a b:bigint>")
    finally:
        spark.sql("DROP DATABASE shop_ddl CASCADE")


@pytest.mark.nightly
def test_spark_shows_attributes_and_the_hours_of_a_log(spark, fake, tmp_path):
    """An attribute ``year`` is distinct from the folder's column, which has another name. Filters on both work."""
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
    client.create_table(
        TableName="cars",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for pk, year in (("a", "1999"), ("b", "2004")):
        client.put_item(TableName="cars", Item={"pk": {"S": pk}, "year": {"N": year}})
    ddbio.capture("cars", tmp_path / "log", available_now=True, endpoint_url=fake.endpoint_url)
    for statement in ddbio.catalog_ddl(tmp_path / "log", "spark", name="cars_ddl.cars").split(";\n"):
        if statement.strip():
            spark.sql(statement)
    try:
        table = spark.table("cars_ddl.cars")
        assert sorted(map(tuple, table.select("pk", "year").collect())) == [("a", 1999), ("b", 2004)]
        (folder,) = [name for name in table.columns if name.startswith("year_")]
        assert table.where(f"year = 1999 AND {folder} > 2020 AND hour < 24").count() == 1
    finally:
        spark.sql("DROP DATABASE cars_ddl CASCADE")


def test_the_statements_for_athena_and_hive_are_parsed(spark):
    """Spark's parser, which supports Hive's DDL, gets columns, folders, readers and properties."""
    types = [("p`k", pa.string()), ("it's", pa.decimal128(38, 2)), ("l", pa.list_(pa.struct([("a_b", pa.int64())])))]
    columns = tuple(Column(name, kind) for name, kind in types)
    partitions = (Column("day", pa.string()), Column("select", pa.int32()))
    parser = spark._jsparkSession.sessionState().sqlParser()
    for file_format, facts in FILE_FACTS.items():
        table = TableDefinition(r"s3://lake/o'r\n", file_format, columns, partitions, (("2024-05-01", "7"),))
        for dialect, projection in (("hive", False), ("athena", False), ("athena", True)):
            text = ddl(TableName("shop", "from"), table, dialect, projection=projection)
            create, *repair = [
                parser.parsePlan(statement).toString() for statement in text.split(";\n") if statement.strip()
            ][1:]
            for part in ("shop, from", r"s3://lake/o'r\n/", facts.input_format, facts.serde):
                assert part in create, (part, create)
            assert ("projection.select.range" in create) == projection
            assert len(repair) == (not projection)
            fields = parser.parseTableSchema(text[text.index("(\n") + 1 : text.index("\n)")])
            names = [fields.apply(index).name() for index in range(fields.size())]
            assert names == [name for name, _ in types]


def test_the_databases_are_parsed(spark):
    """The statement before the table creates its database."""
    table = TableDefinition("s3://lake/orders", "orc", (Column("pk", pa.string()),))
    text = ddl(TableName("a_b", "t"), table, "athena").partition(";")[0]
    assert "a_b" in spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toString()
