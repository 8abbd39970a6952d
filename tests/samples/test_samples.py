"""Files and states that ddbio wrote at commit 02500d22, and later: each command reads them, and the next run resumes.

``make.py`` made the samples of that commit, and ``make_states.py`` the later ones.
"""

from __future__ import annotations

import json
import os
import shutil
import time

import boto3
import duckdb
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cdc.lineages import lineages_of
from ddbio.cdc.log_reader import open_log
from ddbio.errors import GapError
from ddbio.lambda_handlers import log_changes
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.samples.make import BOTH, BUCKET, DATA, MISFIT, TABLE, TTL, create, item, record
from tests.samples.make_states import SAMPLES
from tests.surface import jobs

CAPTURED, HANDED = {"a|0": 100, "a|2": 2, "a|3": 3, "a|1.5": 5}, {"pk|1": 1, "qk|2": 2, "pk|1.5": 101, "qk|1.5": 4}
CURRENT = {"a|0": 0, "a|1": 10, "a|3": 20, "a|4": 30, "a|5": 5}
"""The final contents of the table of ``make_states.py``."""
LOGS = {
    "streams": (CAPTURED, 12),
    "kinesis": (CAPTURED, 12),
    "two": (CAPTURED, 12),
    "lambda": (HANDED, 5),
    "replay": (HANDED, 5),
    "compacted": (HANDED, 5),
    "healed": (CURRENT, 12),
    "leased": (CURRENT | {"a|3": 3, "a|4": 4}, 10),
    "handled": ({"a|0": 0, "a|1": 1, "a|2": 2}, 3),
    "replayed": ({"a|0": 0, "a|1": 1, "a|2": 2}, 3),
    "bootstrapped_log": ({"a|4": 30}, 1),
}
"""The final items of each log, and the number of its changes."""
FORMATS = {"delta": "delta", "iceberg": "iceberg", "base": "delta"}


# The start of the first capture of the samples.
BEGAN = 1795793473.0


