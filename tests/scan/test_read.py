"""Reads into Arrow, and inferred schemas, without a JVM."""

import gzip
import json
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, NotFoundError, OptionError
from ddbio.items.reference import items_of
from tests.tables import every_type


@pytest.fixture
def endpoint(fake):
    """Return the endpoint of the tables."""
    return fake.endpoint_url


def test_read_table_returns_every_item(endpoint):
    """Together the segments contain each item of the table once."""
    table = ddbio.read_table("flights", endpoint_url=endpoint, segments=7, lanes=3)
    keys = pa.compute.binary_join_element_wise(table["carrier_flight"], table["time_hour"], "@")
    assert (table.num_rows, keys.combine_chunks().unique().__len__()) == (20_000, 20_000)


def test_batches_have_one_schema(endpoint):
    """All batches have the same columns."""
    schemas = {batch.schema.to_string() for batch in ddbio.scan_batches("types", endpoint_url=endpoint)}
    assert len(schemas) == 1


def test_a_read_starts_no_jvm(endpoint):
    """Reading a table in this process imports neither pyspark nor modules that need it."""
    script = f"""if True:
        import sys
        import ddbio
        rows = ddbio.read_table("types", endpoint_url={endpoint!r}).num_rows
        print(rows, *[name for name in sys.modules if name.partition(".")[0] == "pyspark" or "ddbio.spark" in name])"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "500\n"


def test_closing_the_iterator_stops_the_lanes(endpoint):
    """Closing the iterator ends all threads."""
    batches = ddbio.scan_batches("flights", endpoint_url=endpoint, segments=4, rcu_per_second=50)
    next(batches)
    batches.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("ddbio-lane")]


def test_an_explicit_schema_is_used(endpoint):
    """Only declared columns are read; other attributes are rescued."""
    schema = pa.schema([pa.field("pk", pa.string()), pa.field("n", pa.string(), metadata={b"ddb:type": b"N"})])
    table = ddbio.read_table("types", endpoint_url=endpoint, schema=schema, limit=5)
    assert table.schema.names == ["pk", "n", "_rescue"]
    assert all('"price"' in text for text in table["_rescue"].to_pylist())


def test_columns_are_all_that_is_read(endpoint):
    """With a projection, other attributes are not rescued."""
    table = ddbio.read_table("types", endpoint_url=endpoint, columns=["flag", "pk"])
    assert table.schema.names == ["flag", "pk", "_rescue"]
    assert table["_rescue"].null_count == table.num_rows


def test_limit_is_exact(endpoint, fake):
    """A limit returns exactly that number of rows, and reads only the page that contains them."""
    schema = pa.schema([pa.field("carrier_flight", pa.string())])
    before = fake.requests()["Scan"]
    assert ddbio.read_table("flights", endpoint_url=endpoint, limit=17, schema=schema, segments=1).num_rows == 17
    assert fake.requests()["Scan"] == before + 1


def test_nulls_are_kept_on_request(endpoint):
    """NULL differs from missing on request, and is merged with it by default."""
    retained = ddbio.read_table("types", endpoint_url=endpoint, nulls="keep", limit=3)
    merged = ddbio.read_table("types", endpoint_url=endpoint, limit=3)
    assert retained["_rescue"].to_pylist() == ['{"none":{"NULL":true}}'] * 3
    assert merged["_rescue"].null_count == merged.num_rows


def test_wrong_options_are_errors_of_the_call(endpoint):
    """A misspelt option fails before the iteration."""
    with pytest.raises(OptionError, match="did you mean 'columns'"):
        ddbio.scan_batches("types", endpoint_url=endpoint, column="pk")


def test_read_is_what_was_written(endpoint):
    """Items → Arrow → items is identity for every type, including NULL."""
    table = ddbio.read_table("types", endpoint_url=endpoint, nulls="keep")
    (batch,) = table.combine_chunks().to_batches()
    assert sorted(items_of(batch), key=str) == sorted(map(every_type, range(500)), key=str)
    again = ddbio.from_dynamodb_json(ddbio.to_dynamodb_json(batch), table.schema, nulls="keep")
    assert list(items_of(again)) == list(items_of(batch))


LINE = b'{"Item":{"pk":{"S":"a"},"n":{"N":"1"}}}\n'


@pytest.mark.parametrize("data", [LINE, bytearray(LINE), memoryview(LINE), b'{"pk":{"S":"a"},"n":{"N":"1"}}'])
def test_infer_from_bytes(data):
    """Bytes of any type are data, not a name."""
    assert ddbio.infer_schema(data).to_arrow().names == ["pk", "n", "_rescue"]


def test_infer_from_files(tmp_path):
    """The schema can be inferred from a file, a folder, the data of a native export, and a Parquet file."""
    data = tmp_path / "AWSDynamoDB" / "017-a" / "data"
    data.mkdir(parents=True)
    (data / "x.json.gz").write_bytes(gzip.compress(LINE))
    (tmp_path / "one.jsonl").write_bytes(LINE)
    pq.write_table(pa.table({"pk": ["a"]}), tmp_path / "p.parquet")
    for source in (data.parent, data, data / "x.json.gz", tmp_path / "one.jsonl"):
        assert ddbio.infer_schema(source).to_arrow().names == ["pk", "n", "_rescue"], source
    assert ddbio.infer_schema(tmp_path / "p.parquet").to_arrow().names == ["pk", "_rescue"]


def test_a_sample_ends_with_an_item(tmp_path):
    """Each file is read in its own framing and layout, and is never cut within an item."""
    items = [{"pk": {"S": str(number)}, "n": {"N": "1"}} for number in range(30)]
    (tmp_path / "a.json").write_text(json.dumps({"Items": items, "Count": 30}, indent=4))
    (tmp_path / "b.json").write_text(json.dumps({"Items": [{"pk": {"S": "x"}, "b": {"BOOL": True}}]}))
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + LINE)
    (tmp_path / "d.json").write_text(json.dumps({"pk": {"S": "x"}, "d": {"S": "y"}}, indent=1))
    schema = ddbio.infer_schema(tmp_path, sample_items=40)
    assert (schema.to_arrow().names, schema.item_count) == (["pk", "n", "b", "d", "_rescue"], 13)


def test_the_file_and_the_line_are_named(tmp_path):
    """Among many files the error names the broken one; a name that no table can have is not looked up."""
    (tmp_path / "good.json").write_bytes(LINE)
    (tmp_path / "x.json").write_bytes(LINE + b'{"Item":{"pk":{"S":1}}}')
    for call in (ddbio.infer_schema, ddbio.digest):
        with pytest.raises(DecodeError, match=r"/x\.json: line 2: pk: expected a JSON string") as raised:
            call(tmp_path)
        assert (raised.value.uri, raised.value.line) == (f"{tmp_path}/x.json", 2)
        with pytest.raises(NotFoundError, match="no such file or folder, and no table can have this name"):
            call(str(tmp_path / "none.json"))


def test_infer_refuses_what_it_cannot_read(tmp_path):
    """The error names an empty folder or a broken file."""
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFoundError, match="none holds no file"):
        ddbio.infer_schema(tmp_path / "none")
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(LINE * 100)[:50])
    with pytest.raises(DecodeError, match=r"bad\.json\.gz is not a whole gzip file"):
        ddbio.infer_schema(tmp_path / "bad.json.gz")


def test_infer_from_table(endpoint):
    """A name that is not a path is the name of a table."""
    assert "carrier" in ddbio.infer_schema("flights", endpoint_url=endpoint).to_arrow().names
