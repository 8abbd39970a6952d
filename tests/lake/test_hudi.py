"""Hudi tables that are read without a JVM, from their timeline and the names of their files."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import NotFoundError, OptionError
from ddbio.formats.lake_columns import lake_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.hudi import STATE, HudiLakeTable
from ddbio.lake_formats.items import open_items
from ddbio.lake_formats.table import BUCKETS, KEYS, Commit
from ddbio.storage.local_store import LocalStore
from tests.lake.virtual_log import columns

SCHEMA = lake_schema(columns())


class VirtualHudi:
    """Writer of files and commits in the layout of Hudi's table version 6."""

    def __init__(self, folder):
        self.folder, self.before, self.slices = folder, 0, {}
        (folder / ".hoodie").mkdir(parents=True)

    def write(self, instant, files, replaced=(), state=True, done=True):
        """Write file groups with the given items, and the commit if it is done."""
        stats = []
        for name, items in files.items():
            rows = [
                {"_key": f"S:{pk}", "_b": 0, "_ver": f"{instant:044}", "_ts_us": instant, "_op": "MODIFY"}
                | {"_deleted": n is None, "_rescue": None, "pk": pk, "n": n}
                for pk, n in items.items()
            ]
            path = self.folder / f"_b=0/{name}_0-1-2_{instant}.parquet"
            path.parent.mkdir(exist_ok=True)
            # Each file also has Hudi's own columns.
            table = pa.Table.from_pylist(rows, SCHEMA).append_column("_hoodie_file_name", pa.array([name] * len(rows)))
            pq.write_table(table, path)
            stats.append({"fileId": name, "prevCommit": str(self.slices.get(name, "null"))})
        if not done:
            (self.folder / f".hoodie/{instant}.inflight").touch()
            return
        self.slices |= dict.fromkeys(files, instant)
        state_values = {"columns": schema_to_json(columns()), "before": self.before}
        state_values["properties"] = {KEYS: '["pk"]', BUCKETS: "1"}
        commit = {"partitionToWriteStats": {"_b=0": stats}, "extraMetadata": {}}
        if state:
            commit["extraMetadata"][STATE] = json.dumps(state_values)
            self.before = instant
        if replaced:
            commit["partitionToReplaceFileIds"] = {"_b=0": list(replaced)}
        kind = "replacecommit" if replaced else "commit"
        (self.folder / f".hoodie/{instant}.{kind}").write_text(json.dumps(commit))

    def clean(self, name, instant):
        """Delete a file."""
        (self.folder / f"_b=0/{name}_0-1-2_{instant}.parquet").unlink()


@pytest.fixture
def hudi(tmp_path):
    """Return a table of two file groups, one of which has a second file."""
    made = VirtualHudi(tmp_path / "lake")
    made.write(20261101, {"f-0": {"a": 1, "b": 1}, "g-0": {"c": 1}})
    made.write(20261102, {"f-0": {"a": 2, "b": None}})
    return made


def items(hudi, version=None):
    """Return the numbers of the items of a version."""
    options = ApplyOptions(source="log", table="lake")
    lake_items = open_items(str(hudi.folder), options, version=version)
    rows = [row for batch in lake_items.rows() for row in lake_items.live(batch).to_pylist()]
    assert len({row["pk"] for row in rows}) == len(rows)
    return {row["pk"]: row["n"] for row in rows}


def test_each_version_has_its_files(hudi):
    """The latest file of each file group counts; files of a commit that was not completed are ignored."""
    hudi.write(20261103, {"f-0": {"a": 3}, "h-0": {"z": 1}}, done=False)
    assert items(hudi) == items(hudi, 20261102) == {"a": 2, "c": 1}
    assert items(hudi, 20261101) == {"a": 1, "b": 1, "c": 1}
    table = HudiLakeTable(LocalStore(hudi.folder))
    state = table.load()
    assert (state.version, table.before(state), table.before(table.load(20261101))) == (20261102, 20261101, None)
    with pytest.raises(NotFoundError, match="no commit 20261103"):
        items(hudi, 20261103)


def test_replaced_file_groups_are_gone(hudi):
    """Clustered file groups are read from their new files, under the number of our commit; older versions stay."""
    hudi.write(20261103, {"h-0": {"a": 2, "b": None, "c": 1}}, replaced=["f-0", "g-0"], state=False)
    table = HudiLakeTable(LocalStore(hudi.folder))
    assert [file.path for file in table.load().files] == ["_b=0/h-0_0-1-2_20261103.parquet"]
    assert table.load().version == 20261102
    assert items(hudi) == items(hudi, 20261102) == items(hudi, 20261103) == {"a": 2, "c": 1}
    hudi.clean("g-0", 20261101)
    assert items(hudi) == {"a": 2, "c": 1}
    with pytest.raises(NotFoundError, match="cleaned"):
        items(hudi, 20261102)


