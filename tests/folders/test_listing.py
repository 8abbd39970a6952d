from __future__ import annotations

import json

import pytest

import ddbio
from ddbio.cli.main import cli
from ddbio.commit.snapshot import LiveFile, Snapshot, format_snapshot
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import snapshot_path


@pytest.fixture
def folder(tmp_path):
    """Return a folder of two versions."""
    store = LocalStore(tmp_path)
    first = Snapshot(0, ()).changed(("one", "append", "2025-01-01T00:00:00+00:00"), [LiveFile("a=1/x.parquet", 5, 2)])
    second = first.changed(("two", "append", "2025-01-02T00:00:00+00:00"), [LiveFile("a=2/y.parquet", 7)])
    for snapshot in (first, second):
        store.put(snapshot_path(snapshot.version), format_snapshot(snapshot))
    return tmp_path


def test_files_are_listed_by_complete_names(folder):
    """Paths can be passed to a reader; a total is null if the value of a file is unknown."""
    listing = ddbio.list_files(folder)
    assert listing.paths == [f"{folder}/a=1/x.parquet", f"{folder}/a=2/y.parquet"]
    assert (listing.version, listing.bytes, listing.rows) == (2, 12, None)
    assert ddbio.list_files(folder, at_version=1).rows == 2


def test_the_command_prints_lines_json_and_manifests(folder, capsys):
    """Each output format names the same files."""

    def printed(*more):
        cli.main(["files", str(folder), *more], standalone_mode=False)
        return capsys.readouterr().out

    assert printed() == printed("--as", "symlink") == f"{folder}/a=1/x.parquet\n{folder}/a=2/y.parquet\n"
    assert printed("--at", "1") == f"{folder}/a=1/x.parquet\n"
    assert [file["bytes"] for file in json.loads(printed("--json"))["files"]] == [5, 7]
    assert [entry["url"] for entry in json.loads(printed("--as", "manifest"))["entries"]] == printed().split()
    assert [version["files"] for version in json.loads(printed("--history", "--json"))["versions"]] == [1, 2]
    assert "append" in printed("--history")
