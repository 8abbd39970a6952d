from __future__ import annotations

import itertools
import json
import threading

import pytest

from ddbio.core.staged import FileNaming
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.lake.commit import JobFacts, abort, commit, manifest_path, prepare

FACTS = JobFacts(created_at="2025-01-02T03:04:05Z", source={"table": "flights"}, schema="{}", digest="7f")


class Death(BaseException):
    """Stand for the end of the process: nothing catches it."""


class DyingStore:
    """Pass calls on to a store and die at one of them, before or after it took effect, and at every later one."""

    def __init__(self, store, dies_at, *, after_effect):
        self._store = store
        self._left = dies_at
        self._after_effect = after_effect
        self._lock = threading.Lock()

    @property
    def survived(self):
        """Whether there were too few calls to die at."""
        return self._left > 0

    @property
    def uri(self):
        """Return the target."""
        return self._store.uri

    def __getattr__(self, name):
        def call(*arguments):
            with self._lock:
                self._left -= 1
                left = self._left
                if left == 0 and self._after_effect:
                    effect = getattr(self._store, name)(*arguments)
                    if name == "create":
                        effect.finish(0)
                if left <= 0:
                    raise Death
            return getattr(self._store, name)(*arguments)

        return call


def stage(store, job_id, task, data=b"rows"):
    """Stage one small file of a task."""
    sink = store.create(FileNaming(job_id, task).path(0, "parquet"))
    sink.write(data)
    return sink.finish(len(data))


def run(store, job_id, mode="append", tasks=2):
    """Run a whole job; return its manifest's path."""
    replaced = prepare(store, mode, job_id)
    return commit(store, job_id, [stage(store, job_id, task) for task in range(tasks)], FACTS, replaced)


def visible(store):
    """Return the paths of all that is visible."""
    return {each.path for each in store.list()}


def whole(job_id, tasks=2):
    """Return the paths that a committed job has."""
    return {FileNaming(job_id, task).path(0, "parquet") for task in range(tasks)} | {manifest_path(job_id)}


def deaths():
    """Yield every call to die at, before and after its effect."""
    return ((dies_at, after_effect) for dies_at in itertools.count(1) for after_effect in (False, True))


def test_a_commit_shows_files_and_manifest(make_store, staged_left):
    """A committed job has its files, its manifest, no intent and nothing staged."""
    store = make_store()
    path = run(store, "one", mode="error")
    assert visible(store) == whole("one")
    assert staged_left(store) == []
    manifest = json.loads(store.read(path))
    assert manifest["rows"] == 8
    assert manifest["files"][1] == {"path": FileNaming("one", 1).path(0, "parquet"), "bytes": 4, "rows": 4}
    assert (manifest["source"], manifest["digest"]) == ({"table": "flights"}, "7f")


def test_nothing_is_visible_before_the_commit(make_store):
    """Staged files are neither listed nor in the way of a job that wants an empty target."""
    store = make_store()
    prepare(store, "error", "one")
    stage(store, "one", 0)
    assert visible(store) == set()
    assert prepare(store, "error", "two") == ()


def test_mode_error_refuses_what_is_not_empty(make_store):
    """The refusal names the target, what it holds and the ways out, and leaves no trace."""
    store = make_store()
    run(store, "one")
    with pytest.raises(TargetError, match=r"is not empty.*append or overwrite") as refused:
        prepare(store, "error", "two")
    assert refused.value.uri == store.uri
    assert visible(store) == whole("one")


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_what_killed_jobs_set_aside_is_no_content(s3_store, mode):
    """It makes no target full, and goes when it is a week old; what a running job has, or a person put there, stays."""
    names = ("20250101T000000Z_00000001", "20250108T000000Z_00000002", "20259999T000000Z_00000003", "mine")
    paths = [f"_ddbio/staging/{name}/spill/items/00000/0-00000" for name in names]
    for path in paths:
        s3_store.put(path, b"rows")
    run(s3_store, "20250109T000000Z_00000004", mode=mode)
    assert visible(s3_store) == {*paths[1:]} | whole("20250109T000000Z_00000004")
    run(s3_store, "five", mode="append")
    assert visible(s3_store).issuperset(paths[1:])


def test_a_manifest_without_files_counts_as_content(make_store):
    """A job that wrote no row is an answer, which mode error does not mix with another."""
    store = make_store()
    run(store, "one", tasks=0)
    assert visible(store) == {manifest_path("one")}
    with pytest.raises(TargetError):
        prepare(store, "error", "two")


def test_append_adds_and_overwrite_replaces(make_store):
    """Append keeps the earlier job, overwrite removes both its files and its manifest."""
    store = make_store()
    run(store, "one")
    run(store, "two", mode="append")
    assert visible(store) == whole("one") | whole("two")
    run(store, "three", mode="overwrite")
    assert visible(store) == whole("three")


def test_abort_before_the_commit_leaves_nothing(make_store, staged_left, tmp_path):
    """An aborted job leaves no file, no upload and no folder, also where a task never reported."""
    store = make_store()
    before = set(tmp_path.rglob("*"))
    prepare(store, "error", "one")
    stage(store, "one", 0)
    killed = store.create(FileNaming("one", 1).path(0, "parquet"))
    killed.write(b"half")
    abort(store, "one")
    killed.abort()
    assert visible(store) == set()
    assert staged_left(store) == []
    assert set(tmp_path.rglob("*")) == before


