"""Statements for Redshift Spectrum, Trino and Snowflake, compared with texts in the syntax of their documentation."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ddbio.catalog.ddl import ddl
from ddbio.catalog.definition import TableDefinition, TableName, columns_of
from ddbio.catalog.lake_ddl import delta_ddl, hudi_ddl, iceberg_ddl
from ddbio.errors import OptionError, SchemaError

NAME = TableName("shop", "orders")
SCHEMA = pa.schema(
    [
        ("pk", pa.string()),
        ("it's", pa.decimal128(38, 2)),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("m", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.float64()))])),
        ("tags", pa.map_(pa.string(), pa.bool_())),
        ("day", pa.date32()),
        ("Tenant", pa.string()),
    ]
)
PARTITIONS = (("2026-11-01", "a/b"), ("2026-11-02", None))
FOLDERS = ("day=2026-11-01/Tenant=a%2Fb", "day=2026-11-02/Tenant=__HIVE_DEFAULT_PARTITION__")


def definition(names=("day", "Tenant"), schema=SCHEMA, partitions=PARTITIONS, folders=FOLDERS, **others):
    """Return the table of a folder on S3."""
    columns, partition_columns = columns_of(schema, names)
    members = {"location": "s3://lake/o'r", "format": "parquet", "partitions": partitions, "folders": folders}
    return TableDefinition(columns=columns, partition_columns=partition_columns, **members | others)


def plain(schema, file_format="parquet", **others):
    """Return a table without partitions."""
    return definition((), schema, (), (), format=file_format, **others)


# https://docs.aws.amazon.com/redshift/latest/dg/r_CREATE_EXTERNAL_TABLE.html
# https://docs.aws.amazon.com/redshift/latest/dg/r_CREATE_EXTERNAL_SCHEMA.html
# https://docs.aws.amazon.com/redshift/latest/dg/r_ALTER_TABLE_external-table.html
REDSHIFT = """\
CREATE EXTERNAL SCHEMA IF NOT EXISTS "shop"
FROM DATA CATALOG DATABASE 'shop' IAM_ROLE default
CREATE EXTERNAL DATABASE IF NOT EXISTS;

CREATE EXTERNAL TABLE "shop"."orders" (
  "pk" varchar(65535),
  "it's" decimal(38, 2),
  "raw" varbyte(1024000),
  "at" timestamp,
  "m" struct<x:integer, y:array<double precision>>,
  "tags" map<varchar(65535), boolean>
)
PARTITIONED BY ("day" date, "tenant" varchar(65535))
ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'
WITH SERDEPROPERTIES ('serialization.format'='1')
STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat' \
OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat'
LOCATION 's3://lake/o''r/';

ALTER TABLE "shop"."orders" ADD IF NOT EXISTS
  PARTITION ("day" = '2026-11-01', "tenant" = 'a/b') LOCATION 's3://lake/o''r/day=2026-11-01/Tenant=a%2Fb/'
  PARTITION ("day" = '2026-11-02', "tenant" = '__HIVE_DEFAULT_PARTITION__') \
LOCATION 's3://lake/o''r/day=2026-11-02/Tenant=__HIVE_DEFAULT_PARTITION__/';
"""

# https://trino.io/docs/current/connector/hive.html
TRINO = """\
-- timestamp(3) is for hive.timestamp-precision=MILLISECONDS, the default.
CREATE SCHEMA IF NOT EXISTS "shop";

CREATE TABLE IF NOT EXISTS "shop"."orders" (
  "pk" varchar,
  "it's" decimal(38, 2),
  "raw" varbinary,
  "at" timestamp(3),
  "m" row("x" integer, "y" array(double)),
  "tags" map(varchar, boolean),
  "day" date,
  "tenant" varchar
)
WITH (
  format = 'PARQUET',
  external_location = 's3://lake/o''r/',
  partitioned_by = ARRAY['day', 'tenant']
);

