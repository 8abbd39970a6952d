"""Quote names and texts in SQL, as each engine reads them."""

from __future__ import annotations

import re


def location_uri(location: str) -> str:
    """Return a local path as the URI that Hive and Spark take, whatever their default file system."""
    return location if "://" in location else f"file://{location}"


def back_quoted(name: str) -> str:
    """Return a name as Hive, Athena's DDL and Spark quote it."""
    return f"`{name.replace('`', '``')}`"


def double_quoted(name: str) -> str:
    """Return a name as DuckDB quotes it."""
    return '"' + name.replace('"', '""') + '"'


def hive_text(text: str) -> str:
    """Return a text as Hive, Athena's DDL and Spark quote it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sql_text(text: str) -> str:
    """Return a text as standard SQL quotes it, DuckDB too; Spark takes two quotes for the ends of two literals."""
    return "'" + text.replace("'", "''") + "'"


def files_below(folder: str, pattern: str) -> str:
    """Return the text by which DuckDB finds files below a folder, in whose own name no sign is a pattern."""
    return sql_text(re.sub(r"[*?[]", r"[\g<0>]", folder) + f"/{pattern}")


def dotted(name: str) -> str:
    """Return a name of several parts, each quoted as Spark does."""
    return ".".join(map(back_quoted, name.split(".")))
