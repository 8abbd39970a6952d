"""Checks of the environment of jobs: machine, credentials, endpoints, a table and a bucket. Nothing is changed.

Checks run in threads with a time limit, because neither DNS nor all sources of credentials have timeouts.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import shlex
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from ddbio.aws.control_plane import call, describe_recovery
from ddbio.aws.endpoint_probe import endpoint_url, is_of_aws, reach
from ddbio.aws.s3_store import split_location
from ddbio.errors import AccessDeniedError, DdbioError, EndpointError, NotFoundError, OptionError, ServiceError
from ddbio.jobs.clients import dynamodb_spec, identity_spec, s3_spec
from ddbio.jobs.engine import describe_spark, is_spark_installed
from ddbio.result import Result
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ddbio.advice.options import DoctorOptions
    from ddbio.aws.table_description import RecoveryDescription

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html: 5 minutes; S3 allows 15.
_WORST_SKEW_SECONDS, _BAD_SKEW_SECONDS = 300.0, 30.0
_INCOMPLETE_DAYS = 7
_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding(Result):
    """Result of one check.

    Attributes
    ----------
    check
        Name of the check, like ``table.recovery``.
    level
        ``problem`` if jobs fail, ``warning`` if they may fail, otherwise ``ok``.
    action
        What to do, often a command; None if the level is ``ok``.
    """

    check: str
    level: Level
    found: str
    action: str | None = None


@dataclass(frozen=True)
class DoctorReport(Result):
    """Results of all checks."""

    problems: int
    warnings: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Subject:
    """A table or a bucket, and the flags with which the AWS CLI reaches it.

    Attributes
    ----------
    prefix
        The part of a bucket that jobs use.
    flags
        Flags of each command and their values.
    """

    name: str
    flags: Mapping[str, str | None]
    prefix: str = ""

    def command(self, words: str) -> str:
        """Return an AWS CLI command. ``words`` end with the flag that takes the name."""
        flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in self.flags.items() if value)
        return f"aws {words} {shlex.quote(self.name)}{flags}"


def judge_clock(service: str, ahead_seconds: float | None) -> Finding:
    """Check the difference between the clocks of a service and of this machine; None if it is unknown."""
    check = f"{service}.clock"
    if ahead_seconds is None:
        text, action = "the response has no date to compare the clock with", "check that the endpoint is the right one"
        return Finding(check, "warning", text, action)
    skew = abs(ahead_seconds)
    text = f"the clock of this machine is {skew:.0f} s {'slow' if ahead_seconds > 0 else 'fast'}"
    if skew < _BAD_SKEW_SECONDS:
        return Finding(check, "ok", text if skew >= 1 else "the clock of this machine is right")
    is_worst = skew >= _WORST_SKEW_SECONDS
    text += ", and signatures are refused from 300 s"
    return Finding(check, "problem" if is_worst else "warning", text, "set the clock: sudo timedatectl set-ntp true")


def judge_protection(table: Subject, described: Mapping[str, Any]) -> Finding:
    """Check by DescribeTable whether the table is protected against deletion."""
    if described.get("DeletionProtectionEnabled"):
        return Finding("table.deletion_protection", "ok", "on")
    action = table.command("dynamodb update-table --deletion-protection-enabled --table-name")
    return Finding("table.deletion_protection", "warning", "off: one call deletes the table", action)


def judge_table_encryption(described: Mapping[str, Any]) -> Finding:
    """Check by DescribeTable whether DynamoDB can use the encryption key of a table."""
    encryption = described.get("SSEDescription", {})
    key, since = encryption.get("KMSMasterKeyArn"), encryption.get("InaccessibleEncryptionDateTime")
    if since is None:
        return Finding("table.encryption", "ok", f"by the KMS key {key}" if key else "by a key that AWS owns")
    text = f"DynamoDB cannot use the KMS key {key} since {since}: it archives the table after seven days"
    return Finding("table.encryption", "problem", text, "enable the key, and allow the table's users in its policy")


def judge_recovery(table: Subject, recovery: RecoveryDescription) -> Finding:
    """Check whether a table has point-in-time recovery."""
    if recovery.is_on:
        return Finding("table.recovery", "ok", f"on, since {recovery.earliest:%Y-%m-%d %H:%M %Z}")
    words = "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true --table-name"
    action = table.command(f"dynamodb update-continuous-backups {words}")
    return Finding("table.recovery", "warning", "off: no exports, and no restore to a time", action)


def judge_stream(table: Subject, described: Mapping[str, Any], destinations: list[str]) -> Finding:
    """Check by DescribeTable and the table's Kinesis streams whether changes can be captured."""
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
    """Check by GetBucketEncryption how new objects are encrypted."""
    check, put = "bucket.encryption", "s3api put-bucket-encryption --server-side-encryption-configuration {} --bucket"
    rules = response.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
    rule = rules[0] if rules else {}
    default = rule.get("ApplyServerSideEncryptionByDefault", {})
    algorithm = default.get("SSEAlgorithm")
    if algorithm is None:
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        action = bucket.command(put.format(_quoted({"Rules": [rule]})))
        return Finding(check, "warning", "off: objects are stored unencrypted", action)
    text = " ".join(filter(None, (algorithm, default.get("KMSMasterKeyID"))))
    if algorithm != "aws:kms" or rule.get("BucketKeyEnabled"):
        return Finding(check, "ok", text)
    action = bucket.command(put.format(_quoted({"Rules": [{**rule, "BucketKeyEnabled": True}]})))
    return Finding(check, "warning", f"{text} without a bucket key: each object costs requests to KMS", action)


