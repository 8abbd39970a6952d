from __future__ import annotations

import base64
import json
import random

import pyarrow as pa
import pytest
from comparison import assert_same
from item_generator import Generator
from mutation import mutate

import ddbio
from ddbio.errors import DecodeError, SchemaError
from ddbio.items.change_lines import checked_changes
from ddbio.items.changes import ChangeDecoder, change_batch
from ddbio.items.json_text import parse_documents
from ddbio.items.kernel.decode import decoder as decoder_module
from ddbio.items.rescue import MisfitLog

SCHEMA = pa.schema([("pk", pa.string()), ("sk", pa.string()), ("total", pa.int64())])
LINES = b"""\
{"Metadata":{"WriteTimestampMicros":{"N":"1793491200123456"}},"Keys":{"pk":{"S":"a"},"sk":{"S":"1"}},"NewImage":{"pk":{"S":"a"},"sk":{"S":"1"},"total":{"N":"7"}}}
{"Metadata":{"WriteTimestampMicros":"1793491203000001"},"Keys":{"pk":{"S":"a"},"sk":{"S":"2"}},"OldImage":{"pk":{"S":"a"},"total":{"N":"12.5"}},"NewImage":{"pk":{"S":"a"},"sk":{"S":"2"},"x":{"BOOL":true}}}
{"Keys":{"sk":{"S":"1"},"pk":{"S":"b"}},"Metadata":{"WriteTimestampMicros":1793491207000009},"OldImage":{}}
{"OldImage":{"total":{"N":"3"}},"NewImage":{},"Keys":{"pk":{"S":"c"}},"Metadata":{"WriteTimestampMicros":-1}}
"""
RECORDS = b"""\
{"Records":[
{"eventID":"1","eventName":"INSERT","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"eu-west-1","dynamodb":{"ApproximateCreationDateTime":1.47949974E9,"Keys":{"pk":{"S":"a"},"sk":{"S":"1"}},"NewImage":{"pk":{"S":"a"},"sk":{"S":"1"},"total":{"N":"1"}},"SequenceNumber":"1","SizeBytes":26,"StreamViewType":"NEW_AND_OLD_IMAGES"},"eventSourceARN":"arn"},
{"eventName":"MODIFY","dynamodb":{"ApproximateCreationDateTime":1793491200.5,"Keys":{"pk":{"S":"a"}}},"userIdentity":null},
{"userIdentity":{"type":"Service","principalId":"dynamodb.amazonaws.com"},"dynamodb":{"Keys":{"pk":{"S":"b"}},"OldImage":{"total":{"N":"2"}},"ApproximateCreationDateTimePrecision":"MICROSECOND","ApproximateCreationDateTime":1793491200123456},"eventName":"REMOVE"},
{"dynamodb":{"NewImage":{"total":{"N":"2"}},"Keys":{"pk":{"S":"b"}},"ApproximateCreationDateTime":1793491200123,"ApproximateCreationDateTimePrecision":"MILLISECOND"},"tableName":"t"}
],"NextShardIterator":"arn:\\"x"}
"""
REFUSED = [
    b'{"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":1}}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{},"Other":{}}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{"pk":{"S":1}}}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{},"NewImage":null}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{}',
    b'{"Metadata":{"WriteTimestampMicros":1},"Keys":{},}',
    b'{"Metadata":{"WriteTimestampMicros":{"N":1}},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":{"B":"MQ=="}},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":{"S":"1","N":"1"}},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":{"N":"1"},"More":1},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":01},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":1.5},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":"1.5"},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":"9223372036854775808"},"Keys":{}}',
    b'{"Metadata":{"WriteTimestampMicros":true},"Keys":{}}',
    b'{"Metadata":{},"Keys":{}}',
    b'{"Item":{}}',
    b"[]",
    b'{"dynamodb":{"NewImage":{}}}',
    b'{"dynamodb":{"Keys":{}}}',
    b'{"Records":{}}',
    b'{"Records":[{"Metadata":{"WriteTimestampMicros":1},"Keys":{}}]}',
    b'{"Records":[{"dynamodb":{"Keys":{},"ApproximateCreationDateTime":1}},]}',
    b'{"Records":[],"Records":[]}',
    b'{"dynamodb":{"Keys":{},"ApproximateCreationDateTime":1},"eventID":1,"eventID":1}',
    b'{"dynamodb":{"Keys":{},"ApproximateCreationDateTime":1,"x":[1,]}}',
    b'{"dynamodb":{"Keys":{},"ApproximateCreationDateTime":"1"}}',
]


