"""Targets for the rows of an export: any folder except the export itself."""

import pytest

import ddbio
from ddbio.errors import TargetError
from ddbio.testing.export import Change, ExportWriter

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ITEM = {"pk": {"S": "a"}}


@pytest.mark.parametrize("where", [".", "data", "..", "../../.."])
@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_overwriting_never_deletes_what_is_read(tmp_path, kind, where, monkeypatch):
    """A target that contains the export, only its data, or much more is refused; the export stays."""
    writer = ExportWriter(tmp_path / "in")
    home = writer.full([ITEM]) if kind == "full" else writer.incremental([Change(1, ITEM, new=ITEM)])
    shared = home.parent / "data" if (kind, where) == ("incremental", "data") else home / where
    (tmp_path / "link").symlink_to(shared)
    monkeypatch.chdir(home)
    for dest in (shared, tmp_path / "link", f"file://{shared}", "." if where == "." else shared):
        with pytest.raises(TargetError, match="mode overwrite would delete"):
            ddbio.read_export_to_files(home, dest, mode="overwrite")
    assert ddbio.read_export(home).num_rows == 1
    ddbio.read_export_to_files(home, f"{home}-out", mode="overwrite")
