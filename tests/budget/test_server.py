from __future__ import annotations

import base64
import errno
import logging
import pickle
import random
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread

import pytest

from ddbio.budget import (
    AttemptReplacedError,
    BudgetAddress,
    BudgetClient,
    BudgetClosedError,
    BudgetServer,
    FencedBudget,
    LocalBudget,
    TaskAttempt,
    Usage,
)
from ddbio.budget.client import MessageChannel, _unreachable_drivers
from ddbio.budget.local import MAX_WAIT_SECONDS, RequestCounts
from ddbio.budget.pacing import ThrottleScope
from ddbio.budget.server import _Listener
from ddbio.errors import OptionError
from tests.budget.deaf_port import deaf_port

HANG_SECONDS = 200.0

WORKER = """
import base64, pickle, sys
from concurrent.futures import ThreadPoolExecutor
from ddbio.budget import BudgetClient
from ddbio.budget.pacing import ThrottleScope

client = BudgetClient(pickle.loads(base64.b64decode(sys.argv[1])), fallback_units_per_second=1.0)

def lane(_):
    for _ in range(20):
        client.settle(client.acquire(12.0), 10.0, items=7, wire_bytes=1000)
    client.throttled(ThrottleScope.KEY_RANGE, "hot")

with ThreadPoolExecutor(4) as pool:
    list(pool.map(lane, range(4)))
client.close()
"""


def join(client: BudgetServer, **options: float | None) -> BudgetClient:
    """Return a worker's client of a server."""
    return BudgetClient(
        client.address, **{"fallback_units_per_second": 1000.0, "timeout_seconds": HANG_SECONDS, **options}
    )


def counts(usage: Usage) -> tuple[int, int, float, int]:
    """Return the sums of a usage."""
    return usage.items, usage.wire_bytes, usage.consumed_units, usage.requests


def connect(address: BudgetAddress) -> socket.socket:
    """Return an unauthenticated connection to the server."""
    return socket.create_connection((address.host, address.port), HANG_SECONDS)


def wait_until_settled(budget: LocalBudget, requests: int) -> None:
    """Return when the server has counted ``requests``: messages without a response take a moment."""
    deadline = time.monotonic() + HANG_SECONDS
    while budget.usage().requests < requests and time.monotonic() < deadline:
        time.sleep(0.01)
    assert budget.usage().requests == requests


def test_processes_and_threads_spend_one_budget_with_exact_counts() -> None:
    """Three processes of four lanes share 800 units/s: every count is exact and the rate is that of one budget."""
    budget = LocalBudget(800.0)
    with BudgetServer(budget) as server:
        argument = base64.b64encode(pickle.dumps(server.address)).decode()
        workers = [subprocess.Popen([sys.executable, "-c", WORKER, argument]) for _ in range(3)]
        assert [worker.wait(HANG_SECONDS) for worker in workers] == [0, 0, 0]
    usage = budget.usage()
    assert counts(usage) == (1680, 240_000, 2400.0, 240)
    assert usage.throttles == {"key_range": 12}
    assert usage.elapsed_seconds >= 2400.0 / 800.0 - 0.1


def test_threads_of_one_client_do_not_wait_for_each_other() -> None:
    """While one lane waits long, another lane of the same client gets its response."""
    budget = LocalBudget(1000.0)
    with BudgetServer(budget) as server:
        client, asked, failed = join(server), Event(), []

        def slow() -> None:
            asked.set()
            try:
                client.acquire(1e9)
            except BudgetClosedError as error:
                failed.append(error)

        thread = Thread(target=slow)
        client.settle(client.acquire(1.0), 1.0)
        thread.start()
        asked.wait()
        client.throttled(ThrottleScope.KEY_RANGE, "hot" * 10_000)
        client.close()
        thread.join(HANG_SECONDS)
    assert len(failed) == 1
    assert budget.usage().throttles == {"key_range": 1}


@pytest.mark.parametrize(
    "words", [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b'["00", "00"]\n', b"x" * 100_000, b"[1e999]\n"]
)
def test_a_stranger_is_refused_and_holds_nobody_up(words: bytes) -> None:
    """Peers without the key, silent or loud, get nothing and block nothing."""
    with BudgetServer(LocalBudget(None)) as server:
        strangers = [connect(server.address) for _ in range(5)]
        for stranger in strangers:
            stranger.sendall(words)
        client = join(server)
        assert client.acquire(5.0).central
        client.close()
        for stranger in strangers:
            stranger.close()


