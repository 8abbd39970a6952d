"""Objects in the layout of Firehose: read to rows, written, replayed into a log and into a table."""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cdc import delivery
from ddbio.cdc.delivered import DeliveredObjects, may_have_changes
from ddbio.cdc.delivered_records import DeliveredReader
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cdc.options import ChangesReadOptions
from ddbio.cdc.plain_lines import text_parts
from ddbio.cdc.transform import change_line
from ddbio.errors import DecodeError, LimitError, NotFoundError, OptionError
from ddbio.testing import FakeDynamoDB
from tests.cdc.test_capture import rows_of

HOUR = "2026/11/01/00"


def change(pk, number, operation="MODIFY", **more):
    """Return a record in the format of Kinesis Data Streams for DynamoDB."""
    image = {"pk": {"S": pk}, "n": {"N": str(number)}, "tags": {"SS": ["x"]}, "b": {"B": "AAE="}}
    inside = {
        "ApproximateCreationDateTime": 1793491203000000 + number % 1000,
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
        "Keys": {"pk": {"S": pk}},
        "SizeBytes": 58,
    }
    inside["OldImage" if operation == "REMOVE" else "NewImage"] = image
    return {
        "awsRegion": "eu-west-1",
        "eventID": f"{pk}-{number}",
        "eventName": operation,
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": "orders",
        "dynamodb": inside,
        "eventSource": "aws:dynamodb",
    } | more


def joined(*records):
    """Return concatenated records without line ends, as Firehose writes them."""
    return "".join(json.dumps(record, separators=(",", ":")) for record in records).encode()


def put(folder, path, data):
    """Write a file and its parent folders."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


def failed(raw, **more):
    """Return a line in the format of Firehose's error prefix."""
    line = {"attemptsMade": 4, "arrivalTimestamp": 1793491200000, "errorCode": "Lambda.FunctionError",
            "errorMessage": "it failed", "attemptEndingTimestamp": 1793491260000,
            "rawData": base64.b64encode(raw).decode()}  # fmt: skip
    return json.dumps(line | more).encode() + b"\n"


def values(rows):
    """Return operation, key and number of each row."""
    return [(row["_op"], row["pk"], row["n"]) for row in rows]


def test_records_are_read_in_every_format(tmp_path):
    """Gzip and plain objects with and without line ends, in both kinds of hour folders, give rows of a log."""
    put(tmp_path, f"{HOUR}/ddb-1-2026-11-01-00-00-05-a.gz", gzip.compress(joined(change("a", 1), change("b", 2))))
    put(tmp_path, "year=2026/month=11/day=01/hour=00/plain", joined(change("c", 3)) + b"\n" + joined(change("d", 4)))
    stream = change("e", 5, "REMOVE", userIdentity={"type": "Service", "principalId": "dynamodb.amazonaws.com"})
    del stream["dynamodb"]["ApproximateCreationDateTimePrecision"]
    stream["dynamodb"] |= {"SequenceNumber": "111", "ApproximateCreationDateTime": 1793491204}
    put(tmp_path, f"{HOUR}/stream", joined(stream))
    rows = ddbio.read_changes(tmp_path).sort_by("pk").to_pylist()
    assert values(rows) == [("MODIFY", "a", 1), ("MODIFY", "b", 2), ("MODIFY", "c", 3), ("MODIFY", "d", 4),
                            ("REMOVE", "e", None)]  # fmt: skip
    assert (rows[0]["tags"], rows[0]["b"]) == (["x"], b"\x00\x01")
    assert [row["_expired"] for row in rows] == [False] * 4 + [True]
    assert (rows[3]["_sequence"][:16], len(rows[3]["_sequence"])) == ("1793491203000004", 34)
    assert rows[4]["_sequence"] == "111"
    assert rows[0]["_event_time"].isoformat() == "2026-11-01T00:00:03.000001+00:00"


def test_duplicates_are_read_once(tmp_path):
    """A record whose event id is already in the object is left out. Records with equal times have different numbers."""
    records = [change("a", 1), change("b", 1), change("a", 1)]
    put(tmp_path, "one", joined(*records))
    rows = ddbio.read_changes(tmp_path).to_pylist()
    assert values(rows) == [("MODIFY", "a", 1), ("MODIFY", "b", 1)]
    assert [row["_sequence"][-6:] for row in rows] == ["000000", "000001"]


