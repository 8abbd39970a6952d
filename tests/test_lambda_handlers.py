"""Lambda handlers with events in the format that AWS documents."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import ddbio
from ddbio.cdc import transform
from ddbio.cdc.log_reader import open_log
from ddbio.errors import NotFoundError, OptionError
from ddbio.formats.log_columns import attribute_of_member
from ddbio.items.schema.file import schema_to_json
from ddbio.lambda_handlers import firehose_transform, load_objects, log_changes
from ddbio.storage.local_store import LocalStore
from ddbio.testing import FakeDynamoDB, MotoServer
from tests.cdc.test_capture import rows_of

IMAGE = {
    "pk": {"S": "user#7"},
    "total": {"N": "12345678901234567890.123"},
    "tags": {"SS": ["new", "vip"]},
    "nums": {"NS": ["1", "2.5"]},
    "img": {"B": "aGVsbG8="},
    "lines": {"L": [{"M": {"sku": {"S": "A\n1"}, "qty": {"N": "2"}}}]},
    "paid": {"BOOL": True},
    "note": {"NULL": True},
}
CHANGE = {
    "awsRegion": "eu-west-1",
    "eventID": "0f7f2e6e-2a3c-4a6e-9a38-9d1d2c9b7f10",
    "eventName": "MODIFY",
    "userIdentity": None,
    "recordFormat": "application/json",
    "tableName": "orders",
    "dynamodb": {
        "ApproximateCreationDateTime": 1793491203000001,
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
        "Keys": {"pk": {"S": "user#7"}},
        "NewImage": IMAGE,
        "SizeBytes": 58,
    },
    "eventSource": "aws:dynamodb",
}


def event_of(*documents):
    """Return an event of Firehose's transformation with these documents as its records."""
    return {
        "invocationId": "invoked123",
        "deliveryStreamArn": "arn:aws:firehose:eu-west-1:111122223333:deliverystream/changes",
        "region": "eu-west-1",
        "records": [
            {
                "recordId": f"record{number}",
                "approximateArrivalTimestamp": 1793491204000,
                "data": base64.b64encode(text.encode()).decode(),
            }
            for number, text in enumerate(documents)
        ],
    }


def test_a_change_becomes_a_line():
    """Numbers keep every digit, sets are lists, and the hour is the partition."""
    (answer,) = firehose_transform(event_of(json.dumps(CHANGE)), None)["records"]
    assert (answer["recordId"], answer["result"]) == ("record0", "Ok")
    assert answer["metadata"] == {"partitionKeys": {"year": "2026", "month": "11", "day": "01", "hour": "00"}}
    line = base64.b64decode(answer["data"]).decode()
    assert line.endswith("}\n")
    assert '"total":12345678901234567890.123' in line
    members = json.loads(line)
    assert members["_event_time"] == "2026-11-01T00:00:03.000001+00:00"
    own = {"_op": "MODIFY", "_event_id": CHANGE["eventID"], "_expired": False}
    assert {name: members[name] for name in own} == own
    plain = {"pk": "user#7", "tags": ["new", "vip"], "nums": [1, 2.5], "img": "aGVsbG8=", "paid": True, "note": None}
    assert {name: members[name] for name in plain} == plain
    assert members["lines"] == [{"sku": "A\n1", "qty": 2}]


def test_a_delete_by_the_time_to_live_has_its_key():
    """A stream's record of an expired item is marked, in both notations of its identity."""
    change = {"ApproximateCreationDateTime": 1793491203, "Keys": {"pk": {"S": "a"}}, "SequenceNumber": "123"}
    for identity in ({"type": "Service", "principalId": "dynamodb.amazonaws.com"},
                     {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}):  # fmt: skip
        record = {"eventName": "REMOVE", "eventID": "1", "userIdentity": identity, "dynamodb": change}
        (answer,) = firehose_transform(event_of(json.dumps(record)))["records"]
        line = json.loads(base64.b64decode(answer["data"]))
        assert (line["_op"], line["_sequence"], line["_expired"], line["pk"]) == ("REMOVE", "123", True, "a")


