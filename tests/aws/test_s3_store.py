from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import random
import socket
import zlib
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.httpchecksum import Crc32Checksum, StreamingChecksumBody
from botocore.response import StreamingBody
from urllib3.exceptions import ProtocolError, ReadTimeoutError, SSLError

from ddbio.aws.client import ClientSpec
from ddbio.aws.s3_store import PART_BYTES, PARTS_IN_FLIGHT, S3Store
from ddbio.commit.protocol import Target
from ddbio.errors import AccessDeniedError, DdbioError, EndpointError, NotFoundError, OptionError, ServiceError
from ddbio.storage.staged import FileNaming, StoredObject
from ddbio.testing import MotoServer

PART = FileNaming("job", 0).path(0, "parquet")
_serial = itertools.count()


class OneTrySpec:
    """ClientSpec whose clients do not retry, so that a test does not wait."""

    members = ()

    def __init__(self, spec):
        self._client = boto3.Session().client(
            "s3",
            endpoint_url=spec.endpoint_url,
            region_name=spec.region,
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )

    def client(self, service, max_pool_connections=10):
        """Return the single client."""
        assert (service, max_pool_connections) == ("s3", 32)
        return self._client


class Body(io.BytesIO):
    """Raw stream of an HTTP response."""

    def stream(self):
        """Yield all bytes in one piece."""
        yield self.read()


@pytest.fixture(scope="module")
def spec():
    """Return the description of a client of moto over HTTP."""
    with MotoServer() as server:
        yield ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1")


@pytest.fixture
def bucket(spec):
    """Return the name of a new bucket."""
    name = f"bucket{next(_serial)}"
    spec.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def store(spec, bucket):
    """Return a store whose client does not retry."""
    return S3Store(OneTrySpec(spec), f"s3://{bucket}/out")


@pytest.fixture
def answer(store):
    """Return a function that lets S3 answer one operation with errors, the last one permanently."""

    def install(operation, *answers):
        left = list(answers)

        def respond(request, **_):
            status, code = left.pop(0) if len(left) > 1 else left[0]
            if status is None:
                return None
            text = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
            return AWSResponse(request.url, status, {"Content-Type": "application/xml"}, Body(text))

        store._client.meta.events.register(f"before-send.s3.{operation}", respond)

    return install


def test_parts_become_one_object(store):
    """Bytes written in uneven pieces over several parts are stored in order, and only at completion."""
    data = os.urandom(PART_BYTES * (PARTS_IN_FLIGHT + 2) + 12345)
    sink = store.create(PART)
    view, start = memoryview(data), 0
    for size in itertools.cycle([1, 1000, 3_000_001, PART_BYTES + 7]):
        if start >= len(data):
            break
        assert sink.write(view[start : start + size]) == len(view[start : start + size])
        start += size
    staged = sink.finish(42)
    assert (staged.path, staged.size_bytes, staged.rows) == (PART, len(data), 42)
    assert list(store.list()) == []
    with pytest.raises(NotFoundError):
        store.read(PART)
    store.complete(staged)
    assert store.read(PART) == data
    assert list(store.list()) == [StoredObject(PART, len(data))]


def test_parts_carry_checksums(store):
    """Every part's CRC32 is repeated at completion, unless the client is configured to send none."""
    data = random.Random(15).randbytes(PART_BYTES + 9)
    sink = store.create(PART)
    sink.write(data)
    staged = sink.finish(0)
    sums = [b64encode(zlib.crc32(part).to_bytes(4, "big")).decode() for part in (data[:PART_BYTES], data[PART_BYTES:])]
    assert [part["ChecksumCRC32"] for part in staged.token["parts"]] == sums
    store.complete(staged)
    assert store.read(PART) == data
    store._client.meta.config.request_checksum_calculation = "when_required"
    sink = store.create(PART)
    sink.write(b"x")
    assert all(set(part) == {"PartNumber", "ETag"} for part in sink.finish(0).token["parts"])


def test_small_and_empty_files_stay_invisible_too(store):
    """A file below one part, and an empty one, are uploads like any other."""
    small = store.create(PART)
    small.write(b"abc")
    staged = [small.finish(1), store.create("part-job-00001-0-0000.parquet").finish(0)]
    assert list(store.list()) == []
    for staged_file in staged:
        store.complete(staged_file)
    assert [entry.size_bytes for entry in store.list()] == [3, 0]


def test_completing_twice_is_completing_once(store):
    """A second completion, also by another process, detects the object and succeeds."""
    staged = store.create(PART).finish(0)
    store.complete(staged)
    store.complete(pickle.loads(pickle.dumps(staged)))
    assert len(list(store.list())) == 1


