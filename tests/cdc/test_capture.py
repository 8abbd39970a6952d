"""Captures of a served stream: columns, kinds of changes, restarts, killed processes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.cdc.log_rows import hour_folder
from ddbio.errors import GapError, LimitError, OptionError, TargetError
from ddbio.testing import FakeDynamoDB
from tests.cdc.tables import create_table

KEY = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}
SECONDS = 300


@pytest.fixture(scope="module")
def fake():
    """Serve one fake for all tests of this module."""
    with FakeDynamoDB(partitions=2, burst_at_creation=1.0) as served:
        yield served


@pytest.fixture(scope="module")
def client(fake):
    """Return a client of the fake."""
    connected = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    yield connected
    connected.close()


@pytest.fixture
def make_table(client):
    """Return a function that creates tables with a stream."""
    return lambda view="NEW_AND_OLD_IMAGES": create_table(client, view=view)


def rows_of(folder):
    """Return the rows of a log, in the order of their sequence numbers."""
    rows = ds.dataset(folder, partitioning="hive", exclude_invalid_files=False, ignore_prefixes=["_"]).to_table()
    return sorted(rows.to_pylist(), key=lambda row: int(row["_sequence"]))


def test_a_log_has_operations_keys_and_new_images(fake, client, make_table, tmp_path):
    """Each change has a row, in the folder of its hour in UTC.

    A delete has only its key. Unsuitable values are rescued.
    """
    table = make_table()
    item = {
        "pk": {"S": "a"},
        "n": {"N": "1"},
        "b": {"B": b"\x00"},
        "tags": {"SS": ["x"]},
        "m": {"M": {"k": {"N": "2"}}},
    }
    client.put_item(TableName=table, Item=item)
    report = ddbio.capture(table, tmp_path, available_now=True, endpoint_url=fake.endpoint_url)
    assert (report.records, report.files, report.batches, report.gaps) == (1, 1, 1, ())
    client.put_item(TableName=table, Item={**item, "n": {"S": "no number"}, "new": {"BOOL": True}})
    client.delete_item(TableName=table, Key={"pk": {"S": "a"}})
    report = ddbio.capture(table, tmp_path, available_now=True, endpoint_url=fake.endpoint_url)
    assert (report.records, report.batches) == (2, 2)
    insert, modify, remove = rows_of(tmp_path)
    assert [value["_op"] for value in (insert, modify, remove)] == ["INSERT", "MODIFY", "REMOVE"]
    values = {"pk": "a", "n": 1, "b": b"\x00", "tags": ["x"], "m": {"k": 2}, "_rescue": None, "_expired": False}
    assert {name: insert[name] for name in values} == values
    assert json.loads(modify["_rescue"]) == {"n": {"S": "no number"}, "new": {"BOOL": True}}
    assert (modify["n"], modify["tags"]) == (None, ["x"])
    assert (remove["pk"], remove["n"], remove["tags"], remove["_rescue"]) == ("a", None, None, None)
    for row in (insert, modify, remove):
        at = row["_event_time"]
        assert (row["year"], row["month"], row["day"], row["hour"]) == (at.year, at.month, at.day, at.hour)
    first, *_ = tmp_path.glob("year=*/month=*/day=*/hour=*/*.parquet")
    assert first.parent.parent.name.startswith("day=")


def test_available_now_uses_the_clock_of_the_service(tmp_path):
    """A clock hours ahead of this machine's clock makes no capture end or start too early."""
    with FakeDynamoDB(partitions=1) as fake:
        fake.pass_time(7200)
        create_table(boto3.client("dynamodb", endpoint_url=fake.endpoint_url), "ahead", view="NEW_IMAGE")
        fake.load("ahead", [{"pk": {"S": str(number)}} for number in range(3000)], key="pk:S")
        run = {"available_now": True, "endpoint_url": fake.endpoint_url}
        assert ddbio.capture("ahead", tmp_path / "all", **run).records == 3000
        # Offsets below two seconds are ignored.
        fake.pass_time(5)
        assert ddbio.capture("ahead", tmp_path / "new", start="latest", **run).records == 0