def test_strangers_are_bounded_and_do_not_block_a_worker() -> None:
    """A limited number of unauthenticated connections stays open: the oldest ends for the next, unlike workers."""
    with BudgetServer(LocalBudget(None)) as server:
        server._listener.max_unauthenticated, server._listener.grace_seconds = 4, 0.0
        early = join(server)
        assert early.acquire(1.0).central
        strangers = [connect(server.address) for _ in range(20)]
        for stranger in strangers:
            stranger.settimeout(HANG_SECONDS)
        # All but the last four are disconnected; some have received a challenge.
        ended = [read_all(stranger) for stranger in strangers[:16]]
        assert all(not words or words.startswith(b'"') for words in ended)
        late = join(server)
        assert late.acquire(1.0).central
        assert early.acquire(1.0).central
        assert len(server._listener._unauthenticated) <= 4
        early.close()
        late.close()
        for stranger in strangers:
            stranger.close()


def read_all(connection: socket.socket) -> bytes:
    """Return the bytes from a peer until it disconnects."""
    words = b""
    with suppress(ConnectionError):
        while piece := connection.recv(4096):
            words += piece
    return words


@pytest.mark.parametrize("side", ["driver", "worker"])
def test_the_timeout_applies_to_an_entire_message(side: str) -> None:
    """A peer that sends byte by byte has no additional time, in the handshake of either side."""
    over = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()

    def drip() -> None:
        while not over.wait(0.01):
            there.sendall(b"x")

    with here, there:
        channel = MessageChannel(here, 0.2)
        handshake = channel.authenticate_worker if side == "driver" else channel.authenticate_to_driver
        dripping = Thread(target=drip)
        dripping.start()
        try:
            with pytest.raises(TimeoutError):
                handshake(b"key")
        finally:
            over.set()
            dripping.join()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED])
def test_connections_of_strangers_are_closed_without_file_descriptors(number: int) -> None:
    """The oldest of them ends. Other failures have no effect."""
    here, there = socket.socketpair()
    with here, there, _Listener("127.0.0.1", 0, LocalBudget(None), b"key") as listener, listener.socket:
        listener.socket = Failing(number)
        listener._unauthenticated[here] = 0.0
        with pytest.raises(OSError, match="gone"):
            listener.get_request()
        there.setblocking(False)
        if number == errno.ECONNABORTED:
            assert list(listener._unauthenticated) == [here]
        else:
            assert (there.recv(1), listener._unauthenticated) == (b"", {})


class Failing:
    """Socket that accepts nothing."""

    def __init__(self, number: int) -> None:
        self._number = number

    def accept(self) -> None:  # noqa: D102 - see socket
        raise OSError(self._number, "gone")

    def close(self) -> None:
        """Close nothing."""


def test_a_wrong_key_is_refused_by_either_side() -> None:
    """A client with a wrong key falls back, and a driver that does not know the key is not trusted."""
    budget = LocalBudget(None)
    with BudgetServer(budget) as server:
        client = BudgetClient(replace(server.address, key=b"wrong"), fallback_units_per_second=1000.0)
        grant = client.acquire(1.0)
        client.settle(grant, 1.0)
        assert not grant.central
        client.close()

        wire = MessageChannel(connect(server.address), HANG_SECONDS)
        wire.receive()
        wire.send(["0" * 64, "challenge"])
        with pytest.raises(OSError, match=r"hung up|reset"):
            wire.receive()
        wire.close()
    assert budget.usage().requests == 0

    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            wire = MessageChannel(impostor.accept()[0], HANG_SECONDS)
            wire.send("challenge")
            wire.receive()
            wire.send("believe me")
            wire.close()

        thread = Thread(target=pretend)
        thread.start()
        address = BudgetAddress("127.0.0.1", impostor.getsockname()[1], b"key")
        client = BudgetClient(address, fallback_units_per_second=1000.0)
        assert not client.acquire(1.0).central
        thread.join(HANG_SECONDS)
        client.close()


@pytest.mark.parametrize(
    "message", [["no such verb"], ["reserve"], [], 7, ["throttled", "nobody", ""], ["settle", 1, 2]]
)
def test_a_worker_that_talks_nonsense_is_dropped_alone(message: object) -> None:
    """An authenticated worker's malformed message ends its connection, not the server."""
    with BudgetServer(LocalBudget(None)) as server:
        broken = MessageChannel(connect(server.address), HANG_SECONDS)
        broken.authenticate_to_driver(server.address.key)
        broken.send(message)
        with pytest.raises(OSError, match=r"hung up|reset"):
            broken.receive()
        broken.close()
        client = join(server)
        assert client.acquire(5.0).central
        client.close()


