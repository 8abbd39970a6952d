"""Maintenance of lake tables: sorted, clustered, swept; readers of versions that are young enough keep their files."""

from __future__ import annotations

import json
import os
import time

import deltalake
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import OptionError
from ddbio.files.local_store import LocalStore
from ddbio.ops.job.lake_items import open_items
from ddbio.options import MaintainOptions
from tests.ops.lake.test_schedules import expected, items_of
from tests.ops.lake.virtual_log import VirtualLog, Writer

DAY = 86_400


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path):
    """Return a lake table of several versions, its format, and the log it was made of."""
    log, writer = VirtualLog(LocalStore(tmp_path / "log")), Writer(7)
    for _ in range(6):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", tmp_path / "lake", format=request.param, buckets=2)
    return tmp_path / "lake", request.param, log


def aged(place, days):
    """Make all files of a folder older."""
    for each in place.rglob("*"):
        if each.is_file():
            os.utime(each, (time.time() - days * DAY,) * 2)


def data_files(place):
    """Return the data files of a table."""
    return {str(each.relative_to(place)) for each in place.glob("_b=*/*.parquet")}


def holds(place, kind, log):
    """Return whether the newest version has the items of the log."""
    items = open_items(str(place), MaintainOptions(table=str(place)), kind)
    rows = [row for batch in items.rows() for row in batch.to_pylist()]
    return items_of(rows, {name: name for name in items.state.schema.names}) == expected(log.model())


def test_files_of_old_versions_go(lake):
    """What versions of the last week have stays, and young files that no version has; the rest goes, once."""
    place, kind, log = lake
    aged(place, 30)
    (place / "_b=0").mkdir(exist_ok=True)
    for name, days in (("orphan", 20), ("staged", 0)):
        (place / f"_b=0/{name}.parquet").write_bytes(b"x")
        os.utime(place / f"_b=0/{name}.parquet", (time.time() - days * DAY,) * 2)
    before = data_files(place)
    version = ddbio.maintain(place, format=kind).version
    plan = ddbio.plan_maintain(place, format=kind, vacuum_older_than="7d")
    assert plan.deleted_files > 1
    report = ddbio.maintain(place, format=kind, vacuum_older_than="7d")
    gone = before - data_files(place)
    assert (report.deleted_files, len(gone)) == (plan.deleted_files, plan.deleted_files)
    assert "_b=0/orphan.parquet" in gone
    assert "_b=0/staged.parquet" not in gone
    assert holds(place, kind, log)
    # The version from before the rewriting was the newest a week ago: its readers keep their files.
    assert report.since_version is not None
    for number in range(report.since_version, version + 1):
        if kind == "delta":
            deltalake.DeltaTable(place, version=number).to_pyarrow_table()
    assert ddbio.maintain(place, format=kind, vacuum_older_than="7d").deleted_files == 0


def test_rows_are_sorted_once(lake):
    """The rows of each file are in order, the items are the same, and a second run finds nothing to do."""
    place, kind, log = lake
    report = ddbio.maintain(place, format=kind, sort_by="n")
    assert report.rewritten_files > 0
    assert holds(place, kind, log)
    again = ddbio.maintain(place, format=kind, sort_by="n")
    assert (again.rewritten_files, again.version) == (0, report.version)
    with pytest.raises(OptionError, match="no attribute 'other'"):
        ddbio.maintain(place, format=kind, sort_by="other")


def test_rows_are_clustered(lake):
    """Delta tables are clustered by deltalake, and changes can be applied to them; Iceberg's are refused."""
    place, kind, log = lake
    if kind == "iceberg":
        with pytest.raises(OptionError, match="sort_by"):
            ddbio.maintain(place, format=kind, z_order_by="n,pk")
        return
    ddbio.maintain(place, z_order_by="n,pk")
    assert holds(place, kind, log)
    log.append(Writer(9).batch())
    ddbio.apply(place.parent / "log", place)
    assert holds(place, kind, log)


def test_one_file_has_the_policies_of_tables(lake, tmp_path):
    """Defaults, and over them what each table says; a dry run writes nothing, a mistake names its table."""
    place, kind, log = lake
    policy = tmp_path / "policy.toml"
    own = f'[[tables]]\ntable = "{place}"\nformat = "{kind}"\nsort_by = "n"\n'
    policy.write_text(f'[defaults]\nvacuum_older_than = "7d"\n{own}')
    before = sorted(place.rglob("*"))
    shown = CliRunner().invoke(cli, ["maintain", "--policy", str(policy), "--dry-run", "--json"])
    assert json.loads(shown.stdout)["tables"][0]["rewritten_files"] > 0, shown
    assert sorted(place.rglob("*")) == before
    done = CliRunner().invoke(cli, ["maintain", "--policy", str(policy), "--json"])
    assert json.loads(done.stdout)["tables"][0]["since_version"] is not None
    assert holds(place, kind, log)
    policy = tmp_path / "policy.yaml"
    policy.write_text(f'tables:\n- table: "{place}"\n  vacuum_older_than: 1h\n')
    with pytest.raises(OptionError, match=r"lake in the policy .*at least 24h"):
        ddbio.maintain_by_policy(policy)
