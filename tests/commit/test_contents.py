"""A folder's contents decide how verbs read it, and whether they may change it."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
import shutil

import boto3
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.cdc.options import StreamEventOptions
from ddbio.cdc.stream_events import StreamEventLog
from ddbio.commit.contents import recognize
from ddbio.errors import DdbioError, DecodeError, NotFoundError, OptionError, TargetError
from ddbio.options import parse_options
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB, MotoServer

ROWS = pa.table({"id": ["a", "b", "c"], "v": pa.array([1, 2, 3])})
LIVE = [{"id": "a", "v": 1}, {"id": "c", "v": 30}]
"""What each table has at its end, whose older files hold more."""


def delta(folder):
    """Make a Delta table of another program, with a deleted row and an updated one."""
    deltalake.write_deltalake(folder, ROWS)
    table = deltalake.DeltaTable(folder)
    table.delete("id = 'b'")
    table.update({"v": "30"}, predicate="id = 'c'")


def delta_overwritten(folder):
    """Make a Delta table that was overwritten."""
    deltalake.write_deltalake(folder, ROWS)
    deltalake.write_deltalake(folder, pa.Table.from_pylist(LIVE), mode="overwrite")


def delta_partitioned(folder):
    """Make a Delta table whose partitions are not in its files, with a checkpoint."""
    deltalake.write_deltalake(folder, ROWS, partition_by=["v"])
    deltalake.write_deltalake(folder, pa.Table.from_pylist(LIVE), partition_by=["v"], mode="overwrite")
    deltalake.DeltaTable(folder).create_checkpoint()


def iceberg(folder, *parts, rename=None, **options):
    """Make an Iceberg table of a catalog, by appending parts."""
    catalog = InMemoryCatalog("any", warehouse=str(folder.parent / "warehouse"))
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.rows", parts[0].schema, location=f"file://{folder}", **options)
    for part in parts:
        table.append(part)
    if rename is not None:
        with table.update_schema() as update:
            rename(update)
    return table


def iceberg_rewritten(folder):
    """Make an Iceberg table, with a deleted row and an overwritten one."""
    table = iceberg(folder, ROWS)
    table.delete("id = 'b'")
    table.overwrite(pa.Table.from_pylist(LIVE[1:], ROWS.schema), "id = 'c'")


@contextlib.contextmanager
def logged():
    """Serve a table with a stream of the rows; yield a client, and the connection options of calls."""
    with FakeDynamoDB() as fake:
        options = {"endpoint_url": fake.endpoint_url, "region": "us-east-1"}
        client = boto3.client(
            "dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1", aws_access_key_id="any",
            aws_secret_access_key="any",
        )  # fmt: skip
        client.create_table(
            TableName="rows", BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )  # fmt: skip
        ddbio.write_table(ROWS, "rows", **options)
        yield client, options


def own(folder, table_format):
    """Make a lake table of ddbio with a deleted item and a changed one."""
    with logged() as (client, options):
        ddbio.scan_to_files("rows", folder, format=table_format, buckets=2, **options)
        client.delete_item(TableName="rows", Key={"id": {"S": "b"}})
        client.put_item(TableName="rows", Item={"id": {"S": "c"}, "v": {"N": "30"}})
        ddbio.capture("rows", folder.parent / "log", available_now=True, **options)
    ddbio.apply(folder.parent / "log", folder, format=table_format)


def stream(folder, compact=False):
    """Make the output of a Spark stream, with a file of a failed batch in addition to the committed ones."""
    folder.mkdir()
    (folder / "_spark_metadata").mkdir()
    for name, rows in (("part-0", LIVE[:1]), ("part-1", LIVE[1:]), ("part-2", ROWS.to_pylist())):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.c000.snappy.parquet")

    def entry(name, action="add"):
        path = f"file:///made%20elsewhere/{folder.name}/{name}.c000.snappy.parquet"
        return json.dumps({"path": path, "size": 1, "isDir": False, "modificationTime": 1, "action": action})

    log = folder / "_spark_metadata"
    if compact:
        (log / "0").write_text(f"v1\n{entry('part-2')}")
        (log / "1.compact").write_text(f"v1\n{entry('part-0')}")
        (log / "2").write_text(f"v1\n{entry('part-1')}\n{entry('gone')}\n{entry('gone', 'delete')}")
    else:
        (log / "0").write_text(f"v1\n{entry('part-0')}")
        (log / "1").write_text(f"v1\n{entry('part-1')}")
    (log / ".0.crc").write_text("x")


TABLES = {
    "delta": delta,
    "delta overwritten": delta_overwritten,
    "delta partitioned": delta_partitioned,
    "iceberg": iceberg_rewritten,
}
OTHERS = {"stream": stream, "stream compacted": lambda folder: stream(folder, compact=True)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder of each kind, made once; tests that change one copy it."""
    root = tmp_path_factory.mktemp("kinds")
    for name, make in {**TABLES, **OTHERS}.items():
        make(root / name.replace(" ", "-"))
    return root