def test_a_worker_that_vanishes_costs_only_what_it_reserved() -> None:
    """Clients that reserve and die block nobody: others are granted after their units."""
    budget = LocalBudget(1000.0)
    with BudgetServer(budget) as server:
        for _ in range(5):
            dying = MessageChannel(connect(server.address), HANG_SECONDS)
            dying.authenticate_to_driver(server.address.key)
            dying.send(("reserve", 20.0))
            dying.close()
        client = join(server)
        for _ in range(10):
            client.settle(client.acquire(20.0), 20.0, items=1)
        client.close()
    assert counts(budget.usage()) == (10, 0, 200.0, 10)


def test_close_reaches_waiting_and_later_clients_and_late_pages_count() -> None:
    """Closing the driver's budget ends acquire in every worker. A page in flight is still counted."""
    budget = LocalBudget(10.0)
    with BudgetServer(budget) as server:
        client, other = join(server), join(server)
        grant = client.acquire(0.1)
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(client.acquire, 1e6) for _ in range(4)]
            budget.close()
            for wait in waiting:
                with pytest.raises(BudgetClosedError):
                    wait.result(HANG_SECONDS)
        for worker in (client, other):
            with pytest.raises(BudgetClosedError):
                worker.acquire(1.0)
        client.settle(grant, 5.0, items=3)
        client.close()
        other.close()
    assert counts(budget.usage()) == (3, 0, 5.0, 1)


def test_a_lost_driver_leaves_the_last_portion_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without a server the client uses the last reported rate, never without limit, and logs that once."""
    with BudgetServer(LocalBudget(900.0)) as server:
        clients = [join(server, fallback_units_per_second=None) for _ in range(3)]
        for client in (*clients, *clients):
            client.settle(client.acquire(1.0), 1.0)
    with caplog.at_level(logging.WARNING, "ddbio.budget"):
        grants = [clients[0].acquire(1.0) for _ in range(5)]
    assert not any(grant.central for grant in grants)
    assert clients[0]._alone.units_per_second == 300.0
    (message,) = caplog.messages
    assert "300 units/s" in message
    for client in clients:
        client.close()


def test_a_driver_never_reached_leaves_the_static_portion() -> None:
    """After a refused connection the static portion applies immediately."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = BudgetClient(BudgetAddress("127.0.0.1", port, b"key"), fallback_units_per_second=100.0)
    assert not client.acquire(1.0).central
    assert client._alone.units_per_second == 100.0
    client.close()


def test_a_mute_driver_is_given_up_after_the_timeout() -> None:
    """A driver that accepts and never responds leaves the static portion."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = BudgetAddress("127.0.0.1", mute.getsockname()[1], b"key")
        client = BudgetClient(address, fallback_units_per_second=1000.0, timeout_seconds=0.2)
        assert not client.acquire(1.0).central
        client.close()


def test_what_was_done_alone_is_counted_when_the_driver_is_back() -> None:
    """A client that lost its connection reconnects at its end and reports everything in between."""
    budget = LocalBudget(1000.0)
    with BudgetServer(budget) as server:
        client = join(server)
        under_way = client.acquire(1.0)
        client._channel._socket.shutdown(socket.SHUT_RDWR)
        grants = [client.acquire(1.0) for _ in range(3)]
        assert [grant.central for grant in grants] == [False] * 3
        for grant in (under_way, *grants):
            client.settle(grant, 2.0, items=1, wire_bytes=10)
        client.throttled(ThrottleScope.TABLE, "too fast")
        client.close()
    assert counts(budget.usage()) == (4, 40, 8.0, 4)
    assert budget.usage().throttles == {"table": 1}


def test_a_client_returns_to_the_driver() -> None:
    """After the pause between attempts the driver grants the next request again."""
    with BudgetServer(LocalBudget(1000.0)) as server:
        client = join(server)
        client.acquire(1.0)
        client._channel._socket.shutdown(socket.SHUT_RDWR)
        assert not client.acquire(1.0).central
        client._reconnect_at = 0.0
        wait_until_connected(client)
        assert client.acquire(1.0).central
        client.close()


def wait_until_connected(client: BudgetClient) -> None:
    """Return when the client has reached its driver again, which it tries in the background."""
    deadline = time.monotonic() + HANG_SECONDS
    while client._channel is None and time.monotonic() < deadline:
        client.acquire(0.0)


def test_a_port_that_swallows_everything_holds_up_no_request() -> None:
    """If the driver's port is filtered, requests wait for the first attempt to connect and for no later one."""
    with deaf_port() as port:
        address = BudgetAddress("127.0.0.1", port, b"key")
        client = BudgetClient(address, fallback_units_per_second=None, timeout_seconds=HANG_SECONDS)
        client.acquire(1.0)
        client._reconnect_at = 0.0
        assert not any(client.acquire(1.0).central for _ in range(1000))
        client.settle(client.acquire(1.0), 2.0, items=3)
        client._pause_seconds = HANG_SECONDS
        assert client.close() == RequestCounts(items=3, wire_bytes=0, consumed_units=2.0, requests=1)


