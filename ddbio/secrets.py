"""Leave secrets out of messages: values that are known, and what stands behind the names under which secrets travel."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import quote

_HIDDEN = "…"
# A shorter value may be a word of any message; those of AWS are longer.
_LEAST_CHARACTERS = 8
# By value, the forms in which it may be written.
_known: dict[str, tuple[str, ...]] = {}

_NAME = (
    r"x-amz-security-token|x-aws-ec2-metadata-token|x-amz-sso_bearer_token|authorization|awsaccesskeyid|samlassertion"
    r"|(?:session|access|refresh|identity|id|bearer|security|auth|web_?identity)[_.-]?token|secret|passw(?:or)?d"
    r"|private[_.-]?key"
)
# As JSON, Python, XML, a header, a query and py4j write a name and a value.
_BETWEEN = r"""(?:[\\"']*\s*(?:[:=]|=>)\s*|["']\s*,\s*|>|(?:\\n|\n)s)"""
_VALUE = r"""(?:b?"[^"]*"|b?'[^']*'|\\+"[^"\\]*|[^\s"'&,;<>(){}\[\]\\]+)"""
_SECRET = re.compile(
    rf"""(?:{_NAME})[\w.-]{{0,40}}{_BETWEEN}(?:(?:AWS4-[\w-]+|Bearer|Basic)\s+)?{_VALUE}"""
    r"""|(?:signature|credential)[\\"']*\s*=\s*(?:b?["'])?[^\s"'&,;<>]+"""
    r"""|signature[\\"']*\s*:\s*(?:b?["'])?[\w+/%=]{20,}"""
    # What container and instance metadata answer.
    r"""|"Token"\s*:\s*"[^"]*\""""
    # http.client shows a header that it does not send.
    r"""|Invalid header (?:value|name) b?(?:'[^']*'|"[^"]*"|\S+)""",
    re.IGNORECASE,
)
# One of these is in every match of the pattern, which takes a hundred times longer to search for.
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
# A web token, and bytes in Base64, as py4j logs what is pickled: it may hold credentials.
_OPAQUE = re.compile(r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|(?<![\w+/])[A-Za-z0-9+/]{200,}={0,2}")
_NAMED = re.compile(r"Invalid header (?:value|name)|\"?[\w.-]+", re.IGNORECASE)


def remember_secrets(*values: str | None) -> None:
    """Let `without_secrets` leave out these values, wherever they stand."""
    for value in values:
        if value is not None and len(value) >= _LEAST_CHARACTERS and value not in _known:
            _known[value] = (value, quote(value, safe=""), *_in_base64(value.encode()))


def without_secrets(text: str) -> str:
    """Return a message or log record without secrets.

    Left out are values that were given to `remember_secrets`, as text, in URLs and in Base64; values behind names of
    secrets, such as headers and members of responses; signatures; web tokens; and long texts of Base64.
    """
    for forms in _known.values():
        for form in forms:
            text = text.replace(form, _HIDDEN)
    lower = text.lower()
    if any(stem in lower for stem in _STEMS):
        text = _SECRET.sub(_hide, text)
    return _OPAQUE.sub(_HIDDEN, text)


def _hide(found: re.Match[str]) -> str:
    name = _NAMED.match(found[0])
    return f"{name[0] if name else ''}{_HIDDEN}"


def _in_base64(value: bytes) -> list[str]:
    """Return what the Base64 of bytes has for sure that hold a value, for each place modulo three."""
    forms = []
    for before in range(3):
        text = b64encode(bytes(before) + value).decode()
        text = text[(0, 2, 3)[before] :]
        spare = (before + len(value)) % 3
        forms.append(text.rstrip("=")[: -1 if spare else None])
    return forms
