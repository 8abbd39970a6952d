"""Selections when an export is read: the same items and attributes as a scan of the service, in all ways of reading."""

from __future__ import annotations

import json
import pickle

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from item_strategies import ITEMS as ITEM_STRATEGY

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.export.selection import ExportSelection
from ddbio.export.tasks import ExportColumns
from ddbio.scan import conditions
from ddbio.scan.matching import predicate_of
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import Change, ExportWriter
from ddbio.testing.expressions.conditions import predicate_of as predicate_of_fake
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.request import Request, stored_item

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ITEMS = [
    {
        "pk": {"S": f"item-{at}"},
        "n": {"N": f"{at}.50"},
        "status": {"S": "open" if at % 3 else "shipped"},
        "tags": {"SS": ["x", f"t{at % 2}"]},
        "numbers": {"NS": ["1", "2.0"]},
        "m": {"M": {"x": {"L": [{"N": f"{at}"}, {"S": "é"}]}}},
        "b": {"B": "AP8="},
        "none": {"NULL": True},
        "flag": {"BOOL": at % 2 == 0},
        **({"rare": {"S": "r"}} if at == 7 else {}),
    }
    for at in range(40)
]

CONDITIONS = [
    "n = 3.5", "n <> 3.50", "n > 10 AND n <= 20.5", "n BETWEEN 3 AND 5", "NOT n BETWEEN 3 AND 5",
    "status = 'open'", "status < 'p'", "status IN ('open', 'lost')", "NOT (status = 'open' OR flag = TRUE)",
    "begins_with(pk, 'item-1')", "begins_with(b, x'00')", "begins_with(n, '1')", "contains(tags, 't1')",
    "contains(numbers, 2)", "contains(m.x, 'é')", "contains(m.x, 5)", "contains(status, 'pen')", "contains(n, 1)",
    "m.x[0] >= 30", "m.x[9] = 1", "m.y.z = 1", "m.x[1] = 'é'", "n.x = 1",
    "rare IS MISSING", "rare IS NOT MISSING", "rare <> 'r'", "none IS NULL", "none = NULL", "absent IS NULL",
    "attribute_type(n, 'N')", "attribute_type(absent, 'S')", "size(tags) = 2", "size(status) > 4", "size(b) = 2",
    "size(m) = 1", "size(n) <> 3", "size(absent) <> 3", "b = x'00ff'", "b > x'00'", "flag = TRUE", "flag > 1",
    "n = '3.5'", "status > 5", "tags = 'x'",
]  # fmt: skip


@pytest.fixture
def home(tmp_path):
    """Return the folder of a full export of the items."""
    return ExportWriter(tmp_path / "in", files=3).full(ITEMS)


@pytest.fixture(scope="module")
def reach():
    """Serve a table of the items, and return the options for it."""
    with FakeDynamoDB() as fake:
        fake.load("tab", ITEMS, "pk:S")
        yield {"endpoint_url": fake.endpoint_url, "region": "us-east-1"}


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_selects_what_a_scan_selects(reach, home, where):
    """The items are those that a scan with the same condition returns."""
    columns = ddbio.infer_schema("tab", **reach)
    expected = ddbio.read_table("tab", where=where, schema=columns, **reach)
    actual = ddbio.read_export(home, where=where, schema=columns)
    assert ddbio.digest(actual) == ddbio.digest(expected)


@given(item=ITEM_STRATEGY, other=ITEM_STRATEGY)
@settings(deadline=None, max_examples=200)
def test_comparisons_agree_with_the_fake(item, other):
    """Each comparison of each scalar of an item with a constant has the result of the independent fake."""
    item, other = stored_item(item)[0], stored_item(other)[0]
    for name, tests in _tests(item, other):
        for comparator in ("=", "<>", "<", "<=", ">", ">="):
            for constant in tests:
                mine = predicate_of(_Comparison(comparator, name, constant).parsed())(item)
                assert mine == _Comparison(comparator, name, constant).by_fake(item), (comparator, name, constant)


def _tests(item, other):
    scalars = [value for value in (*item.values(), *other.values()) if value.keys() & {"S", "N", "B", "BOOL", "NULL"}]
    return [(name, scalars[:6]) for name in item]


