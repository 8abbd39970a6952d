"""The budget in the server's own record: it is never exceeded for long."""

import pytest

import ddbio
from ddbio.testing import FakeDynamoDB
from ddbio.testing.flights import KEY, flight_lines
from tests.jobs.windows import windows

BUDGET = 280.0

# PySpark leaves the sockets of py4j and of its collects to the garbage collector.
PYSPARK_SOCKETS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def fake():
    """Serve all flights without limits, from a separate process."""
    with FakeDynamoDB(process=True) as server:
        server.load("flights", flight_lines(), KEY)
        yield server


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "case",
    [
        {"lanes": 1, "segments": 1},
        {"lanes": 2, "segments": 4},
        {"lanes": 8, "segments": 64},
        pytest.param({"engine": "spark", "tasks": 2, "segments": 5, "master": "local[2]"}, marks=PYSPARK_SOCKETS),
        pytest.param({"engine": "spark", "tasks": 8, "segments": 64, "master": "local[8]"}, marks=PYSPARK_SOCKETS),
    ],
    ids=lambda case: "-".join(f"{name}={value}" for name, value in case.items()),
)
def test_a_budget_holds_for_the_whole_job(fake, tmp_path, case):
    """Over any 10 s the budget is not exceeded by all tasks together.

    The tolerance is 10 %, because requests wait for the server on a busy machine; tests in virtual time are stricter.
    """
    options = {"engine": "local", "rcu_per_second": BUDGET, "consistent": True, **case}
    before = fake.consumed("flights")
    ended = before[-1][0] if before else -1.0
    report = ddbio.scan_to_files("flights", tmp_path / "out", endpoint_url=fake.endpoint_url, **options)
    record = [slot for slot in fake.consumed("flights") if slot[0] > ended]
    assert sum(units for _, units, _ in record) == pytest.approx(report.rcu_consumed)
    assert max(windows([slot[:2] for slot in record], 10.0)) <= 1.1 * 10.0 * BUDGET
