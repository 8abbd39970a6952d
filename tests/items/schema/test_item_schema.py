from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, VALUES, tables

import ddbio
from ddbio.errors import SchemaError
from ddbio.items.decode import Decoder, from_dynamodb_json
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.digest_json import JsonDigest
from ddbio.items.reference import items_of
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.items.schema.item_schema import ItemSchema, arrow_schema_of


@st.composite
def wide_items(draw):
    """Draw an item whose map has some of very many names."""
    first, count = draw(st.integers(0, 60)), draw(st.sampled_from([1, 2, 40]))
    value = draw(VALUES)
    return {"m": {"M": {f"k{number}": value for number in range(first, first + count)}}}


DECLARED = st.sets(st.sampled_from("abcd")).map(
    lambda names: ItemSchema.from_arrow(pa.schema([pa.field(name, pa.float64()) for name in sorted(names)]))
)
SEEN = st.lists(st.one_of(ITEMS, wide_items()), max_size=3).map(ItemSchema.of_items)
SCHEMAS = st.one_of(SEEN, st.tuples(SEEN, DECLARED).map(lambda pair: pair[0].merge(pair[1])))


def of(*values):
    """Return the schema of items with these values of one attribute."""
    return ItemSchema.of_items([{"a": value} for value in values])


def column(schema):
    """Return the column of the attribute, as text."""
    return json.loads(schema.to_json())["attributes"][0]["column"]


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_merging_is_lawful(one, two, three):
    """Merging is associative, commutative and idempotent, including the order and the names of the columns."""
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) == one
    assert one.merge(ItemSchema()) == one
    assert one.merge(two).to_arrow().equals(two.merge(one).to_arrow(), check_metadata=True)
    assert one.merge(two).to_json() == two.merge(one).to_json()


@given(SCHEMAS, SCHEMAS)
def test_a_schema_survives_its_file(one, two):
    """A schema is restored from its file, also with merged and declared columns."""
    merged = one.merge(two)
    assert ItemSchema.from_json(merged.to_json()) == merged
    assert pickle.loads(pickle.dumps(merged)) == merged


@given(st.lists(ITEMS, max_size=4), st.lists(ITEMS, max_size=4))
def test_items_survive_a_merged_schema(some, others):
    """Items of both samples survive a round trip under the merged schema."""
    schema = ItemSchema.of_items(some).merge(ItemSchema.of_items(others))
    page = json.dumps({"Items": some + others}).encode()
    assert list(items_of(Decoder(arrow_schema_of(schema), nulls="keep").decode(page, "page"))) == some + others


@given(tables())
def test_an_arrow_schema_is_declared_whole(items):
    """An Arrow schema defines the same columns, and declares every attribute."""
    schema = ItemSchema.of_items(items).to_arrow()
    assert normalize_schema(schema).equals(schema, check_metadata=True)
    assert ItemSchema.from_arrow(schema).to_arrow().equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([{"N": "1"}], [{"N": "2"}], "N int64"),
        ([{"N": "1"}], [{"N": "1.25"}], "N decimal128(38, 2)"),
        ([{"N": "1" * 30}], [{"N": "0.00000001"}], "N decimal128(38, 8)"),
        ([{"N": "1" * 31}], [{"N": "0.00000001"}], "N string"),
        ([{"NULL": True}], [{"NULL": True}], "NULL string"),
        ([{"NULL": True}], [{"S": "x"}], "S string"),
        ([{"NS": ["1"]}], [{"NS": ["0.5"]}], "NS list<decimal128(38, 1)>"),
        ([{"L": []}], [{"L": [{"S": "x"}]}], "L list"),
        ([{"L": [{"S": "x"}]}], [{"L": [{"N": "1"}]}], "JSON string"),
        ([{"M": {"x": {"S": "x"}}}], [{"M": {"y": {"N": "1"}}}], "M struct"),
        ([{"M": {"1": {"S": "x"}, "2": {"S": "x"}}}], [{"M": {"3": {"S": "x"}}}], "M map"),
        ([{"M": {"1": {"S": "x"}, "2": {"S": "x"}}}], [{"M": {"3": {"N": "1"}}}], "JSON string"),
        ([{"M": {f"k{i}": {"N": "1"} for i in range(40)}}], [{"M": {f"k{i}": {"N": "1"} for i in range(30, 70)}}],
         "M map"),
        ([{"S": "x"}, {"S": "x"}], [{"L": []}], "S string"),
    ],
)  # fmt: skip
def test_what_samples_show_together_decides(values, others, expected):
    """Numbers widen, structs and elements join, names that are data make a map, and conflicts make JSON text."""
    assert column(of(*values).merge(of(*others))) == expected
    assert column(of(*values, *others)) == expected


