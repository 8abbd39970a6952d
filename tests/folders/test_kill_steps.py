"""Compactions, commits and publications that are killed directly before each of their changes to a folder."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
import ddbio.folders.compact
import ddbio.folders.publish
import ddbio.folders.vacuum
from ddbio.commit.committer import AlreadyCommittedError, CommitInfo, publishing
from ddbio.commit.protocol import Target
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming
from tests.jobs.killing import WHOLE, killing, strike

ROWS, FILES = 3, 4


def commit(lake, mode, rows, job_id="j1"):
    """Write two files of rows like a job."""
    store = LocalStore(lake)
    with publishing(Target(store=store, mode=mode), job_id) as publish:
        staged = []
        for task in range(2):
            sink = store.create(FileNaming(job_id, task).path(0, "parquet"))
            sink.write((Path(rows) / f"{task + 2}.parquet").read_bytes())
            staged.append(sink.finish(5))
        publish(staged, CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema=""))


def run(verb, lake, curated):
    """Run a verb on folders."""
    if verb == "compact":
        ddbio.compact(lake, verify="rows", engine="local", tasks=1)
    elif verb == "publish":
        ddbio.publish(lake, curated)
    elif verb == "rollback":
        ddbio.rollback(curated)
    elif verb == "vacuum":
        ddbio.vacuum(curated, older_than="0s")
    else:
        with contextlib.suppress(AlreadyCommittedError):
            commit(lake, verb, curated)


@pytest.fixture(scope="module")
def killer():
    """Return the function that kills a verb."""
    with killing(run) as kill:
        yield kill


def keys(paths):
    """Return the keys in files, with duplicates."""
    return sorted(key for path in paths for key in pq.ParquetFile(path).read()["pk"].to_pylist())


def write(lake, numbers):
    """Write small files, each with its own rows."""
    lake.mkdir(exist_ok=True)
    for number in numbers:
        rows = {"pk": [f"{number}-{row}" for row in range(ROWS)]}
        pq.write_table(pa.table(rows), lake / f"{number}.parquet")


def live(folder):
    """Return the keys of the live files of a folder."""
    return keys(ddbio.list_files(folder).paths)


def require_tidy(folder):
    """Assert that nothing of a dead job remains."""
    assert not [path for end in ("claim.json", "intent.json", "staged") for path in folder.rglob(f"*.{end}")]


def test_a_compaction_that_is_killed_before_any_change(tmp_path, killer):
    """Each row is in the live files once, for every change; the next compaction leaves exactly those files."""

    def make(number):
        lake = tmp_path / f"lake{number}"
        write(lake, range(FILES))
        return [lake], "compact", lake, ""

    def check(_verb, lake, _):
        all_keys = [f"{number}-{row}" for number in range(FILES) for row in range(ROWS)]
        assert live(lake) == all_keys
        ddbio.compact(lake, verify="rows", engine="local", tasks=1)
        assert live(lake) == keys(lake.glob("*.parquet")) == all_keys
        require_tidy(lake)

    struck = strike(killer, make, check, "claim", "intent", "snapshots/", "part-", ".staged")
    assert sum(count for name, count in struck.items() if name.startswith("os.remove")) >= FILES


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["append", "overwrite", "error"])
def test_a_commit_that_is_killed_before_any_change(tmp_path, killer, mode):
    """The folder has the old rows or those of the job, never both or neither; the next run repairs it."""
    old, new = ([f"{number}-{row}" for number in numbers for row in range(ROWS)] for numbers in ((0, 1), (2, 3)))
    all_keys = {"append": old + new, "overwrite": new, "error": new}[mode]
    before = [] if mode == "error" else old

    def make(number):
        lake = tmp_path / f"lake{number}"
        if mode != "error":
            write(tmp_path / "first", range(2))
            ddbio.publish(tmp_path / "first", lake)
            # A file without a manifest, which an overwrite deletes only on request.
            shutil.rmtree(lake / "_symlink_format_manifest")
        write(tmp_path / "new", range(2, FILES))
        return [lake, tmp_path / "new"], mode, lake, tmp_path / "new"

    def check(_, lake, curated):
        assert live(lake) in (before, all_keys) if lake.exists() else mode == "error"
        assert killer(0, [lake], mode, lake, curated) == WHOLE
        assert live(lake) == all_keys
        require_tidy(lake)

    strike(killer, make, check, "claim", "intent", "snapshots/", "part-", ".staged")


@pytest.mark.parametrize(
    "verb", ["publish", *(pytest.param(verb, marks=pytest.mark.nightly) for verb in ("rollback", "vacuum"))]
)
def test_a_publication_that_is_killed_before_any_change(tmp_path, killer, verb):
    """Readers of the versions see the old rows or the new ones, for every change; the next run repairs it."""
    old = [f"{number}-{row}" for number in range(2) for row in range(ROWS)]
    new = [f"{number}-{row}" for number in range(FILES) for row in range(ROWS)]

    def make(number):
        lake, curated = tmp_path / f"lake{number}", tmp_path / f"curated{number}"
        write(lake, range(2))
        ddbio.publish(lake, curated)
        write(lake, range(2, FILES))
        if verb != "publish":
            ddbio.publish(lake, curated)
        return [lake, curated], verb, lake, curated

    def check(_, lake, curated):
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
    strike(killer, make, check, *named.get(verb, ("claim", "intent", "snapshots/")))
