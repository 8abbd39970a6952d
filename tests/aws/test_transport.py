"""Behaviour of the light transport that differs from botocore."""

from __future__ import annotations

import gc
import socket
import threading
import time
from calendar import timegm
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    HTTPClientError,
    ReadTimeoutError,
)

from ddbio.aws import client
from ddbio.aws import connection_pool as http_connection
from ddbio.aws.connection_pool import PendingResponse
from ddbio.aws.error_codes import is_transient
from ddbio.aws.transport import LightTransport
from tests.aws.scripted import (
    PAGE,
    Request,
    ScriptedServer,
    answer,
    hang_up,
    opened,
    read_at_last,
    refuse,
    speak,
    trickle,
)

SCAN = {"TableName": "table", "Segment": 0, "TotalSegments": 1}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE)


@pytest.fixture
def light(monkeypatch):
    """Return a function that opens a light transport on a server."""
    return lambda server, seconds=100.0: opened(monkeypatch, "light", server.url, seconds)


def _signed_at(request: Request) -> int:
    return timegm(time.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ"))


def test_a_request_on_a_closing_connection_is_sent_once_more(light):
    """If an idle connection ends before a byte of the response came, the same request uses a new one."""
    with ScriptedServer(answer(), hang_up) as server, light(server) as source:
        assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]
    assert [request.connection for request in server.requests] == [1, 1, 2]
    assert server.requests[1].body == server.requests[2].body


@pytest.mark.parametrize("steps", [[hang_up], [answer(), hang_up, hang_up]], ids=["new", "reused"])
def test_a_request_is_not_sent_a_third_time(light, steps):
    """If a new connection ends without a response, the caller decides."""
    with ScriptedServer(*steps) as server, light(server) as source:
        for _ in steps[:-2]:
            source.read("Scan", SCAN)
        with pytest.raises(ConnectionClosedError):
            source.read("Scan", SCAN)
    assert len(server.requests) == len(steps)


def test_a_started_response_is_not_requested_again(light):
    """An idle connection that ends inside a response is an immediate error: the service has charged for it."""
    with ScriptedServer(answer(), speak(HEAD + PAGE[:10])) as server, light(server) as source:
        source.read("Scan", SCAN)
        with pytest.raises(ConnectionClosedError):
            source.read("Scan", SCAN)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "words",
    [HEAD, HEAD + PAGE[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"],
    ids=["head", "body", "chunk"],
)
def test_an_answer_cut_short_is_a_closed_connection(light, words):
    """If a response is truncated anywhere, the caller requests the page again."""
    with (
        ScriptedServer(speak(words)) as server,
        light(server) as source,
        pytest.raises(ConnectionClosedError) as raised,
    ):
        source.read("Scan", SCAN)
    assert is_transient(raised.value)


@pytest.mark.parametrize("cut", [1, 20, len(HEAD) - 2, len(HEAD), len(HEAD) + 1, len(HEAD + PAGE) - 1])
def test_an_answer_in_two_pieces_keeps_its_connection(light, cut):
    """A response that is split anywhere in transit is complete, and the connection serves the next request."""

    def in_two(link: socket.socket) -> bool:
        link.sendall((HEAD + PAGE)[:cut])
        time.sleep(0.02)
        return speak((HEAD + PAGE)[cut:], stays_open=True)(link)

    with ScriptedServer(in_two, in_two, answer()) as server, light(server) as source:
        assert [source.read("Scan", SCAN).count for _ in range(3)] == [1, 1, 1]
    assert [request.connection for request in server.requests] == [1, 1, 1]


def test_bytes_beyond_an_answer_end_its_connection(light):
    """Unexpected bytes are never read as the next response, even if they arrived with this one."""
    with ScriptedServer(speak(HEAD + PAGE + HEAD + PAGE, stays_open=True), answer()) as server:
        with light(server) as source:
            assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]
        assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize(
    "words", [HEAD.rstrip(), b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], ids=["head", "body"]
)
def test_a_trickling_answer_runs_into_a_deadline(light, words):
    """Bytes that arrive just in time for every read do not block a lane forever."""
    with ScriptedServer(trickle(words)) as server, light(server, 0.2) as source:
        with pytest.raises(ReadTimeoutError) as raised:
            source.read("Scan", SCAN)
        assert is_transient(raised.value)
        assert read_at_last(source, "Scan", SCAN).count == 1


