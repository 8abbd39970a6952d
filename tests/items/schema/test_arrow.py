from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.schema.arrow import format_schema, normalize_schema, project_schema
from ddbio.items.schema.file import schema_from_json, schema_to_json
from ddbio.items.schema.item_schema import ItemSchema


def types_of(schema):
    """Return the DynamoDB and Arrow types by name."""
    return {field.name: (field.metadata[b"ddb:type"].decode(), str(field.type)) for field in schema}


def inferred(*values):
    """Return the types inferred for an attribute of these values."""
    return types_of(ItemSchema.of_items([{"a": value} for value in values]).to_arrow())["a"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"S": "x"}], ("S", "string")),
        ([{"B": "YQ=="}], ("B", "binary")),
        ([{"BOOL": True}], ("BOOL", "bool")),
        ([{"NULL": True}], ("NULL", "string")),
        ([{"NULL": True}, {"NULL": True}, {"S": "x"}], ("S", "string")),
        ([{"N": "1"}, {"N": str(2**63 - 1)}, {"N": str(-(2**63))}], ("N", "int64")),
        ([{"N": str(2**63)}], ("N", "decimal128(38, 0)")),
        ([{"N": "1.50"}, {"N": "123"}], ("N", "decimal128(38, 1)")),
        ([{"N": "1e3"}], ("N", "int64")),
        ([{"N": "1" * 30}, {"N": "0.00000001"}], ("N", "decimal128(38, 8)")),
        ([{"N": "-" + "1" * 30}, {"N": "-0.00000001"}], ("N", "decimal128(38, 8)")),
        ([{"N": "0." + "0" * 37 + "1"}], ("N", "decimal128(38, 38)")),
        ([{"N": "1" * 31}, {"N": "0.00000001"}], ("N", "string")),
        ([{"N": "1e125"}], ("N", "string")),
        ([{"N": "1"}, {"S": "x"}, {"S": "y"}], ("S", "string")),
        ([{"N": "1"}, {"S": "x"}], ("S", "string")),
        ([{"N": "1"}, {"BOOL": True}], ("N", "int64")),
        ([{"M": {}}], ("JSON", "string")),
        ([{"L": []}], ("JSON", "string")),
        ([{"L": [{"NULL": True}]}], ("JSON", "string")),
        ([{"L": [{"S": "x"}]}, {"L": [{"N": "1"}]}], ("JSON", "string")),
        ([{"M": {f"k{i}": {"S": "x"} for i in range(64)} | {"k64": {"N": "1"}}}], ("JSON", "string")),
    ],
)
def test_one_attribute_gets_one_type(values, expected):
    """The type is exact, leaves space for larger values, and is JSON text for values without a common shape."""
    assert inferred(*values) == expected


def test_sets_lists_and_maps_are_inferred_inside():
    """A set keeps its element type, a list has the union of its elements, and a map the union of its members."""
    values = [
        {"M": {"s": {"SS": ["x"]}, "n": {"NS": ["1", "2.5"]}, "b": {"BS": ["YQ=="]}}},
        {"M": {"l": {"L": [{"M": {"x": {"N": "1"}}}, {"M": {"y": {"BOOL": True}}}]}, "e": {"M": {}}}},
    ]
    schema = ItemSchema.of_items([{"a": value} for value in values]).to_arrow()
    assert format_schema(schema).splitlines() == [
        "attribute    DynamoDB  Arrow",
        "a            M         struct",
        "  s          SS        list",
        "    element  S         string",
        "  n          NS        list",
        "    element  N         decimal128(38, 1)",
        "  b          BS        list",
        "    element  B         binary",
        "  l          L         list",
        "    element  M         struct",
        "      x      N         int64",
        "      y      BOOL      bool",
        "  e          JSON      string",
        "_rescue      RESCUE    string",
    ]


def test_columns_come_in_the_order_first_seen():
    """Columns are in the order of the sample. An attribute named _rescue has another column."""
    schema = ItemSchema.of_items(
        [{"z": {"S": "x"}, "_rescue": {"N": "1"}}, {"a": {"S": "x"}, "z": {"S": "x"}}]
    ).to_arrow()
    assert schema.names == ["z", "_rescue__08f95ea2", "a", "_rescue"]
    assert schema.field("_rescue__08f95ea2").metadata == {b"ddb:type": b"N", b"ddb:name": b"_rescue"}
    assert schema.field("_rescue").metadata == {b"ddb:type": b"RESCUE"}


def test_a_broken_sample_is_refused():
    """An item that is not DynamoDB JSON is an error."""
    with pytest.raises(DecodeError, match=r"^a: 'X' is not a DynamoDB type"):
        ItemSchema.of_items([{"a": {"X": "x"}}]).to_arrow()


