"""Objects of a store through the local gateway, for a library with its own S3 client."""

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
    """Return a client as a library creates it from its settings."""
    settings = gateway.connection_settings()
    return boto3.client(
        "s3",
        endpoint_url=settings["AWS_ENDPOINT_URL"],
        region_name=settings["AWS_REGION"],
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            retries={"total_max_attempts": 1},
        ),
    )  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "table", "a/b c", "a%2Fb+é"])
def test_a_library_does_all_that_it_does_on_s3(moto, prefix):
    """It puts, guards, reads, lists, uploads in parts and deletes, with any prefix of the store."""
    store = S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), f"s3://lake/{prefix}".rstrip("/"))
    gateway = S3Gateway(store)
    client, location = library(gateway), {"Bucket": gateway.uri.removeprefix("s3://"), "Key": "_log/1 a.json"}
    client.put_object(**location, Body=b"0123456789", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(**location, Body=b"", IfNoneMatch="*")
    assert gateway.failure is None
    assert store.read("_log/1 a.json") == client.get_object(**location)["Body"].read() == b"0123456789"
    part = client.get_object(**location, Range="bytes=2-4")
    assert (part["ResponseMetadata"]["HTTPStatusCode"], part["Body"].read()) == (206, b"234")
    assert client.head_object(**location)["ContentLength"] == 10
    with pytest.raises(ClientError, match="404"):
        client.head_object(**{**location, "Key": "none"})
    upload = client.create_multipart_upload(**{**location, "Key": "big"})["UploadId"]
    parts = []
    for number, body in ((2, b"end"), (1, b"x" * PART_BYTES)):
        sent = client.upload_part(**{**location, "Key": "big"}, UploadId=upload, PartNumber=number, Body=body)
        parts.insert(0, {"PartNumber": number, "ETag": sent["ETag"]})
    client.complete_multipart_upload(**{**location, "Key": "big"}, UploadId=upload, MultipartUpload={"Parts": parts})
    assert store.read("big")[PART_BYTES - 1 :] == b"xend"
    other = client.create_multipart_upload(**{**location, "Key": "big"})["UploadId"]
    client.abort_multipart_upload(**{**location, "Key": "big"}, UploadId=other)
    assert not store.staged_jobs()
    listed = client.list_objects_v2(Bucket=location["Bucket"], Delimiter="/")
    assert [entry["Key"] for entry in listed["Contents"]] == ["big"]
    assert [prefix["Prefix"] for prefix in listed["CommonPrefixes"]] == ["_log/"]
    first = client.list_objects_v2(Bucket=location["Bucket"], MaxKeys=1)
    last = client.list_objects_v2(Bucket=location["Bucket"], ContinuationToken=first["NextContinuationToken"])
    assert [entry["Key"] for page in (first, last) for entry in page["Contents"]] == ["_log/1 a.json", "big"]
    later = client.list_objects_v2(Bucket=location["Bucket"], StartAfter="_log/1 a.json")["Contents"]
    assert [entry["Key"] for entry in later] == ["big"]
    client.delete_object(**location)
    client.delete_objects(Bucket=location["Bucket"], Delete={"Objects": [{"Key": "big"}]})
    assert list(store.list()) == []


def test_every_object_is_written_with_the_options(moto):
    """Objects of a library are encrypted, tagged, locked and in their class. Every request names the owner."""
    options = ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **SINK)
    store = open_store("s3://lake/kept", options)
    sent = []
    store.listing()[0].meta.events.register("before-parameter-build.s3", lambda params, **_: sent.append(dict(params)))
    gateway = S3Gateway(store)
    client, bucket = library(gateway), gateway.uri.removeprefix("s3://")
    client.put_object(Bucket=bucket, Key="part.parquet", Body=b"rows")
    upload = client.create_multipart_upload(Bucket=bucket, Key="part.parquet")["UploadId"]
    for request in sent:
        assert {name: request[name] for name in DATA if name != "ChecksumAlgorithm"} == {
            name: value for name, value in DATA.items() if name != "ChecksumAlgorithm"
        }
    client.abort_multipart_upload(Bucket=bucket, Key="part.parquet", UploadId=upload)
    client.get_object(Bucket=bucket, Key="part.parquet")
    client.list_objects_v2(Bucket=bucket, Prefix="part")
    assert len(sent) == 5
    assert {request["ExpectedBucketOwner"] for request in sent} == {OWNER}


@pytest.mark.parametrize(
    "path",
    ["_delta_log/0.json", "metadata/v1.metadata.json", "metadata/x-m0.avro", ".hoodie/1.commit"],
)
def test_metadata_of_tables_stays_in_the_standard_class(moto, path):
    """Required metadata of a table is never archived. It is locked like data."""
    options = ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **{**SINK, "s3_storage_class": "GLACIER"})
    store = open_store("s3://lake/classed", options)
    store.put(path, b"rows")
    classes = (
        ClientSpec(endpoint_url=moto, region="us-east-1").client("s3").head_object(Bucket="lake", Key=f"classed/{path}")
    )
    assert (classes.get("StorageClass", "STANDARD"), classes["ObjectLockMode"]) == ("STANDARD", "GOVERNANCE")


def test_nobody_else_is_served(moto):
    """Without the random access key of a gateway there is no answer, nor from a closed gateway."""
    gateway = S3Gateway(S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), "s3://lake/secret"))
    stranger = S3Gateway(S3Store(ClientSpec(endpoint_url=moto, region="us-east-1"), "s3://lake/other"))
    client = library(gateway)
    client.put_object(Bucket="table", Key="a", Body=b"1")
    assert "Contents" not in library(stranger).list_objects_v2(Bucket="table")
    del gateway
    with pytest.raises(ClientError, match="403"):
        client.head_object(Bucket="table", Key="a")


def test_a_refusal_is_kept_for_the_caller_of_the_library(moto):
    """The library receives a bad request, which it does not retry. The error names the permission."""
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