SENSELESS = {
    "a length that is none": HEAD.replace(str(len(PAGE)).encode(), b"many"),
    "a negative length": HEAD.replace(str(len(PAGE)).encode(), b"-1"),
    "more bytes than any page": HEAD.replace(str(len(PAGE)).encode(), b"9" * 15),
    "an endless header": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000,
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 101,
    "a chunk of a size that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk beyond any page": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
    "another protocol": b"\x16\x03\x01\r\n",
    "a status that is none": b"HTTP/1.1 ok\r\n\r\n",
}


@pytest.mark.parametrize("words", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_senseless_answer_is_refused_and_its_connection_dropped(light, words):
    """No response of a server makes the transport allocate unlimited memory or fail unexpectedly."""
    with ScriptedServer(speak(words, stays_open=True)) as server, light(server) as source:
        with pytest.raises(HTTPClientError) as raised:
            source.read("Scan", SCAN)
        assert is_transient(raised.value)
        assert source.read("Scan", SCAN).count == 1
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize(
    ("status", "body"),
    [(502, b"\xe9rreur"), (500, b"[]"), (503, b'{"__type":7}'), (299, b""), (404, b"[1]"), (300, PAGE)],
)
def test_an_answer_that_is_nobodys_error_keeps_its_status(light, status, body):
    """The answer of an intermediary becomes a ClientError by its HTTP status."""
    step = answer(body, status=status)
    with ScriptedServer(step) as server, light(server) as source, pytest.raises(ClientError) as raised:
        source.read("Scan", SCAN)
    assert raised.value.response["Error"]["Code"] == str(status)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert is_transient(raised.value) == (status >= 500)


@pytest.mark.parametrize(
    ("message", "hours"),
    [("Signature expired: 20260101T000000Z is now earlier than …", 3), ("Signature not yet current: …", -3)],
)
def test_a_wrong_clock_follows_the_services(light, message, hours):
    """A signature refused for its date is recomputed with the clock of the Date header, which is used from then."""
    theirs = time.time() + 3600 * hours
    late = refuse("InvalidSignatureException", message, headers={"Date": formatdate(theirs, usegmt=True)})
    with ScriptedServer(late) as server, light(server) as source:
        assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]
    first, *others = server.requests
    assert abs(_signed_at(first) - time.time()) < 3600
    assert all(abs(_signed_at(request) - theirs) < 3600 for request in others)
    assert len(others) == 2
    assert all(request.is_signed_by("testing") for request in server.requests)


@pytest.mark.parametrize(
    ("message", "date"),
    [
        ("Signature expired: …", "now"),
        ("Signature expired: …", "yesterday"),
        ("Signature expired: …", None),
        ("The request signature we calculated does not match …", formatdate(0, usegmt=True)),
    ],
    ids=["clocks agree", "no date", "no header", "another reason"],
)
def test_a_refused_signature_is_raised_where_no_clock_is_to_blame(light, message, date):
    """Without a clock difference the refusal is final, after one request."""
    stamp = formatdate(usegmt=True) if date == "now" else date
    step = refuse("InvalidSignatureException", message, headers={"Date": stamp})
    with ScriptedServer(step) as server, light(server) as source, pytest.raises(ClientError, match="InvalidSignature"):
        source.read("Scan", SCAN)
    assert len(server.requests) == 1


def test_a_clock_is_followed_once_a_call(light):
    """A server with a drifting clock ends in its error, not in a loop."""
    steps = [
        refuse(
            "InvalidSignatureException", "Signature expired: …", headers={"Date": formatdate(day * 86400, usegmt=True)}
        )
        for day in range(3)
    ]
    with (
        ScriptedServer(*steps) as server,
        light(server) as source,
        pytest.raises(ClientError, match="InvalidSignature"),
    ):
        source.read("Scan", SCAN)
    assert len(server.requests) == 2