@pytest.fixture(scope="module")
def target():
    """Serve a table; return the connection options, and a function that returns and deletes its rows."""
    with FakeDynamoDB() as fake:
        fake.load("rows", b"", "id:S")
        options = {"endpoint_url": fake.endpoint_url, "region": "us-east-1"}

        def rows():
            rows_of_table = ddbio.read_table("rows", **options)
            ddbio.write_table(rows_of_table.select(["id"]), "rows", mode="delete", **options)
            return sorted(rows_of_table.drop_columns(["_rescue"]).to_pylist(), key=lambda row: row["id"])

        yield options, rows


@pytest.mark.parametrize("name", [*TABLES, *OTHERS])
def test_verbs_read_the_files_of_the_metadata(made, target, tmp_path, name):
    """All verbs that read a folder read the rows of its newest version, and no row of invalid files."""
    folder, (options, rows) = made / name.replace(" ", "-"), target
    assert ddbio.load_files(folder, "rows", **options).written == len(LIVE)
    assert rows() == LIVE
    expected = pa.Table.from_pylist(LIVE)
    assert ddbio.digest(folder) == ddbio.digest(expected)
    assert ddbio.validate(folder, expected, key="id").equal
    assert ddbio.layout(folder).files == len(list_valid(folder))
    report = ddbio.write_import_files(folder, tmp_path / "import", key="id:S")
    assert report.items == len(LIVE)


@pytest.mark.parametrize("name", ["delta overwritten", "delta partitioned", "iceberg", *OTHERS])
def test_the_schema_is_that_of_the_valid_files(made, name):
    """Partition columns are columns, too."""
    names = ddbio.infer_schema(made / name.replace(" ", "-")).to_arrow().names
    assert {*names} == {"id", "v", "_rescue"}


def list_valid(folder):
    """Return the valid files of a folder, as listed by its own library."""
    if (folder / "_delta_log").exists():
        return deltalake.DeltaTable(folder).file_uris()
    return ["one", "other"]


def handler(**options):
    """Start the log of a Lambda handler."""
    return StreamEventLog(parse_options(StreamEventOptions, options), "arn:aws:dynamodb:eu-west-1:1:table/t/stream/1")


@pytest.mark.parametrize("name", [*TABLES, *OTHERS])
def test_verbs_do_not_change_what_others_keep(made, tmp_path, name, target):
    """A job that would replace, delete, copy or add files is refused with an alternative, and changes nothing."""
    folder, (options, _) = tmp_path / "copy", target
    shutil.copytree(made / name.replace(" ", "-"), folder)
    before = sorted((path, path.stat().st_size) for path in folder.rglob("*"))
    below, path_of_copy = next(path for path in folder.rglob("*.parquet")).parent, tmp_path / "given"
    path_of_copy.mkdir()
    (path_of_copy / "rows.jsonl").write_text('{"id":{"S":"a"}}\n')
    calls = [
        lambda: ddbio.compact(folder),
        lambda: ddbio.plan_compact(folder),
        lambda: ddbio.compact(below),
        lambda: ddbio.vacuum(folder, older_than="0s"),
        lambda: ddbio.rollback(folder),
        lambda: ddbio.publish(folder, tmp_path / "published"),
        lambda: ddbio.list_files(folder),
        lambda: ddbio.sync_catalog(folder, "glue://a.b"),
        lambda: ddbio.scan_to_files("rows", folder, mode="append", **options),
        lambda: ddbio.scan_to_files("rows", folder, mode="overwrite", overwrite_foreign=True, **options),
        lambda: ddbio.scan_to_files("rows", folder / "new", **options),
        lambda: ddbio.write_import_files(pa.table({"id": ["a"]}), folder / "new", key="id:S"),
        lambda: ddbio.write_table(pa.table({"id": ["a"]}), "rows", reject_to=str(folder), **options),
        lambda: ddbio.load_files(path_of_copy / "rows.jsonl", "rows", reject_to=f"{folder}/new", **options),
        lambda: ddbio.replay(path_of_copy, tmp_path / "log", reject_to=str(folder)),
        lambda: handler(dest=str(folder)),
        lambda: handler(dest=str(path_of_copy), reject_to=str(folder)),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"is (a|an|the) (Delta table|Iceberg table|output of a Spark stream)"):
            call()
    assert sorted((path, path.stat().st_size) for path in folder.rglob("*")) == before


