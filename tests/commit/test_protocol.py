from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from ddbio.aws.s3_store import S3Store
from ddbio.commit import committer as claims
from ddbio.commit.committer import AlreadyCommittedError, CommitInfo, publishing
from ddbio.commit.protocol import Target, abort
from ddbio.commit.snapshot import live_files
from ddbio.errors import NotFoundError, OptionError, TargetError
from ddbio.storage.local_store import LocalStore
from ddbio.storage.meta import claim_path, is_claim, manifest_path, read_state, version_at
from ddbio.storage.staged import FileNaming, SmallObject

INFO = CommitInfo(created_at="2025-01-02T03:04:05Z", source={"table": "flights"}, schema="{}", digest="7f")


class Death(BaseException):
    """End of the process: nothing catches it."""


class DyingStore:
    """Store that dies at a call that changes it, before or after its effect, and at every later call."""

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

    @property
    def hazard(self):
        """Return nothing: deleting the folder deletes nothing else."""
        return

    def __getattr__(self, name):
        if name in {"list", "read", "read_chunks", "staged_jobs"}:
            return getattr(self._store, name)

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


def at(store, mode="append", **more):
    """Return a target whose other jobs are dead, because its lease lasts 0 s."""
    return Target(store=store, mode=mode, **{"lease_seconds": 0, **more})


def prepare(store, mode, job_id, **more):
    """Claim and prepare a target."""
    return at(store, mode, **more).prepare(job_id)


def commit(store, job_id, staged, info, replaced=(), mode=None):
    """Commit the staged files of a job."""
    return at(store, mode or ("overwrite" if replaced else "append")).commit(job_id, staged, info, replaced)


def path_of(job_id, task):
    """Return the path of a task's file: those of odd tasks are in folders, like files of partitions."""
    return FileNaming(job_id, task).path(0, "parquet", "day=1/place=a%2Fb c/" if task % 2 else "")


def stage(store, job_id, task, data=b"rows"):
    """Stage one small file of a task."""
    sink = store.create(path_of(job_id, task))
    sink.write(data)
    return sink.finish(len(data))


def run(store, job_id, mode="append", tasks=2):
    """Run a complete job; return its manifest's path."""
    replaced = prepare(store, mode, job_id)
    return commit(store, job_id, [stage(store, job_id, task) for task in range(tasks)], INFO, replaced, mode)


def visible(store):
    """Return the paths of all visible objects, except the claims of running jobs."""
    return {entry.path for entry in store.list() if not (is_claim(entry.path) or version_at(entry.path))}


def committed(job_id, tasks=2):
    """Return the paths of a committed job."""
    return {path_of(job_id, task) for task in range(tasks)} | {manifest_path(job_id)}


def deaths(*, by_turns=False):
    """Yield every call to die at, before and after its effect, or alternately if calls are expensive.

    ``tests/jobs/test_job_schedules.py`` tests both at every call of an object store in memory.
    """
    for dies_at in itertools.count(1):
        for after_effect in (dies_at % 2 == 0,) if by_turns else (False, True):
            yield dies_at, after_effect


def test_a_commit_shows_files_and_manifest(make_store, staged_left):
    """A committed job has its files, its manifest, no intent and nothing staged."""
    store = make_store()
    path = run(store, "one", mode="error")
    assert visible(store) == committed("one")
    assert staged_left(store) == []
    manifest = json.loads(store.read(path))
    assert manifest["rows"] == 8
    no_facts = {"partition": {}, "statistics": None}
    assert manifest["files"][1] == {"path": path_of("one", 1), "bytes": 4, "rows": 4, **no_facts}
    assert (manifest["source"], manifest["digest"]) == ({"table": "flights"}, "7f")


def test_nothing_is_visible_before_the_commit(make_store):
    """Staged files are not listed, and do not prevent a job that requires an empty target."""
    store = make_store()
    prepare(store, "error", "one")
    stage(store, "one", 0)
    assert visible(store) == set()
    assert prepare(store, "error", "two") == ()