def test_threads_have_separate_connections(light):
    """Concurrent requests use as many connections, which are then reused and closed."""
    together = threading.Barrier(4)

    def scan(source: LightTransport) -> int:
        together.wait()
        return sum(source.read("Scan", SCAN).count for _ in range(5))

    with ScriptedServer() as server, light(server) as source, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(scan, [source] * 4)) == [5] * 4
    assert len({request.connection for request in server.requests}) <= 4
    assert len(server.requests) == 20


def test_a_closed_transport_keeps_no_connection(light):
    """After close, and in a transport without references, no socket remains open."""
    with ScriptedServer() as server, light(server) as source:
        source.read("Scan", SCAN)
        source.close()
        server.wait_until_idle()
        source.read("Scan", SCAN)
        assert isinstance(source, LightTransport)
        source._pools.clear()
        del source
        gc.collect()
        server.wait_until_idle()
    assert [request.connection for request in server.requests] == [1, 2]


def test_a_handshake_that_never_ends_is_a_connect_timeout(monkeypatch):
    """A port that accepts but does not start TLS in time is handled like one that does not accept."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with opened(monkeypatch, "light", url, 0.2) as source, pytest.raises(ConnectTimeoutError):
            source.read("Scan", SCAN)


def _refreshable(monkeypatch):
    """Let clients have credentials that botocore considers valid for hours, and that differ at each refresh."""
    numbers = iter(range(1, 100))

    def refreshed() -> dict[str, str]:
        late = (datetime.now(UTC) + timedelta(hours=6)).isoformat()
        return {"access_key": "KEY", "secret_key": "s", "token": f"t{next(numbers)}", "expiry_time": late}

    def session(_spec: object, _environment: object) -> boto3.Session:
        made = botocore.session.Session()
        made._credentials = RefreshableCredentials.create_from_metadata(refreshed(), refreshed, "test")
        return boto3.Session(botocore_session=made)

    monkeypatch.setattr(client, "_session", session)


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException"])
def test_a_token_called_expired_is_renewed_once_a_call(light, monkeypatch, code):
    """If the service rejects a token that botocore considers valid, a new one is fetched, once per call."""
    _refreshable(monkeypatch)
    expired = refuse(code, "The security token included in the request is expired")
    with ScriptedServer(expired, answer(), expired, expired) as server, light(server) as source:
        assert source.read("Scan", SCAN).count == 1
        with pytest.raises(ClientError, match=code):
            source.read("Scan", SCAN)
    assert [request.headers["x-amz-security-token"] for request in server.requests] == ["t1", "t2", "t2", "t3"]


def test_keys_that_cannot_be_renewed_are_refused_as_before(light):
    """Static keys that the service rejects as expired are an error for the caller."""
    step = refuse("ExpiredTokenException", "expired")
    with (
        ScriptedServer(step) as server,
        light(server) as source,
        pytest.raises(ClientError, match="ExpiredTokenException"),
    ):
        source.read("Scan", SCAN)
    assert len(server.requests) == 1


def _in_flight(source: LightTransport, server: ScriptedServer, count: int) -> list[PendingResponse]:
    """Return ``count`` requests that have reached the server."""
    calls = [source.begin("Scan", "t", b'{"TableName":"t"}') for _ in range(count)]
    while len(server.requests) < count:
        time.sleep(0.001)
    return calls


def test_a_token_that_expired_is_renewed_once_for_all_lanes(light, monkeypatch):
    """Requests in flight when a token expired share one refresh."""
    _refreshable(monkeypatch)
    expired = refuse("ExpiredTokenException", "expired")
    steps = [expired, expired, expired, answer(), answer(), answer()]
    with ScriptedServer(*steps) as server, light(server) as source:
        calls = _in_flight(source, server, 3)
        for call in calls:
            assert b"Count" in call.result()
    tokens = [request.headers["x-amz-security-token"] for request in server.requests]
    assert sorted(tokens) == ["t1"] * 3 + ["t2"] * 3


def test_a_wrong_clock_is_corrected_for_every_lane(light):
    """Requests signed before the clock was corrected are signed again, not refused."""
    late = {"Date": formatdate(timegm((2031, 1, 1, 0, 0, 0)), usegmt=True)}
    skewed = refuse("InvalidSignatureException", "Signature expired: …", headers=late)
    with ScriptedServer(skewed, skewed, skewed, answer(), answer(), answer()) as server, light(server) as source:
        calls = _in_flight(source, server, 3)
        for call in calls:
            assert b"Count" in call.result()
    assert len(server.requests) == 6
    assert sum(request.headers["x-amz-date"].startswith("2031") for request in server.requests) == 3


def test_an_alert_of_tls_is_worth_another_try(monkeypatch):
    """A load balancer that refuses a handshake may be restarting. Only a bad certificate is final."""

    def alert(listener: socket.socket) -> None:
        link, _ = listener.accept()
        with link:
            link.recv(4096)
            # https://www.rfc-editor.org/rfc/rfc8446#section-6: fatal, internal_error.
            link.sendall(bytes([21, 3, 3, 0, 2, 2, 80]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        teller = threading.Thread(target=alert, args=(listener,))
        teller.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with opened(monkeypatch, "light", url) as source, pytest.raises(ConnectionClosedError) as refused:
            source.read("Scan", SCAN)
        teller.join()
    assert is_transient(refused.value)


def test_an_old_connection_is_replaced(light, monkeypatch):
    """A connection is used for 15 minutes. Then the next request resolves the endpoint's addresses again."""
    now = time.monotonic()
    monkeypatch.setattr(http_connection.time, "monotonic", lambda: now)
    with ScriptedServer() as server, light(server) as source:
        for seconds in (0, 899, 1, 899, 901):
            now += seconds
            assert source.read("Scan", SCAN).count == 1
    assert [request.connection for request in server.requests] == [1, 1, 2, 2, 3]


