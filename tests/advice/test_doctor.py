"""Doctor: each finding is there with its cause, says what to do, and is gone when that was done."""

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
# What is wrong with a table and a bucket that have the defaults of moto.
UNSET = {
    "table.deletion_protection", "table.recovery", "table.stream", "bucket.encryption", "bucket.versioning",
    "bucket.public_access", "bucket.incomplete_uploads",
}  # fmt: skip
KMS_KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ALL_BLOCKED = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)
AWS = "https://dynamodb.eu-west-1.amazonaws.com"
MACHINE = {"_kernel": doctors._kernel, "_spark": doctors._spark}


class Gate:
    """Pass requests on to moto, but for those that are refused.

    Attributes
    ----------
    denied
        What is refused: an operation, an HTTP method, or the parameter by which S3 tells requests apart.
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
        """Answer a request as moto does, if it is not refused."""
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        names = {operation, request.method, *urlsplit(request.target).query.split("&")}
        self.requests |= names
        if operation and names & self.denied:
            return HttpReply(400, [json.dumps({"__type": "x#AccessDeniedException", "message": "no"}).encode()])
        if operation == "DescribeKinesisStreamingDestination":
            # moto has none of them.
            return HttpReply(200, [b'{"KinesisDataStreamDestinations":[]}'])
        if names & self.denied or request.headers.get("x-amz-expected-bucket-owner", self.owner) != self.owner:
            text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            return HttpReply(403, [b"" if request.method == "HEAD" else text])
        return self.upstream.send(request)


class Place:
    """A new table, and a new bucket, with the defaults."""

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
        return {each.check: each for each in report.findings}

    def run(self, commands):
        """Run commands of the AWS CLI by boto3."""
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
            given = {}
            while words:
                flag = words.pop(0).removeprefix("--")
                if flag in {"region", "endpoint-url"}:
                    assert words.pop(0) in {"eu-west-1", self.gate.url}
                    continue
                name, kind = members[flag]
                given[name] = True if kind == "boolean" else _value(words.pop(0), kind)
            getattr(client, method)(**given)


def _value(word, kind):
    if kind != "structure":
        return word
    if word.startswith("{"):
        return json.loads(word)
    pairs = (each.split("=") for each in word.split(","))
    return {name: {"true": True, "false": False}.get(value, value) for name, value in pairs}


@pytest.fixture(scope="module")
def gate():
    """Serve DynamoDB, S3 and STS behind a gate."""
    with MotoServer() as moto:
        found = Gate(moto.endpoint_url)
        yield found
        found.server.stop()
        found.upstream.close()


@pytest.fixture
def place(gate, monkeypatch):
    """Return a new table and a new bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
    return Place(gate)


@pytest.fixture(scope="module")
def fake():
    """Serve DynamoDB alone: moto never turns a stream on again."""
    with FakeDynamoDB() as server:
        client = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
        yield SimpleNamespace(url=server.endpoint_url, dynamodb=client, s3=None)


@pytest.fixture(autouse=True)
def _nothing_is_wrong_with_the_machine(monkeypatch):
    for name in MACHINE:
        monkeypatch.setattr(doctors, name, lambda: iter(()))


def stream(view):
    """Turn a stream on."""
    return lambda place: place.dynamodb.update_table(
        TableName=place.table, StreamSpecification={"StreamEnabled": True, "StreamViewType": view}
    )


def encrypted(algorithm, key=None):
    """Set how a bucket encrypts."""
    rule = {"SSEAlgorithm": algorithm, **({"KMSMasterKeyID": key} if key else {})}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": rule}]}
    return lambda place: place.s3.put_bucket_encryption(Bucket=place.bucket, ServerSideEncryptionConfiguration=rules)


def versioned(status):
    """Set whether a bucket keeps versions."""
    return lambda place: place.s3.put_bucket_versioning(Bucket=place.bucket, VersioningConfiguration={"Status": status})


def blocked(**members):
    """Set what a bucket blocks."""
    return lambda place: place.s3.put_public_access_block(Bucket=place.bucket, PublicAccessBlockConfiguration=members)


def aborting(status="Enabled", days=3, **rule):
    """Set a rule that deletes incomplete uploads."""
    rule = {"ID": "own", "Status": status, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}, **rule}
    return lambda place: place.s3.put_bucket_lifecycle_configuration(
        Bucket=place.bucket, LifecycleConfiguration={"Rules": [rule]}
    )


