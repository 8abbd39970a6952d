"""Exports on S3 are read from and written to buckets, completely or not at all."""

import json

import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.errors import ExportIncompleteError
from ddbio.testing import FakeDynamoDB, MotoServer
from ddbio.testing.export import Change, ExportWriter

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BUCKET = "exports"


@pytest.fixture(scope="module")
def s3():
    """Return a client of moto over HTTP, and its endpoint."""
    with MotoServer() as server:
        client = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client, server.endpoint_url


def upload(client, folder, prefix):
    """Put a folder's files below a prefix."""
    for path in folder.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())


def items(count):
    """Return items of similar size."""
    return [{"pk": {"S": f"item-{number}"}, "text": {"S": f"{number:x}" * 100}} for number in range(count)]


def test_full_export_on_s3_becomes_files_on_s3(s3, tmp_path):
    """Every item of an export in a bucket is in the files below another prefix."""
    client, url = s3
    home = ExportWriter(tmp_path).full(items(500))
    upload(client, tmp_path, "full")
    source = f"s3://{BUCKET}/full/AWSDynamoDB/{home.name}"
    report = ddbio.read_export_to_files(source, f"s3://{BUCKET}/out", s3_endpoint_url=url, tasks=2, engine="local")
    assert report.items == report.rows == 500
    assert ddbio.read_export(source, s3_endpoint_url=url).num_rows == 500


def test_incremental_export_on_s3_reads_the_shared_folder(s3, tmp_path):
    """The data of an incremental export is in the parent of its folder, in buckets and on disks."""
    client, url = s3
    home = ExportWriter(tmp_path).incremental([Change(1, {"pk": {"S": "a"}}, new={"pk": {"S": "a"}})])
    upload(client, tmp_path, "inc")
    assert ddbio.read_export(f"s3://{BUCKET}/inc/AWSDynamoDB/{home.name}/", s3_endpoint_url=url).num_rows == 1


def test_table_scanned_as_an_export_to_s3_is_read_from_there(s3):
    """The keys in the manifest start at the root of the bucket, and every item is read."""
    client, url = s3
    dest = f"s3://{BUCKET}/made/AWSDynamoDB/1"
    with FakeDynamoDB() as fake:
        fake.load("things", "".join(json.dumps(item) + "\n" for item in items(300)).encode(), "pk:S")
        options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": url, "engine": "local"}
        ddbio.scan_to_files("things", dest, format="dynamodb-export", **options)
    listed = client.get_object(Bucket=BUCKET, Key="made/AWSDynamoDB/1/manifest-files.json")["Body"].read()
    assert json.loads(listed)["dataFileS3Key"].startswith("made/AWSDynamoDB/1/data/")
    assert ddbio.read_export(dest, s3_endpoint_url=url).num_rows == 300


def test_fold_sets_rows_aside_on_s3_and_leaves_none(s3, tmp_path):
    """A fold from S3 to S3 can spill to S3 too, and deletes the spilled rows."""
    client, url = s3
    writer = ExportWriter(tmp_path)
    homes = [writer.full(items(20)), writer.incremental([Change(1, {"pk": {"S": "item-3"}})])]
    upload(client, tmp_path, "fold")
    full, increment = (f"s3://{BUCKET}/fold/AWSDynamoDB/{home.name}" for home in homes)
    options = {"spill": f"s3://{BUCKET}/spill", "engine": "local", "s3_endpoint_url": url}
    assert ddbio.fold_exports_to_files(full, [increment], f"s3://{BUCKET}/state", **options).rows == 19
    assert "Contents" not in client.list_objects_v2(Bucket=BUCKET, Prefix="spill")


def test_missing_object_leaves_nothing(s3, tmp_path):
    """A missing object is named, and the target stays empty."""
    client, url = s3
    home = ExportWriter(tmp_path, empty_files=0, files=1).full(items(10))
    (file,) = (home / "data").iterdir()
    file.unlink()
    upload(client, tmp_path, "hole")
    source = f"s3://{BUCKET}/hole/AWSDynamoDB/{home.name}"
    with pytest.raises(ExportIncompleteError, match=file.name):
        ddbio.read_export_to_files(source, f"s3://{BUCKET}/none", s3_endpoint_url=url)
    assert client.list_objects_v2(Bucket=BUCKET, Prefix="none/")["KeyCount"] == 0
