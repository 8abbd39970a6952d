"""Tables of a catalog: types, names, changes and statements, without any service."""

import pyarrow as pa
import pytest

from ddbio.catalog.ddl import ddl
from ddbio.catalog.definition import (
    TableDefinition,
    TableName,
    columns_of,
    hive_type,
    merge_schemas,
    nameable,
    parse_table_name,
)
from ddbio.catalog.glue import PartitionChanges, changed_input, partition_changes, partition_inputs, table_input
from ddbio.catalog.lake import changed_lake_input, hudi_input, hudi_partitions, lake_input
from ddbio.errors import OptionError, SchemaError, TargetError

NAME = TableName("shop", "orders")
SCHEMA = pa.schema([("pk", pa.string()), ("it's", pa.decimal128(38, 2)), ("day", pa.string()), ("n", pa.int64())])


def definition(names=(), values=(), schema=SCHEMA, **others):
    """Return the table of a folder on S3."""
    columns, partitions = columns_of(schema, names)
    members = {"location": "s3://lake/o'r", "format": "parquet", **others}
    return TableDefinition(columns=columns, partition_columns=partitions, partitions=tuple(values), **members)


@pytest.mark.parametrize(
    ("arrow_type", "expected"),
    [
        (pa.int64(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float64(), "double"),
        (pa.decimal128(38, 9), "decimal(38,9)"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.date32(), "date"),
        (pa.large_string(), "string"),
        (pa.list_(pa.binary()), "array<binary>"),
        (pa.map_(pa.string(), pa.bool_()), "map<string,boolean>"),
        (pa.struct([("a", pa.list_(pa.struct([("b", pa.int32())])))]), "struct<a:array<struct<b:int>>>"),
    ],
)
def test_every_type_of_a_column_has_one_in_hive(arrow_type, expected):
    """An Arrow type becomes the Hive type that can store all its values."""
    assert hive_type(arrow_type, "x") == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("x", pa.time64("us"))], "x: Hive has no type for an Arrow time64"),
        ([("x", pa.decimal256(50, 2))], "x: Hive has no decimal256"),
        ([("Pk", pa.string()), ("pk", pa.string())], "'Pk' and 'pk' are one"),
        ([("m", pa.struct([("x", pa.string()), ("X", pa.string())]))], "'x' and 'X' of m are one"),
        ([("m", pa.struct([("a b", pa.string())]))], r"m\.a b: a catalog cannot name a member"),
        ([("x" * 256, pa.string())], "a catalog takes names of 1 to 255 characters"),
    ],
)
def test_what_a_catalog_cannot_hold_is_an_error(fields, message):
    """A type, a member or a pair of names that a catalog cannot store is named, with an advice."""
    with pytest.raises(SchemaError, match=message):
        table_input(NAME, definition(schema=pa.schema(fields)))


@pytest.mark.parametrize("text", ["shop.orders", "glue://shop", "glue://a.b.c", "glue://Shop.orders", "glue://a.b c"])
def test_only_names_that_glue_keeps_are_names(text):
    """Anything except ``glue://database.table`` in lower case is refused."""
    assert parse_table_name("glue://shop.orders") == NAME
    with pytest.raises(OptionError, match="catalog: "):
        parse_table_name(text)


def test_columns_are_only_added_at_the_end():
    """An existing table keeps its columns and other members; one with all columns is not changed."""
    existing = {**table_input(NAME, definition()), "Description": "ours", "VersionId": "3", "CreateTime": "now"}
    assert changed_input(NAME, existing, definition()) == (None, ())
    wider = pa.schema([("new", pa.bool_()), *SCHEMA])
    changed, added = changed_input(NAME, existing, definition(schema=wider))
    assert added == ("new",)
    assert [column["Name"] for column in changed["StorageDescriptor"]["Columns"]] == [*SCHEMA.names, "new"]
    assert (changed["Description"], changed.keys() & {"VersionId", "CreateTime"}) == ("ours", set())
    assert changed_input(NAME, existing, definition(schema=pa.schema([("pk", pa.string())]))) == (None, ())


def test_schemas_of_several_jobs_are_one():
    """Columns of later jobs follow those of the first, the rescue column is last, and no column has two types."""
    first, second = (pa.schema([(name, pa.string()), ("_rescue", pa.string())]) for name in "ab")
    assert merge_schemas([first, second]).names == ["a", "b", "_rescue"]
    with pytest.raises(SchemaError, match="a: files of the folder hold it as string and as int64"):
        merge_schemas([first, pa.schema([("a", pa.int64())])])


def test_statements_for_athena_and_hive():
    """Names, texts and folders are quoted, and partitions are detected by a repair."""
    text = ddl(NAME, definition(["day"], [("2024-05-01",)]), "hive")
    assert "CREATE EXTERNAL TABLE IF NOT EXISTS `shop`.`orders` (\n  `pk` string,\n  `it's` decimal(38,2)," in text
    assert "PARTITIONED BY (\n  `day` string\n)" in text
    assert r"LOCATION 's3://lake/o\'r/'" in text
    assert text.endswith("MSCK REPAIR TABLE `shop`.`orders`;\n")
    assert ddl(NAME, definition(), "athena").count(";") == 2
    csv = ddl(NAME, definition(format="csv"), "athena")
    assert "OpenCSVSerde" in csv
    assert "'skip.header.line.count' = '1'" in csv
    assert "`n` string" in csv


