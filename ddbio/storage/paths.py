"""Match paths against globs, and take columns from Hive-style folder names, ``name=value``.

Globs are those of a shell: ``*`` and ``?`` stay within a folder, ``**`` crosses folders. A folder that a glob matches
is taken with everything in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ddbio.items.schema.arrow import DDB_TYPE, name_of_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


WILD = ("*", "?", "[")
"""A path that holds one of these is a glob."""

# https://hive.apache.org/docs/latest/user/configuration-properties/ - hive.exec.default.partition.name
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"\[([*?[])\]")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,37}")

FolderColumns: TypeAlias = tuple[tuple[str, str, str | None], ...]
"""Name, type (S, N, B or BOOL) and value of each column that the folders of a file give to its rows."""


def is_glob(path: str) -> bool:
    """Return whether a path has a sign of a glob. A file or folder of that very name comes first."""
    return any(sign in path for sign in WILD)


def split_glob(path: str) -> tuple[str, str]:
    """Return the folder before the first sign of a glob, which may be empty, and the glob in it."""
    fixed = path[: min(path.find(sign) for sign in WILD if sign in path)].rpartition("/")[0]
    return fixed, path.removeprefix(fixed).lstrip("/")


def literal_of(glob: str) -> str | None:
    """Return the only path that a glob with escaped signs matches; None if it is none of that kind."""
    found = _ESCAPED.sub(lambda match: match[1], glob)
    return None if found == glob or is_glob(_ESCAPED.sub("", glob)) else found


def escape_glob(path: str) -> str:
    """Return a glob that matches only a path itself."""
    return "".join(f"[{sign}]" if sign in WILD else sign for sign in path)


def matcher(pattern: str) -> re.Pattern[str]:
    """Return a pattern that fully matches the paths of a glob: files, or files in a folder that the glob matches."""
    parts, place = [], 0
    while place < len(pattern):
        sign = pattern[place]
        if pattern.startswith("**/", place) and (not place or pattern[place - 1] == "/"):
            parts.append("(?:.*/)?")
            place += 3
        elif pattern.startswith("**", place):
            parts.append(".*")
            place += 2
        elif sign == "[" and (end := pattern.find("]", place + 2)) > 0:
            inside = pattern[place + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            negated = inside.startswith("!")
            parts.append(f"(?!/)[{'^' if negated else ''}{inside[negated:]}]")
            place = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign))
            place += 1
    return re.compile("".join(parts).rstrip("/") + r"(?:/.*)?", re.DOTALL)


def folder_columns(paths: Iterable[str], keys: Mapping[str, str]) -> dict[str, FolderColumns]:
    """Return the columns that the folders ``name=value`` of each path give; a column has one type in all files.

    A column is a number if all of its values are whole numbers in their usual form, and text otherwise; a key
    attribute has its own type.
    """
    found = {path: hive_partition(path) for path in paths}
    values: dict[str, list[str]] = {}
    for pairs in found.values():
        for name, value in pairs.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    tags = {name: keys.get(name) or ("N" if all(map(_WHOLE.fullmatch, each)) else "S") for name, each in values.items()}
    return {path: tuple((name, tags[name], value) for name, value in pairs.items()) for path, pairs in found.items()}


def hive_partition(path: str) -> dict[str, str | None]:
    """Return the values of the partition columns that the folders ``name=value`` of a path name; None is null."""
    pairs: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if name and sign:
            pairs[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return pairs


def with_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, str, str | None]]) -> pa.RecordBatch:
    """Return a batch with constant columns appended; a column that the rows have themselves stays as it is."""
    own = {name_of_field(field) for field in batch.schema}
    for name, tag, value in columns:
        if name in own:
            continue
        # The text of a number keeps every digit.
        kind: Any = {"B": pa.binary(), "BOOL": pa.bool_()}.get(tag, pa.string())
        field = pa.field(name, kind, metadata={DDB_TYPE: tag.encode()})
        scalar: Any = pa.scalar(value, pa.string()).cast(kind)
        batch = batch.append_column(field, pa.repeat(scalar, batch.num_rows))
    return batch
