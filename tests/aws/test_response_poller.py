"""The poller of many responses, on Linux and on other systems."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from ddbio.aws import connection_pool
from ddbio.aws.connection_pool import ResponsePoller


class Link:
    """Connection whose one end receives the bytes of the other."""

    def __init__(self):
        self.own, self.far = socket.socketpair()

    def close(self):
        """Close both ends, so that their numbers are free for others."""
        self.own.close()
        self.far.close()


class Pending:
    """Request over a connection."""

    expires_at = float("inf")

    def __init__(self, link):
        self.link = link

    def fileno(self):
        """Return the descriptor that becomes readable with the response."""
        return self.link.own.fileno()

    def respond(self):
        """Send the response."""
        self.link.far.send(b"!")

    def result(self):
        """Read it."""
        return self.link.own.recv(1)


@pytest.fixture(params=["linux", "other"])
def poller(request, monkeypatch):
    """Return a poller of each kind."""
    if request.param == "other":
        monkeypatch.setattr(connection_pool, "_ReadableOnLinux", connection_pool._Readable)
    elif sys.platform != "linux":
        pytest.skip("only Linux has epoll")
    made = ResponsePoller(can_wake=True)
    yield made
    made.close()


def test_each_response_of_a_connection_is_reported_once(poller):
    """A connection with consecutive requests is watched again for each."""
    link, quiet = Link(), Link()
    poller.add(Pending(quiet))
    for _ in range(3):
        pending = Pending(link)
        pending.respond()
        poller.add(pending)
        assert poller.wait(10) == [pending]
        assert poller.wait(0) == []
        pending.result()
    link.close()
    quiet.close()


def test_another_connection_may_have_the_number_of_a_closed_one(poller):
    """The system reuses the number of a closed descriptor: the response of the new one is reported."""
    first = Link()
    number = first.own.fileno()
    pending = Pending(first)
    poller.add(pending)
    pending.respond()
    assert poller.wait(10) == [pending]
    first.close()
    second = Link()
    if second.far.fileno() == number:
        second.own, second.far = second.far, second.own
    elif second.own.fileno() != number:
        descriptor = second.own.detach()
        os.dup2(descriptor, number)
        os.close(descriptor)
        second.own = socket.socket(fileno=number)
    other = Pending(second)
    poller.add(other)
    assert poller.wait(0) == []
    other.respond()
    assert poller.wait(10) == [other]
    second.close()


def test_the_end_of_an_idle_connection_is_no_response(poller):
    """Bytes without a pending request are not reported, and do not hide later ones."""
    idle, busy = Link(), Link()
    pending = Pending(idle)
    poller.add(pending)
    pending.respond()
    assert poller.wait(10) == [pending]
    pending.result()
    idle.far.close()
    other = Pending(busy)
    poller.add(other)
    assert poller.wait(0.01) == []
    other.respond()
    assert [pending for _ in range(2) for pending in poller.wait(0.01)] == [other]
    idle.close()
    busy.close()


def test_a_wait_is_ended_by_another_thread_each_time(poller):
    """A wake before a wait ends that wait immediately, and only that one."""
    link = Link()
    poller.add(Pending(link))
    for _ in range(2):
        poller.wake()
        assert poller.wait(None) == []
    assert poller.wait(0) == []
    link.close()