@pytest.mark.parametrize(
    "names",
    [
        ["2024-01-01", "2024-01-02", "2024-01-03"],
        ["6f9619ff-8b86-d011-b42d-00c04fc964ff", "6f9619ff-8b86-d011-b42d-00c04fc964fe", "17"],
        [f"k{number}" for number in range(100)],
    ],
)
def test_a_map_with_data_as_names_is_a_map_column(names):
    """A map whose names are data becomes a map column, which the decoder fills without rescue."""
    item = {"a": {"M": {name: {"M": {"n": {"N": "1.5"}, "s": {"SS": ["x"]}}} for name in names}}}
    batch = from_dynamodb_json(json.dumps(item).encode())
    assert pa.types.is_map(batch.schema.field("a").type)
    assert batch.column("_rescue").null_count == 1
    assert list(items_of(batch)) == [item]


def test_an_edited_column_stays():
    """A column that was edited in the file is declared, and survives merges and later files."""
    text = of({"N": "1"}).to_json().replace("N int64", "N double")
    schema = ItemSchema.from_json(text).merge(of({"N": "1.25"}))
    assert schema.to_arrow().field("a").type == pa.float64()
    assert ItemSchema.from_json(schema.to_json()).to_arrow().field("a").type == pa.float64()
    undone = json.loads(schema.to_json())
    del undone["attributes"][0]["column"], undone["attributes"][0]["declared"]
    assert column(ItemSchema.from_json(json.dumps(undone))) == "N decimal128(38, 2)"
    document = json.loads(of({"M": {"x": {"M": {"y": {"S": "x"}}}}}).to_json())
    document["attributes"][0]["members"][0]["column"] = "JSON string"
    document["attributes"].append({"name": "b", "column": "SS list<string>"})
    edited = ItemSchema.from_json(json.dumps(document)).to_arrow()
    assert edited.field("a").type.field("x").type == pa.string()
    assert edited.field("b").type == pa.list_(pa.field("element", pa.string(), metadata={"ddb:type": "S"}))


CALLED = {
    "pk": {"S": "x"}, "Id": {"N": "1"}, "id": {"N": "2"}, "_rescue": {"S": "own"},
    "m": {"M": {"a.b": {"S": "y"}, "c": {"N": "1"}}}, "l": {"L": [{"M": {"x": {"NS": ["1", "2"]}}}]},
}  # fmt: skip


def called(schema, **names):
    """Return the schema after column names were edited in its file. ``a__b`` is member ``b`` of ``a``."""
    document = json.loads(schema.to_json())
    for path, name in names.items():
        entries = document["attributes"]
        for part in path.split("__"):
            (entry,) = (candidate for candidate in entries if candidate["name"] == part)
            entries = entry.get("element", entry).get("members", [])
        entry["column_name"] = name
    return ItemSchema.from_json(json.dumps(document))


def test_columns_have_the_names_in_the_file():
    """Names of columns and of members can be chosen. Values, rescue, digest and encoding use the attribute names."""
    schema = called(ItemSchema.of_items([CALLED]), pk="Partition Key", Id="ident", m__c="other", l__x="numbers")
    columns = schema.to_arrow()
    assert [name for name in columns.names if "__" not in name] == ["Partition Key", "ident", "id", "m", "l", "_rescue"]
    assert [field.name for field in columns.field("m").type] == ["a.b", "other"]
    assert [field.name for field in columns.field("l").type.field(0).type] == ["numbers"]
    assert ItemSchema.from_json(schema.to_json()) == schema
    assert "\nId as ident " in str(schema)
    odd = {"pk": {"S": "z"}, "Id": {"S": "drifted"}, "m": {"M": {"c": {"S": "drifted"}}}, "ident": {"S": "new"}}
    page = json.dumps({"Items": [CALLED, odd]}).encode()
    batch = Decoder(columns, nulls="keep").decode(page, "page")
    assert batch.column("Partition Key").to_pylist() == ["x", "z"]
    assert list(items_of(batch)) == [CALLED, odd]
    lines = [json.loads(line) for line in bytes(ddbio.to_dynamodb_json(batch)).splitlines()]
    assert lines == [CALLED, odd]
    assert set(json.loads(batch.column("_rescue")[1].as_py())) == {"Id", "m", "ident"}
    walked = JsonDigest()
    walked.add(page, "page")
    assert digest_of_batches([batch]).hexdigest() == walked.digest.hexdigest()


def test_chosen_names_of_columns_survive():
    """They survive merges with samples, Arrow's schema, the file and a projection, and are reported as a change."""
    seen = ItemSchema.of_items([CALLED])
    schema = called(seen, Id="ident", m__c="other")
    merged = schema.merge(ItemSchema.of_items([{**CALLED, "new": {"S": "x"}}]))
    assert "ident" in merged.to_arrow().names
    arrow = schema.to_arrow()
    assert ItemSchema.from_arrow(arrow).to_arrow().equals(arrow, check_metadata=True)
    assert ItemSchema.from_json(schema_to_json(arrow)).to_arrow().equals(arrow, check_metadata=True)
    assert schema.project(["Id"]).to_arrow().names == ["ident", "_rescue"]
    assert [str(change) for change in seen.diff(schema).changes] == [
        "changed         Id: N int64 -> N int64, called ident",
        "changed         m.c: N int64 -> N int64, called other",
    ]
    with pytest.raises(SchemaError, match=r"^Id: declared as ident and as other: keep one"):
        schema.merge(called(seen, Id="other"))


