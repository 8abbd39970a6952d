"""Doctor: each finding appears with its cause, has an action, and disappears after the action."""

import itertools
import json
import shlex
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import urlsplit

import boto3
import pytest
from botocore import xform_name

import ddbio
from ddbio.advice import doctor as doctors
from ddbio.aws.endpoint_probe import Reach
from ddbio.testing import FakeDynamoDB, MotoServer
from ddbio.testing.proxy import Upstream
from ddbio.testing.server import HttpReply, Server

ACCOUNT, OTHER = "123456789012", "222222222222"
# Findings about a table and a bucket with the defaults of moto.
UNSET = {
    "table.deletion_protection", "table.recovery", "table.stream", "bucket.encryption", "bucket.versioning",
    "bucket.public_access", "bucket.incomplete_uploads",
}  # fmt: skip
KMS_KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ALL_BLOCKED = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)
AWS = "https://dynamodb.eu-west-1.amazonaws.com"
MACHINE = {"_kernel": doctors._kernel, "_spark": doctors._spark}


class Gate:
    """Gate to moto that refuses certain requests.

    Attributes
    ----------
    denied
        Refused requests: an operation, an HTTP method, or the parameter by which S3 distinguishes requests.
    owner
        The account that owns all buckets.
    """

    def __init__(self, url):
        self.upstream = Upstream(url)
        self.requests, self.denied, self.owner = set(), set(), ACCOUNT
        self.server = Server(self.answer)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.dynamodb, self.s3 = (boto3.client(name, endpoint_url=self.url) for name in ("dynamodb", "s3"))

    def answer(self, request):
        """Answer a request as moto does, unless it is refused."""
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        names = {operation, request.method, *urlsplit(request.target).query.split("&")}
        self.requests |= names
        if operation and names & self.denied:
            return HttpReply(400, [json.dumps({"__type": "x#AccessDeniedException", "message": "no"}).encode()])
        if operation == "DescribeKinesisStreamingDestination":
            # moto supports none of them.
            return HttpReply(200, [b'{"KinesisDataStreamDestinations":[]}'])
        if names & self.denied or request.headers.get("x-amz-expected-bucket-owner", self.owner) != self.owner:
            text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            return HttpReply(403, [b"" if request.method == "HEAD" else text])
        return self.upstream.send(request)


class Setup:
    """A new table and a new bucket with the defaults."""

    _numbers = itertools.count()

    def __init__(self, gate):
        self.gate, self.dynamodb, self.s3 = gate, gate.dynamodb, gate.s3
        self.table = f"made-for-test-{next(self._numbers)}"
        self.bucket = self.table if self.s3 else None
        if self.bucket:
            self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        self.dynamodb.create_table(
            TableName=self.table, KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}], BillingMode="PAY_PER_REQUEST",
        )  # fmt: skip
        gate.requests, gate.denied, gate.owner = set(), set(), ACCOUNT

    def findings(self, prefix="data", **options):
        """Return the findings by their checks."""
        location = f"s3://{self.bucket}/{prefix}" if self.bucket else None
        report = ddbio.doctor(self.table, location, **options)
        return {finding.check: finding for finding in report.findings}

    def run(self, commands):
        """Run commands of the AWS CLI with boto3."""
        for command in commands.split(" && "):
            program, service, operation, *words = shlex.split(command)
            assert program == "aws"
            client = {"dynamodb": self.dynamodb, "s3api": self.s3}[service]
            if operation == "wait":
                client.get_waiter(words[0].replace("-", "_")).wait(TableName=self.table)
                continue
            method = operation.replace("-", "_")
            shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
            members = {xform_name(name, "-"): (name, member.type_name) for name, member in shape.members.items()}
            parameters = {}
            while words:
                flag = words.pop(0).removeprefix("--")
                if flag in {"region", "endpoint-url"}:
                    assert words.pop(0) in {"eu-west-1", self.gate.url}
                    continue
                name, kind = members[flag]
                parameters[name] = True if kind == "boolean" else _value(words.pop(0), kind)
            getattr(client, method)(**parameters)


def _value(word, kind):
    if kind != "structure":
        return word
    if word.startswith("{"):
        return json.loads(word)
    pairs = (pair.split("=") for pair in word.split(","))
    return {name: {"true": True, "false": False}.get(value, value) for name, value in pairs}


