"""Options that must stay the same when a job is resumed."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import ddbio.options as options_package
from ddbio.load.options import LoadOptions
from ddbio.options import parse_options
from ddbio.options.parsing import ALL, fixed_options
from ddbio.scan.options import ScanToFilesOptions


@pytest.mark.parametrize("name", [name for name in options_package.__all__ if name.endswith("Options")])
def test_changeable_options_are_options(name):
    """No class lists an option that it does not have."""
    cls = getattr(options_package, name)
    listed = vars(cls).get("CHANGEABLE", frozenset())
    assert listed is ALL or listed <= {field.name for field in fields(cls)}


@pytest.mark.parametrize(
    ("job", "name", "values"),
    [
        ("scan` into", "ScanToFilesOptions", "table dest"),
        ("load`", "LoadOptions", "source table"),
        ("capture` |", "CaptureOptions", "table dest"),
        ("replay`", "ReplayOptions", "source dest"),
        ("archive`", "ArchiveOptions", "source dest"),
    ],
)
def test_the_page_lists_the_options_that_must_stay(job, name, values):
    """A job's row in the table of the docs names all options that are not changeable."""
    page = (Path(__file__).parents[2] / "docs/explain/resuming.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `ddbio {job}"))
    options = parse_options(getattr(options_package, name), dict.fromkeys(values.split(), "name"))
    assert {*re.findall(r"`(\w+)`", row.split(" | ")[-1])} == fixed_options(options).keys()


def test_an_option_is_fixed_unless_its_class_lists_it():
    """Rates, limits, connections and the engine may change. Options that determine rows and files may not."""
    values = {"table": "orders", "dest": "out", "region": "eu-west-1", "max_usd": 1, "rcu_per_second": 5, "tasks": 2}
    options = parse_options(ScanToFilesOptions, {**values, "partition_by": "day(ts)", "nulls": "keep"})
    fixed = fixed_options(options, without=("table", "dest"))
    assert not fixed.keys() & values.keys()
    assert (fixed["partition_by"], fixed["nulls"], fixed["where"]) == (["day(ts)"], "keep", None)


def test_pairs_are_values_of_json():
    """Options of several values are lists, as in a state file that is read again."""
    options = parse_options(LoadOptions, {"table": "orders", "source": "in", "timestamps": "at=iso"})
    assert fixed_options(options)["timestamps"] == [["at", "iso"]]
