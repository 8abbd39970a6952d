"""Clients from picklable descriptions, descriptions of tables, and errors with advice."""

import dataclasses
import http.server
import inspect
import pickle
import re
import threading
from typing import ClassVar
from urllib.parse import parse_qsl

import boto3
import botocore.credentials
import botocore.tokens
import pytest
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    UnauthorizedSSOTokenError,
)

from ddbio.aws import client as client_module
from ddbio.aws.client import ClientSpec, check_endpoint
from ddbio.aws.control_plane import describe_table
from ddbio.aws.error_codes import is_transient, to_ddbio_error
from ddbio.errors import (
    AccessDeniedError,
    EndpointError,
    NotFoundError,
    OptionError,
    ServiceError,
    ThrottledError,
)
from ddbio.options import Credentials, LocalSession
from ddbio.testing import FakeDynamoDB


def test_spec_travels_and_shares_a_client():
    """A description can be pickled, and equal descriptions share one client per process."""
    spec = ClientSpec(endpoint_url="http://127.0.0.1:1", region="eu-west-1")
    again = pickle.loads(pickle.dumps(spec))
    assert again.client("dynamodb") is spec.client("dynamodb")


def test_retries_are_explicit():
    """DynamoDB's client sends once, because ddbio retries; S3's uses botocore's standard mode."""
    spec = ClientSpec(endpoint_url="http://127.0.0.1:1", region="eu-west-1")
    assert spec.client("dynamodb").meta.config.retries == {"total_max_attempts": 1, "mode": "standard"}
    assert spec.client("s3").meta.config.retries["total_max_attempts"] == 5


def test_fakes_get_path_style():
    """Bucket names are not host names on a fake."""
    assert ClientSpec(endpoint_url="http://127.0.0.1:1").client("s3").meta.config.s3["addressing_style"] == "path"


def test_role_is_assumed_through_refreshable_credentials():
    """A role has credentials that botocore refreshes, not static ones."""
    client = ClientSpec(endpoint_url="http://127.0.0.1:1", role_arn="arn:aws:iam::1:role/r").client("dynamodb")
    assert client._request_signer._credentials.method == "assume-role"


class _Sts(http.server.BaseHTTPRequestHandler):
    """AssumeRole endpoint that first answers with ``failures``, and records requests."""

    failures: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_POST(self):
        body = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        self.asked.append((self.headers["authorization"], body))
        status, text = 200, _GRANT
        if self.failures:
            status, code = self.failures.pop(0)
            text = f"<ErrorResponse><Error><Code>{code}</Code><Message>as told</Message></Error></ErrorResponse>"
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Log nothing."""


_GRANT = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>AKROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


@pytest.fixture
def sts(monkeypatch):
    """Return a local STS that records requests."""
    _Sts.failures, _Sts.asked = [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Sts)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
    yield _Sts
    server.shutdown()
    thread.join()
    server.server_close()


def _frozen(client):
    return client._request_signer._credentials.get_frozen_credentials()


def test_one_role_serves_all_clients_of_a_process(sts, monkeypatch):
    """STS is called once per identity, in the job's region, with the members of the trust policy."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    role = (("ExternalId", "e-7"), ("RoleSessionName", "nightly"), ("DurationSeconds", 900), ("SourceIdentity", "me"))
    spec = ClientSpec(role_arn="arn:aws-cn:iam::1:role/one", role=role)
    clients = [spec.client("dynamodb"), spec.client("dynamodb", 32), spec.client("s3")]
    assert {_frozen(client).access_key for client in clients} == {"AKROLE"}
    ((signed, asked),) = sts.asked
    assert "/cn-north-1/sts/" in signed
    assert {name: asked[name] for name, _ in role} == {name: str(value) for name, value in role}
    assert clients[0].meta.region_name == "cn-north-1"