def test_one_task_of_a_process_waits_for_a_port_that_swallows_everything(caplog: pytest.LogCaptureFixture) -> None:
    """The clients after the first know that the driver is unreachable, and a fenced one reports that it never was."""
    with deaf_port() as port:
        address = BudgetAddress("127.0.0.1", port, b"key")
        with caplog.at_level(logging.WARNING, "ddbio.budget"):
            BudgetClient(address, fallback_units_per_second=None).acquire(1.0)
            for number in range(100):
                attempt = TaskAttempt(str(number), number, 60.0) if number % 2 else None
                client = BudgetClient(
                    address, fallback_units_per_second=1000.0, timeout_seconds=HANG_SECONDS, attempt=attempt
                )
                assert attempt is None or not client.has_reached_driver()
                client.settle(client.acquire(1.0), 1.0, items=number)
                assert client.close().items == number
        # One that had waited would have logged it.
        assert len(caplog.messages) == 1


def test_a_driver_that_becomes_reachable_is_reached_again() -> None:
    """The process forgets an unreachable driver at the first connection, which a task may force."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    early = BudgetClient(BudgetAddress("127.0.0.1", port, b"key"), fallback_units_per_second=None)
    assert not early.has_reached_driver()
    with BudgetServer(LocalBudget(None), ports=(port,)) as server:
        _unreachable_drivers[server.address] = _unreachable_drivers.pop(early._address)
        attempt = TaskAttempt("1", 1, 60.0)
        late = [BudgetClient(server.address, fallback_units_per_second=None, attempt=attempt) for _ in range(3)]
        assert not late[0].has_reached_driver()
        assert late[1].has_reached_driver(tries_again=True)
        assert late[2].has_reached_driver()
        for client in (early, *late):
            client.close()


def test_what_was_done_alone_is_reported_once() -> None:
    """A worker that loses and reaches its driver twice has every request counted once."""
    budget = LocalBudget(1000.0)
    with BudgetServer(budget) as server:
        client = join(server)
        for _ in range(2):
            client.settle(client.acquire(1.0), 2.0, items=1)
            client._channel._socket.shutdown(socket.SHUT_RDWR)
            client.settle(client.acquire(1.0), 3.0, items=1)
            client._reconnect_at = 0.0
            wait_until_connected(client)
        client.close()
    assert budget.usage().consumed_units == 10.0
    assert budget.usage().items == 4


def test_a_portion_that_is_spent_alone_is_corrected() -> None:
    """While the driver is unreachable, a request that cost more than expected delays the next by that much."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = BudgetClient(BudgetAddress("127.0.0.1", port, b"key"), fallback_units_per_second=1000.0)
    client.settle(client.acquire(1.0), 1e9)
    assert client.reserve(1.0).wait_seconds() >= MAX_WAIT_SECONDS
    client.close()


