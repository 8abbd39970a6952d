"""Filters on lake tables return the same rows with and without statistics, in each reader."""

from __future__ import annotations

import json
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

import ddbio
from ddbio.formats.lake_columns import lake_schema
from ddbio.lake_formats.bucket_files import STATISTICS_COLUMNS
from ddbio.lake_formats.delta import DeltaLakeTable
from ddbio.lake_formats.iceberg import IcebergLakeTable
from ddbio.lake_formats.table import Commit, ConflictError
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import StagedFile
from tests.lake.virtual_log import Change, VirtualLog, columns

PROPERTY = "delta.dataSkippingStatsColumns"
ONE = pa.scalar(Decimal("1.00"), pa.decimal128(38, 2))
LONG, LAST = "k" * 300, "\uffff" * 200


OWN = {"_key": f"S:{LONG}", "_b": 0, "_ver": "1", "_ts_us": None, "_op": "INSERT", "_deleted": False}


def tagged(name, kind, tag):
    """Return the column of an attribute."""
    return pa.field(name, kind, metadata={"ddb:type": tag})


COLUMNS = pa.schema(
    [
        *columns("state", "empty"),
        tagged("price", pa.decimal128(38, 2), "N"),
        tagged("ratio", pa.float64(), "N"),
        tagged("raw", pa.binary(), "B"),
        tagged("ok", pa.bool_(), "BOOL"),
        tagged("tags", pa.list_(pa.field("element", pa.string(), metadata={"ddb:type": "S"})), "SS"),
        tagged("at", pa.struct([tagged("x", pa.int64(), "N")]), "M"),
    ]
)
ITEMS = {
    "a": {"n": 1, "state": "open", "price": 1, "ratio": 0.5, "raw": b"\xff", "ok": True, "tags": ["t"], "at": {"x": 1}},
    "b": {"n": None, "state": None, "price": None, "ratio": None, "raw": None, "ok": None, "tags": None, "at": None},
    LONG: {"n": 3, "state": "x" * 5000, "price": 3, "ratio": 2.5, "raw": b"\x00" * 300, "ok": False},
    LAST: {"n": -4, "state": LAST, "price": -4, "ratio": -0.5, "raw": b"", "ok": False, "at": {"x": None}},
}
# In SQL, in Arrow, in polars.
FILTERS = [
    ("state = 'open'", pc.field("state") == "open", pl.col("state") == "open"),
    ("state >= 'open'", pc.field("state") >= "open", pl.col("state") >= "open"),
    ("state IS NULL", pc.field("state").is_null(), pl.col("state").is_null()),
    ('"empty" IS NULL', pc.field("empty").is_null(), pl.col("empty").is_null()),
    ("n < 0", pc.field("n") < 0, pl.col("n") < 0),
    ("price >= 1", pc.field("price") >= ONE, pl.col("price") >= 1),
    ("ratio > 1", pc.field("ratio") > 1, pl.col("ratio") > 1),
    ("raw IS NOT NULL", pc.field("raw").is_valid(), pl.col("raw").is_not_null()),
    ("NOT ok", ~pc.field("ok"), ~pl.col("ok")),
    ("_key > 'S:b'", pc.field("_key") > "S:b", pl.col("_key") > "S:b"),
    (f"_key = 'S:{LONG}'", pc.field("_key") == f"S:{LONG}", pl.col("_key") == f"S:{LONG}"),
    (f"_key = 'S:{LAST}'", pc.field("_key") == f"S:{LAST}", pl.col("_key") == f"S:{LAST}"),
    ("_ts_us > 0", pc.field("_ts_us") > 0, pl.col("_ts_us") > 0),
    ("_ver > '0'", pc.field("_ver") > "0", pl.col("_ver") > "0"),
]  # fmt: skip


def make_log(folder, *attributes):
    """Return a log of items with values of each type."""
    log = VirtualLog(LocalStore(folder), schema=pa.schema([*COLUMNS, *attributes]))
    log.append([Change(number, key, {"pk": key, **item}) for number, (key, item) in enumerate(ITEMS.items(), 1)])
    return log


def found_in(table):
    """Return the number of rows of each filter for DuckDB, Arrow, and polars with and without Arrow."""
    rows = table.to_pyarrow_dataset()
    assert rows.to_table().num_rows == len(ITEMS)
    lazy, arrow = pl.scan_delta(table.table_uri), pl.scan_pyarrow_dataset(rows)
    return [
        (
            duckdb.sql(f"SELECT count(*) FROM rows WHERE {sql}").fetchall()[0][0],
            rows.to_table(filter=expression).num_rows,
            arrow.filter(own).collect().height,
            lazy.filter(own).collect().height,
        )
        for sql, expression, own in FILTERS
    ]


def expected(rows):
    """Return the same numbers without statistics."""
    return [(rows.filter(expression).num_rows,) * 4 for _, expression, _ in FILTERS]


@pytest.mark.parametrize("attributes", [(), ("_ts_us", "_KEY"), ("_ver", "_op", "_b", "_deleted")])
def test_filters_on_a_delta_table_find_all_rows(attributes, tmp_path):
    """All types, nulls and lengths are filtered, also in attributes with the names of the table's own columns."""
    log = make_log(tmp_path / "log", *(tagged(name, pa.string(), "S") for name in attributes))
    log.append([Change(9, "a", {"pk": "a", **ITEMS["a"], **dict.fromkeys(attributes, "2024-01-01")})])
    ddbio.apply(tmp_path / "log", tmp_path / "lake", buckets=1)
    table = DeltaTable(tmp_path / "lake")
    assert table.metadata().configuration[PROPERTY] == ",".join(STATISTICS_COLUMNS)
    assert found_in(table) == expected(table.to_pyarrow_table())
    assert len(table.to_pandas(filters=[("state", "=", "open")])) == 1
    ddbio.maintain(tmp_path / "lake", z_order_by=["state"])
    table = DeltaTable(tmp_path / "lake")
    assert found_in(table) == expected(table.to_pyarrow_table())


