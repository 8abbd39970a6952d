"""SQL quoting of names and texts for each engine."""

from __future__ import annotations

import re


def location_uri(location: str) -> str:
    """Return a local path as a URI for Hive and Spark, regardless of their default file system."""
    return location if "://" in location else f"file://{location}"


def back_quoted(name: str) -> str:
    """Return a name, quoted for Hive, Athena's DDL and Spark."""
    return f"`{name.replace('`', '``')}`"


def double_quoted(name: str) -> str:
    """Return a name, quoted for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def hive_text(text: str) -> str:
    """Return a text, quoted for Hive, Athena's DDL and Spark."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sql_text(text: str) -> str:
    """Return a text, quoted for standard SQL and DuckDB; Spark reads two quotes as the ends of two literals."""
    return "'" + text.replace("'", "''") + "'"


def files_below(folder: str, pattern: str) -> str:
    """Return DuckDB's pattern of the files below a folder; pattern characters in the folder's name are escaped."""
    return sql_text(re.sub(r"[*?[]", r"[\g<0>]", folder) + f"/{pattern}")


def dotted(name: str) -> str:
    """Return a name of several parts, each quoted for Spark."""
    return ".".join(map(back_quoted, name.split(".")))
