"""Speeds of this machine: measured, stored, and used by plans."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ddbio.cli.main import cli
from ddbio.core.planning.speeds import ASSUMED_BYTES_PER_SECOND, PROCESSORS, Speeds
from ddbio.core.scans.plan import Resources, Sample, plan_scan
from ddbio.core.table_description import TableDescription
from ddbio.errors import OptionError
from ddbio.ops.user_files import machine_speeds
from ddbio.options import ScanOptions

TABLE = TableDescription("t", "t", "", "ACTIVE", (("pk", "S"),), 10**9, 10**12, True, rcu=10.0**9)


@pytest.mark.nightly
def test_speeds_are_measured_and_stored(tmp_path, monkeypatch):
    """Every step of a job has a speed, and plans find them."""
    monkeypatch.setenv("DDBIO_CONFIG_DIR", str(tmp_path))
    done = CliRunner().invoke(cli, ["calibrate", "--json"], catch_exceptions=False)
    measured = json.loads(done.stdout)
    assert all(value for value in measured.values())
    assert machine_speeds().to_dict() == measured


def test_plans_go_by_measured_speeds():
    """Without a profile a core is assumed to scan 20 MiB a second; with one, what its steps take together."""
    sample, options = Sample(pa.schema([]), 0, 1000.0, 0.0, complete=False), ScanOptions(table="t", lanes=1024)
    assumed = plan_scan(TABLE, sample, options, Resources(8))
    assert (assumed.limited_by, assumed.estimated_seconds) == (PROCESSORS, 10**12 / (8 * ASSUMED_BYTES_PER_SECOND))
    speeds = Speeds(decode=14e6, parquet_write=14e6, date="2026-11-22T00:00:00+00:00")
    measured = plan_scan(TABLE, sample, options, Resources(8, speeds=speeds))
    assert measured.limited_by == PROCESSORS
    assert measured.estimated_seconds == pytest.approx(10**12 / (8 * 0.5 * 7e6 / 1.4))


@pytest.mark.parametrize("text", ["", "[]", '{"decode": 1}', '{"date": "x", "decode": "much"}'])
def test_what_is_no_profile_is_not_used(tmp_path, monkeypatch, text):
    """A broken profile is refused by its reader, and plans go on without it."""
    monkeypatch.setenv("DDBIO_CONFIG_DIR", str(tmp_path))
    with pytest.raises(OptionError, match="run ddbio calibrate again"):
        Speeds.from_json(text)
    Path(tmp_path, "speeds.json").write_text(text, "utf-8")
    assert machine_speeds() == Speeds()
