"""Make one job's output appear whole or not at all on any object store; write no data itself.

A commit writes an intent, completes the staged files, deletes what the job replaces, writes the manifest and drops the
intent. A commit that was cut short is finished by whoever comes next, or undone if staged files are gone.
"""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ddbio.core.staged import FileNaming, Staged, check_job_id, started_at
from ddbio.errors import DdbioError, NotFoundError, TargetError
from ddbio.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from ddbio.lake.store import ObjectStore

    Complete: TypeAlias = Callable[[Sequence[Staged], "JobFacts"], object]

WriteMode = Literal["error", "append", "overwrite"]

_META = "_ddbio/"
_INTENT = ".intent.json"
_STAGING = f"{_META}staging/"
# A job that lives longer would have outlived its credentials.
_DEAD_AFTER = timedelta(days=7)
# Completing an upload takes S3 a tenth of a second or more, mostly waiting.
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Hold what the manifest says of a job beside its files.

    Attributes
    ----------
    created_at
        When the job started, as ISO 8601 in UTC.
    source
        Where the rows came from.
    schema
        Schema of the files as JSON text.
    digest
        Digest of all rows, if one was taken.
    """

    created_at: str
    source: Mapping[str, Any]
    schema: str
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intent:
    job_id: str
    staged: tuple[Staged, ...]
    replaced: tuple[str, ...]
    manifest: dict[str, Any]

    @property
    def path(self) -> str:
        return f"{_META}{self.job_id}{_INTENT}"


@contextlib.contextmanager
def whole(store: ObjectStore, mode: WriteMode, job_id: str) -> Iterator[Complete]:
    """Prepare a target and hand out what commits to it; leave nothing of the job there if the block raises.

    The job's tasks are to have ended when the block does.

    Raises
    ------
    TargetError
        As :func:`prepare` says.
    """
    replaced = prepare(store, mode, job_id)
    try:
        yield lambda staged, facts: commit(store, job_id, staged, facts, replaced)
    except BaseException:
        abort(store, job_id)
        raise


def prepare(store: ObjectStore, mode: WriteMode, job_id: str) -> tuple[str, ...]:
    """Return the objects that the job replaces, once the target is whole, writable and fit for the mode.

    Commits that were cut short are finished, or undone where that is impossible. What an uncommitted job staged is no
    content, and is deleted where the job's id is a week older than this one's; a manifest is content, even one without
    files.

    Raises
    ------
    TargetError
        If the target holds something and the mode is ``error``, or if it is not writable.
    """
    check_job_id(job_id)
    for intent in _intents(store):
        _mend(store, intent)
    replaced: tuple[str, ...] = ()
    if mode != "append":
        found = (each.path for each in store.list() if not (_is_intent(each.path) or each.path.startswith(_STAGING)))
        if mode == "overwrite":
            replaced = tuple(found)
        elif first := next(found, None):
            ways = "choose another target, empty this one, or use mode append or overwrite"
            raise TargetError(f"target {store.uri} is not empty (it holds {first}): {ways}", store.uri)
    # Better refused now than after the scan.
    store.create(FileNaming(job_id, 0).path(0, "probe")).abort()
    store.delete([each.path for each in store.list(_STAGING) if _is_dead(each.path, job_id)])
    return replaced


def commit(
    store: ObjectStore, job_id: str, staged: Sequence[Staged], facts: JobFacts, replaced: Iterable[str] = ()
) -> str:
    """Make the staged files and then their manifest visible; return the manifest's path.

    Should it fail, ``abort`` or the next ``prepare`` brings the target to all or nothing.

    Parameters
    ----------
    staged
        The files of the one attempt that counts of every task.
    replaced
        What ``prepare`` returned.
    """
    files = [{"path": each.path, "bytes": each.size_bytes, "rows": each.rows} for each in staged]
    rows = sum(each.rows for each in staged)
    manifest = {"job_id": job_id, "ddbio_version": __version__, **asdict(facts), "rows": rows, "files": files}
    intent = _Intent(job_id=job_id, staged=tuple(staged), replaced=tuple(replaced), manifest=manifest)
    store.put(intent.path, _to_json(asdict(intent)))
    _carry_out(store, intent)
    # The job is committed: what stays behind now is swept by the next prepare.
    with contextlib.suppress(DdbioError):
        _tidy(store, intent)
    return manifest_path(job_id)


def abort(store: ObjectStore, job_id: str) -> None:
    """Leave nothing of the job: no file, no upload, no staging folder.

    A job that has its manifest stays, and one whose commit has begun to delete what it replaces is finished: either way
    the target is whole. Call it when the job's tasks have ended, since a running one stages on.
    """
    for intent in _intents(store):
        if intent.job_id == job_id:
            _undo(store, intent)
    store.abort(job_id)


def manifest_path(job_id: str) -> str:
    """Return where a job's manifest lies."""
    return f"{_META}{job_id}.json"


def _carry_out(store: ObjectStore, intent: _Intent) -> None:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="ddbio-commit") as pool:
        for _ in pool.map(store.complete, intent.staged):
            pass
    store.delete(intent.replaced)
    path, text = manifest_path(intent.job_id), _to_json(intent.manifest)
    # Another process that mends this job writes the same bytes.
    if not store.put_if_absent(path, text) and store.read(path) != text:
        raise TargetError(f"{store.uri}/{path} belongs to another job: job ids must be unique", store.uri)


def _mend(store: ObjectStore, intent: _Intent) -> None:
    if not _has_manifest(store, intent.job_id):
        try:
            _carry_out(store, intent)
        except NotFoundError:
            _roll_back(store, intent)
    _tidy(store, intent)


def _undo(store: ObjectStore, intent: _Intent) -> None:
    """Roll a commit back, or mend it where it has deleted what it replaces."""
    there = {each.path for each in store.list()} if intent.replaced else set()
    if _has_manifest(store, intent.job_id) or not there.issuperset(intent.replaced):
        _mend(store, intent)
    else:
        _roll_back(store, intent)
        _tidy(store, intent)


def _roll_back(store: ObjectStore, intent: _Intent) -> None:
    store.abort(intent.job_id)
    store.delete(each.path for each in intent.staged)


def _tidy(store: ObjectStore, intent: _Intent) -> None:
    # Attempts that lost, or died unheard, staged files that nobody committed.
    store.abort(intent.job_id)
    store.delete([intent.path])


def _has_manifest(store: ObjectStore, job_id: str) -> bool:
    path = manifest_path(job_id)
    return any(each.path == path for each in store.list(path))


def _intents(store: ObjectStore) -> list[_Intent]:
    paths = [each.path for each in store.list(_META) if _is_intent(each.path)]
    intents = []
    for path in paths:
        # Gone in between: its job has just finished.
        with contextlib.suppress(NotFoundError):
            intents.append(_to_intent(json.loads(store.read(path))))
    return intents


def _is_dead(path: str, job_id: str) -> bool:
    began, now = started_at(path.removeprefix(_STAGING)), started_at(job_id)
    return began is not None and now is not None and now - began > _DEAD_AFTER


def _is_intent(path: str) -> bool:
    return path.startswith(_META) and path.endswith(_INTENT)


def _to_intent(stated: dict[str, Any]) -> _Intent:
    staged = tuple(Staged(**each) for each in stated["staged"])
    replaced = tuple(stated["replaced"])
    return _Intent(job_id=stated["job_id"], staged=staged, replaced=replaced, manifest=stated["manifest"])


def _to_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()
