"""The objects of a store, as a library with an S3 client of its own finds them on this machine."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from ddbio.aws.client import ClientSpec
from ddbio.aws.s3_gateway import S3Gateway
from ddbio.aws.s3_store import S3Store
from ddbio.errors import AccessDeniedError
from ddbio.jobs.stores import open_store
from ddbio.options import ConnectionOptions
from ddbio.testing import MotoServer
from tests.aws.test_s3_requests import DATA, OWNER, SINK

PART_BYTES = 5 * 1024 * 1024


@pytest.fixture(scope="module")
def moto():
    """Return the endpoint of moto."""
    with MotoServer() as server:
        plain = ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3")
        plain.create_bucket(Bucket="lake", ObjectLockEnabledForBucket=True)
        yield server.endpoint_url


def library(gateway):
    """Return a client as a library makes one of the settings that it is given."""
    given = gateway.connection_settings()
    return boto3.client(
        "s3",
        endpoint_url=given["AWS_ENDPOINT_URL"],
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            retries={"total_max_attempts": 1},
        ),
    )  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "table", "a/b c", "a%2Fb+é"])
def test_a_library_does_all_that_it_does_on_s3(moto, prefix):
    """It puts, guards, reads, lists, uploads in parts and deletes, below whatever prefix the store has."""
    store = S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), f"s3://lake/{prefix}".rstrip("/"))
    gateway = S3Gateway(store)
    client, place = library(gateway), {"Bucket": gateway.uri.removeprefix("s3://"), "Key": "_log/1 a.json"}
    client.put_object(**place, Body=b"0123456789", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(**place, Body=b"", IfNoneMatch="*")
    assert gateway.failure is None
    assert store.read("_log/1 a.json") == client.get_object(**place)["Body"].read() == b"0123456789"
    part = client.get_object(**place, Range="bytes=2-4")
    assert (part["ResponseMetadata"]["HTTPStatusCode"], part["Body"].read()) == (206, b"234")
    assert client.head_object(**place)["ContentLength"] == 10
    with pytest.raises(ClientError, match="404"):
        client.head_object(**{**place, "Key": "none"})
    upload = client.create_multipart_upload(**{**place, "Key": "big"})["UploadId"]
    parts = []
    for number, body in ((2, b"end"), (1, b"x" * PART_BYTES)):
        sent = client.upload_part(**{**place, "Key": "big"}, UploadId=upload, PartNumber=number, Body=body)
        parts.insert(0, {"PartNumber": number, "ETag": sent["ETag"]})
    client.complete_multipart_upload(**{**place, "Key": "big"}, UploadId=upload, MultipartUpload={"Parts": parts})
    assert store.read("big")[PART_BYTES - 1 :] == b"xend"
    other = client.create_multipart_upload(**{**place, "Key": "big"})["UploadId"]
    client.abort_multipart_upload(**{**place, "Key": "big"}, UploadId=other)
    assert not store.staged_jobs()
    listed = client.list_objects_v2(Bucket=place["Bucket"], Delimiter="/")
    assert [each["Key"] for each in listed["Contents"]] == ["big"]
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["_log/"]
    first = client.list_objects_v2(Bucket=place["Bucket"], MaxKeys=1)
    rest = client.list_objects_v2(Bucket=place["Bucket"], ContinuationToken=first["NextContinuationToken"])
    assert [each["Key"] for page in (first, rest) for each in page["Contents"]] == ["_log/1 a.json", "big"]
    later = client.list_objects_v2(Bucket=place["Bucket"], StartAfter="_log/1 a.json")["Contents"]
    assert [each["Key"] for each in later] == ["big"]
    client.delete_object(**place)
    client.delete_objects(Bucket=place["Bucket"], Delete={"Objects": [{"Key": "big"}]})
    assert list(store.list()) == []


def test_every_object_is_written_as_the_options_say(moto):
    """What a library puts or uploads is encrypted, tagged, locked and classed; every request names the owner."""
    options = ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **SINK)
    store = open_store("s3://lake/kept", options)
    sent = []
    store.listing()[0].meta.events.register("before-parameter-build.s3", lambda params, **_: sent.append(dict(params)))
    gateway = S3Gateway(store)
    client, bucket = library(gateway), gateway.uri.removeprefix("s3://")
    client.put_object(Bucket=bucket, Key="part.parquet", Body=b"rows")
    upload = client.create_multipart_upload(Bucket=bucket, Key="part.parquet")["UploadId"]
    for each in sent:
        assert {name: each[name] for name in DATA if name != "ChecksumAlgorithm"} == {
            name: value for name, value in DATA.items() if name != "ChecksumAlgorithm"
        }
    client.abort_multipart_upload(Bucket=bucket, Key="part.parquet", UploadId=upload)
    client.get_object(Bucket=bucket, Key="part.parquet")
    client.list_objects_v2(Bucket=bucket, Prefix="part")
    assert len(sent) == 5
    assert {each["ExpectedBucketOwner"] for each in sent} == {OWNER}


@pytest.mark.parametrize(
    "path",
    ["_delta_log/0.json", "metadata/v1.metadata.json", "metadata/x-m0.avro", ".hoodie/1.commit"],
)
def test_metadata_of_tables_stays_in_the_standard_class(moto, path):
    """What a table cannot be read without is never archived; it is locked as data is."""
    options = ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **{**SINK, "s3_storage_class": "GLACIER"})
    store = open_store("s3://lake/classed", options)
    store.put(path, b"rows")
    found = (
        ClientSpec(endpoint_url=moto, region="us-east-1").client("s3").head_object(Bucket="lake", Key=f"classed/{path}")
    )
    assert (found.get("StorageClass", "STANDARD"), found["ObjectLockMode"]) == ("STANDARD", "GOVERNANCE")


def test_nobody_else_is_served(moto):
    """Without the random access key of a gateway nothing is answered, and a gateway that is gone answers nobody."""
    gateway = S3Gateway(S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), "s3://lake/secret"))
    stranger = S3Gateway(S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), "s3://lake/other"))
    client = library(gateway)
    client.put_object(Bucket="table", Key="a", Body=b"1")
    assert "Contents" not in library(stranger).list_objects_v2(Bucket="table")
    del gateway
    with pytest.raises(ClientError, match="403"):
        client.head_object(Bucket="table", Key="a")


def test_a_refusal_is_kept_for_whoever_called_the_library(moto):
    """The library hears of a bad request, which it does not repeat; the error names the permission."""
    store = S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), "s3://missing/table")
    gateway = S3Gateway(store)
    with pytest.raises(ClientError):
        library(gateway).put_object(Bucket="table", Key="a", Body=b"")
    store.listing()[0].meta.events.register(
        "before-parameter-build.s3.PutObject",
        lambda **_: (_ for _ in ()).throw(AccessDeniedError("no", "s3:PutObject")),
    )
    with pytest.raises(ClientError, match="Refused"):
        library(gateway).put_object(Bucket="table", Key="a", Body=b"")
    assert gateway.failure.action == "s3:PutObject"