class _Comparison:
    """A comparison of an attribute with a constant."""

    def __init__(self, comparator, name, constant):
        self.comparator, self.name, self.constant = comparator, name, constant

    def parsed(self):
        """Return the comparison as a condition of the product."""
        return conditions.Test(self.comparator, (self.name,), (self.constant,))

    def by_fake(self, item):
        """Return the result of the fake, which refuses an order of values without one."""
        if self.comparator not in {"=", "<>"} and self.constant.keys() & {"BOOL", "NULL"}:
            return False
        request = Request(
            {"ExpressionAttributeNames": {"#n": self.name}, "ExpressionAttributeValues": {":v": self.constant}}
        )
        return predicate_of_fake(f"#n {self.comparator} :v", Placeholders(request, has_expression=True))(item)


def test_columns_are_read_without_others(home):
    """The rows have the columns alone: other attributes and their misfits are neither columns nor rescued."""
    rows = ddbio.read_export(home, columns="pk,n,rare", sample_items=3)
    assert rows.schema.names == ["pk", "n", "_rescue"]
    rescued = [text for text in rows["_rescue"].to_pylist() if text]
    assert rescued == ['{"rare":{"S":"r"}}']
    assert rows.num_rows == len(ITEMS)
    typed = ddbio.read_export(home, columns=["pk"], schema=rows.schema, on_misfit="fail")
    assert typed.schema.names == ["pk", "_rescue"]


@pytest.mark.parametrize("nulls", ["merge", "keep"])
def test_columns_without_a_condition_are_decoded_as_with_one(home, tmp_path, nulls):
    """The compiled loops give the rows, rescued values and misfits that a selection of lines gives."""
    options = {"columns": "m,none,numbers,status,pk", "sample_items": 3, "nulls": nulls, "timestamps": "status=iso"}
    reports = [
        ddbio.read_export_to_files(home, tmp_path / name, **options, **where)
        for name, where in (("all", {}), ("some", {"where": "pk IS NOT MISSING"}))
    ]
    compiled, selected = (
        (report.rows, report.rescued, report.merged_nulls, sorted(map(str, report.misfits))) for report in reports
    )
    assert compiled == selected
    assert compiled[1] == len(ITEMS)
    tables = [ddbio.read_export(home, **options, **where) for where in ({}, {"where": "pk IS NOT MISSING"})]
    one, other = (sorted(table.to_pylist(), key=lambda row: row["pk"]) for table in tables)
    assert one == other
    assert tables[0].schema == tables[1].schema


def test_a_misfit_of_a_selected_attribute_can_fail(home):
    """With on_misfit=fail, only selected attributes must fit their columns."""
    options = {"sample_items": 3, "on_misfit": "fail"}
    assert ddbio.read_export(home, columns="pk", **options).num_rows == len(ITEMS)
    with pytest.raises(SchemaError, match="rare"):
        ddbio.read_export(home, columns="pk,rare", **options)


def test_a_selection_becomes_files(home, tmp_path):
    """The report has all verified items and the selected rows. The command line and batches select the same."""
    options = {"where": "n < 5", "columns": "pk,n"}
    report = ddbio.read_export_to_files(home, tmp_path / "out", **options)
    assert (report.items, report.rows, report.rescued) == (40, 5, 0)
    assert sum(batch.num_rows for batch in ddbio.read_export_batches(home, **options)) == 5
    flags = ["--where", "n < 5", "--columns", "pk,n"]
    done = CliRunner().invoke(cli, ["export", "read", str(home), str(tmp_path / "cli"), *flags, "--json"])
    assert (json.loads(done.stdout)["rows"], json.loads(done.stdout)["items"]) == (5, 40)
    done = CliRunner().invoke(cli, ["read", str(home), *flags])
    assert min(done.stdout.splitlines()) == '{"pk":"item-0","n":0.5}'
    assert len(done.stdout.splitlines()) == 5
    plan = ddbio.plan_read_export(home, tmp_path / "out2", **options)
    assert list(plan.columns) == ["pk", "n", "_rescue"]


def test_no_match_is_an_empty_table(home):
    """A condition that no item matches gives no rows, and still verifies all files."""
    assert ddbio.read_export(home, where="pk = 'absent'").num_rows == 0


