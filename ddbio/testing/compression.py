"""Compress replies and inflate requests as the service does; refuses streams that are broken or too large."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from ddbio.testing.refusal import broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.reply import Chunks

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-api
MAX_BODY_BYTES = 16 << 20
_MIN_COMPRESSED_BYTES: Final = 4096
_FASTEST = 1
_GZIP_FRAME, _ZLIB_FRAME = 31, 15


def reply_coding(accepted: str | None) -> str | None:
    """Return the coding that an Accept-Encoding header asks for: gzip, deflate or none.

    The highest weight wins, then the first listed; ``*`` stands for gzip, a name beats it on a tie.
    """
    if not accepted:
        return None
    weights: dict[str, float] = {}
    for entry in accepted.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name in {"gzip", "deflate", "*"}:
            weights.setdefault(name, _weight(parameters))
    if "*" in weights:
        any_weight = weights.pop("*")
        stand_in = "deflate" if "gzip" in weights else "gzip"
        weights.setdefault(stand_in, any_weight)
    best = max(weights, key=weights.__getitem__, default=None)
    return best if best is not None and weights[best] > 0 else None


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, float(text))
            except ValueError:
                return 1.0
    return 1.0


def compressed(chunks: Chunks, coding: str) -> Chunks:
    """Return a body in a coding; a small body and an unwanted coding leave it as it is."""
    frame = _GZIP_FRAME if coding == "gzip" else _ZLIB_FRAME
    stream = zlib.compressobj(_FASTEST, wbits=frame)
    return [*(stream.compress(chunk) for chunk in chunks), stream.flush()]


def is_worth_compressing(chunks: Chunks) -> bool:
    """Return whether the service would compress a body of this size."""
    return sum(map(len, chunks)) >= _MIN_COMPRESSED_BYTES


def inflated(body: bytes, coding: str | None) -> bytes:
    """Return a request's body without its Content-Encoding; whatever is wrong with it is an HTTP 500."""
    if coding is None:
        return body
    inflate = _INFLATES.get(coding.strip().lower())
    if inflate is None:
        raise broken()
    try:
        plain = inflate(body)
    except (zlib.error, EOFError, OSError):
        raise broken() from None
    if len(plain) > MAX_BODY_BYTES:
        raise broken()
    return plain


def _gunzip(body: bytes) -> bytes:
    plain = b""
    rest = body
    while rest[:2] == b"\x1f\x8b" or rest is body:
        stream = zlib.decompressobj(_GZIP_FRAME)
        plain += stream.decompress(rest, MAX_BODY_BYTES + 1 - len(plain))
        if not stream.eof:
            raise EOFError
        rest = stream.unused_data
    return plain


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj(_ZLIB_FRAME)
    plain = stream.decompress(body, MAX_BODY_BYTES + 1)
    if not stream.eof:
        raise EOFError
    return plain


_INFLATES: dict[str, Callable[[bytes], bytes]] = {"gzip": _gunzip, "deflate": _inflate}