@pytest.mark.parametrize("response", [(404, "NoSuchUpload"), (200, "InternalError"), (503, "SlowDown")])
def test_a_lost_answer_is_no_failure(store, answer, response):
    """An object that exists with its size counts as completed, regardless of S3's answer about the upload."""
    staged = store.create(PART).finish(0)
    store.complete(staged)
    answer("CompleteMultipartUpload", response)
    store.complete(staged)
    assert len(list(store.list())) == 1


@pytest.mark.parametrize("there", [b"other", b"12345678"])
def test_another_object_is_no_completion(store, answer, there):
    """Without the upload, an object of another size or with other bytes does not count as the completed one."""
    sink = store.create(PART)
    sink.write(b"87654321")
    staged = sink.finish(1)
    store.abort("job")
    store.put(PART, there)
    answer("CompleteMultipartUpload", (404, "NoSuchUpload"))
    with pytest.raises(NotFoundError, match="run the job again"):
        store.complete(staged)


def test_under_kms_an_object_of_another_size_is_no_completion(store, answer):
    """ETags of objects encrypted by KMS are no checksums: the size still distinguishes another object."""

    def encrypted(parsed, **_):
        parsed["ServerSideEncryption"] = "aws:kms"

    sink = store.create(PART)
    sink.write(b"87654321")
    staged = sink.finish(1)
    store.abort("job")
    store._client.meta.events.register("after-call.s3.HeadObject", encrypted)
    try:
        for there, is_whole in ((b"12345678", True), (b"1234567", False)):
            store.put(PART, there)
            answer("CompleteMultipartUpload", (404, "NoSuchUpload"))
            with contextlib.nullcontext() if is_whole else pytest.raises(NotFoundError, match="run the job again"):
                store.complete(staged)
    finally:
        store._client.meta.events.unregister("after-call.s3.HeadObject", encrypted)


def test_an_interrupted_body_resumes_in_the_same_object_or_fails(store):
    """The remaining bytes are requested from the same version, never from an object that has replaced it."""
    store.put("a", b"1" * 3_000_000)
    asked = []

    def cut(parsed, **_):
        if len(asked) == 1:
            # Like a broken connection.
            parsed["Body"] = StreamingBody(io.BytesIO(b"1" * 1_000_000), 3_000_000)

    store._client.meta.events.register("before-parameter-build.s3.GetObject", lambda params, **_: asked.append(params))
    store._client.meta.events.register("after-call.s3.GetObject", cut)
    chunks = store.read_chunks("a")
    assert len(next(chunks)) == 1_000_000
    store.put("a", b"2" * 3_000_000)
    with pytest.raises(ServiceError, match="PreconditionFailed"):
        list(chunks)
    assert asked[1]["Range"] == "bytes=1000000-"


class BrokenBody(io.BytesIO):
    """Raw stream of a response that ends with an error."""

    def __init__(self, data, error):
        super().__init__(data)
        self.error = error

    def read(self, amt=None):
        """Return the received bytes, then fail."""
        data = super().read(amt)
        if not data or amt is None:
            raise self.error
        return data


