"""The files of a log are the same for all readers, regardless of the jobs that have written them."""

from __future__ import annotations

import json
import shutil

import boto3
import duckdb
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cdc.lineages import LogLineage
from ddbio.cdc.log_jobs import BatchRecords, NumberedFiles, log_jobs, number_log
from ddbio.cdc.log_reader import oldest_hour, open_log
from ddbio.errors import NotFoundError
from ddbio.items.encode import to_dynamodb_json
from ddbio.lambda_handlers import log_changes
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.testing import MotoServer
from tests.cdc.test_delivered import joined, put
from tests.test_lambda_handlers import stream_record


def handle(log, monkeypatch, numbers):
    """Log one change per item with the Lambda handler."""
    monkeypatch.setenv("DDBIO_LOG", str(log))
    monkeypatch.setenv("DDBIO_LOG_OPTIONS", "{}")
    assert not log_changes({"Records": [stream_record(number) for number in numbers]})["batchItemFailures"]


def replay(log, folder, numbers, **options):
    """Replay the same changes from an object."""
    put(folder / "delivered", f"{min(numbers)}", joined(*(stream_record(number) for number in numbers)))
    ddbio.replay(folder / "delivered", log, **options)


def make_old(log):
    """Reduce the state of a job to that of older versions, without a start time."""
    for head_path in (*log.glob("_ddbio/*.replay.json"), *log.glob("_ddbio/*.lambda.json")):
        head = json.loads(head_path.read_text())
        del head["started_at"]
        head_path.write_text(json.dumps(head))


def keys_of(log, folder):
    """Return the keys that each reader finds. All must find the same."""
    lake = folder / "lake"
    ddbio.apply(log, lake, buckets=2)
    rows = duckdb.sql(ddbio.history_view_sql(log, dialect="duckdb")).fetchall()
    return {
        "lake": sorted(key[2:] for key in ddbio.history(lake).column("_key").to_pylist()),
        "history": sorted(key[2:] for key in ddbio.history(log).column("_key").to_pylist()),
        "view": sorted(next(key for key in row if str(key).startswith("user#")) for row in rows),
        "files": sorted(key for path in ddbio.list_files(log).paths for key in pq.read_table(path)["pk"].to_pylist()),
    }


HANDLER, REPLAY, COMPACT, VACUUM, READ, OLD = "handler", "replay", "compact", "vacuum", "read", "old"


@pytest.mark.parametrize(
    "steps",
    [
        (HANDLER,),
        (REPLAY,),
        (HANDLER, REPLAY),
        (HANDLER, READ, HANDLER, READ, REPLAY),
        (REPLAY, OLD, READ, REPLAY),
        (HANDLER, OLD, COMPACT, HANDLER),
        (HANDLER, COMPACT),
        (HANDLER, HANDLER, COMPACT, VACUUM, REPLAY),
        (REPLAY, HANDLER, COMPACT, REPLAY, COMPACT, VACUUM),
        (HANDLER, READ, COMPACT, VACUUM, HANDLER, COMPACT),
    ],
    ids="-".join,
)
def test_all_readers_find_the_same_changes(steps, tmp_path, monkeypatch):
    """The same holds for logs without captures, after compactions, and for logs of older versions."""
    log, count = tmp_path / "log", 0
    for step in steps:
        if step in {HANDLER, REPLAY}:
            # Changes of two hours.
            numbers = [count, count + 1, count + 100]
            count += 1000
            if step == HANDLER:
                handle(log, monkeypatch, numbers)
            else:
                replay(log, tmp_path, numbers)
        elif step == OLD:
            make_old(log)
        elif step == COMPACT:
            ddbio.compact(log)
        elif step == VACUUM:
            ddbio.vacuum(log, older_than="0s")
        else:
            keys_of(log, tmp_path)
    wanted = sorted(f"user#{first + number}" for first in range(0, count, 1000) for number in (0, 1, 100))
    assert keys_of(log, tmp_path) == dict.fromkeys(("lake", "history", "view", "files"), wanted)
    report = ddbio.verify_capture(log)
    assert (report.is_whole, report.records, report.rows) == (True, len(wanted), len(wanted)), report


