"""Put a native export where it belongs, to the letter of the service's layout; refuses to choose what is in it."""

from __future__ import annotations

import base64
import gzip
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddbio.testing.values import to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ddbio.testing.tables.delivery import Delivery

_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_NAME_LENGTH = 26


def put_export(
    delivery: Delivery, description: dict[str, Any], lines: Sequence[Sequence[bytes]], chosen: Random
) -> dict[str, Any]:
    """Write an export, a data file for each sequence of lines; return the members that describe it once it is there.

    Parameters
    ----------
    description
        Of the export, in the words of DescribeExport, with its ``BilledSizeBytes``.
    """
    bucket, export_id = description["S3Bucket"], description["ExportArn"].rpartition("/")[2]
    root = f"{description.get('S3Prefix', '').rstrip('/')}/AWSDynamoDB".lstrip("/")
    folder = f"{root}/{export_id}"
    # All incremental exports below a prefix share one folder of data.
    data = f"{root if 'IncrementalExportSpecification' in description else folder}/data"
    ending = "ion.gz" if description["ExportFormat"] == "ION" else "json.gz"
    delivery.put(bucket, f"{folder}/_started", b"")
    files = []
    for each in lines:
        body = gzip.compress(b"".join(each))
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        key = f"{data}/{''.join(chosen.choices(_NAME_LETTERS, k=_NAME_LENGTH))}.{ending}"
        delivery.put(bucket, key, body)
        files.append(
            {
                "itemCount": len(each),
                "md5Checksum": base64.b64encode(digest).decode(),
                "etag": hashlib.md5(digest, usedforsecurity=False).hexdigest() + "-1",
                "dataFileS3Key": key,
            }
        )
    count = sum(map(len, lines))
    summary = {**_summary(description), "itemCount": count, "manifestFilesS3Key": f"{folder}/manifest-files.json"}
    _put_summed(delivery, bucket, f"{folder}/manifest-files", b"".join(to_wire(file) + b"\n" for file in files))
    # Written last: that it is there means that the export has completed.
    _put_summed(delivery, bucket, f"{folder}/manifest-summary", to_wire(summary))
    return {"ExportManifest": f"{folder}/manifest-summary.json", "ItemCount": count}


def _put_summed(delivery: Delivery, bucket: str, key: str, body: bytes) -> None:
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    delivery.put(bucket, f"{key}.md5", base64.b64encode(digest))
    delivery.put(bucket, f"{key}.json", body)


def _summary(description: dict[str, Any]) -> dict[str, Any]:
    summary = {
        "version": "2020-06-30",
        "exportArn": description["ExportArn"],
        "startTime": _iso(description["StartTime"]),
        "endTime": _iso(description["StartTime"]),
        "tableArn": description["TableArn"],
        "tableId": description["TableId"],
        "exportTime": _iso(description["ExportTime"]),
        "s3Bucket": description["S3Bucket"],
        "s3Prefix": description.get("S3Prefix"),
        "s3SseAlgorithm": description["S3SseAlgorithm"],
        "s3SseKmsKeyId": description.get("S3SseKmsKeyId"),
        "billedSizeBytes": description["BilledSizeBytes"],
        "outputFormat": description["ExportFormat"],
        "exportType": "FULL_EXPORT",
    }
    window = description.get("IncrementalExportSpecification")
    if window is not None:
        summary |= {
            "version": "2023-08-01",
            "exportType": "INCREMENTAL_EXPORT",
            "exportFromTime": _iso(window["ExportFromTime"]),
            "exportToTime": _iso(window["ExportToTime"]),
            "outputView": window["ExportViewType"],
        }
    return summary


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
