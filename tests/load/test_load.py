"""Rows written into a table of the fake: every acknowledged row is in it, and the report is correct."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import DecodeError, NotFoundError, OptionError, PartialWriteError, SchemaError
from ddbio.testing import FakeDynamoDB

REPORT_KEYS = {
    "rows", "written", "skipped", "rejected", "wcu_asked_per_second", "wcu_consumed", "wcu_peak_10s_ratio",
    "write_seconds", "throttles", "retries", "seconds", "cpu_seconds", "job_id", "resumed_rows", "earlier_job_id",
    "rejects_uri", "hottest_keys", "planned", "actual", "source", "table", "mode", "files_skipped",
}  # fmt: skip


@pytest.fixture
def server():
    """Serve one empty table ``rows`` with the key pk, sk."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S,sk:N")
        yield running


def rows(count, **columns):
    """Return this number of rows with different keys."""
    return pa.table({"pk": [f"k{n % 97}" for n in range(count)], "sk": list(range(count)), **columns})


def stored(server, table="rows"):
    """Return the rows of the table in the order of its keys."""
    rows = ddbio.read_table(table, endpoint_url=server.endpoint_url).drop_columns("_rescue")
    return sorted(rows.to_pylist(), key=lambda row: (row["pk"], row["sk"]))


def in_order(table):
    """Return a table's rows in the order of their keys."""
    return sorted(table.to_pylist(), key=lambda row: (row["pk"], row["sk"]))


def test_every_row_is_written_and_reported(server):
    """Rows in memory are written unchanged. The report has the promised keys and the service's own units."""
    table = rows(1000, text=["x" * 1500] * 1000)
    report = ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url)
    assert stored(server) == in_order(table)
    assert report.to_dict().keys() == REPORT_KEYS
    assert (report.source, report.table, report.mode) == (None, "rows", "upsert")
    assert (report.rows, report.written, report.skipped, report.rejected) == (1000, 1000, 0, 0)
    assert report.wcu_consumed == sum(row[2] for row in server.consumed("rows")) == 2000


@pytest.mark.parametrize("lanes", [1, 3])
def test_columns_of_any_type_are_written(server, lanes):
    """Times, dictionaries, views, fixed sizes and runs are written as their values."""
    table = pa.table(
        {
            "pk": pa.array(["a", "b"]).dictionary_encode(),
            "sk": pa.array([1, 2], pa.float32()),
            "at": pa.array([0, None], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 1], pa.date32()),
            "view": pa.array(["x", "y"], pa.string_view()),
            "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
            "took": pa.array([1, 2], pa.duration("s")),
        }
    )
    assert ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url, lanes=lanes).written == 2
    others = {"view": "x", "pair": [1, 2], "took": "PT1S"}
    first = {"pk": "a", "sk": 1, "at": "1970-01-01T00:00:00.000000Z", "day": "1970-01-01", **others}
    assert stored(server)[0] == first


def lane_threads():
    """Return the number of threads that serve lanes."""
    return sum(thread.name.startswith("ddbio-lane_") for thread in threading.enumerate())


@pytest.mark.parametrize(("wire", "threads"), [("light", {0}), ("botocore", {1, 2, 3})])
def test_lanes_take_threads_where_botocore_waits(server, monkeypatch, wire, threads):
    """All lanes write in the thread that reads the rows.

    Only botocore uses threads, at most one each, and none remains.
    """
    monkeypatch.setenv("DDBIO_TRANSPORT", wire)
    table, seen = rows(300), []

    def batches():
        for batch in table.to_batches(max_chunksize=100):
            yield batch
            seen.append(lane_threads())

    report = ddbio.write_table(batches(), "rows", endpoint_url=server.endpoint_url, lanes=3)
    assert (report.written, lane_threads()) == (300, 0)
    assert max(seen) in threads
    assert stored(server) == in_order(table)


@pytest.mark.parametrize("mode", ["upsert", "create"])
def test_a_single_lane_reports_its_error(server, mode):
    """An error of the service ends a write with one lane like a write with more."""

    def batches():
        yield rows(100).to_batches()[0]
        boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1").delete_table(
            TableName="rows"
        )
        yield from rows(100).to_batches() * 2

    with pytest.raises(NotFoundError, match="rows"):
        ddbio.write_table(batches(), "rows", endpoint_url=server.endpoint_url, lanes=1, mode=mode)


