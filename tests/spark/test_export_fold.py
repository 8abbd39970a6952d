"""``ddbio export fold`` on Spark: the same state as in one process, without spilled files."""

from __future__ import annotations

import json

import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.cli.main import run
from ddbio.errors import ExportIncompleteError
from ddbio.testing.export import Change, ExportWriter

COUNT = 200


def item(number, version):
    """Return one item."""
    return {"pk": {"S": f"key-{number:03d}"}, "v": {"N": str(version)}}


@pytest.fixture
def exports(tmp_path, spark):
    """Return a full export and two increments: every third item changes, every fifth is deleted, ten are added."""
    writer = ExportWriter(tmp_path / "in", files=3)
    full = writer.full(item(number, 0) for number in range(COUNT))
    keys = [{"pk": item(number, 0)["pk"]} for number in range(COUNT + 10)]
    changed = [Change(1, keys[number], item(number, 1), item(number, 0)) for number in range(0, COUNT, 3)]
    gone = [Change(2, keys[number], None, item(number, 0)) for number in range(0, COUNT, 5)]
    new = [Change(3, keys[number], item(number, 2)) for number in range(COUNT, COUNT + 10)]
    return [str(full), str(writer.incremental(changed)), str(writer.incremental(gone + new))]


def test_spark_folds_like_one_process(exports, tmp_path, capsys):
    """The files have the final state, and no spilled files remain in the target."""
    assert not run(["export", "fold", *exports, str(tmp_path / "out"), "--engine", "spark", "--tasks", "3", "--json"])
    report = json.loads(capsys.readouterr().out)
    state = {n: 1 if n % 3 == 0 else 0 for n in range(COUNT) if n % 5} | dict.fromkeys(range(COUNT, COUNT + 10), 2)
    assert (report["engine"], report["rows"], report["items"], report["windows"]) == ("spark", len(state), COUNT, 2)
    rows = ds.dataset(tmp_path / "out", format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    assert {row["pk"]: row["v"] for row in rows} == {f"key-{n:03d}": v for n, v in state.items()}
    assert not (tmp_path / "out/_ddbio/staging").exists()
    one = ddbio.fold_exports(exports[0], exports[1:])
    assert sorted(one.to_pylist(), key=str) == sorted(rows, key=str)


def test_a_failed_fold_leaves_nothing(exports, tmp_path):
    """A damaged increment ends the job on Spark as in one process. Neither output nor spilled files remain."""
    (data,) = (
        path for path in (tmp_path / "in").rglob("data") if (path.parent / exports[1].rpartition("/")[2]).exists()
    )
    for path in data.iterdir():
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ExportIncompleteError, match="MD5 is"):
        ddbio.fold_exports_to_files(exports[0], exports[1:], tmp_path / "out", engine="spark", tasks=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["orc", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("avro", "csv", "json"))]
)
def test_spark_writes_every_format(exports, tmp_path, name):
    """Files of any format that Spark's tasks write from an export, or its fold, have the digest of Parquet files."""
    options = {"engine": "spark", "tasks": 2, "format": name}
    ddbio.read_export_to_files(exports[0], tmp_path / "read", **options)
    assert ddbio.digest(tmp_path / "read") == ddbio.digest(ddbio.read_export(exports[0]))
    ddbio.fold_exports_to_files(exports[0], exports[1:], tmp_path / "fold", **options)
    assert ddbio.digest(tmp_path / "fold") == ddbio.digest(ddbio.fold_exports(exports[0], exports[1:]))