def by_reference(decoder: ChangeDecoder, body: bytes) -> object:
    """Return the batch and its misfits, or the error, of the reference."""
    log, loops = MisfitLog(), decoder._loops
    try:
        batch = change_batch(list(checked_changes(body)), loops.schema, loops._rows, log)
    except DecodeError as error:
        return error
    return batch, sorted(log.misfits(), key=repr), log.merged_nulls


def by_loops(decoder: ChangeDecoder, body: bytes) -> object:
    """Return the batch and its misfits, or the error, of the compiled loops."""
    decoder._loops.log = MisfitLog()
    try:
        batch = decoder.decode(body)
    except DecodeError as error:
        return error
    return batch, sorted(decoder.misfits, key=repr), decoder.log.merged_nulls


def stream_record(change: dict, chance: random.Random) -> dict:
    """Return a change of an export as a record of a stream."""
    time = chance.choice([chance.getrandbits(31), chance.getrandbits(31) / 64, chance.getrandbits(50), 1.4794e9, 0])
    within = {
        **{name: image for name, image in change.items() if name != "Metadata"},
        "ApproximateCreationDateTime": time,
        "SequenceNumber": str(chance.getrandbits(60)),
        "SizeBytes": chance.getrandbits(10),
    }
    if chance.random() < 0.4:
        within["ApproximateCreationDateTimePrecision"] = chance.choice(["MILLISECOND", "MICROSECOND", "SECOND", ""])
    record = {
        "eventID": f"{chance.getrandbits(64):x}",
        "eventName": chance.choice(["INSERT", "MODIFY", "REMOVE", None]),
        "dynamodb": dict(chance.sample(list(within.items()), len(within))),
        "userIdentity": chance.choice([None, {"type": "Service", "principalId": ["dynamodb", 1.5e-3, True, {}]}]),
    }
    if chance.random() < 0.2:
        del record["eventName"]
    return dict(chance.sample(list(record.items()), len(record))) if chance.random() < 0.5 else record


def records_body(lines: bytes, chance: random.Random) -> bytes:
    """Return stream records as the body of a response, or of an event."""
    records = b" , ".join(json.dumps(record, ensure_ascii=False).encode() for _, record in parse_documents(lines))
    before, after = chance.choice([("", ""), ("", ', "a":{"b":[1]}, "c":""'), ('"Next":"i",', "")])
    return f' {{ {before} "Records" : [ '.encode() + records + f" ] {after} }} ".encode()


def change_lines(generator: Generator, schema: pa.Schema, count: int, *, as_records: bool = False) -> bytes:
    """Return change lines of every format, order and notation, or stream records."""
    chance, lines = generator.random, list[bytes]()
    for _ in range(count):
        time = chance.choice([chance.getrandbits(51), chance.getrandbits(63), 0, -chance.getrandbits(40)])
        members = {
            "Metadata": {"WriteTimestampMicros": chance.choice([{"N": str(time)}, str(time), time])},
            "Keys": generator.item(list(schema)[:2]),
        }
        for name in ("NewImage", "OldImage"):
            if chance.random() < 0.6:
                members[name] = generator.item(list(schema))
        if chance.random() < 0.4:
            members = dict(chance.sample(list(members.items()), len(members)))
        if as_records:
            members = stream_record(members, chance)
        lines.append(generator.spell(members) + chance.choice([b"\n", b"\n", b"\r\n", b"", b"\n\n"]))
    return b"".join(lines)


