"""The budget, measured by the server's own record: never above it for long, never idle."""

import itertools

import pytest

import ddbio
from ddbio.testing import FakeDynamoDB
from ddbio.testing.flights import KEY, flight_lines
from tests.ops.windows import windows

BUDGET = 280.0

# Eight workers that start on two cores keep each other, and so the budget, waiting for this long.
STARTING_SECONDS = 5.0

# PySpark leaves the sockets of py4j and of its collects to the garbage collector.
PYSPARK_SOCKETS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def fake():
    """Serve all flights, unlimited, from a process of its own."""
    with FakeDynamoDB(process=True) as server:
        server.load("flights", flight_lines(), KEY)
        yield server


@pytest.mark.slow
@pytest.mark.timeout(400)
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
def test_budget_holds_for_the_whole_job_without_idling(fake, tmp_path, case):
    """Over any 10 s at most 102 % of the budget is used, over any minute at least 97 %, also as tasks end early."""
    options = {"engine": "local", "rcu_per_second": BUDGET, "consistent": True, **case}
    before = fake.consumed("flights")
    ended = before[-1][0] if before else -1.0
    report = ddbio.scan_to_files("flights", tmp_path / "out", endpoint_url=fake.endpoint_url, **options)
    record = [slot for slot in fake.consumed("flights") if slot[0] > ended]
    # The schema's sample comes before the engine starts; the steady part is what a budget is for.
    steady = [slot for slot in record if slot[0] > _start_of_scan(record)]
    assert sum(units for _, units, _ in record) == pytest.approx(report.rcu_consumed)
    assert max(windows([slot[:2] for slot in record], 10.0)) <= 1.02 * 10.0 * BUDGET
    minutes = windows([slot[:2] for slot in steady], 60.0)
    assert minutes
    assert min(minutes) >= 0.97 * 60.0 * BUDGET


def _start_of_scan(record):
    """Return when all tasks ran: some seconds after the last pause of a second, while an engine started."""
    starts = [after[0] for before, after in itertools.pairwise(record) if after[0] - before[0] > 1.0]
    return (starts[-1] if starts else record[0][0]) + STARTING_SECONDS
