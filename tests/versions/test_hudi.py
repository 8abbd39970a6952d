"""Hudi tables: merged by Hudi's writer on Spark 3.5, they equal the model, after crashes and at each commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import boto3
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as sql

import ddbio
from ddbio.cli.main import cli
from ddbio.commit.committer import Claim
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.lake.apply import Applier, ApplyReport
from ddbio.lake.changes import open_changes
from ddbio.lake.options import ApplyOptions
from ddbio.lake_formats.hudi import HudiLakeTable
from ddbio.lake_formats.items import open_items
from ddbio.spark.engine import SparkEngine
from ddbio.spark.hudi import _OPTIONS, HudiMerging, HudiTable
from ddbio.storage.local_store import LocalStore
from ddbio.testing.export import ExportWriter, put_manifest
from tests.lake.virtual_log import BEGAN, Change, VirtualLog, Writer, columns, expected, items_of

POSITION = "ddbio/0/job/1000"


@pytest.fixture
def hudi(need):
    """Return the session, which has the jar of Hudi."""
    return need("hudi")


@pytest.fixture
def brief(hudi):
    """Return the session with less compilation and planning: each query has a few rows, and is run once."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled")
    before = {name: hudi.conf.get(name) for name in names}
    for name in names:
        hudi.conf.set(name, "NO_CODEGEN" if name.endswith("factoryMode") else "false")
    yield hudi
    for name, value in before.items():
        hudi.conf.set(name, value)


