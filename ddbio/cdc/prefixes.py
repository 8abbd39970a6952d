"""Fill in the expressions of Firehose's prefixes: ``!{timestamp:yyyy/MM/dd/HH}`` and its like.

https://docs.aws.amazon.com/firehose/latest/dev/s3-prefixes.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_EXPRESSION = re.compile(r"!\{([A-Za-z]+):([^{}]*)\}")
# Of Java's DateTimeFormatter, what prefixes have; text between quotes stands for itself.
_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FORMATS = {
    "yyyy": "%Y",
    "YYYY": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


def expand(prefix: str, at: datetime, random: str, *, error_type: str | None = None, keys: Mapping[str, str]) -> str:
    """Return a prefix with its expressions filled in.

    Parameters
    ----------
    at
        The time that ``timestamp`` stands for.
    random
        What ``firehose:random-string`` stands for.
    error_type
        What ``firehose:error-output-type`` stands for; None outside of error prefixes.
    keys
        The partition keys of ``partitionKeyFromLambda`` and ``partitionKeyFromQuery``.

    Raises
    ------
    OptionError
        If an expression is not known, or has no value here.
    """

    def value(match: re.Match[str]) -> str:
        space, name = match.groups()
        if space == "timestamp":
            return _format(name, at)
        values: Mapping[str, str | None] = {}
        if space == "firehose":
            values = {"random-string": random, "error-output-type": error_type}
        elif space in {"partitionKeyFromLambda", "partitionKeyFromQuery"}:
            values = keys
        found = values.get(name)
        if found is None:
            raise OptionError(f"the prefix {prefix!r} has {match[0]}, which has no value here")
        return found

    filled = _EXPRESSION.sub(value, prefix)
    if "!{" in filled:
        raise OptionError(f"the prefix {prefix!r} has an expression that is not whole")
    return filled


def _format(pattern: str, at: datetime) -> str:
    parts = list[str]()
    for match in _FIELD.finditer(pattern):
        if match[1] is not None:
            parts.append(match[1].replace("''", "'") or "'")
        elif match[2] is None:
            parts.append(match[0])
        elif match[0] in _FORMATS:
            parts.append(at.strftime(_FORMATS[match[0]]))
        else:
            raise OptionError(f"the time {pattern!r} has {match[0]!r}: use {', '.join(_FORMATS)}")
    return "".join(parts)