def test_the_server_listens_at_the_given_address() -> None:
    """The address to bind may differ from the one that workers use. Ports of a range are tried in turn."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        with BudgetServer(LocalBudget(None), "localhost", bind="127.0.0.1", ports=(busy, 0)) as server:
            assert server.address.host == "localhost"
            client = join(server)
            assert client.acquire(1.0).central
            client.close()
        with pytest.raises(OptionError, match=r"port \d+ .*spark.driver.bindAddress"):
            BudgetServer(LocalBudget(None), ports=(busy,)).__enter__()


def test_without_any_budget_nothing_is_limited() -> None:
    """An unlimited driver and no static portion stay unlimited when the driver is lost."""
    with BudgetServer(LocalBudget(None)) as server:
        client = join(server, fallback_units_per_second=None)
        assert client.acquire(1e12).central
    assert not client.acquire(1e12).central
    client.close()


def test_a_closed_client_grants_nothing() -> None:
    """A client that left the budget refuses, and does not connect again."""
    with BudgetServer(LocalBudget(None)) as server:
        client = join(server)
        client.close()
        with pytest.raises(BudgetClosedError):
            client.acquire(1.0)


def test_many_random_workers_add_up() -> None:
    """Clients that come and go with random pages result in their exact sums."""
    budget, chance, expected = LocalBudget(None), random.Random(7), RequestCounts()
    pages = [[(chance.randrange(50), chance.randrange(10**6), float(chance.randrange(300))) for _ in range(40)]
             for _ in range(12)]  # fmt: skip
    with BudgetServer(budget) as server:

        def worker(work: list[tuple[int, int, float]]) -> None:
            client = join(server)
            for items, wire_bytes, consumed in work:
                client.settle(client.acquire(1.0), consumed, items=items, wire_bytes=wire_bytes)
            client.close()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(worker, pages))
        wait_until_settled(budget, 480)
    for items, wire_bytes, consumed in (page for work in pages for page in work):
        expected.count_request(consumed, items, wire_bytes)
    assert counts(budget.usage()) == (expected.items, expected.wire_bytes, expected.consumed_units, 480)


def test_the_address_pickles_and_hides_its_key() -> None:
    """An address is pickled completely. Neither repr nor str shows the key."""
    address = BudgetAddress("127.0.0.1", 4711, b"a very secret key")
    assert pickle.loads(pickle.dumps(address)) == address
    assert "secret" not in f"{address!r} {address}"


@pytest.mark.parametrize("rate", [None, 1000.0])
def test_only_the_latest_attempt_of_a_task_is_granted_requests(rate: float | None) -> None:
    """An attempt ends at its next request when a later one has started, and when it starts after a later one."""
    with BudgetServer(LocalBudget(rate)) as server:
        old, other, new, late = (
            BudgetClient(server.address, fallback_units_per_second=None, attempt=TaskAttempt(task, number, 60.0))
            for task, number in (("3", 10), ("4", 5), ("3", 11), ("3", 9))
        )
        old.settle(old.acquire(1.0), 1.0)
        old.require_latest()
        waiting = old.reserve(1.0)
        new.settle(new.acquire(1.0), 1.0)
        for ended in (lambda: old.acquire(1.0), old.require_latest, lambda: late.acquire(1.0)):
            with pytest.raises(AttemptReplacedError, match="another attempt of this task has started"):
                ended()
        # An earlier grant is sent; the position in the queue is requested again, and refused.
        waiting.wait_seconds()
        with pytest.raises(AttemptReplacedError):
            waiting.wait_seconds()
        for going in (new, other):
            going.settle(going.acquire(1.0), 1.0)
            going.require_latest()
        for client in (old, other, new, late):
            client.close()


def test_an_attempt_that_lost_the_driver_ends_before_spark_begins_another() -> None:
    """An attempt continues alone only while no other can have started. One that never reached the driver continues."""
    with BudgetServer(LocalBudget(None)) as server:
        patient, frozen = (
            BudgetClient(server.address, fallback_units_per_second=None, attempt=TaskAttempt("1", 1, seconds))
            for seconds in (60.0, 0.0)
        )
        for client in (patient, frozen):
            client.settle(client.acquire(1.0), 1.0)
    stranger = BudgetClient(server.address, fallback_units_per_second=None, attempt=TaskAttempt("1", 1, 0.0))
    for client in (patient, stranger):
        client.settle(client.acquire(1.0), 1.0)
        client.require_latest()
    with pytest.raises(AttemptReplacedError, match="another attempt of this task may have started"):
        frozen.acquire(1.0)
    for client in (patient, frozen, stranger):
        client.close()


def test_a_later_attempt_waits_until_the_earlier_one_must_ask_again() -> None:
    """When the later attempt may send its first request, the earlier one may send none, although it rarely asks."""
    with BudgetServer(LocalBudget(None)) as server:
        old, new, other = (
            FencedBudget(
                LocalBudget(None),
                BudgetClient(server.address, fallback_units_per_second=None, attempt=TaskAttempt(task, number, 60.0)),
            )
            for task, number in (("job-1", 1), ("job-1", 2), ("job-2", 1))
        )
        for _ in range(100):
            old.settle(old.acquire(1.0), 1.0)
        other.acquire(1.0)
        reservation = new.reserve(1.0)
        assert reservation.wait_seconds() == 0
        reservation.grant()
        with pytest.raises(AttemptReplacedError, match="another attempt of this task has started"):
            old.acquire(1.0)
        with pytest.raises(AttemptReplacedError):
            old.fence.require_latest()
        for going in (new, other):
            going.acquire(1.0)
            going.fence.require_latest()
        for attempt in (old, new, other):
            attempt.fence.close()
