"""Read, check and write the manifests of a native export.

A manifest is untrusted input. The bucket and the prefix that it names are ignored: a file is identified only by the
last
component of its key, which must be a plain file name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ddbio.errors import ExportIncompleteError
from ddbio.items.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


SUMMARY = "manifest-summary"
FILES = "manifest-files"
STARTED = "_started"

CHECKSUM_ENDINGS = (".md5", ".checksum")
"""Exports use the first ending; some of AWS's documentation names the second."""

MAX_MANIFEST_BYTES = 64 * 1024 * 1024

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_MAX_KEY_BYTES = 1024
_MAX_NAME_BYTES = 255
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_MD5_BYTES = 16

Kind = Literal["full", "incremental"]
Encoding = Literal["json", "ion"]

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
_KINDS: dict[str, Kind] = {"FULL_EXPORT": "full", "INCREMENTAL_EXPORT": "incremental"}
_ENCODINGS: dict[str, Encoding] = {"DYNAMODB_JSON": "json", "ION": "ion"}
_Value = TypeVar("_Value")
_FILTER_MEMBERS = ("filterSpecification", "FilterSpecification")
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
_FULL_VERSION = "2020-06-30"


@dataclass(frozen=True, slots=True)
class ExportFile:
    """Entry of one data file: its name, its number of items, and the MD5 of the stored bytes."""

    name: str
    items: int
    md5: bytes


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Contents of a manifest summary.

    Attributes
    ----------
    from_time, to_time, view
        Window and view of an incremental export, else None.
    filtered
        Whether the export omits items or attributes, according to the summary.
    """

    kind: Kind
    encoding: Encoding
    items: int
    table_arn: str | None
    table_id: str | None
    export_arn: str | None
    export_time: str | None
    from_time: str | None
    to_time: str | None
    view: str | None
    filtered: bool


def check_md5(name: str, md5: bytes, expected: bytes) -> None:
    """Check an MD5 against the expected one.

    Raises
    ------
    ExportIncompleteError
        If they differ; the message has ``name``.
    """
    if md5 != expected:
        actual, manifest_md5 = (base64.b64encode(digest).decode() for digest in (md5, expected))
        raise ExportIncompleteError(f"{name}: MD5 is {actual}, the export lists {manifest_md5}: copy the export again")


def check_manifest(name: str, data: bytes, checksum: bytes) -> None:
    """Check the size of a manifest, and its MD5 against the checksum file.

    Raises
    ------
    ExportIncompleteError
        If it is too large or the MD5 differs; the message has ``name``.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise ExportIncompleteError(f"{name} is larger than {MAX_MANIFEST_BYTES} bytes: it is not an export's manifest")
    expected = _md5_of(checksum.decode("ascii", "replace").strip(), f"the checksum file of {name}")
    check_md5(name, hashlib.md5(data, usedforsecurity=False).digest(), expected)


def parse_summary(data: bytes, path: str) -> ExportSummary:
    """Return the contents of a ``manifest-summary.json``.

    Raises
    ------
    ExportIncompleteError
        If it is not the summary of an export.
    """
    members = _object(data, path)
    return ExportSummary(
        # Manifests from before incremental exports have no type.
        kind=_one_of(_KINDS, members, "exportType", "FULL_EXPORT", path),
        encoding=_one_of(_ENCODINGS, members, "outputFormat", None, path),
        items=_count(members, path),
        table_arn=_text(members, "tableArn", path),
        table_id=_text(members, "tableId", path),
        export_arn=_text(members, "exportArn", path),
        export_time=_text(members, "exportTime", path),
        from_time=_text(members, "exportFromTime", path),
        to_time=_text(members, "exportToTime", path),
        view=_text(members, "outputView", path),
        filtered=any(members.get(member) for member in _FILTER_MEMBERS),
    )


def parse_files(data: bytes, path: str, summary: ExportSummary) -> tuple[ExportFile, ...]:
    """Return the files in a ``manifest-files.json``, without empty files.

    Raises
    ------
    ExportIncompleteError
        If a line is not a valid entry, a name is not plain or is listed twice, or the sum of the items differs from the
        summary.
    """
    files: dict[str, ExportFile] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        members = _object(line, where)
        name = _name_of(members.get("dataFileS3Key"), where)
        if name in files:
            raise ExportIncompleteError(f"{where}: file {name} is listed twice")
        files[name] = ExportFile(name, _count(members, where), _md5_of(members.get("md5Checksum"), where))
    total = sum(file.items for file in files.values())
    if total != summary.items:
        raise ExportIncompleteError(f"{path}: its files hold {total} items, but the summary has {summary.items}")
    return tuple(file for file in files.values() if file.items)


