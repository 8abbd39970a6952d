"""Budgets of DataFrame reads, opened for planners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ddbio.budget import BudgetClient
from ddbio.spark.lease_server import MAX_BUDGETS, LeaseServer, request_lease_terms

APPLICATION = "/tmp/spark-1/userFiles-1"
PLACE = ("127.0.0.1", "127.0.0.1", (0,))


@pytest.fixture
def lease_server(tmp_path, monkeypatch) -> Iterator[LeaseServer]:
    """Return the lease server of an application."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lease_server = LeaseServer(APPLICATION, PLACE, 7)
    yield lease_server
    lease_server.close()


def lease(rate):
    """Return the address of a new budget, as a planner receives it."""
    terms = request_lease_terms(APPLICATION, rate)
    assert terms is not None
    assert terms.parallelism == 7
    assert terms.lease is not None
    return terms.lease


def test_each_read_has_its_own_budget(lease_server):
    """Two reads lease from two budgets. The tasks of one read share theirs."""
    first, second = lease(100.0), lease(200.0)
    for address in (first, first, second):
        with closing(BudgetClient(address, fallback_units_per_second=0.001)) as client:
            client.settle(client.acquire(1.0), 7.0)
    budgets = [server._budget for server in lease_server._servers]
    assert [budget.units_per_second for budget in budgets] == [100.0, 200.0]
    assert [budget.usage().consumed_units for budget in budgets] == [14.0, 7.0]


def test_no_rate_no_budget(lease_server):
    """A read without a rate only gets the parallelism."""
    terms = request_lease_terms(APPLICATION, None)
    assert terms is not None
    assert (terms.parallelism, terms.lease) == (7, None)
    assert lease_server._servers == []


@pytest.mark.usefixtures("lease_server")
def test_another_application_has_another_driver():
    """A planner of an application whose driver has not registered gets no terms."""
    assert request_lease_terms("another", 100.0) is None


def test_oldest_reads_give_way(lease_server):
    """At most a fixed number of reads is served. The oldest end first."""
    for rate in range(1, MAX_BUDGETS + 4):
        lease(float(rate))
    assert [server._budget.units_per_second for server in lease_server._servers] == list(range(4, MAX_BUDGETS + 4))


def test_dead_driver(lease_server):
    """A planner that outlives the driver's Python gets no terms."""
    lease_server.close()
    assert request_lease_terms(APPLICATION, 100.0) is None


def test_folder_of_somebody_else_is_not_trusted(lease_server):
    """If others can write into the folder, neither side uses its files."""
    lease_server._path.parent.chmod(0o777)
    assert request_lease_terms(APPLICATION, 100.0) is None
    with pytest.raises(PermissionError, match="only this user"):
        LeaseServer("another", PLACE, 1)


def test_key_is_not_shown(lease_server):
    """No printed address shows the key."""
    assert lease(1.0).key.hex() not in repr(lease(1.0))
