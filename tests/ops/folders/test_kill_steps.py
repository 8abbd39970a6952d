"""Kill -9 of jobs right before each of the changes that they make to a folder, in processes of their own.

The changes are found as Python audits them, so that nothing is hooked or replaced in the code that runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio

ROWS, FILES = 3, 4

# Forks a process for each line that it reads, which runs a verb and dies before the change of that number or, where the
# line holds a part of a name, before the first change of a name that has it.
_SCRIPT = """
import os, re, signal, sys
import ddbio
import ddbio.ops.folders.compact, ddbio.ops.folders.publish, ddbio.ops.folders.vacuum
from ddbio.core.folders.staged import FileNaming
from ddbio.files.commit import Target
from ddbio.files.committer import AlreadyCommittedError, CommitInfo, publishing
from ddbio.files.local_store import LocalStore
from ddbio.files.snapshot import live_files

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}
DIGITS = re.compile("[0-9]{8}T[0-9]{6}Z_[0-9a-f]+|[0-9]+")

def commit(lake, mode, rows, job_id="j1"):
    store = LocalStore(lake)
    with publishing(Target(store=store, mode=mode), job_id) as publish:
        staged = []
        for task in range(2):
            sink = store.create(FileNaming(job_id, task).path(0, "parquet"))
            with open(os.path.join(rows, f"{task + 2}.parquet"), "rb") as file:
                sink.write(file.read())
            staged.append(sink.finish(5))
        publish(staged, CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema=""))

def run(verb, lake, curated):
    if verb == "compact":
        ddbio.compact(lake, verify="rows", engine="local", tasks=1)
    elif verb == "publish":
        ddbio.publish(lake, curated)
    elif verb == "rollback":
        ddbio.rollback(curated)
    elif verb == "vacuum":
        ddbio.vacuum(curated, older_than="0s")
    else:
        try:
            commit(lake, verb, curated)
        except AlreadyCommittedError:
            pass