@pytest.mark.parametrize(
    ("time", "precision", "micros"),
    [
        ("1627046330", None, 1627046330000000),
        ("1627046330.5", None, 1627046330500000),
        ("1.627046330E9", None, 1627046330000000),
        ("1627046330199", None, 1627046330199000),
        ("1627046330199.0", None, 1627046330199000),
        ("1.627046330199e12", '"NANOSECOND"', 1627046330199000),
        ("1627046330199", "null", 1627046330199000),
        ("1627046330199123", None, 1627046330199123),
        ("253402300799", None, 253402300799000000),
        ("253402300800", None, 253402300800000),
        ("253402300799999", None, 253402300799999000),
        ("253402300800000", None, 253402300800000),
        ("1627046330", '"MILLISECOND"', 1627046330000),
        ("1627046330199", '"MICROSECOND"', 1627046330199),
        ("-1627046330", None, -1627046330000000),
        ("0", None, 0),
        ("9e18", None, 9000000000000000000),
    ],
)
def test_the_unit_of_a_time_follows_from_its_magnitude(time, precision, micros):
    """The loops agree with the reference, wherever the unit is."""
    decoder = ChangeDecoder(SCHEMA, ["pk"])
    created, unit = f'"ApproximateCreationDateTime":{time}', f'"ApproximateCreationDateTimePrecision":{precision}'
    for members in ([created], [created]) if precision is None else ([created, unit], [unit, created]):
        body = f'{{"dynamodb":{{"Keys":{{"pk":{{"S":"a"}}}},{",".join(members)}}}}}'.encode()
        assert decoder.decode(body).column("write_time").to_pylist() == [micros]
        assert [change.write_time for change in checked_changes(body)] == [micros]


def test_binary_values_of_kinesis_are_decoded_twice():
    """Those of DynamoDB Streams are decoded once, even if they are base64 by chance, also in mixed texts."""
    schema = pa.schema([("pk", pa.binary()), ("n", pa.int64())])
    once, twice = (lambda data: base64.b64encode(data).decode()), (lambda data: once(once(data).encode()))
    bodies = []
    for encode, source in (
        (twice, {"tableName": "t", "recordFormat": "application/json"}),
        (once, {"eventSourceARN": "a"}),
    ):
        image = {"pk": {"B": encode(b"QUJD")}, "n": {"BS": [encode(b"ab"), encode(b"\xff")]}}
        within = {"ApproximateCreationDateTime": 1, "Keys": {"pk": image["pk"]}, "NewImage": image, "OldImage": image}
        bodies.append(json.dumps({**source, "dynamodb": within}).encode())
    for body in (bodies[0], bodies[1], b"".join(bodies), b"\n".join(reversed(bodies))):
        rows = ChangeDecoder(schema, ["pk"]).decode(memoryview(body)).to_pylist()
        for row in rows:
            rescued = {"n": {"BS": [once(b"ab"), once(b"\xff")]}}
            image = {"pk": b"QUJD", "n": None}
            assert (row["keys"], row["new_image"], row["old_image"]) == ({"pk": b"QUJD"}, image, image)
            assert json.loads(row["_rescue"]) == {"new_image": rescued, "old_image": rescued}


def drawn_decoder(generator: Generator) -> tuple[pa.Schema, ChangeDecoder]:
    """Return a schema of some attributes, and a decoder of it."""
    schema = generator.schema()
    return schema, ChangeDecoder(schema, schema.names[:2], nulls=generator.random.choice(["merge", "keep"]))


def test_changes_have_time_operation_and_images():
    """Each format of time, each order of members and each kind of change gives its row."""
    decoder = ChangeDecoder(SCHEMA, ["pk", "sk"])
    batch = decoder.decode(LINES)
    assert batch.schema.names == ["write_time", "operation", "keys", "new_image", "old_image", "_rescue"]
    assert batch.column("write_time").to_pylist() == [1793491200123456, 1793491203000001, 1793491207000009, -1]
    assert batch.column("operation").to_pylist() == ["put", "put", "delete", "put"]
    assert batch.column("keys").to_pylist()[2:] == [{"pk": "b", "sk": "1"}, {"pk": "c", "sk": None}]
    nothing = {"pk": None, "sk": None, "total": None}
    assert batch.column("new_image").to_pylist()[2:] == [None, nothing]
    assert batch.column("old_image").to_pylist() == [None, {**nothing, "pk": "a"}, nothing, {**nothing, "total": 3}]
    rescued = {"new_image": {"x": {"BOOL": True}}, "old_image": {"total": {"N": "12.5"}}}
    assert [text and json.loads(text) for text in batch.column("_rescue").to_pylist()] == [None, rescued, None, None]
    assert {misfit.path for misfit in decoder.misfits} == {"new_image.x", "old_image.total"}


