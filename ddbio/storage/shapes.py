"""Check that values of JSON have the shape that they should have, member by member."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ddbio.errors import TargetError
from ddbio.storage.contained import contained
from ddbio.storage.staged import is_job_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Check: TypeAlias = Callable[[Any], None]

_MOST = 2**63
_YEAR_10000 = 253_402_300_800
_SHOWN = 80


class MisfitError(ValueError):
    """Raised by a check; its text names the member and says what is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._reason, self._members = reason, list[str]()

    def within(self, member: str) -> MisfitError:
        """Return the error of the value that has this member."""
        self._members.append(member[:_SHOWN])
        return self

    def __str__(self) -> str:
        """Return member and reason."""
        return f"{''.join(reversed(self._members)).lstrip('.') or 'the text'} {self._reason}"


def _refuse(value: object, wanted: str) -> NoReturn:
    raise MisfitError(f"is {shown(value)}, not {wanted}")


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
                raise MisfitError(f"has no member {name!r}")
        for name, inner in known:
            try:
                if name in found:
                    inner(found[name])
            except MisfitError as error:
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
            except MisfitError as error:
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
            except MisfitError as error:
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
            except MisfitError as error:
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
