"""Requests to S3's endpoints, received by a server with a proxy for all host names."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, urlsplit

import boto3
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ddbio.aws import client
from ddbio.aws.client import ClientSpec
from ddbio.aws.s3_store import S3Store

SECRET = "a-secret"
OUTPOST = "arn:aws:s3-outposts:eu-west-1:123456789012:outpost/op-01234567890123456/accesspoint/lake"
POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/lake"
FIPS, DUAL = {"AWS_USE_FIPS_ENDPOINT": "true"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}
CASES = [
    ("eu-west-1", {}, "lake", "lake.s3.eu-west-1.amazonaws.com"),
    ("us-east-1", FIPS, "lake", "lake.s3-fips.us-east-1.amazonaws.com"),
    ("eu-west-1", DUAL, "lake", "lake.s3.dualstack.eu-west-1.amazonaws.com"),
    ("us-east-1", {**FIPS, **DUAL}, "lake", "lake.s3-fips.dualstack.us-east-1.amazonaws.com"),
    ("eu-west-1", {}, POINT, "lake-123456789012.s3-accesspoint.eu-west-1.amazonaws.com"),
    ("eu-west-1", DUAL, POINT, "lake-123456789012.s3-accesspoint.dualstack.eu-west-1.amazonaws.com"),
    ("eu-west-1", {}, "lake-abc-s3alias", "lake-abc-s3alias.s3.eu-west-1.amazonaws.com"),
    # A name with dots matches no certificate: it stays in the path.
    ("eu-west-1", {}, "lake.of.data", "s3.eu-west-1.amazonaws.com"),
    ("cn-north-1", {}, "lake", "lake.s3.cn-north-1.amazonaws.com.cn"),
    ("eu-west-1", {}, OUTPOST, "lake-123456789012.op-01234567890123456.s3-outposts.eu-west-1.amazonaws.com"),
    ("eu-west-1", {"addressing_style": "path"}, "lake", "s3.eu-west-1.amazonaws.com"),
    ("eu-west-1", {"addressing_style": "virtual"}, "lake", "lake.s3.eu-west-1.amazonaws.com"),
    ("eu-west-1", {"use_accelerate_endpoint": "true"}, "lake", "lake.s3-accelerate.amazonaws.com"),
    ("eu-west-1", {"use_dualstack_endpoint": "true"}, "lake", "lake.s3.dualstack.eu-west-1.amazonaws.com"),
    ("eu-west-1", {"endpoint": "https://s3.store.test"}, "lake", "s3.store.test"),
    ("eu-west-1", {"endpoint": "https://s3.store.test", "addressing_style": "virtual"}, "lake", "lake.s3.store.test"),
]


class Handler(BaseHTTPRequestHandler):
    """Server of any host after CONNECT, which records requests and returns empty responses."""

    protocol_version = "HTTP/1.1"

    def do_CONNECT(self):
        """Continue in TLS."""
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.close_connection = False
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)

    def do_PUT(self):
        """Record a request."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def finish(self):
        """Close the socket inside TLS."""
        super().finish()
        self.connection.close()

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a proxy that answers for all hosts, and the file of its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ddbio test")])
    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in sorted({host for *_, host in CASES})])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "both.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.seen = True, []
        server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.tls.load_cert_chain(folder / "both.pem")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server, folder / "ca.pem"
        server.shutdown()
        thread.join()


def signature_of(method, path, headers, scope, names):
    """Return the signature of a request, computed only from the specification of Signature Version 4."""
    lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    parts = urlsplit(path)
    query = "&".join(f"{quote(n, safe='~')}={quote(v, safe='~')}" for n, v in sorted(parse_qsl(parts.query, True)))
    listed = "".join(f"{name}:{lower[name]}\n" for name in names)
    text = "\n".join([method, parts.path, query, listed, ";".join(names), lower["x-amz-content-sha256"]])
    digest = hashlib.sha256(text.encode()).hexdigest()
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = "\n".join(["AWS4-HMAC-SHA256", lower["x-amz-date"], scope, digest])
    return hmac.new(key, signed.encode(), "sha256").hexdigest()


def scope_and_host(request):
    """Check a request's signature. Return its scope without the day, its host and its path."""
    method, path, headers, _ = request
    credential, names, signature = (
        part.partition("=")[2] for part in headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", ")
    )
    scope = credential.partition("/")[2]
    assert "host" in names.split(";")
    assert signature == signature_of(method, path, headers, scope, names.split(";"))
    return scope.split("/")[1:], headers["Host"], path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[3])
def test_requests_arrive_where_botocores_do(monkeypatch, tmp_path, server, case):
    """Host, path, region and service are those of botocore's call, and the received signature covers them.

    Settings without a variable are written into the profile: the addressing of buckets, and the endpoint.
    """
    (proxy, ca), (region, environment, bucket, host) = server, case
    in_profile = {name: value for name, value in environment.items() if name.islower()}
    endpoint = in_profile.pop("endpoint", None)
    lines = ["[default]", "s3 =", *(f"  {name} = {value}" for name, value in in_profile.items())]
    (tmp_path / "config").write_text("\n".join(lines if in_profile else lines[:1]) + "\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value in {
        **{name: value for name, value in environment.items() if not name.islower()},
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CA_BUNDLE": str(ca),
        "HTTPS_PROXY": f"http://127.0.0.1:{proxy.server_port}",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    proxy.seen.clear()
    client._client.cache_clear()
    spec = ClientSpec(region=region)
    S3Store(spec, f"s3://{bucket}/a b").put("note+1", b"{}")
    spec.client("s3", 32).close()
    client._client.cache_clear()
    theirs = boto3.Session(region_name=region).client("s3")
    theirs.put_object(Bucket=bucket, Key="a b/note+1", Body=b"{}")
    theirs.close()
    ours, botocores = map(scope_and_host, proxy.seen)
    in_path = bucket not in host and "accesspoint" not in bucket
    path = f"/{bucket}/a%20b/note%2B1" if in_path else "/a%20b/note%2B1"
    assert ours == ([region, "s3-outposts" if bucket == OUTPOST else "s3", "aws4_request"], host, path)
    # For another kind of store ddbio uses the path and botocore the host, unless the profile decides.
    assert ours == botocores or host == "s3.store.test"
