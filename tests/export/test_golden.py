"""Exports written byte for byte as documented: every format of a line, both kinds and encodings."""

import base64
import gzip
import hashlib
import json
from decimal import Decimal

import pytest

import ddbio

# Sockets that PySpark left to the garbage collector in an earlier test may be collected here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ITEM = (
    b'{"Item":{"pk":{"S":"user#7"},"sk":{"S":"order#19"},"total":{"N":"12.5"},"tags":{"SS":["new","vip"]},'
    b'"img":{"B":"aGVsbG8="},"lines":{"L":[{"M":{"sku":{"S":"A1"},"qty":{"N":"2"}}}]},"paid":{"BOOL":true},'
    b'"note":{"NULL":true},"ttl":{"N":"1795305600"}}}\n'
)
ION_ITEM = (
    b'$ion_1_0 {Item:{pk:"user#7",sk:"order#19",total:12.50,tags:$dynamodb_SS::["new","vip"],img:{{aGVsbG8=}},'
    b'lines:[{sku:"A1",qty:2.}],paid:true,note:null,ttl:17953056d2}}\n'
)
ROW = {
    "pk": "user#7", "sk": "order#19", "total": Decimal("12.5"), "tags": ["new", "vip"], "img": b"hello",
    "lines": [{"sku": "A1", "qty": 2}], "paid": True, "note": None, "ttl": 1795305600, "_rescue": None,
}  # fmt: skip
CHANGES = (
    b'{"Metadata":{"WriteTimestampMicros":{"N":"1793491200123456"}},"Keys":{"pk":{"S":"a"}},'
    b'"NewImage":{"pk":{"S":"a"},"n":{"N":"7"}}}\n'
    b'{"Metadata":{"WriteTimestampMicros":"1793491203000001"},"Keys":{"pk":{"S":"b"}},'
    b'"OldImage":{"pk":{"S":"b"},"n":{"N":"12"}},"NewImage":{"pk":{"S":"b"},"n":{"N":"13"}}}\n'
    b'{"Metadata":{"WriteTimestampMicros":1793491207000009},"Keys":{"pk":{"S":"c"}},'
    b'"OldImage":{"pk":{"S":"c"},"n":{"N":"3"}}}\n'
    b'{"Metadata":{"WriteTimestampMicros":{"N":"1793491208000000"}},"Keys":{"pk":{"S":"d"}}}\n'
)
ION_CHANGES = (
    b'$ion_1_0 {Metadata:{WriteTimestampMicros:1793491200123456.},Keys:{pk:"a"},NewImage:{pk:"a",n:7.}}\n'
    b'$ion_1_0 {Metadata:{WriteTimestampMicros:1793491203000001.},Keys:{pk:"b"},OldImage:{pk:"b",n:12.},'
    b'NewImage:{pk:"b",n:13.}}\n'
    b'$ion_1_0 {Metadata:{WriteTimestampMicros:1793491207000009.},Keys:{pk:"c"},OldImage:{pk:"c",n:3.}}\n'
    b'$ion_1_0 {Metadata:{WriteTimestampMicros:1793491208d6},Keys:{pk:"d"}}\n'
)
# As documented by the service.
ION_RECORDS = ION_CHANGES.replace(b"$ion_1_0 {", b"$ion_1_0 {Record:{").replace(b"}\n", b"}}\n")
CHANGE_ROWS = [
    (1793491200123456, "put", {"pk": "a"}, {"pk": "a", "n": 7}, None),
    (1793491203000001, "put", {"pk": "b"}, {"pk": "b", "n": 13}, {"pk": "b", "n": 12}),
    (1793491207000009, "delete", {"pk": "c"}, None, {"pk": "c", "n": 3}),
    (1793491208000000, "delete", {"pk": "d"}, None, None),
]
FULL = {
    "version": "2020-06-30", "exportTime": "2026-10-31T23:59:00.000Z", "exportType": "FULL_EXPORT",
    "tableArn": "arn:aws:dynamodb:eu-west-1:111122223333:table/orders", "tableId": "5f0c2f4e",
    "s3Bucket": "bkt", "s3Prefix": "pfx", "s3SseAlgorithm": "AES256", "s3SseKmsKeyId": None, "billedSizeBytes": 7340032,
    "exportArn": "arn:aws:dynamodb:eu-west-1:111122223333:table/orders/export/01761955200000-a1b2c3d4",
    "startTime": "2026-11-01T00:00:00.000Z", "endTime": "2026-11-01T00:07:12.345Z",
    "manifestFilesS3Key": "pfx/AWSDynamoDB/01761955200000-a1b2c3d4/manifest-files.json",
}  # fmt: skip
INCREMENTAL = {
    **FULL, "version": "2023-08-01", "exportType": "INCREMENTAL_EXPORT", "outputView": "NEW_AND_OLD_IMAGES",
    "exportFromTime": "2026-11-01T00:00:00.000Z", "exportToTime": "2026-11-01T01:00:00.000Z",
}  # fmt: skip


