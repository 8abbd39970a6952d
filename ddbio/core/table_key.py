"""Parse a table's key as people write it; ask no table."""

from __future__ import annotations

from ddbio.errors import OptionError

_TYPES = frozenset({"S", "N", "B"})
_LONGEST = 2


def parse_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and types of ``pk[:S][,sk[:S]]``; the type is S unless N or B is said.

    Raises
    ------
    OptionError
        If the text is of another form.
    """
    parts = [each.strip().rpartition(":") if ":" in each else (each.strip(), ":", "S") for each in text.split(",")]
    key = tuple((name, tag) for name, _, tag in parts)
    if len(key) > _LONGEST or len(dict(key)) < len(key) or not all(name and tag in _TYPES for name, tag in key):
        raise OptionError(f"{text!r} is no key: write the partition key and perhaps a sort key, like pk:S,sk:N")
    return key


def format_key(key: tuple[tuple[str, str], ...]) -> str:
    """Return the text that ``parse_key`` reads."""
    return ",".join(f"{name}:{tag}" for name, tag in key)
