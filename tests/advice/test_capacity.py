"""Capacity plans from files of consumption."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import OptionError

HEADER = "time,read,write,index,provisioned_read,provisioned_write,throttled_writes\n"


@pytest.fixture
def consumption(tmp_path):
    """Write a day of consumption of a table and an index, in steps of five minutes."""
    path = tmp_path / "consumption.csv"
    rows = [f"2026-11-01T{n // 12:02d}:{n % 12 * 5:02d}:00Z,{100 + n},{50},,500,100,0" for n in range(288)]
    rows += [f"2026-11-01T{n // 12:02d}:{n % 12 * 5:02d}:00Z,,{25},by-date,,30,{int(n == 7)}" for n in range(288)]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return str(path)


def test_a_file_of_a_table_and_an_index(consumption):
    """Rows of the table and of an index are in units per second. Missing times count as zero."""
    plan = ddbio.plan_capacity("orders", csv=consumption, table_gb=100)
    assert (plan.days, plan.period_seconds, plan.mode_now) == (1.0, 300.0, "provisioned")
    needs = {(need.name, need.what): need for need in plan.needs}
    assert needs["table", "reads"].peak == 387
    assert needs["table", "writes"].headroom == 0.5
    assert needs["by-date", "writes"].share == pytest.approx(1 / 3, abs=1e-4)
    assert needs["by-date", "writes"].throttled == 1
    assert plan.usd_now > 25


def test_least_columns(tmp_path):
    """Seconds, reads and writes are enough. Without provisioned units the table is on demand."""
    path = tmp_path / "c.csv"
    path.write_text("time,read,write\n0,1,2\n60,3,4\n")
    plan = ddbio.plan_capacity("t", csv=str(path))
    assert (plan.mode_now, plan.needs[1].peak, plan.period_seconds) == ("on-demand", 4, 60)


@pytest.mark.parametrize("text", ["", "time,read\n", "a,b\n1,2\n3,4\n", "time,read,write\nnow,1,2\n", "time\n0\n60\n"])
def test_another_file_is_refused(tmp_path, text):
    """The message lists the columns."""
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(OptionError, match="give CSV with the columns time, read and write"):
        ddbio.plan_capacity("t", csv=str(path))


def test_the_command_prints_writes_and_draws(consumption, tmp_path):
    """The output is tables for people, one object for scripts, a page for reports."""
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(cli, ["capacity", "orders", "--csv", consumption, "--html", str(page)])
    assert "USD a month" in shown.output, shown.output
    assert "provisioned" in page.read_text("utf-8")
    values = json.loads(CliRunner().invoke(cli, ["capacity", "orders", "--csv", consumption, "--json"]).output)
    assert {"mode", "table_class", "needs", "reserved", "why"} <= values.keys()
