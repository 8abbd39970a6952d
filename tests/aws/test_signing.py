from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from ddbio.aws.endpoint_route import Signer

_PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
_HOSTS = st.sampled_from(["127.0.0.1", "[::1]", "localhost", "dynamodb.eu-west-1.amazonaws.com"])


def _sign(signer, headers, body, credentials, at):
    """Return the headers that a signer adds to a request."""
    moment = signer.sign_second(headers, credentials, at)
    return {**moment.headers, "authorization": moment.authorization(body)}


def _signed_by_botocore(
    headers: dict[str, str], body: bytes, credentials: Credentials, at: int, scope: tuple[str, str]
) -> dict[str, str]:
    unsigned = {name: value for name, value in headers.items() if name != "host"}
    request = AWSRequest("POST", f"http://{headers['host']}/", unsigned, body)
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        SigV4Auth(credentials, scope[1], scope[0]).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items() if name.lower() not in headers}


_REGIONS = st.from_regex(r"[a-z]{2}-[a-z]{4,9}-[1-9]", fullmatch=True)
_PORTS = st.one_of(st.just(""), st.integers(1024, 65535).map(":{}".format))
_TOKENS = st.one_of(st.none(), st.just(""), _PRINTABLE, st.lists(_PRINTABLE, max_size=3).map("  ".join))
_CREDENTIALS = st.builds(Credentials, st.from_regex(r"[A-Z0-9]{16,20}", fullmatch=True), st.text(max_size=40), _TOKENS)


@given(
    body=st.binary(max_size=400),
    host=st.builds("{}{}".format, _HOSTS, _PORTS),
    target=_PRINTABLE,
    scope=st.tuples(_REGIONS, st.sampled_from(["dynamodb", "kinesis"])),
    credentials=_CREDENTIALS,
    at=st.integers(946684800, 4102444800),
)
def test_a_signature_is_the_one_botocore_makes(*, body, host, target, scope, credentials, at):
    """Every generated request is signed as botocore.auth.SigV4Auth signs it, header for header."""
    headers = {"content-type": "application/x-amz-json-1.0", "host": host, "x-amz-target": target}
    theirs = _signed_by_botocore(headers, body, credentials, at, scope)
    if credentials.token:
        theirs["x-amz-security-token"] = " ".join(credentials.token.split())
    assert _sign(Signer(*scope), headers, body, credentials, at) == theirs


def test_the_kept_key_follows_the_day_and_the_secret():
    """A signer used over midnight and over a rotation signs like a new one."""
    headers = {"host": "localhost"}
    reused = Signer("eu-west-1", "dynamodb")
    for at in (1700006399, 1700006400, 1700006399):
        for secret in ("one", "two", "one"):
            credentials = Credentials("KEY", secret)
            fresh = _sign(Signer("eu-west-1", "dynamodb"), headers, b"{}", credentials, at)
            assert _sign(reused, headers, b"{}", credentials, at) == fresh


@pytest.mark.parametrize("broken", ["a\r\nx-evil: 1", "a\nb", "a\x0bb"])
def test_a_credential_cannot_add_a_header(broken):
    """Line ends inside a session token or a key name do not survive signing."""
    added = _sign(Signer("eu-west-1", "dynamodb"), {"host": "h"}, b"", Credentials(broken, "secret", broken), 1.0)
    assert not any(set(value) & set("\r\n\x0b") for value in added.values())
