from __future__ import annotations

import json

import pytest

from ddbio.cli.main import run
from ddbio.core.schema.item_schema import ItemSchema


def ddbio(capsys, *arguments):
    """Run the command line; return its exit code and what it printed."""
    try:
        run([str(argument) for argument in arguments])
    except SystemExit as ended:
        return ended.code, capsys.readouterr().out
    return 0, capsys.readouterr().out


@pytest.fixture
def files(tmp_path):
    """Return two files of items, the second with drift."""
    (tmp_path / "old.json").write_text('{"pk":{"S":"x"},"n":{"N":"1"}}\n')
    (tmp_path / "new.json").write_text('{"pk":{"S":"x"},"n":{"N":"1.5"},"id":{"S":"x"},"Id":{"S":"x"}}\n')
    return tmp_path


def test_a_schema_is_saved_and_printed(files, capsys):
    """The file of --out holds what --json prints, and text is for people."""
    code, shown = ddbio(capsys, "schema", files / "old.json", "--out", files / "schema.json")
    assert (code, shown.splitlines()[1].split()) == (0, ["pk", "S", "string"])
    saved = (files / "schema.json").read_text()
    assert ddbio(capsys, "schema", files / "old.json", "--json") == (0, saved)
    assert ItemSchema.from_json(saved).to_arrow().names == ["pk", "n", "_rescue"]


def test_drift_is_told_by_line_and_by_exit_code(files, capsys):
    """--diff prints what changed; the exit code says so only where asked."""
    ddbio(capsys, "schema", files / "old.json", "--out", files / "schema.json")
    flags = ["--diff", files / "schema.json"]
    code, shown = ddbio(capsys, "schema", files / "new.json", *flags)
    assert code == 0
    assert shown.splitlines() == [
        "widened         n: N int64 -> N decimal128(38, 1)",
        "new attribute   id: S string",
        "new attribute   Id: S string",
    ]
    code, shown = ddbio(capsys, "schema", files / "new.json", *flags, "--json", "--exit-code")
    assert (code, len(json.loads(shown)["changes"])) == (1, 3)
    assert ddbio(capsys, "schema", files / "old.json", *flags, "--exit-code") == (0, "no change\n")
    assert ddbio(capsys, "schema", files / "old.json", "--exit-code")[0] == 2


def test_files_that_cannot_be_had_are_refused(files, capsys):
    """A schema file that cannot be read or written ends the command with wrong usage."""
    assert ddbio(capsys, "schema", files / "old.json", "--diff", files / "none.json")[0] == 2
    (files / "no.txt").write_bytes(b"\xff")
    assert ddbio(capsys, "schema", files / "old.json", "--diff", files / "no.txt")[0] == 2
    assert ddbio(capsys, "plan", "scan", "orders", "--schema", files / "no.txt")[0] == 2
    assert ddbio(capsys, "schema", files / "old.json", "--out", files / "none" / "schema.json")[0] == 2
