"""Removal of secrets from messages: known values, and values after names that are used for secrets."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote

_HIDDEN = "…"
# A shorter value may be a word of any message; secrets of AWS are longer.
_MIN_CHARACTERS = 8
# The encodings in which each value may be written.
_secrets: dict[str, tuple[str, ...]] = {}

_NAME = (
    r"x-amz-security-token|x-aws-ec2-metadata-token|x-amz-sso_bearer_token|authorization|awsaccesskeyid|samlassertion"
    r"|(?:session|access|refresh|identity|id|bearer|security|auth|web_?identity)[_.-]?token|secret|passw(?:or)?d"
    r"|private[_.-]?key"
)
# The separators between name and value in JSON, Python, XML, headers, queries and py4j.
_BETWEEN = r"""(?:[\\"']*\s*(?:[:=]|=>)\s*|["']\s*,\s*|>|(?:\\n|\n)s)"""
_VALUE = r"""(?:b?"[^"]*"|b?'[^']*'|\\+"[^"\\]*|[^\s"'&,;<>(){}\[\]\\]+)"""
_SECRET = re.compile(
    rf"""(?:{_NAME})[\w.-]{{0,40}}{_BETWEEN}(?:(?:AWS4-[\w-]+|Bearer|Basic)\s+)?{_VALUE}"""
    r"""|(?:signature|credential)[\\"']*\s*=\s*(?:b?["'])?[^\s"'&,;<>]+"""
    r"""|signature[\\"']*\s*:\s*(?:b?["'])?[\w+/%=]{20,}"""
    # Response of container and instance metadata.
    r"""|"Token"\s*:\s*"[^"]*\""""
    # http.client shows a header that it refuses to send.
    r"""|Invalid header (?:value|name) b?(?:'[^']*'|"[^"]*"|\S+)""",
    re.IGNORECASE,
)
# Each match of the pattern contains one of these, which are a hundred times faster to search for.
_STEMS = (
    "secret",
    "token",
    "passw",
    "signature",
    "credential",
    "accesskeyid",
    "author",
    "assertion",
    "private",
    "header",
)
# A web token, or long Base64 text: py4j logs pickled values so, and they may contain credentials.
_OPAQUE = re.compile(r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|(?<![\w+/])[A-Za-z0-9+/]{200,}={0,2}")
_NAMED = re.compile(r"Invalid header (?:value|name)|\"?[\w.-]+", re.IGNORECASE)


def remember_secrets(*values: str | None) -> None:
    """Add values that `without_secrets` removes wherever they occur."""
    for value in values:
        if value is not None and len(value) >= _MIN_CHARACTERS and value not in _secrets:
            _secrets[value] = (value, quote(value, safe=""), *_in_base64(value.encode()))


def without_secrets(text: str) -> str:
    """Return a message or log record without secrets.

    It removes values that were passed to `remember_secrets`, as text, in URLs and in Base64; values after names of
    secrets, such as headers and members of responses; signatures; web tokens; and long Base64 texts.
    """
    for encodings in _secrets.values():
        for encoded in encodings:
            text = text.replace(encoded, _HIDDEN)
    lower = text.lower()
    if any(stem in lower for stem in _STEMS):
        text = _SECRET.sub(_hide, text)
    return _OPAQUE.sub(_HIDDEN, text)


def _hide(match: re.Match[str]) -> str:
    name = _NAMED.match(match[0])
    return f"{name[0] if name else ''}{_HIDDEN}"


def _in_base64(value: bytes) -> list[str]:
    """Return the parts that Base64 texts of bytes with this value have, for each offset of the value modulo three."""
    parts = []
    for before in range(3):
        text = b64encode(bytes(before) + value).decode()
        text = text[(0, 2, 3)[before] :]
        spare = (before + len(value)) % 3
        parts.append(text.rstrip("=")[: -1 if spare else None])
    return parts
