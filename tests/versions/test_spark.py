"""Features of ddbio on every version of Spark: reads, writes, engines, functions, lake tables, streams, Connect."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import boto3
import deltalake
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions as sql

import ddbio
import ddbio.spark
from ddbio.errors import OptionError
from ddbio.spark.javac import find_javac
from ddbio.storage.local_store import LocalStore
from ddbio.testing.export import ExportWriter
from tests.lake.virtual_log import VirtualLog, Writer
from tests.versions import jobs
from tests.versions.conftest import VERSION
from tests.versions.features import FEATURES, YES, has
from tests.versions.jobs import COUNT, check, item

ROOT = Path(__file__).parents[2]
REFUSED = r"^OptionError: .*Spark Connect"
"""The error of Spark Connect if the driver must be in this process."""


@pytest.fixture(scope="session")
def things(fake):
    """Return the options to reach the table ``things``."""
    fake.load("things", (json.dumps(item(number)).encode() for number in range(COUNT)), "pk:S")
    return {"endpoint_url": fake.endpoint_url, "region": "eu-west-1"}


@pytest.fixture
def export(tmp_path):
    """Return the folder of a full export."""
    return ExportWriter(tmp_path / "in", files=5, empty_files=2).full(item(number) for number in range(COUNT))


def test_a_table_as_a_frame(spark, things):
    """``ddbio.spark.scan`` returns every item exactly, under a budget, and a second action scans again."""
    frame = ddbio.spark.scan(spark, "things", rcu_per_second=500, tasks=2, **things)
    check(frame)
    assert frame.where("n > 10").count() == COUNT - 11


def test_given_columns_of_a_table(spark, things):
    """A schema of Spark reads only these attributes. Without a rescue column a value of another type is an error."""
    some = ddbio.spark.scan(spark, "things", schema="pk string, price double", **things)
    assert sorted(some.collect())[3] == ("key-0003", 3.25)
    columns = spark.createDataFrame([], "pk string, n bigint").schema
    strict = ddbio.spark.scan(spark, "things", schema=columns, **things)
    with pytest.raises(Exception, match="SchemaError: n"):
        strict.collect()


def test_a_frame_into_a_table(spark, fake, things):
    """``ddbio.spark.write`` writes each row once, with times as ISO text in any session's time zone, and counts."""
    fake.load("sink", b"", "pk:S")
    frame = spark.range(0, COUNT, 1, 3).select(
        sql.col("id").cast("string").alias("pk"),
        sql.col("id").alias("n.with dot"),
        sql.lit(datetime(2024, 2, 29, 12, 30, tzinfo=UTC)).alias("at"),
        sql.lit(date(2024, 2, 29)).alias("day"),
        sql.array(sql.lit(Decimal("1.50"))).alias("list"),
    )
    report = ddbio.spark.write(frame, "sink", wcu_per_second=10_000, **things)
    assert (report.rows, report.written, report.rejected, report.table) == (COUNT, COUNT, 0, "sink")
    assert report.wcu_consumed >= COUNT
    assert ddbio.last_report(spark) == report
    rows = {row["pk"]: row for row in ddbio.read_table("sink", **things).to_pylist()}
    assert len(rows) == COUNT
    assert rows["17"]["n.with dot"] == 17
    assert (rows["17"]["at"], rows["17"]["day"]) == ("2024-02-29T12:30:00.000000Z", "2024-02-29")
    again = ddbio.spark.write(frame, "sink", mode="create", **things)
    assert (again.written, again.skipped) == (0, COUNT)
    with pytest.raises(OptionError, match="did you mean 'wcu_per_second'"):
        ddbio.spark.write(frame, "sink", wcu_per_seconds=1, **things)


def test_an_export_as_a_frame(spark, export):
    """``ddbio.spark.read_export`` returns every item exactly. Given columns exclude all others."""
    check(ddbio.spark.read_export(spark, str(export)))
    some = ddbio.spark.read_export(spark, str(export), schema="pk string, price double")
    assert sorted(some.collect())[3] == ("key-0003", 3.25)
    empty = ddbio.spark.read_export(spark, str(ExportWriter(export.parent / "none").full([])))
    assert empty.collect() == []


def test_formats(spark, fake, things, export):
    """The formats of Spark 4 read and write. Spark 3.5 has none, and its error names the alternative."""
    if not has("formats", VERSION):
        with pytest.raises(OptionError, match=r"has no Python data sources.*ddbio\.spark\.scan"):
            ddbio.register(spark)
        return
    fake.load("formatted", b"", "pk:S")
    jobs.read_and_write(spark, "formatted", things, export)
    assert ddbio.last_report(spark).written == COUNT


def log_of(folder):
    """Make a log in a folder, and return the number of its changes."""
    log, writer = VirtualLog(LocalStore(folder)), Writer(3)
    for _ in range(3):
        log.append(writer.batch())
    return sum(map(len, log.batches))


