"""Budget of writes, by the server's own record: it is not exceeded for long."""

import time

import pyarrow as pa
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB
from tests.jobs.windows import windows

BUDGET, ROWS = 600.0, 18_000


@pytest.fixture(scope="module")
def fake():
    """Serve from a separate process."""
    with FakeDynamoDB(process=True, latency_seconds=0.01) as server:
        yield server


def batches(pause_seconds):
    """Yield rows of one unit each, from a slow source."""
    for start in range(0, ROWS, 600):
        time.sleep(pause_seconds)
        yield pa.record_batch({"pk": [f"key-{n}" for n in range(start, start + 600)], "text": ["x" * 500] * 600})


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lanes", "pause_seconds"), [(1, 0.0), (8, 0.0), (8, 0.5)], ids=["one lane", "eight lanes", "a slow source"]
)
def test_a_budget_of_writes_is_held(fake, lanes, pause_seconds):
    """The budget is not exceeded in any 10 s, also after a slow source.

    The tolerance is 10 % for a busy machine, where requests wait for the server. Tests in virtual time have closer
    bounds.
    """
    table = f"rows-{lanes}-{pause_seconds}"
    fake.load(table, b"", "pk:S")
    report = ddbio.write_table(
        batches(pause_seconds), table, endpoint_url=fake.endpoint_url, lanes=lanes, wcu_per_second=BUDGET
    )
    record = [(at, units) for at, _, units in fake.consumed(table)]
    assert report.written == sum(units for _, units in record) == ROWS
    assert max(windows(record, 10.0)) <= 1.1 * 10.0 * BUDGET