@pytest.mark.parametrize("name", TABLES)
def test_a_part_of_a_table_is_not_the_table(made, target, name):
    """A file, a folder or a glob in a table is refused, and the message names the table; so is a folder with tables."""
    folder, (options, rows) = made / name.replace(" ", "-"), target
    file = next(folder.rglob("*.parquet"))
    for source in (file, f"{folder}/*/*", f"{folder}/**/*.parquet"):
        with pytest.raises(OptionError, match=r"only the table's metadata defines which rows are valid"):
            ddbio.load_files(source, "rows", **options)
    if file.parent != folder:
        with pytest.raises(OptionError, match="only the table's metadata"):
            ddbio.digest(file.parent)
    for source in (made, f"{made}/{folder.name[:4]}*"):
        with pytest.raises(OptionError, match="whose files mean nothing without its metadata"):
            ddbio.load_files(source, "rows", **options)
    assert rows() == []


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_lake_tables_of_ddbio_are_their_items(tmp_path, target, table_format):
    """No tombstone, older version, or column of the table's own is read."""
    folder, (options, rows) = tmp_path / "lake", target
    own(folder, table_format)
    assert ddbio.load_files(folder, "rows", **options).written == len(LIVE)
    assert rows() == LIVE
    assert ddbio.digest(folder) == ddbio.digest(pa.Table.from_pylist(LIVE))
    assert ddbio.infer_schema(folder).to_arrow().names == ["id", "v", "_rescue"]
    assert ddbio.layout(folder).formats.keys() == {"parquet"}
    with pytest.raises(OptionError, match="ddbio maintain"):
        ddbio.compact(folder)
    with pytest.raises(OptionError, match="choose another folder"):
        ddbio.scan_to_files("rows", folder, mode="append", **options)


def test_partition_values_have_their_types(tmp_path, target):
    """The values of a table's partitions are those of its columns, regardless of the folders' names."""
    day, at = dt.date(2026, 11, 21), dt.datetime(2026, 11, 21, 1, 2, 3, 4, dt.UTC)
    types = {
        "id": ["a", "b"],
        "text": ["x/y z=%", None],
        "day": [day, None],
        "at": pa.array([at, None], pa.timestamp("us", "UTC")),
        "yes": [True, None],
        "n": pa.array([7, None], pa.int32()),
        "d": [1.5, None],
    }
    names = ["text", "day", "at", "yes", "n", "d"]
    deltalake.write_deltalake(tmp_path / "t", pa.table(types), partition_by=names)
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(pa.table(types))
    options, rows = target
    ddbio.load_files(tmp_path / "t", "rows", hive_partitions="ignore", **options)
    assert rows()[0]["yes"] is True


