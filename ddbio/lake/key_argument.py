"""Read the key of an item as users write it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddbio.errors import DdbioError, OptionError
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.json_text import compact_json
from ddbio.lake_formats.keys import key_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = re.compile(r"[SNB]:.*", re.DOTALL)
_TAGS = frozenset("SNB")


def key_text_of(given: str, types: Mapping[str, str]) -> str:
    """Return the text of a key as the column ``_key`` has it.

    Parameters
    ----------
    given
        That text itself; a JSON object of the key's attributes, plain or as attribute values; or the plain value of a
        key of one attribute.
    types
        The key attributes, and the type of each.

    Raises
    ------
    OptionError
        If it is no key of the table.
    """
    names = tuple(types)
    if given.startswith("{"):
        values = _object(given, names)
    elif _TEXT.fullmatch(given):
        return given
    elif len(names) == 1:
        values = {names[0]: given}
    else:
        raise OptionError(f"the key {given!r} has one value, and the table's keys are {_shown(names)}: {_ways(types)}")
    line = compact_json({"Item": {name: _value(values[name], tag) for name, tag in types.items()}})
    try:
        found = from_dynamodb_json(line.encode())
        return str(key_texts(found, names)[0])
    except DdbioError as error:
        raise OptionError(f"{given!r} is no key of {_shown(names)}: {error}") from error


def _object(given: str, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        values = json.loads(given, parse_float=str, parse_int=str)
    except ValueError as error:
        raise OptionError(f"the key {given!r} of {_shown(names)} is no JSON: {error}") from None
    if not isinstance(values, dict) or set(values) != set(names):
        raise OptionError(f"the key {given!r} does not have the attributes {_shown(names)}")
    return values


def _value(given: Any, tag: str) -> dict[str, str]:
    if isinstance(given, dict) and len(given) == 1 and set(given) <= _TAGS:
        return {name: str(value) for name, value in given.items()}
    return {tag: str(given)}


def _shown(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _ways(types: Mapping[str, str]) -> str:
    shown = ", ".join(f'"{name}": {"5" if tag == "N" else chr(34) + "a" + chr(34)}' for name, tag in types.items())
    return f"write {{{shown}}}"