def test_a_version_whose_files_were_cleaned_is_refused(hudi):
    """It would lack items; the newest version is complete, also if the archive has only its files."""
    hudi.clean("f-0", 20261101)
    with pytest.raises(NotFoundError, match=r"files of version 20261101 .* cleaned"):
        items(hudi, 20261101)
    (hudi.folder / ".hoodie/20261101.commit").unlink()
    assert items(hudi) == {"a": 2, "c": 1}
    with pytest.raises(NotFoundError, match="no commit 20261101"):
        items(hudi, 20261101)


def test_history_and_validate_read_it(hudi, tmp_path):
    """The history of an item comes from all versions, and two tables are compared like tables of other formats."""
    states = ddbio.history(hudi.folder, key="S:a").to_pylist()
    assert [(state["n"], state["operation"]) for state in states] == [(1, "MODIFY"), (2, "MODIFY")]
    other = VirtualHudi(tmp_path / "other")
    other.write(20261105, {"x-0": {"a": 2, "c": 1}})
    assert ddbio.validate(hudi.folder, other.folder).equal
    other.write(20261106, {"x-0": {"a": 2, "c": 5}})
    assert ddbio.validate(hudi.folder, other.folder).different == 1


def test_statements_that_name_it(hudi):
    """Spark reads the columns from the timeline; the statements for Hive and Athena list columns and partitions."""
    assert ddbio.catalog_ddl(hudi.folder, dialect="spark", name="shop.orders") == (
        "CREATE DATABASE IF NOT EXISTS `shop`;\n\n"
        f"CREATE TABLE IF NOT EXISTS `shop`.`orders` USING HUDI\nLOCATION 'file://{hudi.folder}';\n"
    )
    text = ddbio.catalog_ddl(hudi.folder, dialect="athena", name="shop.orders")
    assert text == ddbio.catalog_ddl(hudi.folder, dialect="hive", name="shop.orders")
    begin = "CREATE EXTERNAL TABLE IF NOT EXISTS `shop`.`orders` (\n  `_hoodie_commit_time` string,\n"
    assert begin in text
    assert "  `n` bigint\n)\nPARTITIONED BY (\n  `_b` int\n)\n" in text
    assert "STORED AS INPUTFORMAT 'org.apache.hudi.hadoop.HoodieParquetInputFormat'" in text
    assert text.endswith(
        f"ALTER TABLE `shop`.`orders` ADD IF NOT EXISTS\n  PARTITION (_b = 0) LOCATION 'file://{hudi.folder}/_b=0';\n"
    )


def test_what_is_refused(hudi, tmp_path):
    """Writes are refused, and so are tables of other programs and of newer versions."""
    table = HudiLakeTable(LocalStore(hudi.folder))
    state = table.load()
    for step in (
        lambda: table.create(SCHEMA, {}),
        lambda: table.alter(state, (), {}),
        lambda: table.cluster(state, ["n"], 1),
        lambda: table.forget(state, 1),
        lambda: table.commit(state, Commit()),
    ):
        with pytest.raises(OptionError, match="engine='spark'"):
            step()
    for dialect, reason in (("unity", "Unity takes no Hudi"), ("duckdb", "DuckDB has no reader of Hudi")):
        with pytest.raises(OptionError, match=reason):
            ddbio.catalog_ddl(hudi.folder, dialect=dialect)
    foreign = VirtualHudi(tmp_path / "foreign")
    foreign.write(20261105, {"x-0": {"a": 2}}, state=False)
    with pytest.raises(OptionError, match="did not create"):
        ddbio.history(foreign.folder)
    newer = tmp_path / "newer/.hoodie/timeline/20261105_20261106.commit"
    newer.parent.mkdir(parents=True)
    newer.touch()
    with pytest.raises(OptionError, match="table version 6"):
        ddbio.history(tmp_path / "newer")
    for kind in ("bootstrap", "maintain", "apply"):
        arguments = {"bootstrap": ("t", "lake"), "maintain": ("lake",), "apply": ("log", "lake")}[kind]
        more = {"log": "log"} if kind == "bootstrap" else {}
        with pytest.raises(OptionError, match="give engine='spark'"):
            getattr(ddbio, kind)(*arguments, format="hudi", **more)
    with pytest.raises(OptionError, match="leave engine out"):
        ddbio.maintain("lake", engine="spark")