def test_values_of_iceberg_partitions(tmp_path):
    """A partition by a date is the date, even if the files lack the column."""
    fields = (NestedField(1, "id", StringType()), NestedField(2, "day", DateType()), NestedField(3, "v", LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    rows = pa.table({"id": ["a"], "day": [dt.date(2026, 1, 2)], "v": [1]})
    catalog = InMemoryCatalog("any", warehouse=str(tmp_path))
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", Schema(*fields), location=f"file://{tmp_path}/t", partition_spec=spec)
    table.append(rows)
    (file,) = (tmp_path / "t" / "data").rglob("*.parquet")
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(rows)
    pq.write_table(pq.ParquetFile(file).read().drop_columns(["day"]), file)
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(rows)


def protocol(features, version=3, **configuration):
    """Return a change of a Delta table's log: its protocol and its configuration."""

    def change(folder):
        path = folder / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                names = {"readerFeatures": features, "writerFeatures": features} if version == 3 else {}
                action["protocol"] = {
                    "minReaderVersion": version,
                    "minWriterVersion": 7 if version == 3 else 5,
                    **names,
                }
            if "metaData" in action:
                action["metaData"]["configuration"] |= {f"delta.{k}": v for k, v in configuration.items()}
            if "add" in action and "deletionVectors" in features:
                vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
                action["add"]["deletionVector"] = {**vector, "sizeInBytes": 40, "cardinality": 1}
        path.write_text("\n".join(map(json.dumps, actions)) + "\n")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (protocol(["deletionVectors"]), "deletionVectors"),
        (protocol(["columnMapping"], **{"columnMapping.mode": "name"}), "columnMapping"),
        (protocol([], version=2, **{"columnMapping.mode": "id"}), "columnMapping"),
        (protocol(["typeWidening"]), "(?i)typeWidening"),
        (protocol(["inventedToday"]), "inventedToday"),
        (lambda folder: (folder / "_delta_log" / f"{0:020}.json").write_text("no json"), "cannot be read"),
    ],
)
def test_features_of_delta_that_are_not_read_are_refused(tmp_path, change, message):
    """Features that would be read as wrong rows or columns are refused by name."""
    deltalake.write_deltalake(tmp_path / "t", ROWS)
    change(tmp_path / "t")
    for read in (ddbio.digest, ddbio.infer_schema, ddbio.layout):
        with pytest.raises(TargetError, match=message):
            read(tmp_path / "t")


@pytest.mark.parametrize(("features", "version"), [(["timestampNtz", "v2Checkpoint"], 3), ([], 2)])
def test_features_of_delta_that_change_no_row_are_read(tmp_path, features, version):
    """A newer protocol alone is not refused."""
    deltalake.write_deltalake(tmp_path / "t", ROWS)
    protocol(features, version)(tmp_path / "t")
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(ROWS)


@pytest.mark.parametrize(
    "rename",
    [
        lambda update: update.rename_column("v", "w"),
        lambda update: update.delete_column("v"),
    ],
)
def test_renamed_or_dropped_iceberg_columns_are_refused(tmp_path, rename):
    """After a column was renamed or dropped, data files have it under its old name."""
    iceberg(tmp_path / "t", ROWS, rename=rename)
    with pytest.raises(TargetError, match=r"columns were renamed, dropped or given a default \(v\)"):
        ddbio.digest(tmp_path / "t")


def test_iceberg_columns_that_were_added_are_read(tmp_path):
    """A column that older files lack is missing from their rows."""
    table = iceberg(tmp_path / "t", ROWS, rename=lambda update: update.add_column("w", LongType()))
    table.append(pa.table({"id": ["d"], "v": [4], "w": [5]}))
    expected = pa.concat_tables([ROWS, pa.table({"id": ["d"], "v": [4], "w": [5]})], promote_options="default")
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(expected)


def test_a_table_of_iceberg_that_was_moved_or_is_in_doubt(tmp_path):
    """Files elsewhere, and two newest metadata files, are refused; so is a table without its metadata."""
    iceberg(tmp_path / "t", ROWS)
    shutil.copytree(tmp_path / "t", tmp_path / "moved")
    with pytest.raises(TargetError, match="has files elsewhere"):
        ddbio.digest(tmp_path / "moved")
    newest = max((tmp_path / "t" / "metadata").glob("*.metadata.json"))
    shutil.copy(newest, newest.with_name(f"{newest.name[:6]}0000.metadata.json"))
    with pytest.raises(TargetError, match="only its catalog knows"):
        ddbio.digest(tmp_path / "t")


