"""The wait for the first of many responses, by the way of Linux and by that of other systems."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from ddbio.aws import connection_pool
from ddbio.aws.connection_pool import ResponsePoller


class Link:
    """A connection: what one end sends, the other receives."""

    def __init__(self):
        self.own, self.far = socket.socketpair()

    def close(self):
        """Close both ends, so that their numbers are free for others."""
        self.own.close()
        self.far.close()


class Pending:
    """A request over a connection."""

    expires_at = float("inf")

    def __init__(self, link):
        self.link = link

    def fileno(self):
        """Return what can be read when the response is there."""
        return self.link.own.fileno()

    def respond(self):
        """Let the response come."""
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


def test_each_response_of_a_connection_is_told_once(poller):
    """A connection that carries one request after the other is waited for again and again."""
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
    """The system gives the number of a closed descriptor to the next one: its response is told all the same."""
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
        given = second.own.detach()
        os.dup2(given, number)
        os.close(given)
        second.own = socket.socket(fileno=number)
    other = Pending(second)
    poller.add(other)
    assert poller.wait(0) == []
    other.respond()
    assert poller.wait(10) == [other]
    second.close()


def test_the_end_of_an_idle_connection_is_no_response(poller):
    """What comes when no request waits is not told, and does not hide what comes later."""
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
    assert [each for _ in range(2) for each in poller.wait(0.01)] == [other]
    idle.close()
    busy.close()


def test_a_wait_is_ended_by_another_thread_each_time(poller):
    """A wake that came before a wait ends it at once, and only that one."""
    link = Link()
    poller.add(Pending(link))
    for _ in range(2):
        poller.wake()
        assert poller.wait(None) == []
    assert poller.wait(0) == []
    link.close()