@pytest.fixture(scope="module")
def aws():
    """Serve all samples by an S3 server under their original URIs, and return the options to reach it."""
    with MotoServer() as server:
        client = boto3.client("s3", endpoint_url=server.endpoint_url, region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        for name in ("streams", "iceberg", "archive"):
            for path in (file for file in (DATA / name).rglob("*") if file.is_file()):
                client.put_object(Bucket=BUCKET, Key=path.relative_to(DATA).as_posix(), Body=path.read_bytes())
        client.close()
        yield {"s3_endpoint_url": server.endpoint_url, "region": "us-east-1"}


@pytest.fixture
def copied(tmp_path):
    """Return a function that copies samples to a folder, with states that match the table of the fake."""

    def copy(name):
        folder = tmp_path / name
        shutil.copytree(DATA / name, folder)
        for path in folder.glob("_ddbio/*.capture.json"):
            head = json.loads(path.read_text())
            path.write_text(json.dumps({**head, "started_at": head.get("started_at", BEGAN) - BEGAN + time.time()}))
        for path in folder.glob("_ddbio/*/stream-*.json"):
            renamed(path, started_at=time.time() + 8000)
        return folder

    return copy


@pytest.fixture(scope="module")
def fake():
    """Serve a table with the items of the samples, and return its client."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as server:
        client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")
        create(client, stream=False)
        for key, n in CAPTURED.items():
            client.put_item(TableName=TABLE, Item=item(*key.split("|"), n))
        # A table like that of the later samples.
        jobs.create(client, "whole")
        for number in range(4):
            client.put_item(TableName="whole", Item=jobs.item("a", number, number))
        yield {"endpoint_url": server.endpoint_url}, client
        client.close()


def alive(rows):
    """Return the numbers of the final items of a history, by their keys."""
    last = (row for row in rows.to_pylist() if row["valid_to"] is None and row["operation"] not in {"REMOVE", "TTL"})
    return {row["_key"].replace("S:", "").replace("N:", ""): row["n"] for row in last}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_by_each_command(name, copied, tmp_path):
    """All commands return the same changes, before and after a compaction. Rescued keys are keys."""
    log, (wanted, count) = copied(name), LOGS[name]
    for kind in ("delta", "iceberg"):
        assert alive(ddbio.history(log)) == wanted
        audit = ddbio.verify_capture(log)
        assert (audit.is_whole, audit.rows, audit.repeated) == (True, count, 0), audit
        lake = tmp_path / kind
        report = ddbio.apply(log, lake, format=kind, buckets=1)
        # Some changes of a healed and compacted log are read twice.
        assert report.changes == count or (name == "healed" and report.changes > count)
        assert alive(ddbio.history(lake)) == wanted
        if name != "two":
            # SQL cannot compare numbers of two streams, whose captures chose different types.
            rows = duckdb.sql(ddbio.history_view_sql(log, dialect="duckdb")).to_arrow_table()
            assert {*wanted.values()} <= {*rows.column("n").to_pylist()}
            assert ddbio.catalog_ddl(log, dialect="spark")
        assert ddbio.layout(log).rows == count
        assert "n" in ddbio.infer_schema(log).to_arrow().names
        ddbio.compact(log)


@pytest.mark.parametrize("name", ["streams", "two"])
def test_a_captured_log_is_continued_with_its_table(name, copied, fake, tmp_path):
    """The next run knows the table's id. It refuses the new stream until a gap is accepted, and numbers a lineage."""
    options, client = fake
    log, lake = copied(name), copied("delta") if name == "streams" else tmp_path / "lake"
    client.update_table(TableName=TABLE, StreamSpecification=BOTH)
    try:
        client.put_item(TableName=TABLE, Item=item("a", MISFIT, 5))
        run = {"available_now": True, "old_image": True, **options}
        with pytest.raises(GapError, match="on_gap=continue"):
            ddbio.capture(TABLE, log, **run)
        report = ddbio.capture(TABLE, log, on_gap="continue", **run)
        assert len(report.gaps) == 1
        described = client.describe_table(TableName=TABLE)["Table"]
        last = lineages_of(JobState(LocalStore(log), report.job_id, "capture"))[-1]
        assert (last.stream, last.table_id) == (described["LatestStreamArn"], described["TableId"])
        assert len(open_log(LocalStore(log)).lineages()) == (2 if name == "streams" else 3)
        ddbio.apply(log, lake)
        assert ddbio.verify(TABLE, lake, **options).equal
        ddbio.maintain(lake)
        assert alive(ddbio.history(lake)) == CAPTURED
    finally:
        client.update_table(TableName=TABLE, StreamSpecification={"StreamEnabled": False})


def test_a_log_of_kinesis_is_continued_with_its_table(copied, fake, tmp_path):
    """The data stream is the same, and the next run records the table's id."""
    options, client = fake
    log = copied("kinesis")
    data = boto3.client("kinesis", region_name="us-east-1", **options)
    data.create_stream(StreamName="changes", ShardCount=1)
    arn = data.describe_stream_summary(StreamName="changes")["StreamDescriptionSummary"]["StreamARN"]
    data.close()
    client.enable_kinesis_streaming_destination(TableName=TABLE, StreamArn=arn)
    client.put_item(TableName=TABLE, Item=item("a", MISFIT, 5))
    run = {"available_now": True, "old_image": True, "source": "kinesis", "on_gap": "continue"}
    report = ddbio.capture(TABLE, log, **run, **options)
    (lineage,) = lineages_of(JobState(LocalStore(log), report.job_id, "capture"))
    assert lineage.table_id == client.describe_table(TableName=TABLE)["Table"]["TableId"]
    ddbio.apply(log, tmp_path / "lake")
    assert ddbio.verify(TABLE, tmp_path / "lake", **options).equal


@pytest.mark.parametrize("name", ["lambda", "replay", "compacted", "streams", "handled", "replayed", "healed"])
@pytest.mark.parametrize("how", ["handler", "replay"])
def test_other_jobs_continue_a_log(name, how, copied, monkeypatch, tmp_path):
    """They use its columns, and each reader gets the new changes once."""
    log, records = copied(name), [record(number, kinesis=False) for number in (203, 204)]
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.json").write_text("\n".join(map(json.dumps, records)))
    monkeypatch.setenv("DDBIO_LOG", str(log))
    monkeypatch.setenv("DDBIO_LOG_OPTIONS", "{}")
    for _ in range(2):
        if how == "handler":
            assert not log_changes({"Records": records})["batchItemFailures"]
        else:
            ddbio.replay(tmp_path / "more", log)
    wanted = {**LOGS[name][0], "pk|1.5": 203, "qk|1.5": 204}
    assert alive(ddbio.history(log)) == wanted
    ddbio.apply(log, tmp_path / "lake")
    assert alive(ddbio.history(tmp_path / "lake")) == wanted
    assert ddbio.verify_capture(log).is_whole
    assert ddbio.catalog_ddl(log, dialect="spark")


def test_an_archive_is_continued(aws, fake):
    """Nothing is archived twice, also in a new archive. Rescued keys are restored."""
    options, client = fake
    log = f"s3://{BUCKET}/streams"
    assert ddbio.archive(log, f"s3://{BUCKET}/archive", ttl=TTL, **aws).items == 0
    assert ddbio.archive(log, f"s3://{BUCKET}/other", ttl=TTL, **aws).items == 2
    described = client.describe_table(TableName=TABLE)["Table"]
    same = {name: described[name] for name in ("AttributeDefinitions", "KeySchema")}
    client.create_table(TableName="restored", BillingMode="PAY_PER_REQUEST", **same)
    for name in ("archive", "other"):
        assert ddbio.restore_archived(f"s3://{BUCKET}/{name}", "restored", **options, **aws).items == 2
    restored = {stored["sk"]["N"]: stored for stored in client.scan(TableName="restored")["Items"]}
    assert restored == {"1": item("old", "1", 9), MISFIT: item("old", MISFIT, 8)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_lake_table_is_read_and_continued(name, copied, fake, aws):
    """It has the first changes. The next run applies the others, and then the table equals the items."""
    lake = f"s3://{BUCKET}/iceberg" if name == "iceberg" else copied(name)
    log = f"s3://{BUCKET}/streams" if name == "iceberg" else copied("streams")
    first = {"a|0": 0, "a|1": 1, "a|2": 2, "a|3": 3, "old|1": 9}
    assert alive(ddbio.history(lake, **aws)) == first
    differences = ddbio.verify(TABLE, lake, **fake[0], **aws)
    assert (differences.missing, differences.extra, differences.different) == (1, 2, 1)
    assert ddbio.infer_schema(lake, **aws).to_arrow().names
    assert ddbio.digest(lake, **aws) == ddbio.digest(DATA / "delta")
    assert ddbio.apply(log, lake, format=FORMATS[name], **aws).changes
    assert ddbio.verify(TABLE, lake, **fake[0], **aws).equal
    ddbio.maintain(lake, format=FORMATS[name], **aws)
    assert alive(ddbio.history(lake, **aws)) == CAPTURED


@pytest.mark.parametrize("name", ["folder", "published"])
def test_a_folder_is_read_and_continued(name, copied, fake):
    """Its version, rows and digest are unchanged. The next version has the additions."""
    folder = copied(name)
    files = ddbio.list_files(folder)
    assert (files.version, files.rows) == ({"folder": 3, "published": 1}[name], 8)
    assert ddbio.digest(folder) == ddbio.digest(copied({"folder": "published", "published": "folder"}[name]))
    assert ddbio.layout(folder).rows == 8
    assert {"pk", "sk", "n"} <= {*ddbio.infer_schema(folder).to_arrow().names}
    if name == "published":
        ddbio.publish(folder.parent / "folder", folder)
    else:
        ddbio.scan_to_files(TABLE, folder, mode="append", **fake[0])
        ddbio.compact(folder)
    after = ddbio.list_files(folder)
    assert after.version > files.version
    assert after.rows == (8 if name == "published" else 12)


def test_a_stopped_scan_is_resumed(copied, fake):
    """It reads the rest of its segments, and its files have all items once."""
    options, client = fake
    jobs.create(client, "misfits")
    keys = [*((f"a{number}", number) for number in range(8)), ("b", 0)]
    for pk, sk in keys:
        client.put_item(TableName="misfits", Item={"pk": {"S": pk}, "sk": {"N": str(sk)}, "n": {"N": str(sk)}})
    folder = copied("stopped_scan")
    described = client.describe_table(TableName="misfits")["Table"]
    # The table has the same name, but it is another table.
    renamed(folder / "_ddbio/stopped.scan.json", table=f"{described['TableArn']} {described['TableId']}")
    run = {"job_id": "stopped", "on_misfit": "fail", "types": "n=int64", "tasks": 1, **options}
    report = ddbio.scan_to_files("misfits", folder, **run)
    assert (report.rows, report.segments, report.resumed_items > 0) == (9, 4, True)
    rows = pq.ParquetDataset([folder / file.path for file in ddbio.list_files(folder).files]).read()
    assert sorted(zip(rows["pk"].to_pylist(), rows["sk"].to_pylist(), strict=True)) == keys
    assert not [*folder.glob("_ddbio/stopped.scan*")]


def test_a_stopped_load_is_resumed(copied, fake, tmp_path):
    """It writes only the remaining items: there is no request for an item that is recorded as written."""
    options, client = fake
    jobs.create(client, "loaded")
    state, source = copied("stopped_load"), copied("stopped_load_rows")
    run = {"job_id": "limited", "lanes": 1, "tasks": 1, "reject_to": tmp_path / "rejects", "max_rejects": 1, **options}
    ddbio.load_files(source, "loaded", state=tmp_path / "other", **run)
    # The files have other modification times, and the table is another one.
    head = "_ddbio/limited.load.json"
    (state / head).write_bytes((tmp_path / "other" / head).read_bytes())
    client.delete_item(TableName="loaded", Key={"pk": {"S": "new"}, "sk": {"N": "3"}})
    report = ddbio.load_files(source, "loaded", state=state, **run)
    assert (report.resumed_rows, report.written, report.rejected) == (6, 0, 1)
    assert client.scan(TableName="loaded")["Count"] == 5


def test_a_stopped_commit_is_finished(copied, fake):
    """The next job finishes the commit of the one that died, and adds its own."""
    folder = copied("stopped_commit")
    (claim,) = folder.glob("_ddbio/*.claim.json")
    os.utime(claim, (BEGAN, BEGAN))
    assert ddbio.scan_to_files("whole", folder, mode="append", **fake[0]).rows == 4
    listing = ddbio.list_files(folder)
    assert (listing.version, listing.rows) == (2, 11)
    assert not [*folder.glob("_ddbio/*.intent.json"), *folder.glob("_ddbio/*.claim.json")]


def test_a_log_of_leases_is_continued(copied):
    """The next runs acquire its leases, and read the stream that followed."""
    log = copied("leased")
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as server:
        options = {"endpoint_url": server.endpoint_url}
        client = boto3.client("dynamodb", region_name="us-east-1", **options)
        # The clock of the sample was ahead.
        server.pass_time(7200)
        jobs.create(client, TABLE, stream=True)
        client.put_item(TableName=TABLE, Item=jobs.item("a", 6, 6))
        run = {"available_now": True, "leases": 2, **options}
        ddbio.capture(TABLE, log, on_gap="continue", **run)
        client.put_item(TableName=TABLE, Item=jobs.item("a", 7, 7))
        ddbio.capture(TABLE, log, **run)
        client.close()
    assert alive(ddbio.history(log)) == LOGS["leased"][0] | {"a|6": 6, "a|7": 7}


def test_a_bootstrapped_table_is_continued(copied):
    """The table already contains the changes of its log, so no change modifies a row."""
    lake, log = copied("bootstrapped"), copied("bootstrapped_log")
    assert alive(ddbio.history(lake)) == CURRENT
    report = ddbio.apply(log, lake)
    assert report.stale == report.changes
    ddbio.maintain(lake)
    assert alive(ddbio.history(lake)) == CURRENT


def test_partitions_are_read_and_continued(copied, fake):
    """The partition columns are known, and a scan appends to them."""
    folder = copied("partitions")
    assert (ddbio.list_files(folder).rows, ddbio.layout(folder).rows) == (7, 7)
    assert {file.partition["day"] for file in ddbio.list_files(folder).files} == {f"2026-11-0{n}" for n in (1, 2, 3)}
    ddbio.scan_to_files("whole", folder, mode="append", partition_by="day", **fake[0])
    assert ddbio.list_files(folder).rows == 11
    ddbio.compact(folder)
    assert ddbio.list_files(folder).rows == 11


def test_files_of_an_import_are_read(copied):
    """Their manifest and their rows are unchanged."""
    folder = copied("import_files")
    assert ddbio.list_files(folder).rows == 7
    assert len(ddbio.infer_schema(folder / "data").to_arrow()) > 5


def renamed(path, **members):
    """Change members of a state file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


def test_the_samples_are_those_of_the_script():
    """Each sample exists, and all files are small."""
    assert {folder.name for folder in DATA.iterdir()} == {*LOGS, *FORMATS, *SAMPLES, "archive", "folder", "published"}
    assert max(file.stat().st_size for file in DATA.rglob("*")) < 12_000