@pytest.fixture
def folder(tmp_path):
    """Return a folder that exists during the test, in memory if the machine can."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as temporary:
        yield Path(temporary)


def rows_of(session, lake, instant=None):
    """Return the rows of a table as read by Spark, now or at a commit."""
    reader = session.read.format("hudi")
    frame = (reader if instant is None else reader.option("as.of.instant", str(instant))).load(str(lake))
    own = [name for name in frame.columns if name.startswith("_hoodie_")]
    return [row.asDict(recursive=True) for row in frame.drop(*own).collect()]


def read_of(lake, instant=None):
    """Return the same rows as read without a JVM."""
    items = open_items(str(lake), ApplyOptions(source="log", table="lake"), version=instant)
    return [row for batch in items.rows() for row in batch.to_pylist()]


def names_of(table):
    """Return the attribute of each column."""
    schema = table.load().schema
    return {field.name: (field.metadata or {}).get(b"ddb:name", field.name.encode()).decode() for field in schema}


class StoppedError(Exception):
    """Simulated end of the process."""


def job_of(session, folder, source, max_records=10**6, stop=None):
    """Return a job over a table, which stops before or after its first commit, or never."""
    options = ApplyOptions(
        source=source, table=str(folder), format="hudi", engine="spark", buckets=3, max_records_per_batch=max_records
    )
    engine = SparkEngine(None, {})
    table = HudiTable(LocalStore(folder), session, 2)
    commit = table.commit

    def stopped(*arguments):
        if stop == "before":
            raise StoppedError
        committed = commit(*arguments)
        if stop == "after":
            raise StoppedError
        return committed

    table.commit = stopped
    return Applier(open_changes(options), table, options, HudiMerging(engine, table, session))


def run(seed, hudi, folder):
    """Run one schedule, and compare the table with the model after each run and at each commit."""
    log, writer, random = VirtualLog(LocalStore(folder / "log")), Writer(seed), Random(seed)
    attributes, instants, lake = (), {}, folder / "lake"
    for number in range(4):
        if number in {1, 3}:
            attributes = ("a", "A", "b c")[: number + 1]
            if random.random() < 0.5:
                log.declare(columns(*attributes))
        for _ in range(random.randrange(1, 3)):
            log.append(writer.batch(attributes))
        stop = random.choice([None, None, "before", "after"])
        job = job_of(hudi, lake, str(folder / "log"), random.choice([1, 10**6]), stop)
        try:
            job.run()
        except StoppedError:
            job = job_of(hudi, lake, str(folder / "log"))
            job.run()
        outcome = job.outcome
        assert outcome.inserted + outcome.updated + outcome.deleted + outcome.stale == job.changes, seed
        state = job.table.load()
        instants[state.version] = state.properties.get(f"ddbio.position.{POSITION}")
        rows = rows_of(hudi, lake)
        assert len({row["_key"] for row in rows}) == len(rows), seed
        assert items_of(rows, names_of(job.table)) == expected(log.model()), seed
        assert items_of(read_of(lake), names_of(job.table)) == expected(log.model()), seed
    for instant, batches in instants.items():
        model = expected(log.model(int(batches)))
        assert items_of(rows_of(hudi, lake, instant), names_of(job.table)) == model, seed
        assert items_of(read_of(lake, instant), names_of(job.table)) == model, seed


@pytest.mark.timeout(7200)
def test_a_table_equals_the_model(seeds, brief, folder):
    """For late, repeated and deleted items, new attributes and stopped runs, each commit has the newest states."""
    for seed in seeds(20, 100):
        run(seed, brief, folder / str(seed))
        shutil.rmtree(folder / str(seed))


def live(session, lake):
    """Return the number of each live item."""
    return {row["pk"]: row["n"] for row in rows_of(session, lake) if not row["_deleted"]}


def test_a_base_load(hudi, fake, tmp_path):
    """A scan makes the table in one commit. Later changes win, earlier ones are stale, and a new base replaces all."""
    options = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1", "format": "hudi", "engine": "spark"}
    fake.load("base", [{"pk": {"S": f"k|{n}"}, "n": {"N": str(n)}, "a-b": {"S": "x"}} for n in range(40)], "pk:S")
    lake, log, now = tmp_path / "lake", VirtualLog(LocalStore(tmp_path / "log")), int(time.time() * 1e6)
    first = ddbio.scan_to_files("base", lake, buckets=3, **options)
    assert (first.rows, first.files) == (40, ())
    rows = rows_of(hudi, lake)
    assert {row["_ver"] for row in rows} == {"0" * 44}
    assert {json.loads(row["_rescue"])["a-b"]["S"] for row in rows} == {"x"}
    assert live(hudi, lake) == {f"k|{n}": n for n in range(40)}
    assert not list((lake / "_ddbio").rglob("*.parquet"))
    log.append([Change(1, "k|0", {"pk": "k|0", "n": -1}, time_us=now - 3_600_000_000)])
    log.append([Change(2, "k|1", {"pk": "k|1", "n": -2}, time_us=now), Change(3, "k|2", None, time_us=now)])
    applied = ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark")
    assert (applied.changes, applied.updated, applied.deleted, applied.stale) == (3, 1, 1, 1)
    wanted = {f"k|{n}": n for n in range(40)} | {"k|1": -2}
    del wanted["k|2"]
    assert live(hudi, lake) == wanted
    with pytest.raises(TargetError, match="is a table already"):
        ddbio.scan_to_files("base", lake, **options)


@pytest.mark.nightly
def test_a_new_base(hudi, fake, tmp_path):
    """A base replaces all rows, and the positions of the log restart after it. A table without items has no rows."""
    options = {"endpoint_url": fake.endpoint_url, "region": "eu-west-1", "format": "hudi", "engine": "spark"}
    fake.load("anew", [{"pk": {"S": f"k|{n}"}, "n": {"N": str(n)}} for n in range(9)], "pk:S")
    lake, log, now = tmp_path / "lake", VirtualLog(LocalStore(tmp_path / "log")), int(time.time() * 1e6)
    wanted = {f"k|{n}": n for n in range(9)}
    log.append([Change(1, "k|1", {"pk": "k|1", "n": -2}, time_us=now), Change(2, "k|2", None, time_us=now)])
    log.append([Change(3, "old", {"pk": "old", "n": 1}, time_us=now - 3_600_000_000)])
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=3)
    assert live(hudi, lake) == {"k|1": -2, "old": 1}
    assert ddbio.scan_to_files("anew", lake, mode="overwrite", **options).rows == 9
    assert live(hudi, lake) == wanted
    applied = ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark")
    assert (applied.changes, applied.updated, applied.deleted, applied.stale) == (3, 1, 1, 1)
    wanted["k|1"] = -2
    del wanted["k|2"]
    assert live(hudi, lake) == wanted
    fake.load("none", b"", "pk:S")
    assert ddbio.scan_to_files("none", tmp_path / "empty", **options).rows == 0
    assert rows_of(hudi, tmp_path / "empty") == []


def test_a_base_of_an_export(hudi, tmp_path):
    """A full export makes the table, and incremental exports are merged into it."""
    writer = ExportWriter(tmp_path / "in", files=3)
    full = writer.full([{"pk": {"S": f"k|{n}"}, "n": {"N": str(n)}} for n in range(30)])
    options = {"format": "hudi", "engine": "spark"}
    report = ddbio.read_export_to_files(full, tmp_path / "lake", key=["pk"], buckets=2, **options)
    assert (report.rows, report.files) == (30, ())
    assert live(hudi, tmp_path / "lake") == {f"k|{n}": n for n in range(30)}


def test_one_writer_at_a_time(hudi, tmp_path):
    """While one run writes, another is refused or waits for its end. A run that died does not block others."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(13), tmp_path / "lake"
    for _ in range(3):
        log.append(writer.batch())
    options = {"format": "hudi", "engine": "spark", "buckets": 2, "max_records_per_batch": 1}
    rival = Claim(LocalStore(lake), "rival", "overwrite", lease_seconds=0.6)
    rival.write()
    with rival.renewed(), pytest.raises(TargetError, match="is being written to by job rival"):
        ddbio.apply(tmp_path / "log", lake, **options)
    rival.release()
    dead = "import sys; from ddbio.commit.committer import Claim; from ddbio.storage.local_store import LocalStore; "
    dead += "Claim(LocalStore(sys.argv[1]), 'dead', 'overwrite').write()"
    subprocess.run([sys.executable, "-c", dead, str(lake)], check=True)

    def work(_):
        try:
            return ddbio.apply(tmp_path / "log", lake, **options)
        except TargetError as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(work, range(2)))
    assert any(isinstance(result, ApplyReport) for result in results), results
    assert sum(result.changes for result in results if isinstance(result, ApplyReport)) == sum(map(len, log.batches))
    assert live(hudi, lake) == {key: (change.item or {}).get("n") for key, change in log.model().items()}
    assert not list((lake / "_ddbio").glob("*.claim.json"))


