"""Waiting for jobs: they are polled until they end, also after an outage of the endpoint."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ddbio.errors import EndpointError, ThrottledError
from ddbio.export.options import WaitOptions
from ddbio.jobs.waiting import await_end


@dataclass
class Job:
    """Job with a status."""

    status: str
    arn: str = "arn:job"


def looks(*answers):
    """Return a function that returns one answer after the other, and raises errors."""
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
    "answers",
    [
        *(("IN_PROGRESS", "CANCELLING", end) for end in ENDS),
        ("CREATING", EndpointError("away"), EndpointError("away"), "AVAILABLE"),
        ("CREATING", ThrottledError("busy"), "REHEARSING", "ACTIVE"),
    ],
    ids=str,
)
def test_a_job_is_polled_until_it_ends(answers):
    """The watcher sees every description. The last one is the result, regardless of its status.

    Polls that fail for an outage of the endpoint, or are throttled, are repeated without the watcher. An unknown status
    does not end the job.
    """
    seen = []
    job = await_end(looks(*answers), options(), lambda job, _: seen.append(job.status))
    assert (job.status, seen) == (answers[-1], [answer for answer in answers if isinstance(answer, str)])


def test_an_endpoint_that_stays_down_ends_the_waiting():
    """After the deadline without a response its error is raised."""
    with pytest.raises(EndpointError, match="away"):
        await_end(looks(*[EndpointError("away")] * 1000), options(deadline_seconds=0.01))


def test_a_continuing_job_is_an_error_after_the_wait():
    """After the maximum wait the error names the job, and that it continues."""
    with pytest.raises(ThrottledError, match="arn:job is still IN_PROGRESS"):
        await_end(looks(*["IN_PROGRESS"] * 1000), options(wait_seconds=0.01))


def test_an_interrupt_reports_that_the_job_continues(monkeypatch):
    """Ctrl-C only ends the waiting, with that message."""

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt, match="arn:job continues"):
        await_end(looks("IN_PROGRESS"), options())
