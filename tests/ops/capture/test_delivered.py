"""Objects as Firehose delivers them: read to rows, written, replayed into a log and into a table."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.core.capture.plain_lines import text_parts
from ddbio.core.capture.transform import change_line
from ddbio.errors import DecodeError, LimitError, NotFoundError, OptionError
from ddbio.ops.capture import delivery
from ddbio.testing import FakeDynamoDB
from tests.ops.capture.test_capture import rows_of

HOUR = "2026/11/01/00"


def change(pk, number, operation="MODIFY", **more):
    """Return a record as Kinesis Data Streams for DynamoDB has it."""
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
    """Return records behind each other without line ends, as Firehose writes them."""
    return "".join(json.dumps(each, separators=(",", ":")) for each in records).encode()


def put(folder, path, data):
    """Write a file, and the folders above it."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


def failed(raw, **more):
    """Return a line as Firehose writes it below the error prefix."""
    line = {"attemptsMade": 4, "arrivalTimestamp": 1793491200000, "errorCode": "Lambda.FunctionError",
            "errorMessage": "it failed", "attemptEndingTimestamp": 1793491260000,
            "rawData": base64.b64encode(raw).decode()}  # fmt: skip
    return json.dumps(line | more).encode() + b"\n"


def values(rows):
    """Return operation, key and number of each row."""
    return [(row["_op"], row["pk"], row["n"]) for row in rows]


def test_records_are_read_in_every_form(tmp_path):
    """Gzip and plain, with and without line ends, from folders of hours of both kinds: rows as a capture's log has."""
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
    assert [row["_sequence"] for row in rows[3:]] == ["1793491203000004000000", "111"]
    assert rows[0]["_event_time"].isoformat() == "2026-11-01T00:00:03.000001+00:00"


def test_what_comes_twice_is_read_once(tmp_path):
    """A record whose event id came before in the object is left out; equal times have numbers of their own."""
    records = [change("a", 1), change("b", 1), change("a", 1)]
    put(tmp_path, "one", joined(*records))
    rows = ddbio.read_changes(tmp_path).to_pylist()
    assert values(rows) == [("MODIFY", "a", 1), ("MODIFY", "b", 1)]
    assert [row["_sequence"][-6:] for row in rows] == ["000000", "000001"]


def test_transformed_lines_are_read_with_their_keys(tmp_path):
    """Lines of the transformation function need to know the key; a schema says what is binary, and a set."""
    line, _ = change_line(json.dumps(change("a", 12345678901234567890)).encode())
    put(tmp_path, "lines.gz", gzip.compress(f"{line}\n".encode() * 2))
    with pytest.raises(DecodeError, match="say with keys"):
        ddbio.read_changes(tmp_path)
    (row,) = ddbio.read_changes(tmp_path, keys="pk").to_pylist()
    assert (row["n"], row["tags"], row["b"]) == (Decimal(12345678901234567890), ["x"], "AAE=")
    items = json.dumps({"Item": change("a", 1)["dynamodb"]["NewImage"]}).encode()
    (row,) = ddbio.read_changes(tmp_path, keys="pk", schema=ddbio.infer_schema(items)).to_pylist()
    assert (row["tags"], row["b"]) == (["x"], b"\x00\x01")


