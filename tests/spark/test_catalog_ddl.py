"""The statements for Spark SQL, executed over the files that a scan wrote."""

from __future__ import annotations

import json

import ddbio


def test_spark_executes_its_table(spark, fake, tmp_path):
    """The table has every row, partitions with odd names, and members of structs by any name."""
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