def test_binary_of_kinesis_is_base64_once():
    """The service encodes it twice, also in sets and nested values."""
    twice = base64.b64encode(base64.b64encode(b"abc")).decode()
    image = {"pk": {"S": "a"}, "b": {"B": twice}, "l": {"L": [{"BS": [twice]}]}}
    (answer,) = firehose_transform(
        event_of(json.dumps({**CHANGE, "dynamodb": {**CHANGE["dynamodb"], "NewImage": image}}))
    )["records"]
    line = json.loads(base64.b64decode(answer["data"]))
    assert (line["b"], line["l"]) == ("YWJj", [["YWJj"]])


@pytest.mark.parametrize("spacing", [None, (",", ":")])
def test_a_line_names_its_table(monkeypatch, caplog, spacing):
    """Changes of other tables than the one of DDBIO_TABLE are dropped, and counted in the log of the function."""
    texts = [json.dumps({**CHANGE, "tableName": table}, separators=spacing) for table in ("orders", "users", "orders")]
    answers = firehose_transform(event_of(*texts, "no change"))["records"]
    assert [json.loads(base64.b64decode(answer["data"]))["_table"] for answer in answers[:3]] == [
        "orders",
        "users",
        "orders",
    ]
    monkeypatch.setenv("DDBIO_TABLE", "orders")
    answers = firehose_transform(event_of(*texts, "no change"))["records"]
    assert [answer["result"] for answer in answers] == ["Ok", "Dropped", "Ok", "ProcessingFailed"]
    assert "1 changes of other tables than orders were dropped" in caplog.text


@pytest.mark.parametrize("name", ["_op", "_sequence", "_event_id", "_event_time", "_expired", "_table"])
def test_an_attribute_with_the_name_of_a_member_has_a_checksum(name):
    """The line has both. ``replay`` removes the checksum."""
    image = {"pk": {"S": "a"}, name: {"S": "mine"}}
    event = event_of(json.dumps({**CHANGE, "dynamodb": {**CHANGE["dynamodb"], "NewImage": image}}))
    (answer,) = firehose_transform(event)["records"]
    line = json.loads(base64.b64decode(answer["data"]))
    ((member, value),) = [entry for entry in line.items() if entry[0].startswith(f"{name}_")]
    assert (value, attribute_of_member(member)) == ("mine", name)


def test_invalid_changes_fail_alone():
    """Invalid records are returned unchanged, as ProcessingFailed. The others pass."""
    answers = firehose_transform(event_of("no json", json.dumps(CHANGE), '{"Item":{}}', ""))["records"]
    assert [answer["result"] for answer in answers] == [
        "ProcessingFailed",
        "Ok",
        "ProcessingFailed",
        "ProcessingFailed",
    ]
    assert base64.b64decode(answers[0]["data"]) == b"no json"


def test_an_answer_has_six_megabytes_at_most():
    """Records that do not fit fail. Every record has an answer, in its order."""
    large = json.dumps(
        {**CHANGE, "dynamodb": {**CHANGE["dynamodb"], "NewImage": {**IMAGE, "text": {"S": "x" * 390_000}}}}
    )
    event = event_of(*[large] * 14)
    answer = firehose_transform(event)
    assert len(json.dumps(answer)) <= transform.MAX_ANSWER_BYTES
    results = [record["result"] for record in answer["records"]]
    assert set(results) == {"Ok", "ProcessingFailed"}
    assert [record["recordId"] for record in answer["records"]] == [record["recordId"] for record in event["records"]]


