"""Effects of each mode when it runs once, repeatedly, and in parallel with another writer; see docs/load.md."""

import json

import boto3
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import OptionError, SchemaError
from ddbio.testing import FakeDynamoDB
from ddbio.testing.faults import Faults


@pytest.fixture
def server():
    """Serve one empty table ``rows`` with the key pk."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S")
        yield running


@pytest.fixture
def write(server):
    """Return a function that writes columns into the table."""

    def run(columns, **options):
        return ddbio.write_table(pa.table(columns), "rows", endpoint_url=server.endpoint_url, lanes=3, **options)

    return run


@pytest.fixture
def stored(server):
    """Return a function that returns the table's items by key, without nulls."""

    def read():
        rows = ddbio.read_table("rows", endpoint_url=server.endpoint_url).to_pylist()
        return {row.pop("pk"): {name: value for name, value in row.items() if value is not None} for row in rows}

    return read


def test_upsert_replaces_and_repeats(write, stored):
    """A put replaces the item. Written twice, the final state is the same, and the cost is doubled."""
    write({"pk": ["a"], "v": [1], "old": [1]})
    first, second = write({"pk": ["a", "b"], "v": [2, 3]}), write({"pk": ["a", "b"], "v": [2, 3]})
    assert stored() == {"a": {"v": 2}, "b": {"v": 3}}
    assert (first.written, second.written, second.skipped, second.wcu_consumed) == (2, 2, 0, 2)


def test_newer_by_keeps_the_newest(write, stored):
    """An older or equal row is skipped, a newer one replaces the item, and a missing item is put."""
    write({"pk": ["a", "b", "c"], "version": [5, 5, 5], "v": [0, 0, 0]})
    report = write({"pk": ["a", "b", "c", "d"], "version": [4, 5, 6, 1], "v": [1, 1, 1, 1]}, newer_by="version")
    assert (report.written, report.skipped) == (2, 2)
    assert {key: row["v"] for key, row in stored().items()} == {"a": 0, "b": 0, "c": 1, "d": 1}
    again = write({"pk": ["a", "b", "c", "d"], "version": [4, 5, 6, 1], "v": [1, 1, 1, 1]}, newer_by="version")
    assert (again.written, again.skipped) == (0, 4)
    assert again.wcu_consumed >= 4


def test_newer_by_orders_rows_of_one_load(write, stored):
    """Rows of one key in any order result in the newest."""
    write({"pk": ["a"] * 50, "version": [(n * 7) % 50 for n in range(50)]}, newer_by="version")
    assert stored() == {"a": {"version": 49}}


def test_a_row_without_the_compared_value_is_rejected(write, tmp_path):
    """A missing value to compare rejects the row with this reason."""
    report = write({"pk": ["a", "b"], "version": [1, None]}, newer_by="version", reject_to=str(tmp_path))
    assert (report.written, report.rejected) == (1, 1)


@pytest.mark.parametrize("columns", [{"version": [None, 1]}, {"version": [None, 1], "op": ["update", "update"]}, {}])
def test_a_value_to_compare_may_be_rescued(write, item, columns):
    """A rescued version, or one without a column, is also compared."""
    write({"pk": ["a"], "version": ["m"]})
    options = {"newer_by": "version"} | ({"operation_by": "op"} if "op" in columns else {})
    rescued = ['{"version":{"S":"n"}}', None if columns else '{"version":{"N":"1"}}']
    report = write({"pk": ["a", "b"], **columns, "_rescue": rescued}, **options)
    assert (report.written, item("a"), item("b")) == (2, {"version": {"S": "n"}}, {"version": {"N": "1"}})
    older = {"pk": ["a"], "_rescue": ['{"version":{"S":"l"}}']}
    assert write(older, newer_by="version").skipped == 1
    assert write(older, newer_by="version", mode="delete").skipped == 1
    assert item("a") == {"version": {"S": "n"}}