@pytest.mark.parametrize("source", ["credentials", "session"])
def test_a_role_is_assumed_with_the_passed_credentials(sts, source):
    """Passed credentials, or those of a session, sign for STS in their region. The role's credentials sign all else."""
    role = {"role_arn": f"arn:aws:iam::1:role/{source}"}
    if source == "credentials":
        spec = ClientSpec(region="eu-west-3", credentials=Credentials("AKGIVEN", "secret"), **role)
    else:
        session = boto3.Session("AKGIVEN", "secret", region_name="eu-west-3")
        spec = ClientSpec(session=LocalSession(session), **role)
    assert _frozen(spec.client("dynamodb")).access_key == "AKROLE"
    ((signed, _),) = sts.asked
    assert "Credential=AKGIVEN/" in signed
    assert "/eu-west-3/sts/" in signed
    assert spec.client("s3").meta.region_name == "eu-west-3"


def test_a_role_without_credentials_is_an_error(monkeypatch):
    """Without credentials to assume the role, the error is the same as without a role."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDeniedError, match="AWS_ACCESS_KEY_ID"):
        ClientSpec(region="eu-west-1", role_arn="arn:aws:iam::1:role/none").client("dynamodb")


@pytest.mark.parametrize("failure", [(400, "Throttling"), (503, "ServiceUnavailable")])
def test_an_outage_of_sts_is_transient(sts, failure):
    """A busy STS is neither a refusal nor throttling by DynamoDB: the request may be retried."""
    role = ClientSpec(region="eu-west-1", role_arn=f"arn:aws:iam::1:role/{failure[1]}")
    client = role.client("dynamodb")
    sts.failures = [failure] * 20
    with pytest.raises(CredentialRetrievalError) as away:
        _frozen(client)
    assert is_transient(away.value)
    assert "no credentials for dynamodb:Scan" in str(to_ddbio_error(away.value, action="dynamodb:Scan", resource="t"))
    sts.failures = []
    assert _frozen(client).access_key == "AKROLE"


def test_a_role_that_is_refused_is_named(sts):
    """The error is about AssumeRole, not about the operation that needs the role."""
    client = ClientSpec(region="eu-west-1", role_arn="arn:aws:iam::1:role/refused").client("dynamodb")
    sts.failures = [(403, "AccessDenied")]
    with pytest.raises(ClientError) as refused:
        _frozen(client)
    error = to_ddbio_error(refused.value, action="dynamodb:Scan", resource="t")
    assert isinstance(error, AccessDeniedError)
    assert "sts:AssumeRole refused (AccessDenied: as told); check the role's ARN" in str(error)


def test_unknown_profile_is_an_option_error():
    """The error names a profile that does not exist."""
    with pytest.raises(OptionError, match="nobody"):
        ClientSpec(profile="nobody").client("dynamodb")


def test_describe_states_keys_rates_and_indexes():
    """The description has DescribeTable's values, keys in order, and the rate of each index."""
    with FakeDynamoDB() as fake:
        spec = ClientSpec(endpoint_url=fake.endpoint_url)
        throughput = {"ReadCapacityUnits": 10, "WriteCapacityUnits": 5}
        spec.client("dynamodb").create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "g")],
            ProvisionedThroughput=throughput,
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_g",
                    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                    "ProvisionedThroughput": {"ReadCapacityUnits": 7, "WriteCapacityUnits": 5},
                }
            ],
        )
        facts = describe_table(spec, "orders")
        with pytest.raises(NotFoundError, match="check the name, the region and the endpoint"):
            describe_table(spec, "absent")
    assert (facts.key_types, facts.rcu, facts.on_demand) == ((("pk", "S"), ("sk", "S")), 10.0, False)
    index = facts.index("by_g")
    assert index is not None
    assert (index.is_global, index.key_names, index.rcu) == (True, ("g",), 7.0)
    assert facts.index("none") is None


