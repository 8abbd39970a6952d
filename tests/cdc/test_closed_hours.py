"""Compaction of the closed hours of a log during its capture."""

from __future__ import annotations

import json
import threading
import time

import pytest

import ddbio
from ddbio.errors import NotFoundError
from ddbio.folders.compact import hour_began
from tests.cdc.test_capture import SECONDS, client, fake, make_table, rows_of  # noqa: F401 - fixtures
from tests.cdc.test_delivered import change, joined, put


def test_closed_hours_alone_are_compacted(fake, client, make_table, tmp_path):  # noqa: F811 - the fixtures
    """Hours that ended long enough ago become one file each. The capture continues, and its new files are also live."""
    log, source, table = tmp_path / "log", tmp_path / "delivered", make_table()
    for number in range(3):
        put(source, str(number), joined(change(f"old{number}", number)))
    ddbio.replay(source, log)
    run = {"available_now": True, "endpoint_url": fake.endpoint_url}
    for pk in ("a", "b", "c", "d"):
        client.put_item(TableName=table, Item={"pk": {"S": pk}, "n": {"N": "1"}})
        ddbio.capture(table, log, **run)
    assert len(ddbio.list_files(log).paths) == 7
    report = ddbio.compact(log, closed_hours="1h", verify="rewritten")
    assert (report.files_rewritten, report.files_written) == (3, 1)
    client.put_item(TableName=table, Item={"pk": {"S": "e"}, "n": {"N": "1"}})
    ddbio.capture(table, log, **run)
    paths = ddbio.list_files(log).paths
    assert sorted(map(str, log.glob("year=*/**/*.parquet"))) == sorted(paths)
    assert len(paths) == 6
    assert ddbio.plan_compact(log, closed_hours="1h").files_rewritten == 0
    put(source, "3", joined(change("old3", 3)))
    ddbio.replay(source, log)
    assert len(ddbio.list_files(log).paths) == 7
    assert ddbio.compact(log).files_rewritten == 7
    assert sorted(row["pk"] for row in rows_of(log)) == ["a", "b", "c", "d", "e", "old0", "old1", "old2", "old3"]
    assert ddbio.vacuum(log, older_than="0s").files_removed == 0
    assert ddbio.verify_capture(log).is_whole


def test_a_log_is_compacted_during_a_capture(fake, client, make_table, tmp_path):  # noqa: F811 - the fixtures
    """Compactions of the current hour lose and repeat nothing, regardless of their number."""
    table, stop, written = make_table(), threading.Event(), 40
    run = {"endpoint_url": fake.endpoint_url, "flush_seconds": 0.02, "flush_bytes": 64 * 1024}
    thread = threading.Thread(target=lambda: ddbio.capture(table, tmp_path, stop=stop, **run))
    thread.start()
    try:
        ends_at = time.monotonic() + SECONDS
        for number in range(written):
            client.put_item(TableName=table, Item={"pk": {"S": str(number)}, "n": {"N": "1"}})
            if number % 10 == 9:
                while not list(tmp_path.glob("year=*/**/*.parquet")):
                    assert time.monotonic() < ends_at
                    time.sleep(0.02)
                ddbio.compact(tmp_path)
    finally:
        stop.set()
        thread.join()
    ddbio.capture(table, tmp_path, available_now=True, **run)
    ddbio.compact(tmp_path)
    assert sorted(int(row["pk"]) for row in rows_of(tmp_path)) == list(range(written))
    assert ddbio.verify_capture(tmp_path).is_whole


def test_folders_of_hours_are_recognized():
    """An hour has all four parts as numbers. Other folders are not hours."""
    partition = {"year": "2026", "month": "11", "day": "01", "hour": "05"}
    assert str(hour_began(partition)) == "2026-11-01 05:00:00+00:00"
    assert hour_began({"year": "2026"}) is None
    assert hour_began({**partition, "hour": None}) is None
    assert hour_began({**partition, "month": "13"}) is None


def test_a_folder_without_hours_is_not_compacted(tmp_path):
    """A folder with files outside of hours is not rewritten, and an empty one is refused."""
    with pytest.raises(NotFoundError):
        ddbio.compact(tmp_path, closed_hours="1h")
    (tmp_path / "a.json").write_text(json.dumps({"pk": 1}))
    assert ddbio.plan_compact(tmp_path, closed_hours="1h").files_rewritten == 0