def test_mode_error_refuses_a_folder_with_files(make_store):
    """The refusal names the target, an object in it and the alternatives, and leaves nothing."""
    store = make_store()
    run(store, "one")
    with pytest.raises(TargetError, match=r"is not empty.*append or overwrite") as refused:
        prepare(store, "error", "two")
    assert refused.value.uri == store.uri
    assert visible(store) == committed("one")


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_what_killed_jobs_set_aside_is_no_content(s3_store, mode):
    """Spilled rows do not fill a target, and are deleted after a week; files of running jobs and persons stay."""
    names = ("20250101T000000Z_00000001", "20250102T000001Z_00000002", "20259999T000000Z_00000003", "mine")
    paths = [f"_ddbio/staging/{name}/spill/items/00000/0-00000" for name in names]
    for path in paths:
        s3_store.put(path, b"rows")
    run(s3_store, "20250109T000000Z_00000004", mode=mode)
    assert visible(s3_store) == {*paths[1:]} | committed("20250109T000000Z_00000004")
    run(s3_store, "five", mode="append")
    assert visible(s3_store).issuperset(paths[1:])


def test_spilled_rows_of_a_dead_job_are_deleted_with_its_claim(s3_store):
    """The next job need not wait for a week if a claim shows that the job has died."""
    prepare(s3_store, "append", "dead")
    s3_store.put("_ddbio/staging/dead/spill/items/00000-00000", b"rows")
    run(s3_store, "two", mode="error")
    assert visible(s3_store) == committed("two")


def test_a_manifest_without_files_counts_as_content(make_store):
    """A job without rows is a result, which mode error does not mix with another one."""
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
    assert visible(store) == committed("one") | committed("two")
    run(store, "three", mode="overwrite")
    assert visible(store) == committed("three")


def test_abort_before_the_commit_leaves_nothing(make_store, staged_left, tmp_path):
    """An aborted job leaves no file, upload or folder, even if a task never reported."""
    store = make_store()
    before = set(tmp_path.rglob("*"))
    prepare(store, "error", "one")
    stage(store, "one", 0)
    killed = store.create(path_of("one", 1))
    killed.write(b"half")
    abort(store, "one")
    killed.abort()
    assert visible(store) == set()
    assert staged_left(store) == []
    assert set(tmp_path.rglob("*")) == before


def test_abort_spares_other_jobs(make_store, staged_left):
    """An abort touches neither another job's files nor its staged files."""
    store = make_store()
    run(store, "one")
    prepare(store, "append", "two", lease_seconds=60)
    stage(store, "two", 0)
    abort(store, "tw")
    abort(store, "one")
    assert visible(store) == committed("one")
    assert len(staged_left(store)) == 1


def test_attempts_that_lost_are_swept(make_store, staged_left):
    """Files that a failed or speculative attempt staged are deleted with the commit of its job."""
    store = make_store()
    prepare(store, "error", "one")
    stage(store, "one", 0, b"lost")
    store.create(FileNaming("one", 0, attempt=1).path(0, "parquet")).finish(0)
    commit(store, "one", [], INFO)
    assert staged_left(store) == []


