"""Matching of paths with globs, and columns from Hive-style folder names, ``name=value``.

Globs are those of a shell: ``*`` and ``?`` stay within a folder, ``**`` crosses folders. A matching folder includes all
of its contents.
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
"""Characters that make a path a glob."""

# https://hive.apache.org/docs/latest/user/configuration-properties/ - hive.exec.default.partition.name
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"\[([*?[])\]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,37}")

FolderColumns: TypeAlias = tuple[tuple[str, str, str | None], ...]
"""Name, type (S, N, B or BOOL) and value of each column that the folders of a file add to its rows."""


def is_glob(path: str) -> bool:
    """Return whether a path has a character of a glob. A file or folder with exactly this name takes precedence."""
    return any(sign in path for sign in WILD)


def split_glob(path: str) -> tuple[str, str]:
    """Return the folder before the first glob character, which may be empty, and the glob in it."""
    fixed = path[: min(path.find(sign) for sign in WILD if sign in path)].rpartition("/")[0]
    return fixed, path.removeprefix(fixed).lstrip("/")


def literal_of(glob: str) -> str | None:
    """Return the only path that a glob with escaped characters matches; None for any other glob."""
    literal = _ESCAPED.sub(lambda match: match[1], glob)
    return None if literal == glob or is_glob(_ESCAPED.sub("", glob)) else literal


def escape_glob(path: str) -> str:
    """Return a glob that matches only this path."""
    return "".join(f"[{sign}]" if sign in WILD else sign for sign in path)


def matcher(pattern: str) -> re.Pattern[str]:
    """Return a pattern that fully matches the paths of a glob: files, or files in a folder that the glob matches."""
    parts, index = [], 0
    while index < len(pattern):
        sign = pattern[index]
        if pattern.startswith("**/", index) and (not index or pattern[index - 1] == "/"):
            parts.append("(?:.*/)?")
            index += 3
        elif pattern.startswith("**", index):
            parts.append(".*")
            index += 2
        elif sign == "[" and (end := pattern.find("]", index + 2)) > 0:
            inside = pattern[index + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            negated = inside.startswith("!")
            parts.append(f"(?!/)[{'^' if negated else ''}{inside[negated:]}]")
            index = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign))
            index += 1
    return re.compile("".join(parts).rstrip("/") + r"(?:/.*)?", re.DOTALL)


def folder_columns(paths: Iterable[str], keys: Mapping[str, str]) -> dict[str, FolderColumns]:
    """Return the columns that the folders ``name=value`` of each path add; a column has one type in all files.

    A column is a number if all of its values are whole numbers in canonical notation, and text otherwise; a key
    attribute
    has its own type.
    """
    partitions = {path: hive_partition(path) for path in paths}
    values: dict[str, list[str]] = {}
    for pairs in partitions.values():
        for name, value in pairs.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    tags = {
        name: keys.get(name) or ("N" if all(map(_INTEGER.fullmatch, texts)) else "S") for name, texts in values.items()
    }
    return {
        path: tuple((name, tags[name], value) for name, value in pairs.items()) for path, pairs in partitions.items()
    }


def hive_partition(path: str) -> dict[str, str | None]:
    """Return the partition values of the folders ``name=value`` of a path; None is null."""
    pairs: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if name and sign:
            pairs[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return pairs


def with_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, str, str | None]]) -> pa.RecordBatch:
    """Return a batch with constant columns appended; columns that the rows already have are unchanged."""
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