@given(st.lists(ITEMS, max_size=4))
def test_a_schema_survives_its_json_text(items):
    """Every inferred schema is normalised, can be printed, and is restored from its JSON text with all metadata."""
    schema = ItemSchema.of_items(items).to_arrow()
    assert normalize_schema(schema).equals(schema, check_metadata=True)
    assert schema_from_json(schema_to_json(schema)).equals(schema, check_metadata=True)
    assert format_schema(schema).endswith("string")


def test_a_given_schema_gets_its_dynamodb_types():
    """Plain Arrow types determine the DynamoDB type. Nullability, the last column and names are corrected."""
    given_schema = pa.schema(
        [
            pa.field("s", pa.large_string(), nullable=False),
            ("i", pa.int32()),
            ("f", pa.float64()),
            ("d", pa.decimal128(9, 2)),
            ("b", pa.large_binary()),
            ("t", pa.bool_()),
            ("nothing", pa.null()),
            ("l", pa.list_(pa.int64())),
            ("m", pa.struct([("x", pa.string())])),
            ("k", pa.map_(pa.string(), pa.float32())),
            pa.field("set", pa.list_(pa.string()), metadata={"ddb:type": "SS", "comment": "kept"}),
            pa.field("j", pa.string(), metadata={"ddb:type": "JSON"}),
        ]
    )
    schema = normalize_schema(given_schema)
    tags = [field.metadata[b"ddb:type"].decode() for field in schema]
    assert tags == ["S", "N", "N", "N", "B", "BOOL", "NULL", "L", "M", "M", "SS", "JSON", "RESCUE"]
    assert all(field.nullable for field in schema)
    assert schema.field("set").metadata[b"comment"] == b"kept"
    assert schema_from_json(schema_to_json(schema)).field("k").type == pa.map_(pa.string(), pa.float32())
    assert normalize_schema(schema).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("t", pa.time64("us"))], r"^t: no DynamoDB type is an Arrow time64\[us\]: use string"),
        ([("m", pa.struct([("d", pa.date32())]))], "^m.d: no DynamoDB type is an Arrow date32"),
        ([("l", pa.list_(pa.duration("s")))], r"^l\[\]: no DynamoDB type"),
        ([("m", pa.map_(pa.int64(), pa.string()))], "^m: an Arrow map<int64, string> does not hold DynamoDB's M"),
        ([("m", pa.struct([]))], "^m: an Arrow struct<> does not hold DynamoDB's M: .* ddb:type JSON"),
        ([("a", pa.string()), ("a", pa.int64())], "the name 'a' occurs twice"),
        ([("m", pa.struct([("x", pa.string()), ("x", pa.string())]))], "^m: the name 'x' occurs twice"),
        ([pa.field("a", pa.int64(), metadata={"ddb:type": "S"})], "^a: an Arrow int64 does not hold DynamoDB's S"),
        ([pa.field("a", pa.string(), metadata={"ddb:type": "X"})], "^a: an Arrow string does not hold DynamoDB's X"),
        ([("_rescue", pa.int64())], "^_rescue: this name is reserved for the rescue column"),
    ],
)
def test_schemas_that_cannot_hold_items_are_refused(fields, message):
    """A type without an exact encoding in DynamoDB is refused. The message names the path and the remedy."""
    with pytest.raises(SchemaError, match=message):
        normalize_schema(pa.schema(fields))


def test_a_projection_keeps_the_asked_order():
    """A projection has the named columns in their order, and the rescue column."""
    schema = normalize_schema(pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.bool_())]))
    assert project_schema(schema, ["c", "a"]).names == ["c", "a", "_rescue"]


def test_a_projection_names_an_unknown_column():
    """A column that the schema lacks is refused with a suggestion."""
    schema = normalize_schema(pa.schema([("amount", pa.string())]))
    with pytest.raises(SchemaError, match=r"^amonut: the schema has no such attribute: did you mean 'amount'"):
        project_schema(schema, ["amonut"])
    with pytest.raises(SchemaError, match="give a schema that has it"):
        project_schema(schema, ["zzz"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a schema's JSON text"),
        ("[]", "not a schema's JSON text"),
        ('{"version": 1}', "not a schema's JSON text"),
        ('{"version": 2, "fields": []}', "schema version 2 is not 1"),
        ('{"version": 1, "fields": [{"name": "a", "type": "S", "arrow": "strnig"}]}', "not a schema's JSON text"),
        ('{"version": 1, "fields": [{"name": "a", "type": "N", "arrow": "decimal128(99, 0)"}]}', "JSON text"),
    ],
)
def test_other_text_is_no_schema(text, message):
    """Text that is not a schema is refused."""
    with pytest.raises(SchemaError, match=message):
        schema_from_json(text)
