"""Folders as Glue tables: created, extended, and repeated without effect, over moto's HTTP endpoints."""

import json
import uuid

import boto3
import pyarrow as pa
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.catalog import sync as catalogs
from ddbio.cli.main import cli
from ddbio.errors import DdbioError, OptionError, SchemaError, TargetError
from ddbio.options import parse_options
from ddbio.scan.options import ScanToFilesOptions
from ddbio.testing import MotoServer
from ddbio.testing.export import ExportWriter

BUCKET = "lake"


@pytest.fixture(scope="module")
def reach(fake):
    """Return the connection to the fake and to moto's S3 and Glue."""
    with MotoServer() as moto, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        boto3.client("s3", endpoint_url=moto.endpoint_url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield {
            "endpoint_url": fake.endpoint_url,
            "s3_endpoint_url": moto.endpoint_url,
            "glue_endpoint_url": moto.endpoint_url,
            "region": "us-east-1",
        }


@pytest.fixture
def glue(reach):
    """Return a client of Glue."""
    return boto3.client("glue", endpoint_url=reach["glue_endpoint_url"], region_name="us-east-1")


def orders(fake, name, count, **others):
    """Load a table of orders of three days, one of which is unknown."""
    plain = {"tags": {"SS": ["a"]}, "at": {"M": {"x": {"N": "1"}}}, **others}
    items = [{"pk": {"S": f"o{n}"}, "total": {"N": f"{n}.5"}, **plain} for n in range(count)]
    items = [item | ({"day": {"S": f"2024-05-0{n % 3}"}} if n % 3 else {}) for n, item in enumerate(items)]
    fake.load(name, [json.dumps(item).encode() for item in items], "pk:S")


def test_a_scan_makes_its_table_and_its_partitions(fake, reach, glue):
    """Columns have Hive's types, partitions their folders; a second scan adds columns at the end, and partitions."""
    orders(fake, "orders", 30)
    dest, catalog = f"s3://{BUCKET}/orders", "glue://shop.orders"
    report = ddbio.scan_to_files("orders", dest, partition_by="day", catalog=catalog, engine="local", **reach)
    assert report.catalog.to_dict() == {
        "table": catalog, "action": "created", "columns_added": (),
        "partitions": 3, "partitions_added": 3, "partitions_removed": 0, "stale_files": 0, "partitions_moved": 0,
    }  # fmt: skip
    table = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
    types = {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}
    assert types == {
        "pk": "string", "total": "decimal(38,1)", "tags": "array<string>", "at": "struct<x:bigint>",
        "_rescue": "string",
    }  # fmt: skip
    assert table["PartitionKeys"] == [{"Name": "day", "Type": "string"}]
    assert table["StorageDescriptor"]["Location"] == f"{dest}/"
    partitions = glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"]
    locations = {partition["Values"][0]: partition["StorageDescriptor"]["Location"] for partition in partitions}
    assert locations == {
        day: f"{dest}/day={day}/" for day in ("2024-05-01", "2024-05-02", "__HIVE_DEFAULT_PARTITION__")
    }
    orders(fake, "orders-more", 4, new={"N": "1"}, day={"S": "2024-06-01"})
    again = ddbio.scan_to_files(
        "orders-more", dest, mode="append", partition_by="day", catalog=catalog, engine="local", **reach
    )
    assert (again.catalog.action, again.catalog.columns_added) == ("updated", ("new",))
    assert (again.catalog.partitions, again.catalog.partitions_added) == (4, 1)
    columns = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["StorageDescriptor"]["Columns"]
    assert [column["Name"] for column in columns] == [*types, "new"]
    same = ddbio.sync_catalog(dest, catalog, **without_dynamodb(reach))
    assert (same.action, same.partitions, same.partitions_added, same.partitions_removed) == ("unchanged", 4, 0, 0)


def test_a_compaction_makes_or_keeps_its_table(fake, reach, glue):
    """After a compaction the table exists with its partitions; one of another format is refused beforehand."""
    orders(fake, "small", 9)
    dest, catalog = f"s3://{BUCKET}/small", "glue://shop.small"
    for _ in range(2):
        ddbio.scan_to_files("small", dest, mode="append", partition_by="day", engine="local", **reach)
    connection = without_dynamodb(reach)
    made = ddbio.compact(dest, catalog=catalog, engine="local", **connection)
    assert (made.files_before, made.files_after, made.catalog.action, made.catalog.partitions_added) == (
        6,
        3,
        "created",
        3,
    )
    with pytest.raises(TargetError, match="parquet"):
        ddbio.compact(dest, catalog=catalog, format="orc", engine="local", **connection)
    again = ddbio.compact(dest, catalog=catalog, engine="local", **connection)
    assert (again.files_rewritten, again.catalog.action, again.catalog.partitions) == (0, "unchanged", 3)
    assert glue.get_table(DatabaseName="shop", Name="small")["Table"]["StorageDescriptor"]["Location"] == f"{dest}/"


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_a_publication_moves_its_table(fake, reach, glue, partition_by):
    """Table and partitions refer to the newest version after a publication, another one and a rollback."""
    name = "by-day" if partition_by else "whole"
    orders(fake, name, 9)
    source, dest, catalog = (
        f"s3://{BUCKET}/{name}-new",
        f"s3://{BUCKET}/{name}",
        f"glue://shop.{name}".replace("-", "_"),
    )
    connection, store, versions = without_dynamodb(reach), without_dynamodb(reach, "glue_endpoint_url"), []
    more = {"partition_by": partition_by, "mode": "append", "engine": "local", **reach}

    def locations():
        identifiers = {"DatabaseName": "shop", "TableName": name.replace("-", "_")}
        table = glue.get_table(DatabaseName="shop", Name=identifiers["TableName"])["Table"]
        parts = glue.get_partitions(**identifiers)["Partitions"] if partition_by else []
        return [definition["StorageDescriptor"]["Location"] for definition in (table, *parts)]

    for action in ("created", "updated"):
        ddbio.scan_to_files(name, source, **more)
        report = ddbio.publish(source, dest, catalog=catalog, **connection)
        assert (report.catalog.action, report.catalog.stale_files) == (action, 0)
        versions.append(locations())
        version = f"{dest}/_versions/{report.job_id}/"
        assert all(location.startswith(version) for location in versions[-1])
        assert {path.rpartition("/")[0] + "/" for path in ddbio.list_files(dest, **store).paths} == set(
            versions[-1][1:] or versions[-1]
        )
    assert report.catalog.partitions_moved == len(versions[-1]) - 1
    ddbio.rollback(dest, catalog=catalog, **connection)
    assert locations() == versions[0] != versions[1]
    with pytest.raises(TargetError, match="is the table of"):
        ddbio.publish(source, f"{dest}-other", catalog=catalog, **connection)


def without_dynamodb(reach, *others):
    """Return the connection to S3, and to Glue if it is not left out, too."""
    return {name: value for name, value in reach.items() if name not in {"endpoint_url", *others}}


def test_partitions_without_files_are_removed(fake, reach, glue):
    """Partitions whose files a later job has replaced are removed; those of other programs stay."""
    orders(fake, "gone", 30)
    dest, catalog = f"s3://{BUCKET}/gone", "glue://shop.gone"
    options = {"partition_by": "day", "catalog": catalog, "engine": "local", **reach}
    ddbio.scan_to_files("gone", dest, **options)
    other = {"Values": ["other"], "StorageDescriptor": {"Location": "s3://elsewhere/day=other/"}}
    glue.batch_create_partition(DatabaseName="shop", TableName="gone", PartitionInputList=[other])
    schema = ddbio.infer_schema("gone", endpoint_url=reach["endpoint_url"])
    orders(fake, "kept", 1, day={"S": "2024-05-02"})
    report = ddbio.scan_to_files("kept", dest, mode="overwrite", schema=schema, **options)
    assert (report.catalog.partitions, report.catalog.partitions_added, report.catalog.partitions_removed) == (1, 0, 2)
    partitions = glue.get_partitions(DatabaseName="shop", TableName="gone")["Partitions"]
    assert len(partitions) == 2


def test_files_that_are_not_live_are_reported(fake, reach, caplog):
    """Engines that list the folder read replaced files twice until a vacuum: the files are counted."""
    fake.load("twice", [b'{"pk":{"S":"a"}}'], "pk:S")
    dest, options = f"s3://{BUCKET}/twice", {"engine": "local", **reach}
    for mode in ("error", "append"):
        ddbio.scan_to_files("twice", dest, mode=mode, **options)
    assert ddbio.compact(dest, keep_old=True, **without_dynamodb(reach, "glue_endpoint_url")).files_after == 1
    report = ddbio.sync_catalog(dest, "glue://shop.twice", **without_dynamodb(reach))
    assert report.stale_files == 2
    assert "2 files that are not live" in caplog.text
    assert "ddbio vacuum s3://lake/twice" in caplog.text


def test_many_partitions_are_registered_in_groups(fake, reach, glue):
    """More partitions than one request accepts are all registered, by their escaped names."""
    items = ({"pk": {"S": str(n)}, "tenant": {"S": f"a/b {n}%"}} for n in range(230))
    fake.load("tenants", [json.dumps(item).encode() for item in items], "pk:S")
    options = {"partition_by": "tenant", "catalog": "glue://shop.tenants", "engine": "local", **reach}
    report = ddbio.scan_to_files("tenants", f"s3://{BUCKET}/tenants", **options)
    assert report.catalog.partitions_added == 230
    pages = glue.get_paginator("get_partitions").paginate(DatabaseName="shop", TableName="tenants")
    partitions = [partition for page in pages for partition in page["Partitions"]]
    assert {partition["Values"][0] for partition in partitions} == {f"a/b {n}%" for n in range(230)}
    assert partitions[0]["StorageDescriptor"]["Location"].startswith(f"s3://{BUCKET}/tenants/tenant=a%2Fb ")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"catalog": "shop.orders"}, OptionError, "write glue://database.table"),
        ({"catalog": "glue://Shop.orders"}, OptionError, "use lower case"),
        ({"types": "total=int64"}, SchemaError, r"total: glue://shop\.new has it as string"),
        ({"partition_by": "pk"}, TargetError, "is partitioned by nothing, the files by pk"),
    ],
)
def test_what_cannot_be_registered_is_refused_before_the_job(fake, reach, options, error, message):
    """A conflict with the catalog is an error before anything has been read or written."""
    fake.load("few", [b'{"pk":{"S":"a"},"total":{"N":"1"}}'], "pk:S")
    dest, options_of_catalog = (
        f"s3://{BUCKET}/new",
        {"catalog": "glue://shop.new", "mode": "overwrite", "engine": "local", **reach},
    )
    before = ddbio.scan_to_files("few", dest, types="total=string", **options_of_catalog)
    with pytest.raises(error, match=message):
        ddbio.scan_to_files("few", dest, **options_of_catalog | options)
    assert ddbio.list_files(dest, **without_dynamodb(reach, "glue_endpoint_url")).job_id == before.job_id


