"""Loads that are killed right before each change of their checkpoints and rejects."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
import ddbio.load.load  # a fork imports nothing
from ddbio.testing import FakeDynamoDB
from tests.jobs.killing import WHOLE, killing, strike

GROUPS, GROUP = 3, 4


def run(source, table, state, rejects, endpoint_url):
    """Load a file. Its rows without a key are rejected."""
    locations = {"state": str(state), "reject_to": str(rejects), "job_id": "job_1"}
    ddbio.load_files(source, table, lanes=1, engine="local", endpoint_url=endpoint_url, **locations)


@pytest.fixture(scope="module")
def killer():
    """Return a function that kills a load."""
    with killing(run) as kill:
        yield kill


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a separate table, and a function that checks a killed load."""
    keys = [None if number % GROUP == 1 else f"k{number}" for number in range(GROUPS * GROUP)]
    pq.write_table(pa.table({"pk": keys, "n": range(len(keys))}), tmp_path / "rows.parquet", row_group_size=GROUP)
    good = {number for number, key in enumerate(keys) if key}
    with FakeDynamoDB() as server:

        def make(number):
            server.load(f"rows{number}", b"", "pk:S")
            folders = [tmp_path / f"state{number}", tmp_path / f"rejects{number}"]
            return folders, tmp_path / "rows.parquet", f"rows{number}", *folders, server.endpoint_url

        def check(*words):
            run(*words)
            _, table, _, rejects, endpoint_url = words
            assert set(ddbio.read_table(table, endpoint_url=endpoint_url)["n"].to_pylist()) == good
            lines = [json.loads(line) for path in rejects.glob("*.jsonl") for line in path.read_text().splitlines()]
            assert {int(line["item"]["n"]["N"]) for line in lines} == {*range(len(keys))} - good

        yield make, check


@pytest.mark.parametrize("moment", ["job_1.claim", "job_1.load/", "rejects-job_1"])
def test_a_load_that_is_killed(killer, load, moment):
    """The next run writes the remaining rows: each good row is in the table, and each bad one is among the rejects."""
    make, check = load
    folders, *words = make(0)
    assert killer(moment, folders, *words) != WHOLE
    check(*words)


@pytest.mark.nightly
def test_a_load_that_is_killed_before_any_change(killer, load):
    """The same holds before each change of a file or folder."""
    assert len(strike(killer, *load)) > 10
