"""Updates from JSON: a null member removes its attribute, a missing one leaves it unchanged."""

import json

import pyarrow as pa
import pytest

import ddbio
from tests.load.test_text_columns import items, load, server, table  # noqa: F401 - fixtures

BEFORE = {"v": {"N": "1"}, "w": {"S": "old"}, "A": {"N": "0"}, "a": {"N": "0"}, "other": {"S": "kept"}}


@pytest.fixture
def filled(table):  # noqa: F811 - the fixture
    """Return a table with a few items."""
    rows = pa.table({"pk": list("abcde"), "v": [1] * 5, "w": ["old"] * 5, "other": ["kept"] * 5, "A": [0] * 5})
    ddbio.write_table(rows.append_column("a", pa.array([0] * 5)), table[0], **table[1])
    assert set(items(table)) == set("abcde")
    return table


def lines(*rows):
    """Return rows as JSON Lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def without(*names, **values):
    """Return the original item without some attributes and with others."""
    return {name: value for name, value in {**BEFORE, **values}.items() if name not in names}


ROWS = [
    {"pk": "a", "v": 2},
    {"pk": "b", "v": None, "w": "new"},
    {"pk": "c", "w": None, "none": None},
    {"pk": "d"},
    {"pk": "e", "v": None, "w": None},
    {"pk": "f", "v": 7},
]
EXPECTED = {
    "a": without(v={"N": "2"}),
    "b": without("v", w={"S": "new"}),
    "c": without("w"),
    "d": BEFORE,
    "e": without("v", "w"),
    "f": {"v": {"N": "7"}},
}
# The longer number is read exactly, a text among numbers is rescued, and names in two cases have two columns.
EXACT = {"long": {"n": 12345678901234567890123}, "rescued": {"v": "text", "new": [None]}, "cases": {"A": 9, "a": None}}


def test_plain_json(filled, tmp_path):
    """Attributes of a row are set, its nulls are removed, and all others are kept."""
    (tmp_path / "rows.jsonl").write_text(lines(*ROWS))
    assert load(filled, tmp_path, mode="update").written == 6
    assert items(filled) == EXPECTED


@pytest.mark.parametrize("odd", EXACT)
def test_plain_json_that_is_read_exactly(filled, tmp_path, odd):
    """The same holds for rows that Arrow does not read, with attributes in addition to their columns."""
    (tmp_path / "rows.jsonl").write_text(lines(*ROWS, {"pk": "d", **EXACT[odd]}))
    load(filled, tmp_path, mode="update")
    new = {
        "long": without(n={"N": "12345678901234567890123"}),
        "rescued": without(v={"S": "text"}, new={"L": [{"NULL": True}]}),
        "cases": without("a", A={"N": "9"}),
    }
    assert items(filled) == {**EXPECTED, "d": new[odd]}


@pytest.mark.parametrize("options", [{"types": "v=string,w=json"}, {"json_format": "plain"}])
def test_declared_columns(filled, tmp_path, options):
    """Declared columns do not change this."""
    (tmp_path / "rows.jsonl").write_text(lines({"pk": "a", "v": 2}, {"pk": "b", "w": None}, {"pk": "c", "v": None}))
    load(filled, tmp_path, mode="update", **options)
    v = {"S": "2"} if "types" in options else {"N": "2"}
    assert items(filled) == dict.fromkeys("de", BEFORE) | {"a": without(v=v), "b": without("w"), "c": without("v")}


def test_rows_without_nulls_remove_nothing(filled, tmp_path):
    """Rows with missing members need no separate files."""
    (tmp_path / "rows.jsonl").write_text(lines({"pk": "a", "v": 2}, {"pk": "b", "w": "null"}))
    load(filled, tmp_path, mode="update")
    assert items(filled) == dict.fromkeys("cde", BEFORE) | {"a": without(v={"N": "2"}), "b": without(w={"S": "null"})}


def test_a_bad_value_of_another_row_changes_nothing(filled, tmp_path):
    """A null removes its attribute also if another row of the piece is rejected, and no row has a value for it."""
    (tmp_path / "rows").mkdir()
    rows = f'{lines({"pk": "a", "v": None, "w": "new"}, {"pk": "b", "w": None})}{{"pk":"c","other":1e400}}\n'
    (tmp_path / "rows/rows.jsonl").write_text(rows)
    report = load(filled, tmp_path / "rows", mode="update", reject_to=str(tmp_path / "bad"))
    assert (report.written, report.rejected) == (2, 1)
    changed = {"a": without("v", w={"S": "new"}), "b": without("w")}
    assert items(filled) == dict.fromkeys("cde", BEFORE) | changed


def test_dynamodb_json(filled, tmp_path):
    """A NULL is a value that is set. Missing attributes are kept."""
    rows = [{"pk": {"S": "a"}, "v": {"NULL": True}}, {"pk": {"S": "b"}, "w": {"S": "new"}}, {"pk": {"S": "c"}}]
    (tmp_path / "rows.jsonl").write_text(lines(*rows))
    load(filled, tmp_path, mode="update")
    assert items(filled) == dict.fromkeys("cde", BEFORE) | {"a": without("v"), "b": without(w={"S": "new"})}
    kept = ddbio.read_table(filled[0], **filled[1], nulls="keep").to_pylist()
    assert {row["pk"]: row["_rescue"] for row in kept} == dict.fromkeys("bcde") | {"a": '{"v":{"NULL":true}}'}


def test_operations_and_versions(filled, tmp_path):
    """Updates among other operations do the same, also with a condition. A put has no null."""
    rows = [
        {"pk": "a", "op": "update", "v": 2, "w": None},
        {"pk": "b", "op": "update", "v": 0, "w": None},
        {"pk": "c", "op": "put", "v": 2, "w": None},
        {"pk": "d", "op": "delete", "v": 2},
        {"pk": "e", "op": "update", "v": 2, "more": 1.5},
    ]
    (tmp_path / "rows.jsonl").write_text(lines(*rows))
    report = load(filled, tmp_path, operation_by="op", newer_by="v")
    assert (report.written, report.skipped) == (4, 1)
    assert items(filled) == {
        "a": without("w", v={"N": "2"}),
        "b": BEFORE,
        "c": {"v": {"N": "2"}},
        "e": without(v={"N": "2"}, more={"N": "1.5"}),
    }


def test_rows_of_a_key_keep_their_order(filled, tmp_path):
    """Each row is a separate update, after those before it."""
    rows = [{"pk": "a", "v": number} if number % 3 else {"pk": "a", "w": None, "v": None} for number in range(300)]
    (tmp_path / "rows.jsonl").write_text(lines(*rows, {"pk": "a", "w": "last"}))
    assert load(filled, tmp_path, mode="update").written == 301
    assert items(filled)["a"] == without(v={"N": "299"}, w={"S": "last"})


def test_rejected_rows_keep_their_content(filled, tmp_path):
    """A null is NULL in the reject, a missing member is missing. A retry has the effect of the original row."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/rows.jsonl").write_text(lines({"pk": "", "v": None}, {"pk": "a", "w": "x"}))
    assert load(filled, tmp_path / "rows", mode="update", reject_to=str(tmp_path / "bad")).rejected == 1
    [path] = (tmp_path / "bad").glob("*.jsonl")
    reject = json.loads(path.read_text())
    assert reject["item"] == {"pk": {"S": ""}, "v": {"NULL": True}}
    reject["item"]["pk"] = {"S": "b"}
    path.write_text(json.dumps(reject))
    load(filled, tmp_path / "bad", mode="update", retry_rejects=True)
    assert items(filled)["b"] == without("v")


def test_csv_cells_are_present(filled, tmp_path):
    """A record of CSV has all cells. An empty one removes its attribute."""
    (tmp_path / "rows.csv").write_text("pk,v,w\na,2,\nb,,\n")
    load(filled, tmp_path, mode="update", types="w=number")
    assert items(filled) == dict.fromkeys("cde", BEFORE) | {"a": without("w", v={"N": "2"}), "b": without("v", "w")}


def test_an_attribute_may_have_the_name_of_the_column(filled, tmp_path):
    """The internal column of nulls gets another name than the attributes."""
    (tmp_path / "rows.jsonl").write_text(lines({"pk": "a", "_nulls": "x", "v": None}, {"pk": "b", "_nulls_": 1}))
    load(filled, tmp_path, mode="update")
    actual = items(filled)
    assert (actual["a"], actual["b"]) == (without("v", _nulls={"S": "x"}), without(_nulls_={"N": "1"}))
