"""Credentials of SSO, an instance, a container, a process: fetched once, refreshed once, with clear errors."""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import botocore.credentials
import botocore.tokens
import pytest
from botocore.credentials import ContainerMetadataFetcher

import ddbio
from ddbio import retrying
from ddbio.aws import client as client_module
from ddbio.aws.client import ClientSpec
from ddbio.aws.retry import RetryPolicy
from ddbio.budget import LocalBudget
from ddbio.errors import AccessDeniedError, EndpointError
from ddbio.scan.pages import ReadRequest, scan_pages
from tests.aws.scripted import ScriptedServer, answer, opened

ROLE = "/latest/meta-data/iam/security-credentials/"
SOURCES = ("imdsv2", "imdsv1", "container", "process", "sso", "sso-session")

BROKEN = {
    "away": (503, "away"),
    "garbage": (200, "<html>"),
    "undated": (200, json.dumps({"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t", "Expiration": "soon"})),
    "partial": (200, json.dumps({"Code": "Failed", "Message": "no role", "roleCredentials": {}})),
}


class Source:
    """Source of credentials: its number of requests, and its failure.

    Its servers accept the requests of all kinds of sources, so that one server is enough.
    """

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder
        self.fetches, self.tokens = 0, 0
        self.broken: str | None = None
        self.life = timedelta(hours=6)

    def keys(self):
        """Return new keys. Each pair has a unique name."""
        self.fetches += 1
        return {
            "AccessKeyId": f"AK{self.fetches}",
            "SecretAccessKey": "secret",
            "Expiration": (datetime.now(UTC) + self.life).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def respond(self, path, headers):
        """Return the status and the text of the response to a request."""
        if path == "/latest/api/token":
            return (403, "") if self.kind == "imdsv1" else (200, "imds-token")
        if path == "/token":
            self.tokens += 1
            return 200, json.dumps({"accessToken": "new", "expiresIn": 28800, "refreshToken": "r", "tokenType": "B"})
        if path == ROLE:
            return 200, "role"
        return BROKEN[self.broken] if self.broken else (200, self.grant(path, headers))

    def grant(self, path, headers):
        """Return new keys in the format of such a source."""
        keys = self.keys()
        if self.kind == "imdsv2":
            assert headers["x-aws-ec2-metadata-token"] == "imds-token"
        if path.startswith("/federation"):
            assert headers["x-amz-sso_bearer_token"] == ("new" if self.kind == "sso-session" else "token")
            until = datetime.fromisoformat(keys.pop("Expiration")).timestamp() * 1000
            named = {"accessKeyId": keys["AccessKeyId"], "secretAccessKey": "secret", "sessionToken": "t"}
            return json.dumps({"roleCredentials": {**named, "expiration": int(until)}})
        if self.kind == "container":
            assert headers["authorization"] == "container-token"
        return json.dumps({"Code": "Success", "Token": "t", **keys})


PROCESS = """
import json, sys, urllib.request
try:
    found = urllib.request.urlopen("{url}/process").read().decode()
except OSError as error:
    sys.exit(str(error))
print(json.dumps({{"Version": 1, "SessionToken": "t", **json.loads(found)}}) if found[0] == "{{" else found)
"""


@pytest.fixture(params=SOURCES)
def source(request, monkeypatch, tmp_path):
    """Return a source that is the only one of this process."""
    new_source = Source(request.param, tmp_path)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, text = new_source.respond(self.path.partition("?")[0], self.headers)
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # Ignore caches of other tests.
    monkeypatch.setenv("AWS_TEST", str(tmp_path))
    monkeypatch.setattr(retrying.time, "sleep", lambda _: None)
    if request.param.startswith("imds"):
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{url}/")
        monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "100")
    elif request.param == "container":
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/container")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token")
        monkeypatch.setattr(ContainerMetadataFetcher, "SLEEP_TIME", 0)
        monkeypatch.setattr(ContainerMetadataFetcher, "TIMEOUT_SECONDS", 100)
    else:
        _write_profile(new_source, url, monkeypatch)
    yield new_source
    server.shutdown()
    thread.join()
    server.server_close()
    client_module._client.cache_clear()


