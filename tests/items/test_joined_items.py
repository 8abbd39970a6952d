"""Items of files with other types for an attribute can be joined in one table, unchanged."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pyarrow as pa
import pytest

import ddbio
from ddbio.items.joined_items import joined_items
from ddbio.items.schema.arrow import RESCUE_FIELD

NUMBER, TEXT, JSON = {"ddb:type": "N"}, {"ddb:type": "S"}, {"ddb:type": "JSON"}

COLUMNS = {
    "integers": (pa.field("v", pa.int64(), metadata=NUMBER), [1, None, 2**62 + 1]),
    "small decimals": (pa.field("v", pa.decimal128(20, 2), metadata=NUMBER), [Decimal("1.25"), None]),
    "decimals": (pa.field("v", pa.decimal128(30, 2), metadata=NUMBER), [Decimal("1.25"), None]),
    "large decimals": (pa.field("v", pa.decimal128(38, 30), metadata=NUMBER), [Decimal("1.25"), None]),
    "numbers as text": (pa.field("v", pa.string(), metadata=NUMBER), ["1E+100", None, "7"]),
    "doubles": (pa.field("v", pa.float64(), metadata=NUMBER), [0.5, None]),
    "texts": (pa.field("v", pa.string(), metadata=TEXT), ["7", None, "x"]),
    "documents": (pa.field("v", pa.string(), metadata=JSON), ['{"S":"7"}', None, '{"L":[{"N":"1"}]}']),
    "bytes": (pa.field("v", pa.binary(), metadata={"ddb:type": "B"}), [b"7", None]),
    "booleans": (pa.field("v", pa.bool_(), metadata={"ddb:type": "BOOL"}), [True, None]),
    "sets": (pa.field("v", pa.list_(pa.string()), metadata={"ddb:type": "SS"}), [["a", "b"], None]),
    "lists": (pa.field("v", pa.list_(pa.string()), metadata={"ddb:type": "L"}), [["a", "b"], None]),
    "maps": (pa.field("v", pa.struct([("a", pa.int64())]), metadata={"ddb:type": "M"}), [{"a": 1}, None]),
    "other maps": (pa.field("v", pa.struct([("a", pa.string())]), metadata={"ddb:type": "M"}), [{"a": "x"}, None]),
    "no types": (pa.field("v", pa.int64()), [3, None]),
}


def items_of(name):
    """Return items with a column, and a rescue column that already has a value."""
    field, values = COLUMNS[name]
    rescued = ['{"other":{"S":"x"}}', *[None] * (len(values) - 1)]
    keys = pa.array([f"{name} {row}" for row in range(len(values))])
    schema = pa.schema([pa.field("pk", pa.string(), metadata=TEXT), field, RESCUE_FIELD])
    return pa.table([keys, pa.array(values, field.type), pa.array(rescued)], schema=schema)


@pytest.mark.parametrize("names", list(itertools.permutations(COLUMNS, 2)), ids=" and ".join)
def test_every_item_is_as_before(names):
    """Numbers do not become texts, sets lists, or integers doubles."""
    tables = [items_of(name) for name in names]
    joined = joined_items(tables)
    expected = b"".join(ddbio.to_dynamodb_json(table) for table in tables)
    assert [_parsed(line) for line in ddbio.to_dynamodb_json(joined).splitlines()] == [
        _parsed(line) for line in expected.splitlines()
    ]


def _parsed(line):
    """Return an item whose numbers are compared by value."""
    (item,) = ddbio.from_dynamodb_json(line).to_pylist()
    return item


def test_the_first_type_stays():
    """Tables with the same or compatible types rescue nothing. Later tables of other types do."""
    names = ["integers", "texts", "decimals", "documents"]
    joined = joined_items([items_of(name) for name in names])
    assert joined.schema.field("v").type == pa.decimal128(30, 2)
    assert joined.column("_rescue").to_pylist() == [
        '{"other":{"S":"x"}}',
        None,
        None,
        '{"other":{"S":"x"},"v":{"S":"7"}}',
        None,
        '{"v":{"S":"x"}}',
        '{"other":{"S":"x"}}',
        None,
        '{"other":{"S":"x"},"v":{"S":"7"}}',
        None,
        '{"v":{"L":[{"N":"1"}]}}',
    ]