def test_the_verb(hudi, tmp_path):
    """``ddbio.apply`` counts each change. A run without changes makes no commit. Tombstones are rows."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(7), tmp_path / "lake"
    log.append(writer.batch())
    first = ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=2)
    assert first.changes == len(log.batches[0]) == first.inserted + first.updated + first.deleted + first.stale
    assert ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark").version == first.version
    rows = rows_of(hudi, lake)
    assert {row["pk"] for row in rows} == {change.key for change in log.batches[0]}
    assert {row["pk"] for row in rows if not row["_deleted"]} == set(log.model())


@pytest.mark.nightly
def test_services_of_hudi(hudi, tmp_path):
    """SQL finds the table. Hudi's procedures cluster it, and changes are merged afterwards."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(17), tmp_path / "lake"
    for _ in range(2):
        log.append(writer.batch())
        ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=1)
    hudi.sql(f"CREATE TABLE served USING hudi LOCATION '{lake}'")
    assert hudi.table("served").where("not _deleted").count() == len(log.model())
    kept = "hoodie.write.table.version=6,hoodie.write.auto.upgrade=false,hoodie.metadata.enable=false"
    for call in ("run_clustering(table => 'served'", "run_clean(table => 'served', retain_commits => 1"):
        hudi.sql(f"CALL {call}, options => '{kept},hoodie.embed.timeline.server=false')").collect()
    assert list((lake / ".hoodie").glob("*.replacecommit"))
    assert items_of(rows_of(hudi, lake), {"pk": "pk", "n": "n"}) == expected(log.model())
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark")
    assert items_of(rows_of(hudi, lake), {"pk": "pk", "n": "n"}) == expected(log.model())
    hudi.sql("DROP TABLE served")