@pytest.mark.parametrize("options", [{}, {"operation_by": "op"}, {"mode": "delete"}])
def test_versions_and_keys_are_attributes_not_columns(write, item, options):
    """Key and version may be in columns with other names. The attribute's name counts."""
    write({"pk": ["a"], "V": [5], "v": [0]})
    fields = [("p", pa.string(), "pk"), ("v", pa.int64(), "v"), ("v_1", pa.int64(), "V"), ("op", pa.string(), "op")]
    schema = pa.schema([pa.field(name, kind, metadata={"ddb:name": attribute}) for name, kind, attribute in fields])
    table = pa.table({"p": ["a"], "v": [9], "v_1": [4], "op": ["update"]}, schema)
    report = write(table, newer_by="V", **options)
    assert (report.skipped, item("a")) == (1, {"V": {"N": "5"}, "v": {"N": "0"}})


def test_create_puts_only_absent_items(write, stored):
    """The first row wins. An existing item is skipped and unchanged, also when the job is repeated."""
    write({"pk": ["a"], "v": [1]})
    report = write({"pk": ["a", "b"], "v": [2, 2]}, mode="create")
    assert (report.written, report.skipped) == (1, 1)
    assert write({"pk": ["a", "b"], "v": [2, 2]}, mode="create").skipped == 2
    assert stored() == {"a": {"v": 1}, "b": {"v": 2}}


def test_delete_repeats_without_effect(write, stored):
    """A delete of a missing item succeeds and costs one unit."""
    write({"pk": ["a", "b"], "v": [1, 2]})
    assert write({"pk": ["a"], "v": [9]}, mode="delete").written == 1
    again = write({"pk": ["a"], "v": [9]}, mode="delete")
    assert (again.written, again.wcu_consumed) == (1, 1)
    assert stored() == {"b": {"v": 2}}


def test_delete_newer_by_spares_newer_items(write, stored):
    """A newer item is not deleted by an older row."""
    write({"pk": ["a", "b"], "version": [5, 5]})
    report = write({"pk": ["a", "b"], "version": [4, 6]}, mode="delete", newer_by="version")
    assert (report.written, report.skipped, stored()) == (1, 1, {"a": {"version": 5}})


def test_an_item_without_the_compared_attribute_stays(write, stored):
    """An item without a comparable value counts as newer: neither a row nor a delete changes it."""
    write({"pk": ["a"], "v": [1]})
    assert write({"pk": ["a"], "version": [9]}, newer_by="version").skipped == 1
    assert write({"pk": ["a"], "version": [9]}, mode="delete", newer_by="version").skipped == 1
    assert stored() == {"a": {"v": 1}}


def test_a_delete_by_version_repeats_without_effect(write, stored):
    """The second delete has no effect."""
    write({"pk": ["a"], "version": [1]})
    for _ in range(2):
        report = write({"pk": ["a"], "version": [2]}, mode="delete", newer_by="version")
        assert (report.written, stored()) == (1, {})


def test_upsert_and_delete_ask_for_no_version(write, stored):
    """Without newer_by the last request wins, also over a newer item."""
    write({"pk": ["a", "b"], "version": [9, 9]})
    write({"pk": ["a"], "version": [1]})
    write({"pk": ["b"], "version": [1]}, mode="delete")
    assert stored() == {"a": {"version": 1}}


def test_operations_repeat_to_the_same_end(write, stored):
    """All operations, written twice, have the result of one write."""
    columns = {"pk": ["a", "a", "b", "b"], "op": ["put", "update", "put", "delete"], "v": [1, 2, 3, 4]}
    for _ in range(2):
        assert write(columns, operation_by="op").written == 4
        assert stored() == {"a": {"v": 2}}


def test_a_lost_answer_may_count_as_skipped():
    """If the response to a conditional write is lost, every row is written and counted once."""
    with FakeDynamoDB(faults=Faults(error_after_ratio=0.2, reset_ratio=0.1, seed=5)) as server:
        server.load("rows", b"", "pk:S")
        rows = pa.table({"pk": [f"k{n}" for n in range(200)]})
        report = ddbio.write_table(rows, "rows", mode="create", endpoint_url=server.endpoint_url)
        assert (report.rows, report.written + report.skipped, report.rejected) == (200, 200, 0)
        assert report.skipped > 0
        assert ddbio.read_table("rows", endpoint_url=server.endpoint_url).num_rows == 200