def test_a_created_object_is_loaded_once(monkeypatch):
    """Events of S3 and of EventBridge name the object. A repeated event writes nothing twice."""
    with MotoServer() as moto, FakeDynamoDB(burst_at_creation=1.0) as fake:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto.endpoint_url)
        s3 = boto3.client("s3", endpoint_url=moto.endpoint_url)
        s3.create_bucket(Bucket="inbox", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        key = "new orders/a b.jsonl"
        tag = s3.put_object(Bucket="inbox", Key=key, Body=b'{"Item":{"pk":{"S":"1"}}}\n{"Item":{"pk":{"S":"2"}}}\n')[
            "ETag"
        ]
        fake.load("orders", b"", "pk:S")
        monkeypatch.setenv("DDBIO_TABLE", "orders")
        options = {"state": "s3://inbox/state", "endpoint_url": fake.endpoint_url}
        monkeypatch.setenv("DDBIO_LOAD_OPTIONS", json.dumps(options))
        described = {
            "key": "new+orders/a+b.jsonl",
            "size": 54,
            "eTag": tag.strip('"'),
            "sequencer": "0A1B2C3D4E5F678901",
        }
        record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "inbox"}}}
        record["s3"]["object"] = described
        removed = {**record, "eventName": "ObjectRemoved:Delete"}
        first = load_objects({"Records": [record, removed]})
        assert first == {"loads": [{"bucket": "inbox", "key": key, "written": 2, "rejected": 0}]}
        again = load_objects({"Records": [record]})
        assert [load["written"] for load in again["loads"]] == [0]
        bridged = {
            "source": "aws.s3",
            "detail": {"bucket": {"name": "inbox"}, "object": {"key": key, "etag": tag.strip('"')}},
        }
        assert [load["written"] for load in load_objects(bridged)["loads"]] == [0]
        assert ddbio.read_table("orders", endpoint_url=fake.endpoint_url).num_rows == 2
        # A key that looks like a glob is only that object, or none if it is deleted.
        described |= {"key": "new+orders/a%5B1%5D*.jsonl", "eTag": "other"}
        for name in ("a1.jsonl", "a1x.jsonl"):
            s3.put_object(Bucket="inbox", Key=f"new orders/{name}", Body=b'{"Item":{"pk":{"S":"9"}}}\n')
        with pytest.raises(NotFoundError):
            load_objects({"Records": [record]})
        s3.put_object(Bucket="inbox", Key="new orders/a[1]*.jsonl", Body=b'{"Item":{"pk":{"S":"3"}}}\n')
        assert [load["written"] for load in load_objects({"Records": [record]})["loads"]] == [1]
        assert sorted(ddbio.read_table("orders", endpoint_url=fake.endpoint_url)["pk"].to_pylist()) == ["1", "2", "3"]
        s3.close()


def test_a_load_needs_a_table(monkeypatch):
    """Without its environment variable the error names the variable to set."""
    monkeypatch.delenv("DDBIO_TABLE", raising=False)
    with pytest.raises(OptionError, match="set DDBIO_TABLE"):
        load_objects({"Records": []})


ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders/stream/2026-11-01T00:00:00.000"


def stream_record(number, **more):
    """Return a record as Lambda gets it from a table's stream."""
    image = {"pk": {"S": f"user#{number}"}, "n": {"N": str(number)}}
    return {
        "eventID": f"{number:032x}",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1793491203.0 + number // 100 * 3600,
            "Keys": {"pk": image["pk"]},
            "NewImage": image,
            "SequenceNumber": str(4421584500000000017450439000 + number),
            "SizeBytes": 26,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": ARN,
    } | more


