"""Tell where a location lies: on S3, or on this machine. Every option that names a file or a folder is read here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote

from ddbio.errors import OptionError

Scheme: TypeAlias = Literal["s3", "file"]

S3 = "s3://"
# One letter is no scheme, and neither is a colon in the name of a file, unless a slash follows it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/*)")
_S3 = frozenset({"s3", "s3a", "s3n"})
# Schemes that are refused without a slash behind them, too.
_OTHERS = frozenset(
    {
        *("abfs", "abfss", "adl", "arn", "azure", "dbfs", "ftp", "gcs", "gs", "hdfs", "http", "https", "oss", "sftp"),
        *("viewfs", "volumes", "wasb", "wasbs", "webhdfs"),
    }
)
_COUNTS = {0: "no slash", 1: "one slash"}
_SUPPORTED = "s3://bucket/prefix, a local path, or file:///path"


def parse_location(location: str) -> tuple[Scheme, str]:
    """Return the scheme of a location, and the location: ``s3://bucket/prefix``, or a path of this machine.

    ``s3a://`` and ``s3n://`` are the same as ``s3://``. Upper and lower case are the same in a scheme.

    Raises
    ------
    OptionError
        If the location has another scheme, or is not a complete URI. The message names what is supported.
    """
    found = _SCHEME.match(location)
    if found is None:
        return "file", location
    scheme, slashes, rest = found[1].lower(), found[2], location[found.end() :]
    if scheme in _S3:
        if len(slashes) != len("//"):
            raise OptionError(
                f"{location!r} has {_COUNTS.get(len(slashes), 'three slashes')} behind its scheme: write "
                f"s3://bucket/prefix, or ./{location} for a local path"
            )
        return "s3", S3 + rest
    if scheme == "file":
        host = rest.partition("/")[0] if len(slashes) == len("//") else ""
        if not slashes or host not in {"", "localhost"}:
            raise OptionError(f"{location!r} names no file of this machine: write file:///path, or the path alone")
        return "file", unquote("/" + rest.removeprefix(host).lstrip("/"))
    if slashes or scheme in _OTHERS:
        raise OptionError(_refusal(location, scheme, rest))
    return "file", location


def local_path(location: str) -> Path:
    """Return the path of a file that only this machine can have, such as a page, a schema or a book of prices.

    Raises
    ------
    OptionError
        If the location is on S3, or has another scheme.
    """
    scheme, path = parse_location(location)
    if scheme == "s3":
        raise OptionError(f"{location!r} is on S3, and this option takes a file of this machine: give a local path")
    return Path(path)


def _refusal(location: str, scheme: str, rest: str) -> str:
    # The query of a presigned URL is a secret, and so is what stands before an @.
    shown = re.sub(r"//[^/@]*@", "//", location.partition("?")[0])
    message = f"{shown!r} has the scheme {scheme!r}, which ddbio does not support: give {_SUPPORTED}"
    if scheme == "dbfs":
        path = f"/{rest}" if rest.startswith("Volumes/") else f"/dbfs/{rest}"
        return f"{message}; on Databricks write {path!r}, or the path of a Volume, /Volumes/catalog/schema/volume"
    return f"{message}; a local path of that name is './{shown}'"