def test_update_changes_only_its_attributes(write, stored):
    """Attributes are set, null ones removed, all others kept. A missing item is created. Two writes are like one."""
    write({"pk": ["a"], "v": [1], "size": [2], "other": ["kept"]})
    for _ in range(2):
        assert write({"pk": ["a", "b"], "v": [9, 8], "size": [None, 7]}, mode="update").written == 2
    assert stored() == {"a": {"v": 9, "other": "kept"}, "b": {"v": 8, "size": 7}}


@pytest.fixture
def item(server):
    """Return a function that gets an item from the service, without its key."""
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")

    def get(key):
        kept = client.get_item(TableName="rows", Key={"pk": {"S": key}})["Item"]
        return {name: value for name, value in kept.items() if name != "pk"}

    return get


def test_update_sets_rescued_attributes(write, item):
    """A rescued value is set like any other, and does not count as missing."""
    write({"pk": ["a", "b"], "v": [1, 2], "w": [1, 2]})
    rescued = ['{"v":{"S":"text"},"late":{"L":[]}}', None]
    for _ in range(2):
        assert write({"pk": ["a", "b"], "v": [None, 5], "_rescue": rescued}, mode="update").written == 2
    assert item("a") == {"v": {"S": "text"}, "late": {"L": []}, "w": {"N": "1"}}
    assert item("b") == {"v": {"N": "5"}, "w": {"N": "2"}}
    assert write({"pk": ["c"], "_rescue": rescued[:1]}, mode="update").written == 1
    assert item("c") == {"v": {"S": "text"}, "late": {"L": []}}


def test_update_writes_attributes_not_columns(write, item):
    """A column whose name differs from its attribute's name sets and removes the attribute."""
    renamed = pa.field("a_1", pa.int64(), metadata={"ddb:name": "A"})
    schema = pa.schema([("pk", pa.string()), renamed, ("a", pa.int64())])
    write(pa.table({"pk": ["k", "l"], "a_1": [1, None], "a": [None, 2]}, schema), mode="update")
    assert (item("k"), item("l")) == ({"A": {"N": "1"}}, {"a": {"N": "2"}})


def test_an_attribute_with_two_values_is_rejected(write, stored, tmp_path):
    """A row with a value in its column and another in the rescue column is rejected unchanged."""
    columns = {"pk": ["a", "b"], "v": [1, 2], "w": [None, 1], "_rescue": ['{"v":{"S":"x"}}', None]}
    report = write(columns, mode="update", reject_to=str(tmp_path))
    assert (report.written, report.rejected, stored()) == (1, 1, {"b": {"v": 2, "w": 1}})
    (path,) = tmp_path.glob("*.jsonl")
    assert json.loads(path.read_text())["rule"] == "duplicate"


def test_a_rejected_update_keeps_rescued_attributes(write, tmp_path):
    """A rescued attribute does not also count as a null of its column."""
    columns = {"pk": ["", "b"], "v": pa.array([None, 2]), "_rescue": ['{"v":{"S":"x"}}', None]}
    assert write(columns, mode="update", reject_to=str(tmp_path)).rejected == 1
    (path,) = tmp_path.glob("*.jsonl")
    assert json.loads(path.read_text())["item"] == {"pk": {"S": ""}, "v": {"S": "x"}}


def test_update_of_keys_alone_makes_items(write, stored):
    """Rows with only a key create items with only a key."""
    assert write({"pk": ["a"]}, mode="update").written == 1
    assert stored() == {"a": {}}


def test_operations_are_mixed_in_the_order_of_each_key(write, stored, server):
    """Put, delete and update of one key are applied in their order. The column itself is not an attribute."""
    operations = ["put", "update", "delete", "put", "update", "delete"]
    columns = {
        "pk": ["a", "a", "b", "b", "b", "c"],
        "op": operations,
        "v": [1, 2, 3, 4, 5, 6],
        "w": [1, None, 1, 1, 1, 1],
    }
    write({"pk": ["c"], "v": [0]})
    assert write(columns, operation_by="op").written == 6
    assert stored() == {"a": {"v": 2}, "b": {"v": 5, "w": 1}}


def test_an_unknown_operation_is_rejected(write, tmp_path):
    """A row with an invalid operation is rejected with its reason. The others are written."""
    report = write({"pk": ["a", "b", "c"], "op": ["put", "merge", None]}, operation_by="op", reject_to=str(tmp_path))
    assert (report.written, report.rejected) == (1, 2)
    (path,) = tmp_path.glob("*.jsonl")
    assert "'merge' is not an operation: use put, delete, update" in path.read_text()