def judge_versioning(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Check by GetBucketVersioning whether deleted objects can be restored."""
    status = response.get("Status")
    if status == "Enabled":
        return Finding("bucket.versioning", "ok", "on")
    action = bucket.command("s3api put-bucket-versioning --versioning-configuration Status=Enabled --bucket")
    return Finding("bucket.versioning", "warning", f"{status or 'off'}: deleted and replaced objects are lost", action)


def judge_public_access(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Check by GetPublicAccessBlock whether a bucket can be made public."""
    settings = response.get("PublicAccessBlockConfiguration", {})
    missing = [name for name in _BLOCKS if not settings.get(name)]
    if not missing:
        return Finding("bucket.public_access", "ok", "blocked")
    wanted = ",".join(f"{name}=true" for name in _BLOCKS)
    action = bucket.command(f"s3api put-public-access-block --public-access-block-configuration {wanted} --bucket")
    text = f"not blocked by the bucket: {', '.join(missing)} off"
    return Finding("bucket.public_access", "warning", text, action)


def judge_incomplete_uploads(bucket: Subject, response: Mapping[str, Any]) -> Finding:
    """Check by GetBucketLifecycleConfiguration whether incomplete uploads are deleted."""
    check, aborts, rules = "bucket.incomplete_uploads", "AbortIncompleteMultipartUpload", response.get("Rules", [])
    days = [
        rule[aborts]["DaysAfterInitiation"]
        for rule in rules
        if rule.get("Status") == "Enabled" and aborts in rule and _covers(rule, bucket.prefix)
    ]
    if days:
        return Finding(check, "ok", f"deleted after {min(days)} days")
    rule = {"ID": "abort-incomplete-uploads", "Status": "Enabled", "Filter": {"Prefix": ""}}
    # A new configuration replaces the existing one.
    configuration = {"Rules": [*rules, {**rule, aborts: {"DaysAfterInitiation": _INCOMPLETE_DAYS}}]}
    put = f"s3api put-bucket-lifecycle-configuration --lifecycle-configuration {_quoted(configuration)}"
    if size := response.get("TransitionDefaultMinimumObjectSize"):
        put += f" --transition-default-minimum-object-size {size}"
    text = "never deleted: S3 bills the parts that killed jobs leave, and lists of objects do not show them"
    return Finding(check, "warning", text, bucket.command(f"{put} --bucket"))


def judge_object_lock(bucket: Subject, response: Mapping[str, Any], *, is_asked_for: bool) -> Finding:
    """Check by GetObjectLockConfiguration whether a bucket accepts locked objects, and locks all objects by default."""
    check, configuration = "bucket.object_lock", response.get("ObjectLockConfiguration", {})
    if configuration.get("ObjectLockEnabled") != "Enabled":
        if not is_asked_for:
            return Finding(check, "ok", "off")
        words = "s3api put-object-lock-configuration --object-lock-configuration ObjectLockEnabled=Enabled --bucket"
        return Finding(check, "problem", "off: S3 refuses locked objects", bucket.command(words))
    kept = configuration.get("Rule", {}).get("DefaultRetention")
    if kept is None:
        return Finding(check, "ok", "on")
    span = f"{kept['Days']} days" if "Days" in kept else f"{kept.get('Years')} years"
    return Finding(check, "ok", f"on, {kept.get('Mode')}: versions are kept {span}, including those that jobs delete")


def _covers(rule: Mapping[str, Any], prefix: str) -> bool:
    """Return whether a lifecycle rule applies to all keys below a prefix."""
    chosen = rule.get("Filter", {"Prefix": rule.get("Prefix", "")})
    return set(chosen) <= {"Prefix"} and f"{prefix}/".startswith(chosen.get("Prefix", ""))


def _quoted(value: Any) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":"), default=lambda at: at.isoformat()))