@pytest.mark.parametrize("name", ["id", "ID", "pk", "M", "_rescue", "_Rescue", "", 5, "\ud800"])
def test_names_that_no_column_can_have_are_refused(name):
    """Equal names but for case, the rescue column's name, an empty name and a value other than text are refused."""
    with pytest.raises(SchemaError, match=r"^Id: .*column"):
        called(ItemSchema.of_items([CALLED]), Id=name)


def test_what_is_no_attribute_has_no_name_to_choose():
    """Elements of lists have no separate columns."""
    document = json.loads(of({"L": [{"N": "1"}]}).to_json())
    document["attributes"][0]["element"]["column_name"] = "x"
    with pytest.raises(SchemaError, match=r"^a\[\]: column_name 'x' has no meaning here"):
        ItemSchema.from_json(json.dumps(document))


def test_two_declarations_of_one_attribute_are_refused():
    """Two different declarations of one attribute cannot both apply."""
    one, two = (ItemSchema.from_arrow(pa.schema([("a", arrow)])) for arrow in (pa.int64(), pa.string()))
    with pytest.raises(SchemaError, match=r"^a: declared as N int64 and as S string: keep one"):
        one.merge(two)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"not a schema's JSON text \(Expecting property name .*: line 1 column 2"),
        ('{"version": 3}', "schema version 3 is not 2"),
        ('{"version": 2}', r"not a schema's JSON text \('attributes' is missing\)"),
        ("[]", r"not a schema's JSON text \(something in it is of another type\)"),
        ('{"version": 2, "attributes": [{"name": "a"}]}', "not a schema's JSON text"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "N int65"}]}', "^a: 'N int65' is no column"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "S int64"}]}', "^a: an Arrow int64 does not hold"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "S string", "seen": {"Q": 1}}]}', "^a: .'Q'. is not"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "S string"}, {"name": "a", "column": "S string"}]}',
         "names this attribute twice"),
        ('{"version": 2, "attributes": [{"name": "a", "colum": "N int8"}]}', "^a: 'colum' .* did you mean 'column'"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "L list", "element": {"column": "N int8", "x": 1}}]}',
         r"^a\[\]: 'x' is not a key of a column: remove it"),
        ('{"version": 2, "attributes": [{"name": "a", "column": "", "seen": {"S": 1}}]}', "^a: '' is not a DynamoDB"),
        ('{"version": 2, "attributes": [{"name": 5, "column": "S string"}]}', "^attributes: 5 is no name: write text"),
        ('{"version": 2, "attributes": [{"name": "\\ud800", "column": "S string"}]}', "is no name: write text"),
        ('{"version": 2, "attributes": ' + '[{"members": ' * 5000, "nested deeper than any DynamoDB item"),
        ('{"version": 1, "fields": ["a"]}', "not a schema's JSON text"),
    ],
)  # fmt: skip
def test_other_text_is_no_schema_file(text, message):
    """An invalid file, of another version or without columns, is refused. The message names the path and the remedy."""
    with pytest.raises(SchemaError, match=message):
        ItemSchema.from_json(text)


def test_a_byte_order_mark_is_passed_over():
    """A byte order mark, which some editors write, is skipped."""
    schema = of({"S": "x"})
    for text in (schema.to_json(), schema_to_json(schema.to_arrow())):
        assert arrow_schema_of("\ufeff" + text).equals(schema.to_arrow(), check_metadata=True)
    assert ItemSchema.from_json("\ufeff" + schema.to_json()) == schema


@pytest.mark.parametrize("other", [None, pa.schema([("a", pa.string())]), "{}"], ids=type)
def test_only_schemas_of_items_are_joined_and_compared(other):
    """An object other than an ItemSchema is refused. The message names its type."""
    for call in (of().merge, of().diff):
        with pytest.raises(SchemaError, match=f"^a {type(other).__name__} is no ItemSchema"):
            call(other)


def test_all_kinds_of_schemas_are_accepted():
    """An ItemSchema, its Arrow schema, and the JSON text of either define the same columns."""
    schema = ddbio.infer_schema(b'{"pk":{"S":"x"},"n":{"N":"1"}}')
    arrow = schema.to_arrow()
    forms = [schema, arrow, schema.to_json(), schema_to_json(arrow)]
    assert all(arrow_schema_of(form).equals(arrow, check_metadata=True) for form in forms)
    assert pa.schema(schema).equals(arrow, check_metadata=True)
    assert all(from_dynamodb_json(b'{"n":{"N":"2"}}', form).schema.equals(arrow) for form in forms)
    with pytest.raises(SchemaError, match="a int is no schema"):
        arrow_schema_of(1)
    assert repr(schema) == "<ItemSchema of 2 attributes, 1 items seen>"
    assert str(schema).splitlines()[1].split() == ["pk", "S", "string"]
