"""A stopped load is resumed: no row is lost, and finished rows are not written again."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.commit.committer import Claim
from ddbio.errors import OptionError, PartialWriteError, TargetError, ThrottledError
from ddbio.load.load import load_plan_of
from ddbio.load.options import LoadOptions
from ddbio.options import parse_options
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB
from ddbio.testing.faults import Faults, Storm

ROWS, GROUP = 4000, 200


@pytest.fixture
def server():
    """Serve one empty table ``rows`` with the key pk."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S")
        yield running


@pytest.fixture
def source(tmp_path):
    """Return a folder of two files with twenty row groups in total."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        keys = [f"{n:05}" for n in range(number * ROWS // 2, (number + 1) * ROWS // 2)]
        pq.write_table(pa.table({"pk": keys, "n": list(range(ROWS // 2))}), folder / f"{number}.parquet", GROUP)
    return folder


@pytest.fixture
def load(server, source, tmp_path):
    """Return a function that loads the folder, with checkpoints in a folder of this test."""

    def run(where=source, **options):
        state = {"state": str(tmp_path / "state"), "job_id": "job_1", "endpoint_url": server.endpoint_url, **options}
        return ddbio.load_files(where, "rows", **{name: value for name, value in state.items() if value is not None})

    return run


def noted_rows(folder):
    """Return the number of finished rows in the checkpoints of a job."""
    notes = [json.loads(path.read_text()) for path in folder.glob("_ddbio/job_1.load/*.json")]
    assert all(rows == GROUP for note in notes for _, _, rows in note["finished"])
    return sum(rows * (last - first + 1) for note in notes for first, last, rows in note["finished"])


def test_a_finished_load_writes_nothing_again(load, server):
    """The same job has no more work in a second run."""
    assert load(lanes=2).written == ROWS
    sent = server.requests()["BatchWriteItem"]
    # Twenty row groups do not have twenty half-filled last requests.
    assert sent <= ROWS // 25 * 1.1
    again = load()
    assert (again.rows, again.resumed_rows, again.job_id) == (0, ROWS, "job_1")
    assert server.requests()["BatchWriteItem"] == sent


def test_the_plan_counts_the_remaining_rows(load, server, source, tmp_path):
    """The plan does not include units of earlier runs, except in the number of finished rows."""
    options = {"table": "rows", "state": str(tmp_path / "state"), "job_id": "job_1", "wcu_per_second": 100}

    def plan():
        values = {"source": str(source), "endpoint_url": server.endpoint_url, **options}
        made = load_plan_of(parse_options(LoadOptions, values))
        return made.source_units, made.rows, made.estimated_units, made.estimated_seconds, made.finished_rows

    assert plan() == (20, ROWS, ROWS, ROWS / 100, 0)
    load()
    for note in (tmp_path / "state").glob("_ddbio/job_1.load/*.json"):
        note.write_text(json.dumps({"finished": [[0, 14, GROUP]]}))
    assert plan() == (5, 5 * GROUP, 5 * GROUP, 5 * GROUP / 100, 15 * GROUP)
    load()
    assert plan() == (0, 0, 0, 0, ROWS)


def test_a_load_that_created_its_table_is_continued(server, source, tmp_path):
    """The table that the first run created is the table of the second run."""
    options = {"create_table": True, "key": "pk:S", "state": str(tmp_path / "state"), "job_id": "job_1"}
    reports = [ddbio.load_files(source, "made", endpoint_url=server.endpoint_url, **options) for _ in range(2)]
    assert [(report.rows, report.resumed_rows) for report in reports] == [(ROWS, 0), (0, ROWS)]


def test_a_killed_load_is_resumed(load, server, source, tmp_path):
    """After SIGKILL only the rows without a checkpoint are written."""
    flags = ["--endpoint-url", server.endpoint_url, "--state", str(tmp_path / "state"), "--job-id", "job_1"]
    command = [sys.executable, "-m", "ddbio", "load", str(source), "rows", *flags, "--wcu-per-second", "200", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 300
        while noted_rows(tmp_path / "state") < 2 * GROUP and time.monotonic() < deadline and running.poll() is None:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGKILL)
    done = noted_rows(tmp_path / "state")
    assert 0 < done < ROWS
    report = load(mode=None)
    assert (report.rows, report.resumed_rows, report.written) == (ROWS - done, done, ROWS - done)
    assert ddbio.read_table("rows", endpoint_url=server.endpoint_url).num_rows == ROWS


def test_no_progress_ends_with_the_command_to_resume(source, tmp_path):
    """Without progress, the error has the command that resumes the load, and this command works."""
    storm = Faults(storms=(Storm(0, 10**9),))
    with FakeDynamoDB() as server, FakeDynamoDB(proxy=server.endpoint_url, faults=storm) as stormy:
        server.load("rows", b"", "pk:S")
        options = {"state": str(tmp_path / "state"), "job_id": "job_1"}
        words = r"ddbio load .* rows --job-id job_1' with the other options resumes"
        with pytest.raises(ThrottledError, match=words):
            ddbio.load_files(source, "rows", deadline_seconds=0.3, endpoint_url=stormy.endpoint_url, **options)
        assert ddbio.load_files(source, "rows", endpoint_url=server.endpoint_url, **options).written == ROWS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "create"}, "started with mode 'upsert', and 'create' is asked for"),
        ({"newer_by": "n"}, "started with newer_by None, and 'n' is asked for"),
        ({"wcu_per_second": 50_000, "lanes": 2}, None),
    ],
)
def test_another_load_under_the_same_id_is_refused(load, options, words):
    """Options that change the result may not change within a job. Options that change its speed may."""
    load()
    if words is None:
        assert load(**options).rows == 0
        return
    with pytest.raises(OptionError, match=words):
        load(**options)


def test_rows_that_two_runs_have_finished_are_counted_once(load, tmp_path):
    """Two runs of one job at the same time do twice the work, with the same rows."""
    load()
    (note,) = (tmp_path / "state").glob("_ddbio/job_1.load/*.json")
    note.with_name("other.json").write_bytes(note.read_bytes())
    assert load().resumed_rows == ROWS


def test_a_changed_source_is_refused(load, source):
    """A replaced file is detected, even with the same size."""
    load()
    path = source / "0.parquet"
    os.utime(path, (1, 1))
    with pytest.raises(OptionError, match="the files of its source have changed since"):
        load()


def test_a_recreated_table_is_refused(load, server):
    """Rows that were written into a deleted table do not count as written."""
    load()
    client = ClientSpec(server.endpoint_url, "eu-west-1").client("dynamodb")
    client.delete_table(TableName="rows")
    server.load("rows", b"", "pk:S")
    with pytest.raises(OptionError, match="started with table"):
        load()


def test_a_unit_whose_rejects_are_not_kept_is_not_finished(load, tmp_path, source):
    """A job that failed at a bad row is resumed with reject_to. Its row numbers count the full source."""
    bad = pa.table({"pk": ["x", "", "y"], "n": [1, 2, 3]})
    pq.write_table(bad, source / "9.parquet")
    with pytest.raises(PartialWriteError, match="row 4001 cannot be written"):
        load(lanes=1)
    report = load(reject_to=str(tmp_path / "bad"))
    assert (report.rejected, report.rejects_uri) == (1, str(tmp_path / "bad"))
    (path,) = (tmp_path / "bad").glob("rejects-job_1-*.jsonl")
    assert json.loads(path.read_text())["row"] == 4001
    assert load().rows == 0


def test_a_unit_whose_rejects_cannot_be_stored_is_not_finished(load, tmp_path, source):
    """If writing to reject_to fails, the unit is not recorded: the next run tries its rows again."""
    pq.write_table(pa.table({"pk": ["x", "", "y"], "n": [1, 2, 3]}), source / "9.parquet")
    (tmp_path / "bad").write_text("a file where the folder should be")
    with pytest.raises(TargetError):
        load(reject_to=str(tmp_path / "bad"))
    (tmp_path / "bad").unlink()
    assert load(reject_to=str(tmp_path / "bad")).rejected == 1


def test_a_unit_whose_row_the_service_refuses_is_not_finished(tmp_path):
    """A row that only the service can refuse, since the item would become too large, is tried again by the next run."""
    # The responses are so slow that none arrives before the unit's last row was passed on.
    with FakeDynamoDB(latency_seconds=0.5) as server:
        stored = {"pk": {"S": "b"}, "text": {"S": "x" * 400_000}}
        server.load("rows", json.dumps({"Item": stored}).encode() + b"\n", "pk:S")
        pq.write_table(pa.table({"pk": ["a", "b", "c"], "more": ["y" * 20_000] * 3}), tmp_path / "rows.parquet")
        options = {"state": str(tmp_path / "state"), "job_id": "job_1", "mode": "update"}
        options["endpoint_url"] = server.endpoint_url
        with pytest.raises(PartialWriteError, match=r"row 1 cannot be written.*ValidationException"):
            ddbio.load_files(tmp_path / "rows.parquet", "rows", **options)
        report = ddbio.load_files(tmp_path / "rows.parquet", "rows", reject_to=str(tmp_path / "bad"), **options)
        assert (report.rows, report.rejected, report.resumed_rows) == (3, 1, 0)


def test_a_state_that_cannot_be_written(load, tmp_path, monkeypatch, caplog):
    """A given state must be writable. Without the default state the load only logs a warning."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetError):
        load(state=str(tmp_path / "file"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert load(state=None).written == ROWS
    assert "cannot be continued" in caplog.text


def test_old_checkpoints_are_swept_from_the_default_folder_alone(load, tmp_path, monkeypatch):
    """Checkpoints that no job has changed for 90 days are deleted by the next load, except its own.

    A given state is kept.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder, other = tmp_path / "ddbio", tmp_path / "state"
    for job_id in ("old", "young"):
        load(state=None, job_id=job_id)
        load(job_id=job_id)
    for path in [*folder.rglob("*.json"), *other.rglob("*.json")]:
        if path.name != "young.load.json" and "young.load" not in str(path.parent):
            os.utime(path, (0, 0))
    assert load(state=None, job_id="old").resumed_rows == ROWS
    os.utime(folder / "_ddbio" / "young.load.json", (0, 0))
    old = [path for path in folder.rglob("*.json") if "old.load" in str(path)]
    assert len(old) > 1
    for path in old:
        os.utime(path, (0, 0))
    assert load(state=None, job_id="young").resumed_rows == ROWS
    assert not [path for path in old if path.exists()]
    load(job_id="young")
    assert load(job_id="old").resumed_rows == ROWS


def test_two_runs_of_one_job_exclude_each_other(source, tmp_path):
    """A second run of a running job is refused, and is resumed after that."""
    with FakeDynamoDB() as server:
        server.load("rows", b"", "pk:S")
        state = tmp_path / "state"
        options = {"endpoint_url": server.endpoint_url, "state": str(state), "job_id": "job_1"}
        running = Claim(LocalStore(state), "job_1", "append", lease_seconds=3)
        running.take()
        with running.renewed(), pytest.raises(TargetError, match=r"job job_1 .*process \d+.* runs already"):
            ddbio.load_files(source, "rows", **options)
        running.release()
        assert ddbio.load_files(source, "rows", **options).written == ROWS
        assert not list(state.rglob("*.claim.json"))


def test_the_same_load_under_another_id_is_recognized(load, server, caplog, tmp_path):
    """A stopped load logs how to resume it. Otherwise nothing is skipped, and a finished one runs again."""
    caplog.set_level("INFO", "ddbio.load")
    assert load(job_id=None).earlier_job_id is None
    assert "the same load" not in caplog.text
    again = load(job_id=None)
    assert (again.written, again.resumed_rows) == (ROWS, 0)
    assert f"the same load has finished before, as job {again.earlier_job_id}" in caplog.text
    [note] = (tmp_path / "state").glob(f"_ddbio/{again.job_id}.load/*.json")
    note.write_text(json.dumps({"finished": [[0, 14, GROUP]]}))
    third = load(job_id=None)
    assert (third.written, third.resumed_rows, third.earlier_job_id) == (ROWS, 0, again.job_id)
    assert f"stopped before, as job {again.job_id}, after {15 * GROUP} rows were written" in caplog.text
    went_on = load(job_id=again.job_id)
    assert (went_on.written, went_on.resumed_rows, went_on.earlier_job_id) == (5 * GROUP, 15 * GROUP, None)
    assert load(job_id=None, mode="create").earlier_job_id is None
    assert ddbio.read_table("rows", endpoint_url=server.endpoint_url).num_rows == ROWS


def test_the_same_load_does_not_run_twice_at_a_time(source, tmp_path):
    """Under another id, older rows of a key could also be written after newer ones. Other loads may run."""
    with FakeDynamoDB() as server:
        server.load("rows", b"", "pk:S")
        options = {"endpoint_url": server.endpoint_url, "state": str(tmp_path / "state")}
        ddbio.load_files(source, "rows", job_id="first", **options)
        [note] = (tmp_path / "state").glob("_ddbio/first.load/*.json")
        note.unlink()
        running = Claim(LocalStore(tmp_path / "state"), "first", "append", lease_seconds=3)
        running.take()
        with running.renewed():
            with pytest.raises(TargetError, match=r"the same load is in progress: job first .*process \d+"):
                ddbio.load_files(source, "rows", **options)
            assert ddbio.load_files(source, "rows", mode="create", **options).skipped == ROWS
        running.release()
        assert ddbio.load_files(source, "rows", **options).earlier_job_id == "first"


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "upsert"},
        {"mode": "update"},
        {"mode": "create"},
        {"mode": "delete"},
        {"newer_by": "n"},
        {"operation_by": "op"},
    ],
    ids=str,
)
def test_every_mode_run_twice_has_the_result_of_once(server, tmp_path, options):
    """A load that is repeated without a job id has the result of one run, also for repeated keys."""
    keys = [f"{n % 40:02}" for n in range(120)]
    columns = {"pk": keys, "n": list(range(120))}
    if "operation_by" in options:
        columns["op"] = [("put", "update", "delete")[n % 7 % 3] for n in range(120)]
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    shared = {"endpoint_url": server.endpoint_url, "state": str(tmp_path / "state"), **options}
    before = pa.table({"pk": ["00", "07", "99"], "n": [-1, -1, -1], "kept": ["a", "b", "c"]})
    ddbio.write_table(before, "rows", endpoint_url=server.endpoint_url)

    def stored():
        rows = ddbio.read_table("rows", endpoint_url=server.endpoint_url).to_pylist()
        return sorted(rows, key=lambda row: row["pk"])

    first = ddbio.load_files(tmp_path / "rows.parquet", "rows", **shared)
    once = stored()
    second = ddbio.load_files(tmp_path / "rows.parquet", "rows", **shared)
    assert stored() == once != []
    assert second.earlier_job_id == first.job_id
    assert second.rows == first.rows == 120
    is_conditional = "newer_by" in options or options.get("mode") == "create"
    assert (second.written, second.skipped) == ((0, 120) if is_conditional else (120, 0))


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.jsonl", "rows.json.gz"])
def test_a_load_of_text_resumes_within_the_file(load, server, tmp_path, name):
    """For one text file, which is one unit, the recorded rows are not written again."""
    count, done, folder = 9000, 7001, tmp_path / "text"
    folder.mkdir()
    if "csv" in name:
        text = "pk,note\n" + "".join(f'{n:05},"a\nb"\n' for n in range(count))
    elif "jsonl" in name:
        text = "".join(f'{{"pk":"{n:05}","note":"x"}}\n' for n in range(count))
    else:
        text = "".join(f'{{"pk":{{"S":"{n:05}"}}}}\n' for n in range(count))
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert load(folder).written == count
    [note] = (tmp_path / "state").glob("_ddbio/job_1.load/*.json")
    note.write_text(json.dumps({"finished": [], "begun": [[0, done]]}))
    again = load(folder)
    assert (again.rows, again.written, again.resumed_rows) == (count - done, count - done, done)
    assert load(folder).resumed_rows == count