@pytest.mark.parametrize("stored", [None, "state", "_key,_ver"])
def test_an_older_table_gets_the_property_with_its_next_commit(stored, tmp_path):
    """A table may have a changed property, or a file without bounds of its long keys."""
    lake = tmp_path / "lake"
    table = DeltaLakeTable(LocalStore(lake), {})
    state = table.create(lake_schema(COLUMNS), {})
    if stored is None:
        (log,) = (lake / "_delta_log").iterdir()
        log.write_text(log.read_text().replace(f'"{PROPERTY}":"{",".join(STATISTICS_COLUMNS)}"', '"ddbio.other":"1"'))
    else:
        table.alter(state, (), {PROPERTY: stored})
    state = table.load()
    statistics = {"_key": {"nulls": 0, "min": None, "max": None}, "_ver": {"nulls": 0, "min": "1", "max": "2"}}
    statistics["_ts_us"] = {"nulls": 1, "min": None, "max": None}
    path = lake / "_b=0/a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.Table.from_pylist([{**OWN, "pk": LONG, "state": "open"}], table.file_schema(state)), path)
    staged = StagedFile("_b=0/a.parquet", path.stat().st_size, 1, None, partition={"_b": "0"}, statistics=statistics)
    before = state.version
    table.commit(state, Commit(added=[staged]))
    assert table.load().version == before + (1 if stored == "_key,_ver" else 2)
    rows = DeltaTable(lake).to_pyarrow_dataset()
    assert rows.to_table(filter=pc.field("state") == "open").num_rows == 1
    # The added file has no bounds of the key, like files of older releases.
    table.alter(table.load(), (), {PROPERTY: "state"})
    table.commit(table.load(), Commit(positions={"x": 1}))
    assert table.load().properties[PROPERTY] == "_ver,_ts_us"
    rows = DeltaTable(lake).to_pyarrow_dataset()
    for name in ("_key", "_ver", "state"):
        assert rows.to_table(filter=pc.field(name) > "").num_rows == 1, name


def test_another_writer_between_property_and_commit_is_a_conflict(tmp_path):
    """A decision from an old state is not committed after the property was changed."""
    table = DeltaLakeTable(LocalStore(tmp_path), {})
    state = table.create(lake_schema(COLUMNS), {})
    table.alter(state, (), {PROPERTY: "state"})
    state = table.load()
    write_deltalake(
        tmp_path, pa.Table.from_pylist([OWN], pa.schema(DeltaTable(tmp_path).schema().to_arrow())), mode="append"
    )
    with pytest.raises(ConflictError, match="another writer changed"):
        table.commit(state, Commit(positions={"x": 1}))


def test_bounds_of_an_iceberg_table_hold_for_all_row_groups(tmp_path):
    """Parquet stores no bounds of a row group with a long text; those of the other groups are not the file's."""
    make_log(tmp_path / "log")
    ddbio.apply(tmp_path / "log", tmp_path / "lake", format="iceberg", buckets=1)
    table = IcebergLakeTable(LocalStore(tmp_path / "lake"), {})
    state = table.load()
    (path,) = (tmp_path / "lake").rglob("*.parquet")
    rows, path = pq.read_table(path), path.with_name("b.parquet")
    pq.write_table(rows.cast(table.file_schema(state)), path, row_group_size=1)
    staged = StagedFile("_b=0/b.parquet", path.stat().st_size, rows.num_rows, None, partition={"_b": "0"})
    table.commit(state, Commit(added=[staged], removed=state.files))
    newest = (tmp_path / "lake/metadata/version-hint.text").read_text()
    static_table = StaticTable.from_metadata(str(tmp_path / f"lake/metadata/v{newest}.metadata.json"))
    rows = static_table.scan().to_arrow()
    for text, expression in (
        (f"state = '{'x' * 5000}'", pc.field("state") == "x" * 5000),
        ("state > 'open'", pc.field("state") > "open"),
        ("n < 0", pc.field("n") < 0),
        ("price >= 1", pc.field("price") >= ONE),
        ("ratio > 1", pc.field("ratio") > 1),
        ("empty IS NULL", pc.field("empty").is_null()),
    ):
        assert static_table.scan(row_filter=text).to_arrow().equals(rows.filter(expression)), text


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("first", [("a.b",), ("a",)])
def test_a_member_is_not_the_column_of_its_path(kind, first, tmp_path):
    """A column ``a.b`` and a member ``b`` of ``a`` differ in any order; each is found by its own values."""
    member = tagged("a", pa.struct([tagged("b", pa.string(), "S")]), "M")
    log = VirtualLog(LocalStore(tmp_path / "log"), schema=pa.schema([*columns(), member, *list(columns("a.b"))[2:]]))
    values = {"a.b": "column", "a": {"b": "member"}}
    for number, names in enumerate((first, ("a.b", "a")), 1):
        log.append([Change(number, "k", {"pk": "k", **{name: values[name] for name in names}})])
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format=kind)
    rows = ddbio.history(tmp_path / "lake").to_pylist()[-1]
    assert sorted(json.dumps(row) for row in rows.values() if row in values.values()) == [
        '"column"',
        '{"b": "member"}',
    ]