def test_a_hadoop_table_of_iceberg_is_read(tmp_path):
    """Metadata may be numbered like those of Hadoop tables, and be compressed."""
    iceberg(tmp_path / "t", ROWS)
    metadata = tmp_path / "t" / "metadata"
    newest = max(metadata.glob("*.metadata.json"))
    (metadata / "v7.gz.metadata.json").write_bytes(gzip.compress(newest.read_bytes()))
    for path in metadata.glob("0*.metadata.json"):
        path.unlink()
    assert ddbio.digest(tmp_path / "t") == ddbio.digest(ROWS)
    assert ddbio.validate(tmp_path / "t", ROWS, key="id").equal


@pytest.mark.parametrize("kind", ["delta partitioned", "stream"])
def test_folders_on_s3(made, target, kind):
    """On S3 the same metadata is found, in a folder and above it."""
    options, rows = target
    with MotoServer() as server:
        client = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        client.create_bucket(Bucket="tables")
        folder = made / kind.replace(" ", "-")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for file in files:
            client.put_object(Bucket="tables", Key=f"a/t/{file.relative_to(folder)}", Body=file.read_bytes())
        connection, uri = {"s3_endpoint_url": server.endpoint_url, "region": "us-east-1"}, "s3://tables/a/t"
        assert ddbio.digest(uri, **connection) == ddbio.digest(pa.Table.from_pylist(LIVE))
        ddbio.load_files(uri, "rows", **{**options, **connection})
        assert rows() == LIVE
        calls = [
            lambda: ddbio.compact(uri, **connection),
            lambda: ddbio.compact("s3://tables/a/", **connection),
            lambda: ddbio.scan_to_files("rows", f"{uri}/new", **{**options, **connection}),
            lambda: ddbio.digest("s3://tables/a/", **connection),
        ]
        for call in calls:
            with pytest.raises(OptionError, match=r"(is|holds) (a Delta table|the output of a Spark stream)"):
                call()
        assert client.list_objects_v2(Bucket="tables")["KeyCount"] == len(files)


def test_folders_of_ddbio_in_a_folder(tmp_path, target):
    """Only the live files of each subfolder are read, also after a compaction that left the old ones."""
    options, _ = target
    ddbio.write_table(ROWS, "rows", **options)
    for name in ("x", "y"):
        for mode in ("error", "append"):
            ddbio.scan_to_files("rows", tmp_path / "all" / name, mode=mode, **options)
    ddbio.write_table(ROWS.select(["id"]), "rows", mode="delete", **options)
    before = ddbio.digest(tmp_path / "all")
    ddbio.compact(tmp_path / "all" / "y", keep_old=True)
    assert ddbio.digest(tmp_path / "all") == ddbio.digest(f"{tmp_path}/all/*") == before


def test_hudi_tables_of_others_are_refused(tmp_path):
    """No file of a Hudi table that ddbio did not make is read or changed."""
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=x")
    (tmp_path / ".hoodie" / "20260101000000000.commit").write_text("{}")
    pq.write_table(ROWS, tmp_path / "a_0_20260101000000000.parquet")
    for call in (ddbio.digest, ddbio.infer_schema, ddbio.layout, ddbio.compact, ddbio.vacuum):
        with pytest.raises(OptionError, match=r"(?i)hudi"):
            call(tmp_path)


def test_a_stream_of_spark_with_an_incomplete_log(tmp_path):
    """A missing batch, a missing committed file, and another version of the log are errors."""
    stream(tmp_path / "out")
    log = tmp_path / "out" / "_spark_metadata"
    (log / "3").write_text("v1\n")
    with pytest.raises(NotFoundError, match=r"_spark_metadata/2 is gone"):
        ddbio.digest(tmp_path / "out")
    (log / "3").rename(log / "2")
    (tmp_path / "out" / "part-0.c000.snappy.parquet").rename(tmp_path / "kept")
    with pytest.raises(NotFoundError, match=r"part-0.* is gone"):
        ddbio.digest(tmp_path / "out")
    (log / "2").write_text("v2\n")
    with pytest.raises(DecodeError, match="its version is v2"):
        ddbio.digest(tmp_path / "out")


