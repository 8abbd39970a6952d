"""Bugs of other DynamoDB connectors with types and names, which must not occur here."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from ddbio.items.digest import Digest
from ddbio.items.kernel.decode.decoder import KernelDecoder
from ddbio.items.reference import items_of
from ddbio.items.schema.arrow import tagged_field
from ddbio.items.schema.column import suffixed
from ddbio.items.schema.item_schema import ItemSchema


def round_trip(items, schema=None, nulls="keep"):
    """Decode items, assert that encoding preserves their digest, and return the batch."""
    decoder = KernelDecoder(ItemSchema.of_items(items).to_arrow() if schema is None else schema, nulls=nulls)
    batch = decoder.decode(json.dumps({"Items": items}).encode(), "page")
    before, after = Digest(), Digest()
    before.add_items(items)
    after.add_items(items_of(batch))
    assert before == after
    return batch


def test_dotted_and_reserved_names_are_separate_columns():
    """audienceproject/spark-dynamodb 75: a column named commission.options was all null."""
    item = {
        "commission.options": {"S": "a"},
        "commission": {"M": {"options": {"S": "b"}}},
        "size": {"N": "1"},
        "#x": {"S": "c"},
    }
    batch = round_trip([item])
    assert batch.column("commission.options").to_pylist() == ["a"]


def test_names_that_begin_with_an_underscore_are_read():
    """Airbyte 57584: attributes whose names begin with _ broke the read.

    One named as the rescue column also survives.
    """
    batch = round_trip([{"_id": {"S": "a"}, "_rescue": {"S": "b"}}])
    assert batch.column("_id").to_pylist() == ["a"]


def test_names_that_differ_only_by_case_are_different_columns():
    """aws-athena-query-federation 666: casing made fields empty."""
    batch = round_trip([{"Name": {"S": "a"}, "name": {"S": "b"}, "NAME": {"S": "c"}}])
    columns = [suffixed("Name"), "name", suffixed("NAME")]
    assert [batch.column(name).to_pylist() for name in columns] == [["a"], ["b"], ["c"]]


def test_names_of_any_characters_are_read():
    """The service allows NUL, quotes and line ends in names."""
    round_trip(
        [{"a\0b": {"S": "x"}, 'a"b': {"S": "y"}, "a\nb": {"N": "1"}, "a\\b": {"BOOL": True}, "名前😀": {"S": "z"}}]
    )


def test_fractions_do_not_become_floats():
    """Glue, Athena and zero-ETL read N as double: 0.1 + 0.2 and 20 digits are lost."""
    batch = round_trip([{"n": {"N": "0.1"}}, {"n": {"N": "12345678901234567890.12"}}])
    assert batch.column("n").to_pylist() == [Decimal("0.10"), Decimal("12345678901234567890.12")]


def test_integers_do_not_wrap():
    """audienceproject/spark-dynamodb: a number beyond its column's type wrapped around."""
    batch = round_trip([{"n": {"N": "9223372036854775808"}}, {"n": {"N": "1"}}], pa.schema([("n", pa.int64())]))
    assert batch.to_pylist()[0] == {"n": None, "_rescue": '{"n":{"N":"9223372036854775808"}}'}


def test_a_value_of_another_type_is_not_silently_null():
    """spark-dynamodb and spiceai: a type mismatch became null without a message."""
    decoder = KernelDecoder(pa.schema([("n", pa.int64())]))
    batch = decoder.decode(b'{"n":{"S":"abc"}}', "items")
    assert batch.column("_rescue").to_pylist() == ['{"n":{"S":"abc"}}']
    assert [(misfit.path, misfit.count) for misfit in decoder.misfits] == [("n", 1)]


def test_sets_stay_sets():
    """Six connectors read sets as lists and write lists back."""
    items = [
        {"ss": {"SS": ["b", "a"]}, "ns": {"NS": ["2", "1"]}, "bs": {"BS": ["AQ==", "AA=="]}, "l": {"L": [{"S": "a"}]}}
    ]
    tags = [field.metadata[b"ddb:type"] for field in round_trip(items).schema]
    assert tags == [b"SS", b"NS", b"BS", b"L", b"RESCUE"]


def test_null_is_not_missing():
    """emr-dynamodb-connector and others: rows with NULL were lost, or missing attributes were written as NULL."""
    batch = round_trip([{"a": {"NULL": True}}, {}, {"a": {"S": "x"}}, {"m": {"M": {"x": {"NULL": True}}}}])
    assert batch.column("_rescue").null_count == 2


def test_empty_lists_and_maps_do_not_vanish():
    """emr-dynamodb-connector: empty L, M and strings left a value without a type."""
    round_trip(
        [{"l": {"L": []}, "m": {"M": {}}, "s": {"S": ""}}, {"l": {"L": [{"S": "x"}]}, "m": {"M": {"a": {"S": "x"}}}}]
    )


def test_the_first_element_does_not_decide_the_type_of_all():
    """MATT: the type of a list was that of its first element. A mixed list is unchanged here."""
    items = [{"l": {"L": [{"N": "1"}, {"S": "two"}, {"NULL": True}, {"L": [{"BOOL": False}]}]}}]
    round_trip(items)
    round_trip(items, ItemSchema.of_items([{"l": {"L": [{"N": "1"}]}}]).to_arrow())


def test_binary_is_bytes():
    """MATT and Glue: binary stayed wrapped, became a string or was dropped."""
    assert round_trip([{"b": {"B": "AAEC/w=="}}]).column("b").to_pylist() == [b"\0\1\2\xff"]


@pytest.mark.parametrize("text", ["1" + "0" * 125, "9" * 38, "1" + "0" * 38, "0." + "0" * 129 + "1"])
def test_numbers_as_the_service_prints_them_are_read(text):
    """boto3's TypeDeserializer raises Rounded from 1e38 on: the service prints numbers without an exponent."""
    batch = round_trip([{"n": {"N": text}}], pa.schema([tagged_field("n", pa.string(), "N")]))
    assert batch.column("n").to_pylist() == [text]


def test_a_map_with_data_as_keys_keeps_every_key():
    """Connectors that infer a struct per map lose or explode keys. A map column has them all, in order."""
    value = tagged_field("value", pa.int64(), "N")
    schema = pa.schema([tagged_field("m", pa.map_(pa.string(), value), "M")])
    item = {"m": {"M": {f"user.{number}": {"N": str(number)} for number in range(500)}}}
    assert len(round_trip([item, item], schema).column("m")[1].as_py()) == 500
