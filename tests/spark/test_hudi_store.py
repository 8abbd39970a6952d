"""Options of S3 requests that Hudi's own writer would not apply are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from ddbio.errors import OptionError
from ddbio.options import ConnectionOptions
from ddbio.spark.hudi import hudi_store

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
SSE_KMS = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": KEY}
PLACE = "s3://lake/table"


def session(settings):
    """Return the part of a session that is used: its Hadoop settings."""
    context = SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: settings))
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("options", "settings", "way"),
    [
        ({"s3_expected_bucket_owner": "123456789012"}, {}, "no setting for it"),
        ({"s3_tags": "a=b"}, SSE_KMS, "no setting for it"),
        ({"s3_object_lock_legal_hold": True}, {}, "no setting for it"),
        (
            {"s3_object_lock_mode": "GOVERNANCE", "s3_object_lock_until": datetime(2099, 1, 1, tzinfo=UTC)}, {},
            "no setting for it",
        ),
        ({"s3_sse_kms_key_id": KEY}, {}, f"spark.hadoop.fs.s3a.encryption.key={KEY}"),
        ({"s3_sse": "aws:kms"}, {"fs.s3a.encryption.algorithm": "SSE-S3"}, "fs.s3a.encryption.algorithm=SSE-KMS"),
        ({"s3_sse": "AES256"}, {"fs.s3a.bucket.lake.encryption.algorithm": "SSE-KMS"}, "algorithm=SSE-S3"),
        ({"s3_acl": "bucket-owner-read"}, {}, "fs.s3a.acl.default=bucket-owner-read"),
        ({"s3_requester_pays": True}, {}, "fs.s3a.requester.pays.enabled=true"),
        ({"s3_storage_class": "STANDARD_IA"}, {}, "fs.s3a.create.storage.class=STANDARD_IA"),
        ({"s3_sse": "aws:kms"}, {"fs.s3.impl": "EMRFS"}, "no setting for it"),
    ],
)  # fmt: skip
def test_unsupported_options_are_refused(options, settings, way):
    """The error names the option, and the setting of the session if there is one."""
    with pytest.raises(OptionError, match=way) as caught:
        hudi_store(PLACE, ConnectionOptions(**options), session(settings))
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "options", "settings"),
    [
        (PLACE, {}, {}),
        (PLACE, {"s3_sse_kms_key_id": KEY}, SSE_KMS),
        (PLACE, {"s3_sse": "aws:kms"}, {"fs.s3a.bucket.lake.encryption.algorithm": "SSE-KMS"}),
        (PLACE, {"s3_acl": "bucket-owner-read"}, {"fs.s3a.acl.default": "BucketOwnerRead"}),
        (PLACE, {"s3_sse_kms_key_id": KEY}, {"fs.s3.impl": "x", "fs.s3.serverSideEncryption.kms.keyId": KEY}),
        ("/lake/table", {"s3_tags": "a=b"}, {}),
    ],
)
def test_settings_of_the_session_are_accepted(uri, options, settings):
    """The settings that errors name are sufficient, and a folder needs none."""
    assert hudi_store(uri, ConnectionOptions(**options), session(settings)).uri == uri