LIMIT_SECONDS = 30.0
"""Time limit of a round of concurrent checks; there are three rounds."""

_TIMEOUT_SECONDS = 5.0
_LOG_IN = "log in, give another --profile, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or attach a role"
_SOON = timedelta(hours=1)
# Error codes of S3 for missing configurations.
_NOT_CONFIGURED = frozenset(
    {
        "NoSuchLifecycleConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
        "ObjectLockConfigurationNotFoundError",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)


def doctor(options: DoctorOptions) -> DoctorReport:
    """Check this machine, credentials, endpoints, a table and a bucket, and recommend what to do.

    Failed requests, including missing permissions, are findings and not errors. Nothing is changed, and no item or
    object is read. No check takes longer than 30 s.

    Raises
    ------
    OptionError
        If an option is invalid.
    """
    aws = _Aws(options)
    findings = _run({"settings": aws.settings, "environment": _environment, "kernel": _kernel, "spark": _spark})
    if not _have_problems(findings, "settings", "credentials"):
        endpoints = {f"{name}.endpoint": partial(aws.endpoint, name) for name in aws.services}
        findings += _run({"credentials": aws.credentials, **endpoints})
        asked = (("table", options.table, "dynamodb", aws.table), ("bucket", options.location, "s3", aws.bucket))
        findings += _run(
            {
                check: run
                for check, name, service, run in asked
                if name and not _have_problems(findings, "credentials", f"{service}.endpoint", f"{service}.tls")
            }
        )
    count = [finding.level for finding in findings].count
    return DoctorReport(count("problem"), count("warning"), tuple(findings))


def _have_problems(findings: list[Finding], *checks: str) -> bool:
    return any(finding.level == "problem" and finding.check in checks for finding in findings)


def _run(checks: Mapping[str, Callable[[], Iterator[Finding]]]) -> list[Finding]:
    """Run checks concurrently and return their findings in order. A check that exceeds the time limit is a problem."""
    findings_of: dict[str, list[Finding]] = {name: [] for name in checks}

    def run(name: str) -> None:
        try:
            for finding in checks[name]():
                findings_of[name].append(finding)
        except DdbioError as error:
            findings_of[name].append(_failed(name, error))
        except Exception as error:  # noqa: BLE001 - the other findings are reported in any case
            text = f"the check failed: {type(error).__name__}: {error}"
            findings_of[name].append(Finding(name, "problem", text, "report this: it is a bug of ddbio"))

    threads = {name: threading.Thread(target=run, args=[name], daemon=True) for name in checks}
    for thread in threads.values():
        thread.start()
    ends_at, findings = time.monotonic() + LIMIT_SECONDS, list[Finding]()
    for name, thread in threads.items():
        thread.join(max(0.0, ends_at - time.monotonic()))
        findings += findings_of[name]
        if thread.is_alive():
            action = "look for what is slow: DNS, the network, the program or service that provides credentials"
            findings.append(Finding(name, "problem", f"not done within {LIMIT_SECONDS:g} s", action))
    return findings


def _failed(check: str, error: DdbioError, level: Level = "problem", action: str = "") -> Finding:
    """Return the finding of a failed request."""
    advice = {
        AccessDeniedError: f"allow {getattr(error, 'action', '')}",
        EndpointError: "check region, endpoint, DNS, VPC endpoint, firewall and proxy",
        NotFoundError: "check name, region and account",
        OptionError: "correct the option, the variable or the profile",
    }
    return Finding(check, level, str(error), action or advice.get(type(error), "see the message of the service"))


def _environment() -> Iterator[Finding]:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("boto3", "numpy", "pyarrow"))
    environment = (
        f"ddbio {__version__}, Python {platform.python_version()}, {libraries}, {platform.platform(terse=True)}"
    )
    yield Finding("environment", "ok", environment)


def _kernel() -> Iterator[Finding]:
    from ddbio.items.kernel.library import LIBRARY  # noqa: PLC0415 - it loads numpy

    if LIBRARY is not None:
        yield Finding("kernel", "ok", f"the compiled loops are loaded, for processors of level {LIBRARY.LEVEL}")
    else:
        text = "there is no library of compiled loops for this platform: every process compiles them, in half a minute"
        yield Finding("kernel", "warning", text, "python -m ddbio.items.kernel.compiler")