def nothing(_):
    """Leave the defaults."""


@pytest.mark.parametrize(
    ("check", "cause", "found"),
    [
        ("table.deletion_protection", nothing, "off: one call"),
        ("table.recovery", nothing, "off: no exports"),
        ("table.stream", nothing, "off: no changes"),
        ("bucket.encryption", nothing, "off: objects"),
        ("bucket.encryption", encrypted("aws:kms", KMS_KEY), f"aws:kms {KMS_KEY} without a bucket key"),
        ("bucket.versioning", nothing, "off: deleted and replaced"),
        ("bucket.versioning", versioned("Suspended"), "Suspended: what is deleted"),
        ("bucket.public_access", nothing, "BlockPublicAcls, IgnorePublicAcls, BlockPublicPolicy, Restrict"),
        ("bucket.public_access", blocked(**ALL_BLOCKED | {"BlockPublicPolicy": False}), ": BlockPublicPolicy off"),
        ("bucket.incomplete_uploads", nothing, "never deleted"),
        ("bucket.incomplete_uploads", aborting("Disabled", Filter={"Prefix": ""}), "never deleted"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": "dat/"}), "never deleted"),
        ("bucket.incomplete_uploads", aborting(Filter={"Prefix": "data/orders"}), "never deleted"),
    ],
)  # fmt: skip
def test_what_a_finding_says_removes_it(place, check, cause, found):
    """A warning has a command, after which it is gone, and nothing else that was set has changed."""
    cause(place)
    before = place.findings()
    assert before[check].level == "warning"
    assert found in before[check].found
    place.run(before[check].action)
    after = place.findings()
    assert (after[check].level, after[check].action) == ("ok", None)
    assert {name for name in before if before[name] != after[name]} == {check}
    if cause is not nothing and check == "bucket.incomplete_uploads":
        rules = place.s3.get_bucket_lifecycle_configuration(Bucket=place.bucket)["Rules"]
        assert [each["ID"] for each in rules] == ["own", "abort-incomplete-uploads"]


@pytest.mark.parametrize(
    ("check", "cause", "found"),
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
def test_what_is_fine_is_no_finding(place, check, cause, found):
    """What was set by others, in any form, is fine as well."""
    cause(place)
    assert place.findings()[check] == ddbio.Finding(check, "ok", found)


def test_a_table_and_a_bucket_with_the_defaults(place):
    """Nothing but what is not set is found; the identity and the owner are told; only reads were sent."""
    found = place.findings()
    assert {name for name, each in found.items() if each.level != "ok"} == UNSET
    assert all((each.action is None) == (each.level == "ok") for each in found.values())
    assert found["identity"].found == f"arn:aws:sts::{ACCOUNT}:user/moto"
    assert found["bucket.owner"].found == f"your account {ACCOUNT}"
    operations = {each for each in place.gate.requests if each.isalpha() and each not in {"lifecycle", "encryption"}}
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
def test_a_missing_permission_is_a_finding(place, denied, check, level, action):
    """It names the permission, as IAM spells it; the other checks are made."""
    whole = place.findings()
    place.gate.denied = {denied}
    found = place.findings()
    assert found[check].level == level
    assert found[check].action.startswith(action)
    assert level == "problem" or set(found) == set(whole)


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
def test_a_bucket_of_somebody_else(place, owner, expected, check, level, text):
    """It is told from one's own, unless its owner is the expected one."""
    place.gate.owner = owner
    found = place.findings(s3_expected_bucket_owner=expected)[check]
    assert (found.level, text in found.found) == (level, True)
    if check == "bucket":
        assert f"its owner is not {expected}" in found.action
    if level == "warning":
        assert "give --s3-expected-bucket-owner" in found.action


def test_a_bucket_for_locked_objects(place):
    """Options that lock objects take a bucket with Object Lock; what is found says how to turn it on."""
    options = {"s3_object_lock_legal_hold": True}
    found = place.findings(**options)["bucket.object_lock"]
    assert (found.level, found.found) == ("problem", "off: S3 refuses locked objects")
    versioned("Enabled")(place)
    kept = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}}
    place.bucket = f"{place.bucket}-locked"
    where = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    place.s3.create_bucket(Bucket=place.bucket, ObjectLockEnabledForBucket=True, **where)
    assert place.findings(**options)["bucket.object_lock"] == ddbio.Finding("bucket.object_lock", "ok", "on")
    place.s3.put_object_lock_configuration(Bucket=place.bucket, ObjectLockConfiguration=kept)
    found = place.findings(**options)["bucket.object_lock"].found
    assert found == "on, GOVERNANCE: versions are kept 3 days, also of what jobs delete"


