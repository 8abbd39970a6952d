"""Checks that no fake can trigger: the states of keys, and the notations of lifecycle rules."""

import json
import shlex
from datetime import UTC, datetime

import pytest

from ddbio.advice.doctor import Subject, judge_incomplete_uploads, judge_object_lock, judge_table_encryption

BUCKET = Subject("a b", {"--region": "eu-west-1", "--profile": None}, "logs/orders")
SINCE = datetime(2026, 1, 2, tzinfo=UTC)
ABORT = {"Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}


@pytest.mark.parametrize(
    ("described", "level", "text"),
    [
        ({}, "ok", "by a key that AWS owns"),
        ({"SSEDescription": {"Status": "ENABLED", "KMSMasterKeyArn": "arn:key"}}, "ok", "by the KMS key arn:key"),
        (
            {"SSEDescription": {"KMSMasterKeyArn": "arn:key", "InaccessibleEncryptionDateTime": SINCE}},
            "problem",
            "DynamoDB cannot use the KMS key arn:key since 2026-01-02",
        ),
    ],
)  # fmt: skip
def test_the_key_of_a_table(described, level, text):
    """A key that can no longer be used is a problem, because DynamoDB archives the table."""
    finding = judge_table_encryption(described)
    assert (finding.level, text in finding.found, finding.action is None) == (level, True, level == "ok")


@pytest.mark.parametrize(
    ("rule", "covers"),
    [
        ({"Filter": {}}, True),
        ({"Filter": {"Prefix": ""}}, True),
        ({"Prefix": ""}, True),
        ({"Filter": {"Prefix": "logs/"}}, True),
        ({"Filter": {"Prefix": "logs/orders"}}, True),
        ({"Filter": {"Prefix": "logs/orders/"}}, True),
        ({"Filter": {"Prefix": "logs/orders/2026"}}, False),
        ({"Filter": {"Prefix": "other/"}}, False),
        ({"Filter": {"And": {"Prefix": "", "ObjectSizeGreaterThan": 1}}}, False),
        ({"Filter": {"Prefix": ""}, "Status": "Disabled"}, False),
    ],
)
def test_rules_for_incomplete_uploads(rule, covers):
    """A rule counts if it is enabled, and applies to all keys below the prefix."""
    finding = judge_incomplete_uploads(BUCKET, {"Rules": [{**ABORT, **rule}]})
    assert finding.level == ("ok" if covers else "warning")


def test_a_command_keeps_the_rules_that_are_there():
    """A configuration replaces the previous one: the command contains all rules and other settings."""
    rule = {"ID": "own", "Status": "Enabled", "Filter": {}, "Expiration": {"Date": datetime(2027, 1, 1, tzinfo=UTC)}}
    size = "varies_by_storage_class"
    finding = judge_incomplete_uploads(BUCKET, {"Rules": [rule], "TransitionDefaultMinimumObjectSize": size})
    words = shlex.split(finding.action)
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    rules = json.loads(flags.pop("--lifecycle-configuration"))["Rules"]
    assert rules[0] == {**rule, "Expiration": {"Date": "2027-01-01T00:00:00+00:00"}}
    assert rules[1]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert flags == {"--transition-default-minimum-object-size": size, "--bucket": "a b", "--region": "eu-west-1"}


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        ({"Mode": "COMPLIANCE", "Years": 2}, "on, COMPLIANCE: versions are kept 2 years"),
        ({"Mode": "GOVERNANCE", "Days": 30}, "on, GOVERNANCE: versions are kept 30 days"),
    ],
)
def test_default_retention_is_reported(kept, text):
    """It also keeps objects that jobs delete."""
    response = {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": kept}}}
    assert judge_object_lock(BUCKET, response, is_asked_for=True).found == f"{text}, including those that jobs delete"
