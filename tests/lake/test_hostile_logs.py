"""Logs of lake tables that were manipulated: they cannot name files elsewhere, and raise one error."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import deltalake
import pytest

import ddbio
from ddbio.errors import DdbioError, TargetError
from ddbio.formats.lake_columns import lake_schema
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats import iceberg
from ddbio.lake_formats.registry import open_lake_table
from ddbio.lake_formats.table import BUCKETS, EPOCHS, FLOOR, KEYS
from tests.commit.test_contents import ROWS
from tests.commit.test_contents import iceberg as foreign_iceberg
from tests.lake.test_hudi import VirtualHudi
from tests.lake.virtual_log import columns
from tests.storage.test_states import places

OPTIONS = ApplyOptions(source="x", table="x", format="delta")
ELSEWHERE = ("../victim/a.parquet", "a/../../victim/a.parquet", "..%2Fvictim%2Fa.parquet", "a//b.parquet", "a%00b", "")
HOSTILE = (None, -1, 10**30, "", "../x", "x" * 200, [], [None], {})


def open_table(folder, kind):
    """Return the table in a folder."""
    return open_lake_table(str(folder), kind, OPTIONS)


def own_table(folder, kind, **properties):
    """Create a table like ddbio."""
    folder.mkdir(exist_ok=True)
    all_properties = {KEYS: '["pk"]', BUCKETS: "1", EPOCHS: "[]", FLOOR: "5", **properties}
    table = open_table(folder, kind)
    table.create(lake_schema(columns()), all_properties)
    return table


def add_to_delta(folder, path, version, **more):
    """Add a file to a Delta table through its log."""
    add = {"path": path, "partitionValues": more, "size": 1, "modificationTime": 1, "dataChange": True}
    (folder / "_delta_log" / f"{version:020}.json").write_text(json.dumps({"add": add}) + "\n")


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_delta_log_names_no_file_elsewhere(tmp_path, path):
    """Logs of our tables and of other programs are checked; encoded paths are decoded first."""
    table = own_table(tmp_path / "own", "delta")
    add_to_delta(tmp_path / "own", path, 1, _b="0")
    with pytest.raises(TargetError, match="is no path within"):
        table.load()
    deltalake.write_deltalake(tmp_path / "foreign", ROWS)
    add_to_delta(tmp_path / "foreign", path, 1)
    with pytest.raises(DdbioError, match="is no path within"):
        ddbio.digest(tmp_path / "foreign")


@pytest.mark.parametrize("path", ["../victim/a.parquet", "data/../../victim/a.parquet", "a//b", ""])
def test_an_iceberg_manifest_names_no_file_elsewhere(tmp_path, path, monkeypatch):
    """A path that starts with the table's folder may still leave it."""
    table = own_table(tmp_path / "own", "iceberg")
    file = SimpleNamespace(
        content=iceberg.DataFileContent.DATA, file_path=f"{tmp_path}/own/{path}", file_size_in_bytes=1, partition=[0]
    )
    monkeypatch.setattr(iceberg, "_data_files", lambda _: [file])
    with pytest.raises(TargetError, match="is no path within"):
        table.load()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("name", "text"),
    [(KEYS, "{"), (KEYS, "5"), (KEYS, "[5]"), (BUCKETS, "x"), (BUCKETS, ""), (EPOCHS, "[[]]"), (FLOOR, "1e9")],
)
def test_properties_of_ours_that_somebody_else_has_set_are_refused(tmp_path, kind, name, text):
    """One error names the table."""
    with pytest.raises((TargetError, ValueError)):
        own_table(tmp_path / "own", kind, **{name: text})
    with pytest.raises(TargetError, match=r"own cannot be read: its log is damaged.*restore it from a copy"):
        open_table(tmp_path / "own", kind).load()


def mutations(document, step):
    """Yield variants of a document, in each of which one value is changed."""
    count = 0
    for path in places(document):
        for hostile in HOSTILE:
            count += 1
            if path and count % step == 0:
                changed = inner = copy.deepcopy(document)
                for name in path[:-1]:
                    inner = inner[name]
                inner[path[-1]] = hostile
                yield changed


def outcome(read):
    """Return the outcome of an attempt to read; errors of other libraries are raised."""
    try:
        read()
    except DdbioError as error:
        return type(error).__name__
    return "read"


def test_a_changed_log_ends_in_one_error(tmp_path):
    """Any value of the metadata of Iceberg, of a commit of Delta and of one of Hudi may be changed."""
    own_table(tmp_path / "iceberg", "iceberg")
    metadata = next((tmp_path / "iceberg" / "metadata").glob("v1.metadata.json"))
    outcomes = set()
    for changed in mutations(json.loads(metadata.read_text()), 17):
        metadata.write_text(json.dumps(changed))
        outcomes.add(outcome(open_table(tmp_path / "iceberg", "iceberg").load))
    metadata = Path(foreign_iceberg(tmp_path / "foreign", ROWS).metadata_location.removeprefix("file://"))
    for changed in mutations(json.loads(metadata.read_text()), 29):
        metadata.write_text(json.dumps(changed))
        outcomes.add(outcome(lambda: ddbio.digest(tmp_path / "foreign")))
    own_table(tmp_path / "delta", "delta")
    commit = tmp_path / "delta" / "_delta_log" / f"{0:020}.json"
    lines = list(map(json.loads, commit.read_text().splitlines()))
    for number, line in enumerate(lines):
        for changed in mutations(line, 7):
            commit.write_text("\n".join(map(json.dumps, [*lines[:number], changed, *lines[number + 1 :]])))
            outcomes.add(outcome(open_table(tmp_path / "delta", "delta").load))
    (tmp_path / "hudi").mkdir()
    VirtualHudi(tmp_path / "hudi").write(20260101, {"f1": {"a": 1}})
    commit = tmp_path / "hudi" / ".hoodie" / "20260101.commit"
    document = json.loads(commit.read_text())
    (name,) = document["extraMetadata"]
    for changed in mutations(document, 1):
        commit.write_text(json.dumps(changed))
        outcomes.add(outcome(open_table(tmp_path / "hudi", "hudi").load))
    for changed in mutations(json.loads(document["extraMetadata"][name]), 1):
        commit.write_text(json.dumps({**document, "extraMetadata": {name: json.dumps(changed)}}))
        outcomes.add(outcome(open_table(tmp_path / "hudi", "hudi").load))
    assert {"read", "TargetError"} <= outcomes
