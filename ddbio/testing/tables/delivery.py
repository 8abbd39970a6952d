"""Keep objects in a folder or an S3 endpoint that checks no signatures; refuses to make buckets at an endpoint."""

from __future__ import annotations

import html
import re
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

_OK, _NOT_FOUND = 200, 404
# Stand-ins check no signature, and let nobody without any read what others put.
_IDENTITY = {"Authorization": "AWS any:any"}
_KEY = re.compile(r"<Key>([^<]*)</Key>")


class NoSuchBucketError(Exception):
    """Say that the bucket of an object is not there."""


class Delivery:
    """Hold where objects go: below a folder as ``bucket/key``, or to an endpoint like ``http://127.0.0.1:5000``."""

    def __init__(self, target: str) -> None:
        self._netloc = urlsplit(target).netloc if target.startswith("http://") else ""
        self._folder = Path(target)

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """Put one object."""
        if not self._netloc:
            path = self._folder / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            return
        self._send("PUT", quote(f"/{bucket}/{key}"), bucket, body)

    def list(self, bucket: str, prefix: str) -> list[str]:
        """Return the keys below a prefix, in order."""
        if not self._netloc:
            folder = self._folder / bucket
            if not folder.is_dir():
                raise NoSuchBucketError(bucket)
            keys = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            return sorted(key for key in keys if key.startswith(prefix))
        found: list[str] = []
        while True:
            query = urlencode({"list-type": 2, "prefix": prefix, "start-after": found[-1] if found else ""})
            page = _KEY.findall(self._send("GET", f"/{bucket}?{query}", bucket).decode())
            if not page:
                return found
            found += map(html.unescape, page)

    def get(self, bucket: str, key: str) -> bytes:
        """Return one object."""
        if not self._netloc:
            return (self._folder / bucket / key).read_bytes()
        return self._send("GET", quote(f"/{bucket}/{key}"), bucket)

    def _send(self, method: str, target: str, bucket: str, body: bytes | None = None) -> bytes:
        connection = HTTPConnection(self._netloc)
        try:
            connection.request(method, target, body, _IDENTITY)
            response = connection.getresponse()
            reply = response.read()
        finally:
            connection.close()
        if response.status == _NOT_FOUND:
            raise NoSuchBucketError(bucket)
        if response.status != _OK:
            raise OSError(f"{method} of {target} was answered by HTTP {response.status}")
        return reply
