"""Judge the settings of a table and of a bucket: what the service says of them, and which command changes them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.table_description import RecoveryDescription

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html: 5 minutes; S3 allows 15.
_WORST_SKEW_SECONDS, _BAD_SKEW_SECONDS = 300.0, 30.0
_INCOMPLETE_DAYS = 7
_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding(Result):
    """What one check has found.

    Attributes
    ----------
    check
        Name of the check, like ``table.recovery``.
    level
        ``problem`` if jobs fail by it, ``warning`` if they may work, and ``ok``.
    action
        What to do, often a command; None if the level is ``ok``.
    """

    check: str
    level: Level
    found: str
    action: str | None = None


@dataclass(frozen=True)
class DoctorReport(Result):
    """What all checks have found."""

    problems: int
    warnings: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Subject:
    """A table or a bucket, and how the AWS CLI reaches it.

    Attributes
    ----------
    prefix
        The part of a bucket that jobs use.
    flags
        Values of the flags of each command, by their names.
    """

    name: str
    flags: Mapping[str, str | None]
    prefix: str = ""

    def command(self, words: str) -> str:
        """Return a command of the AWS CLI whose words end with the flag that takes the name."""
        flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in self.flags.items() if value)
        return f"aws {words} {shlex.quote(self.name)}{flags}"


def judge_clock(service: str, ahead_seconds: float | None) -> Finding:
    """Judge by how much the clock of a service is ahead of this machine; None if that is not known."""
    check = f"{service}.clock"
    if ahead_seconds is None:
        text, action = "the response has no date to compare the clock with", "check that the endpoint is the right one"
        return Finding(check, "warning", text, action)
    skew = abs(ahead_seconds)
    text = f"the clock of this machine is {skew:.0f} s {'slow' if ahead_seconds > 0 else 'fast'}"
    if skew < _BAD_SKEW_SECONDS:
        return Finding(check, "ok", text if skew >= 1 else "the clock of this machine is right")
    is_worst = skew >= _WORST_SKEW_SECONDS
    text += ", and signatures are refused from 300 s on"
    return Finding(check, "problem" if is_worst else "warning", text, "set the clock: sudo timedatectl set-ntp true")


def judge_protection(table: Subject, described: Mapping[str, Any]) -> Finding:
    """Judge by DescribeTable whether one call could delete a table."""
    if described.get("DeletionProtectionEnabled"):
        return Finding("table.deletion_protection", "ok", "on")
    action = table.command("dynamodb update-table --deletion-protection-enabled --table-name")
    return Finding("table.deletion_protection", "warning", "off: one call deletes the table", action)


def judge_table_encryption(described: Mapping[str, Any]) -> Finding:
    """Judge by DescribeTable whether the key that encrypts a table can be used."""
    found = described.get("SSEDescription", {})
    key, since = found.get("KMSMasterKeyArn"), found.get("InaccessibleEncryptionDateTime")
    if since is None:
        return Finding("table.encryption", "ok", f"by the KMS key {key}" if key else "by a key that AWS owns")
    text = f"DynamoDB cannot use the KMS key {key} since {since}: it archives the table after seven days"
    return Finding("table.encryption", "problem", text, "enable the key, and let its policy allow the table's users")


def judge_recovery(table: Subject, recovery: RecoveryDescription) -> Finding:
    """Judge whether a table has point-in-time recovery."""
    if recovery.is_on:
        return Finding("table.recovery", "ok", f"on, since {recovery.earliest:%Y-%m-%d %H:%M %Z}")
    words = "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true --table-name"
    action = table.command(f"dynamodb update-continuous-backups {words}")
    return Finding("table.recovery", "warning", "off: no exports, and no restore to a time", action)


def judge_stream(table: Subject, described: Mapping[str, Any], destinations: list[str]) -> Finding:
    """Judge by DescribeTable, and the Kinesis streams that get a table's changes, whether these can be captured."""
    view = described.get("StreamSpecification", {}).get("StreamViewType")
    if view == "NEW_AND_OLD_IMAGES" or (view is None and destinations):
        return Finding("table.stream", "ok", f"on, {view or ', '.join(destinations)}")
    update = "dynamodb update-table --stream-specification StreamEnabled={} --table-name"
    action = table.command(update.format("true,StreamViewType=NEW_AND_OLD_IMAGES"))
    if view is None:
        return Finding("table.stream", "warning", "off: no changes can be captured", action)
    steps = (update.format("false"), "dynamodb wait table-exists --table-name")
    action = " && ".join([*map(table.command, steps), action])
    return Finding("table.stream", "warning", f"its view is {view}: changes lack their old or new items", action)


