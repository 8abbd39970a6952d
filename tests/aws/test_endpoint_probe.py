"""The probe of an endpoint: addresses, clocks and proxies. TLS is in ``test_transport_tls.py``."""

import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from ddbio.aws import endpoint_probe
from ddbio.aws.client import ClientSpec
from ddbio.aws.endpoint_probe import Reach, is_of_aws, reach
from ddbio.errors import EndpointError
from ddbio.testing import FakeDynamoDB
from tests.aws.scripted import ScriptedServer, answer, hang_up, speak, stall


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (("127.0.0.1",), "this machine"),
        (("::1", "127.0.0.53"), "this machine"),
        (("10.1.2.3",), "private"),
        (("172.31.0.9", "192.168.1.1"), "private"),
        (("fd00::1",), "private"),
        (("3.218.180.1",), "public"),
        (("2600:1f18::1", "3.218.180.1"), "public"),
        (("10.1.2.3", "3.218.180.1"), "private and public"),
        (("127.0.0.1", "3.218.180.1"), "private and public"),
        ((), ""),
    ],
)
def test_networks_of_addresses(addresses, network):
    """Addresses of both versions are classified by their ranges."""
    assert Reach("", None, addresses, None, 0.0).network == network


@pytest.mark.parametrize(
    ("url", "is_aws"),
    [
        ("https://dynamodb.eu-west-1.amazonaws.com", True),
        ("https://123456789012.ddb.eu-west-1.amazonaws.com", True),
        ("https://dynamodb.cn-north-1.amazonaws.com.cn", True),
        ("https://dynamodb.eu-west-1.api.aws", True),
        ("https://vpce-1-2.dynamodb.eu-west-1.vpce.amazonaws.com", True),
        ("http://127.0.0.1:8000", False),
        ("https://amazonaws.com.example.org", False),
        ("https://minio.example.org/amazonaws.com", False),
    ],
)
def test_endpoints_of_aws(url, is_aws):
    """Endpoints of AWS are recognized by the end of their names."""
    assert is_of_aws(url) is is_aws


@pytest.mark.parametrize(
    ("offset", "least", "most"),
    [(0, 0, 0), (120, 117, 120), (-120, -120, -117), (1e7, 1e7 - 3, 1e7), (-1e7, -1e7, 3 - 1e7)],
)
def test_how_far_the_clocks_are_apart(monkeypatch, offset, least, most):
    """The difference excludes the date's own second and the duration of the request."""
    now = time.time()
    monkeypatch.setattr(endpoint_probe, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    with ScriptedServer(answer(headers={"Date": formatdate(now + offset, usegmt=True)})) as server:
        probed = reach(ClientSpec(endpoint_url=server.url), "dynamodb")
    assert (probed.network, probed.tls_version) == ("this machine", None)
    assert least <= probed.ahead_seconds <= most


def test_a_slow_answer_is_no_skew(monkeypatch):
    """A date between the request and the end of its response is no difference."""
    ticks = iter([100.0, 160.0])
    monkeypatch.setattr(endpoint_probe, "time", SimpleNamespace(time=time.time, monotonic=lambda: next(ticks)))
    with ScriptedServer(answer(headers={"Date": formatdate(time.time() + 50, usegmt=True)})) as server:
        assert reach(ClientSpec(endpoint_url=server.url), "dynamodb").ahead_seconds == 0


@pytest.mark.parametrize("date", [None, "yesterday"])
def test_an_answer_without_a_date(date):
    """Without a date the difference is unknown."""
    with ScriptedServer(answer(headers={"Date": date})) as server:
        assert reach(ClientSpec(endpoint_url=server.url), "dynamodb").ahead_seconds is None


def test_the_fake_is_probed_without_a_request_to_its_tables():
    """The probe is the service's health check, which is neither signed nor counted."""
    with FakeDynamoDB() as fake:
        assert reach(ClientSpec(endpoint_url=fake.endpoint_url), "dynamodb").ahead_seconds == 0
        assert fake.requests() == {}


@pytest.mark.parametrize(
    ("step", "message"),
    [(hang_up, "Connection was closed"), (speak(b"SSH-2.0-OpenSSH\r\n"), "127.0.0.1"), (stall, "Read timeout")],
)
def test_what_does_not_speak_http_is_an_error(step, message):
    """It is one error, after no longer than the timeout of the description."""
    with ScriptedServer(step) as server, pytest.raises(EndpointError, match=message):
        reach(ClientSpec(endpoint_url=server.url, timeout_seconds=0.3), "dynamodb")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://nowhere.invalid", "nowhere.invalid has no address"),
        ("http://127.0.0.1:1", "Could not connect to the endpoint URL"),
    ],
)
def test_an_endpoint_that_is_not_there(url, message):
    """A name without an address is distinguished from a closed port."""
    with pytest.raises(EndpointError, match=message):
        reach(ClientSpec(endpoint_url=url), "dynamodb")


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, "dynamodb.eu-west-1.amazonaws.com"),
        ({"AWS_ACCOUNT_ID": "123456789012"}, "123456789012.ddb.eu-west-1.amazonaws.com"),
        (
            {"AWS_ACCOUNT_ID": "123456789012", "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled"},
            "dynamodb.eu-west-1.amazonaws.com",
        ),
        ({"AWS_ACCESS_KEY_ID": ""}, "dynamodb.eu-west-1.amazonaws.com"),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, "dynamodb-fips.eu-west-1.amazonaws.com"),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "dynamodb.eu-west-1.api.aws"),
    ],
)
def test_the_endpoint_is_the_one_that_requests_go_to(monkeypatch, variables, host):
    """It is the endpoint of the account, if the credentials contain the account."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    asked = []
    monkeypatch.setattr(endpoint_probe.socket, "getaddrinfo", lambda *of, **_: asked.append(of[0]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reach(ClientSpec(), "dynamodb")
    assert asked == [host]


def test_a_proxy_is_asked_instead(monkeypatch):
    """With a proxy the clocks are compared through it. Its password is not shown."""
    with ScriptedServer(answer()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{proxy.port}")
        probed = reach(ClientSpec(endpoint_url="http://dynamodb.example.org", allow_http=True), "dynamodb")
        assert probed == Reach("http://dynamodb.example.org", f"127.0.0.1:{proxy.port}", (), None, 0.0)
        assert proxy.requests[0].headers["host"] == "dynamodb.example.org"
