"""Locations on S3 and on this machine. Every option that names a file or a folder is parsed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote

from ddbio.errors import OptionError

Scheme: TypeAlias = Literal["s3", "file"]

S3 = "s3://"
# One letter is not a scheme. A colon in a file name is not a scheme either, unless a slash follows it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/*)")
_S3 = frozenset({"s3", "s3a", "s3n"})
# Schemes that are refused even without a slash after them.
_OTHERS = frozenset(
    {
        *("abfs", "abfss", "adl", "arn", "azure", "dbfs", "ftp", "gcs", "gs", "hdfs", "http", "https", "oss", "sftp"),
        *("viewfs", "volumes", "wasb", "wasbs", "webhdfs"),
    }
)
_COUNTS = {0: "no slash", 1: "one slash"}
_SUPPORTED = "s3://bucket/prefix, a local path, or file:///path"


def parse_location(location: str) -> tuple[Scheme, str]:
    """Return the scheme of a location, and its ``s3://bucket/prefix`` or local path.

    ``s3a://`` and ``s3n://`` mean ``s3://``. The scheme is case-insensitive.

    Raises
    ------
    OptionError
        If the location has another scheme, or is not a complete URI. The message names the supported schemes.
    """
    match = _SCHEME.match(location)
    if match is None:
        return "file", location
    scheme, slashes, path = match[1].lower(), match[2], location[match.end() :]
    if scheme in _S3:
        if len(slashes) != len("//"):
            raise OptionError(
                f"{location!r} has {_COUNTS.get(len(slashes), 'three slashes')} after its scheme: write "
                f"s3://bucket/prefix, or ./{location} for a local path"
            )
        return "s3", S3 + path
    if scheme == "file":
        host = path.partition("/")[0] if len(slashes) == len("//") else ""
        if not slashes or host not in {"", "localhost"}:
            raise OptionError(f"{location!r} is not a file of this machine: write file:///path, or the path alone")
        return "file", unquote("/" + path.removeprefix(host).lstrip("/"))
    if slashes or scheme in _OTHERS:
        raise OptionError(_refusal(location, scheme, path))
    return "file", location


def local_path(location: str) -> Path:
    """Return the path of a file that must be local, such as a page, a schema or a price book.

    Raises
    ------
    OptionError
        If the location is on S3, or has another scheme.
    """
    scheme, path = parse_location(location)
    if scheme == "s3":
        raise OptionError(f"{location!r} is on S3, and this option takes a file of this machine: give a local path")
    return Path(path)


def _refusal(location: str, scheme: str, path: str) -> str:
    # The query of a presigned URL is a secret, and so is the text before an @.
    shown = re.sub(r"//[^/@]*@", "//", location.partition("?")[0])
    message = f"{shown!r} has the scheme {scheme!r}, which ddbio does not support: give {_SUPPORTED}"
    if scheme == "dbfs":
        local = f"/{path}" if path.startswith("Volumes/") else f"/dbfs/{path}"
        return f"{message}; on Databricks write {local!r}, or the path of a Volume, /Volumes/catalog/schema/volume"
    return f"{message}; a local path of that name is './{shown}'"
