"""Sources of change records: the table, the unit of time, and the number of base64 encodings of binary values."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pytest

from ddbio.items.change_lines import checked_changes, ticks_per_second
from ddbio.items.stream_records import once_encoded, table_of

ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders/stream/2026-11-01T00:00:00.000"


def b64(data):
    """Return bytes as base64."""
    return base64.b64encode(data).decode()


def twice(data):
    """Return bytes as Kinesis Data Streams for DynamoDB encodes them."""
    return b64(b64(data).encode())


VALUES = {
    "bytes": ({"B": twice(b"\x00\xff")}, {"B": b64(b"\x00\xff")}),
    "base64 by chance": ({"B": twice(b"QUJD")}, {"B": b64(b"QUJD")}),
    "base64 of base64 by chance": ({"B": twice(b"UVVKRA==")}, {"B": b64(b"UVVKRA==")}),
    "no bytes": ({"B": ""}, {"B": ""}),
    "set": ({"BS": [twice(b"ab"), twice(b"abcd")]}, {"BS": [b64(b"ab"), b64(b"abcd")]}),
    "nested": (
        {"L": [{"M": {"B": {"B": twice(b"x")}}}, {"B": twice(b"y")}]},
        {"L": [{"M": {"B": {"B": b64(b"x")}}}, {"B": b64(b"y")}]},
    ),
    "text that looks so": ({"S": '{"B":"QUJD"}'}, {"S": '{"B":"QUJD"}'}),
}
KINESIS = {
    "service": {"recordFormat": "application/json", "tableName": "orders"},
    "table alone": {"tableName": "orders"},
    "format alone": {"recordFormat": "application/json"},
}


def record(value, more=None, name="x"):
    """Return a record with a value in its new image."""
    image = {"pk": {"S": "a"}, name: value}
    return {**(more or {}), "eventName": "MODIFY", "dynamodb": {"Keys": {"pk": {"S": "a"}}, "NewImage": image, "ApproximateCreationDateTime": 1}}  # fmt: skip # noqa: E501


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("source", KINESIS)
@pytest.mark.parametrize("kind", VALUES)
def test_binary_values_of_kinesis_are_decoded_once_more(kind, source, indent):
    """Decoding depends on the record's source, not on the value, and happens only once."""
    twice_encoded, expected = VALUES[kind]
    text = json.dumps(record(twice_encoded, KINESIS[source]), indent=indent).encode()
    decoded = once_encoded(text)
    assert json.loads(decoded)["dynamodb"]["NewImage"]["x"] == expected
    assert once_encoded(decoded) == decoded
    (change,) = checked_changes(text)
    assert change.new_image == {"pk": {"S": "a"}, "x": expected}


@pytest.mark.parametrize(
    "change",
    [
        record({"B": b64(b"QUJD")}),
        record({"B": b64(b"QUJD")}, {"eventSourceARN": ARN}),
        record({"B": b64(b"QUJD")}, name="tableName"),
        {"Records": [record({"B": b64(b"QUJD")}, {"tableName": "orders"})]},
        record({"BS": [b64(b"QUJD"), b64(b"\x00")]}, KINESIS["service"]),
        record({"L": [{"B": twice(b"x")}, {"B": b64(b"ab")}]}, KINESIS["service"]),
        record({"B": "no base64"}, KINESIS["service"]),
    ],
    ids=["stream", "arn", "attribute", "body", "one of a set", "one of a list", "no base64"],
)
def test_binary_values_of_other_sources_stay(change):
    """DynamoDB Streams encodes once.

    A record in the format of Kinesis with a value encoded once is not the service's.
    """
    text = json.dumps(change, separators=(",", ":")).encode()
    assert once_encoded(text) == text


def test_each_record_of_a_text_has_its_own_source():
    """From the first text that is not JSON, nothing is changed."""
    parts = [record({"B": twice(b"abc")}, KINESIS["service"]), record({"B": b64(b"QUJD")})]
    text = "\n".join(map(json.dumps, [*parts, parts[0]]))
    decoded = once_encoded(f"{text} no json {text}".encode()).decode()
    assert [decoded.count(json.dumps(value)) for value in (b64(b"abc"), twice(b"abc"), b64(b"QUJD"))] == [2, 2, 2]


@pytest.mark.parametrize(
    ("more", "table"),
    [
        ({"tableName": "orders"}, "orders"),
        ({"eventSourceARN": ARN}, "orders"),
        ({"eventSourceARN": ARN.partition("/stream")[0]}, "orders"),
        ({"eventSourceARN": "arn:aws-cn:dynamodb:cn-north-1:1:table/a.b-c_d/stream/x"}, "a.b-c_d"),
        ({"tableName": "users", "eventSourceARN": ARN}, "users"),
        ({"tableName": None}, None),
        ({"eventSourceARN": "arn:aws:kinesis:eu-west-1:1:stream/orders"}, None),
        ({}, None),
    ],
)
def test_a_record_names_its_table(more, table):
    """The name is ``tableName``, or in the ARN of the stream."""
    assert table_of(more) == table


@pytest.mark.parametrize(
    ("time", "precision", "ticks"),
    [
        ("1627046330", None, 1),
        ("1.627046330e9", None, 1),
        ("0", None, 1),
        ("253402300799", None, 1),
        ("253402300800", None, 1_000),
        ("1627046330199", None, 1_000),
        ("1627046330199", "NANOSECOND", 1_000),
        ("253402300799999", None, 1_000),
        ("253402300800000", None, 1_000_000),
        ("1721011165891550", None, 1_000_000),
        ("1627046330", "MILLISECOND", 1_000),
        ("1627046330199", "MICROSECOND", 1_000_000),
        ("-62135596800", None, 1),
    ],
)
def test_the_unit_of_a_time_is_stated_or_follows_from_its_magnitude(time, precision, ticks):
    """Seconds end with the year 9999, when milliseconds are at 1978."""
    assert ticks_per_second(Decimal(time), precision) == ticks
