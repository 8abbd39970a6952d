"""Every verb writes every object with the options of its connection: moto keeps written and deleted objects."""

import io
import json
import re
import time

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.registry import open_lake_table
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB, MotoServer
from ddbio.testing.export import Change, ExportWriter
from tests.lake.virtual_log import VirtualLog, Writer

# A running Spark session does the work. PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BUCKET, OWNER = "lake", "123456789012"
KEY = f"arn:aws:kms:us-east-1:{OWNER}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ITEMS = [{"pk": {"S": f"item-{number}"}, "n": {"N": str(number % 3)}} for number in range(40)]


@pytest.fixture(scope="module")
def s3():
    """Return a client of moto with a versioned bucket, and its endpoint."""
    with MotoServer() as server:
        client = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield client, server.endpoint_url


@pytest.fixture(scope="module")
def options(s3):
    """Return connection options with all properties of an object that moto stores."""
    return {
        "s3_endpoint_url": s3[1], "region": "us-east-1", "s3_sse": "aws:kms", "s3_sse_kms_key_id": KEY,
        "s3_bucket_key": True, "s3_tags": "team=data&stage=raw", "s3_storage_class": "STANDARD_IA",
        "s3_checksum": "CRC64NVME", "s3_expected_bucket_owner": OWNER, "s3_requester_pays": True,
        "s3_acl": "bucket-owner-full-control",
    }  # fmt: skip


def written(client, prefix):
    """Return the keys of all versions below a prefix, after checking their options."""
    listed = client.list_object_versions(Bucket=BUCKET, Prefix=prefix).get("Versions", [])
    for version in listed:
        location = {"Bucket": BUCKET, "Key": version["Key"], "VersionId": version["VersionId"]}
        head = client.head_object(**location)
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY), version["Key"]
        tags = client.get_object_tagging(**location)["TagSet"]
        assert tags == [{"Key": "team", "Value": "data"}, {"Key": "stage", "Value": "raw"}], version["Key"]
        is_data = not any(name in version["Key"] for name in ("_ddbio/", "_delta_log/", "/metadata/"))
        assert head.get("StorageClass", "STANDARD") == ("STANDARD_IA" if is_data else "STANDARD"), version["Key"]
    return {version["Key"].removeprefix(prefix) for version in listed}


def upload(client, folder, prefix):
    """Upload a folder's files below a prefix."""
    for path in folder.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())


def kinds(keys):
    """Return the kinds of ddbio's own objects."""
    names = ("claim", "intent", "snapshots/")
    return {name for name in names if any("_ddbio/" in key and name in key for key in keys)}


def test_objects_of_scans_compactions_and_publications(s3, fake, options):
    """Files of every format, manifests, claims, intents, snapshots, and the objects of compact, publish and vacuum."""
    client, _ = s3
    root = f"s3://{BUCKET}/tables"
    for name in ("parquet", "orc", "avro", "csv", "json"):
        ddbio.scan_to_files(
            "types", f"{root}/{name}", endpoint_url=fake.endpoint_url, engine="local", tasks=2, format=name,
            **({"partition_by": "flag"} if name == "parquet" else {}), **options,
        )  # fmt: skip
    ddbio.compact(f"{root}/parquet", engine="local", **options)
    ddbio.publish(f"{root}/parquet", f"{root}/curated", **options)
    ddbio.vacuum(f"{root}/parquet", older_than="0s", **options)
    keys = written(client, "tables/")
    assert kinds(keys) == {"claim", "intent", "snapshots/"}
    for folder in ("parquet", "orc", "avro", "csv", "json", "curated"):
        assert any(key.startswith(f"{folder}/") and "_ddbio/" not in key for key in keys)
    ddbio.scan_to_files(
        "types", f"s3://{BUCKET}/native/AWSDynamoDB/1", endpoint_url=fake.endpoint_url, engine="local",
        format="dynamodb-export", **options,
    )  # fmt: skip
    assert any(key.endswith("manifest-summary.json") for key in written(client, "native/"))