def _refusal(code, status=400, message="m."):
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "X")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (_refusal("ResourceNotFoundException"), NotFoundError, "it does not exist (m)"),
        (_refusal("NoSuchBucket", 404), NotFoundError, "does not exist"),
        (_refusal("UnrecognizedClientException"), AccessDeniedError, "check the credentials"),
        (_refusal("KMS.AccessDeniedException"), AccessDeniedError, "s3:Do on it refused (KMS.Access"),
        (_refusal("KMS.DisabledException"), AccessDeniedError, "check that the KMS key is enabled"),
        (_refusal("KMS.KMSInvalidStateException"), AccessDeniedError, "allows you kms:Decrypt and kms:GenerateDataKey"),
        (_refusal("KMS.NotFoundException"), AccessDeniedError, "check that the KMS key is enabled"),
        (_refusal("KMS.ThrottlingException"), ThrottledError, "try again later"),
        (
            _refusal("AccessDenied", 403, "User x is not authorized to perform: kms:Decrypt on resource: y"),
            AccessDeniedError,
            "that they allow s3:Do and kms:Decrypt",
        ),
        (_refusal("InternalServerError", 500), EndpointError, "try again"),
        (_refusal("501", 501), EndpointError, "HTTP 501 and no AWS error"),
        (_refusal("ValidationException"), ServiceError, "ValidationException: m"),
        (NoCredentialsError(), AccessDeniedError, "AWS_ACCESS_KEY_ID"),
        (NoRegionError(), OptionError, "AWS_REGION"),
        (UnauthorizedSSOTokenError(), AccessDeniedError, "aws sso login"),
        (_refusal("ThrottlingException"), ThrottledError, "try again later"),
        (EndpointConnectionError(endpoint_url="http://x"), EndpointError, "is the endpoint right and up?"),
        (ValueError("Invalid endpoint: x"), OptionError, "Invalid endpoint"),
    ],
)
def test_errors_contain_advice(error, kind, message):
    """Every failure of AWS becomes an error of ddbio with the action, the resource and the advice."""
    made = to_ddbio_error(error, action="s3:Do", resource="it")
    assert type(made) is kind
    assert message in str(made)


def test_transient_errors_may_succeed_on_a_retry():
    """Server errors and broken connections are transient, refusals are not."""
    assert is_transient(_refusal("InternalServerError", 500))
    assert is_transient(EndpointConnectionError(endpoint_url="http://x"))
    assert not is_transient(_refusal("ValidationException"))