def md5(data):
    """Return the base64 of the MD5 of bytes."""
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def write(folder, summary, encoding, lines, ending="md5"):
    """Write an export of one file with these lines and an empty one; return its folder."""
    home = folder / "AWSDynamoDB" / "01761955200000-a1b2c3d4"
    data = (home if summary["exportType"] == "FULL_EXPORT" else home.parent) / "data"
    home.mkdir(parents=True)
    data.mkdir()
    (home / "_started").touch()
    entries, suffix = [], "json.gz" if encoding == "DYNAMODB_JSON" else "ion.gz"
    for name, text in (("k3p7m5q2v6x4z7a2b5c3d6e4fy", lines), ("w7xq0n3p6a5k2mdl4s1fz8yveu", b"")):
        (data / f"{name}.{suffix}").write_bytes(stored := gzip.compress(text))
        entries.append({
            "itemCount": text.count(b"\n"), "md5Checksum": md5(stored), "etag": "fa8dfb95a8992e21740443578065bfd1-1",
            "dataFileS3Key": f"pfx/AWSDynamoDB/01761955200000-a1b2c3d4/data/{name}.{suffix}",
        })  # fmt: skip
    manifests = {
        "manifest-files": "".join(json.dumps(entry) + "\n" for entry in entries),
        "manifest-summary": json.dumps({**summary, "itemCount": lines.count(b"\n"), "outputFormat": encoding}),
    }
    for name, text in manifests.items():
        (home / f"{name}.json").write_text(text)
        (home / f"{name}.{ending}").write_text(md5(text.encode()))
    return home


@pytest.mark.parametrize(("encoding", "line"), [("DYNAMODB_JSON", ITEM), ("ION", ION_ITEM)])
@pytest.mark.parametrize("ending", ["md5", "checksum"])
def test_full_export(tmp_path, encoding, line, ending):
    """All types of the documented line are read exactly, in both encodings."""
    table = ddbio.read_export(write(tmp_path, FULL, encoding, line, ending))
    assert table.to_pylist() == [ROW]


@pytest.mark.parametrize(
    ("encoding", "lines"), [("DYNAMODB_JSON", CHANGES), ("ION", ION_CHANGES), ("ION", ION_RECORDS)]
)
def test_incremental_export(tmp_path, encoding, lines):
    """Insert, update and both deletes are rows; the write time may be a number, a text, or either in N."""
    rows = ddbio.read_export(write(tmp_path, INCREMENTAL, encoding, lines)).to_pylist()
    assert [tuple(row.values())[:5] for row in rows] == CHANGE_ROWS
    assert all(row["_rescue"] is None for row in rows)


@pytest.mark.parametrize("missing", ["exportType", "tableId", "billedSizeBytes", "s3SseKmsKeyId", "exportArn"])
def test_members_that_old_exports_lack(tmp_path, missing):
    """Optional members of a summary may be missing; without a type the export is a full one."""
    home = write(tmp_path, FULL, "DYNAMODB_JSON", ITEM)
    stated = json.loads((home / "manifest-summary.json").read_bytes())
    del stated[missing]
    text = json.dumps(stated)
    (home / "manifest-summary.json").write_text(text)
    (home / "manifest-summary.md5").write_text(md5(text.encode()))
    assert ddbio.read_export(home).num_rows == 1
