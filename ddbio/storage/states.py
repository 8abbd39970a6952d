"""Read the files of state that jobs keep in ``_ddbio/`` of a folder: whoever may write there may have written them.

Each kind of file is known by its path and has one shape, which is checked before anybody uses the contents. Members and
files that this release does not know pass, so that those of other releases can be read.
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

_MOST = 2**63
_YEAR_10000 = 253_402_300_800
_SHOWN = 80


class ShapeError(ValueError):
    """Raised by a check; its text names the member and says what is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._reason, self._members = reason, list[str]()

    def within(self, member: str) -> ShapeError:
        """Return the error of the value that has this member."""
        self._members.append(member[:_SHOWN])
        return self

    def __str__(self) -> str:
        """Return member and reason."""
        return f"{''.join(reversed(self._members)).lstrip('.') or 'the text'} {self._reason}"


def _refuse(value: object, wanted: str) -> NoReturn:
    raise ShapeError(f"is {shown(value)}, not {wanted}")


def shown(value: object) -> str:
    """Return a value as messages show it: not all of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def value(wanted: str, test: Callable[[Any], bool]) -> Check:
    """Return the check of a value by a test, which is called ``wanted`` in messages."""

    def check(found: Any) -> None:
        if not test(found):
            _refuse(found, wanted)

    return check


def members(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return the check of an object by its members; it may have others, too."""
    known = [*required.items(), *(optional or {}).items()]

    def check(found: Any) -> None:
        if type(found) is not dict:
            _refuse(found, "an object")
        for name in required:
            if name not in found:
                raise ShapeError(f"has no member {name!r}")
        for name, inner in known:
            try:
                if name in found:
                    inner(found[name])
            except ShapeError as error:
                raise error.within(f".{name}") from None

    return check


def object_of(inner: Check) -> Check:
    """Return the check of an object whose members are all alike."""

    def check(found: Any) -> None:
        if type(found) is not dict:
            _refuse(found, "an object")
        for name, each in found.items():
            try:
                inner(each)
            except ShapeError as error:
                raise error.within(f".{name}") from None

    return check


def list_of(inner: Check) -> Check:
    """Return the check of a list whose elements are all alike."""

    def check(found: Any) -> None:
        if type(found) is not list:
            _refuse(found, "a list")
        for number, each in enumerate(found):
            try:
                inner(each)
            except ShapeError as error:
                raise error.within(f"[{number}]") from None

    return check


def row_of(*inner: Check) -> Check:
    """Return the check of a list of so many elements."""

    def check(found: Any) -> None:
        if type(found) is not list or len(found) != len(inner):
            _refuse(found, f"a list of {len(inner)}")
        for number, (each, element) in enumerate(zip(inner, found, strict=True)):
            try:
                each(element)
            except ShapeError as error:
                raise error.within(f"[{number}]") from None

    return check


def or_null(inner: Check) -> Check:
    """Return the check of a value that may be null."""

    def check(found: Any) -> None:
        if found is not None:
            inner(found)

    return check


def _is_path(found: Any) -> bool:
    try:
        contained(found, "")
    except TargetError:
        return False
    return True


def _is_base64(found: Any) -> bool:
    try:
        return type(found) is str and base64.b64decode(found, validate=True) is not None
    except (binascii.Error, ValueError):
        return False


def _is_time(found: Any) -> bool:
    try:
        return type(found) is str and datetime.fromisoformat(found).tzinfo is not None
    except ValueError:
        return False


TEXT = value("a text", lambda found: type(found) is str)
FLAG = value("true or false", lambda found: type(found) is bool)
WHOLE = value("a whole number", lambda found: type(found) is int and abs(found) < _MOST)
COUNT = value("a count", lambda found: type(found) is int and 0 <= found < _MOST)
# Up to the year 9999; NaN is neither.
SECONDS = value("a time in seconds", lambda found: type(found) in {int, float} and 0 <= found < _YEAR_10000)
TIME = value("a time with its zone", _is_time)
PATH = value("a path within the folder", _is_path)
JOB = value("a job id", lambda found: type(found) is str and is_job_id(found))
BASE64 = value("base64", _is_base64)
OBJECT = members({})


MEMBER = "crc32"
_END = re.compile(rb',\n "crc32": "([0-9a-f]{8})"\n\}\Z')


def add_checksum(text: str) -> bytes:
    """Return the text of an object, which has members, with its checksum as the last one."""
    body = text.removesuffix("}").rstrip().encode()
    return body + f',\n "{MEMBER}": "{zlib.crc32(body):08x}"\n}}'.encode()


def is_whole(text: bytes) -> bool:
    """Return whether a text is as it was written; one without a checksum, as older releases wrote it, is."""
    found = _END.search(text)
    return found is None or zlib.crc32(text[: found.start()]) == int(found[1], 16)


FORMAT = 1
"""Version of the layout of claims, intents, manifests and snapshots."""

MAX_BYTES = 256 * 1024 * 1024
"""A larger file is no file of state: a snapshot of this size would name about half a million files."""

# What is stored as runs of numbers is expanded.
_MOST_UNITS = 10_000_000

_MODE = value("a mode", lambda found: found in ("error", "append", "overwrite", "replace"))
_DIGEST = value("a digest", lambda found: type(found) is str and re.fullmatch(r"[0-9a-f]{1,64}", found) is not None)
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
# What a batch has if it does not say.
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