@pytest.mark.parametrize("source", ["table", "batch", "reader", "batches", "pandas"])
def test_rows_come_from_anything_that_holds_them(server, source):
    """Tables, batches, readers, iterables of batches and pandas frames are written the same way."""
    table = rows(60)
    forms = {
        "table": table,
        "batch": table.combine_chunks().to_batches()[0],
        "reader": table.to_reader(max_chunksize=7),
        "batches": iter(table.to_batches(max_chunksize=7)),
        "pandas": table.to_pandas(),
    }
    assert ddbio.write_table(forms[source], "rows", endpoint_url=server.endpoint_url).written == 60
    assert stored(server) == in_order(table)


def test_an_index_of_pandas_is_data_where_it_has_a_name(server):
    """The remaining row numbers after a filter are not an attribute. A named index is one."""
    frame = rows(4).to_pandas()
    ddbio.write_table(frame[frame.sk >= 2], "rows", endpoint_url=server.endpoint_url)
    ddbio.write_table(frame.iloc[:2].set_index(["pk", "sk"]), "rows", endpoint_url=server.endpoint_url)
    assert stored(server) == in_order(rows(4))


def test_columns_of_one_name_are_refused(server):
    """Two columns with one name are ambiguous, which is an error."""
    table = pa.table([["a"], [1], [1], [2]], names=["pk", "sk", "v", "v"])
    with pytest.raises(SchemaError, match="the rows have several columns with the name 'v': rename"):
        ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url)


def test_data_without_rows_is_refused(server):
    """A text is not accepted as rows."""
    with pytest.raises(OptionError, match="a str holds no rows"):
        ddbio.write_table("rows.parquet", "rows", endpoint_url=server.endpoint_url)