def test_columns_are_declared_and_stay(fake, client, make_table, tmp_path):
    """A given schema is used, also by a later run. Attributes with the names of the log's columns are rescued.

    A declared column stays if a narrower schema is given later, as files have it.
    """
    table = make_table()
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "1"}, "_op": {"S": "mine"}})
    schema = pa.schema([("pk", pa.string()), ("n", pa.decimal128(38, 2)), ("_op", pa.string())])
    run = {"available_now": True, "endpoint_url": fake.endpoint_url, "job_id": "mine"}
    ddbio.capture(table, tmp_path, schema=schema, **run)
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "2.5"}, "x": {"S": "1"}})
    ddbio.capture(table, tmp_path, **run)
    wider = pa.schema([*schema, ("x", pa.string())])
    client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": {"N": "2.5"}, "x": {"S": "2"}})
    ddbio.capture(table, tmp_path, schema=wider, **run)
    client.put_item(TableName=table, Item={"pk": {"S": "b"}, "x": {"S": "3"}})
    ddbio.capture(table, tmp_path, schema=schema, **run)
    files = sorted(tmp_path.rglob("*.parquet"))
    assert [file.name for file in files] == [f"mine-{number:012}.parquet" for number in (1, 2, 3, 4)]
    one, two, three, four = (ds.dataset(file).to_table().to_pylist()[0] for file in files)
    assert (one["_op"], one["n"], json.loads(one["_rescue"])) == ("INSERT", Decimal(1), {"_op": {"S": "mine"}})
    assert (two["n"], json.loads(two["_rescue"])) == (Decimal("2.5"), {"x": {"S": "1"}})
    assert (three["x"], three["_rescue"]) == ("2", None)
    assert (four["x"], four["_rescue"]) == ("3", None)
    assert [row["x"] for row in ddbio.history(tmp_path).sort_by("_ver").to_pylist()] == [None, "1", "2", "3"]


def test_old_images_are_kept_on_request(fake, client, make_table, tmp_path):
    """The column _old_image has the old item, and its unsuitable values are rescued separately."""
    table = make_table()
    for value in ({"N": "1"}, {"S": "text"}, {"N": "3"}):
        client.put_item(TableName=table, Item={"pk": {"S": "a"}, "n": value})
    schema = pa.schema([("pk", pa.string()), ("n", pa.int64())])
    ddbio.capture(table, tmp_path, available_now=True, old_image=True, schema=schema, endpoint_url=fake.endpoint_url)
    rows = rows_of(tmp_path)
    assert [row["_old_image"] for row in rows] == [None, {"pk": "a", "n": 1}, {"pk": "a", "n": None}]
    assert [row["_old_rescue"] for row in rows] == [None, None, '{"n":{"S":"text"}}']
    assert [row["_rescue"] for row in rows] == [None, '{"n":{"S":"text"}}', None]


def test_expired_items_are_marked(fake, client, make_table, tmp_path):
    """A delete by the time to live is marked. A user's delete, and text with the name of the service, are not."""
    table = make_table()
    client.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})
    for pk, ttl in (("old", 1_700_000_000), ("mine", 1), ("dynamodb.amazonaws.com", 1)):
        client.put_item(TableName=table, Item={"pk": {"S": pk}, "ttl": {"N": str(ttl)}})
    client.delete_item(TableName=table, Key={"pk": {"S": "mine"}})
    assert fake.expire(table) == 1
    ddbio.capture(table, tmp_path, available_now=True, endpoint_url=fake.endpoint_url)
    assert [(row["_op"], row["pk"]) for row in rows_of(tmp_path) if row["_expired"]] == [("REMOVE", "old")]


def test_a_gap_ends_a_capture(fake, client, make_table, tmp_path):
    """Trimmed changes are an error. With on_gap=continue the others are logged, and the gap is reported."""
    table = make_table()
    run = {"available_now": True, "endpoint_url": fake.endpoint_url}
    for number in range(6):
        client.put_item(TableName=table, Item={"pk": {"S": str(number)}})
    ddbio.capture(table, tmp_path, **run)
    for number in range(6):
        client.delete_item(TableName=table, Key={"pk": {"S": str(number)}})
    fake.trim_stream(table)
    client.put_item(TableName=table, Item={"pk": {"S": "last"}})
    with pytest.raises(GapError, match="on_gap=continue"):
        ddbio.capture(table, tmp_path, **run)
    report = ddbio.capture(table, tmp_path, on_gap="continue", **run)
    assert report.gaps
    assert [row["_op"] for row in rows_of(tmp_path)] == ["INSERT"] * 7


def test_invalid_captures_are_refused(fake, client, make_table, tmp_path):
    """A table without a stream, a view without new images, another table's log, and other options are all refused."""
    run = {"available_now": True, "endpoint_url": fake.endpoint_url, "job_id": "one"}
    with pytest.raises(OptionError, match="view KEYS_ONLY"):
        ddbio.capture(make_table("KEYS_ONLY"), tmp_path, **run)
    with pytest.raises(OptionError, match="leave old_image out"):
        ddbio.capture(make_table("NEW_IMAGE"), tmp_path, old_image=True, **run)
    table = make_table()
    ddbio.capture(table, tmp_path, **run)
    with pytest.raises(OptionError, match="is the log of table"):
        ddbio.capture(make_table(), tmp_path, **run)
    with pytest.raises(OptionError, match="job 'one' cannot be resumed"):
        ddbio.capture(table, tmp_path, start="latest", **run)
    client.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    with pytest.raises(OptionError, match="has no stream"):
        ddbio.capture(table, tmp_path, **run)


