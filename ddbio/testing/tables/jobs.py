"""Long-running jobs of the service by a wall clock that tests can advance, on objects in a folder or an S3 endpoint."""

from __future__ import annotations

import html
import re
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from ddbio.testing.refusal import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    End = Callable[[], dict[str, Any]]

_OK, _NOT_FOUND = 200, 404
# Fakes of S3 check no signature, but they refuse reads without one.
_IDENTITY = {"Authorization": "AWS any:any"}
_KEY = re.compile(r"<Key>([^<]*)</Key>")


class WallClock:
    """Time of day, which a test can advance.

    Attributes
    ----------
    ahead_seconds
        Sum of the advances.
    """

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self.ahead_seconds

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.ahead_seconds += max(0.0, seconds)


class NoSuchBucketError(Exception):
    """Raised if the bucket of an object does not exist."""


class S3Access:
    """Access to objects in a folder as ``bucket/key`` or at an endpoint like ``http://127.0.0.1:5000``."""

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
        """Return the keys under a prefix, in order."""
        if not self._netloc:
            folder = self._folder / bucket
            if not folder.is_dir():
                raise NoSuchBucketError(bucket)
            keys = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            return sorted(key for key in keys if key.startswith(prefix))
        keys_read: list[str] = []
        while True:
            query = urlencode({"list-type": 2, "prefix": prefix, "start-after": keys_read[-1] if keys_read else ""})
            page = _KEY.findall(self._send("GET", f"/{bucket}?{query}", bucket).decode())
            if not page:
                return keys_read
            keys_read += map(html.unescape, page)

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


@dataclass(slots=True)
class Jobs:
    """All jobs of one kind by ARN, oldest first, and the requests by token.

    Attributes
    ----------
    kind
        ``Export``, ``Import`` or ``BulkOperation``: the start of the names of a job's members.
    seconds
        Duration of a job.
    failure
        The FailureCode with which every job ends, or None.
    """

    kind: str
    wall_clock: WallClock
    seconds: float = 0.0
    failure: str | None = None
    tokens: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _described: dict[str, dict[str, Any]] = field(default_factory=dict)
    _running: dict[str, tuple[float, End]] = field(default_factory=dict)

    def begin(self, description: dict[str, Any], end: End) -> dict[str, Any]:
        """Start a job and return its first description. ``end`` does its work and returns members to add."""
        arn = description[f"{self.kind}Arn"]
        description[f"{self.kind}Status"] = "IN_PROGRESS"
        self._described[arn] = description
        self._running[arn] = (self.wall_clock.now() + self.seconds, end)
        started = dict(description)
        self._settle()
        return started

    def described(self, arn: str) -> dict[str, Any] | None:
        """Return the current description of a job."""
        self._settle()
        return self._described.get(arn)

    def cancel(self, arn: str) -> bool:
        """End a job without doing its work. Return whether it was running."""
        self._settle()
        ran = self._running.pop(arn, None) is not None
        if ran:
            self._described[arn] |= {f"{self.kind}Status": "CANCELLED", "EndTime": round(self.wall_clock.now(), 3)}
        return ran

    def running(self) -> list[dict[str, Any]]:
        """Return the jobs that have not ended."""
        self._settle()
        return [self._described[arn] for arn in self._running]

    def page(
        self, limit: int, after: str | None, is_shown: Callable[[dict[str, Any]], bool]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the jobs to list, the newest first, and the token of the next page."""
        self._settle()
        arn = f"{self.kind}Arn"
        shown = [description for description in reversed(self._described.values()) if is_shown(description)]
        if after is not None:
            indexes = [at for at, description in enumerate(shown) if description[arn] == after]
            if not indexes:
                raise invalid("Invalid NextToken")
            shown = shown[indexes[0] + 1 :]
        more = {"NextToken": shown[limit - 1][arn]} if len(shown) > limit else {}
        return shown[:limit], more

    def _settle(self) -> None:
        now = self.wall_clock.now()
        for arn in [arn for arn, (due_at, _) in self._running.items() if due_at <= now]:
            due_at, end = self._running.pop(arn)
            self._described[arn] |= {f"{self.kind}Status": "COMPLETED", **self._ended(end)}
            self._described[arn]["EndTime"] = round(due_at, 3)

    def _ended(self, end: End) -> dict[str, Any]:
        if self.failure is not None:
            return self._failed(self.failure, "The job was made to fail")
        try:
            return end()
        except NoSuchBucketError:
            return self._failed("S3NoSuchBucket", "The specified bucket does not exist")

    def _failed(self, code: str, message: str) -> dict[str, Any]:
        return {f"{self.kind}Status": "FAILED", "FailureCode": code, "FailureMessage": message}