def test_an_older_row_never_wins(hudi, tmp_path):
    """Rows of an older version that another writer upserts change nothing: the precombine field decides."""
    log, writer, lake = VirtualLog(LocalStore(tmp_path / "log")), Writer(9), tmp_path / "lake"
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=2)
    before = rows_of(hudi, lake)
    frame = hudi.read.format("hudi").load(str(lake))
    own = [name for name in frame.columns if name.startswith("_hoodie_")]
    older = frame.drop(*own).withColumn("_ver", sql.lit("0" * 44)).withColumn("_op", sql.lit("WRONG"))
    older.write.format("hudi").options(**_OPTIONS).option("hoodie.table.name", "lake").mode("append").save(str(lake))
    assert sorted(rows_of(hudi, lake), key=lambda row: row["_key"]) == sorted(before, key=lambda row: row["_key"])
    log.append(writer.batch())
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark")
    assert {row["pk"]: row["n"] for row in rows_of(hudi, lake) if not row["_deleted"]} == {
        key: (change.item or {}).get("n") for key, change in log.model().items()
    }


def test_moved_rows_are_decided_again(hudi, tmp_path):
    """Another program's commit between reading the keys and the write may move rows.

    Then the batch is decided again.
    """
    log, lake = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake"
    log.append([Change(n, f"k|{n}", {"pk": f"k|{n}", "n": n}) for n in range(1, 7)])
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=2)
    log.append(
        [Change(8, "k|1", {"pk": "k|1", "n": -1}), Change(9, "k|2", None), Change(10, "new", {"pk": "new", "n": 1})]
    )
    job, staged = job_of(hudi, lake, str(tmp_path / "log")), []
    stage = job.table.stage

    def disturbed(*arguments):
        staged.append(stage(*arguments))
        if len(staged) == 1:
            frame = hudi.read.format("hudi").load(str(lake))
            own = [name for name in frame.columns if name.startswith("_hoodie_")]
            other = {
                **_OPTIONS,
                "hoodie.table.name": "lake",
                "hoodie.datasource.write.operation": "insert_overwrite_table",
            }
            kept = frame.drop(*own).localCheckpoint()
            kept.write.format("hudi").options(**other).mode("append").save(str(lake))
        return staged[-1]

    job.table.stage = disturbed
    job.run()
    assert len(staged) == 2
    assert items_of(rows_of(hudi, lake), {"pk": "pk", "n": "n"}) == expected(log.model())


def test_names_that_avro_refuses(hudi, tmp_path):
    """An attribute whose name is invalid in Avro is kept exactly, in the rescue column."""
    log, lake = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake"
    log.declare(columns("a-b", "ok"))
    change = Writer(1)._new(())
    change.item, change.rescue = {"pk": change.key, "n": 1, "a-b": "x", "ok": "y"}, {}
    log.append([change])
    ddbio.apply(tmp_path / "log", lake, format="hudi", engine="spark", buckets=1)
    (row,) = rows_of(hudi, lake)
    assert (row["ok"], json.loads(row["_rescue"])) == ("y", {"a-b": {"S": "x"}})