def test_streams(spark, fake, things, tmp_path):
    """A log, and the stream of a table, are streams of Spark 4. Spark 3.5 knows neither format."""
    if not has("streams", VERSION):
        with pytest.raises(Exception, match="dynamodb-log"):
            spark.readStream.format("dynamodb-log").load(str(tmp_path))
        return
    jobs.stream(spark, tmp_path / "log", log_of(tmp_path / "log"), tmp_path)
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    client.create_table(
        TableName="changed",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    client.close()
    fake.load("changed", [{"pk": {"S": f"k{n}"}, "n": {"N": str(n)}} for n in range(30)], "pk:S")
    options = {"endpointUrl": things["endpoint_url"], "region": "eu-west-1", "log": str(tmp_path / "captured")}
    changes = spark.readStream.format("dynamodb-streams").options(**options).load("changed")
    query = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
    jobs.finish(query.trigger(availableNow=True).start(str(tmp_path / "changes")))
    assert spark.read.parquet(str(tmp_path / "changes")).count() == 30


def test_the_engine(spark, fake, things, export, tmp_path):
    """Verbs with the engine ``spark`` scan, read exports, and load, in the running session."""
    scanned = ddbio.scan_to_files("things", tmp_path / "scan", engine="spark", **things)
    assert (scanned.engine, scanned.rows) == ("spark", COUNT)
    read = ddbio.read_export_to_files(export, tmp_path / "read", engine="spark")
    assert (read.engine, read.rows) == ("spark", COUNT)
    tables = [pq.read_table(tmp_path / name).sort_by("pk") for name in ("scan", "read")]
    assert tables[0].drop_columns("_rescue").equals(tables[1].select(tables[0].drop_columns("_rescue").column_names))
    fake.load("loaded", b"", "pk:S")
    options = {"engine": "spark", "tasks": 2, "state": str(tmp_path / "state"), **things}
    assert ddbio.load_files(tmp_path / "scan", "loaded", **options).written == COUNT
    assert ddbio.digest("loaded", **things) == ddbio.digest("things", **things)


def test_lookup(spark, things):
    """A DataFrame is joined with the items of its keys."""
    jobs.look_up(spark, things)


def test_functions(spark):
    """DynamoDB JSON becomes a struct and text again, by functions of columns and of frames."""
    jobs.functions_of_columns(spark)
    jobs.functions_of_frames(spark)


def test_frames_are_digested_and_compared(spark, things):
    """A DataFrame has the digest of its table, and is compared with it."""
    jobs.digest_and_compare(ddbio.spark.scan(spark, "things", **things), things)


def test_files_of_one_size(spark, tmp_path):
    """Spark's writer makes the announced number of files."""
    jobs.write_sized_files(spark, tmp_path / "out")


def test_a_lake_table(spark, tmp_path):
    """Spark's tasks merge changes into a Delta table without a jar, and a frame of changes too."""
    assert spark.version
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(11), tmp_path / "lake"
    for engine in ("spark", "local", "spark"):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, engine=engine, buckets=2)
        rows = deltalake.DeltaTable(lake).to_pyarrow_table().to_pylist()
        assert {row["pk"]: row["n"] for row in rows if not row["_deleted"]} == {
            key: (change.item or {}).get("n") for key, change in log.model().items()
        }
    frame = spark.createDataFrame([(1, "k|0", 7)], "_sequence long, pk string, n long")
    frame = frame.withColumn("_event_time", sql.lit(datetime(2026, 11, 1, tzinfo=UTC)))
    assert ddbio.apply(frame, tmp_path / "frames", key=["pk"], engine="spark").inserted == 1


def test_batches_of_a_stream(spark, fake, things, tmp_path):
    """``foreachBatch`` writes the micro-batches of a stream into a table."""
    fake.load("batched", b"", "pk:S")
    jobs.write_batches(spark, "batched", things, tmp_path)


def test_changes_of_a_stream(spark, tmp_path):
    """``foreachBatch`` merges the micro-batches of a stream into a table of Delta."""
    jobs.apply_batches(spark, tmp_path)


def test_the_command(things, tmp_path):
    """``ddbio scan --engine spark`` in a separate process starts a session, and prints a report."""
    command = [sys.executable, "-m", "ddbio", "scan", "things", str(tmp_path / "out"), "--engine", "spark", "--json"]
    command += ["--endpoint-url", things["endpoint_url"], "--master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == COUNT


@pytest.fixture
def connect(tmp_path):
    """Return the address of a Spark Connect server, a separate process with the jar of push-down."""
    pytest.importorskip("grpc", reason="this environment has no grpcio, which Spark Connect needs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "WARN",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    words += ["--jars", ddbio.spark.jar()] if find_javac() else []
    home = Path(pyspark.__file__).parent
    command = ["bash", str(home / "bin/spark-submit"), "--master", "local[2]", *words]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | python, cwd=tmp_path, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (tmp_path / "server.log").read_text("utf-8")[-3000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.timeout(900)
def test_connect(request, fake, things, tmp_path):
    """On Spark Connect every feature behaves as in the table: it runs, or one error reports a remote driver."""
    if not has("formats", VERSION):
        return  # Its sources are those that Connect would use: test_formats has the errors of 3.5.
    remote = request.getfixturevalue("connect")
    for table in ("connected", "connected-batches"):
        fake.load(table, b"", "pk:S")
    (tmp_path / "jobs").mkdir()
    export = ExportWriter(tmp_path / "in", files=5, empty_files=2).full(item(number) for number in range(COUNT))
    arguments = {"remote": remote, "endpoint_url": things["endpoint_url"], "folder": str(tmp_path / "jobs")}
    arguments |= {"export": str(export), "log": str(tmp_path / "log"), "changes": log_of(tmp_path / "log")}
    command = [sys.executable, "-m", "tests.versions.connect_job", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:] + (tmp_path / "server.log").read_text("utf-8")[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.keys() == FEATURES.keys()
    wrong = {
        name: outcome
        for name, outcome in outcomes.items()
        if (outcome != YES if FEATURES[name].connect.startswith(YES) else not re.search(REFUSED, outcome))
    }
    assert not wrong, "\n".join(f"{name}: {outcome}" for name, outcome in wrong.items())