def _object(data: bytes, location: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ExportIncompleteError(f"{location} is not JSON: copy the export again") from None
    if not isinstance(value, dict):
        raise ExportIncompleteError(f"{location}: expected an object, got {type(value).__name__}")
    return value


def _one_of(values: dict[str, _Value], members: dict[str, Any], name: str, default: str | None, path: str) -> _Value:
    value = members.get(name)
    value = default if value is None else value
    if not isinstance(value, str) or value not in values:
        raise ExportIncompleteError(f"{path}: {name} is {_short(value)}, not one of {', '.join(values)}")
    return values[value]


def _name_of(key: object, where: str) -> str:
    if not isinstance(key, str) or not key or len(key.encode("utf-8", "replace")) > _MAX_KEY_BYTES:
        raise ExportIncompleteError(f"{where}: dataFileS3Key is not a key of at most {_MAX_KEY_BYTES} bytes")
    *folders, name = key.split("/")
    plain = _PLAIN_NAME.fullmatch(name) and len(name) <= _MAX_NAME_BYTES
    if not plain or folders[-1:] not in ([], ["data"]) or {".", ".."} & {*folders} or not key.isprintable():
        raise ExportIncompleteError(f"{where}: {_short(key)} does not end in data/ and a plain file name")
    return name


def _count(members: dict[str, Any], location: str) -> int:
    count = members.get("itemCount")
    if type(count) is not int or count < 0:
        raise ExportIncompleteError(f"{location}: itemCount is {_short(count)}, not a count")
    return count


def _md5_of(text: object, where: str) -> bytes:
    try:
        md5 = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError):
        md5 = b""
    if len(md5) != _MD5_BYTES:
        raise ExportIncompleteError(f"{where}: {_short(text)} is not the base64 of an MD5")
    return md5


def _text(members: dict[str, Any], name: str, path: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise ExportIncompleteError(f"{path}: {name} is {_short(value)}, not a text")
    return value


def _short(value: object) -> str:
    return repr(value)[:100]


def files_text(files: Iterable[ExportFile], prefix: str) -> bytes:
    """Return a ``manifest-files.json`` for an export whose folder has this prefix in its bucket."""
    entries = [
        {
            "itemCount": file.items,
            "md5Checksum": base64.b64encode(file.md5).decode(),
            # Only the store computes it, after the file is written.
            "etag": None,
            "dataFileS3Key": f"{prefix}data/{file.name}",
        }
        for file in files
    ]
    return "".join(f"{compact_json(entry)}\n" for entry in entries).encode()


def summary_text(  # noqa: PLR0913 - the parts of a summary
    *, export_id: str, table_arn: str, table_id: str | None, times: tuple[datetime, datetime], bucket: str,
    prefix: str, items: int, filtered: dict[str, Any] | None,
) -> bytes:  # fmt: skip
    """Return a ``manifest-summary.json`` of a full export; ``times`` are its start and its end."""
    began, ended = (time.isoformat(timespec="milliseconds").replace("+00:00", "Z") for time in times)
    members: dict[str, Any] = {
        "version": _FULL_VERSION,
        "exportArn": f"{table_arn}/export/{export_id}",
        "startTime": began,
        "endTime": ended,
        "tableArn": table_arn,
        "tableId": table_id,
        # A later write may be in the export or not: applying the changes from this time on gives every item the same
        # state.
        "exportTime": began,
        "s3Bucket": bucket,
        "s3Prefix": prefix.rstrip("/"),
        "s3SseAlgorithm": None,
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": f"{prefix}{FILES}.json",
        "billedSizeBytes": 0,
        "itemCount": items,
        "outputFormat": "DYNAMODB_JSON",
        "exportType": "FULL_EXPORT",
    }
    if filtered:
        members["filterSpecification"] = filtered
    return compact_json(members).encode() + b"\n"


def checksum_text(manifest: bytes) -> bytes:
    """Return the contents of the checksum file of a manifest."""
    return base64.b64encode(hashlib.md5(manifest, usedforsecurity=False).digest())
