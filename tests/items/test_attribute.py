from __future__ import annotations

import decimal
from decimal import Decimal

import pytest
from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given
from item_strategies import ITEMS, VALUES

from ddbio.errors import DecodeError, SchemaError
from ddbio.items.attribute import check_item, from_python, to_python


@given(VALUES)
def test_a_value_agrees_with_boto3(value):
    """The reference reads every value as boto3's deserializer does, with a context for all digits."""

    class Deserializer(TypeDeserializer):
        def _deserialize_n(self, value):
            return Decimal(value)

        def _deserialize_b(self, value):
            return to_python({"B": value})

    assert to_python(value) == Deserializer().deserialize(value)


@given(ITEMS)
def test_an_item_survives_python(item):
    """An item survives a round trip through Python values, except for the order of sets."""
    again = from_python(to_python({"M": item}))
    assert to_python(again) == to_python({"M": item})
    check_item(again["M"])


def test_numbers_ignore_the_decimal_context():
    """A narrow decimal context of the caller does not round numbers."""
    with decimal.localcontext(prec=3):
        assert str(to_python({"N": "1234567890.12345"})) == "1234567890.12345"
        assert from_python(Decimal("1234567890.12345")) == {"N": "1234567890.12345"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a": {}}, "^a: expected one type"),
        ({"a": {"S": "x", "N": "1"}}, "^a: expected one type"),
        ({"a": "x"}, "^a: expected one type"),
        ({"a": {"X": "x"}}, "^a: 'X' is not a DynamoDB type"),
        ({"a": {"S": 1}}, "^a: expected a JSON string, found 1"),
        ({"a": {"S": None}}, "^a: expected a JSON string, found None"),
        ({"a": {"N": 1}}, "^a: expected a JSON string, found 1"),
        ({"a": {"N": "1_0"}}, "^a: '1_0' is not a DynamoDB number"),
        ({"a": {"BOOL": "true"}}, "^a: BOOL must be true or false, found 'true'"),
        ({"a": {"BOOL": 1}}, "^a: BOOL must be true or false, found 1"),
        ({"a": {"NULL": False}}, "^a: NULL must be true, found False"),
        ({"a": {"B": "YQ"}}, "^a: 'YQ' is not base64"),
        ({"a": {"B": "YQ==\n"}}, "is not base64"),
        ({"a": {"B": "é==="}}, "is not base64"),
        ({"a": {"SS": "x"}}, "^a: expected a JSON array"),
        ({"a": {"NS": ["1", "x"]}}, r"^a\[1\]: 'x' is not a DynamoDB number"),
        ({"a": {"L": {}}}, "^a: expected a JSON array"),
        ({"a": {"M": []}}, "^a: expected an object of attributes"),
        ({"a": {"M": {"b": {"L": [{"S": "x"}, {"N": "?"}]}}}}, r"^a\.b\[1\]: '\?' is not a DynamoDB number"),
        ({"a": {"S": "\ud800"}}, "^a: .* half of a surrogate pair"),
        ({"\udfff": {"S": "x"}}, "^item: .* half of a surrogate pair"),
        ([], "^item: expected an object of attributes"),
    ],
)
def test_a_bad_value_is_named_by_its_path(item, message):
    """A value that is not exactly one type with its content is refused. The message begins with its path."""
    with pytest.raises(DecodeError, match=message):
        check_item(item)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.5, SchemaError, "pass decimal.Decimal"),
        (set(), SchemaError, "no DynamoDB set"),
        ({1, "a"}, SchemaError, "no DynamoDB set"),
        ({True}, SchemaError, "no DynamoDB set"),
        (object(), SchemaError, "no type for a object"),
        ({1: "a"}, SchemaError, "no attribute name"),
        (Decimal("NaN"), DecodeError, "not a DynamoDB number"),
        (10**38 + 1, DecodeError, "38 significant digits"),
        (10**4000, DecodeError, "outside the range"),
    ],
)
def test_python_values_without_an_exact_encoding_are_refused(value, error, message):
    """A Python value without an exact encoding in DynamoDB is refused. The message has the remedy if there is one."""
    with pytest.raises(error, match=message):
        from_python(value)
