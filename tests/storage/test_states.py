from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from ddbio.commit.snapshot import LiveFile, parse_snapshot
from ddbio.errors import TargetError
from ddbio.storage.staged import StagedFile
from ddbio.storage.states import _KINDS, MAX_BYTES, add_checksum, parse_state

JOB = "20260102T030405Z_0123abcd"
PART = f"a=1/part-{JOB}-00001-0-0000.parquet"
FILE = {
    "path": PART,
    "bytes": 5,
    "rows": 1,
    "partition": {"a": "1"},
    "statistics": {"pk": {"nulls": 0}},
    "crc32": "AAAA",
}
STAGED = {"path": PART, "size_bytes": 5, "rows": 1, "token": {"staged_at": f"_ddbio/staging/{JOB}/{PART}.staged"}}
MANIFEST = {
    "format": 1,
    "job_id": JOB,
    "mode": "append",
    "command": "scan",
    "created_at": "2026-01-02T03:04:05Z",
    "source": {"table": "orders"},
    "schema": "{}",
    "partition_by": [{"name": "a", "attribute": "a", "part": None, "in_files": False}],
    "digest": None,
    "rows": 1,
    "files": [FILE],
    "objects": ["x/manifest.json"],
    "report": None,
}
BATCH = {
    "batch": 7,
    "shards": {"shard": {"after": None, "to": "5", "records": 3, "dropped": ["5"]}},
    "positions": {"shard": "5"},
    "files": [{"path": "year=2026/x.parquet", "rows": 3}],
    "gaps": [],
    "at": 1.5,
}
CLAIM = {"format": 1, "job_id": JOB, "mode": "append", "owner": {"host": "a", "process": 5, "started": None}}
REST = {"key": {"pk": {"S": "a"}}, "queries": 0, "keys": []}
WINDOW = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T01:00:00+00:00"}
STATES = {
    f"_ddbio/{JOB}.claim.json": CLAIM,
    f"_ddbio/{JOB}.intent.json": {
        "format": 1,
        "job_id": JOB,
        "staged": [STAGED, {**STAGED, "token": {"upload_id": "u", "parts": [{"PartNumber": 1, "ETag": "e"}]}}],
        "replaced": ["old.parquet"],
        "manifest": MANIFEST,
        "objects": [{"path": "x.json", "text": "{}"}],
        "change": {"mode": "append", "operation": "append", "removed": ["old.parquet"], "base_version": 0},
        "deletes": True,
    },
    f"_ddbio/{JOB}.json": MANIFEST,
    "_ddbio/snapshots/00000000000000000003.json": {
        "format": 1, "version": 3, "files": [FILE], "job_id": JOB, "operation": "append", "created_at": "",
        "added": [PART], "removed": ["old.parquet"],
    },
    "_ddbio/log.capture.json": {"stream": "arn", "start": "latest", "old_image": True, "started_at": 5.5, "table": "t"},
    "_ddbio/log.capture/000000000007.json": BATCH,
    "_ddbio/log.capture/folded-000000000200.json": {"batches": [BATCH]},
    "_ddbio/log.capture/committed.json": {"batch": 7},
    "_ddbio/log.capture/columns.json": {"schema": "{}", "keys": ["pk"]},
    "_ddbio/log.capture/exports.json": {"exports": ["s3://b/x"]},
    "_ddbio/log.leases/lease-0001-00000002.json": {"owner": "0123abcd"},
    "_ddbio/a.archive/done.json": {"batch": 1, "hours": {"h": {"batches": [1], "mark": "m"}}},
    "_ddbio/a.load/0123abcd.json": {"finished": [[0, 5, 100]], "begun": [[6, 10]]},
    "_ddbio/a.latest-load/job.json": {"job_id": "b"},
    "_ddbio/a.scan.json": {"table": "t", "format": "parquet", "begun": "0123abcd"},
    "_ddbio/a.scan/0123abcd-00001-0123abcd.json": {
        "steps": [
            {
                "files": [STAGED],
                "segments": [[0, "mark", 5, REST], [1, "mark", 5, None]],
                "counts": {"items": 5},
                "digest": [5, "7f"],
            }
        ]
    },
    "_ddbio/a.reconcile/window-000000000005.json": WINDOW,
    "_ddbio/bootstrap.bootstrap/base.json": {"covered": {"a": 5}, "whole": 5, "export": {"arn": "a", "gaps": ["g"]}},
}  # fmt: skip
HOSTILE = (
    None,
    True,
    -1,
    0.5,
    10**30,
    "",
    "../x",
    "/etc/passwd",
    "a//b",
    "a\0b",
    "x" * 5000,
    [],
    [None],
    [[]],
    {},
    {"a": {"b": []}},
)
"""Hostile replacements of each value."""


def text_of(state):
    """Return a state as it is stored."""
    return add_checksum(json.dumps(state))


