"""Small native exports for tests, in the format of the service.

They contain the details that surprise readers: data files in random order, some of them empty, sets in random order,
canonical numbers, and keys in the manifest that are relative to the root of the bucket.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from ddbio.items.ion_values import ion_line
from ddbio.items.number import canonical_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddbio.items.attribute import AttributeValue, Item

View = Literal["NEW_IMAGE", "NEW_AND_OLD_IMAGES"]

BUCKET, PREFIX = "original-bucket", "original/prefix"
ACCOUNT, REGION = "111122223333", "eu-west-1"
_FIRST_AT = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """Change of one item in a window. ``new`` is None for a delete, ``old`` for an insert."""

    micros: int
    keys: Item
    new: Item | None = None
    old: Item | None = None


@dataclass
class ExportWriter:
    """Writer of the exports of one table to a folder, with the layout that S3 has under a prefix.

    Attributes
    ----------
    folder
        Replaces the bucket and the prefix. Each export creates ``AWSDynamoDB/<id>`` in it.
    files
        Maximum number of data files with items.
    empty_files
        Number of data files without items, like those of empty partitions.
    encoding
        ``DYNAMODB_JSON`` or ``ION``.
    seed
        The same seed makes the same export.
    """

    folder: Path
    table: str = "orders"
    files: int = 2
    empty_files: int = 1
    encoding: Literal["DYNAMODB_JSON", "ION"] = "DYNAMODB_JSON"
    seed: int = 0
    _written: int = field(default=0, init=False)

    def full(self, items: Iterable[Item]) -> Path:
        """Write a full export of the items and return its folder."""
        lines = [self._encoded({"Item": _stored(item, self._rng())}) for item in items]
        folder, export_id = self._begin()
        entries = self._write_data(lines, folder / "data", f"{PREFIX}/AWSDynamoDB/{export_id}/data")
        self._write_manifests(folder, export_id, entries, {"version": "2020-06-30", "exportType": "FULL_EXPORT"})
        return folder

    def incremental(self, changes: Iterable[Change], *, view: View = "NEW_AND_OLD_IMAGES", hours: int = 1) -> Path:
        """Write an incremental export of the changes and return its folder. All exports share one ``data`` folder."""
        lines = [self._encoded(self._record(change, view)) for change in changes]
        folder, export_id = self._begin()
        entries = self._write_data(lines, folder.parent / "data", f"{PREFIX}/AWSDynamoDB/data")
        ended = _FIRST_AT + timedelta(hours=self._written)
        window = {
            "version": "2023-08-01",
            "exportType": "INCREMENTAL_EXPORT",
            "exportFromTime": _time(ended - timedelta(hours=hours)),
            "exportToTime": _time(ended),
            "outputView": view,
        }
        self._write_manifests(folder, export_id, entries, window)
        return folder

    def _encoded(self, document: dict[str, Any]) -> bytes:
        return _line(document) if self.encoding == "DYNAMODB_JSON" else ion_line(document)

    def _rng(self) -> random.Random:
        return random.Random(f"{self.seed}/{self._written}")

    def _record(self, change: Change, view: View) -> dict[str, Any]:
        rng = self._rng()
        record: dict[str, Any] = {
            "Metadata": {"WriteTimestampMicros": {"N": str(change.micros)}},
            "Keys": _stored(change.keys, rng),
        }
        if change.old is not None and view == "NEW_AND_OLD_IMAGES":
            record["OldImage"] = _stored(change.old, rng)
        if change.new is not None:
            record["NewImage"] = _stored(change.new, rng)
        return record

    def _begin(self) -> tuple[Path, str]:
        self._written += 1
        millis = int((_FIRST_AT + timedelta(hours=self._written)).timestamp() * 1000)
        export_id = f"{millis:014d}-{self._rng().getrandbits(32):08x}"
        folder = self.folder / "AWSDynamoDB" / export_id
        folder.mkdir(parents=True)
        (folder / "_started").touch()
        return folder, export_id

    def _write_data(self, lines: Sequence[bytes], folder: Path, prefix: str) -> list[dict[str, Any]]:
        rng = self._rng()
        folder.mkdir(parents=True, exist_ok=True)
        shares: list[list[bytes]] = [[] for _ in range(self.files)]
        for line in lines:
            rng.choice(shares).append(line)
        shares += [[] for _ in range(self.empty_files)]
        rng.shuffle(shares)
        return [self._write_file(share, folder, prefix, rng) for share in shares]

    def _write_file(self, lines: Sequence[bytes], folder: Path, prefix: str, rng: random.Random) -> dict[str, Any]:
        ending = "ion.gz" if self.encoding == "ION" else "json.gz"
        name = f"{''.join(rng.choices('abcdefghijklmnopqrstuvwxyz234567', k=26))}.{ending}"
        data = gzip.compress(b"".join(lines), mtime=0)
        (folder / name).write_bytes(data)
        etag = hashlib.md5(hashlib.md5(data).digest()).hexdigest()  # noqa: S324 - required by the format
        return {
            "itemCount": len(lines),
            "md5Checksum": _md5(data),
            "etag": f"{etag}-1",
            "dataFileS3Key": f"{prefix}/{name}",
        }

    def _write_manifests(
        self, folder: Path, export_id: str, entries: list[dict[str, Any]], kind: dict[str, Any]
    ) -> None:
        files = b"".join(_line(entry) for entry in entries)
        ended = _FIRST_AT + timedelta(hours=self._written)
        arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{self.table}"
        summary = {
            "version": kind["version"],
            "exportArn": f"{arn}/export/{export_id}",
            "startTime": _time(ended),
            "endTime": _time(ended + timedelta(minutes=7)),
            "tableArn": arn,
            "tableId": "5f0c2f4e-0000-4000-8000-3c2d1e0f9a8b",
            "exportTime": _time(ended),
            "s3Bucket": BUCKET,
            "s3Prefix": PREFIX,
            "s3SseAlgorithm": "AES256",
            "s3SseKmsKeyId": None,
            "manifestFilesS3Key": f"{PREFIX}/AWSDynamoDB/{export_id}/manifest-files.json",
            "billedSizeBytes": 0,
            "itemCount": sum(entry["itemCount"] for entry in entries),
            "outputFormat": self.encoding,
            **kind,
        }
        put_manifest(folder, "manifest-files", files)
        # Written last: its existence means that the export has completed.
        put_manifest(folder, "manifest-summary", _line(summary))


def put_manifest(folder: Path, name: str, data: bytes) -> None:
    """Write a manifest and, next to it, its checksum."""
    (folder / f"{name}.md5").write_text(_md5(data), encoding="ascii")
    (folder / f"{name}.json").write_bytes(data)


def _stored(item: Item, rng: random.Random) -> Item:
    """Return an item as the service returns it: with canonical numbers, and sets in random order."""
    return {name: _stored_value(value, rng) for name, value in item.items()}


def _stored_value(value: AttributeValue, rng: random.Random) -> AttributeValue:
    ((tag, content),) = value.items()
    match tag:
        case "N":
            return {tag: canonical_number(content)}
        case "SS" | "NS" | "BS":
            texts = [canonical_number(text) for text in content] if tag == "NS" else list(content)
            rng.shuffle(texts)
            return {tag: texts}
        case "L":
            return {tag: [_stored_value(element, rng) for element in content]}
        case "M":
            return {tag: _stored(content, rng)}
    return value


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()  # noqa: S324 - required by the format


def _time(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
