"""Object stores: local folders and buckets of moto."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from ddbio.aws.client import ClientSpec
from ddbio.aws.s3_store import S3Store
from ddbio.storage.local_store import LocalStore
from ddbio.testing import MotoServer

_serial = itertools.count()


@pytest.fixture(scope="session")
def s3_url():
    """Serve an S3 of moto for the whole run, with a bucket for exports."""
    with MotoServer() as server:
        ClientSpec(endpoint_url=server.endpoint_url, region="us-east-1").client("s3").create_bucket(Bucket="exports")
        yield server.endpoint_url


@pytest.fixture(scope="session")
def s3_spec(s3_url):
    """Return the configuration of a client of moto over HTTP."""
    return ClientSpec(endpoint_url=s3_url, region="us-east-1")


@pytest.fixture
def local_store(tmp_path):
    """Return a store in a folder that does not exist yet, nor its parent."""
    return LocalStore(tmp_path / "out" / "here")


@pytest.fixture
def s3_store(s3_spec):
    """Return a store with a target in a bucket."""
    bucket = f"bucket{next(_serial)}"
    s3_spec.client("s3").create_bucket(Bucket=bucket)
    return S3Store(s3_spec, f"s3://{bucket}/target")


@pytest.fixture(params=["local", "s3"])
def make_store(request, tmp_path):
    """Return a function that returns a store with a target that does not exist yet."""
    if request.param == "local":
        return lambda: LocalStore(tmp_path / f"target{next(_serial)}" / "below")
    spec = request.getfixturevalue("s3_spec")
    bucket = f"bucket{next(_serial)}"
    spec.client("s3").create_bucket(Bucket=bucket)
    return lambda: S3Store(spec, f"s3://{bucket}/target{next(_serial)}/below")


@pytest.fixture
def staged_left(tmp_path):
    """Return a function that returns the staged but invisible files below a store's target."""

    def left(store):
        if isinstance(store, LocalStore):
            return [path.name for path in tmp_path.rglob("*.staged")]
        uploads = store._client.list_multipart_uploads(Bucket=store._bucket, Prefix=store._start)
        return [upload["Key"] for upload in uploads.get("Uploads", [])]

    return left


@pytest.fixture
def flights():
    """Return 40,000 rows of mixed kinds whose neighbours differ."""
    rows = 40_000
    field = pa.field("origin", pa.string(), metadata={b"ddb:type": b"S"})
    schema = pa.schema([pa.field("id", pa.int64()), field, pa.field("payload", pa.binary(24))])
    columns = [
        pa.array(range(rows)),
        pa.array(["EWR", "LGA", None, "JFK"] * (rows // 4)),
        pa.array([(i * 2654435761 % 2**64).to_bytes(8, "big") * 3 for i in range(rows)], pa.binary(24)),
    ]
    return pa.record_batch(columns, schema=schema)