def test_an_idle_connection_is_kept_alive(light):
    """A gateway that drops idle connections after minutes receives a keepalive of each once a minute."""
    with ScriptedServer() as server, light(server) as source:
        source.read("Scan", SCAN)
        (pool,) = source._pools.values()
        held = socket.socket(fileno=socket.dup(pool._idle[0].fileno()))
        with held:
            assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


DEAD, ALIVE = ("10.0.0.1", 443), ("10.0.0.2", 443)


@pytest.fixture
def network(monkeypatch):
    """Return the connected addresses with the timeout of each. ``DEAD`` drops everything."""
    asked = []

    def connect_to(family, address, timeout_seconds):
        asked.append((address, timeout_seconds))
        if address == DEAD:
            raise TimeoutError
        return socket.socket(family)

    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (DEAD, ALIVE)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
    monkeypatch.setattr(http_connection, "_connect_to", connect_to)
    monkeypatch.setattr(http_connection, "_shunned_until", {})
    return asked


def test_a_dead_address_among_several_is_tried_once_and_shortly(network):
    """Requests use the address that responds. Later connections start with it."""
    endpoint = http_connection.Endpoint("http://h", "h", 443, None, 5.0, 30.0)
    for _ in range(3):
        with http_connection.connect(endpoint) as connection:
            assert connection.gettimeout() == 5.0
    assert network == [(DEAD, 1.0), (ALIVE, 1.0), (ALIVE, 1.0), (ALIVE, 1.0)]


def test_addresses_that_are_all_slow_get_the_full_timeout(network, monkeypatch):
    """If no address responds within a second, each is tried again with the full timeout before the request fails."""
    slow = ("10.0.0.3", 443)
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (DEAD, slow)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
    connect = http_connection._connect_to
    monkeypatch.setattr(http_connection, "_connect_to", lambda family, _, seconds: connect(family, DEAD, seconds))
    endpoint = http_connection.Endpoint("http://h", "h", 443, None, 5.0, 30.0)
    with pytest.raises(ConnectTimeoutError):
        http_connection.connect(endpoint)
    assert [seconds for _, seconds in network] == [1.0, 1.0, 5.0, 5.0]