def judge_bucket_encryption(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Judge by GetBucketEncryption how new objects are encrypted."""
    check, put = "bucket.encryption", "s3api put-bucket-encryption --server-side-encryption-configuration {} --bucket"
    rules = response.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
    rule = rules[0] if rules else {}
    default = rule.get("ApplyServerSideEncryptionByDefault", {})
    algorithm = default.get("SSEAlgorithm")
    if algorithm is None:
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        action = bucket.command(put.format(_quoted({"Rules": [rule]})))
        return Finding(check, "warning", "off: objects are stored as they are", action)
    text = " ".join(filter(None, (algorithm, default.get("KMSMasterKeyID"))))
    if algorithm != "aws:kms" or rule.get("BucketKeyEnabled"):
        return Finding(check, "ok", text)
    action = bucket.command(put.format(_quoted({"Rules": [{**rule, "BucketKeyEnabled": True}]})))
    return Finding(check, "warning", f"{text} without a bucket key: each object costs requests to KMS", action)


def judge_versioning(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Judge by GetBucketVersioning whether what is deleted can be had back."""
    status = response.get("Status")
    if status == "Enabled":
        return Finding("bucket.versioning", "ok", "on")
    action = bucket.command("s3api put-bucket-versioning --versioning-configuration Status=Enabled --bucket")
    return Finding("bucket.versioning", "warning", f"{status or 'off'}: what is deleted or replaced is gone", action)


def judge_public_access(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Judge by GetPublicAccessBlock whether a bucket can be made public."""
    found = response.get("PublicAccessBlockConfiguration", {})
    missing = [name for name in _BLOCKS if not found.get(name)]
    if not missing:
        return Finding("bucket.public_access", "ok", "blocked")
    wanted = ",".join(f"{name}=true" for name in _BLOCKS)
    action = bucket.command(f"s3api put-public-access-block --public-access-block-configuration {wanted} --bucket")
    text = f"not blocked by the bucket: {', '.join(missing)} off"
    return Finding("bucket.public_access", "warning", text, action)


def judge_incomplete_uploads(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Judge by GetBucketLifecycleConfiguration whether uploads that nobody completes are deleted."""
    check, aborts, rules = "bucket.incomplete_uploads", "AbortIncompleteMultipartUpload", response.get("Rules", [])
    days = [
        each[aborts]["DaysAfterInitiation"]
        for each in rules
        if each.get("Status") == "Enabled" and aborts in each and _covers(each, bucket.prefix)
    ]
    if days:
        return Finding(check, "ok", f"deleted after {min(days)} days")
    rule = {"ID": "abort-incomplete-uploads", "Status": "Enabled", "Filter": {"Prefix": ""}}
    # A configuration replaces the one before.
    configuration = {"Rules": [*rules, {**rule, aborts: {"DaysAfterInitiation": _INCOMPLETE_DAYS}}]}
    put = f"s3api put-bucket-lifecycle-configuration --lifecycle-configuration {_quoted(configuration)}"
    if size := response.get("TransitionDefaultMinimumObjectSize"):
        put += f" --transition-default-minimum-object-size {size}"
    text = "never deleted: S3 bills what killed jobs leave, and lists of objects do not show it"
    return Finding(check, "warning", text, bucket.command(f"{put} --bucket"))


def judge_object_lock(bucket: Subject, response: Mapping[str, Any], *, is_asked_for: bool) -> Finding:
    """Judge by GetObjectLockConfiguration whether a bucket takes locked objects, and locks all of them by itself."""
    check, found = "bucket.object_lock", response.get("ObjectLockConfiguration", {})
    if found.get("ObjectLockEnabled") != "Enabled":
        if not is_asked_for:
            return Finding(check, "ok", "off")
        words = "s3api put-object-lock-configuration --object-lock-configuration ObjectLockEnabled=Enabled --bucket"
        return Finding(check, "problem", "off: S3 refuses objects that are to be locked", bucket.command(words))
    kept = found.get("Rule", {}).get("DefaultRetention")
    if kept is None:
        return Finding(check, "ok", "on")
    span = f"{kept['Days']} days" if "Days" in kept else f"{kept.get('Years')} years"
    return Finding(check, "ok", f"on, {kept.get('Mode')}: versions are kept {span}, also of what jobs delete")


def _covers(rule: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a rule of a lifecycle is for all keys below a prefix."""
    chosen = rule.get("Filter", {"Prefix": rule.get("Prefix", "")})
    return set(chosen) <= {"Prefix"} and f"{prefix}/".startswith(chosen.get("Prefix", ""))


def _quoted(value: Any) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":"), default=lambda at: at.isoformat()))