def test_odd_names_and_other_folders_are_errors(fake, reach, tmp_path):
    """A member that no type can name, a table of another folder, and a local folder are refused by name."""
    fake.load("cases", [b'{"pk":{"S":"a"},"m":{"M":{"a:b":{"S":"1"}}}}'], "pk:S")
    options = {"engine": "local", **reach}
    with pytest.raises(SchemaError, match=r"m\.a:b: a catalog cannot name a member"):
        ddbio.scan_to_files("cases", f"s3://{BUCKET}/cases", catalog="glue://shop.cases", **options)
    ddbio.scan_to_files("cases", f"s3://{BUCKET}/cases", types="m=json", catalog="glue://shop.cases", **options)
    with pytest.raises(TargetError, match="is the table of s3://lake/cases, not of s3://lake/others"):
        ddbio.scan_to_files("cases", f"s3://{BUCKET}/others", types="m=json", catalog="glue://shop.cases", **options)
    with pytest.raises(OptionError, match="is not on S3"):
        ddbio.scan_to_files("cases", tmp_path, types="m=json", catalog="glue://shop.cases", **options)


def test_a_failed_registration_names_the_command_to_repeat_it(fake, reach):
    """The files stay, the error names the command, and that command registers them."""
    fake.load("late", [b'{"pk":{"S":"a"}}'], "pk:S")
    dest, catalog = f"s3://{BUCKET}/late", "glue://shop.late"
    report = ddbio.scan_to_files("late", dest, engine="local", **reach)
    # The endpoint is not Glue, and refuses the call.
    broken = {**reach, "glue_endpoint_url": reach["endpoint_url"], "table": "late", "dest": dest, "catalog": catalog}
    with pytest.raises(DdbioError, match=r"'ddbio catalog sync s3://lake/late glue://shop\.late' registers them"):
        catalogs.with_catalog(parse_options(ScanToFilesOptions, broken), report)
    flags = [word for name, value in without_dynamodb(reach).items() for word in (f"--{name.replace('_', '-')}", value)]
    done = CliRunner().invoke(cli, ["catalog", "sync", dest, catalog, *flags, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["action"] == "created"


def test_exports_are_registered(reach, tmp_path):
    """Reading an export, and folding one, register the written files."""
    full = ExportWriter(tmp_path, seed=1).full([{"pk": {"S": "a"}, "n": {"N": "1"}}])
    options = {"engine": "local", **without_dynamodb(reach)}
    read = ddbio.read_export_to_files(full, f"s3://{BUCKET}/read", catalog="glue://shop.read", **options)
    folded = ddbio.fold_exports_to_files(
        full, [], f"s3://{BUCKET}/fold", catalog="glue://shop.fold", format="orc", **options
    )
    assert (read.catalog.action, folded.catalog.action) == ("created", "created")


@pytest.fixture
def events(fake, reach):
    """Return a table with a stream, and functions that write its items and its log."""
    client = boto3.client("dynamodb", endpoint_url=reach["endpoint_url"], region_name="us-east-1")
    name = f"events-{uuid.uuid4().hex}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )

    def write(log, **items):
        for key, item in items.items():
            client.put_item(TableName=name, Item={"pk": {"S": key}, **item})
        ddbio.capture(name, log, available_now=True, **{k: v for k, v in reach.items() if k != "glue_endpoint_url"})

    return name, write


@pytest.mark.parametrize(
    "attribute", ["Month", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("year", "day", "HOUR", "hour"))]
)
def test_a_log_shows_attributes_and_its_hours(reach, glue, events, attribute):
    """Each attribute and each folder has its own column; the log grows, and so does the table."""
    name, write = events
    log, table = f"s3://{BUCKET}/{name}", name.replace("-", "_")
    write(log, a={attribute: {"N": "7"}})
    report = ddbio.sync_catalog(log, f"glue://shop.{table}", **without_dynamodb(reach))
    assert (report.action, report.partitions_added) == ("created", 1)
    definition = glue.get_table(DatabaseName="shop", Name=table)["Table"]
    columns = {column["Name"]: column["Type"] for column in definition["StorageDescriptor"]["Columns"]}
    assert columns[attribute.lower()] == "bigint"
    keys = [column["Name"] for column in definition["PartitionKeys"]]
    assert attribute.lower() not in keys
    assert [key.partition("_")[0] for key in keys] == ["year", "month", "day", "hour"]
    (partition,) = glue.get_partitions(DatabaseName="shop", TableName=table)["Partitions"]
    assert "/year=" in partition["StorageDescriptor"]["Location"]
    assert ddbio.sync_catalog(log, f"glue://shop.{table}", **without_dynamodb(reach)).action == "unchanged"


def test_a_log_has_the_columns_of_all_its_files(reach, glue, events):
    """Columns that a later run of the capture declares are in the table, and in the existing partitions."""
    name, write = events
    log, table = f"s3://{BUCKET}/{name}", name.replace("-", "_")
    write(log, a={"n": {"N": "1"}})
    catalog_options = {"catalog": f"glue://shop.{table}", **without_dynamodb(reach)}
    ddbio.sync_catalog(log, catalog_options.pop("catalog"), **catalog_options)
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64()), ("more", pa.string())])
    client = boto3.client("dynamodb", endpoint_url=reach["endpoint_url"], region_name="us-east-1")
    client.put_item(TableName=name, Item={"pk": {"S": "b"}, "more": {"S": "x"}})
    connection = {key: value for key, value in reach.items() if key != "glue_endpoint_url"}
    ddbio.capture(name, log, available_now=True, schema=schema, **connection)
    report = ddbio.sync_catalog(log, f"glue://shop.{table}", **catalog_options)
    assert (report.action, report.columns_added, report.partitions_moved) == ("updated", ("more",), 1)
    for partition in glue.get_partitions(DatabaseName="shop", TableName=table)["Partitions"]:
        assert "more" in [column["Name"] for column in partition["StorageDescriptor"]["Columns"]]


