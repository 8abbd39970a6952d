"""``validate`` of any two of table, export, files and data in memory. Differences are counted, named and shown."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.cli.main import cli
from ddbio.testing import FakeDynamoDB

N_ITEMS = 3_000


def item(number):
    """Return an item. Some have NULL, some an attribute of another type."""
    made = {
        "pk": {"S": f"k{number % 100}"},
        "sk": {"N": str(number)},
        "total": {"N": f"{number}.25"},
        "tags": {"SS": ["a", str(number)]},
        "day": {"S": f"2024-0{number % 3 + 1}-01"},
        "deep": {"M": {"x": {"L": [{"N": "1.50"}, {"NULL": True}]}}},
    }
    if number % 7 == 0:
        made["gone"] = {"NULL": True}
    if number % 11 == 0:
        made["total"] = {"S": "n/a"}
    return made


def lines(items):
    """Return items as export lines."""
    return b"".join(json.dumps({"Item": item}).encode() + b"\n" for item in items)


@pytest.fixture(scope="module")
def server():
    """Serve a table, and a second one with one changed, one missing and one new item."""
    with FakeDynamoDB() as fake:
        items = [item(number) for number in range(N_ITEMS)]
        fake.load("orders", lines(items), "pk:S,sk:N")
        items[1234]["total"] = {"N": "0.1"}
        fake.load("copied", lines([*items[1:], item(N_ITEMS)]), "pk:S,sk:N")
        yield fake


@pytest.fixture(scope="module")
def at(server):
    """Return the endpoint options of the tables."""
    return {"endpoint_url": server.endpoint_url}


@pytest.fixture(scope="module")
def folders(at, tmp_path_factory):
    """Scan the table to Parquet, to Parquet that keeps NULL, and to an export."""
    root = tmp_path_factory.mktemp("sides")
    ddbio.scan_to_files("orders", root / "merged", engine="local", **at)
    ddbio.scan_to_files("orders", root / "kept", engine="local", nulls="keep", **at)
    ddbio.scan_to_files("orders", root / "exported", engine="local", format="dynamodb-export", **at)
    export = next(path.parent for path in (root / "exported").rglob("manifest-summary.json"))
    return {"merged": root / "merged", "kept": root / "kept", "export": export}


@pytest.mark.parametrize(("kind", "nulls"), [("merged", "merge"), ("kept", "keep"), ("export", "keep")])
def test_a_table_equals_what_was_scanned_of_it(at, folders, kind, nulls):
    """Files are compared with the table by their items alone, and their manifest records whether they keep NULL."""
    report = ddbio.validate("orders", folders[kind], **at)
    assert report.equal
    assert report.passed
    assert (report.source_rows, report.target_rows, report.nulls) == (N_ITEMS, N_ITEMS, nulls)
    assert report.source_digest == report.target_digest
    assert (report.missing, report.extra, report.different, report.examples) == (0, 0, 0, ())
    assert report.key == ("pk", "sk")


@pytest.mark.parametrize("form", ["parquet", "orc", "avro", "csv", "json"])
@pytest.mark.parametrize("by", ["day", "year(day)"])
def test_a_table_equals_its_files_of_every_format_and_partitioning(at, tmp_path, form, by):
    """Types come from the manifest if the format has none. Parts of times are not attributes."""
    ddbio.scan_to_files("orders", tmp_path, format=form, partition_by=by, engine="local", **at)
    report = ddbio.validate("orders", tmp_path, **at)
    assert (report.equal, report.target_rows) == (True, N_ITEMS)


def test_a_replaced_file_is_read_in_its_current_state(at, tmp_path):
    """One value changed in place is detected, in Parquet and in text, even if sizes differ from the manifest's."""
    for form in ("parquet", "csv"):
        folder = tmp_path / form
        ddbio.scan_to_files("orders", folder, format=form, compression="none", engine="local", **at)
        (path,) = folder.glob(f"*.{form}")
        if form == "csv":
            text = path.read_text("utf-8")
            assert text.count("1234.25") == 1
            path.write_text(text.replace("1234.25", "34.25"), "utf-8")
        else:
            table = pq.read_table(path)
            index = table.schema.get_field_index("total")
            values = [value + 1 if value == Decimal("1234.25") else value for value in table["total"].to_pylist()]
            field = table.schema.field("total")
            pq.write_table(table.set_column(index, field, pa.array(values, field.type)), path)
        report = ddbio.validate("orders", folder, **at)
        assert (report.missing, report.extra, report.different) == (0, 0, 1)
        assert report.examples[0].key["sk"] == {"N": "1234"}
        assert ddbio.layout(folder).bytes == path.stat().st_size