def test_abort_spares_other_jobs(make_store, staged_left):
    """An abort touches neither another job's files nor what it has staged."""
    store = make_store()
    run(store, "one")
    prepare(store, "append", "two")
    stage(store, "two", 0)
    abort(store, "tw")
    abort(store, "one")
    assert visible(store) == whole("one")
    assert len(staged_left(store)) == 1


def test_attempts_that_lost_are_swept(make_store, staged_left):
    """What a failed or speculative attempt staged goes with the commit of its job."""
    store = make_store()
    prepare(store, "error", "one")
    stage(store, "one", 0, b"lost")
    store.create(FileNaming("one", 0, attempt=1).path(0, "parquet")).finish(0)
    commit(store, "one", [], FACTS)
    assert staged_left(store) == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_death_anywhere_in_a_commit_is_mended(make_store, staged_left, mode):
    """Whatever call a commit dies at, the next job finds all of it or none, and nothing staged remains."""
    outcomes = set()
    for dies_at, after_effect in deaths():
        store = make_store()
        run(store, "old")
        replaced = prepare(store, mode, "one")
        staged = [stage(store, "one", task) for task in range(2)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            commit(dying, "one", staged, FACTS, replaced)
        except Death:
            prepare(store, "append", "two")
            abort(store, "two")
        kept = whole("old") if mode == "append" else set()
        done = visible(store) == whole("one") | kept
        assert done or visible(store) == whole("old")
        outcomes.add(done)
        abort(store, "one")
        assert visible(store) == (whole("one") | kept if done else whole("old"))
        assert staged_left(store) == []
        if dying.survived:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_abort_after_a_death_anywhere_leaves_all_or_none(make_store, staged_left, mode):
    """A job whose commit fails is undone by its abort unless it is past undoing, then it is finished."""
    outcomes = set()
    for dies_at, after_effect in deaths():
        store = make_store()
        run(store, "old")
        replaced = prepare(store, mode, "one")
        staged = [stage(store, "one", task) for task in range(2)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            commit(dying, "one", staged, FACTS, replaced)
        except Death:
            abort(store, "one")
        kept = whole("old") if mode == "append" else set()
        done = visible(store) == whole("one") | kept
        assert done or visible(store) == whole("old")
        assert staged_left(store) == []
        outcomes.add(done)
        if dying.survived:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("gone", [False, True])
def test_mending_itself_may_die_anywhere(tmp_path, local_store, staged_left, gone):
    """A mend that dies is mended by the next one, whether it was finishing a commit or undoing it."""
    for dies_at, after_effect in deaths():
        store = type(local_store)(tmp_path / f"{dies_at}{after_effect}")
        run(store, "old")
        replaced = prepare(store, "overwrite", "one")
        staged = [stage(store, "one", task) for task in range(2)]
        with pytest.raises(Death):
            # Its intent is written and one file is completed.
            commit(DyingStore(store, 3, after_effect=False), "one", staged, FACTS, replaced)
        if gone:
            store.abort("one")
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            prepare(dying, "append", "two")
        except Death:
            prepare(store, "append", "two")
        abort(store, "two")
        assert visible(store) == (whole("old") if gone else whole("one"))
        assert staged_left(store) == []
        if dying.survived:
            break


def test_uploads_that_are_gone_undo_the_commit(local_store):
    """A commit cut short whose staged files have vanished is undone, completed files included."""
    store = local_store
    prepare(store, "error", "one")
    staged = [stage(store, "one", task) for task in range(3)]
    store.complete(staged[0])
    store.abort("one")
    with pytest.raises(NotFoundError):
        commit(store, "one", staged, FACTS)
    assert prepare(store, "error", "two") == ()
    assert visible(store) == set()


def test_a_mended_job_is_not_replaced_twice(make_store):
    """An intent left behind its manifest is only dropped: what appeared since under a replaced name stays."""
    store = make_store()
    store.put("data.parquet", b"older")
    replaced = prepare(store, "overwrite", "one")
    with pytest.raises(Death):
        # Dies at the sweep, after put, complete, delete and put_if_absent.
        commit(DyingStore(store, 5, after_effect=False), "one", [stage(store, "one", 0)], FACTS, replaced)
    assert visible(store) == whole("one", tasks=1) | {"_ddbio/one.intent.json"}
    store.put("data.parquet", b"newer")
    prepare(store, "append", "two")
    assert store.read("data.parquet") == b"newer"


def test_job_ids_must_be_unique(make_store):
    """A manifest of another job under the same id is an error, never overwritten."""
    store = make_store()
    run(store, "one")
    with pytest.raises(TargetError, match="belongs to another job"):
        commit(store, "one", [], FACTS)


@pytest.mark.parametrize("job_id", ["", "a-b", "../up", "a b"])
def test_job_ids_fit_into_names(local_store, job_id):
    """A job id that a file name cannot carry is refused before anything is made."""
    with pytest.raises(OptionError, match="letters, digits and underscores"):
        prepare(local_store, "error", job_id)