ODD = ["x" * 300, "é" * 200, "a\nb", "it's:<odd>", "_KEY", "a.b"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("delta", ODD),
        *(pytest.param(kind, [name], marks=pytest.mark.nightly) for kind in ("delta", "iceberg") for name in ODD),
    ],
)
def test_no_attribute_blocks_the_registration_of_a_lake_table(reach, glue, events, kind, names):
    """An item with a name that no catalog accepts, at the top or nested, is applied, registered and verified."""
    source, write = events
    log, folder, table = f"s3://{BUCKET}/{source}", f"s3://{BUCKET}/{source}-lake", source.replace("-", "_")
    named = {name: {"S": "v"} for name in names}
    for number, item in enumerate(({"n": {"N": "1"}}, {**named, "m": {"M": named}})):
        write(log, **{f"k{number}": item})
        ddbio.apply(log, folder, format=kind, catalog=f"glue://shop.{table}", **without_dynamodb(reach))
    columns = glue.get_table(DatabaseName="shop", Name=table)["Table"]["StorageDescriptor"]["Columns"]
    assert all(0 < len(column["Name"].encode()) <= 255 for column in columns)
    connection = {key: value for key, value in reach.items() if key != "glue_endpoint_url"}
    assert ddbio.verify(source, folder, format=kind, **connection).equal
