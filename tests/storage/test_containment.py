"""Hostile paths and state files in a folder: nothing outside of the folder is touched."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import pytest

from ddbio.commit.committer import CommitInfo
from ddbio.commit.protocol import Target, abort, published_by
from ddbio.commit.snapshot import live_files, read_history
from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import claim_path, intent_path, is_claim, is_intent, is_manifest, manifest_path, read_state
from ddbio.storage.staged import FileNaming, StagedFile, StoredObject
from ddbio.storage.states import add_checksum

JOB = "20260102T030405Z_0123abcd"
DEAD = "20200101T000000Z_deadbeef"
PART = FileNaming(JOB, 0).path(0, "parquet")
INFO = CommitInfo(created_at="2026-01-02T03:04:05Z", source={}, schema="", digest=None)
OUTSIDE = ("../victim", "a/../../victim", "..\\victim", "a\0b", "")
CALLS = {
    "read": lambda store, path: store.read(path),
    "read_chunks": lambda store, path: list(store.read_chunks(path)),
    "read_range": lambda store, path: store.read_range(StoredObject(path, 1), 0, 1),
    "put": lambda store, path: store.put(path, b"x"),
    "put_if_absent": lambda store, path: store.put_if_absent(path, b"x"),
    "delete": lambda store, path: store.delete([path]),
    "create": lambda store, path: store.create(path).abort(),
    "complete": lambda store, path: store.complete(StagedFile(path, 1, 1, {"staged_at": path, "upload_id": "u"})),
    "read_state": read_state,
}


@pytest.fixture
def victim(tmp_path):
    """Return a folder with a file next to the target."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").write_text("x")
    yield tmp_path / "victim"
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "victim" / "thesis.txt").read_text() == "x"


def test_no_call_leaves_the_folder(make_store):
    """Every call refuses a path that leads out of the folder, and names it."""
    store = make_store()
    store.put("there", b"x")
    for path in OUTSIDE:
        for call in CALLS.values():
            with pytest.raises(TargetError, match="is no path within"):
                call(store, path)
    assert [entry.path for entry in store.list()] == ["there"]


def test_written_paths_are_canonical(make_store):
    """Absolute paths and empty parts are refused, even if S3 accepts them."""
    store = make_store()
    for path in ("/etc/passwd", "a//b", "./a", "a/"):
        for name in ("put", "put_if_absent", "create", "complete"):
            with pytest.raises(TargetError, match="is no path within"):
                CALLS[name](store, path)


