"""Keys of indexes: rows that would make DynamoDB refuse their batch are refused before, one by one."""

import json

import pyarrow as pa
import pytest

from ddbio.aws.table_description import IndexKey
from ddbio.items.encode import EncodeOptions, Encoder

HASH = IndexKey("mail", "S", 2048, "by_mail")
RANGE = IndexKey("mail", "S", 1024, "by_day")
BINARY = IndexKey("mail", "B", 1024, "by_day")
JSON = {"ddb:type": "JSON"}


def refused(column, *index_keys, metadata=None, name="mail"):
    """Return row, rule and message of each refusal."""
    schema = pa.schema([pa.field("pk", pa.string()), pa.field(name, column.type, metadata=metadata)])
    rows = pa.RecordBatch.from_arrays([pa.array(["a"] * len(column)), column], schema=schema)
    encoder = Encoder(schema, keys={"pk": "S"}, options=EncodeOptions(index_keys=index_keys))
    return [(refusal.row, refusal.rule, refusal.message) for refusal in encoder.encode(rows).refusals]


def test_a_row_without_the_key_is_no_part_of_the_index():
    """An item without an index key is valid, with any type of the empty column."""
    assert refused(pa.array(["x", None]), HASH) == []
    assert refused(pa.nulls(2), HASH) == []


CASES = {
    "empty": (pa.array(["x", ""]), [HASH], None, "key_empty", "the key of index 'by_mail' is empty"),
    "empty binary": (pa.array([b"x", b""]), [BINARY], None, "key_empty", "the key of index 'by_day' is empty"),
    "long": (
        pa.array(["x" * 2048, "x" * 2049]),
        [HASH],
        None,
        "key_length",
        "the key of index 'by_mail' has more than 2,048 bytes",
    ),
    "long sort key": (
        pa.array(["x" * 1024, "x" * 1025]),
        [HASH, RANGE],
        None,
        "key_length",
        "the key of index 'by_day' has more than 1,024 bytes",
    ),
    "a column of another type": (
        pa.array([None, 1]),
        [HASH],
        None,
        "key_type",
        "the key of index 'by_mail' is N, the table's is S",
    ),
    "a list": (pa.array([None, ["x"]]), [HASH], None, "key_type", "the key of index 'by_mail' is L, the table's is S"),
    "JSON of another type": (
        pa.array(['{"S":"x"}', '{"NULL":true}']),
        [HASH],
        JSON,
        "key_type",
        "the key of index 'by_mail' is NULL, the table's is S",
    ),
    "JSON that is empty": (
        pa.array(['{"S":"x"}', '{"S":""}']),
        [HASH],
        JSON,
        "key_empty",
        "the key of index 'by_mail' is empty",
    ),
}


@pytest.mark.parametrize(("column", "index_keys", "metadata", "rule", "reason"), CASES.values(), ids=CASES.keys())
def test_a_bad_index_key_is_refused_by_row(column, index_keys, metadata, rule, reason):
    """The row, the attribute, the index and the reason are in the refusal. The other row is accepted."""
    ((row, actual, message),) = refused(column, *index_keys, metadata=metadata)
    assert (row, actual) == (1, rule)
    assert message.startswith(f"row 1: mail: {reason}")


def test_the_rescue_column_is_checked_too():
    """A rescued index key is still an index key."""
    column = pa.array([json.dumps({"mail": {"S": "x"}}), json.dumps({"mail": {"N": "1"}})])
    ((row, rule, message),) = refused(column, HASH, name="_rescue")
    assert (row, rule) == (1, "key_type")
    assert "the key of index 'by_mail' is N, the table's is S" in message


def test_a_table_key_obeys_the_indexes_it_is_in():
    """A partition key that is an index's sort key has at most 1,024 bytes."""
    schema = pa.schema([pa.field("pk", pa.string())])
    options = EncodeOptions(index_keys=(IndexKey("pk", "S", 1024, "turned"),))
    rows = pa.RecordBatch.from_arrays([pa.array(["x" * 1024, "x" * 1025])], schema=schema)
    (refusal,) = Encoder(schema, keys={"pk": "S"}, options=options).encode(rows).refusals
    assert refusal.message == "row 1: pk: the key of index 'turned' has more than 1,024 bytes"