@pytest.fixture
def log(monkeypatch, tmp_path):
    """Return the folder of the handler's log."""
    monkeypatch.setenv("DDBIO_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("DDBIO_LOG_OPTIONS", raising=False)
    return tmp_path / "log"


def test_events_of_a_stream_are_logged_once(log):
    """Repeated, divided or grown batches add only new changes. Rows are stored by the hours of the changes."""
    records = [stream_record(number) for number in range(95, 105)]
    for first, last in ((0, 4), (0, 4), (0, 2), (2, 4), (2, 10), (4, 10), (0, 10)):
        assert log_changes({"Records": records[first:last]}, None) == {"batchItemFailures": []}
    rows = rows_of(log)
    assert [row["n"] for row in rows] == list(range(95, 105))
    assert [row["hour"] for row in rows] == [0] * 5 + [1] * 5
    assert len(list(log.rglob("*.parquet"))) == 3
    assert ddbio.compact(log).files_rewritten


def test_old_images_stay_once_requested(log, monkeypatch):
    """The log keeps old images for all later writers and readers, like the log of a capture."""
    for number, options in enumerate(['{"old_image": false}', '{"old_image": true}', "{}"]):
        monkeypatch.setenv("DDBIO_LOG_OPTIONS", options)
        before = {"pk": {"S": f"user#{number}"}, "n": {"N": "7"}}
        record = stream_record(number, eventName="MODIFY")
        record["dynamodb"]["OldImage"] = before
        log_changes({"Records": [record]})
    files = [pq.read_table(path, partitioning=None).to_pylist() for path in sorted(log.rglob("*.parquet"))]
    assert [row.get("_old_image", {"n": None})["n"] for (row,) in files] == [None, 7, 7]
    assert "_old_image" in open_log(LocalStore(log)).schema().names


def test_columns_that_were_given_once_stay(log, monkeypatch):
    """A wider schema becomes the log's schema, also for a handler with a narrower one."""
    for number, name in enumerate(["a", "b", "a"]):
        fields = [pa.field(attribute, pa.string(), metadata={"ddb:type": "S"}) for attribute in ("pk", name)]
        schema = schema_to_json(pa.schema(fields))
        monkeypatch.setenv("DDBIO_LOG_OPTIONS", json.dumps({"schema": schema}))
        record = stream_record(number)
        record["dynamodb"]["NewImage"] = {"pk": {"S": f"user#{number}"}, "a": {"S": "1"}, "b": {"S": "2"}}
        log_changes({"Records": [record]})
    states = ddbio.history(log).to_pylist()
    assert [(row["a"], row["b"]) for row in states] == [("1", "2")] * 3
    assert {"a", "b"} < set(open_log(LocalStore(log)).schema().names)


def test_a_record_that_is_no_change_is_reported(log, monkeypatch, tmp_path):
    """Records before it are written and its number is returned.

    With reject_to it is stored separately, and all are done.
    """
    bad = stream_record(2)
    bad["dynamodb"]["NewImage"] = {"pk": {"X": "y"}}
    event = {"Records": [stream_record(1), bad, stream_record(3)]}
    assert log_changes(event)["batchItemFailures"] == [{"itemIdentifier": bad["dynamodb"]["SequenceNumber"]}]
    assert [row["n"] for row in rows_of(log)] == [1]
    monkeypatch.setenv("DDBIO_LOG_OPTIONS", json.dumps({"reject_to": str(tmp_path / "rejects")}))
    assert log_changes(event)["batchItemFailures"] == []
    assert [row["n"] for row in rows_of(log)] == [1, 3]
    (kept,) = (file for file in (tmp_path / "rejects/processing-failed").rglob("*") if file.is_file())
    assert json.loads(base64.b64decode(json.loads(kept.read_bytes())["rawData"])) == bad


@pytest.mark.parametrize("view", ["KEYS_ONLY", "OLD_IMAGE"])
def test_a_change_without_a_new_image_is_invalid(log, view):
    """Without new images a log would have items with only their keys. A delete needs none."""
    gone, bad = stream_record(1, eventName="REMOVE"), stream_record(2, eventName="MODIFY")
    for record in (gone, bad):
        image = record["dynamodb"].pop("NewImage")
        record["dynamodb"] |= {"StreamViewType": view} | ({"OldImage": image} if view == "OLD_IMAGE" else {})
    answer = log_changes({"Records": [gone, bad, stream_record(3)]})
    assert answer["batchItemFailures"] == [{"itemIdentifier": bad["dynamodb"]["SequenceNumber"]}]
    assert [(row["_op"], row["pk"]) for row in rows_of(log)] == [("REMOVE", "user#1")]


def test_a_log_is_of_one_table(log, monkeypatch, caplog):
    """Records of another table are refused, in the same event or another. With an option they are skipped."""
    own, other = stream_record(1), stream_record(2, eventSourceARN=ARN.replace("/orders/", "/users/"))
    for event in ([own, other], [other]):
        with pytest.raises(
            OptionError, match=r"of table 'orders', and these are of 'users'.* choose the table with the option table"
        ):
            log_changes({"Records": event})
    assert [row["n"] for row in rows_of(log)] == [1]
    monkeypatch.setenv("DDBIO_LOG_OPTIONS", json.dumps({"table": "orders"}))
    assert log_changes({"Records": [own, other, stream_record(3)]}) == {"batchItemFailures": []}
    assert [row["n"] for row in rows_of(log)] == [1, 3]
    assert "1 changes of table users were skipped" in caplog.text


def test_a_log_needs_a_folder_and_records_of_a_stream(log, monkeypatch):
    """Other events, and a missing folder, are refused. The message has the remedy."""
    with pytest.raises(OptionError, match="not of a DynamoDB stream"):
        log_changes({"Records": [{"eventSource": "aws:sqs", "body": ""}]})
    monkeypatch.delenv("DDBIO_LOG")
    with pytest.raises(OptionError, match="set DDBIO_LOG"):
        log_changes({"Records": []})


PAGE = Path(__file__).parents[1] / "docs/lambda.md"


class _Template(yaml.SafeLoader):
    """Loader that reads the short notation of CloudFormation's functions as their contents."""


_Template.add_multi_constructor(
    "!",
    lambda loader, _, node: (
        loader.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else loader.construct_scalar(node)
    ),
)


def block(kind):
    """Return the only block of this kind on the page."""
    (text,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return text


def test_the_template_names_existing_handlers_and_settings():
    """Each function's handler is one of ours, its variables are read, and the stream reports partial failures."""
    resources = yaml.load(block("yaml"), _Template)["Resources"]
    functions = [
        resource["Properties"] for resource in resources.values() if resource["Type"] == "AWS::Serverless::Function"
    ]
    handlers = {function["ImageConfig"]["Command"][0] for function in functions}
    assert handlers == {
        f"ddbio.lambda_handlers.{name}" for name in ("firehose_transform", "load_objects", "log_changes")
    }
    named = {name for function in functions for name in function.get("Environment", {}).get("Variables", {})}
    assert named == {"DDBIO_LOG", "DDBIO_LOG_OPTIONS", "DDBIO_TABLE", "DDBIO_LOAD_OPTIONS"}
    (stream,) = (
        event["Properties"]
        for function in functions
        for event in function.get("Events", {}).values()
        if event["Type"] == "DynamoDB"
    )
    assert stream["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert stream["BisectBatchOnFunctionError"] is True
    assert {"FilterCriteria", "DestinationConfig", "MaximumRecordAgeInSeconds"} <= stream.keys()
    for function in functions:
        variables = function.get("Environment", {}).get("Variables", {})
        assert all(isinstance(json.loads(variables[name]), dict) for name in variables if name.endswith("OPTIONS"))


def test_the_image_starts_a_handler():
    """The recipe installs a wheel, and names an existing handler."""
    recipe = block("dockerfile")
    (name,) = re.findall(r'CMD \["ddbio\.lambda_handlers\.(\w+)"\]', recipe)
    assert name in {"firehose_transform", "load_objects", "log_changes"}
    assert "pip install --no-cache-dir /tmp/ddbio-*.whl" in recipe


def test_a_transformation_starts_without_libraries():
    """The first event of Firehose's function loads neither Arrow nor boto3 nor numba."""
    script = (
        "import json, sys\nfrom ddbio.lambda_handlers import firehose_transform\n"
        "firehose_transform(json.loads(sys.stdin.read()))\n"
        "print(sorted({'pyarrow', 'numba', 'boto3', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(event_of(json.dumps(CHANGE))),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
