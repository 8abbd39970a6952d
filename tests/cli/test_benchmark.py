"""The verb ``bench``: what it measures, what it leaves alone, and what it compares with."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.benchmark import bench, format_bench
from ddbio.core.benchmark import BenchFigure, beside_shipped
from ddbio.core.sample_orders import KEY, order_lines
from ddbio.errors import NotFoundError, OptionError
from ddbio.ops import benchmark


@pytest.fixture
def tables(dynamodb_fake):
    """Return a fake with orders, and an empty table for more."""
    dynamodb_fake.load("orders", order_lines(300), KEY)
    dynamodb_fake.load("scratch", b"", KEY)
    return dynamodb_fake


def test_a_table_is_only_read(tables):
    """Without a table to write to, requests read; the report has functions, the scan, and its units."""
    report = ddbio.bench("orders", items=200, rounds=1, engine="local")
    assert {each.name for each in report.figures} >= {"from_dynamodb_json", "to_dynamodb_json", "scan to Parquet"}
    assert all(each.value > 0 for each in report.figures)
    assert report.rcu_consumed > 0
    assert report.wcu_consumed == 0
    assert set(tables.requests()) <= {"DescribeTable", "Scan"}


def test_what_is_named_for_it_is_written(tables):
    """A tenth of the items goes into the table, and is there afterwards."""
    report = ddbio.bench(items=200, rounds=1, write_to="scratch")
    assert report.wcu_consumed == 20
    assert ddbio.read_table("scratch").num_rows == 20


def test_figures_stand_beside_those_shipped(monkeypatch):
    """A figure of the same name and unit is compared; the machine of the shipped ones is told."""
    machine = {"cores": 2, "cpu": "a processor", "python": "3.11"}
    shipped = {"machine": machine, "figures": [{"name": "decode", "unit": "MB", "value": 100.0}]}
    assert beside_shipped(BenchFigure("decode", 150.0, "MB", 0.1), shipped).ratio == 1.5
    assert beside_shipped(BenchFigure("decode", 150.0, "GB", 0.1), shipped).ratio is None
    monkeypatch.setattr(benchmark, "shipped_report", lambda: shipped)
    assert "shipped figures: 2 × a processor, Python 3.11" in format_bench(ddbio.bench(items=100, rounds=1))


def test_what_is_shipped_is_a_report():
    """The package's own report, where it has one, was measured by this verb."""
    shipped = benchmark.shipped_report()
    assert not shipped or {"figures", "machine", "version", "at"} <= shipped.keys()


def test_the_command_prints_lines_or_json():
    """Each figure is a line; with ``--json`` the report is one object."""
    told = CliRunner().invoke(bench, ["--items", "100", "--rounds", "1"]).stdout
    assert "MB per CPU-second" in told
    (line,) = CliRunner().invoke(bench, ["--items", "100", "--rounds", "1", "--json"]).stdout.splitlines()
    assert json.loads(line)["machine"]["cores"] > 0


def test_figures_stand_beside_those_of_a_file(tmp_path):
    """What was printed earlier is compared with, in place of what is shipped; another file is refused before."""
    before = tmp_path / "before.json"
    given = ["--items", "100", "--rounds", "1"]
    earlier = json.loads(CliRunner().invoke(bench, [*given, "--json"]).stdout)
    halved = [{**each, "value": each["value"] / 2} for each in earlier["figures"]]
    before.write_text(json.dumps({**earlier, "figures": halved[1:]}), "utf-8")
    report = ddbio.bench(items=100, rounds=1, compare_with=str(before))
    first, *others = report.figures
    assert (first.shipped, report.compare_with) == (None, str(before))
    assert [each.shipped for each in others] == [each["value"] for each in halved[1:]]
    assert f"earlier figures: {earlier['machine']['cores']} ×" in format_bench(report)
    with pytest.raises(NotFoundError, match="makes one"):
        ddbio.bench(compare_with=str(tmp_path / "missing.json"))
    for text in ("no JSON", "[]", '{"figures": []}', '{"figures": [{"name": "decode"}]}'):
        before.write_text(text, "utf-8")
        with pytest.raises(OptionError, match="compare_with"):
            ddbio.bench(compare_with=str(before))