def test_a_capture_runs_until_it_is_stopped(fake, client, make_table, tmp_path):
    """A long capture writes new changes, follows splits, excludes a second capture, and ends when it is stopped."""
    table, stop, reports = make_table(), threading.Event(), []
    run = {"endpoint_url": fake.endpoint_url, "flush_seconds": 0.05}

    def capture():
        reports.append(ddbio.capture(table, tmp_path, stop=stop, **run))

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        for number in range(4):
            client.put_item(TableName=table, Item={"pk": {"S": str(number)}})
            fake.split_shards(table, into=1)
        ends_at = time.monotonic() + SECONDS
        while len(list(tmp_path.rglob("*.parquet"))) < 1 or len(rows_of(tmp_path)) < 4:
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        with pytest.raises(TargetError, match="runs already"):
            ddbio.capture(table, tmp_path, available_now=True, **run)
    finally:
        stop.set()
        thread.join()
    assert reports[0].records == 4


class Process:
    """Run the command in a separate process."""

    def __init__(self, fake, table, folder, *more):
        flags = ["--endpoint-url", fake.endpoint_url, "--flush-seconds", "0.02", "--json", *more]
        command = [sys.executable, "-m", "ddbio", "capture", table, str(folder), *flags]
        self.running = subprocess.Popen(command, stdout=subprocess.PIPE)

    def end(self, number):
        """Send a signal, and return the output."""
        self.running.send_signal(number)
        return self.running.communicate(timeout=SECONDS)[0]


def working_process(fake, table, folder):
    """Return a process that has written files."""
    process, before = Process(fake, table, folder), len(list(folder.rglob("*.parquet")))
    ends_at = time.monotonic() + SECONDS
    while len(list(folder.rglob("*.parquet"))) < before + 2:
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    return process


def check_kills(fake, client, table, folder, kills):
    """Kill processes while items are written and shards split. Compare the log with the written items."""
    chance, written, ended = random.Random(kills), [], threading.Event()

    def write():
        while not ended.is_set():
            pk = str(len(written))
            client.put_item(TableName=table, Item={"pk": {"S": pk}, "n": {"N": pk}})
            written.append(pk)
            time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(kills):
            process = working_process(fake, table, folder)
            time.sleep(chance.random() * 0.2)
            if number % 2:
                fake.split_shards(table, into=1)
            process.end(signal.SIGKILL)
        process = working_process(fake, table, folder)
    finally:
        ended.set()
        writer.join()
    assert json.loads(process.end(signal.SIGTERM))["seconds"] > 0
    process = Process(fake, table, folder, "--available-now")
    report = json.loads(process.running.communicate(timeout=SECONDS)[0])
    assert report.keys() >= {"records", "files", "lag_seconds", "seconds", "cpu_seconds"}
    rows = rows_of(folder)
    assert sorted(row["pk"] for row in rows) == sorted(written)
    assert len({row["_sequence"] for row in rows}) == len(rows)


def test_a_killed_process_loses_and_repeats_nothing(fake, client, make_table, tmp_path):
    """The log equals the written items after two kills, a SIGTERM and a run to the end."""
    check_kills(fake, client, make_table(), tmp_path, 2)


@pytest.mark.nightly
def test_a_process_that_is_killed_often_loses_and_repeats_nothing(fake, client, make_table, tmp_path):
    """The log also equals the written items after more kills."""
    check_kills(fake, client, make_table(), tmp_path, 8)


def test_folders_are_hours_in_utc():
    """Hours since 1970 have their folders, with zeros before short numbers."""
    assert hour_folder(0) == "year=1970/month=01/day=01/hour=00/"
    assert hour_folder(498_195) == "year=2026/month=11/day=01/hour=03/"
    assert Path(hour_folder(1)).name == "hour=01"


def test_a_capture_ends_in_its_time_and_reports_its_cost(fake, client, make_table, tmp_path):
    """A capture ends after max_seconds with all changes that were written."""
    table = make_table()
    client.put_item(TableName=table, Item={"pk": {"S": "a"}})
    client.put_item(TableName=table, Item={"pk": {"S": "b"}, "n": {"N": "1"}})
    options = {"endpoint_url": fake.endpoint_url, "flush_seconds": 0.1}
    report = ddbio.capture(table, tmp_path, max_seconds=5, **options)
    assert (report.records, report.planned.seconds) == (2, 5)
    assert report.actual.seconds >= 5
    assert report.actual.usd > 0
    client.put_item(TableName=table, Item={"pk": {"S": "c"}})
    with pytest.raises(LimitError, match="was stopped: it costs"):
        ddbio.capture(table, tmp_path, available_now=True, max_usd=1e-12, **options)
    assert [row["pk"] for row in rows_of(tmp_path)] == ["a", "b", "c"]
