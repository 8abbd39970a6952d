from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re

import boto3
import pytest
from botocore.exceptions import ClientError

from ddbio import read_export
from ddbio.testing import FakeDynamoDB, MotoServer

RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
ITEMS = [{"pk": {"S": str(at)}, "n": {"N": f"{at}.50"}, "set": {"SS": ["a", "b", "c"]}} for at in range(50)]

WINDOW = {"ExportType": "INCREMENTAL_EXPORT"}


@pytest.fixture
def exporting(connect, tmp_path):
    """Return a client of a fake that exports into a folder, with a loaded table, and the table's ARN."""
    with FakeDynamoDB(export_to=str(tmp_path)) as fake:
        fake.load("tab", ITEMS, "pk:S")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        yield client, client.describe_table(TableName="tab")["Table"]["TableArn"]


def test_an_export_has_the_format_of_the_service(exporting, tmp_path):
    """Manifests, checksums and data files agree, and contain every item once with canonical numbers."""
    client, arn = exporting
    started = client.export_table_to_point_in_time(TableArn=arn, S3Bucket="b", S3Prefix="a/b")["ExportDescription"]
    assert started["ExportStatus"] == "IN_PROGRESS"
    assert "ExportType" not in started
    described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
    assert described["ExportStatus"] == "COMPLETED"
    assert described["ItemCount"] == 50
    bucket = tmp_path / "b"
    folder = (bucket / described["ExportManifest"]).parent
    assert folder.parent == bucket / "a/b/AWSDynamoDB"
    assert {path.name for path in folder.iterdir()} == {
        "_started",
        "data",
        "manifest-files.json",
        "manifest-files.md5",
        "manifest-summary.json",
        "manifest-summary.md5",
    }
    for name in ("manifest-files", "manifest-summary"):
        digest = hashlib.md5((folder / f"{name}.json").read_bytes()).digest()
        assert base64.b64decode((folder / f"{name}.md5").read_bytes()) == digest
    summary = json.loads((folder / "manifest-summary.json").read_bytes())
    assert summary["itemCount"] == 50
    assert summary["exportArn"] == started["ExportArn"]
    exported = []
    for line in (bucket / summary["manifestFilesS3Key"]).read_bytes().splitlines():
        file = json.loads(line)
        body = (bucket / file["dataFileS3Key"]).read_bytes()
        assert base64.b64decode(file["md5Checksum"]) == hashlib.md5(body).digest()
        lines = gzip.decompress(body).splitlines()
        assert len(lines) == file["itemCount"]
        exported += [json.loads(line)["Item"] for line in lines]
    assert {item["pk"]["S"]: item["n"]["N"] for item in exported} == {str(at): f"{at}.5" for at in range(50)}
    assert all(sorted(item["set"]["SS"]) == ["a", "b", "c"] for item in exported)
    assert len({tuple(item["set"]["SS"]) for item in exported}) > 1


def test_a_token_identifies_one_export(exporting):
    """A token identifies one export. Another request with it is a conflict. The newest export is listed first."""
    client, arn = exporting

    def export(**members):
        reply = client.export_table_to_point_in_time(TableArn=arn, S3Bucket="b", **members)
        return reply["ExportDescription"]["ExportArn"]

    first = export(ClientToken="one")
    assert export(ClientToken="one") == first
    with pytest.raises(ClientError, match="ExportConflict"):
        export(ClientToken="one", S3Prefix="other")
    second = export(ClientToken="two")
    listed = client.list_exports(TableArn=arn, MaxResults=1)
    assert [summary["ExportArn"] for summary in listed["ExportSummaries"]] == [second]
    second_page = client.list_exports(TableArn=arn, NextToken=listed["NextToken"])
    assert [summary["ExportArn"] for summary in second_page["ExportSummaries"]] == [first]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"TableArn": "arn:aws:dynamodb:us-east-1:000000000000:table/absent"}, "TableNotFoundException"),
        ({"ExportFormat": "CSV"}, "ValidationException"),
        ({"ExportType": "INCREMENTAL_EXPORT"}, "ValidationException"),
        (
            WINDOW | {"IncrementalExportSpecification": {"ExportFromTime": 1, "ExportToTime": 2}},
            "InvalidExportTimeException",
        ),
        ({"ExportTime": 4e9}, "InvalidExportTimeException"),
        ({"ExportTime": 1}, "InvalidExportTimeException"),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_refused(exporting, members, code):
    """Missing tables, other formats and times outside the window have their errors."""
    client, arn = exporting
    with pytest.raises(ClientError) as caught:
        client.export_table_to_point_in_time(**{"TableArn": arn, "S3Bucket": "b", **members})
    assert caught.value.response["Error"]["Code"] == code