CALL system.sync_partition_metadata(schema_name => 'shop', table_name => 'orders', mode => 'FULL', \
case_sensitive => false);
"""

# https://docs.snowflake.com/en/sql-reference/sql/create-external-table
# https://docs.snowflake.com/en/sql-reference/sql/create-stage
SNOWFLAKE = """\
-- Replace s3_integration: https://docs.snowflake.com/en/sql-reference/sql/create-storage-integration
-- Some characters are escaped in the values of "TENANT": %2F is /.
CREATE SCHEMA IF NOT EXISTS "SHOP";

CREATE STAGE IF NOT EXISTS "SHOP"."ORDERS_STAGE"
  URL = 's3://lake/o''r/'
  STORAGE_INTEGRATION = s3_integration;

CREATE EXTERNAL TABLE IF NOT EXISTS "SHOP"."ORDERS" (
  "PK" VARCHAR AS (value['pk']::VARCHAR),
  "it's" NUMBER(38, 2) AS (value['it''s']::NUMBER(38, 2)),
  "RAW" BINARY AS (value['raw']::BINARY),
  "AT" TIMESTAMP_LTZ AS (value['at']::TIMESTAMP_LTZ),
  "M" VARIANT AS (value['m']::VARIANT),
  "TAGS" VARIANT AS (value['tags']::VARIANT),
  "DAY" DATE AS (CAST(NULLIF(SPLIT_PART(SPLIT_PART('/' || METADATA$FILENAME, '/day=', 2), '/', 1), \
'__HIVE_DEFAULT_PARTITION__') AS DATE)),
  "TENANT" VARCHAR AS (CAST(NULLIF(SPLIT_PART(SPLIT_PART('/' || METADATA$FILENAME, '/Tenant=', 2), '/', 1), \
'__HIVE_DEFAULT_PARTITION__') AS VARCHAR))
)
PARTITION BY ("DAY", "TENANT")
LOCATION = @"SHOP"."ORDERS_STAGE"
AUTO_REFRESH = FALSE
PATTERN = '(.*/)?part-[^/]*[.]parquet[^/]*'
FILE_FORMAT = (TYPE = PARQUET BINARY_AS_TEXT = FALSE USE_LOGICAL_TYPE = TRUE);
"""


@pytest.mark.parametrize(("dialect", "expected"), [("redshift", REDSHIFT), ("trino", TRINO), ("snowflake", SNOWFLAKE)])
def test_a_table_with_partitions_is_complete(dialect, expected):
    """Types, quotes, escaped values, the null partition and the location are in each dialect's syntax."""
    assert ddl(NAME, definition(), dialect) == expected


TYPES = [
    (pa.int8(), "smallint", "tinyint", "NUMBER(38, 0)"),
    (pa.int16(), "smallint", "smallint", "NUMBER(38, 0)"),
    (pa.int32(), "integer", "integer", "NUMBER(38, 0)"),
    (pa.int64(), "bigint", "bigint", "NUMBER(38, 0)"),
    (pa.uint64(), "decimal(20, 0)", "decimal(20, 0)", "NUMBER(20, 0)"),
    (pa.float32(), "real", "real", "FLOAT"),
    (pa.float64(), "double precision", "double", "FLOAT"),
    (pa.bool_(), "boolean", "boolean", "BOOLEAN"),
    (pa.large_string(), "varchar(65535)", "varchar", "VARCHAR"),
    (pa.date32(), "date", "date", "DATE"),
    (pa.timestamp("ms"), "timestamp", "timestamp(3)", "TIMESTAMP_NTZ"),
]


@pytest.mark.parametrize(("arrow_type", "redshift", "trino", "snowflake"), TYPES)
def test_every_type_has_one_that_stores_all_its_values(arrow_type, redshift, trino, snowflake):
    """An Arrow type has the smallest type of the engine that can store all its values."""
    table = plain(pa.schema([("x", arrow_type)]))
    assert f'  "x" {redshift}\n' in ddl(NAME, table, "redshift")
    assert f'  "x" {trino}\n' in ddl(NAME, table, "trino")
    assert f"  \"X\" {snowflake} AS (value['x']::{snowflake})\n" in ddl(NAME, table, "snowflake")