@pytest.fixture(scope="module")
def gate():
    """Serve DynamoDB, S3 and STS through a gate."""
    with MotoServer() as moto:
        new_gate = Gate(moto.endpoint_url)
        yield new_gate
        new_gate.server.stop()
        new_gate.upstream.close()


@pytest.fixture
def setup(gate, monkeypatch):
    """Return a new table and a new bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    return Setup(gate)


@pytest.fixture(scope="module")
def fake():
    """Serve DynamoDB only, because moto never enables a stream again."""
    with FakeDynamoDB() as server:
        client = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
        yield SimpleNamespace(url=server.endpoint_url, dynamodb=client, s3=None)


@pytest.fixture(autouse=True)
def _nothing_is_wrong_with_the_machine(monkeypatch):
    for name in MACHINE:
        monkeypatch.setattr(doctors, name, lambda: iter(()))


def stream(view):
    """Enable a stream."""
    return lambda setup: setup.dynamodb.update_table(
        TableName=setup.table, StreamSpecification={"StreamEnabled": True, "StreamViewType": view}
    )


def encrypted(algorithm, key=None):
    """Set the encryption of a bucket."""
    rule = {"SSEAlgorithm": algorithm, **({"KMSMasterKeyID": key} if key else {})}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": rule}]}
    return lambda setup: setup.s3.put_bucket_encryption(Bucket=setup.bucket, ServerSideEncryptionConfiguration=rules)


def versioned(status):
    """Set the versioning of a bucket."""
    return lambda setup: setup.s3.put_bucket_versioning(Bucket=setup.bucket, VersioningConfiguration={"Status": status})


def blocked(**members):
    """Set the public access block of a bucket."""
    return lambda setup: setup.s3.put_public_access_block(Bucket=setup.bucket, PublicAccessBlockConfiguration=members)


def aborting(status="Enabled", days=3, **rule):
    """Set a rule that deletes incomplete uploads."""
    rule = {"ID": "own", "Status": status, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}, **rule}
    return lambda setup: setup.s3.put_bucket_lifecycle_configuration(
        Bucket=setup.bucket, LifecycleConfiguration={"Rules": [rule]}
    )


def nothing(_):
    """Leave the defaults."""


@pytest.mark.parametrize(
    ("check", "cause", "text"),
    [
        ("table.deletion_protection", nothing, "off: one call"),
        ("table.recovery", nothing, "off: no exports"),
        ("table.stream", nothing, "off: no changes"),
        ("bucket.encryption", nothing, "off: objects"),
        ("bucket.encryption", encrypted("aws:kms", KMS_KEY), f"aws:kms {KMS_KEY} without a bucket key"),
        ("bucket.versioning", nothing, "off: deleted and replaced"),
        ("bucket.versioning", versioned("Suspended"), "Suspended: deleted and replaced"),
        ("bucket.public_access", nothing, "BlockPublicAcls, IgnorePublicAcls, BlockPublicPolicy, Restrict"),
        ("bucket.public_access", blocked(**ALL_BLOCKED | {"BlockPublicPolicy": False}), ": BlockPublicPolicy off"),
        ("bucket.incomplete_uploads", nothing, "never deleted"),
        ("bucket.incomplete_uploads", aborting("Disabled", Filter={"Prefix": ""}), "never deleted"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": "dat/"}), "never deleted"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": "data/orders"}), "never deleted"),
    ],
)  # fmt: skip
def test_the_action_of_a_finding_removes_it(setup, check, cause, text):
    """A warning has a command that removes it and changes no other finding."""
    cause(setup)
    before = setup.findings()
    assert before[check].level == "warning"
    assert text in before[check].found
    setup.run(before[check].action)
    after = setup.findings()
    assert (after[check].level, after[check].action) == ("ok", None)
    assert {name for name in before if before[name] != after[name]} == {check}
    if cause is not nothing and check == "bucket.incomplete_uploads":
        rules = setup.s3.get_bucket_lifecycle_configuration(Bucket=setup.bucket)["Rules"]
        assert [rule["ID"] for rule in rules] == ["own", "abort-incomplete-uploads"]


@pytest.mark.parametrize(
    ("check", "cause", "text"),
    [
        ("table.stream", stream("NEW_AND_OLD_IMAGES"), "on, NEW_AND_OLD_IMAGES"),
        ("bucket.encryption", encrypted("AES256"), "AES256"),
        ("bucket.public_access", blocked(**ALL_BLOCKED), "blocked"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": ""}), "deleted after 3 days"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": "data/"}, days=1), "deleted after 1 days"),
        ("bucket.incomplete_uploads", aborting(Prefix="da"), "deleted after 3 days"),
        ("bucket.object_lock", nothing, "off"),
    ],
)
def test_correct_settings_are_no_findings(setup, check, cause, text):
    """Settings of others, in any notation, are correct too."""
    cause(setup)
    assert setup.findings()[check] == ddbio.Finding(check, "ok", text)


def test_a_table_and_a_bucket_with_the_defaults(setup):
    """Only missing settings are found. Identity and owner are reported. Only reads are sent."""
    findings = setup.findings()
    assert {name for name, finding in findings.items() if finding.level != "ok"} == UNSET
    assert all((finding.action is None) == (finding.level == "ok") for finding in findings.values())
    assert findings["identity"].found == f"arn:aws:sts::{ACCOUNT}:user/moto"
    assert findings["bucket.owner"].found == f"your account {ACCOUNT}"
    operations = {
        request for request in setup.gate.requests if request.isalpha() and request not in {"lifecycle", "encryption"}
    }
    assert operations - {"versioning", "publicAccessBlock"} == {
        "GET", "HEAD", "POST", "DescribeTable", "DescribeContinuousBackups", "DescribeKinesisStreamingDestination",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("denied", "check", "level", "action"),
    [
        ("DescribeTable", "table", "problem", "allow dynamodb:DescribeTable"),
        ("DescribeContinuousBackups", "table.recovery", "warning", "allow dynamodb:DescribeContinuousBackups"),
        (
            "DescribeKinesisStreamingDestination", "table.stream", "warning",
            "allow dynamodb:DescribeKinesisStreamingDestination",
        ),
        ("HEAD", "bucket", "problem", "allow s3:ListBucket; or it is not the intended bucket"),
        ("encryption", "bucket.encryption", "warning", "allow s3:GetEncryptionConfiguration"),
        ("versioning", "bucket.versioning", "warning", "allow s3:GetBucketVersioning"),
        ("publicAccessBlock", "bucket.public_access", "warning", "allow s3:GetBucketPublicAccessBlock"),
        ("lifecycle", "bucket.incomplete_uploads", "warning", "allow s3:GetLifecycleConfiguration"),
        ("object-lock", "bucket.object_lock", "warning", "allow s3:GetBucketObjectLockConfiguration"),
    ],
)  # fmt: skip
def test_a_missing_permission_is_a_finding(setup, denied, check, level, action):
    """It names the permission as in IAM. The other checks continue."""
    all_findings = setup.findings()
    setup.gate.denied = {denied}
    findings = setup.findings()
    assert findings[check].level == level
    assert findings[check].action.startswith(action)
    assert level == "problem" or set(findings) == set(all_findings)


@pytest.mark.parametrize(
    ("owner", "expected", "check", "level", "text"),
    [
        (ACCOUNT, None, "bucket.owner", "ok", f"your account {ACCOUNT}"),
        (ACCOUNT, ACCOUNT, "bucket.owner", "ok", f"account {ACCOUNT}, as expected"),
        (OTHER, None, "bucket.owner", "warning", f"is not in your account {ACCOUNT}"),
        (OTHER, OTHER, "bucket.owner", "ok", f"account {OTHER}, as expected"),
        (OTHER, ACCOUNT, "bucket", "problem", "s3:ListBucket on bucket"),
        (ACCOUNT, OTHER, "bucket", "problem", "s3:ListBucket on bucket"),
    ],
)
def test_a_bucket_of_somebody_else(setup, owner, expected, check, level, text):
    """It is distinguished from an own bucket, unless its owner is the expected one."""
    setup.gate.owner = owner
    finding = setup.findings(s3_expected_bucket_owner=expected)[check]
    assert (finding.level, text in finding.found) == (level, True)
    if check == "bucket":
        assert f"its owner is not {expected}" in finding.action
    if level == "warning":
        assert "give --s3-expected-bucket-owner" in finding.action


def test_a_bucket_for_locked_objects(setup):
    """Options with Object Lock need a bucket with Object Lock. The finding shows how to enable it."""
    options = {"s3_object_lock_legal_hold": True}
    finding = setup.findings(**options)["bucket.object_lock"]
    assert (finding.level, finding.found) == ("problem", "off: S3 refuses locked objects")
    versioned("Enabled")(setup)
    kept = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}}
    setup.bucket = f"{setup.bucket}-locked"
    where = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    setup.s3.create_bucket(Bucket=setup.bucket, ObjectLockEnabledForBucket=True, **where)
    assert setup.findings(**options)["bucket.object_lock"] == ddbio.Finding("bucket.object_lock", "ok", "on")
    setup.s3.put_object_lock_configuration(Bucket=setup.bucket, ObjectLockConfiguration=kept)
    text = setup.findings(**options)["bucket.object_lock"].found
    assert text == "on, GOVERNANCE: versions are kept 3 days, including those that jobs delete"


def test_the_wrong_region(setup):
    """A table of another region does not exist, and a bucket of another region is far. The suggestion fixes both."""
    findings = setup.findings(region="eu-central-1")
    assert (findings["table"].level, findings["table"].action) == ("problem", "check name, region and account")
    assert "bucket is in eu-west-1, and jobs are in eu-central-1" in findings["bucket"].found.replace(
        setup.bucket, "bucket"
    )
    assert findings["bucket"].action.endswith("or give --region eu-west-1")
    assert setup.findings(region="eu-west-1")["bucket"].level == "ok"


def test_what_does_not_exist(setup):
    """A missing table and a missing bucket are one problem each."""
    setup.table = setup.bucket = "no-such-thing"
    findings = setup.findings()
    assert [finding.check for finding in findings.values() if finding.level != "ok"] == ["table", "bucket"]
    assert all("does not exist" in findings[name].found for name in ("table", "bucket"))


@pytest.mark.parametrize(
    ("variables", "level", "text"),
    [
        ({}, "ok", "from env, valid until they are revoked"),
        ({"AWS_SESSION_TOKEN": "x"}, "warning", "from env, valid for some hours"),
        ({"AWS_SESSION_TOKEN": "x", "AWS_CREDENTIAL_EXPIRATION": 0.5}, "warning", "UTC, and not fetched again: a job"),
        ({"AWS_SESSION_TOKEN": "x", "AWS_CREDENTIAL_EXPIRATION": 9}, "ok", "UTC, and not fetched again"),
        ({"AWS_SESSION_TOKEN": "x", "AWS_CREDENTIAL_EXPIRATION": -1}, "problem", "they had expired at"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "problem", "no AWS credentials found"),
        ({"AWS_SECRET_ACCESS_KEY": None}, "problem", "no AWS credentials found for make"),
    ],
)
def test_credentials_and_how_long_they_are_valid(setup, monkeypatch, variables, level, text):
    """Credentials that are not refreshed are a warning. Without credentials neither table nor bucket is checked."""
    for name, value in variables.items():
        if isinstance(value, (int, float)):
            value = (datetime.now(UTC) + timedelta(hours=value)).isoformat()  # noqa: PLW2901 - as the variable has it
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    all_found = setup.findings()
    finding = all_found["credentials"]
    assert (finding.level, text in finding.found) == (level, True), finding
    assert ("table" in all_found) == (level != "problem")


def test_a_role_is_fetched_again(setup):
    """The advice for credentials that are not refreshed removes that finding."""
    findings = setup.findings(role_arn=f"arn:aws:iam::{ACCOUNT}:role/job")
    assert findings["credentials"].level == "ok"
    assert "from assume-role, valid until" in findings["credentials"].found
    assert findings["identity"].found.startswith(f"arn:aws:sts::{ACCOUNT}:assumed-role/job/")


@pytest.mark.parametrize(
    ("variables", "options", "text"),
    [
        ({"AWS_REGION": None, "AWS_DEFAULT_REGION": None}, {}, "You must specify a region"),
        ({}, {"profile": "none"}, "The config profile (none) could not be found"),
        ({}, {"endpoint_url": "nonsense"}, "nonsense"),
    ],
)
def test_settings_that_make_no_client(monkeypatch, variables, options, text):
    """They are one problem, and no service is called."""
    for name in variables:
        monkeypatch.delenv(name)
    report = ddbio.doctor("orders", "s3://bucket", **options)
    assert [finding.check for finding in report.findings] == ["settings", "environment"]
    assert (report.findings[0].level, text in report.findings[0].found) == ("problem", True)


@pytest.mark.parametrize(
    ("reached", "levels", "text"),
    [
        (Reach(AWS, None, ("10.0.0.5",), "TLSv1.3", 0.0), "ok ok ok", "10.0.0.5; an interface endpoint"),
        (Reach(AWS, None, ("3.218.180.1",), "TLSv1.2", 0.0), "ok ok ok", "gateway endpoint, or internet"),
        (Reach(AWS, "proxy:3128", (), None, 0.0), "ok ok ok", "by the proxy proxy:3128"),
        (Reach("http://10.0.0.5", None, ("10.0.0.5",), None, 0.0), "ok problem ok", "private: 10.0.0.5"),
        (Reach("http://localhost", None, ("127.0.0.1", "::1"), None, 0.0), "ok ok ok", "this machine"),
        (Reach(AWS, None, ("10.0.0.5", "3.3.3.3"), "TLSv1.3", None), "ok ok warning", "private and public"),
        (Reach(AWS, None, ("10.0.0.5",), "TLSv1.3", 29.0), "ok ok ok", "private"),
        (Reach(AWS, None, ("10.0.0.5",), "TLSv1.3", -31.0), "ok ok warning", "private"),
        (Reach(AWS, None, ("10.0.0.5",), "TLSv1.3", 301.0), "ok ok problem", "private"),
        (Reach(AWS, None, ("10.0.0.5",), "TLSv1.3", -4e6), "ok ok problem", "private"),
    ],
)  # fmt: skip
def test_how_an_endpoint_is_reached(monkeypatch, reached, levels, text):
    """The probe shows the network of the addresses, the encryption, and the difference of the clocks."""
    monkeypatch.setattr(doctors, "reach", lambda *_: reached)
    monkeypatch.setattr(doctors, "call", lambda *_, **__: {"Account": ACCOUNT, "Arn": "arn"})
    url = None if reached.url == AWS else reached.url
    findings = {finding.check: finding for finding in ddbio.doctor(endpoint_url=url, allow_http=True).findings}
    chosen = [findings[f"dynamodb.{name}"] for name in ("endpoint", "tls", "clock")]
    assert " ".join(finding.level for finding in chosen) == levels
    assert text in chosen[0].found
    # With a custom endpoint, neither S3 nor STS is called.
    assert ("s3.endpoint" in findings, "identity" in findings) == (url is None, url is None)


def test_an_endpoint_that_is_down(setup, monkeypatch):
    """It is one problem, and the table is not described. The same applies to a name without an address."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    findings = setup.findings()
    assert findings["dynamodb.endpoint"].level == "problem"
    assert "Could not connect" in findings["dynamodb.endpoint"].found
    assert ("table" in findings, "bucket" in findings) == (False, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "https://nowhere.invalid")
    assert "nowhere.invalid has no address" in setup.findings()["dynamodb.endpoint"].found


