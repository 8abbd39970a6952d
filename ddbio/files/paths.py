"""Say which paths a glob takes, and what folders called ``name=value`` say of the rows below them; read no file.

Globs are those of a shell: ``*`` and ``?`` stay within a folder, ``**`` crosses folders. A folder that a glob takes is
taken with all that is in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ddbio.core.schema.arrow import DDB_TYPE, name_of_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WILD = ("*", "?", "[")
"""What makes a glob of a path."""

# https://hive.apache.org/docs/latest/user/configuration-properties/ - hive.exec.default.partition.name
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,37}")

FolderColumns: TypeAlias = tuple[tuple[str, str, str | None], ...]
"""Name, type S or N, and value of each column that the folders of a file stand for."""


def matcher(pattern: str) -> re.Pattern[str]:
    """Return what matches whole paths that a glob takes, itself or by one of the folders they are in."""
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
    """Return the columns of each file by the folders ``name=value`` of its path, their types one for all files.

    A column is a number where all of its values are whole numbers as one writes them, and text otherwise; a key
    attribute has its own type.
    """
    found = {path: _pairs(path) for path in paths}
    values: dict[str, list[str]] = {}
    for pairs in found.values():
        for name, value in pairs.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    tags = {name: keys.get(name) or ("N" if all(map(_WHOLE.fullmatch, each)) else "S") for name, each in values.items()}
    return {path: tuple((name, tags[name], value) for name, value in pairs.items()) for path, pairs in found.items()}


def _pairs(path: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if name and sign:
            pairs[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return pairs


def with_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, str, str | None]]) -> pa.RecordBatch:
    """Return a batch with columns of one value each behind its own; one that the rows have themselves stays."""
    own = {name_of_field(field) for field in batch.schema}
    for name, tag, value in columns:
        if name in own:
            continue
        # The text of a number keeps every digit.
        field = pa.field(name, pa.binary() if tag == "B" else pa.string(), metadata={DDB_TYPE: tag.encode()})
        given = value.encode() if tag == "B" and value is not None else value
        scalar: Any = pa.scalar(given, field.type)
        batch = batch.append_column(field, pa.repeat(scalar, batch.num_rows))
    return batch
