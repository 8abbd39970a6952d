"""The command ``schema``: its output, files and comparisons."""

import json

import pytest

from ddbio.items.schema.item_schema import ItemSchema


@pytest.fixture
def files(tmp_path):
    """Return a folder with two files of items, the second with drift."""
    (tmp_path / "old.json").write_text('{"pk":{"S":"x"},"n":{"N":"1"}}\n')
    (tmp_path / "new.json").write_text('{"pk":{"S":"x"},"n":{"N":"1.5"},"id":{"S":"x"},"Id":{"S":"x"}}\n')
    return tmp_path


@pytest.fixture
def schema(ddbio, files):
    """Return a function that runs the command on a file, and returns its exit code and output."""

    def call(name, *flags):
        done = ddbio("schema", files / name, *flags)
        return done.returncode, done.stdout

    assert call("old.json", "--out", files / "schema.json")[0] == 0
    return call


def test_a_schema_is_saved_and_printed(files, schema):
    """The file of --out equals the output of --json, and text is for people."""
    code, shown = schema("old.json", "--out", files / "schema.json")
    assert (code, shown.splitlines()[1].split()) == (0, ["pk", "S", "string"])
    saved = (files / "schema.json").read_text()
    assert schema("old.json", "--json") == (0, saved)
    assert ItemSchema.from_json(saved).to_arrow().names == ["pk", "n", "_rescue"]


def test_drift_determines_lines_and_exit_code(files, schema):
    """--diff prints the changes. The exit code shows them only if requested."""
    flags = ["--diff", files / "schema.json"]
    code, shown = schema("new.json", *flags)
    assert code == 0
    assert shown.splitlines() == [
        "widened         n: N int64 -> N decimal128(38, 1)",
        "new attribute   id: S string",
        "new attribute   Id: S string",
    ]
    code, shown = schema("new.json", *flags, "--json", "--exit-code")
    assert (code, len(json.loads(shown)["changes"])) == (1, 3)
    assert schema("old.json", *flags, "--exit-code") == (0, "no change\n")
    assert schema("old.json", "--exit-code")[0] == 2


def test_unusable_schema_files_are_refused(ddbio, files, schema):
    """A schema file that cannot be read or written is wrong usage. An invalid one is a failure that names it."""
    assert schema("old.json", "--diff", files / "none.json")[0] == 2
    (files / "no.txt").write_bytes(b"\xff")
    assert schema("old.json", "--diff", files / "no.txt")[0] == 2
    assert ddbio("plan", "scan", "orders", "--schema", files / "no.txt").returncode == 2
    assert schema("old.json", "--out", files / "none" / "schema.json")[0] == 2
    (files / "broken.json").write_text("{")
    broken = ddbio("schema", files / "old.json", "--diff", files / "broken.json")
    assert (broken.returncode, f"schema file '{files}/broken.json'" in broken.stderr) == (1, True)


@pytest.mark.parametrize(
    ("declared", "number", "code", "kind"),
    [
        ("N double", "1.5", 0, "declared"),
        ("N decimal128(10, 2)", "12.25", 0, "declared"),
        ("N decimal128(10, 2)", "12.255", 1, "changed"),
        ("N int64", "7", 0, "no change"),
    ],
)
def test_a_declared_column_that_still_fits_is_no_drift(files, schema, declared, number, code, kind):
    """An edited column is not reported as drift forever: only values that do not fit it are."""
    text = json.loads((files / "schema.json").read_text())
    (attribute,) = [inferred for inferred in text["attributes"] if inferred["name"] == "n"]
    attribute["column"] = declared
    (files / "schema.json").write_text(json.dumps(text))
    (files / "now.json").write_text(f'{{"pk":{{"S":"x"}},"n":{{"N":"{number}"}}}}\n')
    flags = ["--diff", files / "schema.json", "--exit-code"]
    exit_code, shown = schema("now.json", *flags)
    assert (exit_code, shown.startswith(kind)) == (code, True)


def test_a_mixed_attribute_is_no_drift(files, schema):
    """Another of the existing types may be the most frequent one of the next sample. A new type is drift."""
    text, number, flag = '{"v":{"S":"x"}}\n', '{"v":{"N":"1"}}\n', '{"v":{"BOOL":true}}\n'
    (files / "one.json").write_text(text * 3 + number * 2)
    (files / "two.json").write_text(text * 2 + number * 3)
    (files / "three.json").write_text(text * 2 + flag * 3)
    schema("one.json", "--out", files / "schema.json")
    flags = ["--diff", files / "schema.json", "--exit-code"]
    code, shown = schema("two.json", *flags)
    assert (code, shown) == (0, "mixed           v: S string -> N int64\n")
    assert schema("three.json", *flags)[0] == 1