@pytest.mark.parametrize("size_bytes", [1, 3_000_000])
@pytest.mark.parametrize(
    "error",
    [
        None,
        ProtocolError("Connection broken: IncompleteRead"),
        ReadTimeoutError(None, "url", "Read timed out"),
        SSLError("EOF occurred in violation of protocol"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_every_interrupted_body_is_read_again(store, error, size_bytes):
    """It is repeated after any error, for an entire object, for chunks and for a range."""
    data = os.urandom(size_bytes)
    store.put("a", data)
    (entry,) = store.list()
    left = 0

    def cut(parsed, **_):
        nonlocal left
        left -= 1
        if left >= 0 and "Body" in parsed:
            full_length = parsed["ContentLength"]
            part = parsed["Body"].read()[: full_length // 2]
            raw = io.BytesIO(part) if error is None else BrokenBody(part, error)
            parsed["Body"] = StreamingBody(raw, full_length)

    store._client.meta.events.register("after-call.s3.GetObject", cut)
    try:
        for read in (
            lambda: store.read("a"),
            lambda: b"".join(store.read_chunks("a")),
            lambda: store.read_range(entry, 0, size_bytes),
        ):
            left = 4
            assert read() == data
            assert left < 0
        left = 1000
        for read in (lambda: store.read("a"), lambda: store.read_range(entry, 0, size_bytes)):
            with pytest.raises(EndpointError):
                read()
    finally:
        store._client.meta.events.unregister("after-call.s3.GetObject", cut)


def test_a_body_of_another_checksum_is_read_again_or_refused(store):
    """Bytes that changed in transit are never returned."""
    store.put("a", b"12345678")
    left = 0

    def damage(parsed, **_):
        nonlocal left
        left -= 1
        if left >= 0:
            parsed["Body"] = StreamingChecksumBody(io.BytesIO(b"12345679"), 8, Crc32Checksum(), parsed["ChecksumCRC32"])

    store._client.meta.events.register("after-call.s3.GetObject", damage)
    try:
        left = 2
        assert store.read("a") == b"12345678"
        for read in (lambda: store.read("a"), lambda: list(store.read_chunks("a"))):
            left = 100
            with pytest.raises(DdbioError, match="checksum"):
                read()
    finally:
        store._client.meta.events.unregister("after-call.s3.GetObject", damage)


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("PutObject", "s3:PutObject"),
        ("CreateMultipartUpload", "s3:PutObject"),
        ("DeleteObjects", "s3:DeleteObject"),
    ],
)
def test_a_target_that_may_not_be_written_is_refused_before_the_job(store, answer, operation, action):
    """Permissions to write, to start uploads and to delete are checked before any read."""
    answer(operation, (403, "AccessDenied"))
    with pytest.raises(AccessDeniedError, match=action):
        Target(store=store, mode="append").prepare("one")
    assert not any(entry.path.endswith(".parquet") for entry in store.list())


def test_a_gone_upload_is_not_found(store, answer):
    """An aborted upload is distinguished from other failures: nothing can complete it."""
    staged = store.create(PART).finish(0)
    store.abort("job")
    # S3's answer; moto has an internal error here.
    answer("CompleteMultipartUpload", (404, "NoSuchUpload"))
    with pytest.raises(NotFoundError, match="run the job again"):
        store.complete(staged)


def test_another_failure_to_complete_is_itself(store, answer):
    """A refusal that keeps the upload is reported unchanged."""
    staged = store.create(PART).finish(0)
    answer("CompleteMultipartUpload", (403, "AccessDenied"))
    with pytest.raises(AccessDeniedError):
        store.complete(staged)


def test_abort_removes_unreported_uploads(spec, bucket, store):
    """A job's abort removes its uploads under the target, and no other job's or target's."""
    store.create(PART)
    store.create("year=2025/" + PART)
    store.create(FileNaming("job2", 0).path(0, "parquet"))
    S3Store(spec, f"s3://{bucket}/out2").create(PART)
    store.abort("job")
    left = {upload["Key"] for upload in store._client.list_multipart_uploads(Bucket=bucket)["Uploads"]}
    assert left == {"out/part-job2-00000-0-0000.parquet", f"out2/{PART}"}
    store.abort("job")


def test_an_aborted_sink_leaves_no_upload(store, bucket):
    """A sink's abort removes its upload, may be repeated, and ignores later writes."""
    sink = store.create(PART)
    sink.write(b"x" * (PART_BYTES + 1))
    sink.abort()
    sink.abort()
    assert sink.write(b"late") == 4
    assert "Uploads" not in store._client.list_multipart_uploads(Bucket=bucket)


def test_a_failed_part_surfaces(store, answer):
    """The error of a part that is uploaded in the background reaches the writer, at the latest at the end."""
    answer("UploadPart", (403, "AccessDenied"))
    sink = store.create(PART)
    with pytest.raises(AccessDeniedError, match="s3:PutObject"):
        sink.write(bytes(PART_BYTES * (PARTS_IN_FLIGHT + 1)))
    sink.abort()
    small = store.create(PART)
    small.write(b"x")
    with pytest.raises(AccessDeniedError) as denied:
        small.finish(1)
    assert denied.value.resource == f"{store.uri}/{PART}"
    small.abort()


def test_a_busy_s3_is_tried_again(spec, bucket):
    """SlowDown, server errors and throttling by KMS are retried by the client of a ClientSpec."""
    patient = S3Store(replace(spec, region="us-west-2"), f"s3://{bucket}/out")
    answers = iter([(503, b"SlowDown"), (500, b"InternalError"), (400, b"ThrottlingException")])

    def respond(request, **_):
        for status, code in answers:
            body = Body(b"<Error><Code>" + code + b"</Code></Error>")
            return AWSResponse(request.url, status, {"Content-Type": "application/xml"}, body)
        return None

    patient._client.meta.events.register("before-send.s3.PutObject", respond)
    patient.put("a", b"through")
    assert list(answers) == []
    assert patient.read("a") == b"through"


def test_put_if_absent_has_one_winner(store):
    """Among many concurrent writers, one gets True."""
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: store.put_if_absent("_ddbio/m.json", str(n).encode()), range(8)))
    assert won.count(True) == 1
    assert store.read("_ddbio/m.json") == str(won.index(True)).encode()


