"""Rows as Python dictionaries."""

import json
from decimal import Decimal

import boto3
import pandas as pd
import pyarrow as pa
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB


@pytest.fixture
def server():
    """Serve an empty table."""
    with FakeDynamoDB() as fake:
        fake.load("orders", b"", "pk:S")
        yield fake


def written(server, data):
    """Write rows. Return the table's items by key, without missing attributes."""
    ddbio.write_table(data, "orders", endpoint_url=server.endpoint_url)
    rows = ddbio.read_table("orders", endpoint_url=server.endpoint_url).to_pylist()
    return {row.pop("pk"): {name: value for name, value in row.items() if value is not None} for row in rows}


def test_a_list_of_dictionaries_is_rows(server):
    """Each row has its own attributes. Numbers are exact. None is missing."""
    rows = [
        {"pk": "a", "n": Decimal("12345678901234567890.25"), "m": {"x": 1}},
        {"pk": "b", "late": True, "n": None, "l": ["u", "v"]},
    ]
    assert written(server, rows) == {"a": {"n": Decimal("12345678901234567890.25"), "m": {"x": 1}}, "b": {"late": True, "l": ["u", "v"]}}  # fmt: skip # noqa: E501


@pytest.mark.parametrize(
    "rows", [{"pk": ["a", "b"], "n": [1, 2]}, ({"pk": pk, "n": n} for pk, n in (("a", 1), ("b", 2)))]
)
def test_columns_and_generators_are_rows_too(server, rows):
    """A dictionary of lists has columns. Any iterable of dictionaries has rows."""
    assert written(server, rows) == {"a": {"n": 1}, "b": {"n": 2}}


def test_sets_are_sets(server):
    """Python's sets are DynamoDB's sets, typed by their values."""
    rows = [{"pk": "a", "s": {"u"}, "n": {1, 2}, "b": frozenset({b"x"})}]
    ddbio.write_table(rows, "orders", endpoint_url=server.endpoint_url)
    schema = ddbio.infer_schema("orders", endpoint_url=server.endpoint_url)
    types = {field.name: field.metadata[b"ddb:type"] for field in schema.to_arrow() if field.metadata}
    assert (types["s"], types["n"], types["b"]) == (b"SS", b"NS", b"BS")


HALF = "\ud800"
BAD = {
    "float": [{"pk": "b", "v": float("nan")}],
    "digits": [{"pk": "b", "v": 10**39 + 1}],
    "bits": [{"pk": "b", "v": 10**5000}],
    "decimal": [{"pk": "b", "v": Decimal("Infinity")}],
    "no type": [{"pk": "b", "v": 1j}],
    "within a list": [{"pk": "b", "v": [1, {"x": object()}]}],
    "mixed set": [{"pk": "b", "v": {b"x", "y"}}],
    "empty set": [{"pk": "b", "v": set()}],
    "no text": [{"pk": "b", "v": HALF}],
    "empty name": [{"pk": "b", "": 1}],
    "number as name": [{"pk": "b", 1: 1}],
    "name within a map": [{"pk": "b", "v": {"": 1}}],
    "key": [{"pk": 1}],
    "no key": [{"v": 1}],
    "key that is no number": [{"pk": float("nan")}],
}


@pytest.mark.parametrize("mode", ["upsert", "update"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_value_rejects_only_its_row(server, tmp_path, case, mode):
    """The rows before and after are written. Without reject_to the error has the row."""
    options = {"endpoint_url": server.endpoint_url, "mode": mode}
    for good in (1, "text"):
        rows = [{"pk": "a", "v": good}, *BAD[case], {"pk": "c", "v": good}]
        report = ddbio.write_table(rows, "orders", reject_to=str(tmp_path), **options)
        assert (report.written, report.rejected) == (2, 1)
    [path, _] = tmp_path.glob("*.jsonl")
    reject = json.loads(path.read_text())
    assert reject["row"] == 1
    assert "key" in case or reject["item"]["pk"] == {"S": "b"}
    with pytest.raises(ddbio.PartialWriteError, match=r"^row 1 cannot be written.*" + ("pk" if "key" in case else "")):
        ddbio.write_table(rows, "orders", **options)


def test_columns_and_frames_take_the_same_values(server, tmp_path):
    """Lists by column, and object columns of a data frame, are also serialized value by value."""
    columns = {"pk": ["a", "b", "c"], "v": [10**20, "x", 1j], "w": [None, b"x", [1]]}
    options = {"endpoint_url": server.endpoint_url, "reject_to": str(tmp_path)}
    for data in (columns, pd.DataFrame(columns), pd.DataFrame(columns).set_index("pk")):
        report = ddbio.write_table(data, "orders", **options)
        assert (report.written, report.rejected) == (2, 1)
        client = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
        rows = client.scan(TableName="orders")["Items"]
        assert sorted(rows, key=str) == [
            {"pk": {"S": "a"}, "v": {"N": str(10**20)}},
            {"pk": {"S": "b"}, "v": {"S": "x"}, "w": {"B": b"x"}},
        ]


@pytest.mark.parametrize("between", [0, 10_001])
@pytest.mark.parametrize("as_columns", [False, True])
def test_an_update_keeps_attributes_that_a_dictionary_lacks(server, between, as_columns):
    """None removes an attribute. Attributes of other rows have no effect. A dictionary of columns has every value."""
    options = {"endpoint_url": server.endpoint_url}
    ddbio.write_table([{"pk": "a", "x": 0, "y": 0, "z": 0}], "orders", **options)
    rows = [{"pk": "a", "x": 1, "z": None}, *({"pk": f"f{n}"} for n in range(between)), {"pk": "b", "y": 2}]
    names = {"pk": None, "x": None, "y": None, "z": None}
    data = {name: [row.get(name) for row in rows] for name in names} if as_columns else iter(rows)
    ddbio.write_table(data, "orders", mode="update", **options)
    actual = boto3.client("dynamodb", endpoint_url=server.endpoint_url).get_item(
        TableName="orders", Key={"pk": {"S": "a"}}
    )
    assert actual["Item"] == {"pk": {"S": "a"}, "x": {"N": "1"}, **({} if as_columns else {"y": {"N": "0"}})}


FRAME = pa.table({"pk": ["a"], "expires_at": pa.array([0], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"pk": ["a"], "n": [1, 2]}, {}, "make no table"),
        ({"pk": "a", "n": 1}, {}, r"column 'pk' is a str, not a list .* \[{…}\]"),
        ({1: ["a"]}, {}, "column 1: a name is text"),
        ([{}], {}, "the rows have no column 'pk'"),
        ([{"v": 1}], {}, "the rows have no column 'pk'"),
        (FRAME, {"timestamps": "expire_at=epoch_s"}, "expire_at: .*did you mean 'expires_at'"),
        (FRAME.to_batches(), {"timestamps": "expire_at=epoch_s"}, "did you mean 'expires_at'"),
        (FRAME.to_pylist(), {"timestamps": "ttl=iso"}, "ttl: .* known are expires_at, pk"),
        (FRAME.to_pandas(), {"timestamps": "ttl=iso"}, "ttl: .* known are expires_at, pk"),
        ({"pk": ["a"]}, {"timestamps": "ttl=iso"}, "known are pk"),
    ],
)
def test_invalid_columns_are_an_error(server, data, options, message):
    """The error has the column, and nothing is written."""
    with pytest.raises(ddbio.SchemaError, match=message):
        ddbio.write_table(data, "orders", endpoint_url=server.endpoint_url, **options)
    assert server.consumed("orders") == []