def test_rejected_updates_keep_their_nulls(write, tmp_path):
    """The full row is stored, regardless of the sent part, with a null that would have removed an attribute."""
    report = write({"pk": ["a", ""], "v": [1, 2], "w": [3, None]}, mode="update", reject_to=str(tmp_path))
    assert (report.written, report.rejected) == (1, 1)
    (path,) = tmp_path.glob("*.jsonl")
    assert json.loads(path.read_text())["item"] == {"pk": {"S": ""}, "v": {"N": "2"}, "w": {"NULL": True}}


@pytest.mark.parametrize("name", ["size", "a.b", "#n0", ":v0", "status", "FROM#TO", "_x", "a b", 'q"', "ü"])
def test_no_name_is_mistaken_for_a_word_or_a_path(write, stored, name):
    """Reserved words, dots, signs and quotes in names are names, in conditions and updates."""
    write({"pk": ["a"], name: [1]}, newer_by=name)
    write({"pk": ["a"], name: [2]}, newer_by=name)
    write({"pk": ["b"], name: [3]}, mode="update")
    assert stored() == {"a": {name: 2}, "b": {name: 3}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "create", "newer_by": "v"}, "newer_by does not apply to mode create"),
        ({"mode": "delete", "operation_by": "v"}, "leave mode out"),
        ({"wcu_per_second": 5, "write_ratio": 0.5}, "not both"),
        ({"write_ratio": 0.5}, "states none: give wcu_per_second"),
    ],
)
def test_contradictions_are_refused(write, options, words):
    """Invalid combinations of options, or with this table, are an error before anything is sent."""
    with pytest.raises(OptionError, match=words):
        write({"pk": ["a"], "v": [1]}, **options)


def test_a_column_of_an_option_must_exist(write):
    """A missing attribute of newer_by is an error before anything is sent."""
    with pytest.raises(SchemaError, match="no column 'version'"):
        write({"pk": ["a"]}, newer_by="version")


def test_a_bad_index_key_costs_only_its_row(server, tmp_path):
    """A row that would make the service refuse its batch is rejected before. No batch has to be split."""
    ddbio.create_table("indexed", key="pk:S", gsi="by_mail=mail:S", endpoint_url=server.endpoint_url)
    rows = pa.table({"pk": ["a", "b", "c"], "mail": ["a@x", "", None]})
    report = ddbio.write_table(rows, "indexed", endpoint_url=server.endpoint_url, lanes=1, reject_to=str(tmp_path))
    assert (report.written, report.rejected, report.retries) == (2, 1, 0)
    (kept,) = tmp_path.glob("*.jsonl")
    (line,) = kept.read_text().splitlines()
    assert json.loads(line)["reason"] == "mail: the key of index 'by_mail' is empty: DynamoDB takes no empty key"


def test_operations_obey_newer_by(write, stored, tmp_path):
    """Each operation is applied if the item is absent or older, and skipped if it is newer."""
    write({"pk": list("abcdef"), "version": [5] * 6, "v": [0] * 6, "kept": [1] * 6})
    rows = {
        "pk": ["a", "b", "c", "d", "e", "f", "g"],
        "op": ["put", "put", "delete", "delete", "update", "update", "update"],
        "version": [6, 4, 6, 4, 6, 4, None],
        "v": [1] * 7,
    }
    report = write(rows, operation_by="op", newer_by="version", reject_to=str(tmp_path))
    assert (report.written, report.skipped, report.rejected) == (3, 3, 1)
    old = {"version": 5, "v": 0, "kept": 1}
    assert stored() == {
        "a": {"version": 6, "v": 1},
        "b": old,
        "d": old,
        "e": {"version": 6, "v": 1, "kept": 1},
        "f": old,
    }


def test_many_chunks_are_written_completely(write, stored):
    """Memory is reused between chunks and lanes. Every key ends with its last row, byte by byte."""
    keys = [f"k{number * 7919 % 4000}" for number in range(6000)]
    texts = [f"{number}" * (number % 60) for number in range(6000)]
    assert write({"pk": keys, "text": texts}).written == 6000
    assert {key: row["text"] for key, row in stored().items()} == dict(zip(keys, texts, strict=True))
