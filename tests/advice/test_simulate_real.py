"""Simulations compared with real runs on the fake. Both match the calculation, but a busy machine may be slower."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB

pytestmark = pytest.mark.nightly
NEAR = 1 / 5
SCHEMA = pa.schema([("pk", pa.string()), ("text", pa.string())])


def lines(count: int, item_bytes: int) -> bytes:
    """Return items of one size."""
    text = "x" * (item_bytes - len("pk") - len("text") - 8)
    return b"".join(json.dumps({"pk": {"S": f"{n:08d}"}, "text": {"S": text}}).encode() + b"\n" for n in range(count))


def seconds_of(fake: FakeDynamoDB, request_seconds: float) -> float:
    """Return the time from the first request to the last response, measured by the server in steps of 0.1 s."""
    times = [at for at, _, _ in fake.consumed("orders")]
    return times[-1] - times[0] + 0.05 + request_seconds


def check(real: float, simulated: float, expected: float) -> None:
    """Check that a simulation takes about the expected seconds, and that a real run is not faster."""
    assert simulated == pytest.approx(expected, rel=NEAR)
    assert real >= (1 - NEAR) * expected


def test_a_scan_that_its_budget_bounds(tmp_path):
    """800 units at 100 per second, from four segments."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", lines(6_500, 1_000), "pk:S")
        real = ddbio.scan_to_files(
            "orders", tmp_path, schema=SCHEMA, engine="local", segments=4, lanes=4, rcu_per_second=100,
            endpoint_url=fake.endpoint_url,
        )  # fmt: skip
        seconds = seconds_of(fake, 0.0)
    simulated = ddbio.simulate_scan(
        table_bytes=6_500_000, item_bytes=1_000, tasks=1, segments=4, lanes=4, rcu_per_second=100
    )
    assert real.rcu_consumed == pytest.approx(simulated.units, rel=0.02)
    check(seconds, simulated.seconds, 800 / 100)


def test_a_scan_that_its_requests_in_flight_bound(tmp_path):
    """60 small pages of 0.3 s on two lanes. In the model a small page takes a tenth of a full page's time."""
    with FakeDynamoDB(latency_seconds=0.3, process=True) as fake:
        fake.load("orders", lines(6_000, 1_000), "pk:S")
        ddbio.scan_to_files(
            "orders", tmp_path, schema=SCHEMA, engine="local", segments=60, lanes=2, rcu_per_second=100_000,
            endpoint_url=fake.endpoint_url,
        )  # fmt: skip
        seconds = seconds_of(fake, 0.3)
    simulated = ddbio.simulate_scan(
        table_bytes=6_000_000, item_bytes=1_000, tasks=1, segments=60, lanes=2, rcu_per_second=100_000,
        page_seconds=3.0, spread=0,
    )  # fmt: skip
    assert simulated.requests == 60
    check(seconds, simulated.seconds, 60 * 0.3 / 2)


def test_a_load_that_partitions_bound():
    """20,000 units into two partitions of 1,000 per second each."""
    rows = pa.table({"pk": [f"{n:08d}" for n in range(20_000)], "text": ["x" * 900] * 20_000})
    with FakeDynamoDB(partitions=2, latency_seconds=0.02, process=True) as fake:
        ddbio.create_table("orders", key="pk:S", endpoint_url=fake.endpoint_url)
        real = ddbio.write_table(rows, "orders", endpoint_url=fake.endpoint_url, wcu_per_second=4_000)
        seconds = seconds_of(fake, 0.02)
    simulated = ddbio.simulate_load(
        source_bytes=20_000 * 920, item_bytes=920, tasks=1, partitions=2, wcu_per_second=4_000, request_seconds=0.02
    )
    assert real.written == 20_000
    check(seconds, simulated.seconds, 20_000 / 2_000)


def test_a_load_that_its_budget_bounds():
    """10,000 units at 2,000 per second, into four partitions."""
    rows = pa.table({"pk": [f"{n:08d}" for n in range(10_000)], "text": ["x" * 900] * 10_000})
    real, simulated = real_and_simulated(rows, 0.02, partitions=4, wcu_per_second=2_000)
    check(real, simulated.seconds, 10_000 / 2_000)


def test_a_load_that_one_key_bounds():
    """100 rows of one key are sent sequentially, each in the time of a request, in addition to 1,900 others."""
    keys = ["hot" if n % 20 == 0 else f"{n:08d}" for n in range(2_000)]
    rows = pa.table({"pk": keys, "text": ["x" * 900] * 2_000})
    real, simulated = real_and_simulated(rows, 0.05, partitions=4, wcu_per_second=4_000, hot_key=0.05)
    check(real, simulated.seconds, 100 * 0.05)


def real_and_simulated(rows, request_seconds, *, partitions, wcu_per_second, **options):
    """Return the seconds of a real load of rows of one unit each, and its simulation."""
    with FakeDynamoDB(partitions=partitions, latency_seconds=request_seconds, process=True) as fake:
        ddbio.create_table("orders", key="pk:S", endpoint_url=fake.endpoint_url)
        ddbio.write_table(rows, "orders", endpoint_url=fake.endpoint_url, wcu_per_second=wcu_per_second)
        seconds = seconds_of(fake, request_seconds)
    return seconds, ddbio.simulate_load(
        source_bytes=rows.num_rows * 920, item_bytes=920, tasks=1, partitions=partitions,
        wcu_per_second=wcu_per_second, request_seconds=request_seconds, **options,
    )  # fmt: skip