def test_a_conflict_is_checked_again(store, answer):
    """A 409 is a loss only if the object exists. Otherwise nobody wrote it, which is an error."""
    answer("PutObject", (409, "ConditionalRequestConflict"))
    with pytest.raises(ServiceError, match="ConditionalRequestConflict"):
        store.put_if_absent("m", b"x")
    store.complete(store.create("m").finish(0))
    assert not store.put_if_absent("m", b"x")


def test_listing_is_relative_and_minds_the_slash(spec, bucket):
    """Paths are relative to the target. A neighbour with a longer name and folder markers are not listed."""
    client = spec.client("s3")
    for key in ["out/a", "out/x/b c+é", "out2/c", "out/", "out/x/"]:
        client.put_object(Bucket=bucket, Key=key, Body=b"" if key.endswith("/") else b"1")
    store = S3Store(spec, f"s3://{bucket}/out/")
    assert [entry.path for entry in store.list()] == ["a", "x/b c+é"]
    assert [entry.path for entry in store.list("x")] == ["x/b c+é"]
    assert [entry.path for entry in S3Store(spec, f"s3://{bucket}").list("out2")] == ["out2/c"]


def test_delete_takes_many_and_ignores_the_missing(store):
    """Deletion continues after the 1,000 keys of one request, and ignores missing keys."""
    for number in (0, 1, 999, 1000, 1001, 1499):
        store.put(f"k{number}", b"")
    store.delete([f"k{number}" for number in range(1, 1500)])
    assert [entry.path for entry in store.list()] == ["k0"]
    store.delete([])


def test_a_refused_key_is_an_error(store, monkeypatch):
    """DeleteObjects reports refusals of single keys with status 200. None is ignored."""
    refusal = {"Errors": [{"Key": "out/k", "Code": "AccessDenied", "Message": "no"}]}
    monkeypatch.setattr(store._client, "delete_objects", lambda **_: refusal)
    with pytest.raises(AccessDeniedError, match="s3:DeleteObject"):
        store.delete(["k"])


def test_a_missing_bucket_is_named(spec):
    """The error names the bucket and what to check."""
    store = S3Store(spec, "s3://no-such-bucket-here/out")
    for call in [lambda: list(store.list()), lambda: store.create(PART), lambda: store.abort("job")]:
        with pytest.raises(NotFoundError, match=r"no-such-bucket-here.*check the name"):
            call()


def test_a_dead_endpoint_is_an_error():
    """A closed port is an EndpointError that names the endpoint."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        store = S3Store(OneTrySpec(ClientSpec(endpoint_url=url, region="us-east-1")), "s3://bucket/out")
        for call in [lambda: list(store.list()), lambda: store.create(PART), lambda: store.put("a", b"")]:
            with pytest.raises(EndpointError, match=r"127\.0\.0\.1"):
                call()


def test_an_unexpected_refusal_keeps_its_code(store, answer):
    """An error without a specific class keeps AWS's code. A failed HeadObject does not mean a missing object."""
    answer("PutObject", (400, "InvalidStorageClass"))
    with pytest.raises(ServiceError) as refused:
        store.put_if_absent("a", b"")
    assert refused.value.code == "InvalidStorageClass"
    answer("HeadObject", (403, "Forbidden"))
    with pytest.raises(ClientError):
        store._head("a")


@pytest.mark.parametrize("target", ["bucket/out", "s3://", "s3:///out", "gs://bucket/out"])
def test_what_names_no_bucket_is_refused(spec, target):
    """A target that is no S3 location is refused with the correct syntax."""
    with pytest.raises(OptionError, match="s3://bucket/prefix"):
        S3Store(spec, target)


def test_a_store_is_pickled_for_workers(spec, bucket):
    """A used store is pickled without its client, and works after unpickling."""
    store = S3Store(spec, f"s3://{bucket}/out/")
    store.put("a", b"1")
    other = pickle.loads(pickle.dumps(store))
    assert other.uri == f"s3://{bucket}/out"
    assert other.read("a") == b"1"


def test_a_range_of_an_object_as_it_was_listed(store):
    """A range is requested of the listed version. S3 refuses it if it was replaced. A missing object is an error."""
    sent = []
    store._client.meta.events.register("before-parameter-build.s3.GetObject", lambda params, **_: sent.append(params))
    store.put("a", b"0123456789")
    (entry,) = store.list("a")
    assert store.read_range(entry, 3, 4) == b"3456"
    assert (sent[0]["IfMatch"], sent[0]["Range"]) == (entry.version, "bytes=3-6")
    store.delete(["a"])
    with pytest.raises(NotFoundError):
        store.read_range(entry, 0, 1)