def _write_profile(source, url, monkeypatch):
    lines = {
        "process": [f"credential_process = {sys.executable} -SsE {source.folder / 'process.py'}"],
        "sso": ["sso_start_url = https://start", "sso_region = eu-west-1"],
        "sso-session": ["sso_session = corp"],
    }[source.kind]
    if source.kind != "process":
        lines += ["sso_account_id = 111122223333", "sso_role_name = reader"]
    session = "\n[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://start\n"
    (source.folder / "config").write_text("[default]\nregion = eu-west-1\n" + "\n".join(lines) + session)
    (source.folder / "process.py").write_text(PROCESS.format(url=url))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(source.folder / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO_OIDC", url)
    monkeypatch.setattr(botocore.credentials.SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(source.folder))
    monkeypatch.setattr(botocore.tokens.SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", str(source.folder))
    _log_in(source, timedelta(hours=8) if source.kind == "sso" else timedelta(minutes=1))


def _log_in(source, life):
    """Write the files of ``aws sso login``. The token of a session can be refreshed."""
    name = hashlib.sha1(b"https://start" if source.kind == "sso" else b"corp").hexdigest()
    until = (datetime.now(UTC) + life).strftime("%Y-%m-%dT%H:%M:%SZ")
    token = {"startUrl": "https://start", "region": "eu-west-1", "accessToken": "token", "expiresAt": until}
    refreshable = {
        "refreshToken": "r",
        "clientId": "i",
        "clientSecret": "s",
        "registrationExpiresAt": "2099-01-01T00:00:00Z",
    }
    (source.folder / f"{name}.json").write_text(json.dumps(token if source.kind == "sso" else {**token, **refreshable}))


def _credentials(client):
    return client._request_signer._credentials


def _expire(client, seconds):
    """Let the keys of a client expire after some seconds, and also the cache of SSO's source."""
    held = _credentials(client)
    held._expiry_time = datetime.now(UTC) + timedelta(seconds=seconds)
    getattr(getattr(held._refresh_using.fetch, "__self__", None), "_cache", {}).clear()


def test_keys_are_fetched_once_for_all_clients(source):
    """All clients of a process, for any service and number of connections, share the same fetched keys."""
    spec = ClientSpec(region="eu-west-1")
    clients = [spec.client("dynamodb"), spec.client("dynamodb", 32), spec.client("s3"), spec.client("cloudwatch")]
    assert {_credentials(client).get_frozen_credentials().access_key for client in clients} == {"AK1"}
    assert (source.fetches, source.tokens) == (1, source.kind == "sso-session")


def test_keys_are_refreshed_once_for_all_lanes(source, monkeypatch):
    """Lanes with expiring keys fetch them once, and continue with the new ones."""
    with ScriptedServer(*[answer()] * 2) as server, opened(monkeypatch, "light", server.url) as pages:
        scan = {"TableName": "t", "Segment": 0, "TotalSegments": 1}
        pages.read("Scan", scan)
        _expire(pages._client, 5)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: pages.read("Scan", scan), range(8)))
        assert [f"AK{n}/" in server.requests[-1].headers["authorization"] for n in (1, 2)] == [False, True]
    assert source.fetches == 2


@pytest.mark.parametrize("broken", BROKEN)
def test_a_source_that_fails_is_an_error_before_anything_is_read(source, broken):
    """Any failure of a source is a readable error about credentials without a traceback."""
    source.broken = broken
    with pytest.raises(AccessDeniedError, match=r"credentials|aws sso login"):
        ddbio.read_table("t", endpoint_url="http://127.0.0.1:1")


class Mending(RetryPolicy):
    """Pause that does not wait, and repairs the source before the third attempt."""

    source: Source

    def pause(self, attempt):
        """Return immediately."""
        if attempt:
            self.source.broken, self.source.life = None, timedelta(hours=6)


@pytest.mark.parametrize("broken", [*BROKEN, "expired"])
def test_a_refresh_that_fails_is_waited_for_within_the_deadline(source, broken, monkeypatch):
    """A lane whose keys cannot be refreshed continues when they can, and is charged nothing; else it ends in time."""
    request, budget = ReadRequest("t"), LocalBudget(None)
    with ScriptedServer() as server, opened(monkeypatch, "light", server.url) as pages:
        next(scan_pages(pages, request, budget, RetryPolicy(60.0, threading.Event())))
        source.broken, source.life = broken, timedelta(minutes=-20) if broken == "expired" else source.life
        _expire(pages._client, -1)
        if not (broken == "expired" and source.kind.startswith("imds")):
            # botocore uses the old keys of an instance for some minutes, as all SDKs of AWS do.
            with pytest.raises(EndpointError, match=r"credentials.* gave up after"):
                list(scan_pages(pages, request, budget, RetryPolicy(-1.0, threading.Event())))
        Mending.source = source
        assert len(list(scan_pages(pages, request, budget, Mending(60.0, threading.Event())))) == 1
        assert len(server.requests) == 2
    assert budget.usage().consumed_units == 2 * 0.5


@pytest.mark.parametrize("source", ["sso"], indirect=True)
def test_an_expired_login_is_an_immediate_error(source):
    """The job does not wait for a person: when the login of SSO has expired, it ends with advice."""
    _log_in(source, timedelta(hours=-1))
    with pytest.raises(AccessDeniedError, match="aws sso login"):
        ddbio.read_table("t", endpoint_url="http://127.0.0.1:1")
    assert source.fetches == 0