@pytest.mark.parametrize("view", ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"])
def test_a_stream_without_all_images(fake, view):
    """The suggested commands disable it, wait, and enable it with another view."""
    setup = Setup(fake)
    stream(view)(setup)
    finding = setup.findings(endpoint_url=fake.url)["table.stream"]
    assert (finding.level, view in finding.found) == ("warning", True)
    setup.run(finding.action)
    assert setup.findings(endpoint_url=fake.url)["table.stream"].found == "on, NEW_AND_OLD_IMAGES"


def test_changes_that_go_to_kinesis(fake):
    """They can be captured, so that no stream is required."""
    setup = Setup(fake)
    kinesis = boto3.client("kinesis", endpoint_url=fake.url)
    kinesis.create_stream(StreamName="changes", ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName="changes")["StreamDescriptionSummary"]["StreamARN"]
    setup.dynamodb.enable_kinesis_streaming_destination(TableName=setup.table, StreamArn=arn)
    assert setup.findings(endpoint_url=fake.url)["table.stream"].found == f"on, {arn}"


def test_an_endpoint_of_dynamodb_alone(fake):
    """It is enough for a table: neither S3 nor STS is called, and commands use it too."""
    setup = Setup(fake)
    findings = setup.findings(endpoint_url=fake.url)
    assert findings["table"].level == "ok"
    assert not any(name.startswith(("s3", "bucket", "identity")) for name in findings)
    assert findings["table.recovery"].action.endswith(f"--endpoint-url {fake.url}")


def test_nothing_hangs(monkeypatch):
    """A check that does not end is a problem. The findings of the others are reported."""
    ends = threading.Event()

    def hang():
        yield ddbio.Finding("environment", "ok", "found before")
        ends.wait()

    monkeypatch.setattr(doctors, "_environment", hang)
    monkeypatch.setattr(doctors, "LIMIT_SECONDS", 0.2)
    report = ddbio.doctor(profile="none")
    ends.set()
    levels = [(finding.check, finding.level) for finding in report.findings]
    assert levels == [("settings", "problem"), ("environment", "ok"), ("environment", "problem")]
    assert "not done within 0.2 s" in report.findings[-1].found


def test_a_check_that_fails_by_itself_is_a_finding(monkeypatch):
    """After any failure in a check, the other findings are reported."""
    monkeypatch.setattr(doctors, "describe_spark", lambda: 1 // 0)
    monkeypatch.setattr(doctors, "_spark", MACHINE["_spark"])
    findings = {finding.check: finding for finding in ddbio.doctor(profile="none").findings}
    assert findings["spark"].found == "the check failed: ZeroDivisionError: integer division or modulo by zero"
    assert "environment" in findings


@pytest.mark.parametrize(
    ("function", "changes", "level", "text"),
    [
        ("_spark", {"is_spark_installed": lambda: False}, "ok", "PySpark is not installed"),
        ("_spark", {"describe_spark": lambda: "Spark 4.0.5, Java 17"}, "ok", "Spark 4.0.5, Java 17"),
        ("_spark", {"describe_spark": "Spark needs Java 17 or newer"}, "problem", "Spark needs Java 17"),
        ("_kernel", {}, "ok", "the compiled loops are loaded"),
        ("_kernel", {"LIBRARY": None}, "warning", "there is no library of compiled loops for this platform"),
    ],
)
def test_this_machine(monkeypatch, function, changes, level, text):
    """Java is required with PySpark. A platform without compiled loops is slow."""

    def answers(value):
        def answer(*_):
            if isinstance(value, Exception):
                raise value
            return value

        return answer

    for name, value in changes.items():
        if name == "describe_spark" and isinstance(value, str):
            monkeypatch.setattr(doctors, name, answers(ddbio.OptionError(value)))
        elif function == "_spark":
            monkeypatch.setattr(doctors, name, value)
        else:
            monkeypatch.setattr(f"ddbio.items.kernel.library.{name}", value)
    (finding,) = MACHINE[function]()
    assert (finding.level, text in finding.found, finding.action is None) == (level, True, level == "ok")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("--strict",), 1),
        (("--table", "no-such-table"), 1),
        (("--s3-expected-bucket-owner", OTHER), 1),
        (("--sparkle",), 2),
        (("--table", ""), 2),
    ],
)
def test_the_exit_code_shows_the_result(setup, words, code):
    """Warnings fail only if requested. The JSON contains all findings."""
    from click.testing import CliRunner  # noqa: PLC0415

    from ddbio.cli.main import cli  # noqa: PLC0415

    location = f"s3://{setup.bucket}"
    done = CliRunner().invoke(cli, ["doctor", location, "--table", setup.table, *words, "--json"])
    assert done.exit_code == code
    if code < 2:
        report = json.loads(done.stdout)
        levels = [finding["level"] for finding in report["findings"]]
        assert (report["problems"], report["warnings"]) == (levels.count("problem"), levels.count("warning"))
        text = CliRunner().invoke(cli, ["doctor", location, "--table", setup.table, *words]).stdout
        assert text.splitlines()[-1].startswith(f"{report['problems']} problem")
        assert text.count("\n         -> ") == report["problems"] + report["warnings"]


@pytest.mark.parametrize("location", ["bucket/prefix", "/tmp", "gs://bucket", "s3:bucket"])
def test_a_location_that_is_not_on_s3_is_refused(location):
    """It is wrong usage, and the message shows the correct usage."""
    with pytest.raises(ddbio.OptionError, match="s3://bucket/prefix"):
        ddbio.doctor(location=location)
