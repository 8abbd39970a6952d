"""State files that jobs keep in ``_ddbio/`` of a folder. Everybody with write access to it may have written them.

The path determines the kind of a file. Each kind has one shape, which is checked before the contents are used. Unknown
members and files are accepted, so that those of other releases can be read.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ddbio.errors import TargetError
from ddbio.storage.staged import contained, is_job_id, job_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Check: TypeAlias = Callable[[Any], None]

_MAX_INTEGER = 2**63
_YEAR_10000 = 253_402_300_800
_SHOWN = 80


class ShapeError(ValueError):
    """Raised by a check; its text has the member and the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._reason, self._members = reason, list[str]()

    def within(self, member: str) -> ShapeError:
        """Return the error of the value that contains this member."""
        self._members.append(member[:_SHOWN])
        return self

    def __str__(self) -> str:
        """Return member and reason."""
        return f"{''.join(reversed(self._members)).lstrip('.') or 'the text'} {self._reason}"


def _refuse(value: object, expected: str) -> NoReturn:
    raise ShapeError(f"is {shown(value)}, not {expected}")


def shown(value: object) -> str:
    """Return a value for messages, with long ones cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def value(description: str, test: Callable[[Any], bool]) -> Check:
    """Return the check of a value by a test; ``description`` is the expected value in messages."""

    def check(candidate: Any) -> None:
        if not test(candidate):
            _refuse(candidate, description)

    return check


def members(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return the check of an object by its members; it may have others, too."""
    checks = [*required.items(), *(optional or {}).items()]

    def check(candidate: Any) -> None:
        if type(candidate) is not dict:
            _refuse(candidate, "an object")
        for name in required:
            if name not in candidate:
                raise ShapeError(f"has no member {name!r}")
        for name, inner in checks:
            try:
                if name in candidate:
                    inner(candidate[name])
            except ShapeError as error:
                raise error.within(f".{name}") from None

    return check


def object_of(inner: Check) -> Check:
    """Return the check of an object whose members are all alike."""

    def check(candidate: Any) -> None:
        if type(candidate) is not dict:
            _refuse(candidate, "an object")
        for name, member_value in candidate.items():
            try:
                inner(member_value)
            except ShapeError as error:
                raise error.within(f".{name}") from None

    return check


def list_of(inner: Check) -> Check:
    """Return the check of a list whose elements are all alike."""

    def check(candidate: Any) -> None:
        if type(candidate) is not list:
            _refuse(candidate, "a list")
        for number, element in enumerate(candidate):
            try:
                inner(element)
            except ShapeError as error:
                raise error.within(f"[{number}]") from None

    return check


def row_of(*inner: Check) -> Check:
    """Return the check of a list with one check per element."""

    def check(candidate: Any) -> None:
        if type(candidate) is not list or len(candidate) != len(inner):
            _refuse(candidate, f"a list of {len(inner)}")
        for number, (check_element, element) in enumerate(zip(inner, candidate, strict=True)):
            try:
                check_element(element)
            except ShapeError as error:
                raise error.within(f"[{number}]") from None

    return check


def or_null(inner: Check) -> Check:
    """Return the check of a value that may be null."""

    def check(candidate: Any) -> None:
        if candidate is not None:
            inner(candidate)

    return check


def _is_path(candidate: Any) -> bool:
    try:
        contained(candidate, "")
    except TargetError:
        return False
    return True


def _is_base64(candidate: Any) -> bool:
    try:
        return type(candidate) is str and base64.b64decode(candidate, validate=True) is not None
    except (binascii.Error, ValueError):
        return False


def _is_time(candidate: Any) -> bool:
    try:
        return type(candidate) is str and datetime.fromisoformat(candidate).tzinfo is not None
    except ValueError:
        return False


TEXT = value("a text", lambda text: type(text) is str)
FLAG = value("true or false", lambda flag: type(flag) is bool)
WHOLE = value("a whole number", lambda number: type(number) is int and abs(number) < _MAX_INTEGER)
COUNT = value("a count", lambda count: type(count) is int and 0 <= count < _MAX_INTEGER)
# Times up to the year 9999; NaN is refused.
SECONDS = value("a time in seconds", lambda seconds: type(seconds) in {int, float} and 0 <= seconds < _YEAR_10000)
TIME = value("a time with its zone", _is_time)
PATH = value("a path within the folder", _is_path)
JOB = value("a job id", lambda text: type(text) is str and is_job_id(text))
BASE64 = value("base64", _is_base64)
OBJECT = members({})


MEMBER = "crc32"
_END = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\Z')


