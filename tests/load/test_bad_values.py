"""The same bad value rejects only its row in any format, and the other rows are written."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.testing import FakeDynamoDB

LONG = 1234567890123456789012345678901234567891
NAN = float("nan")


@pytest.fixture(scope="module")
def server():
    """Serve a fake DynamoDB."""
    with FakeDynamoDB() as running:
        yield running


@pytest.fixture
def table(server, request):
    """Return the name of an empty table, and its options."""
    name = f"t{abs(hash(request.node.name))}"
    server.load(name, b"", "id:S")
    return name, {"endpoint_url": server.endpoint_url}


PLAIN = {
    "digits": f'"v":{LONG}',
    "exponent": '"v":1e400',
    "small": '"v":1e-400',
    "exponent of 20 digits": '"v":-1.5e99999999999999999999',
    "small exponent of 20 digits": '"v":1E-99999999999999999999',
    "NaN": '"v":NaN',
    "infinity": '"v":-Infinity',
    "within a list": f'"v":[1,{LONG}]',
    "within a map": '"v":{"a":{"b":NaN}}',
    "empty name": '"":1',
    "empty name within": '"v":{"":1}',
    "half of a pair": '"v":"\\ud800"',
    "half of a pair in a name": '"\\ud800":1',
}
TYPED = {
    "digits": f'"v":{{"N":"{LONG}"}}',
    "exponent": '"v":{"N":"1e400"}',
    "exponent of 20 digits": '"v":{"N":"1e99999999999999999999"}',
    "NaN": '"v":{"N":"NaN"}',
    "no padding": '"v":{"B":"YQ"}',
    "false": '"v":{"NULL":false}',
    "no type": '"v":{"X":"x"}',
    "two types": '"v":{"S":"x","N":"1"}',
    "number as text": '"v":{"N":1}',
    "plain value": '"v":1',
    "empty set": '"v":{"SS":[]}',
    "within a list": '"v":{"L":[{"S":"x"},{"N":"x"}]}',
    "empty name": '"":{"S":"x"}',
    "empty name within": '"v":{"M":{"":{"S":"x"}}}',
    "half of a pair": '"v":{"S":"\\ud800"}',
}


def rejected(table, tmp_path, load, **options):
    """Load rows of which the second is bad, with and without reject_to. Return the reject."""
    name, more = table
    report = load(name, reject_to=str(tmp_path / "bad"), **more, **options)
    assert (report.written, report.rejected) == (2, 1)
    client_rows = ddbio.read_table(name, **more, columns="id").to_pylist()
    assert {row["id"] for row in client_rows} == {"a", "c"}
    with pytest.raises(ddbio.PartialWriteError, match="row 1 cannot be written"):
        load(name, **more, **options)
    [path] = (tmp_path / "bad").glob("*.jsonl")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("mode", "other"), [("upsert", "1"), ("upsert", '"text"'), ("create", "null"), ("update", "1")]
)
@pytest.mark.parametrize("case", PLAIN)
def test_plain_json(table, tmp_path, case, other, mode):
    """It holds next to numbers, texts or nothing, in any mode. The reject has the line and the row."""
    lines = [f'{{"id":"a","v":{other}}}', f'{{"id":"b",{PLAIN[case]}}}', f'{{"id":"c","v":{other}}}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    reject = rejected(
        table, tmp_path, lambda name, **options: ddbio.load_files(tmp_path / "rows.jsonl", name, **options), mode=mode
    )
    assert (reject["line"], reject["item"]["id"]) == (2, {"S": "b"})


@pytest.mark.parametrize("mode", ["upsert", "update"])
@pytest.mark.parametrize("style", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("case", TYPED)
def test_dynamodb_json(table, tmp_path, case, style, mode):
    """Items are written unchanged. An invalid one is rejected with its text."""
    comma, colon = style
    bad = f'{{"id"{colon}{{"S"{colon}"b"}}{comma}{TYPED[case]}}}'
    (tmp_path / "rows.jsonl").write_text('{"id":{"S":"a"}}\n' + bad + '\n{"id":{"S":"c"},"v":{"N":"0E+5"}}\n')
    reject = rejected(
        table, tmp_path, lambda name, **options: ddbio.load_files(tmp_path / "rows.jsonl", name, **options), mode=mode
    )
    assert (reject["line"], reject["item"]["id"]) == (2, {"S": "b"})
    if "half" not in case:
        assert reject["item"] == json.loads(bad)


VALUES = {"digits": LONG, "exponent": Decimal("1e400"), "NaN": NAN, "infinity": float("inf")}


def written_csv(values):
    """Return CSV of values. A word is only a number if the column is declared."""
    out = io.StringIO()
    csv.writer(out).writerows([("id", "v"), *zip("abc", values, strict=True)])
    return out.getvalue()


@pytest.mark.parametrize("how", ["dictionaries", "columns", "arrow", "parquet", "pandas", "polars", "csv", "json"])
@pytest.mark.parametrize("case", VALUES)
def test_invalid_numbers(table, tmp_path, case, how):
    """A number that DynamoDB does not support rejects its row in all formats of rows."""
    values = [1, VALUES[case], 2]
    columns = {"id": ["a", "b", "c"], "v": values}
    typed = pa.table({"id": ["a", "b", "c"], "v": pa.array([str(value) for value in values])})
    field = pa.field("v", pa.string(), metadata={"ddb:type": "N"})
    typed = typed.set_column(1, field, typed.column("v"))

    def load(name, **options):
        if how in {"csv", "json", "parquet"}:
            path = tmp_path / f"rows.{how}"
            if how == "csv":
                path.write_text(written_csv(values))
                options["types"] = "v=number"
            elif how == "json":
                path.write_text("".join(f'{{"id":"{key}","v":{value}}}\n' for key, value in zip("abc", ("1", {NAN: "NaN"}.get(values[1], str(values[1]).replace("inf", "Infinity")), "2"), strict=True)))  # fmt: skip # noqa: E501
            else:
                pq.write_table(typed, path)
            return ddbio.load_files(path, name, **options)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        floats = [float(value) for value in values]
        # NaN is a missing value of pandas, and polars rounds a long number before ddbio reads it.
        endless = [1.0, float("inf"), 2.0]
        data = {
            "dictionaries": lambda: rows,
            "columns": lambda: columns,
            "arrow": lambda: typed,
            "polars": lambda: pl.DataFrame({"id": columns["id"], "v": endless if case == "digits" else floats}),
            "pandas": lambda: pd.DataFrame({"id": columns["id"], "v": endless if case == "NaN" else values}),
        }[how]()
        return ddbio.write_table(data, name, **options)

    assert rejected(table, tmp_path, load)["item"]["id"] == {"S": "b"}


@pytest.mark.parametrize("names", [["", "v"], ["v", ""]])
def test_a_column_without_a_name_is_refused(table, names):
    """All rows of a table have its columns, so the name is refused before anything is written."""
    data = pa.table([["a"], [1], [2]], names=["id", *names])
    with pytest.raises(ddbio.SchemaError, match="an attribute's name has 1 to 65,535 bytes"):
        ddbio.write_table(data, table[0], **table[1])


def test_invalid_json_ends_the_load(table, tmp_path):
    """A broken text, and a repeated name, are ambiguous."""
    for text in ('{"id":"a"}\n{"id":"b",\n', '{"id":"a"}\n{"id":"b","v":1,"v":2}\n', '{"id":"a"}\n[1]\n'):
        (tmp_path / "rows.jsonl").write_text(text)
        with pytest.raises(ddbio.DecodeError, match=r"line [23]"):
            ddbio.load_files(tmp_path / "rows.jsonl", table[0], reject_to=str(tmp_path / "bad"), **table[1])


def test_sparse_rows_of_many_columns_are_complete(table, tmp_path):
    """Rows with few of many attributes are encoded in pieces by their values. Each keeps its own attributes."""
    day = dt.date(2024, 1, 1)
    rows = [{"id": f"k{n}", f"a{n % 700}": n, f"b{n % 11}": "x", f"c{n % 300}": [day]} for n in range(3000)]
    names = sorted({name for row in rows for name in row})
    kinds = {"i": pa.string(), "a": pa.int64(), "b": pa.string(), "c": pa.list_(pa.date32())}
    schema = pa.schema([(name, kinds[name[0]]) for name in names])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "rows.parquet", row_group_size=500)
    assert ddbio.load_files(tmp_path / "rows.parquet", table[0], unique_keys=True, **table[1]).written == 3000
    stored = ddbio.read_table(table[0], sample_items=5000, **table[1]).to_pylist()
    read = {row["id"]: {name: value for name, value in row.items() if value is not None} for row in stored}
    assert read == {row["id"]: {**row, f"c{n % 300}": ["2024-01-01"]} for n, row in enumerate(rows)}
