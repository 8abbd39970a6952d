"""Sign DynamoDB requests with AWS Signature Version 4.

Only one kind of request is supported: a POST to ``/`` without a query, whose whole body is hashed. What all requests of
one second have in common is computed once. Credentials and time are parameters.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(Protocol):
    """A set of keys, as botocore freezes them."""

    @property
    def access_key(self) -> str:
        """Return the access key id."""

    @property
    def secret_key(self) -> str:
        """Return the secret access key."""

    @property
    def token(self) -> str | None:
        """Return the session token of temporary credentials."""


@dataclass(frozen=True, slots=True)
class SecondSignature:
    """Sign the requests of one second; what their signatures have in common is computed already.

    Attributes
    ----------
    headers
        Headers to add to those that are signed: the date, and the session token if there is one.
    """

    headers: dict[str, str]
    _canonical: Any
    _mac: hmac.HMAC
    _authorization: str

    def authorization(self, body: bytes) -> str:
        """Return the value of the Authorization header for a body."""
        canonical = self._canonical.copy()
        canonical.update(hashlib.sha256(body).hexdigest().encode())
        mac = self._mac.copy()
        mac.update(canonical.hexdigest().encode())
        return self._authorization + mac.hexdigest()


class Signer:
    """Sign for one region and service; safe for threads."""

    def __init__(self, region: str, service: str) -> None:
        self._region = region
        self._service = service
        self._derived: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def sign_second(self, headers: Mapping[str, str], credentials: Credentials, at: float) -> SecondSignature:
        """Return what signs the requests of one second that have these headers and credentials.

        Parameters
        ----------
        headers
            The headers to sign, ``host`` included: names in lower case, values without superfluous spaces.
        at
            When the requests are made, in seconds since the epoch by the service's clock.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
        added = {"x-amz-date": stamp}
        if credentials.token:
            added["x-amz-security-token"] = _one_line(credentials.token)
        signed = sorted({**headers, **added}.items())
        names = ";".join(name for name, _ in signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed)
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        credential = f"{_one_line(credentials.access_key)}/{scope}"
        key = self._key(credentials.secret_key, stamp[:8])
        return SecondSignature(
            headers=added,
            _canonical=hashlib.sha256(f"POST\n/\n\n{lines}\n{names}\n".encode()),
            _mac=hmac.new(key, f"{_ALGORITHM}\n{stamp}\n{scope}\n".encode(), "sha256"),
            _authorization=f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature=",
        )

    def _key(self, secret: str, day: str) -> bytes:
        known, key = self._derived
        if known != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._derived = ((secret, day), key)
        return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _one_line(value: str) -> str:
    # As signatures require it, and so that no key can smuggle in a header.
    return " ".join(value.split())
