"""Put objects into a folder or an S3 endpoint that checks no signatures; refuses to make buckets at an endpoint."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

_OK, _NOT_FOUND = 200, 404


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
        connection = HTTPConnection(self._netloc)
        try:
            connection.request("PUT", quote(f"/{bucket}/{key}"), body)
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        if response.status == _NOT_FOUND:
            raise NoSuchBucketError(bucket)
        if response.status != _OK:
            raise OSError(f"PUT of {bucket}/{key} was answered by HTTP {response.status}")