def test_transformed_lines_are_read_with_their_keys(tmp_path):
    """Lines of the transformation function need the key. A schema declares binary and sets."""
    line, _ = change_line(json.dumps(change("a", 12345678901234567890)).encode())
    put(tmp_path, "lines.gz", gzip.compress(f"{line}\n".encode() * 2))
    with pytest.raises(DecodeError, match="give keys, the key attributes"):
        ddbio.read_changes(tmp_path)
    (row,) = ddbio.read_changes(tmp_path, keys="pk").to_pylist()
    assert (row["n"], row["tags"], row["b"]) == (Decimal(12345678901234567890), ["x"], "AAE=")
    items = json.dumps({"Item": change("a", 1)["dynamodb"]["NewImage"]}).encode()
    (row,) = ddbio.read_changes(tmp_path, keys="pk", schema=ddbio.infer_schema(items)).to_pylist()
    assert (row["tags"], row["b"]) == (["x"], b"\x00\x01")


def test_parquet_is_read_in_both_layouts(tmp_path):
    """Converted lines have typed columns. Converted records have structs, whose own names may be in lower case."""
    lines = pa.table({"_op": ["INSERT", "REMOVE"], "_event_time": ["2026-11-01T00:00:03.000001+00:00"] * 2,
                      "_expired": [False, True], "pk": ["a", "b"], "n": [Decimal("1.5"), None]})  # fmt: skip
    pq.write_table(lines, tmp_path / "lines.parquet")
    rows = ddbio.read_changes(tmp_path, keys="pk").to_pylist()
    assert [(*value, row["_expired"]) for value, row in zip(values(rows), rows, strict=True)] == [
        ("INSERT", "a", Decimal("1.5"), False),
        ("REMOVE", "b", None, True),
    ]
    (tmp_path / "lines.parquet").unlink()
    image = [{"pk": {"S": "a", "N": None}, "n": {"S": None, "N": "7"}}]
    inside = {"ApproximateCreationDateTime": 1793491203, "keys": {"pk": {"S": "a"}}, "newimage": image[0]}
    pq.write_table(pa.Table.from_pylist([{"eventname": "INSERT", "dynamodb": inside}]), tmp_path / "records.parquet")
    assert values(ddbio.read_changes(tmp_path).to_pylist()) == [("INSERT", "a", 7)]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "records.parquet")
    with pytest.raises(DecodeError, match="neither those of change records"):
        ddbio.read_changes(tmp_path)


@pytest.mark.parametrize(
    "folder",
    [
        "",
        "2026/11/01/00/",
        "2019/03/05/",
        "year=2019/month=03/day=05/",
        "2031/01/01/00/",
        "day=2019-03-05/",
        "2019/13/45/",
    ],
)
def test_times_select_changes_regardless_of_folder_names(tmp_path, folder):
    """Changes are selected by their own times. A folder may be a partition key, or be in another time zone."""
    put(tmp_path, f"{folder}object", joined(change("a", 1), change("b", 2), change("c", 3)))
    rows = ddbio.read_changes(tmp_path, since="2026-11-01T00:00:03.000002Z", until="2026-11-01T00:00:03.000003Z")
    assert values(rows.to_pylist()) == [("MODIFY", "b", 2)]


@pytest.mark.parametrize(
    ("uri", "hours", "is_read"),
    [("s3://lake/in", -48, False), ("s3://lake/in", -2, True), ("s3://lake/in", 2, True), ("/lake/in", -48, True)],
)
def test_objects_of_s3_that_were_written_before_are_not_read(tmp_path, uri, hours, is_read):
    """Changes are older than the date of their S3 object. The dates of local files are ignored."""
    put(tmp_path, "object", joined(change("a", 1)))
    since = datetime(2026, 11, 1, tzinfo=UTC)
    actual = DeliveredObjects(ChangesReadOptions(source=str(tmp_path)))
    written = dataclasses.replace(actual.objects[0], modified_at=(since + timedelta(hours=hours)).timestamp())
    assert may_have_changes(uri, written, since) is is_read