def test_recovery_must_be_on(exporting):
    """A table without point-in-time recovery cannot be exported."""
    client, arn = exporting
    off = {"PointInTimeRecoveryEnabled": False}
    client.update_continuous_backups(TableName="tab", PointInTimeRecoverySpecification=off)
    with pytest.raises(ClientError, match="PointInTimeRecoveryUnavailable"):
        client.export_table_to_point_in_time(TableArn=arn, S3Bucket="b")


def test_an_export_goes_to_an_endpoint(connect):
    """An S3 endpoint gets the objects. A missing bucket fails the export, not the call."""
    with MotoServer() as moto, FakeDynamoDB(export_to=moto.endpoint_url) as fake:
        s3 = boto3.client(
            "s3",
            endpoint_url=moto.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        s3.create_bucket(Bucket="there")
        fake.load("tab", ITEMS, "pk:S")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        arn = client.describe_table(TableName="tab")["Table"]["TableArn"]
        described = {}
        for bucket in ("there", "absent"):
            started = client.export_table_to_point_in_time(TableArn=arn, S3Bucket=bucket)["ExportDescription"]
            described[bucket] = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        assert described["absent"]["ExportStatus"] == "FAILED"
        assert described["absent"]["FailureCode"] == "S3NoSuchBucket"
        body = s3.get_object(Bucket="there", Key=described["there"]["ExportManifest"])["Body"].read()
        assert json.loads(body)["itemCount"] == 50
        s3.close()


def lines_of(bucket, description):
    """Return the lines of all data files of an export, in DynamoDB JSON."""
    summary = json.loads((bucket / description["ExportManifest"]).read_bytes())
    files = [json.loads(line) for line in (bucket / summary["manifestFilesS3Key"]).read_bytes().splitlines()]
    bodies = [gzip.decompress((bucket / file["dataFileS3Key"]).read_bytes()) for file in files]
    return [json.loads(line) for body in bodies for line in body.splitlines()]


def test_a_window_has_the_net_change_of_each_item(connect, tmp_path):
    """An incremental export has one line per inserted, updated or deleted item, but none for a temporary item."""
    with FakeDynamoDB(export_to=str(tmp_path)) as fake:
        fake.load("tab", [{"pk": {"S": name}, "n": {"N": "0"}} for name in ("kept", "changed", "gone")], "pk:S")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        described = client.describe_table(TableName="tab")["Table"]
        begin = math.ceil(described["CreationDateTime"].timestamp())
        fake.pass_time(10)
        for number in "12":
            client.put_item(TableName="tab", Item={"pk": {"S": "changed"}, "n": {"N": number}})
        for name in ("new", "brief"):
            client.put_item(TableName="tab", Item={"pk": {"S": name}})
        for name in ("gone", "brief"):
            client.delete_item(TableName="tab", Key={"pk": {"S": name}})
        fake.pass_time(1000)
        client.put_item(TableName="tab", Item={"pk": {"S": "later"}})
        started = client.export_table_to_point_in_time(
            TableArn=described["TableArn"],
            S3Bucket="b",
            ExportType="INCREMENTAL_EXPORT",
            IncrementalExportSpecification={"ExportFromTime": begin, "ExportToTime": begin + 900},
        )["ExportDescription"]
        described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
    lines = lines_of(tmp_path / "b", described)
    lines_by_key = {line["Keys"]["pk"]["S"]: sorted({*line} - {"Keys", "Metadata"}) for line in lines}
    assert lines_by_key == {"changed": ["NewImage", "OldImage"], "new": ["NewImage"], "gone": ["OldImage"]}
    assert len(lines) == described["ItemCount"] == 3
    (changed,) = [line for line in lines if line["Keys"]["pk"]["S"] == "changed"]
    assert (changed["OldImage"]["n"], changed["NewImage"]["n"]) == ({"N": "0"}, {"N": "2"})


VALUES = {":p": {"S": "a"}, ":s": {"N": "5"}, ":o": {"S": "odd"}}
SORTED = [
    {"pk": {"S": pk}, "sk": {"N": str(at)}, "parity": {"S": "odd" if at % 2 else "even"}, "m": {"M": {"x": {"N": "1"}}}}
    for pk in "ab"
    for at in range(10)
]
KEY_CONDITION = {"KeyConditionExpression": "pk = :p AND sk < :s"}


@pytest.fixture
def exporting_sorted(connect, tmp_path):
    """Return the fake, a client of it, and the ARN of a table with two item collections."""
    with FakeDynamoDB(export_to=str(tmp_path)) as fake:
        fake.load("tab", SORTED, "pk:S,sk:N")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        yield fake, client, client.describe_table(TableName="tab")["Table"]["TableArn"]


@pytest.mark.parametrize(
    ("specification", "names", "expected"),
    [
        (KEY_CONDITION, ":p :s", "a0 a1 a2 a3 a4"),
        (KEY_CONDITION | {"FilterExpression": "parity = :o"}, ":p :s :o", "a1 a3"),
        ({"FilterExpression": "pk <> :p AND sk > :s"}, ":p :s", "b6 b7 b8 b9"),
        ({"FilterExpression": "parity = :o AND sk < :s"}, ":o :s", "a1 a3 b1 b3"),
    ],
    ids=str,
)
@pytest.mark.parametrize("file_format", ["DYNAMODB_JSON", "ION"])
def test_a_filter_selects_items(exporting_sorted, tmp_path, specification, names, expected, file_format):
    """Key condition and filter select items as in Query and Scan. DescribeExport and the manifest show the filter."""
    _, client, arn = exporting_sorted
    specification = specification | {"ExpressionAttributeValues": {name: VALUES[name] for name in names.split()}}
    started = client.export_table_to_point_in_time(
        TableArn=arn, S3Bucket="b", FilterSpecification=specification, ExportFormat=file_format
    )["ExportDescription"]
    described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
    assert started["FilterSpecification"] == described["FilterSpecification"] == specification
    folder = (tmp_path / "b" / described["ExportManifest"]).parent
    assert json.loads((folder / "manifest-summary.json").read_bytes())["filterSpecification"] == specification
    assert described["ItemCount"] == len(expected.split())
    items = read_export(folder).to_pylist()
    assert {f"{item['pk']}{item['sk']}" for item in items} == set(expected.split())


def test_a_projection_selects_attributes(exporting_sorted, tmp_path):
    """A projection selects attributes and nested values. Items without any of them are exported empty."""
    _, client, arn = exporting_sorted
    for expression, expected in (("m.x, #s", {"m", "sk"}), ("absent", set())):
        names = {"ExpressionAttributeNames": {"#s": "sk"}} if "#s" in expression else {}
        started = client.export_table_to_point_in_time(
            TableArn=arn, S3Bucket="b", FilterSpecification={"ProjectionExpression": expression, **names}
        )["ExportDescription"]
        described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        lines = lines_of(tmp_path / "b", described)
        assert len(lines) == len(SORTED)
        assert all(line["Item"].keys() == expected for line in lines)


def test_a_window_filters_by_the_latest_image(exporting_sorted, tmp_path):
    """The filter tests the new image of a changed item, and the old image of a deleted one."""
    fake, client, arn = exporting_sorted
    begin = math.ceil(client.describe_table(TableName="tab")["Table"]["CreationDateTime"].timestamp())
    fake.pass_time(10)
    for at, parity in (("2", "odd"), ("3", "even")):
        client.put_item(TableName="tab", Item={"pk": {"S": "a"}, "sk": {"N": at}, "parity": {"S": parity}})
    for at in ("4", "5"):
        client.delete_item(TableName="tab", Key={"pk": {"S": "a"}, "sk": {"N": at}})
    fake.pass_time(1000)
    started = client.export_table_to_point_in_time(
        TableArn=arn,
        S3Bucket="b",
        ExportType="INCREMENTAL_EXPORT",
        IncrementalExportSpecification={
            "ExportFromTime": begin, "ExportToTime": begin + 900, "ExportViewType": "NEW_IMAGE"
        },
        FilterSpecification={
            "FilterExpression": "parity = :o",
            "ProjectionExpression": "parity",
            "ExpressionAttributeValues": {":o": VALUES[":o"]},
        },
    )["ExportDescription"]  # fmt: skip
    described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
    lines = lines_of(tmp_path / "b", described)
    assert {line["Keys"]["sk"]["N"]: line.get("NewImage") for line in lines} == {
        "2": {"parity": {"S": "odd"}},
        "5": None,
    }


@pytest.mark.parametrize(
    ("specification", "words"),
    [
        ({"FilterExpression": "parity ="}, "Invalid FilterExpression: Syntax error"),
        ({"FilterExpression": "parity = :absent"}, "attribute value: :absent"),
        ({"KeyConditionExpression": "sk = :s"}, "Query condition missed key schema element: pk"),
        ({"KeyConditionExpression": "pk = :s"}, "Condition parameter type does not match schema type"),
        ({"KeyConditionExpression": "pk IN (:p)"}, "Invalid operator used in KeyConditionExpression: IN"),
        (KEY_CONDITION | {"FilterExpression": "sk > :s"}, "can only contain non-primary key attributes"),
        ({"ProjectionExpression": "m, m.x"}, "Two document paths overlap"),
        ({"ProjectionExpression": "size"}, "reserved keyword"),
        ({"FilterExpression": "parity = :o", "ExpressionAttributeNames": {"#x": "x"}}, "unused in expressions"),
        ({"ExpressionAttributeNames": {"#x": "x"}}, "can only be specified when using expressions"),
        ({"FilterExpression": "p" * 4097}, "Expression size has exceeded"),
    ],
    ids=str,
)
def test_wrong_expressions_are_refused(exporting_sorted, specification, words):
    """The expressions of a filter are checked like those of Query and Scan."""
    _, client, arn = exporting_sorted
    text = json.dumps(specification)
    values = {name: value for name, value in VALUES.items() if f"{name} " in f"{text} " or f'{name}"' in text}
    values |= {name: value for name, value in VALUES.items() if f"{name})" in text}
    if values:
        specification = specification | {"ExpressionAttributeValues": values}
    with pytest.raises(ClientError, match=re.escape(words)) as caught:
        client.export_table_to_point_in_time(TableArn=arn, S3Bucket="b", FilterSpecification=specification)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_filter_is_part_of_the_request_of_a_token(exporting):
    """Another filter with the same token is another request."""
    client, arn = exporting
    members = {"TableArn": arn, "S3Bucket": "b", "ClientToken": "one"}
    client.export_table_to_point_in_time(**members, FilterSpecification={"ProjectionExpression": "pk"})
    with pytest.raises(ClientError, match="ExportConflict"):
        client.export_table_to_point_in_time(**members, FilterSpecification={"ProjectionExpression": "n"})


def test_an_export_takes_time_and_has_the_items_of_its_request(connect, tmp_path):
    """With job_seconds an export runs for that time, and has the items of the time of its request."""
    with FakeDynamoDB(export_to=str(tmp_path), job_seconds=60) as fake:
        fake.load("tab", ITEMS, "pk:S")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        arn = client.describe_table(TableName="tab")["Table"]["TableArn"]
        started = client.export_table_to_point_in_time(TableArn=arn, S3Bucket="b")["ExportDescription"]
        client.put_item(TableName="tab", Item={"pk": {"S": "later"}})
        described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        assert (described["ExportStatus"], "ItemCount" in described) == ("IN_PROGRESS", False)
        fake.pass_time(60)
        described = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        assert (described["ExportStatus"], described["ItemCount"]) == ("COMPLETED", 50)


def test_a_past_state_is_exported(connect, tmp_path):
    """ExportTime exports the table as it was just before that time."""
    with FakeDynamoDB(export_to=str(tmp_path)) as fake:
        fake.load("tab", [{"pk": {"S": "old"}}], "pk:S")
        client = connect(fake.endpoint_url)
        client.update_continuous_backups(TableName="tab", **RECOVERY)
        described = client.describe_table(TableName="tab")["Table"]
        fake.pass_time(100)
        client.put_item(TableName="tab", Item={"pk": {"S": "new"}})
        client.delete_item(TableName="tab", Key={"pk": {"S": "old"}})
        at = math.ceil(described["CreationDateTime"].timestamp()) + 50
        request = {"TableArn": described["TableArn"], "S3Bucket": "b", "ExportTime": at}
        arn = client.export_table_to_point_in_time(**request)["ExportDescription"]["ExportArn"]
        described = client.describe_export(ExportArn=arn)["ExportDescription"]
    assert lines_of(tmp_path / "b", described) == [{"Item": {"pk": {"S": "old"}}}]