def _spark() -> Iterator[Finding]:
    if not is_spark_installed():
        yield Finding("spark", "ok", "PySpark is not installed: jobs run on threads of this process")
        return
    try:
        yield Finding("spark", "ok", describe_spark())
    except OptionError as error:
        yield _failed("spark", error, action="install Java, uninstall PySpark, or give --engine local to each job")


class _Aws:
    """Checks that call AWS."""

    def __init__(self, options: DoctorOptions) -> None:
        self._options = options
        recipes = {"dynamodb": dynamodb_spec, "s3": s3_spec, "sts": identity_spec}
        self._specs = {
            name: dataclasses.replace(recipe(options), timeout_seconds=_TIMEOUT_SECONDS)
            for name, recipe in recipes.items()
        }
        self._urls: dict[str, str] = {}
        self._region = self._account = ""
        self.services: list[str] = []

    def settings(self) -> Iterator[Finding]:
        """Create a client of each service, and choose the services to check."""
        try:
            self._urls = {name: endpoint_url(spec, name) for name, spec in self._specs.items()}
        except AccessDeniedError as error:
            yield _failed("credentials", error, action=_LOG_IN)
            return
        client: Any = self._specs["dynamodb"].client("dynamodb")
        self._region = client.meta.region_name
        options = self._options
        if options.table or not options.location:
            self.services.append("dynamodb")
        # With a custom endpoint, S3 itself is not checked.
        if options.location or not (options.table or options.endpoint_url):
            self.services.append("s3")
        profile = f", profile {options.profile}" if options.profile else ""
        yield Finding("settings", "ok", f"region {self._region}{profile}")

    def credentials(self) -> Iterator[Finding]:
        """Check the owner and the validity of the credentials."""
        try:
            source = self._specs["dynamodb"].credential_source()
        except AccessDeniedError as error:
            yield _failed("credentials", error, action=_LOG_IN)
            return
        text, until = f"from {source.method}", source.expires_at
        text += "" if until is None else f", valid until {until:%Y-%m-%d %H:%M %Z}"
        if source.is_refreshed:
            yield Finding("credentials", "ok", f"{text}, then fetched again")
        elif until is None and not source.is_temporary:
            yield Finding("credentials", "ok", f"{text}, valid until they are revoked")
        elif until is not None and until > datetime.now(UTC) + _SOON:
            yield Finding("credentials", "ok", f"{text}, and not fetched again")
        else:
            text += ", and not fetched again: a job that takes longer fails" if until else ", valid for some hours"
            yield Finding("credentials", "warning", text, "give --profile or --role-arn, which fetch credentials again")
        if is_of_aws(self._urls["sts"]) and not any(is_of_aws(self._urls[name]) for name in self.services):
            return
        try:
            caller = call(self._specs["sts"], "GetCallerIdentity", "the caller", {}, service="sts")
            self._account = caller["Account"]
            yield Finding("identity", "ok", caller["Arn"])
        except AccessDeniedError as error:
            yield _failed("credentials", error, action=_LOG_IN)
        except DdbioError as error:
            yield _failed("identity", error, "warning")

    def endpoint(self, service: str) -> Iterator[Finding]:
        """Check how the endpoint of a service is reached."""
        endpoint = reach(self._specs[service], service)
        url = endpoint.url
        is_here = endpoint.network == "this machine"
        way = (
            f"by the proxy {endpoint.proxy}"
            if endpoint.proxy
            else f"{endpoint.network}: {', '.join(endpoint.addresses)}"
        )
        if is_of_aws(url) and endpoint.network:
            is_private = endpoint.network == "private"
            way += "; an interface endpoint" if is_private else "; no interface endpoint: gateway endpoint, or internet"
        yield Finding(f"{service}.endpoint", "ok", f"{url}, {way}")
        if url.startswith("https:"):
            yield Finding(f"{service}.tls", "ok", f"{endpoint.tls_version or 'TLS'}, the certificate is trusted")
        elif is_here:
            yield Finding(f"{service}.tls", "ok", "none, on this machine")
        else:
            text = f"none: the network can read the items and the session token that are sent to {url}"
            yield Finding(f"{service}.tls", "problem", text, "give an endpoint with https://")
        yield judge_clock(service, endpoint.ahead_seconds)

    def table(self) -> Iterator[Finding]:
        """Check the settings of the table."""
        name, spec = self._options.table or "", self._specs["dynamodb"]
        ask = partial(call, spec, resource=f"table {name!r}", members={"TableName": name})
        description = ask("DescribeTable")["Table"]
        status = description["TableStatus"]
        is_ready = status in {"ACTIVE", "UPDATING"}
        text, action = f"{description['TableArn']} is {status}", "wait until it is ACTIVE, or choose another one"
        yield Finding("table", "ok" if is_ready else "problem", text, None if is_ready else action)
        table = self._subject(name, self._options.endpoint_url)
        yield judge_protection(table, description)
        yield judge_table_encryption(description)
        yield _asked("table.recovery", lambda: judge_recovery(table, describe_recovery(spec, name)))

        def stream() -> Finding:
            has_stream = "StreamSpecification" in description
            fed = [] if has_stream else ask("DescribeKinesisStreamingDestination")["KinesisDataStreamDestinations"]
            active = [destination["StreamArn"] for destination in fed if destination["DestinationStatus"] == "ACTIVE"]
            return judge_stream(table, description, active)

        yield _asked("table.stream", stream)

    def bucket(self) -> Iterator[Finding]:
        """Check the settings of the bucket."""
        options = self._options
        name, prefix = split_location(options.location or "")
        bucket = self._subject(name, options.s3_endpoint_url, prefix)
        try:
            region = self._ask(name, "HeadBucket").get("BucketRegion") or self._region
        except AccessDeniedError as error:
            owner = options.s3_expected_bucket_owner
            doubt = f"its owner is not {owner}" if owner else "another account owns it"
            yield _failed("bucket", error, action=f"allow s3:ListBucket; or it is not the intended bucket: {doubt}")
            return
        if region == self._region:
            yield Finding("bucket", "ok", f"{name} in {region}")
        else:
            text = f"{name} is in {region}, and jobs are in {self._region}: all bytes cross regions"
            yield Finding("bucket", "warning", text, f"use a bucket in {self._region}, or give --region {region}")
        yield _asked("bucket.owner", partial(self._owner, name))
        is_locked = options.s3_object_lock_mode is not None or options.s3_object_lock_legal_hold
        for check, operation, judge in (
            ("encryption", "GetBucketEncryption", judge_bucket_encryption),
            ("versioning", "GetBucketVersioning", judge_versioning),
            ("public_access", "GetPublicAccessBlock", judge_public_access),
            ("incomplete_uploads", "GetBucketLifecycleConfiguration", judge_incomplete_uploads),
            ("object_lock", "GetObjectLockConfiguration", partial(judge_object_lock, is_asked_for=is_locked)),
        ):
            yield _asked(f"bucket.{check}", partial(self._judge, bucket, operation, judge))

    def _judge(
        self, bucket: Subject, operation: str, judge: Callable[[Subject, Mapping[str, Any]], Finding]
    ) -> Finding:
        return judge(bucket, self._ask(bucket.name, operation))

    def _owner(self, name: str) -> Finding:
        expected = self._options.s3_expected_bucket_owner
        if expected:
            return Finding("bucket.owner", "ok", f"account {expected}, as expected")
        advice = "give --s3-expected-bucket-owner: S3 then refuses buckets of all other accounts"
        if not self._account:
            return Finding("bucket.owner", "warning", "not compared: your account is not known", advice)
        try:
            self._ask(name, "HeadBucket", ExpectedBucketOwner=self._account)
        except AccessDeniedError:
            text = f"{name} is not in your account {self._account}"
            return Finding("bucket.owner", "warning", text, f"find its owner, and {advice}")
        return Finding("bucket.owner", "ok", f"your account {self._account}")

    def _ask(self, name: str, operation: str, **members: Any) -> Any:
        """Return the response of S3 about a bucket; empty if nothing is configured."""
        members |= {"Bucket": name}
        try:
            return call(self._specs["s3"], operation, f"bucket {name!r}", members, service="s3")
        except ServiceError as error:
            if error.code not in _NOT_CONFIGURED:
                raise
            return {}

    def _subject(self, name: str, endpoint_url: str | None, prefix: str = "") -> Subject:
        flags = {"--region": self._region, "--profile": self._options.profile, "--endpoint-url": endpoint_url}
        return Subject(name, flags, prefix)


def _asked(check: str, ask: Callable[[], Finding]) -> Finding:
    """Return the finding of a request. A failed request is a warning."""
    try:
        return ask()
    except DdbioError as error:
        return _failed(check, error, "warning")