def test_invalid_records_are_written_to_the_error_prefix(tmp_path):
    """The reason and the bytes are stored in Firehose's format, and records after a bad one are read."""
    bad = b'{"half":' + joined(change("a", 1)) + b'{"Item":{}}' + joined(change("b", 2))
    put(tmp_path, f"in/{HOUR}/one", bad)
    put(tmp_path, f"in/{HOUR}/two", failed(b"left out, for it failed before"))
    with pytest.raises(DecodeError, match="one: 2 of its records are not changes"):
        ddbio.read_changes(tmp_path / "in")
    for _ in range(2):
        rows = ddbio.read_changes(tmp_path / "in", reject_to=str(tmp_path / "errors"))
        assert values(rows.to_pylist())[-1] == ("MODIFY", "b", 2)
    (kept,) = (path for path in (tmp_path / "errors/processing-failed").rglob("*") if path.is_file())
    lines = [json.loads(line) for line in kept.read_bytes().splitlines()]
    assert {"attemptsMade", "arrivalTimestamp", "errorCode", "errorMessage", "rawData"} <= lines[0].keys()
    assert base64.b64decode(lines[-1]["rawData"]) == b'{"Item":{}}'
    with pytest.raises(NotFoundError):
        ddbio.read_changes(tmp_path / "nothing")


@pytest.mark.parametrize("beside", [b"", b"no json", joined(change("a", 1))], ids=["plain", "other", "twice"])
@pytest.mark.parametrize("view", ["KEYS_ONLY", "OLD_IMAGE"])
def test_a_change_without_a_new_image_is_invalid(tmp_path, view, beside):
    """A log or a table would store an item with only its key. A delete needs no image."""
    bad, gone = change("b", 2), change("c", 3, "REMOVE")
    image = bad["dynamodb"].pop("NewImage")
    bad["dynamodb"] |= {"OldImage": image} if view == "OLD_IMAGE" else {}
    records = joined(change("a", 1), bad, gone)
    put(tmp_path / "in", f"{HOUR}/one", records + beside)
    with pytest.raises(DecodeError, match="has no NewImage: changes come from a stream with the view"):
        ddbio.replay(tmp_path / "in", dest=tmp_path / "log")
    assert ddbio.replay(tmp_path / "in", dest=tmp_path / "log", reject_to=str(tmp_path / "bad")).records == 2
    assert values(rows_of(tmp_path / "log")) == [("MODIFY", "a", 1), ("REMOVE", "c", None)]
    (tmp_path / "in" / HOUR / "one").write_bytes(records)
    assert values(ddbio.read_changes(tmp_path / "in").to_pylist())[1] == ("MODIFY", "b", None)


def test_a_replay_processes_each_object_once(tmp_path):
    """Failed records are written to the log by their hours.

    A second run does nothing, a new object is replayed alone.
    """
    source, log = tmp_path / "errors", tmp_path / "log"
    put(source, f"processing-failed/{HOUR}/a", failed(joined(change("a", 1))) + failed(joined(change("b", 2))))
    assert ddbio.plan_replay(source, log).objects == 1
    assert not log.exists()
    report = ddbio.replay(source, log)
    assert (report.objects, report.records, report.files, report.rejected) == (1, 2, 1, 0)
    assert values(rows_of(log)) == [("MODIFY", "a", 1), ("MODIFY", "b", 2)]
    again = ddbio.replay(source, log)
    assert (again.objects, again.done, again.records) == (0, 1, 0)
    put(source, f"processing-failed/{HOUR}/b", failed(joined(change("c", 3))) + failed(b"no change", attemptsMade=2))
    report = ddbio.replay(source, log, reject_to=str(tmp_path / "still"))
    assert (report.objects, report.records, report.rejected) == (1, 1, 1)
    (kept,) = (path for path in (tmp_path / "still/processing-failed").rglob("*") if path.is_file())
    assert json.loads(kept.read_bytes())["attemptsMade"] == 3
    assert len(rows_of(log)) == 3


