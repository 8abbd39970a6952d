from __future__ import annotations

import errno
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddbio.commit.protocol import Target
from ddbio.errors import NotFoundError, TargetError
from ddbio.storage.local_store import LocalSink, LocalStore, _target_errors
from ddbio.storage.staged import FileNaming, StoredObject

PART = FileNaming("job", 0).path(0, "parquet")


@pytest.fixture
def locked(tmp_path):
    """Return a folder that the user of the test may not write, even if the user is root."""
    tmp_path.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield tmp_path
    if is_root:
        os.seteuid(0)
    tmp_path.chmod(0o755)


def test_a_file_is_staged_within_the_target_and_renamed(local_store):
    """A staged file is on the target's file system, under a name that no pattern for data matches."""
    sink = local_store.create(PART)
    sink.write(memoryview(b"ab"))
    sink.write(b"c")
    staged = sink.finish(3)
    root = Path(local_store.uri)
    assert [path.name for path in root.rglob("*.parquet*")] == [f"{PART}.staged"]
    local_store.complete(staged)
    local_store.complete(staged)
    assert local_store.read(PART) == b"abc"
    assert list(local_store.list()) == [StoredObject(PART, 3)]


def test_completing_a_missing_file_is_an_error(local_store):
    """A missing staged file, or a path with other bytes, never counts as completed."""
    staged = local_store.create(PART).finish(0)
    local_store.abort("job")
    with pytest.raises(NotFoundError, match="run the job again"):
        local_store.complete(staged)
    local_store.put(PART, b"other")
    with pytest.raises(NotFoundError):
        local_store.complete(staged)


@pytest.mark.parametrize("form", [str, Path, lambda path: path.as_uri(), lambda path: f"{path}/"])
def test_targets_come_as_path_or_uri(tmp_path, form):
    """A path, a Path and a file URI, also with spaces, are the same target."""
    target = tmp_path / "a b"
    assert LocalStore(form(target)).uri == str(target)


def test_a_relative_target_stays_where_it_was_named(tmp_path, monkeypatch):
    """A relative path is resolved when the store is made, regardless of the worker's folder."""
    monkeypatch.chdir(tmp_path)
    frozen = pickle.dumps(LocalStore("out"))
    monkeypatch.chdir("/")
    assert pickle.loads(frozen).uri == str(tmp_path / "out")


def test_put_if_absent_has_one_winner(local_store):
    """Of many concurrent writers, exactly one succeeds, and its bytes are stored."""
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: local_store.put_if_absent("_ddbio/m.json", str(n).encode()), range(16)))
    assert won.count(True) == 1
    assert local_store.read("_ddbio/m.json") == str(won.index(True)).encode()


def test_put_replaces(local_store):
    """A put is atomic, and replaces the older object."""
    local_store.put("a/b", b"older")
    local_store.put("a/b", b"new")
    assert local_store.read("a/b") == b"new"


def test_a_missing_file_is_not_found(local_store):
    """Reading a missing file raises, deleting it is ignored, and listing a missing target yields nothing."""
    with pytest.raises(NotFoundError):
        local_store.read("none")
    local_store.delete(["none", "no/ne"])
    assert list(local_store.list()) == []


def test_delete_removes_emptied_folders_only(local_store):
    """Folders are deleted with their last file; the target itself stays."""
    for path in ["x/y/a", "x/b", "c"]:
        local_store.put(path, b"")
    local_store.delete(["x/y/a", "c"])
    root = Path(local_store.uri)
    assert not (root / "x/y").exists()
    assert (root / "x/b").exists()
    local_store.delete(["x/b"])
    assert root.is_dir()


def test_abort_keeps_a_target_that_was_there(tmp_path):
    """A folder that the user made stays; one that the job made is deleted with its parents."""
    (tmp_path / "mine").mkdir()
    for target in ["mine", "mine/deep/er"]:
        store = LocalStore(tmp_path / target)
        store.create(PART).finish(0)
        store.abort("job")
        store.abort("job")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_abort_keeps_what_others_made_meanwhile(local_store):
    """A target that is not empty any more stays when its first job is aborted."""
    local_store.create(PART).finish(0)
    local_store.put("theirs", b"x")
    local_store.abort("job")
    assert local_store.read("theirs") == b"x"


