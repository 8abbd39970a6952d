from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items.number import canonical_number
from ddbio.testing.calls.writes import delete_item, put_item, update_item
from ddbio.testing.expressions.conditions import holds, predicate_of
from ddbio.testing.expressions.parsing import Placeholders
from ddbio.testing.refusal import Refusal
from ddbio.testing.request import Request

KEY = {"pk": {"S": "a"}}
ABSENT = {"ConditionExpression": "attribute_not_exists(pk)"}
NUMBERS = st.decimals(-10, 10, places=2).map(lambda number: {"N": canonical_number(str(number))})
VALUES = st.one_of(NUMBERS, st.text(max_size=2).map(lambda text: {"S": text}), st.just({"BOOL": True}))


def sized(kib, **attributes):
    """Return an item of this number of units."""
    return {**KEY, **attributes, "x": {"S": "x" * (1024 * kib - 100)}}


def refused(held, operation, **members):
    """Return the error body of a refused call."""
    with pytest.raises(Refusal) as caught:
        held.call(operation, TableName="tab", **members)
    return caught.value.body


@pytest.mark.parametrize(
    ("there", "operation", "members", "units"),
    [
        (3, put_item, {"Item": sized(1)}, 3.0),
        (1, put_item, {"Item": sized(3)}, 3.0),
        (3, delete_item, {"Key": KEY}, 3.0),
        (2, update_item, {"Key": KEY, "UpdateExpression": "REMOVE x"}, 2.0),
    ],
)
def test_a_failed_condition_is_billed(hold, there, operation, members, units):
    """A write that fails its condition costs the larger of the existing and the new item."""
    held = hold()
    held.create(units=(100, 100))
    held.call(put_item, TableName="tab", Item=sized(there))
    held.now = 1.0
    body = refused(held, operation, **members, **ABSENT)
    assert body["__type"].endswith("#ConditionalCheckFailedException")
    assert held.database.consumption.consumed("tab")[-1] == (1.0, 0.0, units)


def test_indexes_pay_nothing_for_a_failed_condition(hold):
    """A write that fails its condition changes no index entry, so that only the table pays."""
    held = hold()
    index = {
        "IndexName": "byg",
        "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    held.create(more=["g:S"], GlobalSecondaryIndexes=[index])
    held.call(put_item, TableName="tab", Item={**KEY, "g": {"S": "a"}})
    held.now = 1.0
    refused(held, put_item, Item={**KEY, "g": {"S": "b"}}, **ABSENT)
    assert held.database.consumption.consumed("tab") == [(0.0, 0.0, 2.0), (1.0, 0.0, 1.0)]


def test_a_throttled_write_is_not_judged(hold):
    """Without capacity the reply is throttling, regardless of the condition."""
    held = hold()
    held.create(units=(1, 1))
    held.call(put_item, TableName="tab", Item=sized(5))
    body = refused(held, put_item, Item=KEY, **ABSENT)
    assert body["__type"].endswith("#ProvisionedThroughputExceededException")


def test_an_update_cannot_make_an_item_too_large(hold):
    """The updated item is limited to 400 KiB, and its index key must have the right type."""
    held = hold()
    held.create()
    held.now = 10.0
    held.call(put_item, TableName="tab", Item=sized(300))
    values = {":y": {"S": "y" * (150 << 10)}}
    body = refused(held, update_item, Key=KEY, UpdateExpression="SET y = :y", ExpressionAttributeValues=values)
    assert "Item size to update has exceeded" in body["message"]


@given(left=VALUES, right=VALUES)
def test_comparisons_are_an_order_within_a_type(left, right):
    """For two strings or numbers exactly one of less, equal and greater is true. Other types can only be unequal."""
    outcomes = [holds(operator, left, right) for operator in ("<", "=", ">")]
    ordered = left.keys() == right.keys() and "BOOL" not in left
    assert sum(outcomes) == (1 if ordered else int(left == right))
    assert holds("<>", left, right) is not holds("=", left, right)


@given(texts=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), data=st.data())
def test_and_binds_tighter_than_or(texts, data):
    """An expression without parentheses is a choice of conjunctions, as in Python."""
    joins = data.draw(st.lists(st.sampled_from(["AND", "OR"]), min_size=len(texts) - 1, max_size=len(texts) - 1))
    there = data.draw(st.sets(st.sampled_from(["a", "b", "c"])))
    words = [f"attribute_exists({texts[0]})"]
    plain = [str(texts[0] in there)]
    for join, text in zip(joins, texts[1:], strict=True):
        words += [join, f"attribute_exists({text})"]
        plain += [join.lower(), str(text in there)]
    predicate = predicate_of(" ".join(words), Placeholders(Request({}), has_expression=True))
    assert predicate({name: {"S": ""} for name in there}) is eval(" ".join(plain))
