"""Waiting for jobs: looked at until they end, also over an endpoint that is away for a while."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ddbio.errors import EndpointError, ThrottledError
from ddbio.export.options import WaitOptions
from ddbio.jobs.waiting import await_end


@dataclass
class Job:
    """Hold a job."""

    status: str
    arn: str = "arn:job"


def looks(*answers):
    """Return a look that gives one answer after the other, errors raised."""
    left = iter(answers)

    def look():
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return Job(answer)

    return look


def options(**values):
    """Return options with short pauses."""
    return WaitOptions(arn="arn:job", poll_seconds=0.001, **values)


ENDS = ("COMPLETED", "FAILED", "CANCELLED", "AVAILABLE", "COMPLETED_WITH_ERRORS")


@pytest.mark.parametrize(
    "found",
    [
        *(("IN_PROGRESS", "CANCELLING", end) for end in ENDS),
        ("CREATING", EndpointError("away"), EndpointError("away"), "AVAILABLE"),
        ("CREATING", ThrottledError("busy"), "REHEARSING", "ACTIVE"),
    ],
    ids=str,
)
def test_a_job_is_looked_at_until_it_ends(found):
    """The watcher sees every description; the last one is the result, whatever the end.

    Looks that meet no endpoint, or are throttled by other people's requests, are tried again; the watcher does not see
    them. A status that is new is no end.
    """
    seen = []
    job = await_end(looks(*found), options(), lambda job, _: seen.append(job.status))
    assert (job.status, seen) == (found[-1], [each for each in found if isinstance(each, str)])


def test_an_endpoint_that_stays_away_ends_the_waiting():
    """Past the deadline without an answer its own error is raised."""
    with pytest.raises(EndpointError, match="away"):
        await_end(looks(*[EndpointError("away")] * 1000), options(deadline_seconds=0.01))


def test_a_job_that_goes_on_is_left():
    """Past the time to wait the job is named, and that it goes on."""
    with pytest.raises(ThrottledError, match="arn:job is still IN_PROGRESS"):
        await_end(looks(*["IN_PROGRESS"] * 1000), options(wait_seconds=0.01))


def test_interrupt_says_that_the_job_goes_on(monkeypatch):
    """Ctrl-C ends the waiting alone, and tells so."""

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt, match="arn:job continues"):
        await_end(looks("IN_PROGRESS"), options())
