"""Hold jobs that take the service a while: asked for, running, ended; refuses to end one before its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddbio.testing.refusal import invalid
from ddbio.testing.tables.delivery import NoSuchBucketError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddbio.testing.wall import Wall

    End = Callable[[], dict[str, Any]]


@dataclass(slots=True)
class Jobs:
    """Hold every job of one kind by its ARN, oldest first, and the requests that used a token.

    Attributes
    ----------
    kind
        ``Export`` or ``Import``: the beginning of the members that describe a job.
    seconds
        How long a job runs.
    failure
        The FailureCode with which every job ends, or None.
    """

    kind: str
    wall: Wall
    seconds: float = 0.0
    failure: str | None = None
    tokens: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _described: dict[str, dict[str, Any]] = field(default_factory=dict)
    _running: dict[str, tuple[float, End]] = field(default_factory=dict)

    def begin(self, description: dict[str, Any], end: End) -> dict[str, Any]:
        """Start a job and return how it is described at once; ``end`` does its work and returns members to add."""
        arn = description[f"{self.kind}Arn"]
        description[f"{self.kind}Status"] = "IN_PROGRESS"
        self._described[arn] = description
        self._running[arn] = (self.wall.now() + self.seconds, end)
        started = dict(description)
        self._settle()
        return started

    def described(self, arn: str) -> dict[str, Any] | None:
        """Return how a job is described now."""
        self._settle()
        return self._described.get(arn)

    def cancel(self, arn: str) -> bool:
        """End a job without its work; return whether it ran."""
        self._settle()
        ran = self._running.pop(arn, None) is not None
        if ran:
            self._described[arn] |= {f"{self.kind}Status": "CANCELLED", "EndTime": round(self.wall.now(), 3)}
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
        shown = [each for each in reversed(self._described.values()) if is_shown(each)]
        if after is not None:
            places = [at for at, each in enumerate(shown) if each[arn] == after]
            if not places:
                raise invalid("Invalid NextToken")
            shown = shown[places[0] + 1 :]
        more = {"NextToken": shown[limit - 1][arn]} if len(shown) > limit else {}
        return shown[:limit], more

    def _settle(self) -> None:
        now = self.wall.now()
        for arn in [arn for arn, (due_at, _) in self._running.items() if due_at <= now]:
            due_at, end = self._running.pop(arn)
            self._described[arn] |= {f"{self.kind}Status": "COMPLETED", **self._ended(end)}
            self._described[arn]["EndTime"] = round(due_at, 3)

    def _ended(self, end: End) -> dict[str, Any]:
        if self.failure is not None:
            return self._failed(self.failure, "The job was told to fail")
        try:
            return end()
        except NoSuchBucketError:
            return self._failed("S3NoSuchBucket", "The specified bucket does not exist")

    def _failed(self, code: str, message: str) -> dict[str, Any]:
        return {f"{self.kind}Status": "FAILED", "FailureCode": code, "FailureMessage": message}