def test_projection_computes_partitions():
    """Days are an open range, integers a range, other values a list; values that cannot be listed are refused."""
    values = [("2024-05-01", "1", "eu"), ("2024-05-03", "12", "us")]
    table = definition(["day", "n", "pk"], values)
    text = ddl(NAME, table, "athena", projection=True)
    assert "'projection.day.type' = 'date', 'projection.day.format' = 'yyyy-MM-dd'" in text
    assert "'projection.day.range' = '2024-05-01,NOW'" in text
    assert "'projection.n.type' = 'integer', 'projection.n.range' = '1,12'" in text
    assert "'projection.pk.type' = 'enum', 'projection.pk.values' = 'eu,us'" in text
    assert r"'s3://lake/o\'r/day=${day}/n=${n}/pk=${pk}/'" in text
    assert "MSCK" not in text
    with pytest.raises(OptionError, match="pk is null in some rows"):
        ddl(NAME, definition(["pk"], [(None,)]), "athena", projection=True)
    with pytest.raises(OptionError, match="cannot list the values of pk"):
        ddl(NAME, definition(["pk"], [("a,b",)]), "athena", projection=True)
    for dialect, other in (("spark", table), ("athena", definition())):
        with pytest.raises(OptionError, match="projection is for Athena's tables with partitions"):
            ddl(NAME, other, dialect, projection=True)
    padded = ddl(NAME, definition(["month"], [("01",), ("12",)]), "athena", projection=True)
    assert "'projection.month.range' = '1,12', 'projection.month.digits' = '2'" in padded


def test_duckdb_reads_what_it_can():
    """A view over the files is quoted for DuckDB; an unsupported format is an error."""
    text = ddl(NAME, definition(["day"], [("x",)]), "duckdb")
    assert "read_parquet('s3://lake/o''r/**/*.parquet', union_by_name = true, hive_partitioning = true" in text
    with pytest.raises(OptionError, match="DuckDB does not read orc"):
        ddl(NAME, definition(format="orc"), "duckdb")


def test_a_hudi_table_grows_and_keeps_members_of_other_programs():
    """New columns change the definition, the same ones do not; a Delta table in the folder is another table."""
    name, location = TableName("shop", "orders"), "s3://lake/orders"
    schema = pa.schema([pa.field("_key", pa.string()), pa.field("_b", pa.int32()), pa.field("n", pa.int64())])
    made = hudi_input(name, schema, "_b", location, "x" * 9000)
    parts = [value for key, value in made["Parameters"].items() if ".schema.part." in key]
    assert [len(part) for part in parts] == [4000, 4000, 1000]
    assert made["Parameters"]["spark.sql.sources.schema.numParts"] == "3"
    assert made["PartitionKeys"] == [{"Name": "_b", "Type": "int"}]
    assert [column["Name"] for column in made["StorageDescriptor"]["Columns"]][-3:] == [
        "_hoodie_file_name",
        "_key",
        "n",
    ]
    existing = {**made, "Parameters": {**made["Parameters"], "last_commit_time_sync": "7"}}
    assert changed_lake_input(name, existing, made) is None
    wider = hudi_input(name, schema.append(pa.field("m", pa.string())), "_b", location, "y")
    changed = changed_lake_input(name, existing, wider)
    assert changed["Parameters"]["last_commit_time_sync"] == "7"
    assert changed["StorageDescriptor"]["Columns"][-1] == {"Name": "m", "Type": "string"}
    with pytest.raises(TargetError, match="is the DELTA table of s3://lake/orders, not the HUDI table"):
        changed_lake_input(name, lake_input(name, schema, location), made)
    (partition,) = hudi_partitions(made, ["3", "3"]).values()
    assert (partition["Values"], partition["StorageDescriptor"]["Location"]) == (["3"], "s3://lake/orders/_b=3")


LOG = pa.schema(
    [("_op", pa.string()), ("_event_time", pa.timestamp("us", "UTC")), ("Year", pa.string()), ("hour", pa.int64())]
)
HOURS = ("year", "month", "day", "hour")
AMBIGUOUS = pa.struct([("A", pa.int64()), ("a", pa.int64())])


def log(values, schema=LOG):
    """Return the table of a log with changes of some hours."""
    parts = {name: name for name in HOURS}
    columns, partitions = columns_of(schema, HOURS, parts, are_attributes=True)
    folders = ["/".join(f"{name}={text}" for name, text in zip(HOURS, value, strict=True)) for value in values]
    return TableDefinition("s3://lake/log", "parquet", columns, partitions, tuple(values), tuple(folders))