def test_refused_jobs(hudi, tmp_path):
    """Tables of other programs, dry runs, and rows in memory are refused. The message has the remedy."""
    log = VirtualLog(LocalStore(tmp_path / "log"))
    log.append(Writer(1).batch())
    frame = hudi.createDataFrame([("a", 1, 1)], "id string, ts long, p int")
    other = {
        "hoodie.table.name": "other",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.write.table.version": "6",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
    }
    frame.write.format("hudi").options(**other).mode("append").save(str(tmp_path / "other"))
    with pytest.raises(OptionError, match="did not create"):
        ddbio.apply(tmp_path / "log", tmp_path / "other", format="hudi", engine="spark")
    with pytest.raises(OptionError, match="no dry run"):
        ddbio.plan_apply(tmp_path / "log", tmp_path / "lake", format="hudi", engine="spark")
    with pytest.raises(OptionError, match="takes the folder of a log"):
        ddbio.apply(frame, tmp_path / "lake", format="hudi", engine="spark", key=["id"])


@pytest.fixture
def streamed(fake):
    """Return a client, and a new table with a stream and some items."""
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="eu-west-1")
    name = f"tab-{uuid.uuid4().hex}"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for key in "abcdef":
        put(client, name, key, 1)
    yield client, name
    client.close()


def put(client, table, key, n):
    """Put an item with values of many types."""
    item = {"pk": {"S": key}, "n": {"N": str(n)}, "t": {"SS": ["x", "y"]}, "m": {"M": {"d": {"N": "1.5"}}}}
    client.put_item(TableName=table, Item={**item, "l": {"L": [{"S": "a"}]}, "b": {"B": b"\0\1"}, "o": {"BOOL": True}})