def places(value, path=()):
    """Yield the paths of all values within one."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in inner:
        yield from places(member, (*path, name))


def paths_in(state):
    """Yield everything in a state that is used as a path, a job id, or a version."""
    for member_path in places(state):
        value = state
        for name in member_path:
            value = value[name]
        if (member_path and member_path[-1] in {"path", "staged_at"}) or (
            len(member_path) > 1
            and member_path[-2] in {"replaced", "removed", "added", "objects"}
            and not isinstance(value, dict)
        ):
            yield value


def test_every_kind_of_state_has_a_shape():
    """Every state file of the samples, which have all kinds, is checked."""
    data = Path(__file__).parents[1] / "samples/data"
    paths = {path.relative_to(data / path.relative_to(data).parts[0]) for path in data.glob("*/_ddbio/**/*.json")}
    assert len(paths) > len(STATES)
    assert [path for path in sorted(map(str, paths)) if not any(kind.path.fullmatch(path) for kind in _KINDS)] == []


@pytest.mark.parametrize("path", STATES)
def test_a_state_is_read_as_it_was_written(path):
    """States are read with a checksum and, of older releases, without one; unknown members are accepted."""
    state = {**STATES[path], "later": {"release": [1]}}
    assert parse_state(text_of(state), path, "uri") == state
    assert parse_state(json.dumps(state).encode(), path) == state


@pytest.mark.parametrize("path", STATES)
def test_no_change_of_a_state_gives_another_error_or_a_path_elsewhere(path):
    """Each value is replaced by values of other kinds, or left out: the state is refused, or has no hostile path."""
    messages = []
    for member_path in places(STATES[path]):
        for hostile in (*HOSTILE, ...):
            state = copy.deepcopy(STATES[path])
            inner = state
            for name in member_path[:-1]:
                inner = inner[name]
            if not member_path:
                state = hostile if hostile is not ... else 5
            elif hostile is ...:
                del inner[member_path[-1]]
            else:
                inner[member_path[-1]] = hostile
            text = json.dumps(state).encode() if not isinstance(state, dict) else text_of(state)
            try:
                accepted = parse_state(text, path, "uri")
            except TargetError as error:
                messages.append(str(error))
                continue
            for hostile_path in paths_in(accepted):
                assert isinstance(hostile_path, str)
                assert not {"..", ""} & {*hostile_path.split("/")}
            # Parsing the members of an accepted state does not raise.
            if "/snapshots/" in path:
                parse_snapshot(text, path)
            [LiveFile.from_dict(file) for file in accepted.get("files", []) if "bytes" in file]
            [StagedFile.from_dict(staged) for staged in accepted.get("staged", [])]
    assert messages
    for message in messages:
        assert re.match(rf"uri/{path} (is not as ddbio writes it: |has format )", message)
        assert len(message) < 700


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"5", "is 5, not an object"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b'{"a": NaN', "not JSON"),
        (b"[" * 5000 + b"]" * 5000, "not JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"format": "9"}', "format is '9', not a whole number"),
        (b'{"format": 1e999}', "format is inf"),
        (b'{"format": 2}', "use the newer ddbio"),
    ],
)
def test_an_invalid_state_is_refused(text, says):
    """It is one error, which names the file."""
    jobs = () if b"format" in text else ("_ddbio/x.load/0123abcd.json", "_ddbio/x.unknown.json")
    for path in ("_ddbio/x.claim.json", *jobs):
        with pytest.raises(TargetError, match=f"uri/{path}.*{says}"):
            parse_state(text, path, "uri")


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        (f"_ddbio/{JOB}.claim.json", {"job_id": "other"}, "job_id is 'other', but the file's name has"),
        (f"_ddbio/{JOB}.claim.json", {"job_id": "../../victim"}, "not a job id"),
        (f"_ddbio/{JOB}.claim.json", {"owner": {"process": "../../../etc"}}, "owner.process is '../../../etc'"),
        (f"_ddbio/{JOB}.intent.json", {"job_id": "other"}, "the file's name has"),
        (f"_ddbio/{JOB}.intent.json", {"manifest": {**MANIFEST, "job_id": "other"}}, "manifest is of another job"),
        (f"_ddbio/{JOB}.intent.json", {"staged": [{**STAGED, "path": "stolen.txt"}]}, "a file of another job"),
        (f"_ddbio/{JOB}.intent.json", {"replaced": ["../../victim/thesis.txt"]}, r"replaced\[0\] is"),
        (f"_ddbio/{JOB}.intent.json", {"objects": [{"path": "/abs", "text": ""}]}, r"objects\[0\].path is '/abs'"),
        (f"_ddbio/{JOB}.json", {"job_id": "other"}, "the file's name has"),
        ("_ddbio/snapshots/00000000000000000003.json", {"version": 4}, "version is 4, but the file's name has 3"),
        ("_ddbio/log.capture/000000000007.json", {"batch": 8}, "batch is 8, but the file's name has 7"),
        ("_ddbio/a.load/0123abcd.json", {"finished": [[0, 10**12, 1]]}, "more units than a load"),
        ("_ddbio/a.scan.json", {"begun": "../../victim"}, "begun is '../../victim', not a digest"),
    ],
)  # fmt: skip
def test_names_and_contents_agree(path, change, says):
    """A file whose ids, versions or numbers differ from those in its name is refused. The message names the member."""
    with pytest.raises(TargetError, match=says):
        parse_state(text_of({**STATES[path], **change}), path)


def test_a_state_is_not_larger_than_a_limit():
    """A larger file is not even parsed."""
    with pytest.raises(TargetError, match="is larger than"):
        parse_state(bytes(MAX_BYTES + 1), "_ddbio/x.json")