@pytest.mark.parametrize("hour", [("2026", "11", "27", "12"), ("2026", "01", "01", "00"), ("2024", "12", "31", "23")])
def test_projection_covers_the_hours_to_come(hour):
    """All months, days and hours of two digits, and all years from the first one, regardless of the log's hours."""
    text = ddl(NAME, log([hour, ("2026", "12", "01", "01")], LOG.remove(3).remove(2)), "athena", projection=True)
    for part, span, digits in (
        ("month", "1,12", 2),
        ("day", "1,31", 2),
        ("hour", "0,23", 2),
        ("year", f"{hour[0]},9999", 4),
    ):
        assert f"'projection.{part}.range' = '{span}', 'projection.{part}.digits' = '{digits}'" in text
    assert "year=${year}/month=${month}/day=${day}/hour=${hour}/" in text


def test_folders_do_not_hide_attributes():
    """An attribute always keeps its name; the column of the folder has another one in every statement."""
    table = log([("2026", "11", "27", "12")])
    year, month, day, hour = (column.name for column in table.partition_columns)
    assert (month, day) == ("month", "day")
    assert {year, hour}.isdisjoint({"year", "hour"})
    definition_for_glue = table_input(NAME, table)
    assert [column["Name"] for column in definition_for_glue["StorageDescriptor"]["Columns"]] == [
        "_op",
        "_event_time",
        "year",
        "hour",
    ]
    assert [column["Name"] for column in definition_for_glue["PartitionKeys"]] == [year, "month", "day", hour]
    text = ddl(NAME, table, "athena", projection=True)
    assert f"year=${{{year}}}/month=${{month}}/day=${{day}}/hour=${{{hour}}}/" in text
    assert f"'projection.{hour}.range' = '0,23'" in text
    for dialect in ("athena", "hive", "spark", "unity"):
        statement = (
            f"PARTITION (`{year}` = 2026, `month` = 11, `day` = 27, `{hour}` = 12) LOCATION 's3://lake/log/year=2026/"
        )
        assert statement in ddl(NAME, table, dialect)
    assert "hive_partitioning = false" in ddl(NAME, table, "duckdb")
    assert "hive_partitioning = true" in ddl(NAME, log([], LOG.remove(3).remove(2)), "duckdb")


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        (("x" * 256, pa.string()), None),
        (("é" * 128, pa.string()), None),
        (("é" * 127, pa.string()), pa.string()),
        (("a\nb", pa.string()), None),
        ((" ", pa.string()), None),
        (("a b", pa.string()), pa.string()),
        (("PK", pa.string()), None),
        (("x", pa.time64("us")), None),
        (("m", pa.struct([("a:b", pa.string()), ("c", pa.string())])), pa.struct([("c", pa.string())])),
        (("m", pa.struct([("a b", pa.string())])), None),
        (("m", pa.struct([("s", AMBIGUOUS)])), pa.struct([("s", pa.struct([("A", pa.int64())]))])),
    ],
)  # fmt: skip
def test_lake_tables_are_registered_without_what_a_catalog_cannot_name(column, kept):
    """No attribute blocks the registration: the table's log has its columns, and the catalog those it can name."""
    schema = pa.schema([("pk", pa.string()), column])
    named = nameable(schema)
    assert named.names == (["pk"] if kept is None else ["pk", column[0]])
    assert kept is None or named.field(1).type == kept
    assert lake_input(NAME, schema, "s3://lake/t")["StorageDescriptor"]["Columns"][0] == {
        "Name": "pk",
        "Type": "string",
    }


def test_partitions_follow_their_table():
    """New columns, moved folders and missing files change partitions of the folder, and no others."""
    table = log([("2026", "11", "27", "12"), ("2026", "11", "27", "13"), ("2026", "11", "27", "14")])
    columns = [{"Name": "_op", "Type": "string"}, {"Name": "new", "Type": "bigint"}]
    wanted = partition_inputs(table, columns)
    first, second, third = wanted
    there = {
        values: {**partition, "Parameters": {"numRows": "7"}}
        for values, partition in partition_inputs(table, columns).items()
    }
    assert partition_changes(wanted, there, "s3://lake/log") == PartitionChanges([], [], [])
    for values, change in ((first, {"Columns": columns[:1]}), (second, {"Location": "s3://lake/log/_versions/x/"})):
        there[values] = {**there[values], "StorageDescriptor": {**there[values]["StorageDescriptor"], **change}}
    del there[third]
    there["gone",] = {"Values": ["gone"], "StorageDescriptor": {"Location": "s3://lake/log/year=1"}}
    there["other",] = {"Values": ["other"], "StorageDescriptor": {"Location": "s3://lake/log-of-others/"}}
    changes = partition_changes(wanted, there, "s3://lake/log")
    assert [partition["Values"] for partition in changes.new] == [list(third)]
    assert [partition["Values"] for partition in changes.changed] == [list(first), list(second)]
    assert all(partition["StorageDescriptor"]["Columns"] == columns for partition in changes.changed)
    assert all(partition["Parameters"] == {"numRows": "7"} for partition in changes.changed)
    assert changes.gone == [("gone",)]


def test_types_that_are_one_in_hive_are_one():
    """Files of several writers differ only in the width of offsets."""
    one, two = (pa.schema([("a", kind)]) for kind in (pa.string(), pa.large_string()))
    assert merge_schemas([one, two]).names == ["a"]
