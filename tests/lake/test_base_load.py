"""A scan straight to a lake table, changes applied to it, and a new base in its place."""

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


def rows_of(place, kind):
    """Return the live items by sort key, by the format's own library."""
    if kind == "delta":
        found = deltalake.DeltaTable(place).to_pyarrow_table()
    else:
        newest = (place / "metadata/version-hint.text").read_text()
        found = StaticTable.from_metadata(str(place / f"metadata/v{newest}.metadata.json")).scan().to_arrow()
    return {int(row["sk"]): row for row in found.to_pylist() if not is_deleted(row)}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_changes_win_over_a_base_load(kind, fake, table, capture, tmp_path):
    """A scan makes the table at epoch 0, apply merges the log over it; an overwrite is a new base."""
    place, given = tmp_path / "lake", {"endpoint_url": fake.endpoint_url, "format": kind, "engine": "local"}
    for number in range(20):
        table.put_item(Item={"pk": "a", "sk": number, "n": number})
    loaded = ddbio.scan_to_files(table.name, place, job_id="first", buckets=4, **given)
    assert loaded.rows == 20
    assert set(rows_of(place, kind)) == set(range(20))
    assert {row["_ver"] for row in rows_of(place, kind).values()} == {"0" * 44}
    # The same job again is not run, another one is refused.
    assert ddbio.scan_to_files(table.name, place, job_id="first", buckets=4, **given).rows == 20
    with pytest.raises(TargetError, match="is a table already"):
        ddbio.scan_to_files(table.name, place, **given)
    table.delete_item(Key={"pk": "a", "sk": 3})
    table.put_item(Item={"pk": "a", "sk": 4, "n": 400})
    report = ddbio.apply(capture(), place, format=kind)
    assert (report.changes, report.deleted) == (22, 1)
    found = rows_of(place, kind)
    assert 3 not in found
    assert found[4]["n"] == 400
    table.put_item(Item={"pk": "a", "sk": 5, "n": 500, "more": "x"})
    ddbio.scan_to_files(table.name, place, mode="overwrite", **given)
    assert rows_of(place, kind)[5]["more"] == "x"
    ddbio.apply(capture(), place, format=kind)
    found = rows_of(place, kind)
    assert set(found) == set(range(20)) - {3}
    assert (found[4]["n"], found[5]["n"]) == (400, 500)
    if kind == "delta":
        assert pl.read_delta(str(place)).height == 20


def test_a_base_has_all_attributes(fake, table, tmp_path):
    """Parts of a table, and partitions of one's own, make no base that changes could be applied to."""
    with pytest.raises(OptionError, match="leave columns out"):
        ddbio.scan_to_files(table.name, tmp_path, format="delta", columns=["pk"], endpoint_url=fake.endpoint_url)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give engine='spark'"),
        ({"engine": "local"}, "Hudi's own writer"),
        ({"mode": "append"}, "in a Hudi table once"),
    ],
)
def test_a_base_of_hudi_takes_spark(options, problem, tmp_path):
    """Nothing but Hudi's own writer makes such a table, of a whole table at once."""
    given = {"format": "hudi", "engine": "spark" if "mode" in options else "auto", **options}
    with pytest.raises(OptionError, match=problem):
        ddbio.scan_to_files("any", tmp_path / "lake", **given)
    with pytest.raises(OptionError, match=problem):
        ddbio.read_export_to_files(tmp_path / "export", tmp_path / "lake", **given)
    with pytest.raises(OptionError, match="a fold makes no Hudi table"):
        ddbio.fold_exports_to_files("full", [], tmp_path / "lake", format="hudi", engine="spark")
    assert not list(tmp_path.iterdir())


def test_files_are_described_as_pyiceberg_describes_them(fake, table, tmp_path):
    """Sizes, bounds and nulls of each file in Iceberg's manifest are those that pyiceberg finds in its footer."""
    for number in range(40):
        table.put_item(Item={"pk": "a", "sk": number, "n": number, **({"t": f"x{number}"} if number % 3 else {})})
    place = tmp_path / "lake"
    ddbio.scan_to_files(table.name, place, buckets=4, endpoint_url=fake.endpoint_url, format="iceberg", engine="local")
    found = IcebergLakeTable(LocalStore(place))
    state = found.load()
    handle = state.handle
    in_files = _with_names(handle.schema(), {"_is_deleted": "_deleted"})
    metadata = handle.metadata.model_copy(update={"schemas": [in_files]})
    described = _data_files(handle)
    assert len(described) == 4
    for each in described:
        wanted = parquet_file_to_data_file(handle.io, metadata, each.file_path)
        for name in (
            *("file_size_in_bytes", "record_count", "partition", "column_sizes", "value_counts", "null_value_counts"),
            *("lower_bounds", "upper_bounds", "split_offsets"),
        ):
            assert getattr(each, name) == getattr(wanted, name), name


def test_the_log_of_delta_has_the_bounds_of_each_file(fake, table, tmp_path):
    """Least and greatest keys, versions and times of each file in Delta's log are those of its rows."""
    for number in range(40):
        table.put_item(Item={"pk": "a", "sk": number})
    place = tmp_path / "lake"
    ddbio.scan_to_files(table.name, place, buckets=4, endpoint_url=fake.endpoint_url, format="delta", engine="local")
    described = pl.DataFrame(deltalake.DeltaTable(place).get_add_actions(flatten=True))
    assert described.height == 4
    for each in described.to_dicts():
        rows = pl.read_parquet(place / each["path"])
        assert each["num_records"] == rows.height
        for name in ("_key", "_ver", "_ts_us"):
            assert each[f"null_count.{name}"] == 0
            assert (each[f"min.{name}"], each[f"max.{name}"]) == (rows[name].min(), rows[name].max()), name