def test_what_killed_jobs_staged_goes_a_week_later(make_store, staged_left):
    """Uploads and staged files of a killed job, with or without claim, are deleted by the first job a week later."""
    store = make_store()
    for job_id in ("20250101T000000Z_00000001", "20250105T000000Z_00000002", "mine"):
        stage(store, job_id, 0, b"lost")
    assert len(staged_left(store)) == 3
    run(store, "20250109T000000Z_00000004", mode="append")
    left = staged_left(store)
    assert len(left) == 2
    assert not any("00000001" in name for name in left)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_death_anywhere_in_a_commit_is_repaired(make_store, staged_left, mode):
    """After a commit died at any call, the next job finds all of it or none, and nothing staged remains."""
    outcomes = set()
    for dies_at, after_effect in deaths(by_turns=isinstance(make_store(), S3Store)):
        store = make_store()
        run(store, "old")
        replaced = prepare(store, mode, "one")
        staged = [stage(store, "one", task) for task in range(2)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            commit(dying, "one", staged, INFO, replaced)
        except Death:
            prepare(store, "append", "two")
            abort(store, "two")
        older = committed("old") if mode == "append" else set()
        done = visible(store) == committed("one") | older
        assert done or visible(store) == committed("old")
        outcomes.add(done)
        abort(store, "one")
        assert visible(store) == (committed("one") | older if done else committed("old"))
        assert staged_left(store) == []
        if dying.survived:
            break
    assert outcomes == {True, False}


def test_a_death_leaves_partitions_old_or_new(tmp_path, staged_left):
    """A job that replaces its partitions replaces all of them or none if it dies; the others stay."""
    outcomes = set()
    for dies_at, after_effect in deaths():
        store = LocalStore(tmp_path / f"{dies_at}{after_effect}")
        run(store, "old")
        target = at(store, "overwrite", partitions_only=True)
        replaced = target.prepare("one")
        # Only the partition of odd tasks is written.
        staged = [stage(store, "one", 1), stage(store, "one", 3)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            replace(target, store=dying).commit("one", staged, INFO, replaced)
        except Death:
            prepare(store, "append", "two")
            abort(store, "two")
        new = {path_of("one", 1), path_of("one", 3), manifest_path("one")}
        done = visible(store) == (committed("old") - {path_of("old", 1)}) | new
        assert done or visible(store) == committed("old")
        assert {file.path for file in live_files(store).files} == {path for path in visible(store) if "part-" in path}
        assert staged_left(store) == []
        outcomes.add(done)
        if dying.survived:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_abort_after_a_death_anywhere_leaves_all_or_none(make_store, staged_left, mode):
    """A job whose commit fails is undone by its abort, or finished if it cannot be undone any more."""
    outcomes = set()
    for dies_at, after_effect in deaths(by_turns=isinstance(make_store(), S3Store)):
        store = make_store()
        run(store, "old")
        replaced = prepare(store, mode, "one")
        staged = [stage(store, "one", task) for task in range(2)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            commit(dying, "one", staged, INFO, replaced)
        except Death:
            abort(store, "one")
        older = committed("old") if mode == "append" else set()
        done = visible(store) == committed("one") | older
        assert done or visible(store) == committed("old")
        assert staged_left(store) == []
        outcomes.add(done)
        if dying.survived:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("gone", [False, True])
def test_a_repair_can_die_anywhere(tmp_path, local_store, staged_left, gone):
    """A repair that dies is completed by the next one, both of a finished and of an undone commit."""
    for dies_at, after_effect in deaths():
        store = type(local_store)(tmp_path / f"{dies_at}{after_effect}")
        run(store, "old")
        replaced = prepare(store, "overwrite", "one")
        staged = [stage(store, "one", task) for task in range(2)]
        with pytest.raises(Death):
            # Its intent is written and one file is completed.
            commit(DyingStore(store, 3, after_effect=False), "one", staged, INFO, replaced)
        if gone:
            store.abort("one")
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        try:
            prepare(dying, "append", "two")
        except Death:
            prepare(store, "append", "two")
        abort(store, "two")
        assert visible(store) == (committed("old") if gone else committed("one"))
        assert staged_left(store) == []
        if dying.survived:
            break


def test_uploads_that_are_gone_undo_the_commit(local_store):
    """An interrupted commit whose staged files are missing is undone, including completed files."""
    store = local_store
    prepare(store, "error", "one")
    staged = [stage(store, "one", task) for task in range(3)]
    store.complete(staged[0])
    store.abort("one")
    with pytest.raises(NotFoundError):
        commit(store, "one", staged, INFO)
    assert prepare(store, "error", "two") == ()
    assert visible(store) == set()


def test_a_repaired_job_does_not_replace_twice(make_store):
    """An intent that is older than its manifest is only deleted: newer objects under a replaced name stay."""
    store = make_store()
    store.put("data.parquet", b"older")
    replaced = prepare(store, "overwrite", "one", overwrite_foreign=True)
    with pytest.raises(Death):
        # Dies at the sweep, after put, complete, put_if_absent, delete and put_if_absent.
        commit(DyingStore(store, 6, after_effect=False), "one", [stage(store, "one", 0)], INFO, replaced)
    assert visible(store) == committed("one", tasks=1) | {"_ddbio/one.intent.json"}
    store.put("data.parquet", b"newer")
    prepare(store, "append", "two")
    assert store.read("data.parquet") == b"newer"


def test_job_ids_must_be_unique(make_store):
    """A manifest of another job under the same id is an error, never overwritten."""
    store = make_store()
    prepare(store, "append", "one")
    store.put(manifest_path("one"), b'{"files": []}')
    with pytest.raises(TargetError, match="belongs to another job"):
        commit(store, "one", [], INFO)


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_job_that_is_committed_is_not_run_again(make_store, mode):
    """The same job id again returns the result of its first run, in every mode, and changes nothing."""
    store = make_store()
    path = run(store, "one", mode=mode)
    before = visible(store)
    with pytest.raises(AlreadyCommittedError) as raised:
        prepare(store, mode, "one")
    assert raised.value.manifest == read_state(store, path)
    assert visible(store) == before


@pytest.mark.parametrize("mode", ["error", "append"])
def test_the_same_command_after_a_death_in_its_commit_does_not_append_twice(make_store, mode):
    """Mode error reports the run whose commit it finished; append raises, and appends when it is run again."""
    store = make_store()
    command = {"mode": mode, "command": "scan orders"}
    at(store, **command).prepare("one")
    dying, staged = DyingStore(store, 2, after_effect=True), [stage(store, "one", task) for task in range(2)]
    with pytest.raises(Death):
        at(dying, **command).commit("one", staged, INFO)
    with pytest.raises(AlreadyCommittedError if mode == "error" else TargetError):
        at(store, **command).prepare("two")
    assert visible(store) == committed("one")
    if mode == "append":
        at(store, **command).prepare("three")


def test_a_live_commit_is_left_alone(make_store, staged_left):
    """Another job neither finishes nor undoes the commit of a running job, even if it is slow."""
    store = make_store()
    prepare(store, "append", "one")
    staged = [stage(store, "one", task) for task in range(2)]
    with pytest.raises(Death):
        commit(DyingStore(store, 3, after_effect=False), "one", staged, INFO)
    before = {entry.path for entry in store.list()}
    prepare(store, "append", "two", lease_seconds=60)
    assert {entry.path for entry in store.list()} == before | {claim_path("two")}
    assert len(staged_left(store)) == 1


@pytest.mark.parametrize("modes", [("error", "error"), ("overwrite", "overwrite"), ("error", "overwrite")])
def test_jobs_that_exclude_each_other_do_not_both_succeed(make_store, modes):
    """While a job runs that requires the target for itself, another such job is refused; appending ones are not."""
    store = make_store()
    with publishing(Target(store=store, mode=modes[0], lease_seconds=6), "one") as complete:
        with pytest.raises(TargetError, match=r"written to by job one \(mode .*, process \d+"):
            prepare(store, modes[1], "two", lease_seconds=30)
        run_concurrently(store, "three")
        complete([stage(store, "one", 0)], INFO)
    assert visible(store) == committed("one", tasks=1) | committed("three")


def run_concurrently(store, job_id):
    """Append while other jobs run."""
    target = Target(store=store, mode="append")
    with publishing(target, job_id) as complete:
        complete([stage(store, job_id, task) for task in range(2)], INFO)


def test_what_appends_during_an_overwrite_stays(make_store):
    """A job that appends while another one overwrites is complete afterwards, even during its commit."""
    store = make_store()
    run(store, "old")
    prepare(store, "append", "new")
    staged = [stage(store, "new", task) for task in range(2)]
    with pytest.raises(Death):
        commit(DyingStore(store, 3, after_effect=False), "new", staged, INFO)
    with publishing(Target(store=store, mode="overwrite"), "one") as complete:
        complete([stage(store, "one", task) for task in range(2)], INFO)
    prepare(store, "append", "later")
    abort(store, "later")
    assert visible(store) == committed("one") | committed("new")


def test_a_job_that_appends_after_an_overwrite_started_stays(make_store, monkeypatch):
    """An overwrite keeps the files of a job that claimed the target after it, and is in its commit."""
    store, begun = make_store(), []
    listing = store.list

    def begin_first(prefix=""):
        if not prefix and not begun:
            begun.append("new")
            prepare(store, "append", "new", lease_seconds=60)
            with pytest.raises(Death):
                commit(DyingStore(store, 3, after_effect=False), "new", [stage(store, "new", 0)], INFO)
        return listing(prefix)

    run(store, "old")
    monkeypatch.setattr(store, "list", begin_first)
    replaced = prepare(store, "overwrite", "one", overwrite_foreign=True)
    assert begun
    assert {path for path in replaced if "new" in path} == set()


def test_small_objects_of_what_appends_during_an_overwrite_stay(make_store):
    """An overwrite deletes the old objects of a name, but not those that a concurrent job published there."""
    store, info = make_store(), replace(INFO, objects=(SmallObject("summary.json", "new"),))
    with publishing(Target(store=store, mode="error"), "old") as complete:
        complete([stage(store, "old", 0)], replace(INFO, objects=(SmallObject("summary.json", "old"),)))
    with publishing(Target(store=store, mode="overwrite"), "one") as complete_one:
        with publishing(Target(store=store, mode="append"), "new") as complete:
            complete([stage(store, "new", 0)], info)
        complete_one([stage(store, "one", 0)], INFO)
    assert visible(store) == committed("one", tasks=1) | committed("new", tasks=1) | {"summary.json"}
    assert store.read("summary.json") == b"new"


@pytest.mark.parametrize(
    ("is_back", "reason"), [(False, "has lost its claim"), (True, "was written to meanwhile by job two")]
)
def test_a_job_that_was_taken_for_dead_does_not_commit(make_store, monkeypatch, is_back, reason):
    """A job that slept longer than its lease finds its claim missing, or the other's manifest, and leaves nothing."""
    # The job does not renew its claim: a renewal just after the other job's claim would show that it is alive.
    monkeypatch.setattr(claims, "_MIN_RENEWAL_SECONDS", 3600)
    store = make_store()
    job = publishing(at(store, "error"), "one")
    complete = job.__enter__()
    staged = [stage(store, "one", 0)]
    run(store, "two", mode="error")
    if is_back:
        # A renewal that had started before the other job deleted the claim has written it again.
        at(store, "error").claim("one").write()
    with pytest.raises(TargetError, match=reason) as lost:
        complete(staged, INFO)
    assert not job.__exit__(TargetError, lost.value, None)
    assert visible(store) == committed("two")


def test_a_job_of_a_process_that_has_ended_is_dead_immediately(local_store):
    """If the process of a claim has certainly ended, no lease is waited for."""
    script = """
import os, sys
from ddbio.commit.protocol import Target
from ddbio.storage.local_store import LocalStore
Target(store=LocalStore(sys.argv[1]), mode="overwrite").prepare("one")
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script, local_store.uri], check=False)
    assert [entry.path for entry in local_store.list()] == [claim_path("one")]
    Target(store=local_store, mode="overwrite").prepare("two")
    assert [entry.path for entry in local_store.list()] == [claim_path("two")]


def test_claims_are_renewed(make_store):
    """While a job runs its claim is renewed, so that no job considers it dead."""
    store = make_store()
    with publishing(Target(store=store, mode="append", lease_seconds=1), "one"):
        first = next(iter(store.list(claim_path("one"))))
        waited = threading.Event()
        while next(iter(store.list(claim_path("one")))).modified_at == first.modified_at:
            waited.wait(0.05)
    assert visible(store) == set()


def test_overwrite_deletes_what_ddbio_wrote_and_no_more(make_store):
    """Files that no manifest names are refused by name, and deleted if requested."""
    store = make_store()
    run(store, "one")
    store.put("precious.csv", b"rows")
    with pytest.raises(TargetError, match=r"1 objects that no manifest of ddbio names \(first: precious.csv\)"):
        prepare(store, "overwrite", "two")
    assert visible(store) == committed("one") | {"precious.csv"}
    replaced = prepare(store, "overwrite", "three", overwrite_foreign=True)
    commit(store, "three", [], INFO, replaced)
    assert visible(store) == {manifest_path("three")}


def test_overwrite_spares_roots_and_the_working_folder(tmp_path, s3_spec, monkeypatch):
    """A target whose deletion would delete more than a job's output is refused before anything is written."""
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    s3_spec.client("s3").create_bucket(Bucket="rooted")
    for store in (LocalStore("."), LocalStore("/"), LocalStore(".."), LocalStore("~"), S3Store(s3_spec, "s3://rooted")):
        with pytest.raises(TargetError, match="mode overwrite would delete"):
            prepare(store, "overwrite", "one")
    assert list((tmp_path / "here" / "below").iterdir()) == []


def test_small_objects_are_part_of_the_commit(make_store):
    """Small objects of a format are written after its files by the job that ends the commit, and replaced with them."""
    info = replace(INFO, objects=(SmallObject("manifest.md5", "1"), SmallObject("manifest.json", "{}")))
    for dies_at, after_effect in deaths(by_turns=isinstance(make_store(), S3Store)):
        store = make_store()
        first = prepare(store, "overwrite", "old")
        at(store, "overwrite").commit("old", [stage(store, "old", 0)], info, first)
        replaced = prepare(store, "overwrite", "one")
        staged = [stage(store, "one", 0)]
        dying = DyingStore(store, dies_at, after_effect=after_effect)
        newer = replace(info, objects=(SmallObject("manifest.md5", "2"), SmallObject("manifest.json", "[]")))
        with contextlib.suppress(Death):
            at(dying, "overwrite").commit("one", staged, newer, replaced)
        prepare(store, "append", "two")
        abort(store, "two")
        is_new = manifest_path("one") in visible(store)
        objects = {"manifest.md5", "manifest.json"}
        assert visible(store) == committed("one" if is_new else "old", tasks=1) | objects
        assert store.read("manifest.json") == (b"[]" if is_new else b"{}")
        if dying.survived:
            break


def test_states_of_newer_versions_are_refused(make_store):
    """A claim, an intent or a manifest of an unknown layout ends the job with an error, and stays."""
    store = make_store()
    store.put("_ddbio/one.intent.json", b'{"format": 2}')
    with pytest.raises(TargetError, match="has format 2, this ddbio knows 1"):
        prepare(store, "append", "two")
    assert store.read("_ddbio/one.intent.json") == b'{"format": 2}'


@pytest.mark.parametrize("job_id", ["", "a-b", "../up", "a b"])
def test_job_ids_fit_into_names(local_store, job_id):
    """A job id that a file name cannot contain is refused before anything is made."""
    with pytest.raises(OptionError, match="letters, digits and underscores"):
        prepare(local_store, "error", job_id)