def test_an_interrupted_replay_writes_the_same_files(tmp_path):
    """Without its record an object is replayed again, into the existing files."""
    source, log = tmp_path / "errors", tmp_path / "log"
    put(source, "a", failed(joined(change("a", 1))))
    ddbio.replay(source, log)
    (note,) = (path for path in log.glob("_ddbio/*.replay/*.json") if path.stem != "columns")
    note.unlink()
    assert ddbio.replay(source, log).records == 1
    assert len(rows_of(log)) == 1


def test_a_replay_applies_changes_to_a_table(tmp_path):
    """The last change of each item is applied, including deletes. With newer_by, a newer item is not changed."""
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        fake.load(
            "orders",
            b'{"Item":{"pk":{"S":"gone"},"n":{"N":"1"}}}\n{"Item":{"pk":{"S":"new"},"n":{"N":"99"}}}\n',
            "pk:S",
        )
        put(tmp_path, "2", joined(change("a", 4), change("new", 5)))
        put(tmp_path, "1", joined(change("a", 3), change("gone", 2, "REMOVE"), change("a", 9, "REMOVE")))
        put(tmp_path, "0", joined(change("a", 10, "INSERT")))
        run = {"table": "orders", "endpoint_url": fake.endpoint_url}
        with pytest.raises(OptionError, match="give a folder"):
            ddbio.replay(tmp_path, **run, dest=str(tmp_path))
        with pytest.raises(LimitError, match="3 capacity units, more than max_units 2"):
            ddbio.replay(tmp_path, newer_by="n", max_units=2, **run)
        report = ddbio.replay(tmp_path, newer_by="n", max_units=20, max_usd=1, **run)
        assert (report.objects, report.records) == (3, 6)
        assert report.wcu_consumed > 0
        items = ddbio.read_table("orders", endpoint_url=fake.endpoint_url).sort_by("pk").to_pylist()
        assert [(item["pk"], item["n"]) for item in items] == [("a", 10), ("new", 99)]
        assert ddbio.replay(tmp_path, newer_by="n", **run).objects == 0


@pytest.mark.parametrize("records", ["lines", "raw"])
def test_written_changes_are_read_back(tmp_path, records):
    """Both layouts work with dynamic partitions or times, in small objects, with failures below the error prefix."""
    reply = json.dumps({"Records": [change("a", 1), change("b", 2)], "NextShardIterator": "x"}).encode()
    prefix = {"lines": "log/year=!{partitionKeyFromLambda:year}/", "raw": "log/!{timestamp:yyyy/MM/dd/HH}/"}[records]
    report = ddbio.write_changes(
        [reply, joined(change("c", 3)) + b"no change"], tmp_path, prefix=prefix, records=records, buffer_bytes=1024
    )
    assert (report.records, report.rejected, report.files) == (3, 1, 2)
    (good,) = (path for path in (tmp_path / "log").rglob("*.gz"))
    assert good.parent.name == "year=2026" if records == "lines" else good.name.startswith("ddbio-1-20")
    rows = ddbio.read_changes(tmp_path / "log", keys="pk")
    assert values(rows.to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2), ("MODIFY", "c", 3)]
    (bad,) = (tmp_path / "processing-failed").rglob("*.gz")
    assert b"rawData" in gzip.decompress(bad.read_bytes())
    for wrong in ("!{timestamp:QQ}/", "!{unknown:x}/", "!{timestamp"):
        with pytest.raises(OptionError):
            ddbio.write_changes([reply], tmp_path, prefix=wrong)


def test_all_of_several_answers_is_written(tmp_path):
    """A text may have several responses of GetRecords in a row, and lines of other content."""
    answers = [{"Records": [change("a", 1)], "NextShardIterator": "x"}, {"NextShardIterator": "y"}, {"Records": []}]
    text = b"\n".join(json.dumps(value).encode() for value in [*answers, {"Records": [change("b", 2)]}])
    report = ddbio.write_changes([text + b"\nno change\n" + joined(change("c", 3))], tmp_path, prefix="log/")
    assert (report.records, report.rejected) == (3, 1)
    rows = ddbio.read_changes(tmp_path / "log", keys="pk")
    assert values(rows.to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2), ("MODIFY", "c", 3)]


