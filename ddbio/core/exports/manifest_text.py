"""Spell the manifests of an export as the service does; check nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from ddbio.core.exports.manifest import FILES
from ddbio.core.text.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ddbio.core.exports.manifest import ExportFile

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
_FULL_VERSION = "2020-06-30"


def files_text(files: Iterable[ExportFile], prefix: str) -> bytes:
    """Return ``manifest-files.json`` for an export whose folder has this prefix in its bucket."""
    entries = [
        {
            "itemCount": file.items,
            "md5Checksum": base64.b64encode(file.md5).decode(),
            # Only the store knows it, and not before the file is there.
            "etag": None,
            "dataFileS3Key": f"{prefix}data/{file.name}",
        }
        for file in files
    ]
    return "".join(f"{compact_json(entry)}\n" for entry in entries).encode()


def summary_text(  # noqa: PLR0913 - what a summary has
    *, export_id: str, table_arn: str, table_id: str | None, times: tuple[datetime, datetime], bucket: str,
    prefix: str, items: int, filtered: dict[str, Any] | None,
) -> bytes:  # fmt: skip
    """Return ``manifest-summary.json`` of a full export that began and ended at ``times``."""
    began, ended = (time.isoformat(timespec="milliseconds").replace("+00:00", "Z") for time in times)
    stated: dict[str, Any] = {
        "version": _FULL_VERSION,
        "exportArn": f"{table_arn}/export/{export_id}",
        "startTime": began,
        "endTime": ended,
        "tableArn": table_arn,
        "tableId": table_id,
        # Whatever was written later may be in or not: changes from here on bring all of it to one state.
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
        stated["filterSpecification"] = filtered
    return compact_json(stated).encode() + b"\n"


def checksum_text(manifest: bytes) -> bytes:
    """Return what stands in the file beside a manifest."""
    return base64.b64encode(hashlib.md5(manifest, usedforsecurity=False).digest())
