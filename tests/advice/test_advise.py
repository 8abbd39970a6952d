"""Advice for existing tables, and for tables described by a file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws import control_plane
from ddbio.cli.main import cli
from ddbio.errors import OptionError

STATS = {"Table": {"TableName": "orders", "TableSizeBytes": 10**12, "ItemCount": 2 * 10**9}, "ChangesPerSecond": 100}


@pytest.fixture
def stats(tmp_path):
    """Describe a table of a terabyte in a file."""
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(STATS))
    return path


def test_a_table_that_is_not_there(stats):
    """A file describes the table. Options override the numbers of the file."""
    advice = ddbio.advise(from_file=str(stats), freshness="1h")
    assert (advice.workload.table, advice.workload.item_bytes, advice.workload.changes_per_second) == (
        "orders",
        500,
        100,
    )
    assert advice.workload.on_demand
    assert not advice.workload.recovery
    with_options = ddbio.advise(from_file=str(stats), changes_per_second=7, item_bytes=100)
    assert (with_options.workload.changes_per_second, with_options.workload.item_bytes) == (7, 100)


def test_a_description_by_describe_table_is_used(tmp_path):
    """Provisioned capacity, class and recovery come from the responses of two calls in one file."""
    described = STATS["Table"] | {
        "ProvisionedThroughput": {"ReadCapacityUnits": 4000, "WriteCapacityUnits": 1000},
        "TableClassSummary": {"TableClass": "STANDARD_INFREQUENT_ACCESS"},
    }
    backups = {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED"}}
    path = tmp_path / "stats.json"
    path.write_text(
        json.dumps({"Table": described, "AverageItemSizeBytes": 321, "ContinuousBackupsDescription": backups})
    )
    asked = ddbio.advise(from_file=path.as_posix(), changes_per_second=1).workload
    assert (asked.rcu_per_second, asked.table_rcu, asked.item_bytes) == (2000, 4000, 321)
    assert asked.infrequent_access
    assert asked.recovery
    assert not asked.on_demand


def test_a_table_of_an_endpoint(fake, monkeypatch):
    """With a custom endpoint, the table is described, and CloudWatch is not asked about a table of the same name."""
    advice = ddbio.advise("flights", endpoint_url=fake.endpoint_url, changes_per_second=5, freshness="1m")
    assert advice.workload.size_bytes > 0
    assert advice.recommended is not None
    with pytest.raises(OptionError, match="give changes_per_second"):
        ddbio.advise("flights", endpoint_url=fake.endpoint_url)
    monkeypatch.setattr(control_plane, "_ATTEMPTS", 1)
    nobody = {"cloudwatch_endpoint_url": "http://127.0.0.1:9", "endpoint_url": fake.endpoint_url}
    with pytest.raises(OptionError, match="give changes_per_second, or fix this: cloudwatch"):
        ddbio.advise("flights", **nobody)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"TableSizeBytes": "big"}'])
def test_a_file_that_describes_no_table_is_refused(tmp_path, text):
    """The message lists the required contents of the file."""
    path = tmp_path / "stats.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="describe no table"):
        ddbio.advise(from_file=str(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give a table, or from_file"),
        ({"freshness": "soon"}, "write a number with s, m, h, d or w"),
        ({"from_file": "nowhere.json"}, "cannot be read"),
        ({"table": "t", "rcu_per_second": 1, "read_ratio": 0.5}, "not both"),
    ],
)
def test_wrong_options_are_errors(options, message):
    """Wrong options have the same errors as in every verb."""
    with pytest.raises(OptionError, match=message):
        ddbio.advise(**options)


def test_the_command_prints_writes_and_draws(stats, tmp_path):
    """The output is tables for people, one object for scripts, a page and a picture for reports."""
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    flags = ["--from-file", str(stats), "--html", str(page), "--png", str(picture)]
    shown = CliRunner().invoke(cli, ["advise", *flags])
    assert "costs the least" in shown.output, shown.output
    assert "break even" in shown.output
    assert "USD a month, by changes a second" in page.read_text("utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    values = json.loads(
        CliRunner().invoke(cli, ["advise", "--from-file", str(stats), "--freshness", "1d", "--json"]).output
    )
    assert values["recommended"] in {road["name"] for road in values["roads"]}