def test_columns_of_csv_are_text():
    """CSV columns are text by position, after a header; partition columns keep their types."""
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
    table = definition(("day",), schema, (("2026-11-01",),), ("day=2026-11-01",), format="csv")
    assert '"n" varchar(65535)\n' in ddl(NAME, table, "redshift")
    assert "TABLE PROPERTIES ('skip.header.line.count'='1')" in ddl(NAME, table, "redshift")
    trino = ddl(NAME, table, "trino")
    assert '"n" varchar,\n  "day" date\n' in trino
    assert "format = 'CSV'" in trino
    assert "skip_header_line_count = 1" in trino
    snowflake = ddl(NAME, table, "snowflake")
    assert '"N" VARCHAR AS (value:c2::VARCHAR)' in snowflake
    assert "SKIP_HEADER = 1" in snowflake


def test_binary_values_of_json_are_base64():
    """JSON has binary as text: Redshift shows the text, and Snowflake decodes it."""
    table = plain(pa.schema([("x", pa.binary())]), "json")
    assert '"x" varchar(65535) /* Base64 */\n' in ddl(NAME, table, "redshift")
    assert "\"X\" BINARY AS (TO_BINARY(value['x']::VARCHAR, 'BASE64'))" in ddl(NAME, table, "snowflake")
    assert "format = 'OPENX_JSON'" in ddl(NAME, table, "trino")


@pytest.mark.parametrize(
    ("arrow_type", "file_format", "what"),
    [
        (pa.list_(pa.list_(pa.string())), "parquet", "lists of lists or maps"),
        (pa.struct([("y", pa.list_(pa.map_(pa.string(), pa.string())))]), "orc", "lists of lists or maps"),
        (pa.list_(pa.string()), "avro", "nested data in avro files"),
        (pa.binary(), "avro", "binary in avro files"),
        (pa.date32(), "avro", "date in avro files"),
    ],
)
def test_types_that_spectrum_lacks_are_errors(arrow_type, file_format, what):
    """The message names the column and the type."""
    with pytest.raises(SchemaError, match=f"x: Redshift Spectrum has no type for {what}"):
        ddl(NAME, plain(pa.schema([("x", arrow_type)]), file_format), "redshift")


@pytest.mark.parametrize("dialect", ["redshift", "trino", "snowflake"])
def test_types_that_hive_lacks_are_errors(dialect):
    """Members of structs need a name, and decimals at most 38 digits."""
    with pytest.raises(SchemaError, match=r"m\.a b: a catalog cannot name a member"):
        ddl(NAME, plain(pa.schema([("m", pa.struct([("a b", pa.string())]))])), "redshift")
    with pytest.raises(SchemaError, match="x: Hive has no decimal256"):
        ddl(NAME, plain(pa.schema([("x", pa.decimal256(50, 2))])), dialect)


def test_a_local_folder_is_only_for_trino():
    """Redshift and Snowflake read from S3; s3a is S3."""
    local, hadoop = (plain(pa.schema([("x", pa.int64())]), location=name) for name in ("/data/o", "s3a://lake/o"))
    assert "external_location = 'file:///data/o/'" in ddl(NAME, local, "trino")
    for dialect in ("redshift", "snowflake"):
        with pytest.raises(OptionError, match="reads only from S3, and not from /data/o"):
            ddl(NAME, local, dialect)
        assert "'s3://lake/o/'" in ddl(NAME, hadoop, dialect)