def test_records_that_came_twice_are_read_once(tmp_path):
    """It holds with and without whitespace in them."""
    once = joined(change("a", 1), change("b", 2))
    (tmp_path / "object").write_bytes(once + once.replace(b'"eventID":', b'"eventID" : '))
    assert values(ddbio.read_changes(tmp_path, keys="pk").to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2)]


@pytest.mark.parametrize("records", ["lines", "raw"])
def test_parts_of_a_text_are_written_like_the_full_text(tmp_path, monkeypatch, records):
    """Repeated, unusual and invalid records are read one by one, but only in their part."""
    actual = [joined(change(f"k{number}", number)) for number in range(60)]
    actual[20] = actual[20].replace(b'"eventID":', b'"eventID" : ')
    text = b"\n".join([*actual[:30], b"no change", *actual[30:], actual[3], joined(change("_op", 70)), actual[20]])
    reports, read = [], []
    for way, part_bytes in (("whole", 1 << 20), ("parts", 1500)):
        monkeypatch.setattr(delivery, "text_parts", functools.partial(text_parts, part_bytes=part_bytes))
        reports.append(ddbio.write_changes([text], tmp_path / way, prefix="log/", records=records))
        (good,) = (tmp_path / way / "log").rglob("*.gz")
        read.append(gzip.decompress(good.read_bytes()))
    assert len(list(text_parts(text, 1500))) > 5
    assert [(report.records, report.rejected) for report in reports] == [(61, 1)] * 2
    assert read[0] == read[1]


