"""Rows spilled into buckets are read back in order, are in few objects, and are deleted after killed jobs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.errors import TargetError
from ddbio.export.spill import Spill, SpillReader, SpillWriter, claimed_folder
from ddbio.storage.local_store import LocalStore, temporary_folder
from ddbio.storage.meta import claim_path

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=8)
KILLED = """
import os, sys
from ddbio.commit.committer import Claim
from ddbio.storage.local_store import LocalStore
store = LocalStore(sys.argv[1])
Claim(store, "dead", "append").take()
store.put("dead/items/00000-00000", b"rows")
os._exit(9)
"""


def rows_of(reader, bucket):
    """Return the rows of a bucket as numbers."""
    return [number for table in reader.tables(bucket) for number in table["number"].to_pylist()]


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(0, 2), HASHES, st.booleans()), max_size=8),
    buckets=st.integers(1, 5),
    first=st.integers(0, 4),
)
def test_buckets_are_read_back_in_the_order_of_writing(batches, buckets, first):
    """Each bucket has the rows of its hashes by writer, for any flushes and ranges of buckets."""
    with tempfile.TemporaryDirectory() as folder:
        spill = Spill(LocalStore(folder), buckets)
        writers = [SpillWriter(spill, "items", f"{number:05d}") for number in range(3)]
        expected = [[[] for _ in range(buckets)] for _ in writers]
        number = 0
        for writer, hashes, flushes in batches:
            numbers = range(number, number := number + len(hashes))
            batch = pa.record_batch({"number": pa.array(numbers, pa.int64())})
            writers[writer].write(batch, np.array(hashes, np.uint64))
            for row_number, value in zip(numbers, hashes, strict=True):
                expected[writer][value % buckets].append(row_number)
            if flushes:
                writers[writer].flush()
        for writer in writers:
            writer.flush()
        wanted = range(min(first, buckets), buckets)
        reader = SpillReader(spill, "items", wanted)
        for bucket in wanted:
            assert rows_of(reader, bucket) == [number for writer in expected for number in writer[bucket]]


def test_a_task_writes_few_objects(tmp_path):
    """One flush writes one object for any number of buckets; a repeated task replaces it."""
    spill = Spill(LocalStore(tmp_path), 64)
    for _ in range(2):
        writer = SpillWriter(spill, "items", "00000")
        for start in range(0, 1000, 100):
            numbers = np.arange(start, start + 100)
            writer.write(pa.record_batch({"number": numbers}), numbers.astype(np.uint64))
        writer.flush()
        writer.flush()
    assert [entry.path for entry in spill.store.list()] == [f"{spill.run}/items/00000-00000"]
    assert rows_of(SpillReader(spill, "items", range(10, 12)), 11) == list(range(11, 1000, 64))


def test_what_dead_jobs_spilled_is_deleted(tmp_path):
    """A fold deletes spilled rows of killed folds in the same folder, but not those of running ones."""
    root = LocalStore(tmp_path)
    subprocess.run([sys.executable, "-c", KILLED, root.uri], check=False)
    assert {entry.path for entry in root.list()} == {claim_path("dead"), "dead/items/00000-00000"}
    with claimed_folder(root, "running"):
        root.put("running/items/00000-00000", b"rows")
        assert {entry.path for entry in root.list()} == {claim_path("running"), "running/items/00000-00000"}
        with claimed_folder(root, "other"):
            pass
        assert root.read("running/items/00000-00000") == b"rows"
    assert {entry.path for entry in root.list()} == {"running/items/00000-00000"}


def test_a_job_that_was_taken_for_dead_fails(tmp_path):
    """Its rows may have been deleted before they were read, so it must not publish the others."""
    root = LocalStore(tmp_path)
    with pytest.raises(TargetError, match="has lost its claim"), claimed_folder(root, "slept"):
        root.delete([claim_path("slept")])


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path, monkeypatch):
    """A folder without a lock is deleted, unless it is new; locked folders and those with other names stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("ddbio-spill-dead", "ddbio-spill-locked", "ddbio-spill-new", "other")
    dead, locked, new, other = (tmp_path / name for name in names)
    for path in (dead, locked, new, other):
        (path / "rows").mkdir(parents=True)
        (path / "lock").touch()
        if path != new:
            os.utime(path, (1, 1))
    with (locked / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with temporary_folder() as folder:
            assert sorted(tmp_path.iterdir()) == sorted([locked, new, other, Path(folder)])
            os.utime(folder, (1, 1))
            with temporary_folder():
                assert Path(folder).is_dir()
    assert sorted(tmp_path.iterdir()) == [locked, new, other]