WRITERS = {
    "a.parquet": pq.write_table,
    "a.orc": pa.orc.write_table,
    "a.csv": pa.csv.write_csv,
    "a.arrow": pa.feather.write_feather,
    "a.jsonl": lambda table, path: path.write_text("\n".join(map(json.dumps, table.to_pylist()))),
    "a.json": lambda table, path: path.write_bytes(
        b"".join(ddbio.to_dynamodb_json(batch) for batch in table.to_batches())
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_every_format_are_loaded(server, tmp_path, name):
    """A file of each format is loaded, including text keys that look like numbers."""
    table = pa.table({"pk": [f"{n:03}" for n in range(30)], "sk": list(range(30)), "v": ["x"] * 30})
    WRITERS[name](table, tmp_path / name)
    assert ddbio.load_files(tmp_path / name, "rows", endpoint_url=server.endpoint_url).written == 30
    assert stored(server) == in_order(table)


def test_folders_and_globs_are_loaded(server, tmp_path):
    """A folder loads all of its files, a glob the matching ones."""
    (tmp_path / "sub").mkdir()
    pq.write_table(rows(10), tmp_path / "a.parquet")
    pq.write_table(rows(20), tmp_path / "sub" / "b.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    assert ddbio.load_files(tmp_path, "rows", endpoint_url=server.endpoint_url).rows == 30
    assert ddbio.load_files(f"{tmp_path}/sub/*.parquet", "rows", endpoint_url=server.endpoint_url).rows == 20
    with pytest.raises(NotFoundError, match="holds no file of rows"):
        ddbio.load_files(f"{tmp_path}/*.orc", "rows", endpoint_url=server.endpoint_url)


def test_a_broken_file_is_named(server, tmp_path):
    """Bytes of another format are an error with the file's name."""
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(DecodeError, match=r"a\.parquet"):
        ddbio.load_files(tmp_path / "a.parquet", "rows", endpoint_url=server.endpoint_url)


def test_a_row_that_cannot_be_written_fails_the_job(server):
    """Without reject_to, the first bad row ends the job with the row and the reason."""
    with pytest.raises(PartialWriteError, match="row 1 cannot be written") as caught:
        ddbio.write_table(pa.table({"pk": ["a", ""], "sk": [1, 2]}), "rows", endpoint_url=server.endpoint_url)
    assert caught.value.rejected == 1


def test_bad_rows_are_kept_with_their_reason(server, tmp_path):
    """With reject_to, the good rows are written and the bad ones can be read from it."""
    table = pa.table({"pk": ["a", "", "b"], "sk": [1, 2, 3]})
    report = ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url, reject_to=str(tmp_path / "bad"))
    assert (report.written, report.rejected) == (2, 1)
    (path,) = (tmp_path / "bad").glob("*.jsonl")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["row"] == 1
    assert "the key is empty" in line["reason"]
    assert line["item"] == {"pk": {"S": ""}, "sk": {"N": "2"}}


def test_columns_without_the_key_are_refused(server):
    """Rows that lack a key attribute are refused before anything is sent."""
    with pytest.raises(SchemaError, match="no column 'sk'"):
        ddbio.write_table(pa.table({"pk": ["a"]}), "rows", endpoint_url=server.endpoint_url)
    assert "BatchWriteItem" not in server.requests()


def test_the_last_row_of_a_key_wins(server):
    """Rows of one key, more than a batch and a chunk of them, are written in their order."""
    table = pa.table({"pk": ["a", "b"] * 4200, "sk": [1] * 8400, "v": list(range(8400))})
    assert ddbio.write_table(table, "rows", endpoint_url=server.endpoint_url).written == 8400
    assert [row["v"] for row in stored(server)] == [8398, 8399]


def test_delete_removes_the_rows_keys(server):
    """In mode delete only the key is sent, regardless of other columns."""
    ddbio.write_table(rows(100), "rows", endpoint_url=server.endpoint_url)
    gone = rows(40, text=["x" * 100] * 40)
    report = ddbio.write_table(gone, "rows", mode="delete", endpoint_url=server.endpoint_url)
    assert (report.written, len(stored(server))) == (40, 60)


def test_batches_that_differ_in_metadata_alone_keep_their_types(server):
    """A list stays a list if the same column is a set in another batch."""
    plain = pa.schema({"pk": pa.string(), "sk": pa.int64(), "v": pa.list_(pa.string())})
    tagged = plain.set(2, plain.field("v").with_metadata({"ddb:type": "SS"}))
    batches = [
        pa.record_batch([["a"], [number], [["x"]]], schema=schema) for number, schema in enumerate((plain, tagged))
    ]
    ddbio.write_table(batches, "rows", endpoint_url=server.endpoint_url)
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="eu-west-1")
    assert {item["sk"]["N"]: item["v"] for item in client.scan(TableName="rows")["Items"]} == {
        "0": {"L": [{"S": "x"}]},
        "1": {"SS": ["x"]},
    }


@pytest.mark.parametrize("mode", ["upsert", "create"])
def test_the_hottest_keys_are_named(mode):
    """If one partition key has most of the rows and is throttled, it is in the report first."""
    hot = [("hot", n) for n in range(1500)]
    cold = [(f"k{n}", n) for n in range(300)]
    table = pa.table({"pk": [key for key, _ in hot + cold], "sk": [n for _, n in hot + cold]})
    with FakeDynamoDB(partitions=1, burst_seconds=0.1) as server:
        ddbio.create_table("skewed", key="pk:S,sk:N", endpoint_url=server.endpoint_url)
        report = ddbio.write_table(table, "skewed", mode=mode, endpoint_url=server.endpoint_url)
    assert report.written == 1800
    assert next(iter(report.hottest_keys)) == '{"S":"hot"}'


def test_rows_that_wait_for_their_partition_make_no_hot_key():
    """If every key has one row and the partition is throttled, no key is reported."""
    table = pa.table({"pk": [f"k{n}" for n in range(1800)]})
    with FakeDynamoDB(partitions=1, burst_seconds=0.1) as server:
        ddbio.create_table("narrow", key="pk:S", endpoint_url=server.endpoint_url)
        report = ddbio.write_table(table, "narrow", endpoint_url=server.endpoint_url)
    assert report.written == 1800
    assert sum(report.throttles.values()) > 0
    assert report.hottest_keys == {}


def test_a_missing_spark_is_an_error_before_the_first_read(tmp_path):
    """If PySpark cannot be imported, a load on Spark fails immediately: no request is sent, no loop compiled."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('there is no PySpark')")
    script = "import ddbio; ddbio.load_files('rows.csv', 't', engine='spark', endpoint_url='http://127.0.0.1:1')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(ddbio.__file__).parents[1])])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "engine 'spark' cannot be loaded: there is no PySpark; or use engine 'local'" in done.stderr