def _are_hours(found: Any) -> bool:
    times = found if type(found) is dict else {"": found}
    return all(re.fullmatch(r"[0-9]{1,18}", at) and type(hour) is str for at, hour in times.items())


def _check_runs(found: Any) -> None:
    list_of(row_of(COUNT, COUNT, COUNT))(found)
    if sum(max(0, last - first + 1) for first, last, _ in found) > _MOST_UNITS:
        raise ShapeError("has more units than a load")


@dataclass(frozen=True)
class _Kind:
    """Describe a kind of file of state: its paths, its shape, and what to do with a malformed one.

    Attributes
    ----------
    has_format
        Whether a member says the version of its layout.
    lacking
        Members that a file may lack, and the types of the empty values that they have then.
    """

    path: re.Pattern[str]
    check: Check
    advice: str
    has_format: bool = False
    lacking: Mapping[str, type] = field(default_factory=dict)


def _path(name: str) -> re.Pattern[str]:
    """Return the pattern of the paths of a kind, whose name has words for its parts."""
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
_RESTORE = "restore it from a copy; if there is none, begin the job anew in another folder"
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
_AGAIN = "delete it, and what it notes is done again"
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
_ANEW = "restore it, or give another job_id"
_NAMED_ANEW = {
    r"JOB\.load": members({}, {"units": COUNT, "table": TEXT}),
    r"JOB\.scan": members({}, {"begun": _DIGEST}),
    r"JOB\.scan/plan": members({"segments": COUNT, "schema": TEXT}),
}
_WAIT = "wait for two minutes, or delete it if no job writes to this folder"
_DISCARD = "delete it, and what its job has staged is discarded"
_FOREIGN = "restore it, or move it away: files that only it names are then read as those of other programs"
_BEFORE = "restore it, or move it away: the folder then is as the version before says"
_KINDS = (
    _Kind(_path(r"OWN_JOB\.claim"), _CLAIM, _WAIT, has_format=True),
    _Kind(_path(r"OWN_JOB\.intent"), _INTENT, _DISCARD, has_format=True),
    _Kind(_path("OWN_JOB"), members({}, _MANIFEST), _FOREIGN, has_format=True, lacking={"files": list}),
    _Kind(_path(r"snapshots/(?P<version>\d{20})"), _SNAPSHOT, _BEFORE, has_format=True),
    _Kind(_path(r"JOB\.LOG/BATCH"), members(_OF_BATCH, _OF_SHARDS | _MORE_OF_BATCH), _RESTORE, lacking=_EMPTY_BATCH),
    *(
        _Kind(_path(name), check, advice)
        for advice, checks in ((_RESTORE, _RESTORED), (_AGAIN, _REPEATED), (_ANEW, _NAMED_ANEW))
        for name, check in checks.items()
    ),
)
_OTHER = _Kind(re.compile(""), OBJECT, _RESTORE)


def parse_state(text: bytes, path: str, uri: str = "") -> dict[str, Any]:
    """Return the contents of a file of state, which have the shape of its kind and its own names in them.

    Parameters
    ----------
    path
        Its path in the folder.
    uri
        The folder.

    Raises
    ------
    TargetError
        If it is damaged, something else than ddbio wrote it, or a newer version of ddbio did. The message names the
        file and says what to do.
    """
    place = f"{uri}/{path}" if uri else path
    kind, match = next(((each, found) for each in _KINDS if (found := each.path.fullmatch(path))), (_OTHER, None))
    try:
        if len(text) > MAX_BYTES:
            raise ShapeError(f"is larger than {MAX_BYTES:,} bytes")
        if not is_whole(text):
            raise TargetError(f"{place} is damaged: its text has another checksum than it says; {kind.advice}", uri)
        state = json.loads(text)
        OBJECT(state)
        state.pop(MEMBER, None)
        if kind.has_format:
            members({}, {"format": WHOLE})(state)
        if kind.has_format and state.get("format", 0) > FORMAT:
            raise TargetError(
                f"{place} has format {shown(state['format'])}, this ddbio knows {FORMAT}: use the newer ddbio that "
                "wrote it",
                uri,
            )
        kind.check(state)
        for name, empty in kind.lacking.items():
            state.setdefault(name, empty())
        _check_names(state, {} if match is None else match.groupdict())
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, ShapeError) else f"the text is no JSON ({_short(error)})"
        raise TargetError(f"{place} is not as ddbio writes it: {reason}; {kind.advice}", uri) from None
    return state  # type: ignore[no-any-return]


def _check_names(state: dict[str, Any], named: dict[str, str]) -> None:
    """Compare what a file says of itself with its name, and an intent's job with those of its files."""
    for name, text in named.items():
        wanted = text if name == "job_id" else int(text)
        if state.get(name, wanted) != wanted:
            raise ShapeError(f"is {shown(state[name])}, and the name of the file says {wanted!r}").within(f".{name}")
    if "staged" in state:
        if state["manifest"]["job_id"] != state["job_id"]:
            raise ShapeError("is of another job").within(".manifest")
        for number, each in enumerate(state["staged"]):
            if job_of(each["path"]) != state["job_id"]:
                raise ShapeError(f"is {shown(each['path'])}, a file of another job").within(f".staged[{number}].path")


def _short(error: BaseException) -> str:
    return str(error)[:100] or type(error).__name__