def test_the_wrong_region(place):
    """A table of another region is not there; a bucket of another one is far; the region that is said removes that."""
    found = place.findings(region="eu-central-1")
    assert (found["table"].level, found["table"].action) == ("problem", "check name, region and account")
    assert "bucket is in eu-west-1, and jobs are in eu-central-1" in found["bucket"].found.replace(
        place.bucket, "bucket"
    )
    assert found["bucket"].action.endswith("or give --region eu-west-1")
    assert place.findings(region="eu-west-1")["bucket"].level == "ok"


def test_what_does_not_exist(place):
    """A table and a bucket that are not there are one problem each."""
    place.table = place.bucket = "no-such-thing"
    found = place.findings()
    assert [each.check for each in found.values() if each.level != "ok"] == ["table", "bucket"]
    assert all("does not exist" in found[name].found for name in ("table", "bucket"))


@pytest.mark.parametrize(
    ("variables", "level", "found"),
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
def test_credentials_and_how_long_they_are_valid(place, monkeypatch, variables, level, found):
    """What nothing fetches again is a warning; without credentials neither table nor bucket is asked."""
    for name, value in variables.items():
        if isinstance(value, (int, float)):
            value = (datetime.now(UTC) + timedelta(hours=value)).isoformat()  # noqa: PLW2901 - as the variable has it
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    all_found = place.findings()
    told = all_found["credentials"]
    assert (told.level, found in told.found) == (level, True), told
    assert ("table" in all_found) == (level != "problem")


def test_a_role_is_fetched_again(place):
    """The advice for credentials that nothing fetches again removes that finding."""
    found = place.findings(role_arn=f"arn:aws:iam::{ACCOUNT}:role/job")
    assert found["credentials"].level == "ok"
    assert "from assume-role, valid until" in found["credentials"].found
    assert found["identity"].found.startswith(f"arn:aws:sts::{ACCOUNT}:assumed-role/job/")


@pytest.mark.parametrize(
    ("variables", "options", "found"),
    [
        ({"AWS_REGION": None, "AWS_DEFAULT_REGION": None}, {}, "You must specify a region"),
        ({}, {"profile": "none"}, "The config profile (none) could not be found"),
        ({}, {"endpoint_url": "nonsense"}, "nonsense"),
    ],
)
def test_settings_that_make_no_client(monkeypatch, variables, options, found):
    """They are one problem, and nothing is asked."""
    for name in variables:
        monkeypatch.delenv(name)
    report = ddbio.doctor("orders", "s3://bucket", **options)
    assert [each.check for each in report.findings] == ["settings", "environment"]
    assert (report.findings[0].level, found in report.findings[0].found) == ("problem", True)


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
    """Where its addresses lie, whether it is encrypted, and how far the clocks are apart."""
    monkeypatch.setattr(doctors, "reach", lambda *_: reached)
    monkeypatch.setattr(doctors, "call", lambda *_, **__: {"Account": ACCOUNT, "Arn": "arn"})
    url = None if reached.url == AWS else reached.url
    findings = {each.check: each for each in ddbio.doctor(endpoint_url=url, allow_http=True).findings}
    told = [findings[f"dynamodb.{name}"] for name in ("endpoint", "tls", "clock")]
    assert " ".join(each.level for each in told) == levels
    assert text in told[0].found
    # Where another endpoint is tried out, neither S3 nor STS is asked.
    assert ("s3.endpoint" in findings, "identity" in findings) == (url is None, url is None)


def test_an_endpoint_that_is_down(place, monkeypatch):
    """It is one problem, and the table is not asked; a name without an address as well."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    found = place.findings()
    assert found["dynamodb.endpoint"].level == "problem"
    assert "Could not connect" in found["dynamodb.endpoint"].found
    assert ("table" in found, "bucket" in found) == (False, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "https://nowhere.invalid")
    assert "nowhere.invalid has no address" in place.findings()["dynamodb.endpoint"].found


@pytest.mark.parametrize("view", ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"])
def test_a_stream_without_all_images(fake, view):
    """The commands that are said turn it off, wait, and turn it on with another view."""
    place = Place(fake)
    stream(view)(place)
    found = place.findings(endpoint_url=fake.url)["table.stream"]
    assert (found.level, view in found.found) == ("warning", True)
    place.run(found.action)
    assert place.findings(endpoint_url=fake.url)["table.stream"].found == "on, NEW_AND_OLD_IMAGES"


def test_changes_that_go_to_kinesis(fake):
    """They can be captured, so that a stream is not missed."""
    place = Place(fake)
    kinesis = boto3.client("kinesis", endpoint_url=fake.url)
    kinesis.create_stream(StreamName="changes", ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName="changes")["StreamDescriptionSummary"]["StreamARN"]
    place.dynamodb.enable_kinesis_streaming_destination(TableName=place.table, StreamArn=arn)
    assert place.findings(endpoint_url=fake.url)["table.stream"].found == f"on, {arn}"


def test_an_endpoint_of_dynamodb_alone(fake):
    """It is enough for a table: neither S3 nor STS is asked, and commands reach it as well."""
    place = Place(fake)
    found = place.findings(endpoint_url=fake.url)
    assert found["table"].level == "ok"
    assert not any(name.startswith(("s3", "bucket", "identity")) for name in found)
    assert found["table.recovery"].action.endswith(f"--endpoint-url {fake.url}")


def test_nothing_hangs(monkeypatch):
    """A check that does not end is a problem, and what the others have found is told."""
    ends = threading.Event()

    def hang():
        yield ddbio.Finding("environment", "ok", "found before")
        ends.wait()

    monkeypatch.setattr(doctors, "_environment", hang)
    monkeypatch.setattr(doctors, "LIMIT_SECONDS", 0.2)
    report = ddbio.doctor(profile="none")
    ends.set()
    told = [(each.check, each.level) for each in report.findings]
    assert told == [("settings", "problem"), ("environment", "ok"), ("environment", "problem")]
    assert "not done within 0.2 s" in report.findings[-1].found


def test_a_check_that_fails_by_itself_is_a_finding(monkeypatch):
    """Whatever goes wrong in a check, the others are told."""
    monkeypatch.setattr(doctors, "describe_spark", lambda: 1 // 0)
    monkeypatch.setattr(doctors, "_spark", MACHINE["_spark"])
    found = {each.check: each for each in ddbio.doctor(profile="none").findings}
    assert found["spark"].found == "the check failed: ZeroDivisionError: integer division or modulo by zero"
    assert "environment" in found


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
    """Java is needed where PySpark is; a platform without compiled loops is slow."""

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
    (found,) = MACHINE[function]()
    assert (found.level, text in found.found, found.action is None) == (level, True, level == "ok")


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
def test_the_exit_code_tells_the_result(place, words, code):
    """Warnings fail only where that is asked for; the JSON has all findings."""
    from click.testing import CliRunner  # noqa: PLC0415

    from ddbio.cli.main import cli  # noqa: PLC0415

    location = f"s3://{place.bucket}"
    done = CliRunner().invoke(cli, ["doctor", location, "--table", place.table, *words, "--json"])
    assert done.exit_code == code
    if code < 2:
        report = json.loads(done.stdout)
        levels = [each["level"] for each in report["findings"]]
        assert (report["problems"], report["warnings"]) == (levels.count("problem"), levels.count("warning"))
        text = CliRunner().invoke(cli, ["doctor", location, "--table", place.table, *words]).stdout
        assert text.splitlines()[-1].startswith(f"{report['problems']} problem")
        assert text.count("\n         -> ") == report["problems"] + report["warnings"]


@pytest.mark.parametrize("location", ["bucket/prefix", "/tmp", "gs://bucket", "s3:bucket"])
def test_a_location_that_is_not_on_s3_is_refused(location):
    """It is wrong usage, and says what to give."""
    with pytest.raises(ddbio.OptionError, match="s3://bucket/prefix"):
        ddbio.doctor(location=location)