@pytest.mark.parametrize("size_bytes", [10, 1_000_000])
def test_a_full_disk_is_an_error(tmp_path, size_bytes):
    """A device without space is one error with the target and an advice; abort still works."""
    device = tmp_path / "device"
    device.symlink_to("/dev/full")
    sink = LocalSink(device, PART, tmp_path)

    def write():
        sink.write(bytes(size_bytes))
        sink.finish(0)

    with pytest.raises(TargetError, match=r"disk full at .*free space") as full:
        write()
    assert full.value.uri == str(tmp_path)
    sink.abort()
    assert not device.is_symlink()
    assert sink.write(b"swallowed") == 9


def test_a_file_is_no_target(tmp_path):
    """A target that is a file, or is below one, is refused by name."""
    (tmp_path / "file").write_text("x")
    for target in ["file", "file/below"]:
        with pytest.raises(TargetError, match="is a file or is below one"):
            LocalStore(tmp_path / target).create(PART)


def test_a_folder_without_permission_is_no_target(locked):
    """A target that may not be written is refused with the reason."""
    with pytest.raises(TargetError, match=r"not writable \(Permission denied\)"):
        LocalStore(locked / "out").create(PART)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "disk full"),
        (errno.EROFS, "not writable"),
        (errno.EIO, "not writable"),
    ],
)
def test_refusals_of_the_system_have_different_errors(tmp_path, number, text):
    """Every refusal of the system becomes a TargetError with an advice."""
    with pytest.raises(TargetError, match=text), _target_errors(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_range_of_a_file(local_store):
    """A range is read without the rest; a missing file is an error."""
    local_store.put("a/b", b"0123456789")
    (entry,) = local_store.list("a/")
    assert local_store.read_range(entry, 3, 4) == b"3456"
    local_store.delete(["a/b"])
    with pytest.raises(NotFoundError, match="a/b"):
        local_store.read_range(entry, 0, 1)


def test_a_replaced_file_has_another_version(local_store):
    """An object that changed is listed with another version."""
    local_store.put("a", b"1")
    (before,) = local_store.list()
    os.utime(Path(local_store.uri) / "a", (1, 1))
    (after,) = local_store.list()
    assert (before == after, before.version == after.version) == (True, False)


def test_listing_looks_only_where_the_prefix_leads(local_store):
    """Folders that cannot contain the prefix are not entered, and none that can is left out."""
    for path in ("a/b/c", "a/bc", "ab/c", "b/a"):
        local_store.put(path, b"x")
    root = Path(local_store.uri)
    (root / "other").mkdir()
    (root / "other" / "loop").symlink_to(root / "other" / "loop")
    assert [entry.path for entry in local_store.list("a/b")] == ["a/bc", "a/b/c"]
    assert [entry.path for entry in local_store.list("a")] == ["a/bc", "a/b/c", "ab/c"]


def test_a_folder_that_may_not_be_written_is_refused_before_the_job(tmp_path):
    """A target that is a file, or is below one, is refused with its name before anything is read."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetError, match="is a file or is below one"):
        Target(store=LocalStore(tmp_path / "file" / "out"), mode="append").prepare("one")


def test_jobs_that_make_and_remove_the_same_folders_do_not_fail_each_other(tmp_path):
    """A job that writes, lists and deletes continues, regardless of empty folders that other jobs remove."""

    def run(job):
        store, state = LocalStore(tmp_path / "target"), f"_ddbio/{job}.load/a.json"
        for _ in range(100):
            store.put(state, b"1")
            assert store.put_if_absent(f"_ddbio/{job}.claim.json", b"2")
            staged = store.create(FileNaming(job, 0).path(0, "parquet")).finish(0)
            store.complete(staged)
            assert state in {entry.path for entry in store.list("_ddbio/")}
            store.delete([state, f"_ddbio/{job}.claim.json", staged.path])
            store.abort(job)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, ["one", "two", "three", "four"]))
    assert not list(LocalStore(tmp_path / "target").list())