def add_checksum(text: str) -> bytes:
    """Return the text of an object with members, with its checksum as the last member."""
    body = text.removesuffix("}").rstrip().encode()
    return body + f',\n "{MEMBER}": "{zlib.crc32(body):08x}"\n}}'.encode()


def has_valid_checksum(text: bytes) -> bool:
    """Return whether a text matches its checksum; one without a checksum, as older releases wrote it, does."""
    match = _END.search(text)
    return match is None or zlib.crc32(text[: match.start()]) == int(match[1], 16)


FORMAT = 1
"""Version of the layout of claims, intents, manifests and snapshots."""

MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of a state file: a snapshot of this size would list about half a million files."""

# Runs of numbers are expanded, up to this number.
_MAX_UNITS = 10_000_000

_MODE = value("a mode", lambda mode: mode in ("error", "append", "overwrite", "replace"))
_DIGEST = value("a digest", lambda text: type(text) is str and re.fullmatch(r"[0-9a-f]{1,64}", text) is not None)
_FILE = members(
    {"path": PATH, "bytes": COUNT},
    {
        "rows": or_null(COUNT),
        "partition": or_null(object_of(or_null(TEXT))),
        "statistics": or_null(object_of(OBJECT)),
        "digest": or_null(TEXT),
        "crc32": or_null(BASE64),
    },
)
_FOLDER = members({"name": TEXT, "attribute": TEXT}, {"part": or_null(TEXT), "in_files": FLAG})
_MANIFEST = {
    "job_id": JOB,
    "mode": _MODE,
    "command": TEXT,
    "created_at": TEXT,
    "source": or_null(OBJECT),
    "schema": or_null(TEXT),
    "partition_by": or_null(list_of(_FOLDER)),
    "digest": or_null(TEXT),
    "rows": COUNT,
    "files": list_of(_FILE),
    "objects": list_of(PATH),
    "report": or_null(OBJECT),
}
_NEEDED = ("job_id", "created_at", "rows", "files")
_PART = members({"PartNumber": COUNT, "ETag": TEXT})
_STAGED = members(
    {
        "path": PATH,
        "size_bytes": COUNT,
        "rows": COUNT,
        "token": members({}, {"staged_at": PATH, "upload_id": TEXT, "parts": list_of(_PART)}),
    },
    {
        "partition": object_of(or_null(TEXT)),
        "statistics": or_null(object_of(OBJECT)),
        "digest": or_null(TEXT),
        "md5": or_null(BASE64),
        "crc32": or_null(BASE64),
    },
)
_INTENT = members(
    {
        "job_id": JOB,
        "staged": list_of(_STAGED),
        "replaced": list_of(PATH),
        "manifest": members({name: _MANIFEST[name] for name in _NEEDED}, _MANIFEST),
        "change": members({"mode": _MODE, "operation": TEXT, "removed": list_of(PATH), "base_version": COUNT}),
        "deletes": FLAG,
    },
    {"objects": list_of(members({"path": PATH, "text": TEXT}))},
)
_SNAPSHOT = members(
    {
        "version": COUNT,
        "files": list_of(_FILE),
        "job_id": TEXT,
        "operation": TEXT,
        "created_at": TEXT,
        "added": list_of(PATH),
        "removed": list_of(PATH),
    }
)
_OWNER = {"host": TEXT, "system": or_null(TEXT), "process": COUNT, "started": or_null(TEXT), "since": TEXT}
_CLAIM = members({"job_id": JOB, "mode": _MODE, "owner": members({}, _OWNER)})

_COLUMNS = members({"schema": TEXT}, {"keys": list_of(TEXT)})
_SHARD = members({"after": or_null(TEXT), "to": TEXT, "records": COUNT}, {"dropped": list_of(TEXT)})
_OF_BATCH = {"batch": COUNT, "files": list_of(members({"path": PATH, "rows": COUNT}))}
_OF_SHARDS = {"shards": object_of(_SHARD), "positions": object_of(TEXT), "gaps": list_of(TEXT)}
_MORE_OF_BATCH = {"at": SECONDS, "lineage": COUNT}
# Defaults of the members that a batch may lack.
_EMPTY_BATCH: dict[str, type] = {"shards": dict, "positions": dict, "gaps": list}
_REST = or_null(members({"key": or_null(OBJECT), "queries": COUNT, "keys": list_of(TEXT)}))
_STEP = members(
    {
        "files": list_of(_STAGED),
        "segments": list_of(row_of(COUNT, TEXT, COUNT, _REST)),
        "counts": object_of(COUNT),
        "digest": row_of(COUNT, _DIGEST),
    }
)
_BATCH = members({"batch": COUNT})
_TEXTS = object_of(list_of(or_null(TEXT)))


def _are_hours(candidate: Any) -> bool:
    times = candidate if type(candidate) is dict else {"": candidate}
    return all(re.fullmatch(r"[0-9]{1,18}", at) and type(hour) is str for at, hour in times.items())


def _check_runs(runs: Any) -> None:
    list_of(row_of(COUNT, COUNT, COUNT))(runs)
    if sum(max(0, last - first + 1) for first, last, _ in runs) > _MAX_UNITS:
        raise ShapeError("has more units than a load")


@dataclass(frozen=True)
class _Kind:
    """Kind of a state file: its paths, its shape, and the advice for a malformed one.

    Attributes
    ----------
    has_format
        Whether a member has the version of the layout.
    defaults
        Members that a file may lack, and the types of their empty default values.
    """

    path: re.Pattern[str]
    check: Check
    advice: str
    has_format: bool = False
    defaults: Mapping[str, type] = field(default_factory=dict)


def _path(name: str) -> re.Pattern[str]:
    """Return the pattern of the paths of a kind; words in the name are placeholders of its parts."""
    parts = {
        "LOG": "(?:capture|replay|lambda)",
        "OWN_JOB": r"(?P<job_id>\w+)",
        "BATCH": r"(?P<batch>\d{12})",
        "JOB": r"\w+",
    }
    for word, pattern in parts.items():
        name = name.replace(word, pattern)
    return re.compile(rf"_ddbio/{name}\.json", re.ASCII)


_CAPTURE_HEAD = {"stream": TEXT, "start": TEXT, "old_image": FLAG, "started_at": SECONDS, "table": TEXT, "heals": JOB, "batch": COUNT, "lineage": TEXT}  # fmt: skip # noqa: E501
_BASE = {
    "covered": object_of(WHOLE),
    "whole": WHOLE,
    "doubtful": WHOLE,
    "export": members({}, {"arn": TEXT, "gaps": list_of(TEXT), "loaded": FLAG}),
    "expired_before": value("hours by time", _are_hours),
}
_STREAM = {"stream": TEXT, "table_arn": TEXT, "table_id": TEXT, "started_at": SECONDS, "name": TEXT}
_RESTORE = "restore it from a copy; if there is none, restart the job in another folder"
_RESTORED = {
    r"JOB\.capture": members({}, _CAPTURE_HEAD),
    r"JOB\.LOG/folded-\d{12}": members({"batches": list_of(members(_OF_BATCH | _OF_SHARDS, _MORE_OF_BATCH))}),
    r"JOB\.(?:LOG|leases)/stream-\d{4}": members(_STREAM, {"gap": or_null(TEXT)}),
    r"JOB\.(?:LOG|leases)/left-\d{4}": object_of(members({"positions": object_of(TEXT), "at": SECONDS})),
    r"log\.table/name": members({"table": TEXT}),
    r"JOB\.LOG/healed-\d{12}": members({"by": JOB, "rows": COUNT}),
    r"JOB\.leases": members({}, _CAPTURE_HEAD),
    r"JOB\.\w+/columns": _COLUMNS,
    r"JOB\.(?:replay|lambda)": members({}, {"started_at": SECONDS, "stream": TEXT}),
    r"JOB\.archive": members({}, {"ttl": or_null(TEXT)}),
    r"JOB\.archive/BATCH": members({"batch": COUNT, "hours": _TEXTS}, {"changes": _TEXTS}),
    r"JOB\.archive/done": members(
        {"batch": COUNT, "hours": object_of(members({"batches": list_of(COUNT)}, {"mark": TEXT}))}
    ),
}
_REPEAT = "delete it, and the job repeats the recorded work"
_REPEATED = {
    r"JOB\.capture/exports": members({"exports": list_of(TEXT)}),
    r"JOB\.capture/export-\d+": members({"tries": COUNT, "arn": or_null(TEXT)}),
    r"JOB\.capture/seen": members({"at": SECONDS}),
    r"JOB\.LOG/committed": _BATCH,
    r"JOB\.leases/lease-[0-9-]+": members({}, {"owner": or_null(TEXT)}),
    r"JOB\.replay/done-\w+": members({"objects": list_of(TEXT)}),
    r"JOB\.replay/[0-9a-f]{24}": members({"path": TEXT}),
    r"OWN_JOB\.load/done": members({"job_id": JOB}, {"report": or_null(OBJECT)}),
    r"JOB\.load/[0-9a-f]{8}": members({"finished": _check_runs}, {"begun": list_of(row_of(COUNT, COUNT))}),
    r"JOB\.latest-load/job": members({"job_id": JOB}),
    r"JOB\.scan/[0-9a-f]{8}-[0-9a-f-]+": members({"steps": list_of(_STEP)}),
    r"JOB\.apply/.*": _BATCH,
    r"JOB\.reconcile/window-\d+": members({"start": TIME, "end": TIME}, {"done": FLAG}),
    r"JOB\.bootstrap/base": members({}, _BASE),
}
_RESTORE_OR_RENAME = "restore it, or give another job_id"
_RENAMED = {
    r"JOB\.load": members({}, {"units": COUNT, "table": TEXT}),
    r"JOB\.scan": members({}, {"begun": _DIGEST}),
    r"JOB\.scan/plan": members({"segments": COUNT, "schema": TEXT}),
}
_WAIT = "wait for two minutes, or delete it if no job writes to this folder"
_DISCARD = "delete it, and the staged files of its job are discarded"
_FOREIGN = "restore it, or move it away: files that only it lists are then read as files of other programs"
_PREVIOUS = "restore it, or move it away: the folder then has the files of the previous version"
_KINDS = (
    _Kind(_path(r"OWN_JOB\.claim"), _CLAIM, _WAIT, has_format=True),
    _Kind(_path(r"OWN_JOB\.intent"), _INTENT, _DISCARD, has_format=True),
    _Kind(_path("OWN_JOB"), members({}, _MANIFEST), _FOREIGN, has_format=True, defaults={"files": list}),
    _Kind(_path(r"snapshots/(?P<version>\d{20})"), _SNAPSHOT, _PREVIOUS, has_format=True),
    _Kind(_path(r"JOB\.LOG/BATCH"), members(_OF_BATCH, _OF_SHARDS | _MORE_OF_BATCH), _RESTORE, defaults=_EMPTY_BATCH),
    *(
        _Kind(_path(name), check, advice)
        for advice, checks in ((_RESTORE, _RESTORED), (_REPEAT, _REPEATED), (_RESTORE_OR_RENAME, _RENAMED))
        for name, check in checks.items()
    ),
)
_OTHER = _Kind(re.compile(""), OBJECT, _RESTORE)


def parse_state(text: bytes, path: str, uri: str = "") -> dict[str, Any]:
    """Return the contents of a state file, after checking their shape and the names in them.

    Parameters
    ----------
    path
        Its path in the folder.
    uri
        The folder.

    Raises
    ------
    TargetError
        If it is damaged, or written by another program or by a newer version of ddbio. The message names the file and
        the action.
    """
    file_uri = f"{uri}/{path}" if uri else path
    kind, match = next(
        ((candidate, path_match) for candidate in _KINDS if (path_match := candidate.path.fullmatch(path))),
        (_OTHER, None),
    )
    try:
        if len(text) > MAX_BYTES:
            raise ShapeError(f"is larger than {MAX_BYTES:,} bytes")
        if not has_valid_checksum(text):
            raise TargetError(f"{file_uri} is damaged: its checksum does not match its text; {kind.advice}", uri)
        state = json.loads(text)
        OBJECT(state)
        state.pop(MEMBER, None)
        if kind.has_format:
            members({}, {"format": WHOLE})(state)
        if kind.has_format and state.get("format", 0) > FORMAT:
            raise TargetError(
                f"{file_uri} has format {shown(state['format'])}, this ddbio knows {FORMAT}: use the newer ddbio that "
                "wrote it",
                uri,
            )
        kind.check(state)
        for name, empty in kind.defaults.items():
            state.setdefault(name, empty())
        _check_names(state, {} if match is None else match.groupdict())
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, ShapeError) else f"the text is not JSON ({_short(error)})"
        raise TargetError(f"{file_uri} is not as ddbio writes it: {reason}; {kind.advice}", uri) from None
    return state  # type: ignore[no-any-return]


def _check_names(state: dict[str, Any], named: dict[str, str]) -> None:
    """Compare the members of a file with its name, and an intent's job with those of its files."""
    for name, text in named.items():
        expected = text if name == "job_id" else int(text)
        if state.get(name, expected) != expected:
            raise ShapeError(f"is {shown(state[name])}, but the file's name has {expected!r}").within(f".{name}")
    if "staged" in state:
        if state["manifest"]["job_id"] != state["job_id"]:
            raise ShapeError("is of another job").within(".manifest")
        for number, staged in enumerate(state["staged"]):
            if job_of(staged["path"]) != state["job_id"]:
                raise ShapeError(f"is {shown(staged['path'])}, a file of another job").within(f".staged[{number}].path")


def _short(error: BaseException) -> str:
    return str(error)[:100] or type(error).__name__