def test_compact_and_loose_changes_never_leave_the_loops(monkeypatch):
    """No well-formed change of an export needs the reference."""
    decoder = ChangeDecoder(SCHEMA, ["pk", "sk"])
    monkeypatch.setattr(decoder._loops, "_decode_in_python", None)
    loose = b"\n".join(json.dumps(json.loads(line), indent=1).encode() for line in LINES.splitlines())
    assert decoder.decode(LINES).equals(decoder.decode(loose))


@pytest.mark.parametrize("part", range(4))
def test_the_loops_equal_the_reference_on_changes(part):
    """Generated changes of all types, formats and orders give the same batch and the same misfits."""
    for seed in range(part * 25, part * 25 + 25):
        generator = Generator(seed)
        schema, decoder = drawn_decoder(generator)
        body = change_lines(generator, schema, 60)
        assert_same(by_loops(decoder, body), by_reference(decoder, body), body)


@pytest.mark.parametrize("part", range(4))
def test_the_loops_equal_the_reference_on_stream_records(part):
    """Generated records, by line and in bodies, of all formats and orders give the same batch and the same misfits."""
    for seed in range(part * 15, part * 15 + 15):
        generator = Generator(seed)
        schema, decoder = drawn_decoder(generator)
        lines = change_lines(generator, schema, 30, as_records=True)
        for body in (lines, records_body(lines, generator.random), lines + records_body(lines, generator.random)):
            assert_same(by_loops(decoder, body), by_reference(decoder, body), body)


def test_no_record_leaves_the_loops(monkeypatch):
    """No well-formed record of a stream needs the reference, in lines, in a body, compact or not."""
    decoder = ChangeDecoder(SCHEMA, ["pk", "sk"])
    monkeypatch.setattr(decoder._loops, "_decode_in_python", None)
    body = json.loads(RECORDS)
    forms = [RECORDS, json.dumps(body).encode(), json.dumps(body, indent=1).encode()]
    forms.append(b"\n".join(json.dumps(record).encode() for record in body["Records"]))
    batches = [decoder.decode(form) for form in forms]
    assert batches[0].column("operation").to_pylist() == ["put", "put", "delete", "put"]
    times = [1479499740000000, 1793491200500000, 1793491200123456, 1793491200123000]
    assert batches[0].column("write_time").to_pylist() == times
    assert all(batch.equals(batches[0]) for batch in batches)
    assert decoder.decode(b'{"Records":[]}').num_rows == 0


def test_bodies_are_cut_and_grown_without_a_change(monkeypatch):
    """Bodies far longer than a slice, whose records are on separate lines, in blocks, give the same batch."""
    monkeypatch.setattr(decoder_module, "SLICE_BYTES", 300)
    record = json.dumps(json.loads(RECORDS)["Records"][0]).encode()
    decoder = ChangeDecoder(SCHEMA, ["pk", "sk"])
    for last in (record, b'{"dynamodb":{}}', b"{"):
        body = b'{"Records":[\n' + b",\n".join([record] * 200 + [last]) + b"\n]}\n" + record + b"\n"
        assert_same(by_loops(decoder, body), by_reference(decoder, body), body[-500:])


def test_a_schema_is_inferred_from_changes():
    """Keys and images of changes, of an export and of a stream, determine the items' schema."""
    for body in (LINES, RECORDS):
        schema = ddbio.infer_schema(body).to_arrow()
        assert set(schema.names) >= {"pk", "sk", "total"}
        batch = ChangeDecoder(schema, ["pk", "sk"]).decode(body)
        assert batch.column("_rescue").null_count == 4


def test_changes_are_no_items():
    """Changes are not decoded as items, with a schema or without."""
    for schema in (None, SCHEMA):
        with pytest.raises(DecodeError, match="ChangeDecoder"):
            ddbio.from_dynamodb_json(LINES, schema)