def test_a_key_has_1024_bytes_with_its_prefix(s3_store):
    """The key has at most 1,024 bytes by S3's count; no request is sent for a longer one."""
    prefix_bytes = len("target/")
    s3_store.put("ü" * ((1024 - prefix_bytes) // 2), b"x")
    with pytest.raises(TargetError, match="is no path within"):
        s3_store.put("ü" * 512, b"x")


def test_keys_of_other_programs_are_read_and_deleted_unchanged(s3_store):
    """An empty part of a key is an ordinary part."""
    s3_store._client.put_object(Bucket=s3_store._bucket, Key="target/a//./b.json", Body=b"{}")
    (entry,) = s3_store.list()
    assert s3_store.read(entry.path) == s3_store.read_range(entry, 0, 2) == b"{}"
    s3_store.delete([entry.path])
    assert not list(s3_store.list())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("link", ["folder", "above", "file", "loop"])
def test_no_link_leads_out(tmp_path, victim, call, link):
    """A hostile link in the folder gives no call access to files elsewhere."""
    store, root = LocalStore(tmp_path / "target"), tmp_path / "target"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "above").symlink_to("../..")
    (root / "folder").symlink_to(victim)
    (root / "file").symlink_to(victim / "thesis.txt")
    (root / "loop").symlink_to(root / "loop")
    path = {"folder": "folder/thesis.txt", "above": "inner/above/victim/thesis.txt"}.get(link, link)
    if link in {"file", "loop"} and call in {"put", "put_if_absent", "delete", "create", "complete"}:
        # The link itself is replaced or deleted, or the call does nothing.
        with contextlib.suppress(NotFoundError):
            CALLS[call](store, path)
        return
    with pytest.raises(DdbioError, match=r"is no path within|cannot be read"):
        CALLS[call](store, path)


def test_links_within_the_folder_and_to_the_folder_are_followed(tmp_path):
    """A file that the user named may itself be a link to anywhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").write_text("{}")
    (tmp_path / "real" / "b.json").symlink_to("a.json")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert LocalStore(tmp_path / "root").read("b.json") == b"{}"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "named.json").symlink_to(tmp_path / "real" / "a.json")
    folder, name = LocalStore(tmp_path / "other" / "named.json").above()
    assert folder.read(name) == b"{}"
    with pytest.raises(TargetError, match="is no path within"):
        LocalStore(tmp_path / "other").read("named.json")


@pytest.mark.parametrize("link", ["_ddbio", "_ddbio/staging", f"_ddbio/staging/{JOB}", f"_ddbio/staging/{JOB}/{PART}.staged"])  # fmt: skip # noqa: E501
def test_nothing_is_staged_elsewhere(tmp_path, victim, link):
    """If folders of ddbio are links, nothing is written to or deleted from their targets."""
    root = tmp_path / "target"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(victim / "thesis.txt" if link.endswith("staged") else victim)
    store = LocalStore(root)
    with pytest.raises(TargetError, match="is no path within"):
        store.create(PART)
    try:
        store.abort(JOB)
    except TargetError as error:
        assert "is no path within" in str(error)  # noqa: PT017 - the link decides whether it can be aborted


def test_the_note_of_made_folders_is_a_count(tmp_path):
    """Folders above the target are deleted only if they are empty, and at most the recorded number of them."""
    store = LocalStore(tmp_path / "empty" / "target")
    (tmp_path / "empty" / "target" / "_ddbio" / "staging").mkdir(parents=True)
    for text in ("-1", "x", "9" * 5000, ""):
        (tmp_path / "empty" / "target" / "_ddbio" / "staging" / "made").write_text(text)
        store.abort(JOB)
        assert (tmp_path / "empty" / "target").is_dir()
        (tmp_path / "empty" / "target" / "_ddbio" / "staging").mkdir(parents=True)


def test_temporary_files_of_killed_writers_go(tmp_path):
    """The next writer of the folder removes them; the file of a running writer stays."""
    staging = tmp_path / "_ddbio" / "staging"
    staging.mkdir(parents=True)
    for name, age_seconds in {"123.4": 7200, "99.0": 10, "notes.txt": 7200}.items():
        (staging / name).write_text("x")
        os.utime(staging / name, (time.time() - age_seconds,) * 2)
    LocalStore(tmp_path).put("a", b"x")
    assert sorted(path.name for path in staging.iterdir()) == ["99.0", "notes.txt"]
    os.utime(staging / "99.0", (1, 1))
    assert LocalStore(tmp_path).staged_jobs() == set()
    assert sorted(path.name for path in staging.iterdir()) == ["notes.txt"]


def test_only_job_ids_name_states():
    """Any other file is not a claim, intent or manifest."""
    for name in ("..", "a b", "a-b", "x/y", "../x", "ü", "a.b", ""):
        assert not is_claim(claim_path(name))
        assert not is_intent(intent_path(name))
        assert not is_manifest(manifest_path(name))
    assert is_claim(claim_path(JOB))
    assert is_intent(intent_path(JOB))
    assert is_manifest(manifest_path(JOB))
    assert not is_manifest(claim_path(JOB))


def cases(states):
    """Return the parameters of a test of some states: all on a disk, some on S3."""
    numbers = range(len(states))
    cases_of_stores = [("local", number) for number in numbers] + [("s3", number) for number in numbers[::4]]
    return pytest.mark.parametrize(("make_store", "number"), cases_of_stores, indirect=["make_store"])


def put_state(store, path, state, age_seconds=1000):
    """Write a state file; on a disk it also gets this age."""
    store.put(path, state if isinstance(state, bytes) else add_checksum(json.dumps(state)))
    if isinstance(store, LocalStore):
        os.utime(Path(store.uri) / path, (time.time() - age_seconds,) * 2)


def job(store, mode="append", lease_seconds=0.0):
    """Run a job that adds one file."""
    target = Target(store=store, mode=mode, lease_seconds=lease_seconds)
    replaced = target.prepare(JOB)
    sink = store.create(PART)
    sink.write(b"rows")
    target.commit(JOB, [sink.finish(4)], INFO, replaced)


CLAIMS = (
    b"{}",
    b"[1]",
    b"",
    b"null",
    b"{",
    b"[" * 5000,
    {"job_id": "../../victim", "mode": "append", "owner": {}},
    {"format": "9"},
)
STAGED = {"path": PART.replace(JOB, DEAD), "size_bytes": 1, "rows": 1, "token": {"staged_at": "../victim/thesis.txt"}}
MANIFEST = {"job_id": DEAD, "created_at": "", "rows": 0, "files": [], "mode": "append"}
INTENT = {
    "job_id": DEAD,
    "staged": [],
    "replaced": [],
    "manifest": MANIFEST,
    "change": {"mode": "append", "operation": "append", "removed": [], "base_version": 0},
    "deletes": True,
}
INTENTS = (
    b"{}",
    {**INTENT, "replaced": ["../victim/thesis.txt"]},
    {**INTENT, "objects": [{"path": "../victim/new.txt", "text": "x"}]},
    {**INTENT, "objects": [{"path": "/tmp/absolute.txt", "text": "x"}]},
    {**INTENT, "staged": [STAGED]},
    {**INTENT, "staged": [{**STAGED, "path": "stolen.txt", "token": {"staged_at": "there"}}]},
    {**INTENT, "job_id": "other"},
    {**INTENT, "manifest": {**MANIFEST, "files": [{"path": "../victim/thesis.txt", "bytes": 1}]}},
    {**INTENT, "change": {**INTENT["change"], "removed": ["/etc/passwd"]}},
    {**INTENT, "change": {**INTENT["change"], "mode": "any"}},
)


@cases(CLAIMS)
def test_a_malformed_claim_is_dead_after_its_lease(make_store, victim, number):
    """Nobody renews it. A young one is refused, with an advice; deleting it helps."""
    claim = CLAIMS[number]
    store = make_store()
    store.put("there", b"x")
    put_state(store, claim_path(DEAD), claim)
    job(store)
    assert claim_path(DEAD) not in {entry.path for entry in store.list()}
    other = make_store()
    put_state(other, claim_path(DEAD), claim, age_seconds=0)
    with pytest.raises(TargetError, match=rf"{claim_path(DEAD)} is not as ddbio writes it.*delete it if no job"):
        job(other, lease_seconds=60.0)
    assert claim_path(JOB) not in {entry.path for entry in other.list()}
    other.delete([claim_path(DEAD)])
    job(other, lease_seconds=60.0)
    assert live_files(other).paths == {PART}


@cases(INTENTS)
def test_a_malformed_intent_is_refused_until_it_is_deleted(make_store, victim, number):
    """It writes, moves and deletes nothing; readers are not affected."""
    store, intent = make_store(), INTENTS[number]
    store.put("there", b"x")
    put_state(store, intent_path(DEAD), intent)
    before = {entry.path for entry in store.list()}
    with pytest.raises(TargetError, match=rf"{intent_path(DEAD)} is not as ddbio writes it.*delete it"):
        job(store)
    assert {entry.path for entry in store.list()} == before
    live_files(store)
    for call in (lambda: abort(store, DEAD), lambda: published_by(store, [DEAD])):
        with pytest.raises(TargetError):
            call()
    store.delete([intent_path(DEAD)])
    job(store)
    assert live_files(store).paths == {PART}


COMMITTED = (
    (manifest_path(DEAD), {"files": 5}),
    (manifest_path(DEAD), {"files": [{"path": "../victim/thesis.txt", "bytes": 1}]}),
    (manifest_path(DEAD), {"files": [{"path": "a", "bytes": "1"}]}),
    (manifest_path(DEAD), {"files": [], "job_id": "other"}),
    ("_ddbio/snapshots/00000000000000000001.json", b"[" * 5000 + b"]" * 5000),
    ("_ddbio/snapshots/00000000000000000001.json", {"version": 10**30, "files": []}),
    ("_ddbio/snapshots/00000000000000000001.json", {"format": 1, "files": [], "version": 1, "job_id": 5}),
)


@cases(COMMITTED)
def test_a_malformed_manifest_or_snapshot_is_refused_until_it_is_moved_away(make_store, number):
    """Readers and writers refuse it with the name of the file."""
    store, (path, state) = make_store(), COMMITTED[number]
    put_state(store, path, state)
    calls = [live_files, job, *([read_history] if "/snapshots/" in path else [])]
    for call in calls:
        with pytest.raises(TargetError, match=rf"{path} is not as ddbio writes it.*move it away"):
            call(store)
    assert [entry.path for entry in store.list()] == [path]
    store.delete([path])
    job(store)
    assert live_files(store).paths == {PART}


def test_a_link_instead_of_a_state_is_not_followed(tmp_path, victim):
    """Its target is neither read nor shown."""
    store = LocalStore(tmp_path / "target")
    store.put("there", b"x")
    (tmp_path / "target" / claim_path(DEAD)).symlink_to(victim / "thesis.txt")
    with pytest.raises(TargetError, match="is no path within"):
        job(store, lease_seconds=60.0)
    store.delete([claim_path(DEAD)])
    job(store)


def test_states_of_jobs_are_read_by_the_same_reader(make_store):
    """A head or a record that is not JSON, or has another shape, is named."""
    store = make_store()
    state = JobState(store, "log", "capture")
    for name, text in (("committed", b'{"batch": "5"}'), ("000000000001", b"[]"), ("other", b"\xff")):
        store.put(f"_ddbio/log.capture/{name}.json", text)
        with pytest.raises(TargetError, match=rf"_ddbio/log.capture/{name}.json is not as ddbio writes it"):
            state.read(name)
    store.put("_ddbio/log.capture.json", b'{"heals": "../x"}')
    with pytest.raises(TargetError, match=r"heals is '../x', not a job id"):
        state.head()
    assert state.read("missing") is None
    with pytest.raises(TargetError, match="is no path within"):
        JobState(store, "../../x", "capture").put("a", {})