def test_a_part_of_a_stream_is_what_was_committed(tmp_path):
    """A partition of the output of a stream, and a glob in it, omit files that were never committed."""
    stream(tmp_path / "out")
    part = tmp_path / "out" / "day=1"
    part.mkdir()
    for file in (tmp_path / "out").glob("*.parquet"):
        file.rename(part / file.name)
    for batch in (tmp_path / "out" / "_spark_metadata").glob("[01]"):
        batch.write_text(batch.read_text().replace("/part-", "/day=1/part-"))
    expected = ddbio.digest(pa.Table.from_pylist(LIVE))
    assert ddbio.digest(part) == ddbio.digest(f"{part}/*.parquet") == expected


def test_an_export_has_the_files_of_its_manifests(tmp_path, target):
    """Digest and schema of an export read exactly its files; an export that has not ended is refused."""
    options, _ = target
    ddbio.write_table(pa.Table.from_pylist(LIVE), "rows", **options)
    ddbio.scan_to_files("rows", tmp_path / "export", format="dynamodb-export", **options)
    ddbio.write_table(pa.Table.from_pylist(LIVE).select(["id"]), "rows", mode="delete", **options)
    pq.write_table(ROWS, tmp_path / "export" / "copy.parquet")
    (tmp_path / "export" / "data" / "more.json").write_text('{"Item":{"id":{"S":"z"}}}')
    assert ddbio.digest(tmp_path / "export") == ddbio.digest(pa.Table.from_pylist(LIVE))
    assert ddbio.infer_schema(tmp_path / "export").to_arrow().names == ["id", "v", "_rescue"]
    with pytest.raises(OptionError, match="ddbio export read"):
        ddbio.compact(tmp_path / "export")
    (tmp_path / "begun" / "data").mkdir(parents=True)
    (tmp_path / "begun" / "_started").touch()
    (tmp_path / "begun" / "data" / "a.json").write_text('{"Item":{"id":{"S":"z"}}}')
    for read in (ddbio.digest, ddbio.infer_schema):
        with pytest.raises(DdbioError, match="has not completed"):
            read(tmp_path / "begun")


def test_a_part_of_a_folder_of_ddbio(tmp_path, target):
    """In a partition of a folder, files that a compaction has replaced are not read, and no compaction starts."""
    options, _ = target
    rows = pa.table({"id": ["a", "b"], "day": ["1", "1"]})
    ddbio.write_table(rows, "rows", **options)
    folder = tmp_path / "out"
    for mode in ("error", "append"):
        ddbio.scan_to_files("rows", folder, partition_by="day", mode=mode, **options)
    ddbio.write_table(rows.select(["id"]), "rows", mode="delete", **options)
    ddbio.compact(folder, keep_old=True)
    assert len(list((folder / "day=1").glob("*.parquet"))) > 1
    twice = pa.table({"id": ["a", "b", "a", "b"]})
    assert ddbio.digest(folder / "day=1") == ddbio.digest(twice)
    assert ddbio.digest(f"{folder}/day=*/*") == ddbio.digest(twice.append_column("day", pa.array(["1"] * 4)))
    with pytest.raises(OptionError, match=rf"give {folder}"):
        ddbio.compact(folder / "day=1")


def test_a_log_holds_no_items(tmp_path, target):
    """The changes of a log are not rows to load; its layout can be reported."""
    options, rows = target
    with logged() as (_, connection):
        ddbio.capture("rows", tmp_path / "log", available_now=True, **connection)
    assert recognize(LocalStore(tmp_path / "log")).kind == "log"
    for call in (
        lambda: ddbio.load_files(tmp_path / "log", "rows", **options),
        lambda: ddbio.write_import_files(tmp_path / "log", tmp_path / "import", key="id:S"),
        lambda: ddbio.load_files(f"{tmp_path}/log/**/*.parquet", "rows", **options),
    ):
        with pytest.raises(OptionError, match="is a log of changes, which are not items: use 'ddbio apply'"):
            call()
    assert ddbio.layout(tmp_path / "log").files == 1
    assert rows() == []


def exported(folder):
    """Make a native export."""
    with logged() as (_, connection):
        ddbio.scan_to_files("rows", folder, format="dynamodb-export", **connection)


def begun_log(folder):
    """Make a log of changes."""
    with logged() as (_, connection):
        ddbio.capture("rows", folder, available_now=True, **connection)


