"""Concurrent compactions and appending jobs at one folder, each in its own process."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

ROWS, FILES, APPENDS = 3, 30, 8

_SCRIPT = """
import sys, time
import ddbio
from ddbio.storage.staged import FileNaming
from ddbio.commit.protocol import Target
from ddbio.commit.committer import CommitInfo, publishing
from ddbio.storage.local_store import LocalStore

role, lake, rows, appends = sys.argv[1:]
ddbio.list_files(lake)
print("ready", flush=True)
sys.stdin.readline()
done = 0
if role == "append":
    for number in range(int(appends)):
        store, job_id = LocalStore(lake), f"appended{number}"
        with publishing(Target(store=store, mode="append"), job_id) as publish:
            sink = store.create(FileNaming(job_id, 0).path(0, "parquet"))
            with open(f"{rows}/{number}.parquet", "rb") as file:
                sink.write(file.read())
            info = CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema="")
            publish([sink.finish(3)], info)
        done += 1
else:
    while done < 3:
        try:
            report = ddbio.compact(lake, verify="rows", engine="local", tasks=1)
            assert report.rows % 3 == 0, report
            done += 1
        except ddbio.TargetError:
            # Another one replaces files of the folder now, or did meanwhile.
            time.sleep(0.01)
print(done)
"""


def keys(paths):
    """Return the keys in files, with duplicates."""
    return sorted(key for path in paths for key in pq.ParquetFile(path).read()["pk"].to_pylist())


def test_two_concurrent_compactions_and_an_appending_job(tmp_path):
    """Nothing is lost and nothing is duplicated, for readers of the listing and of the versions."""
    lake, more = tmp_path / "lake", tmp_path / "more"
    more.mkdir()
    for number in range(FILES + APPENDS):
        pq.write_table(pa.table({"pk": [f"{number}-{row}" for row in range(ROWS)]}), more / f"{number}.parquet")
    all_keys = keys(more.glob("*.parquet"))
    store = LocalStore(str(lake))
    with publishing(Target(store=store, mode="append"), "first") as publish:
        staged = []
        for number in range(FILES):
            sink = store.create(FileNaming("first", number).path(0, "parquet"))
            sink.write((more / f"{APPENDS + number}.parquet").read_bytes())
            staged.append(sink.finish(ROWS))
        publish(staged, CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema=""))
    words = [sys.executable, "-c", _SCRIPT]
    processes = [
        subprocess.Popen(
            [*words, role, str(lake), str(more), str(APPENDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for role in ("compact", "compact", "append")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    done = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert done == [3, 3, APPENDS]
    assert keys(ddbio.list_files(lake).paths) == keys(lake.glob("*.parquet")) == all_keys
    assert ddbio.compact(lake, engine="local").rows == len(all_keys)
    assert keys(ddbio.list_files(lake).paths) == keys(lake.glob("*.parquet")) == all_keys
    assert not [path for end in ("claim.json", "intent.json", "staged") for path in lake.rglob(f"*.{end}")]