def test_files_equal_an_export_and_data_in_memory(at, folders):
    """Two sides need no table if one has a recorded key."""
    assert ddbio.validate(folders["export"], folders["kept"], nulls="keep").equal
    table = ddbio.read_table("orders", **at)
    assert ddbio.validate(table, folders["merged"]).equal
    assert ddbio.validate(table.to_batches()[0], table, key="pk,sk").equal is (
        table.num_rows == len(table.to_batches()[0])
    )
    with pytest.raises(ddbio.OptionError, match="give key"):
        ddbio.validate(table, table)


def test_two_tables_differ_by_named_keys(at):
    """One changed, one missing and one new item are counted, and shown with both sides."""
    report = ddbio.validate("orders", "copied", **at)
    assert not report.equal
    assert (report.missing, report.extra, report.different) == (1, 1, 1)
    shown = {example.kind: example for example in report.examples}
    assert shown["different"].key == {"pk": {"S": "k34"}, "sk": {"N": "1234"}}
    assert shown["different"].source["total"] == {"N": "1234.25"}
    assert shown["different"].target["total"] == {"N": "0.1"}
    assert (shown["missing"].key["sk"], shown["missing"].target) == ({"N": "0"}, None)
    assert (shown["extra"].key["sk"], shown["extra"].source) == ({"N": str(N_ITEMS)}, None)
    assert shown["missing"].source["gone"] == {"NULL": True}
    once = ddbio.validate("orders", "copied", examples=0, **at)
    assert (once.missing, once.examples) == (1, ())
    assert once.rcu_consumed < 0.7 * report.rcu_consumed


def test_null_and_missing_differ_only_if_they_are_kept(at):
    """A side without NULLs equals the table unless NULL must be kept."""
    table = ddbio.read_table("orders", **at)
    assert ddbio.validate("orders", table, **at).equal
    assert ddbio.validate("orders", table, nulls="keep", **at).different == len(range(0, N_ITEMS, 7))


def test_different_columns_are_reported(at, folders, tmp_path):
    """The report has an attribute that only one side has, one of another type, and repeated keys."""
    table = pq.read_table(next(folders["merged"].glob("*.parquet")))
    index = table.schema.get_field_index("sk")
    texts = pa.array([str(value) for value in table["sk"].to_pylist()])
    changed = table.set_column(index, "sk", texts).append_column("more", pa.array([None, *["x"] * (len(table) - 1)]))
    report = ddbio.validate(table, changed, key="pk,sk")
    assert {
        column.name: (column.source[:1] if column.source else None, column.target) for column in report.columns
    } == {
        "more": (None, "S (string)"),
        "sk": ("N", "S (string)"),
    }
    assert (report.missing, report.extra) == (len(table), len(table))
    again = ddbio.validate(table, pa.concat_tables([table, table.slice(0, 3)]), key="pk,sk")
    assert (again.target_repeated, again.extra, again.different) == (3, 3, 0)


def test_a_sample_takes_the_same_keys_of_both_sides(at, folders):
    """The same share of the keys of both sides is compared."""
    report = ddbio.validate("orders", folders["merged"], sample=0.2, **at)
    assert report.equal
    assert 0.1 < report.source_rows / N_ITEMS < 0.3


