"""The pytest fixtures of an installed ddbio."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import boto3
import pytest

import ddbio

ITEMS = [{"id": {"S": f"o{number}"}, "total": {"N": str(number)}} for number in range(20)]


def test_every_client_finds_the_table(loaded_table):
    """A loaded table answers ddbio and boto3 without an endpoint option."""
    table = loaded_table(ITEMS, key="id:S", name="orders")
    assert table.items == ddbio.read_table("orders").num_rows == 20
    got = boto3.client("dynamodb").get_item(TableName="orders", Key={"id": {"S": "o7"}})
    assert got["Item"]["total"] == {"N": "7"}


def test_each_test_has_its_own_dynamodb(dynamodb_fake):
    """The fake has no tables of other tests."""
    assert boto3.client("dynamodb", endpoint_url=dynamodb_fake.endpoint_url).list_tables()["TableNames"] == []


@pytest.mark.dynamodb_fake(wcu=7)
def test_a_marker_gives_parameters(dynamodb_fake):
    """The fake has the parameters of the marker."""
    assert dynamodb_fake.wcu == 7


def test_a_pipeline_runs_from_table_to_bucket(loaded_table, s3_fake):
    """A scan of the table into the test's own bucket has every row."""
    loaded_table(ITEMS, name="orders")
    report = ddbio.scan_to_files("orders", f"{s3_fake.uri}/orders", engine="local")
    assert report.rows == 20
    assert ddbio.validate("orders", f"{s3_fake.uri}/orders").equal


def test_the_plugin_is_an_entry_point():
    """The plugin is registered wherever ddbio is installed."""
    (plugin,) = [
        entry_point for entry_point in importlib.metadata.entry_points(group="pytest11") if entry_point.name == "ddbio"
    ]
    assert plugin.value == "pytest_ddbio"


def test_a_run_that_asks_for_nothing_imports_nothing():
    """The plugin itself loads neither ddbio nor any of its libraries."""
    script = (
        "import pytest_ddbio, sys; print(sorted({'boto3', 'ddbio', 'moto', 'numba', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_without_moto_the_fixture_names_the_package(tmp_path):
    """Without moto's server the error is one line without a traceback."""
    (tmp_path / "test_it.py").write_text("def test_it(s3_fake):\n    pass\n")
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto/__init__.py").write_text("raise ImportError")
    words = ["-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert "pip install 'ddbio[demo]'" in done.stdout
    assert "1 error" in done.stdout
