"""Manifests of exports: used and refused members."""

import base64
import hashlib
import json

import pytest

from ddbio.errors import ExportIncompleteError
from ddbio.formats.export_manifest import MAX_MANIFEST_BYTES, ExportSummary, check_manifest, parse_files, parse_summary

MD5 = base64.b64encode(hashlib.md5(b"x").digest()).decode()


def summary(**members) -> ExportSummary:
    """Return the summary of a full export of DynamoDB JSON with replaced members; None removes a member."""
    stated = {"itemCount": 1, "outputFormat": "DYNAMODB_JSON", "exportType": "FULL_EXPORT", **members}
    return parse_summary(json.dumps({name: value for name, value in stated.items() if value is not None}).encode(), "s")


def entry(key="p/data/a.json.gz", count=1, md5=MD5) -> bytes:
    """Return a line of manifest-files.json."""
    return json.dumps({"itemCount": count, "md5Checksum": md5, "dataFileS3Key": key}).encode() + b"\n"


def test_old_full_manifest_lacks_its_type():
    """A summary without exportType is that of a full export."""
    assert summary(exportType=None).kind == "full"
    assert parse_summary(b'{"itemCount":1,"outputFormat":"ION","exportType":null}', "s").kind == "full"


def test_incremental_summary_has_its_window():
    """Kind, window and view of an incremental export are parsed."""
    read = summary(exportType="INCREMENTAL_EXPORT", exportFromTime="a", exportToTime="b", outputView="NEW_IMAGE")
    assert (read.kind, read.from_time, read.to_time, read.view) == ("incremental", "a", "b", "NEW_IMAGE")


def test_filtered_export_is_flagged():
    """A summary with a filter is flagged, and one without a filter is not."""
    assert summary(filterSpecification={"FilterExpression": "a = b"}).filtered
    assert not summary(filterSpecification=None).filtered


@pytest.mark.parametrize(
    "members",
    [
        {"itemCount": -1}, {"itemCount": True}, {"itemCount": "1"}, {"itemCount": None}, {"itemCount": 1.0},
        {"exportType": "OTHER"}, {"exportType": []}, {"outputFormat": "CSV"}, {"tableArn": 5},
    ],
)  # fmt: skip
def test_summary_that_is_none_is_refused(members):
    """A negative or non-integer count, an unknown kind or encoding, and a text of another type are refused."""
    with pytest.raises(ExportIncompleteError):
        summary(**members)


def test_wrong_member_is_named():
    """The error names the member of the manifest."""
    with pytest.raises(ExportIncompleteError, match="outputFormat is 'CSV', not one of DYNAMODB_JSON, ION"):
        summary(outputFormat="CSV")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'"x"', b"[" * 100_000])
def test_summary_that_is_no_object_is_refused(data):
    """Bytes that are not a JSON object are refused, including those that exhaust a parser's stack."""
    with pytest.raises(ExportIncompleteError, match="s "):
        parse_summary(data, "s ")


def test_files_are_known_by_their_last_component():
    """Bucket and prefix of a key are ignored; empty files are left out."""
    data = entry("far/away/AWSDynamoDB/1-a/data/k3p7.json.gz") + entry("data/b.json.gz", 0) + b"\n" + entry("c", 2)
    files = parse_files(data, "f", summary(itemCount=3))
    assert [(file.name, file.items) for file in files] == [("k3p7.json.gz", 1), ("c", 2)]


@pytest.mark.parametrize(
    "key",
    [
        "", None, 5, [], "data/", "data/..", "data/.", "data/../x", "../data/x", "a/../data/x", "data//x",
        "data/.hidden",
        "data/a\0b", "a\0/data/x", "data/a\nb", "data/a\\b", "data/" + "x" * 300, "p/" * 600 + "data/x", "data/%2e%2e",
        "data/a b", "other/x", "/x", "C:/x", "data/C:x", "data/~", "data/é", "data/\ud800", "s3://b/x",
        "data/x?versionId=1",
        "data/-\u202e", "data/*",
    ],
)  # fmt: skip
def test_hostile_names_are_refused(key):
    """A key whose last component is not a plain file name below data/ is refused."""
    with pytest.raises(ExportIncompleteError, match="f, line 1"):
        parse_files(entry(key), "f", summary())


@pytest.mark.parametrize(
    ("listed", "count", "message"),
    [
        *((entry(md5=md5), 1, "MD5") for md5 in ("", None, 5, "AAAA", MD5[:-1], MD5 + "!", "é" * 24)),
        (entry() + entry("else/data/a.json.gz"), 2, "twice"),
        (entry(), 0, "1 items, but the summary has 0"),
        (entry(), 2, "1 items, but the summary has 2"),
    ],
)
def test_what_contradicts_itself_is_refused(listed, count, message):
    """An MD5 is the base64 of sixteen bytes, no file is listed twice, and the sum of items is that of the summary."""
    with pytest.raises(ExportIncompleteError, match=message):
        parse_files(listed, "f", summary(itemCount=count))


def test_manifest_must_have_its_checksum():
    """The right MD5 passes with white space around it; a wrong or missing one is refused."""
    check_manifest("f", b"x", MD5.encode() + b"\n")
    for checksum in (base64.b64encode(b"0" * 16), b"", b"\xff", b"x" * 100):
        with pytest.raises(ExportIncompleteError, match="f"):
            check_manifest("f", b"x", checksum)


def test_huge_manifest_is_refused():
    """A manifest beyond the cap is refused before it is parsed."""
    with pytest.raises(ExportIncompleteError, match="larger"):
        check_manifest("f", bytes(MAX_MANIFEST_BYTES + 1), b"")