@pytest.mark.parametrize("prefix", ["log/", "log/hour=!{partitionKeyFromLambda:hour}/"])
@pytest.mark.parametrize("buffer_bytes", [1024, 4000])
def test_many_lines_use_the_same_objects_as_single_lines(tmp_path, prefix, buffer_bytes):
    """A text of only records is printed by the loops. With other content, each record is printed separately."""
    hours = [number // 7 % 3 for number in range(100)]
    actual = [change(f"k{number}", number) for number in range(100)]
    for value, hour in zip(actual, hours, strict=True):
        value["dynamodb"]["ApproximateCreationDateTime"] += hour * 3_600_000_000
    options = {"prefix": prefix, "buffer_bytes": buffer_bytes}
    quick = ddbio.write_changes([joined(*actual[:40]), joined(*actual[40:])], tmp_path / "quick", **options)
    # Whitespace that the service does not write.
    slow = [joined(*part).replace(b'"eventID":', b'"eventID" : ') for part in (actual[:40], actual[40:])]
    assert ddbio.write_changes(slow, tmp_path / "slow", **options).files == quick.files
    objects = [
        sorted((path.parent.name, gzip.decompress(path.read_bytes())) for path in (tmp_path / way).rglob("*.gz"))
        for way in ("quick", "slow")
    ]
    assert objects[0] == objects[1]
    assert len(objects[0]) == quick.files > 3
    assert quick.records == 100


def tied(pk, value, before=None, at=1793491203123, **more):
    """Return a record of Kinesis that only its time and its images order."""
    inside = {"ApproximateCreationDateTime": at, "Keys": {"pk": pk}}
    inside |= {} if value is None else {"NewImage": {"pk": pk, "n": {"N": str(value)}}}
    inside |= {} if before is None else {"OldImage": {"pk": pk, "n": {"N": str(before)}}}
    operation = "REMOVE" if value is None else "INSERT" if before is None else "MODIFY"
    return {"eventID": f"{pk}{value}{before}", "eventName": operation, "dynamodb": inside | more}


A, B = {"S": "a"}, {"S": "b"}
ORDERS = {
    "two objects": ([[tied(B, 1), tied(A, 1)], [tied(A, 2, 1)]], 2),
    "three objects": ([[tied(A, 1)], [tied(B, 1), tied(B, 2, 1), tied(A, 2, 1)], [tied(A, 3, 2)]], 3),
    "no images in order": ([[tied(A, 1), tied(B, 1)], [tied(A, 2)]], 2),
    "one object out of order": ([[tied(A, 2, 1), tied(A, 1)]], 2),
    "four out of order": ([[tied(A, 4, 3), tied(B, 9), tied(A, 2, 1), tied(A, 1), tied(A, 3, 2)]], 4),
    "a delete first": ([[tied(A, None, 3), tied(A, 3, 2), tied(A, 2, 1)]], None),
    "made again": ([[tied(A, 5), tied(A, None, 2), tied(A, 2, 1), tied(A, 1)]], 5),
    "time goes before position": ([[tied(A, 2, 1, at=1793491203124)], [tied(A, 1)]], 2),
    "numeric key": ([[tied({"N": "7"}, 2, 1), tied({"N": "7"}, 1)]], 2),
    "number goes before position": ([[tied(A, 2, SequenceNumber="20"), tied(A, 1, SequenceNumber="9")]], 2),
}


@pytest.mark.parametrize(("objects", "last"), ORDERS.values(), ids=ORDERS)
def test_changes_are_ordered_by_their_own_version(tmp_path, objects, last):
    """Changes are ordered by sequence number or time, equal times by old images, and otherwise by delivery."""
    for number, records in enumerate(objects):
        put(tmp_path, f"o{number}", joined(*records))
        os.utime(tmp_path / f"o{number}", (1793491300, 1793491300))
    rows = in_order(ddbio.read_changes(tmp_path))
    assert len(set(rows.column("_sequence").to_pylist())) == rows.num_rows
    (row,) = (row for row in last_of_each(rows, ["pk"]).to_pylist() if row["pk"] in {"a", 7})
    assert row["n"] == last


def test_the_name_of_an_object_has_its_time(tmp_path):
    """Copies have other dates, and folders may have any names."""
    for folder, second, number, before in (("2027/01/01/00", "05", 1, None), ("2019/01/01/00", "06", 2, 1)):
        put(
            tmp_path,
            f"{folder}/ddb-1-2026-11-01-00-00-{second}-uuid.gz",
            gzip.compress(joined(tied(A, number, before))),
        )
        os.utime(tmp_path / f"{folder}/ddb-1-2026-11-01-00-00-{second}-uuid.gz", (2000 - number, 2000 - number))
    assert [row["n"] for row in in_order(ddbio.read_changes(tmp_path)).to_pylist()] == [1, 2]


def of_table(name, pk, number, **more):
    """Return a record of a table's change."""
    return change(pk, number, eventID=f"{name}{pk}{number}", tableName=name) | more


ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/{}/stream/2026-11-01T00:00:00.000"
OTHERS = {
    "records": of_table("users", "x", 5),
    "blanks": of_table("users", "x", 5),
    "arn": {**of_table("users", "x", 5), "tableName": None, "eventSourceARN": ARN.format("users")},
    "other keys": {**of_table("users", "x", 5), "dynamodb": tied({"N": "1"}, 2)["dynamodb"]},
    "no valid change": {**of_table("users", "x", 5), "eventName": "TRUNCATE"},
}


@pytest.mark.parametrize("layout", ["one object", "two objects", "failed"])
@pytest.mark.parametrize("kind", OTHERS)
def test_changes_of_another_table_are_never_mixed_in(tmp_path, kind, layout):
    """They are refused without an option, and counted with one."""
    own, other = joined(of_table("orders", "a", 1)), joined(OTHERS[kind])
    if kind == "blanks":
        other = json.dumps(OTHERS[kind]).encode()
    if layout == "two objects":
        put(tmp_path, "in/o1", own)
        put(tmp_path, "in/o2", other)
    else:
        put(tmp_path, "in/o", failed(own + other) if layout == "failed" else own + other)
    log, source = tmp_path / "log", tmp_path / "in"
    with pytest.raises(OptionError, match="'orders' and 'users': choose one with source_table"):
        ddbio.replay(source, log)
    assert not list(log.glob("year=*"))
    report = ddbio.replay(source, log, source_table="orders")
    assert (report.records, report.foreign) == (1, 1)
    assert values(rows_of(log)) == [("MODIFY", "a", 1)]
    with pytest.raises(OptionError, match="started with the changes of 'orders', not of 'users'"):
        ddbio.replay(source, log, source_table="users")
    if layout == "failed":
        return
    with pytest.raises(OptionError, match="choose one with table"):
        ddbio.read_changes(source)
    assert values(ddbio.read_changes(source, table="orders").to_pylist()) == [("MODIFY", "a", 1)]
    with pytest.raises(OptionError, match="no changes of table 'third', but of orders, users"):
        ddbio.read_changes(source, table="third")


@pytest.mark.parametrize("records", ["lines", "raw"])
def test_written_changes_keep_their_table(tmp_path, records):
    """All tables are written, each line and record with its table's name, or only the changes of one table."""
    text = joined(of_table("orders", "a", 1), of_table("users", "x", 5), of_table("orders", "b", 2))
    ddbio.write_changes([text], tmp_path / "all", prefix="log/", records=records)
    with pytest.raises(OptionError, match="choose one with table"):
        ddbio.read_changes(tmp_path / "all/log", keys="pk")
    assert values(ddbio.read_changes(tmp_path / "all/log", keys="pk", table="users").to_pylist()) == [
        ("MODIFY", "x", 5)
    ]
    report = ddbio.write_changes([text], tmp_path / "one", prefix="log/", records=records, table="orders")
    assert (report.records, report.foreign) == (2, 1)
    assert ddbio.read_changes(tmp_path / "one/log", keys="pk").column("pk").to_pylist() == ["a", "b"]


def test_a_table_receives_the_changes_of_its_name(tmp_path):
    """The changes of another table are only read with an option."""
    put(tmp_path, "o", joined(of_table("users", "a", 1)))
    with FakeDynamoDB(burst_at_creation=1.0) as fake:
        fake.load("orders", b'{"Item":{"pk":{"S":"a"},"n":{"N":"9"}}}\n', "pk:S")
        run = {"table": "orders", "endpoint_url": fake.endpoint_url}
        with pytest.raises(OptionError, match="of table 'orders', but of users: choose the table with source_table"):
            ddbio.replay(tmp_path, **run)
        assert ddbio.replay(tmp_path, source_table="users", **run).records == 1
        assert ddbio.read_table(**run).column("n").to_pylist() == [1]


def test_answers_and_events_are_read(tmp_path):
    """Bodies of GetRecords of both services, and events of Lambda, have records."""
    data = [base64.b64encode(joined(change(pk, 1))).decode() for pk in "ab"]
    bodies = [
        {"Records": [change("c", 1)], "NextShardIterator": "x"},
        {"Records": [{"Data": data[0], "SequenceNumber": "1"}]},
    ]
    bodies += [{"Records": [{"kinesis": {"data": data[1], "sequenceNumber": "1"}, "eventSource": "aws:kinesis"}]}]
    for number, body in enumerate(bodies):
        put(tmp_path, str(number), json.dumps(body).encode())
    assert sorted(ddbio.read_changes(tmp_path).column("pk").to_pylist()) == ["a", "b", "c"]


TEXT = pa.string()
VALUE = pa.struct([("s", TEXT), ("n", TEXT), ("b", TEXT), ("bool", pa.bool_()), ("null", pa.bool_()),
                   ("ss", pa.list_(TEXT)), ("l", pa.list_(pa.struct([("s", TEXT), ("n", TEXT)]))),
                   ("m", pa.map_(TEXT, pa.struct([("s", TEXT), ("n", TEXT)])))])  # fmt: skip
TWICE = base64.b64encode(base64.b64encode(b"\x00\xff")).decode()
WIDE = {"pk": {"s": "a"}, "n": {"n": "12345678901234567890"}, "b": {"b": TWICE}, "f": {"bool": True},
        "z": {"null": True}, "t": {"ss": ["x"]},
        "l": {"l": [{"s": "q"}, {"n": "1"}]}, "m": {"m": [("k", {"s": "v"})]}}  # fmt: skip
JSON = {"pk": {"S": "a"}, "n": {"N": "12345678901234567890"}, "b": {"B": TWICE}, "f": {"BOOL": True},
        "z": {"NULL": True}, "t": {"SS": ["x"]},
        "l": {"L": [{"S": "q"}, {"N": "1"}]}, "m": {"M": {"k": {"S": "v"}}}}  # fmt: skip
IMAGES = {
    "map of structs": (pa.map_(TEXT, VALUE), list(WIDE.items())),
    "struct": (pa.struct([(name, VALUE) for name in WIDE]), WIDE),
    "text": (TEXT, json.dumps(JSON)),
    "map of texts": (pa.map_(TEXT, TEXT), [(name, json.dumps(value)) for name, value in JSON.items()]),
}
AT = datetime(2026, 11, 1, 0, 0, 3, 123000, tzinfo=UTC)
TIMES = {
    "timestamp": (pa.timestamp("ms"), AT),
    "timestamp of a zone": (pa.timestamp("us", "UTC"), AT),
    "bigint": (pa.int64(), 1793491203123),
    "double": (pa.float64(), 1793491203123.0),
    "decimal": (pa.decimal128(20, 0), Decimal(1793491203123)),
    "digits": (TEXT, "1793491203123"),
    "iso": (TEXT, "2026-11-01T00:00:03.123Z"),
    "text of a time": (TEXT, "2026-11-01 00:00:03.123"),
}


def converted(image, at):
    """Return a row as Firehose converts a record, with Glue types for its images and its time."""
    (kind, value), (time_kind, time) = IMAGES[image], TIMES[at]
    inside = pa.struct([("approximatecreationdatetime", time_kind), ("keys", kind), ("newimage", kind)])
    keys = {
        "map of structs": [("pk", WIDE["pk"])],
        "struct": {"pk": WIDE["pk"]},
        "text": '{"pk":{"S":"a"}}',
        "map of texts": [("pk", '{"S":"a"}')],
    }[image]
    row = {"eventname": "INSERT", "eventid": "1", "dynamodb": {"approximatecreationdatetime": time, "keys": keys, "newimage": value}}  # fmt: skip # noqa: E501
    return pa.Table.from_pylist([row], pa.schema([("eventname", TEXT), ("eventid", TEXT), ("dynamodb", inside)]))


@pytest.mark.parametrize(
    ("image", "at"), [*itertools.product(IMAGES, ["timestamp", "bigint"]), *itertools.product(["text"], TIMES)]
)
def test_rows_of_any_types_of_glue_are_records(image, at):
    """Images may be maps, structs and texts. Times may be times, numbers and texts."""
    actual = DeliveredReader().read_rows(converted(image, at))
    assert not actual.failures
    (record,) = map(json.loads, actual.changes)
    assert record["dynamodb"]["NewImage"] == JSON
    assert record["dynamodb"]["Keys"] == {"pk": {"S": "a"}}
    times = {1793491203123000: "MICROSECOND", 1793491203123: None}
    time = record["dynamodb"]["ApproximateCreationDateTime"]
    assert times[time] == record["dynamodb"].get("ApproximateCreationDateTimePrecision")


@pytest.mark.parametrize("image", IMAGES)
def test_files_that_firehose_converted_are_read(tmp_path, image):
    """Parquet, with times of Hive, and ORC are read.

    Binary of Kinesis is decoded twice, regardless of missing columns.
    """
    pq.write_table(converted(image, "timestamp"), tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    pyarrow.orc.write_table(converted(image, "timestamp"), tmp_path / "2.orc")
    rows = ddbio.read_changes(tmp_path).to_pylist()
    assert [(row["_event_time"], row["n"], row["b"]) for row in rows] == [(AT, 12345678901234567890, b"\x00\xff")] * 2


def test_rows_that_lost_something_are_no_changes():
    """A double has lost digits of a sequence number. An attribute needs a type."""
    inside = {"ApproximateCreationDateTime": 1793491203, "Keys": {"pk": {"S": "a"}}}
    for more, reason in (({"SequenceNumber": 1e20}, "has lost digits"), ({"NewImage": {"n": {"N": None}}}, "NewImage")):
        rows = pa.Table.from_pylist([{"eventName": "MODIFY", "dynamodb": inside | more}])
        (failure,) = DeliveredReader().read_rows(rows).failures
        assert reason in failure.reason
