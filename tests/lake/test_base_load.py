"""A scan directly to a lake table, changes that are applied to it, and a new base that replaces it."""

from __future__ import annotations

import deltalake
import polars as pl
import pytest
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import StaticTable

import ddbio
from ddbio.errors import OptionError, TargetError
from ddbio.lake_formats.iceberg import IcebergLakeTable, _data_files, _with_names
from ddbio.storage.local_store import LocalStore
from tests.lake.test_apply import capture, fake, resource, table
from tests.lake.virtual_log import is_deleted

__all__ = ["capture", "fake", "resource", "table"]


def rows_of(path, kind):
    """Return the live items by sort key, read by the format's own library."""
    if kind == "delta":
        table = deltalake.DeltaTable(path).to_pyarrow_table()
    else:
        newest = (path / "metadata/version-hint.text").read_text()
        table = StaticTable.from_metadata(str(path / f"metadata/v{newest}.metadata.json")).scan().to_arrow()
    return {int(row["sk"]): row for row in table.to_pylist() if not is_deleted(row)}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_changes_win_over_a_base_load(kind, fake, table, capture, tmp_path):
    """A scan creates the table at epoch 0, apply merges the log into it; an overwrite is a new base."""
    lake, options = tmp_path / "lake", {"endpoint_url": fake.endpoint_url, "format": kind, "engine": "local"}
    for number in range(20):
        table.put_item(Item={"pk": "a", "sk": number, "n": number})
    loaded = ddbio.scan_to_files(table.name, lake, job_id="first", buckets=4, **options)
    assert loaded.rows == 20
    assert set(rows_of(lake, kind)) == set(range(20))
    assert {row["_ver"] for row in rows_of(lake, kind).values()} == {"0" * 44}
    # The same job is not run again, and another one is refused.
    assert ddbio.scan_to_files(table.name, lake, job_id="first", buckets=4, **options).rows == 20
    with pytest.raises(TargetError, match="is a table already"):
        ddbio.scan_to_files(table.name, lake, **options)
    table.delete_item(Key={"pk": "a", "sk": 3})
    table.put_item(Item={"pk": "a", "sk": 4, "n": 400})
    report = ddbio.apply(capture(), lake, format=kind)
    assert (report.changes, report.deleted) == (22, 1)
    rows = rows_of(lake, kind)
    assert 3 not in rows
    assert rows[4]["n"] == 400
    table.put_item(Item={"pk": "a", "sk": 5, "n": 500, "more": "x"})
    ddbio.scan_to_files(table.name, lake, mode="overwrite", **options)
    assert rows_of(lake, kind)[5]["more"] == "x"
    ddbio.apply(capture(), lake, format=kind)
    rows = rows_of(lake, kind)
    assert set(rows) == set(range(20)) - {3}
    assert (rows[4]["n"], rows[5]["n"]) == (400, 500)
    if kind == "delta":
        assert pl.read_delta(str(lake)).height == 20


def test_a_base_has_all_attributes(fake, table, tmp_path):
    """Filtered tables and custom partitions are refused as a base, because changes could not be applied to it."""
    with pytest.raises(OptionError, match="leave columns out"):
        ddbio.scan_to_files(table.name, tmp_path, format="delta", columns=["pk"], endpoint_url=fake.endpoint_url)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give engine='spark'"),
        ({"engine": "local"}, "Hudi's writer"),
        ({"mode": "append"}, "has each key once"),
    ],
)
def test_a_base_of_hudi_takes_spark(options, problem, tmp_path):
    """Only Hudi's writer creates such a table, and only from a whole table."""
    values = {"format": "hudi", "engine": "spark" if "mode" in options else "auto", **options}
    with pytest.raises(OptionError, match=problem):
        ddbio.scan_to_files("any", tmp_path / "lake", **values)
    with pytest.raises(OptionError, match=problem):
        ddbio.read_export_to_files(tmp_path / "export", tmp_path / "lake", **values)
    with pytest.raises(OptionError, match="a fold cannot write a Hudi table"):
        ddbio.fold_exports_to_files("full", [], tmp_path / "lake", format="hudi", engine="spark")
    assert not list(tmp_path.iterdir())


def test_files_are_described_as_pyiceberg_describes_them(fake, table, tmp_path):
    """Sizes, bounds and nulls of each file in Iceberg's manifest are equal to those that pyiceberg reads."""
    for number in range(40):
        table.put_item(Item={"pk": "a", "sk": number, "n": number, **({"t": f"x{number}"} if number % 3 else {})})
    lake = tmp_path / "lake"
    ddbio.scan_to_files(table.name, lake, buckets=4, endpoint_url=fake.endpoint_url, format="iceberg", engine="local")
    lake_table = IcebergLakeTable(LocalStore(lake))
    state = lake_table.load()
    handle = state.handle
    in_files = _with_names(handle.schema(), {"_is_deleted": "_deleted"})
    metadata = handle.metadata.model_copy(update={"schemas": [in_files]})
    described = _data_files(handle)
    assert len(described) == 4
    for data_file in described:
        expected = parquet_file_to_data_file(handle.io, metadata, data_file.file_path)
        for name in (
            *("file_size_in_bytes", "record_count", "partition", "column_sizes", "value_counts", "null_value_counts"),
            *("lower_bounds", "upper_bounds", "split_offsets"),
        ):
            assert getattr(data_file, name) == getattr(expected, name), name


def test_the_log_of_delta_has_the_bounds_of_each_file(fake, table, tmp_path):
    """Minimum and maximum of keys, versions and times of each file in Delta's log are those of its rows."""
    for number in range(40):
        table.put_item(Item={"pk": "a", "sk": number})
    lake = tmp_path / "lake"
    ddbio.scan_to_files(table.name, lake, buckets=4, endpoint_url=fake.endpoint_url, format="delta", engine="local")
    described = pl.DataFrame(deltalake.DeltaTable(lake).get_add_actions(flatten=True))
    assert described.height == 4
    for action in described.to_dicts():
        rows = pl.read_parquet(lake / action["path"])
        assert action["num_records"] == rows.height
        for name in ("_key", "_ver", "_ts_us"):
            assert action[f"null_count.{name}"] == 0
            assert (action[f"min.{name}"], action[f"max.{name}"]) == (rows[name].min(), rows[name].max()), name
