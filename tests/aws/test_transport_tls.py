"""Both sources over TLS, with servers whose certificates are from a CA of the tests."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, SSLError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ddbio.aws.client import ClientSpec
from ddbio.aws.endpoint_probe import reach
from ddbio.aws.error_codes import is_transient
from ddbio.errors import EndpointError, OptionError
from tests.aws.scripted import ScriptedServer, answer, hang_up, opened

SCAN = {"TableName": "table", "Segment": 0, "TotalSegments": 1}


@dataclass(frozen=True)
class Authority:
    """Certificate authority that signs certificates."""

    bundle: Path
    context_for: Callable[[str], ssl.SSLContext]


def _certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if is_authority:
        uses = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "encipher_only", "decipher_only"), False,
        )  # fmt: skip
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **uses), critical=True)
    else:
        name = x509.IPAddress(ipaddress.ip_address(subject)) if subject[0].isdigit() else x509.DNSName(subject)
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return builder.sign(signer, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Create a certificate authority."""
    folder = tmp_path_factory.mktemp("tls")
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _certificate("root", "root", root_key, root_key, is_authority=True)
    bundle = folder / "bundle.pem"
    bundle.write_bytes(root.public_bytes(serialization.Encoding.PEM))

    def context_for(host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        chain = folder / "chain.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        leaf = _certificate(host, "root", key, root_key, is_authority=False)
        chain.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context

    return Authority(bundle, context_for)


@pytest.fixture(params=["light", "botocore"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name the source under test."""
    return str(request.param)


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_server_of_the_configured_authority_is_trusted(kind, variable, authority, monkeypatch):
    """Botocore's CA bundle is used. A page of many TLS records arrives completely over an idle connection."""
    monkeypatch.setenv(variable, str(authority.bundle))
    items = [{"id": {"S": "x" * 1000}}] * 1000
    body = json.dumps({"Count": 1000, "Items": items, "ScannedCount": 1000}).encode()
    with (
        ScriptedServer(answer(body), answer(body), tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, kind, server.url) as source,
    ):
        pages = [source.read("Scan", SCAN) for _ in range(2)]
    assert [json.loads(page.items)["Items"] for page in pages] == [items] * 2
    assert [request.connection for request in server.requests] == [1, 1]
    assert all(request.is_signed_by("testing") for request in server.requests)


def test_a_profiles_authority_is_trusted(kind, authority, monkeypatch, tmp_path):
    """The ca_bundle of the AWS configuration file counts like the environment's."""
    configuration = tmp_path / "config"
    configuration.write_text(f"[default]\nca_bundle = {authority.bundle}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(configuration))
    with (
        ScriptedServer(tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, kind, server.url) as source,
    ):
        assert source.read("Scan", SCAN).count == 1


def test_a_server_of_an_unknown_authority_gets_no_request(kind, authority, monkeypatch):
    """Without the CA bundle the handshake fails, and nothing is sent."""
    with (
        ScriptedServer(tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, kind, server.url) as source,
        pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED") as refused,
    ):
        source.read("Scan", SCAN)
    assert server.requests == []
    assert not is_transient(refused.value)


def test_a_server_of_another_name_gets_no_request(kind, authority, monkeypatch):
    """A valid certificate of another host is refused."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    with (
        ScriptedServer(tls=authority.context_for("dynamodb.example.com")) as server,
        opened(monkeypatch, kind, server.url) as source,
        pytest.raises(SSLError, match=r"doesn't match|not valid for") as refused,
    ):
        source.read("Scan", SCAN)
    assert server.requests == []
    assert not is_transient(refused.value)


def test_a_kept_connection_that_was_closed_is_replaced(kind, authority, monkeypatch):
    """An encrypted connection that the server closed between two requests is replaced."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    with (
        ScriptedServer(answer(stays_open=False), tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, kind, server.url) as source,
    ):
        assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]


def test_a_request_on_a_closing_connection_is_sent_once_more(authority, monkeypatch):
    """The light transport also repeats requests over TLS."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    with (
        ScriptedServer(answer(), hang_up, tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, "light", server.url) as source,
    ):
        assert [source.read("Scan", SCAN).count, source.read("Scan", SCAN).count] == [1, 1]
    assert [request.connection for request in server.requests] == [1, 1, 2]


def test_an_alert_in_the_middle_is_worth_another_try(authority, monkeypatch):
    """A host that ends a session with an alert during its shutdown may be replaced by another one."""

    def alert(connection: socket.socket) -> bool:
        # Bytes that are not encrypted with this session's keys: the client's library treats them as an error of the
        # peer.
        with socket.socket(fileno=socket.dup(connection.fileno())) as plain:
            plain.sendall(bytes([21, 3, 3, 0, 2, 2, 80]))
        return False

    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    with (
        ScriptedServer(alert, tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, "light", server.url) as source,
    ):
        with pytest.raises(BotoCoreError) as refused:
            source.read("Scan", SCAN)
        assert is_transient(refused.value)
        assert source.read("Scan", SCAN).count == 1


def test_a_bundle_that_cannot_be_read_is_named(authority, monkeypatch, tmp_path):
    """A wrong AWS_CA_BUNDLE is an option error, not an error of the endpoint."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "absent.pem"))
    with (
        ScriptedServer(tls=authority.context_for("127.0.0.1")) as server,
        opened(monkeypatch, "light", server.url) as source,
        pytest.raises(OptionError, match=r"absent\.pem"),
    ):
        source.read("Scan", SCAN)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_probe_reports_the_version(version, authority, monkeypatch):
    """The probe of an endpoint trusts the same authorities as requests, and reports the version of TLS."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    context = authority.context_for("127.0.0.1")
    context.maximum_version = version
    with ScriptedServer(tls=context) as server:
        assert reach(ClientSpec(endpoint_url=server.url), "dynamodb").tls_version == version.name.replace("_", ".")


@pytest.mark.parametrize(("host", "is_known"), [("127.0.0.1", False), ("192.0.2.1", True)])
def test_a_probe_of_a_server_that_is_not_trusted(host, is_known, authority, monkeypatch):
    """A certificate of an unknown authority, or of another host, is one clear error."""
    if is_known:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    with (
        ScriptedServer(tls=authority.context_for(host)) as server,
        pytest.raises(EndpointError, match=r"the certificate of 127\.0\.0\.1 is not trusted"),
    ):
        reach(ClientSpec(endpoint_url=server.url), "dynamodb")
