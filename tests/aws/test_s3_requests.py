"""Endpoints and members of all S3 requests, as real buckets require them."""

from __future__ import annotations

import hashlib
import io
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from botocore.awsrequest import AWSResponse

from ddbio.aws import client
from ddbio.aws.client import ClientSpec
from ddbio.aws.control_plane import check_bucket
from ddbio.aws.s3_store import S3Store
from ddbio.errors import AccessDeniedError, OptionError
from ddbio.jobs.clients import s3_spec
from ddbio.jobs.stores import open_store
from ddbio.options import ConnectionOptions, parse_options
from ddbio.storage.checksums import CRC_POLYNOMIALS, checksum
from ddbio.storage.staged import FileNaming, StoredObject
from ddbio.testing import MotoServer

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
OWNER = "123456789012"
POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/lake"
PART = FileNaming("job", 0).path(0, "parquet")


class Body(io.BytesIO):
    """Raw stream of an HTTP response."""

    def stream(self):
        """Yield all bytes in one piece."""
        yield self.read()


@pytest.fixture(scope="module")
def moto():
    """Return the endpoint of moto."""
    with MotoServer() as server:
        yield server.endpoint_url


@pytest.fixture(autouse=True)
def new_clients():
    """Discard clients between tests, which may set other variables."""
    client._client.cache_clear()
    yield
    client._client.cache_clear()


@pytest.fixture
def sent():
    """Return a function that records the requests of a store, and answers them itself if requested."""

    def record(spec, body=None):
        requests = []

        def keep(request, **_):
            requests.append(request)
            return None if body is None else AWSResponse(request.url, 200, {}, Body(body))

        spec.client("s3", 32).meta.events.register("before-send.s3", keep)
        spec.client("s3").meta.events.register("before-send.s3", keep)
        return requests

    return record


def _use(store):
    """Use all operations of a store."""
    sink = store.create(PART)
    sink.write(b"rows")
    store.complete(sink.finish(1))
    store.create(PART).abort()
    assert store.read(PART) == b"".join(store.read_chunks(PART)) == b"rows"
    assert store.put_if_absent("claim", b"{}")
    store.put("note", b"{}")
    (entry,) = store.list("note")
    assert store.read_range(StoredObject("note", 2, entry.version), 0, 2) == b"{}"
    store.abort("job")
    store.delete(["claim"])


def _heading(name, requests):
    return [request.headers.get(name, b"").decode() for request in requests]


def test_every_request_names_the_owner_and_every_write_the_key(moto, sent):
    """Reads, lists, writes and deletes expect the owner. Objects and uploads are encrypted with the key."""
    spec = s3_spec(
        ConnectionOptions(
            s3_endpoint_url=moto, region="us-east-1", s3_sse_kms_key_id=KEY, s3_expected_bucket_owner=OWNER
        )
    )
    spec.client("s3").create_bucket(Bucket="keyed")
    requests = sent(spec)
    _use(S3Store(spec, "s3://keyed/out"))
    check_bucket(spec, "keyed")
    assert len(requests) > 10
    assert set(_heading("x-amz-expected-bucket-owner", requests)) == {OWNER}
    puts = [request for request in requests if request.method == "PUT" and "?" not in request.url]
    writes = puts + [request for request in requests if request.url.endswith("?uploads")]
    assert len(writes) == 4
    assert set(_heading("x-amz-server-side-encryption", writes)) == {"aws:kms"}
    assert set(_heading("x-amz-server-side-encryption-aws-kms-key-id", writes)) == {KEY}
    head = spec.client("s3").head_object(Bucket="keyed", Key=f"out/{PART}")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY)


def test_a_copy_names_the_owners_of_both_buckets(moto, sent):
    """The source bucket of a copy is checked like one that is read. Its owner may differ."""
    connection = {"endpoint_url": moto, "region": "us-east-1"}
    ClientSpec(**connection).client("s3").create_bucket(Bucket="copied")
    source = S3Store(ClientSpec(**connection, members=(("ExpectedBucketOwner", "210987654321"),)), "s3://copied/in")
    spec = ClientSpec(**connection, members=(("ExpectedBucketOwner", OWNER),))
    source.put("a", b"rows")
    requests, target = sent(spec), S3Store(spec, "s3://copied/out")
    target.complete(target.stage_copy(source, next(source.list()), PART, 1))
    assert set(_heading("x-amz-expected-bucket-owner", requests)) == {OWNER}
    assert _heading("x-amz-source-expected-bucket-owner", requests)[1] == "210987654321"


