from __future__ import annotations

import pytest

from ddbio.commit.committer import CommitInfo
from ddbio.commit.protocol import Target
from ddbio.commit.snapshot import (
    LiveFile,
    Snapshot,
    folder_files,
    format_snapshot,
    live_files,
    parse_snapshot,
    read_history,
)
from ddbio.errors import NotFoundError, TargetError
from ddbio.storage.meta import claim_path, snapshot_path
from ddbio.storage.staged import FileNaming

INFO = CommitInfo(created_at="2025-01-02T03:04:05Z", source={}, schema="{}")


def run(store, job_id, mode="append"):
    """Commit a job of one small file."""
    target = Target(store=store, mode=mode, lease_seconds=0)
    replaced = target.prepare(job_id)
    sink = store.create(FileNaming(job_id, 0).path(0, "parquet"))
    sink.write(b"rows")
    target.commit(job_id, [sink.finish(4)], INFO, replaced)


def test_live_files_are_those_of_all_manifests(make_store):
    """Files of other programs and of uncommitted jobs are not live; an overwrite leaves only its own."""
    store = make_store()
    run(store, "one")
    run(store, "two")
    store.put("part-three-00000-0-0000.parquet", b"never committed")
    assert [(file.path, file.size_bytes, file.rows) for file in live_files(store).files] == [
        (FileNaming(job_id, 0).path(0, "parquet"), 4, 4) for job_id in ("one", "two")
    ]
    store.delete(["part-three-00000-0-0000.parquet"])
    run(store, "four", "overwrite")
    assert [file.path for file in live_files(store).files] == [FileNaming("four", 0).path(0, "parquet")]


def test_a_folder_without_manifests_is_its_row_files(make_store):
    """Partitions follow from the folders' names; files of a job that is still committing are left out."""
    store = make_store()
    store.put("day=2024-01-01/kind=a%2Fb/x.parquet", b"1")
    store.put("day=__HIVE_DEFAULT_PARTITION__/y.parquet", b"22")
    store.put("_SUCCESS", b"")
    store.put("part-one-00000-0-0000.parquet", b"333")
    store.put(claim_path("one"), b"{}")
    snapshot = live_files(store)
    assert (snapshot.version, [file.rows for file in snapshot.files]) == (0, [None, None])
    assert [file.partition for file in snapshot.files] == [{"day": "2024-01-01", "kind": "a/b"}, {"day": None}]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_first_version_has_the_files_that_readers_saw(make_store, mode):
    """A job that adds to a folder of another program hides none of its files; one that replaces them does."""
    store = make_store()
    store.put("day=1/theirs.parquet", b"1")
    store.put("day=2/theirs.csv", b"22")
    target = Target(store=store, mode=mode, overwrite_foreign=True, partitions_only=True, lease_seconds=0)
    replaced = target.prepare("one")
    own = FileNaming("one", 0).path(0, "parquet", "day=2/")
    sink = store.create(own)
    sink.write(b"rows")
    target.commit("one", [sink.finish(4)], INFO, replaced)
    snapshot = live_files(store)
    theirs = ["day=1/theirs.parquet", *(["day=2/theirs.csv"] if mode == "append" else [])]
    assert (snapshot.version, snapshot.added) == (1, (own,))
    assert [file.path for file in snapshot.files] == sorted([*theirs, own])
    assert all(file.partition == {"day": file.path[4]} for file in snapshot.files if file.path in theirs)
    store.put("later.parquet", b"of another program")
    run(store, "two")
    assert "later.parquet" not in live_files(store).paths


def test_a_version_that_is_not_there_is_named(make_store):
    """The error mentions that a vacuum may have removed it."""
    with pytest.raises(NotFoundError, match=r"no version 7: .*vacuum"):
        live_files(make_store(), 7)


def test_snapshots_are_text_and_back(make_store):
    """All facts about a file are restored, and the newest snapshot counts."""
    store = make_store()
    file = LiveFile("day=1/ü.parquet", 9, 2, {"day": "1"}, {"pk": {"min": "a", "max": "b", "nulls": 0}})
    first = Snapshot(0, (LiveFile("old", 1),)).changed(("job", "append", "now"), [file])
    second = first.changed(("job2", "replace", "later"), [LiveFile("new", 3)], ["old", "never"])
    for snapshot in (first, second):
        assert parse_snapshot(format_snapshot(snapshot), snapshot_path(snapshot.version)) == snapshot
        store.put(snapshot_path(snapshot.version), format_snapshot(snapshot))
    assert live_files(store) == second
    assert (second.version, second.added, second.removed) == (2, ("new",), ("old",))
    assert second.paths == {"day=1/ü.parquet", "new"}
    assert live_files(store, 1) == first
    assert read_history(store) == [first, second]


def test_an_invalid_snapshot_is_refused():
    """Text of another program, or of a newer ddbio, is refused."""
    with pytest.raises(TargetError, match=r"json is not as ddbio writes it: the text is \[\], not an object"):
        parse_snapshot(b"[]", snapshot_path(1))
    with pytest.raises(TargetError, match="newer ddbio"):
        parse_snapshot(b'{"format": 9}', snapshot_path(1))


def test_readers_of_a_folder_see_live_files_and_those_of_others(make_store):
    """A file that a job replaced, or has not committed yet, is not read; one that another program added is."""
    store = make_store()
    run(store, "one")
    store.put("foreign.parquet", b"1")
    store.put("part-dead-00000-0-0000.parquet", b"22")
    own = FileNaming("one", 0).path(0, "parquet")
    assert [file.path for file in folder_files(store).files] == ["foreign.parquet", own]
    newer = live_files(store).changed(
        ("two", "replace", ""), [LiveFile("hidden/_x.parquet", 3)], ["foreign.parquet", own]
    )
    store.put(snapshot_path(newer.version), format_snapshot(newer))
    with pytest.raises(NotFoundError, match=r"_x.parquet belongs to version 2"):
        folder_files(store)
    store.put("hidden/_x.parquet", b"333")
    assert [file.path for file in folder_files(store).files] == ["foreign.parquet", "hidden/_x.parquet"]