def test_region_comes_from_either_variable(monkeypatch):
    """AWS_REGION is used if boto3's variable is not set."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert ClientSpec().client("dynamodb", max_pool_connections=11).meta.region_name == "ap-south-1"


def test_botocore_gets_the_clients_that_it_asks_for_credentials():
    """A session has models of all services that botocore calls for credentials, including SSO, and that ddbio calls."""
    sources = "".join(map(inspect.getsource, (botocore.credentials, botocore.tokens)))
    asked = set(re.findall(r"(?:_client|client_creator|create_client)\(\s*['\"]([a-z-]+)['\"]", sources))
    session = client_module._botocore_session(None, "us-east-1")
    for service in asked | {"dynamodb", "glue", "s3", "sso-oidc"}:
        session.create_client(service, aws_access_key_id="a", aws_secret_access_key="b")


LOOPBACK = ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "localhost.", "bucket.localhost", "[::1]"]
ELSEWHERE = ["192.0.2.2", "10.0.0.1", "dynamodb", "host.docker.internal", "localhost.example.com", "127.0.0.1.nip.io", "[2001:db8::1]", "0.0.0.0", "169.254.1.1"]  # fmt: skip # noqa: E501


@pytest.mark.parametrize("service", ["dynamodb", "dynamodbstreams", "s3", "glue", "kinesis", "cloudwatch", "pricing"])
@pytest.mark.parametrize("source", ["option", "variable", "variable of the service", "profile", "session"])
def test_plain_http_is_for_this_machine_only(service, source, monkeypatch, tmp_path):
    """For any source of an endpoint and any service, the client is refused before it can sign a request."""
    url = "http://192.0.2.2:8000"
    environment = {}
    if source == "option":
        environment["endpoint_url"] = url
    elif source == "variable":
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    elif source == "variable of the service":
        name = {"dynamodbstreams": "DYNAMODB_STREAMS"}.get(service, service.upper())
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", url)
    elif source == "profile":
        (tmp_path / "config").write_text(f"[profile p]\nendpoint_url = {url}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        environment["profile"] = "p"
    else:
        environment |= {"session": LocalSession(boto3.Session("a", "b", region_name="eu-west-1")), "endpoint_url": url}
    spec = ClientSpec(region="eu-west-1", **environment)
    with pytest.raises(OptionError, match=r"http://192\.0\.2\.2:8000 is plain HTTP.* set allow_http"):
        spec.client(service)
    assert dataclasses.replace(spec, allow_http=True).client(service).meta.endpoint_url == url


@pytest.mark.parametrize("host", [*LOOPBACK, *ELSEWHERE])
@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
def test_this_machine_is_known_by_the_host_itself(host, scheme):
    """It is an address of the loopback network or a name that is always local. No name is resolved."""
    url = f"{scheme}://{host}:8000/path"
    if scheme == "https" or host in LOOPBACK:
        check_endpoint(url, allow_http=False)
    else:
        with pytest.raises(OptionError, match="allow_http"):
            check_endpoint(url, allow_http=False)
        check_endpoint(url, allow_http=True)


@pytest.mark.parametrize("way", ["option", "profile", "web identity"])
def test_no_credentials_are_exchanged_over_plain_http(way, monkeypatch, tmp_path):
    """Services that exchange credentials for a role are not called over plain HTTP either: the error names them."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://192.0.2.2:9")
    role = "role_arn = arn:aws:iam::123456789012:role/r\n"
    (tmp_path / "token").write_text("eyJ.x.y")
    more = {"profile": "source_profile = s\n", "web identity": f"web_identity_token_file = {tmp_path}/token\n"}
    keys = "[profile s]\naws_access_key_id = a\naws_secret_access_key = b\n"
    (tmp_path / "config").write_text(f"{keys}[profile p]\n{role}{more.get(way, '')}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {"role_arn": "arn:aws:iam::123456789012:role/r"} if way == "option" else {"profile": "p"}
    spec = ClientSpec("http://127.0.0.1:9", "eu-west-1", **options)
    with pytest.raises(OptionError, match=r"http://192\.0\.2\.2:9 is plain HTTP"):
        spec.client("dynamodb").list_tables()


SECRET = "SECRETVALUE"


@pytest.mark.parametrize("role_arn", [None, "arn:aws:iam::123456789012:role/r"])
@pytest.mark.parametrize("sign", ["\n", "\r\n", " ", "\t", "\x00", "\u00e9", "\u200b"])
@pytest.mark.parametrize("part", ["access_key_id", "secret_access_key", "session_token"])
def test_credentials_with_invalid_characters_are_refused(part, sign, role_arn):
    """The error names a line end after a key, as in secret files, and nothing is sent. The value is not shown."""
    keys = {"access_key_id": "any", "secret_access_key": "any", "session_token": None, part: SECRET + sign}
    spec = ClientSpec("http://127.0.0.1:1", "eu-west-1", role_arn=role_arn, credentials=Credentials(**keys))
    with pytest.raises(AccessDeniedError, match=part.replace("_", " ")) as raised:
        spec.client("dynamodb")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "An HTTP Client raised an unhandled exception: Invalid header value b'SECRETVALUE\\n'",
        'Invalid header value "SECRETVALUE"',
        "Could not connect to https://b.s3.amazonaws.com/k?X-Amz-Signature=SECRETVALUE&X-Amz-Date=1",
        "https://b/k?X-Amz-Security-Token=SECRETVALUE",
        "https://b/k?AWSAccessKeyId=SECRETVALUE&Signature=SECRETVALUE",
        "Authorization: AWS4-HMAC-SHA256 Credential=SECRETVALUE/20260101, SignedHeaders=host, Signature=SECRETVALUE",
    ],
)
@pytest.mark.parametrize("kind", [HTTPClientError, EndpointConnectionError, CredentialRetrievalError, ValueError])
def test_messages_of_libraries_show_no_secret(text, kind):
    """Values of headers and of signed URLs are removed from any error."""
    members = {HTTPClientError: {"error": text}, EndpointConnectionError: {"endpoint_url": text}}
    members[CredentialRetrievalError] = {"provider": "p", "error_msg": text}
    error = kind(**members[kind]) if kind in members else kind(text)
    assert SECRET not in str(to_ddbio_error(error, action="dynamodb:Scan", resource="t"))