def test_the_plan_states_both_readings(at, folders, tmp_path):
    """The plan has each side's size and the units of one pass, and of two if examples are requested."""
    plan = ddbio.plan_validate("orders", folders["merged"], rcu_per_second=50, **at)
    assert (plan.source.kind, plan.target.kind, plan.target.rows) == ("table", "files", N_ITEMS)
    assert plan.source.rcu_per_second == 50
    assert plan.most_units == 2 * plan.estimated_units > 0
    assert plan.estimated_seconds == pytest.approx(plan.estimated_units / 50)
    assert ddbio.plan_validate("orders", "copied", examples=0, **at).most_units == pytest.approx(
        2 * plan.estimated_units, 0.1
    )


def test_rules_are_evaluated_in_the_same_pass(at, folders, tmp_path):
    """Rules of columns, keys and rows are counted with examples. With a target they apply to the target."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "columns:\n  pk: {regex: 'k[0-9]+', unique: true}\n  total: {range: {min: 1, max: 1e6}}\nunique: [pk, sk]\n"
        "row_count: {min: 1, max: 100}\n"
    )
    report = ddbio.validate("orders", rules=str(rules), examples=1, **at)
    assert (report.equal, report.target, report.rules_passed, report.passed) == (None, None, False, False)
    results = {(result.column, result.rule.partition(":")[0]): result for result in report.rules}
    assert results["pk", "regex"].passed
    assert results["pk", "unique"].failures == N_ITEMS - 100
    assert results["pk, sk", "unique"].passed
    assert results[None, "row_count"].failures == 1
    # Values of another type are also out of range.
    out_of_range = results["total", "range"]
    assert out_of_range.failures == 1 + len(range(11, N_ITEMS, 11))
    assert len(out_of_range.examples) == 1
    assert set(out_of_range.examples[0]["key"]) == {"pk", "sk"}
    both = ddbio.validate("copied", folders["merged"], rules=str(rules), **at)
    assert (both.equal, len(both.rules)) == (False, 5)


def test_rules_of_other_peoples_files_need_no_key(tmp_path):
    """Without a key, a row that is equal to an earlier one is repeated."""
    rules, path = tmp_path / "rules.yaml", tmp_path / "rows.parquet"
    rules.write_text("columns: {a: {not_null: true}}\n")
    pq.write_table(pa.table({"a": ["x", None, "x"]}), path)
    report = ddbio.validate(path, rules=str(rules))
    assert (report.key, report.source_repeated, report.rules[0].failures) == ((), 1, 1)


@pytest.mark.parametrize(("rule", "exit_code"), [("not_null: true", 1), ("unique: false", 0)])
def test_the_command_exits_by_its_rules(tmp_path, rule, exit_code):
    """Without a second side, a broken rule ends the command with exit code 1."""
    rules, path = tmp_path / "rules.yaml", tmp_path / "rows.parquet"
    rules.write_text(f"columns: {{a: {{{rule}}}}}\n")
    pq.write_table(pa.table({"a": ["x", None]}), path)
    done = CliRunner().invoke(cli, ["validate", str(path), "--rules", str(rules), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["equal"]) == (exit_code, None)


def test_lines_of_dynamodb_json_equal_the_table(at, tmp_path):
    """A file of bare items is a side like any other. NULL is in both."""
    path = tmp_path / "items.jsonl"
    path.write_bytes(b"".join(json.dumps(item(number)).encode() + b"\n" for number in range(N_ITEMS)))
    assert ddbio.validate("orders", path, **at).equal


def test_misfits_are_those_of_one_reading(at, folders):
    """Values that fit no column are reported once, even if a second pass reads the examples."""
    report = ddbio.validate("copied", folders["merged"], **at)
    assert report.different == 1
    assert sum(misfit.count for misfit in report.misfits if misfit.path == "total") == len(range(11, N_ITEMS, 11))


def test_command_prints_keys_and_exits_by_the_result(server, folders, tmp_path):
    """Exit code 0 means equal, 1 not, 2 wrong usage; the JSON has the keys that scripts rely on; a page is written."""
    flags, page = ["--endpoint-url", server.endpoint_url], tmp_path / "page.html"
    equal = CliRunner().invoke(cli, ["validate", "orders", str(folders["merged"]), "--json", *flags])
    assert (equal.exit_code, json.loads(equal.stdout)["equal"]) == (0, True)
    differ = CliRunner().invoke(cli, ["validate", "orders", "copied", "--json", "--html", str(page), *flags])
    values = json.loads(differ.stdout)
    assert differ.exit_code == 1
    names = ("equal", "source_rows", "target_rows", "missing", "extra", "different")
    assert {name: values[name] for name in names} == {
        "equal": False, "source_rows": N_ITEMS, "target_rows": N_ITEMS, "missing": 1, "extra": 1, "different": 1,
    }  # fmt: skip
    assert all({"key", "source", "target"} <= set(example) for example in values["examples"])
    assert "FAILED" in page.read_text("utf-8")
    shown = CliRunner().invoke(cli, ["validate", "orders", "copied", *flags])
    assert "1 missing, 1 extra, 1 different" in shown.stdout
    for command in (["plan", "validate", "orders", "copied"], ["validate", "orders", "copied", "--dry-run"]):
        plan = CliRunner().invoke(cli, [*command, "--json", *flags])
        assert json.loads(plan.stdout)["key"] == ["pk", "sk"]
    assert CliRunner().invoke(cli, ["validate", "orders", *flags]).exit_code == 2


@pytest.mark.parametrize("count", [150_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_one_changed_value_is_found_and_named(count):
    """Among many rows, the one whose last digit differs is named, with both values."""
    keys, values = [f"key-{number}" for number in range(count)], list(range(count))
    source = pa.table({"pk": keys, "n": pa.array([Decimal(value) for value in values], pa.decimal128(38, 5))})
    values[123_456] += 1
    target = pa.table({"n": values, "pk": keys})
    report = ddbio.validate(source, target, key="pk")
    assert (report.missing, report.extra, report.different) == (0, 0, 1)
    (example,) = report.examples
    assert example.key == {"pk": {"S": "key-123456"}}
    assert (example.source["n"], example.target["n"]) == ({"N": "123456"}, {"N": "123457"})


def test_a_missing_attribute_does_not_break_unique(tmp_path):
    """Like a NULL, a missing value breaks no rule except not_null."""
    (tmp_path / "rules.yaml").write_text("columns: {gone: {unique: true}}\nunique: [pk, gone]\n")
    report = ddbio.validate(pa.table({"pk": ["a", "a"]}), rules=str(tmp_path / "rules.yaml"))
    assert [(result.column, result.failures) for result in report.rules] == [("gone", 0), ("pk, gone", 0)]


def test_a_side_is_read_again_only_for_items_that_it_holds(at):
    """Rows that a table lacks are not searched in it, but a key that is repeated on the other side is."""
    rows = ddbio.read_table("copied", **at)
    few = rows.slice(0, 10)
    once = ddbio.validate(few, "copied", examples=0, **at)
    lacking = pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "pk", pa.array(["new"]))])
    report = ddbio.validate(lacking, "copied", **at)
    assert (report.missing, report.extra, report.different) == (1, 0, 0)
    assert report.examples[0].source is not None
    assert report.examples[0].target is None
    assert report.rcu_consumed == once.rcu_consumed
    twice = ddbio.validate(pa.concat_tables([rows, few.slice(0, 1)]), "copied", **at)
    assert (twice.missing, twice.source_repeated) == (1, 1)
    assert twice.examples[0].source == twice.examples[0].target
