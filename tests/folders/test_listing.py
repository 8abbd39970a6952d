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
    for each in (first, second):
        store.put(snapshot_path(each.version), format_snapshot(each))
    return tmp_path


def test_files_are_listed_by_whole_names(folder):
    """Paths can be given to a reader; what is not known of each file is not known of all."""
    found = ddbio.list_files(folder)
    assert found.paths == [f"{folder}/a=1/x.parquet", f"{folder}/a=2/y.parquet"]
    assert (found.version, found.bytes, found.rows) == (2, 12, None)
    assert ddbio.list_files(folder, at_version=1).rows == 2


def test_the_command_prints_lines_json_and_manifests(folder, capsys):
    """Each form names the same files."""

    def printed(*more):
        cli.main(["files", str(folder), *more], standalone_mode=False)
        return capsys.readouterr().out

    assert printed() == printed("--as", "symlink") == f"{folder}/a=1/x.parquet\n{folder}/a=2/y.parquet\n"
    assert printed("--at", "1") == f"{folder}/a=1/x.parquet\n"
    assert [each["bytes"] for each in json.loads(printed("--json"))["files"]] == [5, 7]
    assert [each["url"] for each in json.loads(printed("--as", "manifest"))["entries"]] == printed().split()
    assert [each["files"] for each in json.loads(printed("--history", "--json"))["versions"]] == [1, 2]
    assert "append" in printed("--history")
