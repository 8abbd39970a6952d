"""The choice of open_page_source, and the same endpoints in the light transport as in botocore."""

from __future__ import annotations

import io
import re
import time
from calendar import timegm

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from urllib3 import HTTPResponse

from ddbio.aws import client
from ddbio.aws.client import ClientSpec
from ddbio.aws.endpoint_route import find_obstacle
from ddbio.aws.transport import BotocoreTransport, LightTransport, open_page_source
from ddbio.errors import OptionError

LOCAL = "http://127.0.0.1:9"
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/table"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Give each test separate clients and an environment without proxies."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("DDBIO_TRANSPORT", raising=False)
    client._client.cache_clear()
    yield
    client._client.cache_clear()


def test_the_light_transport_is_the_default():
    """Unless something requires botocore, the transport is light. Using botocore with the client changes nothing."""
    spec = ClientSpec(endpoint_url=LOCAL)
    BotocoreTransport(spec, 1)
    assert isinstance(open_page_source(spec, 1), LightTransport)
    assert isinstance(open_page_source(spec, 1), LightTransport)


@pytest.mark.parametrize("forced", ["botocore", "light"])
def test_one_source_can_be_forced(monkeypatch, forced):
    """DDBIO_TRANSPORT decides."""
    monkeypatch.setenv("DDBIO_TRANSPORT", forced)
    expected = LightTransport if forced == "light" else BotocoreTransport
    assert isinstance(open_page_source(ClientSpec(endpoint_url=LOCAL), 1), expected)


def test_an_unknown_source_is_refused(monkeypatch):
    """A misspelt DDBIO_TRANSPORT is an error that names the values."""
    monkeypatch.setenv("DDBIO_TRANSPORT", "lite")
    with pytest.raises(OptionError, match="'lite': set it to light or botocore"):
        open_page_source(ClientSpec(endpoint_url=LOCAL), 1)


@pytest.mark.parametrize(
    ("environment", "url", "expected"),
    [
        ({"HTTP_PROXY": "http://127.0.0.1:3128"}, LOCAL, BotocoreTransport),
        ({"http_proxy": "http://127.0.0.1:3128"}, LOCAL, BotocoreTransport),
        ({"HTTP_PROXY": "http://127.0.0.1:3128", "NO_PROXY": "127.0.0.1"}, LOCAL, LightTransport),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, LOCAL, LightTransport),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, "https://127.0.0.1:9", BotocoreTransport),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128", "NO_PROXY": ".amazonaws.com"}, None, LightTransport),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, None, BotocoreTransport),
        ({"AWS_ENDPOINT_URL": f"{LOCAL}/path"}, None, BotocoreTransport),
        ({}, f"{LOCAL}/", LightTransport),
        ({}, "http://user:word@127.0.0.1:9", BotocoreTransport),
    ],
)
def test_configurations_that_need_botocore_use_it(monkeypatch, environment, url, expected):
    """Proxies of the endpoint, and endpoints with more than a host and a port, use botocore."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(open_page_source(ClientSpec(endpoint_url=url), 1)) is expected


@pytest.mark.parametrize(
    "event", ["before-send.dynamodb", "before-sign.*.Scan", "request-created.dynamodb.PutItem", "needs-retry"]
)
def test_a_custom_handler_takes_botocores_path(event):
    """A user's handler on the client is not ignored."""
    spec = ClientSpec(endpoint_url=LOCAL)
    spec.client("dynamodb").meta.events.register(event, lambda **_: None)
    assert isinstance(open_page_source(spec, 1), BotocoreTransport)


def test_handlers_that_cannot_be_listed_take_botocores_path(monkeypatch):
    """A botocore without the private attribute that lists handlers may have some."""
    made = ClientSpec(endpoint_url=LOCAL).client("dynamodb")
    monkeypatch.delattr(made.meta.events, "_emitter")
    assert find_obstacle(made) == "a custom handler is registered on the botocore client"


def test_the_light_transport_cannot_be_forced_past_a_proxy(monkeypatch):
    """A forced transport that would ignore the configuration is refused with the reason."""
    monkeypatch.setenv("DDBIO_TRANSPORT", "light")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:3128")
    with pytest.raises(OptionError, match="a proxy is configured"):
        open_page_source(ClientSpec(endpoint_url=LOCAL), 1)


def _as_botocore_sends_it(spec: ClientSpec, table: str) -> AWSPreparedRequest:
    sent: list[AWSPreparedRequest] = []

    def keep(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, HTTPHeaders(), HTTPResponse(io.BytesIO(b"{}"), preload_content=False))

    made = client._client.__wrapped__(spec, "dynamodb", 10, client._environment())
    made.meta.events.register("before-send.dynamodb.Scan", keep)
    made.scan(TableName=table)
    return sent[0]


def _without_features(user_agent: str) -> str:
    """Remove botocore's list of used features, some of which it sends with its first request only."""
    return re.sub(r" m/\S+", "", user_agent)


@pytest.mark.parametrize("table", ["table", ARN])
@pytest.mark.parametrize(
    ("environment", "spec"),
    [
        ({}, ClientSpec(region="eu-west-1")),
        ({}, ClientSpec(region="cn-north-1")),
        ({}, ClientSpec(region="local")),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, ClientSpec(region="us-east-1")),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, ClientSpec(region="us-west-2")),
        ({"AWS_ACCOUNT_ID": "111122223333"}, ClientSpec(region="eu-west-1")),
        (
            {"AWS_ACCOUNT_ID": "111122223333", "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled"},
            ClientSpec(region="eu-west-1"),
        ),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:8000"}, ClientSpec(region="eu-west-1")),
        ({"AWS_ENDPOINT_URL_DYNAMODB": "https://[::1]:8443"}, ClientSpec(region="eu-west-1")),
        ({}, ClientSpec(endpoint_url="https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com", region="eu-west-1")),
        ({}, ClientSpec(endpoint_url="http://LocalHost:80")),
    ],
)
def test_requests_use_botocores_endpoint(monkeypatch, environment, spec, table):
    """Address, user agent and signature are those of botocore's request, for all settings."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    theirs = _as_botocore_sends_it(spec, table)
    source = open_page_source(spec, 1)
    assert isinstance(source, LightTransport)
    route = source.routes.find("Scan", table)
    assert route.endpoint.url == theirs.url
    assert theirs.url.startswith("https:") == (route.endpoint.tls is not None)
    headers = {
        name.lower(): value if isinstance(value, str) else value.decode() for name, value in theirs.headers.items()
    }
    assert route.headers["x-amz-target"] == headers["x-amz-target"]
    assert route.headers["content-type"] == headers["content-type"]
    assert _without_features(route.user_agent) == _without_features(headers["user-agent"])
    at = timegm(time.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ"))
    ours = route.head(theirs.body, at, "").decode()
    assert f"\r\nauthorization: {headers['authorization']}\r\n" in ours