LOCK_UNTIL = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)
SINK = {
    "s3_sse": "aws:kms", "s3_sse_kms_key_id": KEY, "s3_bucket_key": True, "s3_storage_class": "STANDARD_IA",
    "s3_tags": {"team": "data lake", "stage": "raw"}, "s3_acl": "bucket-owner-full-control",
    "s3_checksum": "SHA256", "s3_object_lock_mode": "GOVERNANCE", "s3_object_lock_until": LOCK_UNTIL,
    "s3_object_lock_legal_hold": True, "s3_requester_pays": True, "s3_expected_bucket_owner": OWNER,
}  # fmt: skip
EVERY = {
    "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY, "BucketKeyEnabled": True,
    "Tagging": "team=data+lake&stage=raw", "ACL": "bucket-owner-full-control", "ChecksumAlgorithm": "SHA256",
    "RequestPayer": "requester", "ExpectedBucketOwner": OWNER,
}  # fmt: skip
LOCKED = {
    "ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": LOCK_UNTIL, "ObjectLockLegalHoldStatus": "ON",
}  # fmt: skip
DATA = {**EVERY, **LOCKED, "StorageClass": "STANDARD_IA"}


def _object_members(request):
    """Return the members of a request about its object that do not differ between requests."""
    own = {"x-amz-date", "x-amz-content-sha256", "x-amz-trailer", "x-amz-decoded-content-length"}
    names = {name.lower() for name in request.headers.keys() if name.lower().startswith("x-amz-")} - own  # noqa: SIM118
    return {name: request.headers[name].decode() for name in names if isinstance(request.headers[name], bytes)} | {
        name: request.headers[name] for name in names if isinstance(request.headers[name], str)
    }


def test_objects_are_written_with_the_options(moto, sent):
    """Each write has the same members as botocore's request with these options."""
    spec = s3_spec(ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **SINK))
    plain = ClientSpec(endpoint_url=moto, region="us-east-1")
    plain.client("s3").create_bucket(Bucket="lake", ObjectLockEnabledForBucket=True)
    store, requests, wanted = S3Store(spec, "s3://lake/out"), sent(spec), sent(plain)
    direct = plain.client("s3")

    def same(key, operation, **members):
        operation(Bucket="lake", Key=key, **members)
        mine, theirs = requests[-1], wanted[-1]
        assert (mine.method, mine.url.partition("?")[0]) == (theirs.method, theirs.url.partition("?")[0])
        assert _object_members(mine) == _object_members(theirs)

    for path, members in {
        "part.parquet": DATA,
        "_ddbio/job.json": {**EVERY, **LOCKED},
        "_ddbio/snapshots/00000000000000000001.json": {**EVERY, **LOCKED},
        "_ddbio/job.claim.json": EVERY,
        "_ddbio/job.intent.json": EVERY,
    }.items():
        store.put(path, b"rows")
        same(f"out/{path}", direct.put_object, Body=b"rows", **members)
    sink = store.create(PART)
    same(f"out/{PART}", direct.create_multipart_upload, **DATA)
    upload = plain.client("s3").create_multipart_upload(Bucket="lake", Key=f"out/{PART}", ChecksumAlgorithm="SHA256")
    sink.write(b"rows")
    staged = sink.finish(1)
    every = {"RequestPayer": "requester", "ExpectedBucketOwner": OWNER}
    part = {"UploadId": upload["UploadId"], "PartNumber": 1, "Body": b"rows", "ChecksumAlgorithm": "SHA256"}
    same(f"out/{PART}", direct.upload_part, **part, **every)
    assert staged.token["parts"][0]["ChecksumSHA256"] == b64encode(hashlib.sha256(b"rows").digest()).decode()
    store.complete(staged)
    assert _object_members(requests[-1]) == {"x-amz-request-payer": "requester", "x-amz-expected-bucket-owner": OWNER}
    assert b"<ChecksumSHA256>" in requests[-1].body
    head = direct.head_object(Bucket="lake", Key=f"out/{PART}")
    assert (head["StorageClass"], head["ServerSideEncryption"]) == ("STANDARD_IA", "aws:kms")
    # moto locks no multipart upload.
    head = direct.head_object(Bucket="lake", Key="out/part.parquet")
    assert (head["ObjectLockMode"], head["ObjectLockLegalHoldStatus"]) == ("GOVERNANCE", "ON")
    tags = direct.get_object_tagging(Bucket="lake", Key=f"out/{PART}")["TagSet"]
    assert tags == [{"Key": "team", "Value": "data lake"}, {"Key": "stage", "Value": "raw"}]
    options = ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", **SINK)
    spilled = sent(replace(spec, members_of_keys=()))
    open_store("s3://lake/spill", options, is_temporary=True).put("rows", b"rows")
    direct.put_object(Bucket="lake", Key="spill/rows", Body=b"rows", **EVERY)
    assert _object_members(spilled[-1]) == _object_members(wanted[-1])