def test_parquet_is_read_in_both_layouts(tmp_path):
    """Converted lines have typed columns; converted records have structs, whose own names may be in lower case."""
    lines = pa.table({"_op": ["INSERT", "REMOVE"], "_event_time": ["2026-11-01T00:00:03.000001+00:00"] * 2,
                      "_expired": [False, True], "pk": ["a", "b"], "n": [Decimal("1.5"), None]})  # fmt: skip
    pq.write_table(lines, tmp_path / "lines.parquet")
    found = ddbio.read_changes(tmp_path, keys="pk").to_pylist()
    assert [(*each, row["_expired"]) for each, row in zip(values(found), found, strict=True)] == [
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


def test_times_choose_changes_and_folders(tmp_path):
    """Changes are taken by their own times; folders of days long before are not read at all."""
    put(tmp_path, "2026/10/01/00/old", b"not read")
    put(tmp_path, f"{HOUR}/new", joined(change("a", 1), change("b", 2)))
    found = ddbio.read_changes(tmp_path, since="2026-11-01T00:00:03.000002Z", until="2026-11-01T00:00:03.000003Z")
    assert values(found.to_pylist()) == [("MODIFY", "b", 2)]


def test_what_is_no_change_goes_to_the_error_prefix(tmp_path):
    """The reason and the bytes are kept in Firehose's form, whatever lies behind a bad record is read."""
    bad = b'{"half":' + joined(change("a", 1)) + b'{"Item":{}}' + joined(change("b", 2))
    put(tmp_path, f"in/{HOUR}/one", bad)
    put(tmp_path, f"in/{HOUR}/two", failed(b"left out, for it failed before"))
    with pytest.raises(DecodeError, match="one: 2 of its records are no changes"):
        ddbio.read_changes(tmp_path / "in")
    for _ in range(2):
        found = ddbio.read_changes(tmp_path / "in", reject_to=str(tmp_path / "errors"))
        assert values(found.to_pylist())[-1] == ("MODIFY", "b", 2)
    (kept,) = (each for each in (tmp_path / "errors/processing-failed").rglob("*") if each.is_file())
    lines = [json.loads(line) for line in kept.read_bytes().splitlines()]
    assert {"attemptsMade", "arrivalTimestamp", "errorCode", "errorMessage", "rawData"} <= lines[0].keys()
    assert base64.b64decode(lines[-1]["rawData"]) == b'{"Item":{}}'
    with pytest.raises(NotFoundError):
        ddbio.read_changes(tmp_path / "nothing")
    late = change("a", 1)
    late["dynamodb"] |= {"ApproximateCreationDateTime": 1793491200123}
    late["dynamodb"].pop("ApproximateCreationDateTimePrecision", None)
    put(tmp_path, f"late/{HOUR}/one", joined(late))
    with pytest.raises(DecodeError, match="1793491200123 counts no seconds"):
        ddbio.read_changes(tmp_path / "late")


def test_a_replay_puts_each_object_through_once(tmp_path):
    """Failed records go to the log by their hours; a second run does nothing, a new object alone is put through."""
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
    (kept,) = (each for each in (tmp_path / "still/processing-failed").rglob("*") if each.is_file())
    assert json.loads(kept.read_bytes())["attemptsMade"] == 3
    assert len(rows_of(log)) == 3


def test_a_replay_that_is_cut_off_writes_the_same_files(tmp_path):
    """Without its note an object is put through again, into the files that are there."""
    source, log = tmp_path / "errors", tmp_path / "log"
    put(source, "a", failed(joined(change("a", 1))))
    ddbio.replay(source, log)
    (note,) = (each for each in log.glob("_ddbio/*.replay/*.json") if each.stem != "columns")
    note.unlink()
    assert ddbio.replay(source, log).records == 1
    assert len(rows_of(log)) == 1


def test_a_replay_applies_changes_to_a_table(tmp_path):
    """The last change of each item is applied, deletes too; a newer item stays with newer_by."""
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
def test_what_is_written_is_read_back(tmp_path, records):
    """Both layouts, with dynamic partitions or times, in small objects, and failures below the error prefix."""
    reply = json.dumps({"Records": [change("a", 1), change("b", 2)], "NextShardIterator": "x"}).encode()
    prefix = {"lines": "log/year=!{partitionKeyFromLambda:year}/", "raw": "log/!{timestamp:yyyy/MM/dd/HH}/"}[records]
    report = ddbio.write_changes(
        [reply, joined(change("c", 3)) + b"no change"], tmp_path, prefix=prefix, records=records, buffer_bytes=1024
    )
    assert (report.records, report.rejected, report.files) == (3, 1, 2)
    (good,) = (each for each in (tmp_path / "log").rglob("*.gz"))
    assert good.parent.name == "year=2026" if records == "lines" else good.name.startswith("ddbio-1-20")
    found = ddbio.read_changes(tmp_path / "log", keys="pk")
    assert values(found.to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2), ("MODIFY", "c", 3)]
    (bad,) = (tmp_path / "processing-failed").rglob("*.gz")
    assert b"rawData" in gzip.decompress(bad.read_bytes())
    for wrong in ("!{timestamp:QQ}/", "!{unknown:x}/", "!{timestamp"):
        with pytest.raises(OptionError):
            ddbio.write_changes([reply], tmp_path, prefix=wrong)