def test_a_log_on_s3(tmp_path, monkeypatch):
    """The handler and a replay write one log, and a lake table has all changes."""
    with MotoServer() as aws:
        client = boto3.client("s3", endpoint_url=aws.endpoint_url, region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        client.close()
        options = {"s3_endpoint_url": aws.endpoint_url, "region": "us-east-1"}
        replay("s3://lake/log", tmp_path, [1, 2], **options)
        monkeypatch.setenv("DDBIO_LOG", "s3://lake/log")
        monkeypatch.setenv("DDBIO_LOG_OPTIONS", json.dumps(options))
        log_changes({"Records": [stream_record(3)]})
        assert ddbio.apply("s3://lake/log", "s3://lake/orders", **options).inserted == 3
        assert ddbio.history("s3://lake/log", **options).num_rows == 3


def test_concurrent_jobs_record_each_file_once(tmp_path, monkeypatch):
    """A process that finds records of another one reads them again."""
    log = tmp_path / "log"
    handle(log, monkeypatch, [1, 100, 200])
    store = LocalStore(log)
    (state,) = log_jobs(store)
    files, added = {entry.path: entry for entry in store.list("year=")}, BatchRecords.add
    first, *others = sorted(files)

    def add_behind(records, number, record):
        """Let another process record one of the files first."""
        monkeypatch.setattr(BatchRecords, "add", added)
        NumberedFiles(BatchRecords(state)).add({first: files[first]}, ())
        return added(records, number, record)

    monkeypatch.setattr(BatchRecords, "add", add_behind)
    numbered = NumberedFiles(BatchRecords(state))
    numbered.add(files, ())
    recorded = [file["path"] for record in BatchRecords(state).all() for file in record["files"]]
    assert (sorted(recorded), numbered.number) == ([first, *others], 2)


def test_batches_have_few_rows(tmp_path, monkeypatch):
    """The first read of an old log gives batches that can be applied in order."""
    monkeypatch.setattr("ddbio.cdc.log_jobs._BATCH_ROWS", 2)
    for number in range(5):
        handle(tmp_path / "log", monkeypatch, [number * 100])
    number_log(LocalStore(tmp_path / "log"))
    log = open_log(LocalStore(tmp_path / "log"))
    assert list(log.written().values()) == [3]


def test_a_replay_has_changes_of_the_streams_of_the_log(tmp_path, monkeypatch):
    """Each file belongs to the stream at the time of its changes. Numbers are compared within one stream."""
    log, began = tmp_path / "log", 1793491203
    for number, at in (("1", began - 3600), ("2", began + 1)):
        head = {"stream": f"arn:aws:dynamodb:us-east-1:1:table/orders/stream/{number}", "started_at": at}
        JobState(LocalStore(log), f"stream_{number}", "lambda").begin(head)
    put(tmp_path / "delivered", "0", joined(*(stream_record(number) for number in (1, 2, 100))))
    report = ddbio.replay(tmp_path / "delivered", log)
    assert report.files == 2
    read = open_log(LocalStore(log))
    actual = [
        (lineage.stream[-1], sum(file.rows for file in files)) for lineage, files in read.parts({}, read.written())
    ]
    assert actual == [("1", 2), ("2", 1)]
    assert isinstance(read.lineages()[0], LogLineage)


def test_a_folder_without_a_log_is_an_error(tmp_path, monkeypatch):
    """Neither the state of a replay into a table nor a missing job is a log. The message has the existing jobs."""
    JobState(LocalStore(tmp_path / "state"), "replay_1", "replay").begin({"source": "s", "target": "orders"})
    for folder in ("state", "nothing"):
        with pytest.raises(NotFoundError, match="is not a log of changes"):
            ddbio.apply(tmp_path / folder, tmp_path / "lake")
    handle(tmp_path / "log", monkeypatch, [1])
    with pytest.raises(NotFoundError, match=r"give one of stream_\w+, or no job_id"):
        ddbio.apply(tmp_path / "log", tmp_path / "lake", job_id="capture_1")


@pytest.mark.parametrize(
    ("gone", "expired", "whole_since"),
    [([], 0, 0), ([0], 1, 1), ([0, 1], 2, 2), ([1], None, 2), ([0, 2], None, 3), ([3], None, None)],
)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_hours_that_have_expired(is_compacted, gone, expired, whole_since, tmp_path, monkeypatch):
    """Readers may skip missing oldest hours if they do not need them. A missing hour between others is an error."""
    log = tmp_path / "log"
    for hour in range(4):
        handle(log, monkeypatch, [hour * 100])
        handle(log, monkeypatch, [hour * 100 + 1])
    number_log(LocalStore(log))
    if is_compacted:
        assert ddbio.compact(log).files_rewritten == 8
    hours = sorted({path.parent for path in log.glob("year=*/*/*/*/*.parquet")})
    for index in gone:
        shutil.rmtree(hours[index])
    if expired is None:
        with pytest.raises(NotFoundError, match="is gone"):
            ddbio.history(log)
    else:
        assert ddbio.history(log).num_rows == 2 * (4 - expired)
        assert len(ddbio.list_files(log).paths) == (4 - expired) * (1 if is_compacted else 2)
        assert oldest_hour(LocalStore(log)).endswith(f"{hours[expired].name}/")
        # A new query starts at the oldest existing hour.
        assert list(open_log(LocalStore(log)).first().values()) == [0]
    times = [f"2026-11-01T{hour:02}:00:00+00:00" for hour in range(4)]
    actual = [ddbio.verify_capture(log, since=at).is_whole for at in times]
    assert actual == [whole_since is not None and hour >= whole_since for hour in range(4)]
    if gone:
        # A table without a base needs all hours.
        with pytest.raises(NotFoundError, match="ddbio bootstrap"):
            ddbio.apply(log, tmp_path / "lake")


VALUES = {
    "number, text": ({"N": "1"}, {"S": "12"}),
    "text, number": ({"S": "12"}, {"N": "1"}),
    "whole, fraction": ({"N": "1"}, {"N": "1.25"}),
    "fraction, digits": ({"N": "1.25"}, {"N": "9" * 38}),
    "maps": ({"M": {"a": {"N": "1"}}}, {"M": {"a": {"S": "1"}}}),
    "maps of numbers": ({"M": {"a": {"N": "1"}}}, {"M": {"a": {"N": "1.5"}, "b": {"S": "x"}}}),
    "lists": ({"L": [{"N": "1"}]}, {"L": [{"S": "1"}]}),
    "list, mixed list": ({"L": [{"N": "1"}]}, {"L": [{"N": "1"}, {"S": "x"}]}),
    "sets": ({"SS": ["a"]}, {"NS": ["1"]}),
    "binary, text": ({"B": "AAE="}, {"S": "AAE="}),
    "flag, number": ({"BOOL": True}, {"N": "1"}),
}


@pytest.mark.parametrize("is_older", [False, True], ids=["new", "older"])
@pytest.mark.parametrize(
    "case",
    [
        case if case in {"number, text", "whole, fraction", "maps"} else pytest.param(case, marks=pytest.mark.nightly)
        for case in VALUES
    ],
)
def test_jobs_of_a_log_may_find_other_types(case, is_older, tmp_path, monkeypatch):
    """A new job uses the columns of the log.

    In an older log, values that do not fit the first job's columns are rescued.
    """
    if is_older:
        # Each job has its own columns.
        for module in ("replay", "stream_events"):
            monkeypatch.setattr(f"ddbio.cdc.{module}.columns_in", lambda *_: None)
    log, records = tmp_path / "log", dict[str, dict[str, object]]()
    for number, value in enumerate(VALUES[case] * 2):
        record = stream_record(number)
        record["dynamodb"]["NewImage"] |= {"value": value}
        if number % 2:
            before = record["dynamodb"]["NewImage"] | {"value": VALUES[case][0]}
            record = {**record, "eventName": "MODIFY", "dynamodb": {**record["dynamodb"], "OldImage": before}}
        records[str(number)] = record
    monkeypatch.setenv("DDBIO_LOG", str(log))
    monkeypatch.setenv("DDBIO_LOG_OPTIONS", json.dumps({"old_image": True}))
    log_changes({"Records": [records["0"], records["2"]]})
    put(tmp_path / "delivered", "a", joined(records["1"], records["3"]))
    ddbio.replay(tmp_path / "delivered", log, old_image=True)
    if not is_older:
        assert ddbio.catalog_ddl(log, dialect="spark")
    for step in range(2):
        rows = ddbio.history(log)
        actual = from_lines(rows.drop_columns(["_key", "valid_from", "valid_to", "operation", "_ver"]))
        assert actual == {number: record["dynamodb"]["NewImage"]["value"] for number, record in records.items()}
        ddbio.apply(log, tmp_path / f"lake{step}", buckets=1)
        rows = ddbio.history(tmp_path / f"lake{step}")
        actual = from_lines(rows.drop_columns(["_key", "valid_from", "valid_to", "operation", "_ver"]))
        assert actual == {number: record["dynamodb"]["NewImage"]["value"] for number, record in records.items()}
        assert ddbio.verify_capture(log).rows == 4
        ddbio.compact(log)


def from_lines(rows):
    """Return the values of items by their numbers."""
    items = (json.loads(line) for line in to_dynamodb_json(rows).splitlines())
    return {item["n"]["N"]: item["value"] for item in items}


@pytest.mark.parametrize("steps", ["C", "CV", "RC", "CRC", "CRCV"])
def test_a_log_of_replays_alone_may_be_compacted(steps, tmp_path):
    """It is a log even if no file has the name of a replay any more."""
    log, count = tmp_path / "log", 1
    replay(log, tmp_path, [0])
    replay(log, tmp_path, [1])
    for step in steps:
        if step == "R":
            count += 1
            replay(log, tmp_path, [count])
        elif step == "C":
            ddbio.compact(log)
        else:
            ddbio.vacuum(log, older_than="0s")
    assert ddbio.history(log).num_rows == count + 1
    assert ddbio.apply(log, tmp_path / "lake").inserted == count + 1
    assert ddbio.verify_capture(log).is_whole