def invoked(*words):
    """Return the exit code of a command, and its output."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.stdout, (done.output, done.exception)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_bootstrap_and_verify(hudi, streamed, fake, tmp_path):
    """One command makes the table and keeps it up to date. It equals the table now, and an export as of a time."""
    (client, name), lake, log = streamed, tmp_path / "lake", tmp_path / "log"
    options = ("--endpoint-url", fake.endpoint_url, "--region", "eu-west-1", "--json")
    command = ("bootstrap", name, lake, "--log", log, "--format", "hudi", "--engine", "spark", "--buckets", 2, *options)
    code, first = invoked(*command)
    assert (code, first["base_rows"], first["gaps"]) == (0, 6, 0)
    put(client, name, "a", 2)
    client.delete_item(TableName=name, Key={"pk": {"S": "b"}})
    put(client, name, "g", 1)
    code, before = invoked("verify", name, lake, *options)
    assert (code, before["missing"], before["extra"], before["different"]) == (1, 1, 1, 1)
    assert {example["key"]["pk"]["S"] for example in before["examples"]} == {"a", "b", "g"}
    code, second = invoked(*command)
    assert (second["base_rows"], second["inserted"], second["updated"], second["deleted"]) == (None, 1, 1, 1)
    code, after = invoked("verify", name, lake, "--format", "hudi", *options)
    assert (code, after["equal"], after["tombstones"], after["version"]) == (0, True, 1, second["version"])
    code, earlier = invoked("verify", name, lake, "--version", before["version"], *options)
    assert (code, earlier["version"], earlier["different"]) == (1, before["version"], 1)
    # The service's export as of a time, followed by more changes.
    items = json.dumps(client.scan(TableName=name)["Items"], default=lambda value: b64encode(value).decode())
    export, at = ExportWriter(tmp_path / "out").full(json.loads(items)), datetime.now(UTC)
    summary = json.loads((export / "manifest-summary.json").read_bytes())
    put_manifest(export, "manifest-summary", json.dumps({**summary, "exportTime": at.isoformat()}).encode())
    put(client, name, "c", 3)
    client.delete_item(TableName=name, Key={"pk": {"S": "d"}})
    assert invoked(*command)[1]["version"] > second["version"]
    code, verified = invoked("verify", export, lake, "--log", log, "--at", at.isoformat(), *options)
    assert (code, verified["equal"], verified["unsettled"], verified["recent"] >= 2) == (0, True, 0, True), verified
    code, verified = invoked("verify", export, lake, *options)
    assert (code, verified["equal"], verified["unsettled"] >= 2) == (0, True, True)
    states = ddbio.history(lake, key="S:c").to_pylist()
    assert [(state["operation"], state["n"]) for state in states] == [("BASE", 1), ("INSERT", 1), ("MODIFY", 3)]


def age(lake, days):
    """Make all files look older."""
    for path in (file for file in lake.rglob("*") if file.is_file()):
        at = path.stat().st_mtime - days * 86_400
        os.utime(path, (at, at))


@pytest.mark.timeout(900)
def test_maintain(hudi, tmp_path):
    """Old tombstones are removed, buckets are sorted, and old versions with commits are deleted, as in the dry run."""
    log, lake, day = VirtualLog(LocalStore(tmp_path / "log")), tmp_path / "lake", 86_400_000_000
    options = {"format": "hudi", "engine": "spark"}
    old = [Change(n + 1, f"k|{n}", {"pk": f"k|{n}", "n": 20 - n}, time_us=BEGAN) for n in range(9)]
    log.append(old)
    log.append([Change(20, "k|0", None, time_us=BEGAN + 1), Change(21, "k|1", None, time_us=BEGAN + 3 * day)])
    log.append([Change(22, "k|2", {"pk": "k|2", "n": 0}, time_us=BEGAN + 3 * day)])
    ddbio.apply(tmp_path / "log", lake, buckets=2, max_records_per_batch=1, **options)
    versions = [version.number for version in HudiLakeTable(LocalStore(lake)).timeline()]
    assert len(versions) == 3
    words = ("maintain", lake, "--format", "hudi", "--engine", "spark", "--json")
    wanted = ("--tombstones-older-than", "2d", "--sort-by", "n")
    _, plan = invoked(*words, *wanted, "--dry-run")
    assert (plan["tombstones"], plan["rewritten_files"] > 0, plan["version"]) == (1, True, versions[-1])
    assert [version.number for version in HudiLakeTable(LocalStore(lake)).timeline()] == versions
    _, done = invoked(*words, *wanted)
    assert (done["tombstones"], done["rewritten_files"]) == (1, plan["rewritten_files"])
    assert done["gc_floor_us"] == BEGAN + day
    assert {row["pk"] for row in rows_of(hudi, lake) if row["_deleted"]} == {"k|1"}
    state = HudiLakeTable(LocalStore(lake)).load()
    for file in state.files:
        numbers = pq.read_table(lake / file.path, columns=["n"]).column("n").to_pylist()
        assert numbers == sorted(numbers, key=lambda n: -1 if n is None else n)
    assert live(hudi, lake) == {key: change.item["n"] for key, change in log.model().items()}
    # Nothing is left to do, so nothing is committed.
    assert invoked(*words, *wanted)[1]["version"] == done["version"]
    log.append([old[0], Change(30, "k|3", {"pk": "k|3", "n": 100}, time_us=BEGAN + 4 * day)])
    age(lake, 5)
    applied = ddbio.apply(tmp_path / "log", lake, **options)
    assert (applied.inserted, applied.updated, applied.stale) == (0, 1, 1)
    wanted = ("--vacuum-older-than", "2d", "--expire-snapshots-older-than", "2d")
    _, plan = invoked(*words, *wanted, "--dry-run")
    assert min(plan["deleted_files"], plan["deleted_log_files"]) > 0
    _, done = invoked(*words, *wanted)
    for name in ("deleted_files", "deleted_log_files", "since_version"):
        assert done[name] == plan[name]
    model = {key: change.item["n"] for key, change in log.model().items() if key != "k|0"}
    assert live(hudi, lake) == {row["pk"]: row["n"] for row in read_of(lake) if not row["_deleted"]} == model
    # The version that was the newest at that time is still readable.
    assert {row["pk"] for row in read_of(lake, done["since_version"])} == {f"k|{n}" for n in range(1, 9)}
    for version in versions:
        with pytest.raises(NotFoundError):
            read_of(lake, version)
    log.append([Change(31, "k|4", None, time_us=BEGAN + 4 * day)])
    assert ddbio.apply(tmp_path / "log", lake, **options).deleted == 1