def changes(tmp_path, view="NEW_AND_OLD_IMAGES"):
    """Return the folder of an incremental export with an insert, an update and a delete."""
    updated = {**ITEMS[4], "status": {"S": "lost"}}
    images = [(ITEMS[1], None), (updated, ITEMS[4]), (None, ITEMS[5])]
    lines = [Change(at, {"pk": (new or old)["pk"]}, new, old) for at, (new, old) in enumerate(images, 1)]
    return ExportWriter(tmp_path / "in", files=1).incremental(lines, view=view)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("status = 'open'", ["item-1", "item-5"]),
        ("status = 'lost'", ["item-4"]),
        ("pk <> 'item-1'", ["item-4", "item-5"]),
    ],
)
def test_changes_are_selected_by_their_latest_image(tmp_path, where, expected):
    """The condition tests the new image, and the old image of a deleted item, as the service does."""
    rows = ddbio.read_export(changes(tmp_path), where=where, columns=["pk", "status"])
    assert sorted(key["pk"] for key in rows["keys"].to_pylist()) == expected
    assert rows.schema.field("new_image").type.names == ["pk", "status"]
    assert rows["_rescue"].null_count == rows.num_rows


def test_changes_without_old_images_are_selected_by_key(tmp_path):
    """A NEW_IMAGE export has only the keys of deleted items. Other conditions and columns without keys are refused."""
    home = changes(tmp_path, "NEW_IMAGE")
    rows = ddbio.read_export(home, where="pk > 'item-2'")
    assert sorted(key["pk"] for key in rows["keys"].to_pylist()) == ["item-4", "item-5"]
    with pytest.raises(OptionError, match="only the keys of deleted items, so 'status'"):
        ddbio.read_export(home, where="pk > 'item-2' AND status = 'open'")
    with pytest.raises(OptionError, match="columns omit pk of the key"):
        ddbio.read_export(home, columns="status")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"where": "n ="}, "the condition"),
        ({"columns": "pk,pk"}, "twice"),
        ({"where": "n = 1", "format": "delta"}, "leave where out"),
        ({"columns": "pk", "format": "iceberg"}, "leave columns out"),
    ],
    ids=str,
)
def test_a_selection_that_is_no_selection_is_refused(home, tmp_path, options, words):
    """Wrong conditions and columns are errors, and a lake table needs all items and attributes."""
    with pytest.raises(OptionError, match=words):
        ddbio.read_export_to_files(home, tmp_path / "out", **options)


def test_a_fold_refuses_a_selection(home, tmp_path):
    """A fold needs all items and attributes of its exports."""
    for options in ({"where": "n = 1"}, {"columns": "pk"}):
        with pytest.raises(OptionError, match="a fold needs all items"):
            ddbio.fold_exports(home, [], **options)
        with pytest.raises(OptionError, match="a fold needs all items"):
            ddbio.fold_exports_to_files(home, [], tmp_path / "out", **options)


@pytest.mark.parametrize("broken", ['{"Item":{"n":{"N":"x"}}}', '{"Item":{"n":5}}', '["n"]', '{"Item":}', "{}"])
def test_a_broken_line_is_an_error_with_its_number(broken):
    """A line that is no item is not left out: the error has its number in the block."""
    block = f'{{"Item":{{"n":{{"N":"1"}}}}}}\n{{"Item":{{"n":{{"N":"9"}}}}}}\n{broken}\n'.encode()
    schema = ddbio.from_dynamodb_json(block.splitlines()[0]).schema
    decoder = ExportColumns(schema, None, ExportSelection("n > 5")).decoder("rescue", "merge")
    with pytest.raises(DecodeError) as caught:
        decoder.decode_batches(block)
    assert caught.value.line == 3


def test_a_selection_is_picklable():
    """Tasks on other machines get the selection after it has been used."""
    selection = ExportSelection("n > 5", ("n",))
    block = b'{"Item":{"n":{"N":"9"},"m":{"N":"1"}}}'
    assert pickle.loads(pickle.dumps(selection)).select(block) == selection.select(block)
    assert pickle.loads(pickle.dumps(selection)).select(block).text == b'{"Item":{"n":{"N":"9"}}}'