@pytest.mark.parametrize("as_records", [False, True])
def test_damaged_changes_get_the_answer_of_the_reference(*, as_records):
    """A damaged line, record or body is refused with the reference's error, or decoded as by the reference."""
    outcomes = [0, 0]
    for seed in range(40):
        generator = Generator(seed)
        schema, decoder = drawn_decoder(generator)
        sound = change_lines(generator, schema, generator.random.randrange(1, 5), as_records=as_records)
        if as_records:
            sound = generator.random.choice([sound, records_body(sound, generator.random)])
        for _ in range(25):
            body = mutate(sound, generator.random)
            expected = by_reference(decoder, body)
            assert_same(by_loops(decoder, body), expected, body)
            outcomes[isinstance(expected, tuple)] += 1
    assert min(outcomes) > 5


@pytest.mark.parametrize("text", [LINES, RECORDS], ids=["lines", "records"])
def test_truncated_changes_get_the_answer_of_the_reference(text):
    """Lines and bodies cut at every byte are refused or decoded as by the reference."""
    decoder = ChangeDecoder(SCHEMA, ["pk", "sk"])
    for stop in range(len(text) + 1):
        assert_same(by_loops(decoder, text[:stop]), by_reference(decoder, text[:stop]), text[:stop])


def test_pieces_and_grown_arrays_change_no_change(monkeypatch):
    """Lines cut into pieces far smaller than themselves, and arrays that grow often, give the same batch."""
    monkeypatch.setattr(decoder_module, "SLICE_BYTES", 100)
    generator = Generator(78)
    schema = pa.schema([generator.field(name, 2) for name in ("pk", "sk", "a", "n", "naïve")])
    decoder = ChangeDecoder(schema, ["pk", "sk"])
    body = change_lines(generator, schema, 700)
    assert_same(by_loops(decoder, body), by_reference(decoder, body), body)


@pytest.mark.parametrize("line", REFUSED)
def test_only_changes_are_accepted(line):
    """A line that is not exactly one change is refused, with the number of the line."""
    with pytest.raises(DecodeError, match=r"line 5"):
        ChangeDecoder(SCHEMA, ["pk", "sk"]).decode(LINES + line)


def test_stream_records_are_changes():
    """Records of DynamoDB Streams, and their copies in Kinesis, give the same columns."""
    images = {"Keys": {"pk": {"S": "a"}}, "NewImage": {"pk": {"S": "a"}, "total": {"N": "1"}}}
    records = [
        {"eventName": "INSERT", "dynamodb": {**images, "ApproximateCreationDateTime": 1793491200.5}},
        {
            "eventName": "MODIFY",
            "dynamodb": {
                **images,
                "ApproximateCreationDateTime": 1793491200123456,
                "ApproximateCreationDateTimePrecision": "MICROSECOND",
            },
        },
        {
            "eventName": "REMOVE",
            "dynamodb": {
                "Keys": {"pk": {"S": "b"}},
                "OldImage": {"total": {"N": "2"}},
                "ApproximateCreationDateTime": 1793491200,
                "SequenceNumber": "1",
            },
        },
    ]
    body = "\n".join(json.dumps(record) for record in records).encode()
    batch = ChangeDecoder(SCHEMA, ["pk"]).decode(body)
    assert batch.column("operation").to_pylist() == ["put", "put", "delete"]
    assert batch.column("write_time").to_pylist() == [1793491200500000, 1793491200123456, 1793491200000000]
    assert batch.column("old_image").to_pylist()[2] == {"pk": None, "sk": None, "total": 2}


def test_misfits_of_changes_may_fail():
    """With on_misfit=fail the first value that fits no column raises an error that names its image."""
    with pytest.raises(SchemaError, match=r"^keys\.sk"):
        ChangeDecoder(SCHEMA, ["pk"], on_misfit="fail").decode(LINES)


def test_keys_must_be_in_the_schema():
    """A key that the schema lacks is refused."""
    with pytest.raises(SchemaError, match="pks"):
        ChangeDecoder(SCHEMA, ["pks"])


def test_no_changes_give_no_rows():
    """An empty file gives an empty batch of the same schema."""
    decoder = ChangeDecoder(SCHEMA, ["pk"])
    assert decoder.decode(b"").schema.equals(decoder.schema, check_metadata=True)
    assert decoder.decode(b"\n").num_rows == 0
