"""Redacted parts of messages and log records, in every notation of libraries."""

import base64
import json
from urllib.parse import quote

import pytest

from ddbio.secrets import remember_secrets, without_secrets

SECRET = "SECRETVALUE"
KNOWN = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYKNOWNVALUE"
TOKEN = "IQoJb3JpZ2luX2VjEKNOWNTOKEN//////////wEaCXVzLWVhc3QtMSJH=="


@pytest.mark.parametrize(
    "text",
    [
        # botocore
        f"host:h\nx-amz-date:20260101T000000Z\nx-amz-security-token:{SECRET}\n\nhost",
        f"headers={{'X-Amz-Security-Token': b'{SECRET}', 'Content-Length': '2'}}",
        f"{{'Authorization': b'AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature={SECRET}'}}",
        f"b'<Credentials><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{SECRET}</SessionToken>'",
        f'b\'{{"roleCredentials":{{"secretAccessKey":"{SECRET}","sessionToken":"{SECRET}"}}}}\'',
        f'{{"accessToken": "{SECRET}", "refreshToken": "{SECRET}", "clientSecret": "{SECRET}"}}',
        f'{{"Code": "Success", "Token" : "{SECRET}"}}',
        f"params: {{'body': {{'WebIdentityToken': '{SECRET}', 'SAMLAssertion': '{SECRET}'}}}}",
        f"{{'x-amz-sso_bearer_token': '{SECRET}', 'x-aws-ec2-metadata-token': '{SECRET}'}}",
        # urllib3 and http.client
        f'https://b.s3.amazonaws.com:443 "GET /k?X-Amz-Signature={SECRET}&X-Amz-Security-Token={SECRET} HTTP/1.1" 200',
        f"https://b/k?AWSAccessKeyId={SECRET}&Signature={SECRET}&Expires=1",
        f"Invalid header value b'{SECRET}\\n'",
        f"send: b'GET / HTTP/1.1\\r\\nauthorization: Bearer {SECRET}\\r\\n'",
        f"[('Proxy-Authorization', 'Basic {SECRET}')]",
        # py4j
        f"Command to send: c\no12\nset\nsspark.hadoop.fs.s3a.secret.key\ns{SECRET}\ne\n",
        f"Command to send: c\\no12\\nset\\nsspark.x.password\\ns{SECRET}\\ne\\n",
        # pyarrow, deltalake and pyiceberg
        f"S3Options(secret_key='{SECRET}', session_token=\"{SECRET}\")",
        f"{{'AWS_SECRET_ACCESS_KEY': '{SECRET}', 'aws_session_token': '{SECRET}'}}",
        f"s3.secret-access-key={SECRET} s3.session-token={SECRET}",
        f"passwd: {SECRET}; private_key={SECRET}",
        json.dumps(json.dumps({"secretAccessKey": SECRET})),
    ],
)
def test_values_after_the_name_of_a_secret_are_redacted(text):
    """Headers, queries, members of responses, options and commands are detected by their names."""
    assert SECRET not in without_secrets(text)
    assert "Signature=" not in without_secrets(text)


@pytest.mark.parametrize("value", [KNOWN, TOKEN])
@pytest.mark.parametrize(
    "encoding",
    [
        lambda value: f"any {value} text",
        lambda value: f"/path?a={quote(value, safe='')}",
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(b"x" + value.encode() + b"y").decode(),
        lambda value: base64.b64encode(b"xx" + value.encode() + b"yz").decode(),
        lambda value: base64.b64encode(b"pickled" * 50 + value.encode()).decode(),
    ],
)
def test_known_values_are_redacted_everywhere(value, encoding):
    """They are redacted in text, in URLs, and at any offset in Base64."""
    remember_secrets(KNOWN, TOKEN, None, "short")
    shown = without_secrets(encoding(value))
    assert value not in shown
    # The inner characters of the value, in any encoding.
    for offset in range(3):
        inner = base64.b64encode(bytes(offset) + value.encode()).decode()[8:40]
        assert inner not in shown
    assert without_secrets("short") == "short"


@pytest.mark.parametrize(
    "text",
    [
        "Signature:\n" + "0123456789abcdef" * 4,
        "token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl ends",
        "j" + base64.b64encode(bytes(range(256)) * 2).decode(),
    ],
)
def test_signatures_web_tokens_and_pickles_are_redacted(text):
    """They are detected by their format."""
    assert all(len(word) < 12 for word in without_secrets(text).split("…"))


@pytest.mark.parametrize(
    "text",
    [
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or run where a role is attached",
        "InvalidSignatureException: The request signature we calculated does not match the signature you provided",
        "Check your AWS Secret Access Key and signing method.",
        "The security token included in the request is expired",
        'b\'{"NextToken":"abc","Items":[{"pk":{"S":"a"}}]}\'',
        "s3://bucket/prefix/part-0000-0123456789abcdef0123456789abcdef.parquet",
        "no credentials for dynamodb:Scan on orders: they had expired at 2026-01-01",
    ],
)
def test_other_messages_stay_as_they_are(text):
    """Words about secrets are not secrets."""
    assert without_secrets(text) == text


def test_a_long_record_takes_linear_time():
    """No search restarts at each character, which would exceed the test's time limit."""
    for text in ("secret" * 50_000, "a" * 300_000, "secret'" + " " * 300_000, "/x" * 150_000, "eyJ" * 100_000):
        without_secrets(text)