def test_partitions_of_redshift_are_added_by_the_hundred():
    """A statement adds at most 100 partitions; integers have no quotes, and a null integer is an error."""
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64())])
    values = [(str(number),) for number in range(201)]
    text = ddl(NAME, definition(("n",), schema, values, tuple(f"n={n}" for (n,) in values)), "redshift")
    statements = text.split("ALTER TABLE")[1:]
    assert [statement.count("PARTITION (") for statement in statements] == [100, 100, 1]
    assert """PARTITION ("n" = 7) LOCATION 's3://lake/o''r/n=7/'""" in text
    with pytest.raises(OptionError, match="partition column 'n' is null"):
        ddl(NAME, definition(("n",), schema, ((None,),), ("n=__HIVE_DEFAULT_PARTITION__",)), "redshift")


def test_a_partition_column_with_another_name_than_its_folder_is_registered():
    """If an attribute has the name of a folder, each partition has its location; Snowflake reads the folder."""
    schema = pa.schema([("pk", pa.string()), ("year", pa.string())])
    columns, partition_columns = columns_of(schema, ["year"], {"year": "year"}, are_attributes=True)
    table = TableDefinition("s3://lake/log", "parquet", columns, partition_columns, (("2026",),), ("year=2026",))
    (column,) = (partition_column.name for partition_column in partition_columns)
    assert column != "year"
    assert f"""("{column}" = 2026) LOCATION 's3://lake/log/year=2026/'""" in ddl(NAME, table, "redshift")
    assert (
        "CALL system.register_partition(schema_name => 'shop', table_name => 'orders', "
        f"partition_columns => ARRAY['{column}'], partition_values => ARRAY['2026'], "
        "location => 's3://lake/log/year=2026');"
    ) in ddl(NAME, table, "trino")
    assert f'"{column.upper()}" NUMBER(38, 0) AS (CAST(' in ddl(NAME, table, "snowflake")
    assert "'/year=', 2)" in ddl(NAME, table, "snowflake")


def test_names_have_a_catalog():
    """Trino and Snowflake accept catalog.schema.table; procedures are those of the catalog."""
    name = TableName("lake.shop", "orders")
    trino = ddl(name, definition(), "trino")
    assert 'CREATE TABLE IF NOT EXISTS "lake"."shop"."orders"' in trino
    assert """CALL "lake".system.sync_partition_metadata(schema_name => 'shop'""" in trino
    assert 'CREATE EXTERNAL TABLE IF NOT EXISTS "LAKE"."SHOP"."ORDERS"' in ddl(name, definition(), "snowflake")


def test_columns_of_orc_are_found_by_name_in_trino():
    """A comment names the setting; columns of ORC are otherwise read by position."""
    table = plain(pa.schema([("x", pa.int64())]), "orc")
    assert ddl(NAME, table, "trino").startswith("-- Set hive.orc.use-column-names=true")


def test_lake_tables_are_registered_in_trino_only():
    """Trino registers Delta and Iceberg by their location; other engines need a catalog."""
    schema = pa.schema([("pk", pa.string())])
    registered = (
        "CALL system.register_table(schema_name => 'shop', table_name => 'orders', table_location => 's3://lake/t');"
    )
    assert registered in delta_ddl(NAME, schema, "s3://lake/t", "trino")
    assert registered in iceberg_ddl(NAME, "s3://lake/t", "trino", "s3://lake/t/metadata/1.json")
    for dialect in ("redshift", "snowflake"):
        with pytest.raises(OptionError, match=f"{dialect} reads Delta tables through a catalog"):
            delta_ddl(NAME, schema, "s3://lake/t", dialect)
        with pytest.raises(OptionError, match=f"{dialect} reads Iceberg tables through a catalog"):
            iceberg_ddl(NAME, "s3://lake/t", dialect, "")
    hudi = {"StorageDescriptor": {"Location": "s3://lake/t"}, "PartitionKeys": []}
    for dialect in ("redshift", "snowflake", "trino"):
        with pytest.raises(OptionError, match="give athena, hive or spark"):
            hudi_ddl(NAME, hudi, [], dialect)
