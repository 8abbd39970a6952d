"""Records of a Kinesis data stream: changes of the table among other records."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest

from ddbio.cdc.kinesis_records import KinesisDecoder
from ddbio.errors import DecodeError

SCHEMA = pa.schema([("pk", pa.string()), ("n", pa.int64())])


def change(pk, table="orders", **more):
    """Return a record of a change as the service writes it."""
    inside = {
        "ApproximateCreationDateTime": 1793491203123,
        "Keys": {"pk": {"S": pk}},
        "NewImage": {"pk": {"S": pk}, "n": {"N": "1"}},
    }
    return {
        "awsRegion": "eu-west-1",
        "eventID": f"id-{pk}",
        "eventName": "INSERT",
        "tableName": table,
        "dynamodb": inside,
    } | more


def text_of(record, **options):
    """Return a record as text."""
    return json.dumps(record, **({"separators": (",", ":")} | options)).encode()


def decoded(*texts):
    """Return the rows of a reply with these records."""
    records = [
        {"SequenceNumber": str(100 + number), "Data": base64.b64encode(text).decode(), "PartitionKey": "x"}
        for number, text in enumerate(texts)
    ]
    return KinesisDecoder(SCHEMA, ["pk"], "orders").decode(text_of({"Records": records, "MillisBehindLatest": 0}))


FOREIGN = {
    "another table": text_of(change("x", "users")),
    "a table whose name is longer": text_of(change("x", "orders-2")),
    "another table that names this one": text_of(change("orders", "users")),
    "blanks": text_of(change("x", "users"), indent=1),
    "other keys": text_of(
        change("x", "users", dynamodb={"Keys": {"id": {"N": "1"}}, "ApproximateCreationDateTime": 1})
    ),
    "bytes": b"\x00\xff",
    "gzip": base64.b64decode("H4sIAAAAAAAAA6sGAEO/pqMCAAAA"),
    "no JSON": b"orders",
    "other JSON": b'{"event":"click"}',
    "an array": b"[1,2]",
    "a number": b"1",
    "nothing": b"",
    "a name alone": b'{"tableName":"orders","dynamodb":"x"}',
    "half a change": b'{"tableName":"orders","eventName":"INSERT","eventID":"q","dynamodb":{"Keys":',
    "within": b'{"x":' + text_of(change("x")) + b"}",
    "aggregated": b"\xf3\x89\x9a\xc2\n\x01a\x1aJ" + text_of(change("x")) + bytes(16),
}


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("kind", FOREIGN)
def test_records_that_are_not_changes_of_the_table_are_counted(kind, index):
    """It holds at any position in the reply, and the position advances past the record."""
    texts = [text_of(change("a")), text_of(change("b"))]
    texts.insert(index, FOREIGN[kind])
    actual = decoded(*texts)
    assert actual.rows.column("pk").to_pylist() == ["a", "b"]
    assert (actual.foreign, actual.to, len(actual.texts)) == (1, "102", 2)
    alone = decoded(FOREIGN[kind])
    assert (alone.rows.num_rows, alone.foreign, alone.to) == (0, 1, "100")


@pytest.mark.parametrize("options", [{"separators": (", ", " : ")}, {"indent": 2}, {"sort_keys": True}])
@pytest.mark.parametrize("prefix", [b"", b" ", b"\n"])
def test_whitespace_hides_no_change(options, prefix):
    """Any whitespace in a record is accepted."""
    actual = decoded(prefix + text_of(change("a"), **options), text_of(change("b")))
    assert actual.rows.column("pk").to_pylist() == ["a", "b"]
    assert actual.foreign == 0


@pytest.mark.parametrize("more", [{"eventID": None}, {"eventName": None}, {"dynamodb": {}}])
def test_a_change_of_the_table_that_lacks_something_is_refused(more):
    """The record cannot be left out: the log would lack the change."""
    with pytest.raises(DecodeError):
        decoded(text_of(change("a")), text_of(change("b", **more)))