NESTED = {"stream": stream, "log": begun_log, "export": exported, "delta": delta}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("depth", ["in", "one/of/several"])
def test_files_below_a_folder_are_not_read_or_changed_without_its_metadata(tmp_path, target, name, depth):
    """Verbs over a folder above a log, a stream, an export or a table are refused, and name it; nothing changes."""
    options, rows = target
    folder_below = tmp_path / "top" / depth
    folder_below.parent.mkdir(parents=True)
    NESTED[name](folder_below)
    pq.write_table(ROWS, tmp_path / "top" / "rows.parquet")
    pq.write_table(ROWS, tmp_path / "top" / "more.parquet")
    before = sorted((path, path.stat().st_size) for path in tmp_path.rglob("*"))
    calls = [
        lambda: ddbio.load_files(tmp_path / "top", "rows", **options),
        lambda: ddbio.load_files(f"{tmp_path}/top/**", "rows", **options),
        lambda: ddbio.digest(tmp_path / "top"),
        lambda: ddbio.infer_schema(tmp_path / "top"),
        lambda: ddbio.layout(tmp_path / "top"),
        lambda: ddbio.compact(tmp_path / "top"),
        lambda: ddbio.vacuum(tmp_path / "top"),
        lambda: ddbio.publish(tmp_path / "top", tmp_path / "published"),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=rf"top holds (?:an?|the) .* in {depth}/.*: give {tmp_path}/top/{depth}"):
            call()
    assert sorted((path, path.stat().st_size) for path in tmp_path.rglob("*")) == before
    assert ddbio.digest(f"{tmp_path}/top/*.parquet") == ddbio.digest(pa.concat_tables([ROWS, ROWS]))
    assert rows() == []


def test_folders_of_ddbio_below_a_folder_are_read_by_their_records(tmp_path, target):
    """From above, files that a compaction has replaced are not read; a compaction from above is refused."""
    options, _ = target
    ddbio.write_table(ROWS, "rows", **options)
    for day in ("day=1", "day=2"):
        for mode in ("error", "append"):
            ddbio.scan_to_files("rows", tmp_path / "top" / day, mode=mode, **options)
        ddbio.compact(tmp_path / "top" / day, keep_old=True)
    ddbio.write_table(ROWS.select(["id"]), "rows", mode="delete", **options)
    days = [ROWS.append_column("day", pa.array([day] * 3)) for day in (1, 1, 2, 2)]
    assert ddbio.digest(tmp_path / "top") == ddbio.digest(pa.concat_tables(days))
    assert ddbio.layout(tmp_path / "top").files == 2
    with pytest.raises(OptionError, match=f"give {tmp_path}/top/day=1"):
        ddbio.compact(tmp_path / "top")


def test_an_hour_of_a_log_holds_no_items(tmp_path, target):
    """A folder in a log is a part of it: its rows are changes."""
    options, rows = target
    begun_log(tmp_path / "log")
    hour = next((tmp_path / "log").rglob("*.parquet")).parent
    for call in (
        lambda: ddbio.load_files(hour, "rows", **options),
        lambda: ddbio.load_files(hour.parent, "rows", **options),
        lambda: ddbio.load_files(f"{hour}/*.parquet", "rows", **options),
        lambda: ddbio.load_files(next(hour.glob("*.parquet")), "rows", **options),
        lambda: ddbio.write_import_files(hour, tmp_path / "import", key="id:S"),
    ):
        with pytest.raises(OptionError, match=f"{tmp_path}/log is a log of changes, which are not items"):
            call()
    assert rows() == []


def test_the_data_of_an_export_is_not_compacted(tmp_path):
    """The folder of an export's data alone is read as plain files, and keeps the files of its manifest."""
    exported(tmp_path / "export")
    data = tmp_path / "export" / "data"
    before = sorted((path, path.stat().st_size) for path in data.iterdir())
    with pytest.raises(OptionError, match="holds the data of a native export: a compaction would break it"):
        ddbio.compact(data)
    assert sorted((path, path.stat().st_size) for path in data.iterdir()) == before
    assert ddbio.digest(data) == ddbio.digest(ROWS)


def test_a_header_without_rows_has_no_columns(tmp_path):
    """CSV with only a header has a schema without attributes."""
    (tmp_path / "rows.csv").write_text("id,v\n")
    assert ddbio.infer_schema(tmp_path).to_arrow().names == ["_rescue"]