def test_objects_of_exports_imports_and_rejects(s3, fake, options, tmp_path):
    """Files of an export, a fold with its spill, files for an import, rows that a load rejects."""
    client, _ = s3
    writer = ExportWriter(tmp_path)
    full = writer.full(ITEMS)
    later = writer.incremental([Change(1, {"pk": {"S": "item-1"}}, new={"pk": {"S": "item-1"}, "n": {"N": "9"}})])
    upload(client, tmp_path, "in")
    source, change = (f"s3://{BUCKET}/in/AWSDynamoDB/{folder.name}" for folder in (full, later))
    ddbio.read_export_to_files(source, f"s3://{BUCKET}/read", engine="local", **options)
    ddbio.fold_exports_to_files(source, [change], f"s3://{BUCKET}/fold", engine="local", format="avro", **options)
    rows = pa.table({"pk": [f"{number}" for number in range(20)]})
    ddbio.write_import_files(rows, f"s3://{BUCKET}/import", key="pk:S", **options)
    for prefix in ("read/", "fold/"):
        assert kinds(written(client, prefix)) >= {"claim", "intent", "snapshots/"}
    assert written(client, "import/")
    sink = io.BytesIO()
    pq.write_table(pa.table({"pk": ["good", ""], "sk": [1, 2]}), sink)
    client.put_object(Bucket=BUCKET, Key="rows/part.parquet", Body=sink.getvalue())
    fake.load("sinks", b"", "pk:S,sk:N")
    report = ddbio.load_files(
        f"s3://{BUCKET}/rows/", "sinks", endpoint_url=fake.endpoint_url, reject_to=f"s3://{BUCKET}/rejects",
        state=f"s3://{BUCKET}/state", engine="local", **options,
    )  # fmt: skip
    assert report.rejected == 1
    assert written(client, "rejects/")
    assert written(client, "state/")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_objects_of_lake_tables(s3, options, tmp_path, monkeypatch, kind):
    """Data, logs, checkpoints and catalogs of lake tables, most of which are written by other libraries."""
    client, _ = s3
    log, writer, uri = VirtualLog(LocalStore(tmp_path / "log")), Writer(7), f"s3://{BUCKET}/lake-{kind}"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    name = {"catalog": "iceberg://lake/shop.orders"} if kind == "iceberg" else {}
    for attributes in ((), ("more",)):
        log.append(writer.batch(attributes))
        ddbio.apply(tmp_path / "log", uri, format=kind, buckets=2, **name, **options)
    ddbio.maintain(uri, format=kind, **({} if name else {"z_order_by": "pk"}), **name, **options)
    table = open_lake_table(uri, kind, ApplyOptions(source=str(tmp_path), table=uri, **options))
    table.forget(table.load(), table.load().version)
    keys = written(client, f"lake-{kind}/")
    wanted = {"delta": {"_b=", "_delta_log/"}, "iceberg": {"_b=", "metadata/"}}[kind]
    assert all(any(key.startswith(prefix) for key in keys) for prefix in wanted)
    assert kind == "iceberg" or any("checkpoint.parquet" in key for key in keys)
    assert kind == "delta" or any(re.match(r"metadata/\d{5}-", key) for key in keys)


def test_objects_of_captures_archives_and_replays(s3, options):
    """Files of a log with its batches and notes, of an archive, and of a replay."""
    client, _ = s3
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        fake.load("expiring", b"", "pk:S")
        table = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")
        table.update_table(
            TableName="expiring", StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        )
        table.update_time_to_live(
            TableName="expiring", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"}
        )
        table.put_item(TableName="expiring", Item={"pk": {"S": "old"}, "ttl": {"N": str(int(time.time()) - 60)}})
        assert fake.expire("expiring") == 1
        root = f"s3://{BUCKET}/changes"
        run = {"endpoint_url": fake.endpoint_url, **options}
        ddbio.capture("expiring", f"{root}/log", available_now=True, old_image=True, **run)
        ddbio.archive(f"{root}/log", f"{root}/archive", ttl="ttl", **run)
        table.close()
    for folder in ("log", "archive"):
        keys = written(client, f"changes/{folder}/")
        assert {"_ddbio/" in key for key in keys} == {True, False}
    record = {
        "eventName": "INSERT", "eventID": "1", "tableName": "expiring", "awsRegion": "us-east-1",
        "dynamodb": {"ApproximateCreationDateTime": 1_793_491_203_000,
                     "ApproximateCreationDateTimePrecision": "MILLISECOND", "Keys": {"pk": {"S": "a"}}, "SizeBytes": 9,
                     "NewImage": {"pk": {"S": "a"}, "n": {"N": "1"}}},
    }  # fmt: skip
    client.put_object(Bucket=BUCKET, Key="delivered/2026/11/01/00/a", Body=json.dumps(record).encode())
    assert ddbio.replay(f"s3://{BUCKET}/delivered", f"{root}/again", **options).records == 1
    assert {"_ddbio/" in key for key in written(client, "changes/again/")} == {True, False}