@pytest.mark.parametrize("algorithm", sorted(CRC_POLYNOMIALS))
def test_checksums_that_botocore_lacks_are_sent(moto, sent, algorithm):
    """Objects and parts have checksums without additional libraries. Deletions, which need one too, have botocore's."""
    spec = s3_spec(ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", s3_checksum=algorithm))
    spec.client("s3").create_bucket(Bucket="summed")
    requests = sent(spec)
    _use(S3Store(spec, "s3://summed/out"))
    name = f"x-amz-checksum-{algorithm.lower()}"
    sums = {request.headers[name] for request in requests if name in request.headers}
    assert sums == {b64encode(checksum(algorithm, body)) for body in (b"rows", b"{}")}
    puts = [request for request in requests if request.method == "PUT"]
    assert all(name in request.headers for request in puts)
    [upload, _] = [request for request in requests if request.url.endswith("?uploads")]
    assert upload.headers["x-amz-checksum-algorithm"] == algorithm.encode()
    [deletion] = [request for request in requests if request.url.endswith("?delete")]
    assert "x-amz-checksum-crc32" in deletion.headers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s3_sse": "AES256", "s3_sse_kms_key_id": KEY}, "uses no KMS key"),
        ({"s3_sse": "aws:kms:dsse", "s3_bucket_key": True}, "without bucket keys"),
        ({"s3_object_lock_mode": "COMPLIANCE"}, "give both or neither"),
        ({"s3_tags": "team"}, "NAME=VALUE"),
        ({"s3_tags": "&".join(f"t{number}=x" for number in range(11))}, "at most ten"),
        ({"s3_storage_class": "COLD"}, "STANDARD_IA"),
    ],
)
def test_options_of_objects_that_contradict_are_refused(options, message):
    """Options that S3 would refuse, or that cannot be computed here, are refused before any read."""
    with pytest.raises(OptionError, match=message):
        parse_options(ConnectionOptions, options)


def test_the_key_of_s3_is_named_by_none(moto, sent):
    """Without a key only the encryption method is sent; without an option nothing is."""
    for key, expected in (("aws/s3", "aws:kms"), (None, "")):
        spec = s3_spec(ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", s3_sse_kms_key_id=key))
        spec.client("s3").create_bucket(Bucket="plain")
        requests = sent(spec)
        S3Store(spec, "s3://plain").put("note", b"{}")
        assert _heading("x-amz-server-side-encryption", requests) == [expected]
        assert _heading("x-amz-server-side-encryption-aws-kms-key-id", requests) == [""]
        assert _heading("x-amz-expected-bucket-owner", requests) == [""]


def test_a_bucket_of_another_account_is_refused(moto):
    """A refusal for the owner is an access error that names the bucket."""
    ClientSpec(endpoint_url=moto, region="us-east-1").client("s3").create_bucket(Bucket="others")
    spec = s3_spec(ConnectionOptions(s3_endpoint_url=moto, region="us-east-1", s3_expected_bucket_owner="999999999999"))

    def refuse(request, **_):
        assert request.headers["x-amz-expected-bucket-owner"] == b"999999999999"
        text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        return AWSResponse(request.url, 403, {"Content-Type": "application/xml"}, Body(text))

    spec.client("s3", 32).meta.events.register("before-send.s3", refuse)
    with pytest.raises(AccessDeniedError, match="s3://others/note"):
        S3Store(spec, "s3://others").put("note", b"{}")


def test_an_owner_is_an_account():
    """An owner that is no account number is refused with the option's name."""
    with pytest.raises(ValueError, match="s3_expected_bucket_owner"):
        ConnectionOptions(s3_expected_bucket_owner="me")


@pytest.mark.parametrize(
    ("environment", "target", "url"),
    [
        ({}, "s3://lake/out", "https://lake.s3.eu-west-1.amazonaws.com/out/note"),
        ({}, f"s3://{POINT}", "https://lake-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/note"),
        ({}, f"s3://{POINT}/a/b/", "https://lake-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/a/b/note"),
        ({}, "s3://lake-abc-s3alias/out", "https://lake-abc-s3alias.s3.eu-west-1.amazonaws.com/out/note"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "s3://lake", "https://lake.s3-fips.us-east-1.amazonaws.com/note"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "s3://lake", "https://lake.s3.dualstack.eu-west-1.amazonaws.com/note"),
        (
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            f"s3://{POINT}",
            "https://lake-123456789012.s3-accesspoint.dualstack.eu-west-1.amazonaws.com/note",
        ),
    ],
)
def test_requests_go_to_the_endpoint_of_bucket_and_environment(monkeypatch, sent, environment, target, url):
    """Access points, by ARN or alias, FIPS and dual-stack endpoints are addressed as by botocore."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # FIPS endpoints are in few regions.
    spec = ClientSpec(region="us-east-1" if "AWS_USE_FIPS_ENDPOINT" in environment else "eu-west-1")
    requests = sent(spec, b"")
    store = S3Store(spec, target)
    store.put("note", b"{}")
    assert [request.url for request in requests] == [url]
    assert store.uri == target.rstrip("/")


@pytest.mark.parametrize("target", ["s3://", "s3:///out", "lake/out", "s3a://lake"])
def test_what_names_no_bucket_is_refused(target):
    """A location without a bucket is refused with the correct syntax."""
    with pytest.raises(OptionError, match="write s3://bucket/prefix"):
        S3Store(ClientSpec(), target)