def die_at(moment, places, told):
    left = [int(moment) if moment.isdigit() else 1]
    def audit(event, arguments):
        if event not in CHANGES and not (event == "open" and arguments[2] & os.O_CREAT):
            return
        path = os.fsdecode(arguments[1 if event in {"os.rename", "os.link"} else 0])
        if not path.startswith(places) or not (moment.isdigit() or moment in path):
            return
        left[0] -= 1
        if left[0] == 0:
            os.write(told, f"{event} {DIGITS.sub('N', os.path.relpath(path, places[0]))}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(audit)

for line in sys.stdin:
    verb, moment, lake, curated = line.split()
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        die_at(moment, (lake, curated), told)
        try:
            run(verb, lake, curated)
        except ddbio.errors.TargetError as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(told)
    name = os.read(heard, 4096).decode()
    os.close(heard)
    status = os.waitpid(child, 0)[1]
    print(name or f"ended {os.waitstatus_to_exitcode(status)}", flush=True)
"""


@pytest.fixture(scope="module")
def killer():
    """Run the process that forks and kills, and return how it is asked."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def kill(verb, moment, lake, curated):
            process.stdin.write(f"{verb} {moment} {lake} {curated}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield kill
        process.stdin.close()


def keys(paths):
    """Return the keys that files hold, each as often as it is there."""
    return sorted(key for path in paths for key in pq.ParquetFile(path).read()["pk"].to_pylist())


def write(lake, numbers):
    """Write small files, each with rows of its own."""
    lake.mkdir(exist_ok=True)
    for number in numbers:
        rows = {"pk": [f"{number}-{row}" for row in range(ROWS)]}
        pq.write_table(pa.table(rows), lake / f"{number}.parquet")


def live(folder):
    """Return the keys of the live files of a folder."""
    return keys(ddbio.list_files(folder).paths)


def require_tidy(folder):
    """Assert that nothing of a dead job is left."""
    assert not [each for end in ("claim.json", "intent.json", "staged") for each in folder.rglob(f"*.{end}")]


def strike(kill, verb, make, check, *named):
    """Kill a verb before its first change, its second, and so on until it ends; return how often each was struck.

    Files are renamed side by side, so that a change need not have its number in the next run: each of the named ones
    is struck once more, by its name.
    """
    struck = Counter()

    def is_struck(moment):
        lake, curated = make(sum(struck.values()))
        name = kill(verb, moment, lake, curated)
        if name != "ended 0":
            assert not name.startswith("ended"), name
            check(lake, curated)
            struck[name] += 1
        shutil.rmtree(lake)
        shutil.rmtree(curated, ignore_errors=True)
        return name != "ended 0"

    assert any(not is_struck(number) for number in range(1, 200)), struck
    for name in named:
        assert is_struck(name), (name, struck)
    return struck


def test_a_compaction_that_is_killed_before_any_change(tmp_path, killer):
    """Each row is in the live files once, wherever it struck; the next compaction leaves those files and no others."""

    def make(number):
        lake = tmp_path / f"lake{number}"
        write(lake, range(FILES))
        return lake, tmp_path / "none"

    def check(lake, _):
        whole = [f"{number}-{row}" for number in range(FILES) for row in range(ROWS)]
        assert live(lake) == whole
        ddbio.compact(lake, verify="rows", engine="local", tasks=1)
        assert live(lake) == keys(lake.glob("*.parquet")) == whole
        require_tidy(lake)

    struck = strike(killer, "compact", make, check, "claim", "intent", "snapshots/", "part-", ".staged")
    assert sum(count for name, count in struck.items() if name.startswith("os.remove")) >= FILES


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["append", "overwrite", "error"])
def test_a_commit_that_is_killed_before_any_change(tmp_path, killer, mode):
    """The folder holds what it held or what the job writes, never both or neither; the next run makes it good."""
    old, new = ([f"{number}-{row}" for number in numbers for row in range(ROWS)] for numbers in ((0, 1), (2, 3)))
    whole = {"append": old + new, "overwrite": new, "error": new}[mode]
    before = [] if mode == "error" else old

    def make(number):
        lake = tmp_path / f"lake{number}"
        if mode != "error":
            write(tmp_path / "first", range(2))
            ddbio.publish(tmp_path / "first", lake)
            # A file of no manifest, which an overwrite would not delete unasked.
            shutil.rmtree(lake / "_symlink_format_manifest")
        write(tmp_path / "new", range(2, FILES))
        return lake, tmp_path / "new"

    def check(lake, curated):
        assert live(lake) in (before, whole) if lake.exists() else mode == "error"
        assert killer(mode, 0, lake, curated) == "ended 0"
        assert live(lake) == whole
        require_tidy(lake)

    strike(killer, mode, make, check, "claim", "intent", "snapshots/", "part-", ".staged")


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["publish", "rollback", "vacuum"])
def test_a_publication_that_is_killed_before_any_change(tmp_path, killer, verb):
    """Readers of the versions see the old rows or the new ones, wherever it struck; the next run makes it good."""
    old = [f"{number}-{row}" for number in range(2) for row in range(ROWS)]
    new = [f"{number}-{row}" for number in range(FILES) for row in range(ROWS)]

    def make(number):
        lake, curated = tmp_path / f"lake{number}", tmp_path / f"curated{number}"
        write(lake, range(2))
        ddbio.publish(lake, curated)
        write(lake, range(2, FILES))
        if verb != "publish":
            ddbio.publish(lake, curated)
        return lake, curated

    def check(lake, curated):
        assert live(curated) in ([new] if verb == "vacuum" else [old, new])
        linked = (curated / "_symlink_format_manifest" / "manifest").read_text("utf-8").splitlines()
        assert keys(linked) in (old, new)
        ddbio.publish(lake, curated)
        assert live(curated) == new
        ddbio.vacuum(curated, older_than="0s")
        linked = (curated / "_symlink_format_manifest" / "manifest").read_text("utf-8").splitlines()
        assert sorted(linked) == sorted(map(str, curated.rglob("*.parquet")))
        assert live(curated) == keys(linked) == new
        require_tidy(curated)

    named = {"publish": ("claim", "intent", "snapshots/", "part-"), "vacuum": ("claim", "snapshots/", "part-")}
    strike(killer, verb, make, check, *named.get(verb, ("claim", "intent", "snapshots/")))