def test_all_of_several_answers_is_written(tmp_path):
    """A text may have one answer of GetRecords behind the other, and lines that are none."""
    answers = [{"Records": [change("a", 1)], "NextShardIterator": "x"}, {"NextShardIterator": "y"}, {"Records": []}]
    text = b"\n".join(json.dumps(each).encode() for each in [*answers, {"Records": [change("b", 2)]}])
    report = ddbio.write_changes([text + b"\nno change\n" + joined(change("c", 3))], tmp_path, prefix="log/")
    assert (report.records, report.rejected) == (3, 1)
    found = ddbio.read_changes(tmp_path / "log", keys="pk")
    assert values(found.to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2), ("MODIFY", "c", 3)]


def test_records_that_came_twice_are_read_once(tmp_path):
    """Whether there are blanks in them or not."""
    once = joined(change("a", 1), change("b", 2))
    (tmp_path / "object").write_bytes(once + once.replace(b'"eventID":', b'"eventID" : '))
    assert values(ddbio.read_changes(tmp_path, keys="pk").to_pylist()) == [("MODIFY", "a", 1), ("MODIFY", "b", 2)]


@pytest.mark.parametrize("records", ["lines", "raw"])
def test_parts_of_a_text_are_written_as_the_whole_is(tmp_path, monkeypatch, records):
    """Records that came in an earlier part, odd ones, and what is none: only their part is read one by one."""
    found = [joined(change(f"k{number}", number)) for number in range(60)]
    found[20] = found[20].replace(b'"eventID":', b'"eventID" : ')
    text = b"\n".join([*found[:30], b"no change", *found[30:], found[3], joined(change("_op", 70)), found[20]])
    reports, read = [], []
    for way, part_bytes in (("whole", 1 << 20), ("parts", 1500)):
        monkeypatch.setattr(delivery, "text_parts", functools.partial(text_parts, part_bytes=part_bytes))
        reports.append(ddbio.write_changes([text], tmp_path / way, prefix="log/", records=records))
        (good,) = (tmp_path / way / "log").rglob("*.gz")
        read.append(gzip.decompress(good.read_bytes()))
    assert len(list(text_parts(text, 1500))) > 5
    assert [(each.records, each.rejected) for each in reports] == [(61, 1)] * 2
    assert read[0] == read[1]


@pytest.mark.parametrize("prefix", ["log/", "log/hour=!{partitionKeyFromLambda:hour}/"])
@pytest.mark.parametrize("buffer_bytes", [1024, 4000])
def test_many_lines_go_to_the_objects_that_single_ones_go_to(tmp_path, prefix, buffer_bytes):
    """A text of records alone is printed by the loops; something else in it, and each is printed by itself."""
    hours = [number // 7 % 3 for number in range(100)]
    found = [change(f"k{number}", number) for number in range(100)]
    for each, hour in zip(found, hours, strict=True):
        each["dynamodb"]["ApproximateCreationDateTime"] += hour * 3_600_000_000
    options = {"prefix": prefix, "buffer_bytes": buffer_bytes}
    quick = ddbio.write_changes([joined(*found[:40]), joined(*found[40:])], tmp_path / "quick", **options)
    # A blank that the service does not send.
    slow = [joined(*part).replace(b'"eventID":', b'"eventID" : ') for part in (found[:40], found[40:])]
    assert ddbio.write_changes(slow, tmp_path / "slow", **options).files == quick.files
    objects = [
        sorted((path.parent.name, gzip.decompress(path.read_bytes())) for path in (tmp_path / way).rglob("*.gz"))
        for way in ("quick", "slow")
    ]
    assert objects[0] == objects[1]
    assert len(objects[0]) == quick.files > 3
    assert quick.records == 100
