"""Items written as text: the same requests, and the same refusals, as with columns."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc
from collections import deque

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, TEXT, VALUES, meaning_of_item

from ddbio.aws.table_description import IndexKey
from ddbio.errors import SchemaError
from ddbio.items.decode import from_dynamodb_json
from ddbio.items.number import canonical_number
from ddbio.items.raw_items import RawItems, joined_items
from ddbio.load.encode import Encoders, ItemsOfRows, RawItemEncoder, RowEncoder, raw_item_reader
from ddbio.load.plan import WritePlan

GOOD = {"pk": {"S": "good"}, "sk": {"N": "1"}, "v": {"N": "1"}}
INDEX_KEYS = (IndexKey("mail", "S", 1024, "by-mail"),)


def plan_of(mode="upsert", newer_by=None, lanes=3):
    """Return the plan of a write to a table with a sort key and an index."""
    return WritePlan("t", (("pk", "S"), ("sk", "N")), mode, newer_by, None, lanes, None, index_keys=INDEX_KEYS)


def lines_of(items, **style):
    """Return items as lines."""
    return "\n".join(json.dumps(item, **style) for item in items).encode()


def requests_of(encoded):
    """Return the request, the lane, the hash of the key and the units of each row."""
    result = {}
    for lane, writes in enumerate(encoded.lanes):
        for index, row in enumerate(writes.rows.tolist()):
            body = json.loads(writes.body([index]))
            if "RequestItems" in body:
                ((asked,),) = body["RequestItems"].values()
                ((kind, (item,)),) = ((kind, asked[kind].values()) for kind in asked)
                meaning = None
            else:
                kind, item = next((kind, body.pop(kind)) for kind in ("Item", "Key") if kind in body)
                values = body.pop("ExpressionAttributeValues", None)
                meaning = json.dumps(body), values and meaning_of_item(values)
            result[row] = (
                kind,
                meaning_of_item(item),
                meaning,
                lane,
                int(writes.hashes[index]),
                float(writes.units[index]),
            )
    return result


def refusals_of(encoded):
    """Return the attribute and the rule of each refused row."""
    return {refusal.row: (refusal.attribute, refusal.rule) for refusal in encoded.refusals}


def by_text(items, plan, **style):
    """Return the result for items that are written as text."""
    read = joined_items(raw_item_reader(plan).decode_batches(lines_of(items, **style), "items"))
    return RawItemEncoder(plan).encode(read, 100)


def by_columns(items, plan):
    """Return the result for the same items as columns."""
    batch = from_dynamodb_json(lines_of(items), nulls="keep")
    return RowEncoder(batch.schema, plan).encode(batch, 100)


PLANS = [plan_of(), plan_of("create"), plan_of(newer_by="v"), plan_of("delete"), plan_of("delete", "v")]
PLANS += [plan_of(newer_by="sk"), plan_of("delete", "sk", lanes=1)]
NUMBERS = st.integers(1 - 10**38, 10**38 - 1)  # the limit of DynamoDB: 38 digits
EXTRA = st.fixed_dictionaries(
    {"pk": st.builds(lambda text: {"S": text}, TEXT) | VALUES, "v": VALUES},
    optional={"sk": st.builds(lambda n: {"N": str(n)}, NUMBERS) | VALUES, "mail": VALUES, "w": VALUES},
)


@given(st.lists(st.builds(lambda some, more: some | more, ITEMS, EXTRA), max_size=5), st.sampled_from(PLANS))
def test_both_ways_write_the_same(items, plan):
    """For any items, the same rows are written by the same requests, and the same ones are refused."""
    # With one good row no column is missing for all rows.
    items = [GOOD, *items]
    one = by_text(items, plan)
    try:
        other = by_columns(items, plan)
    except SchemaError:
        # A column can be invalid for all rows. An item as text is always refused alone.
        assert one.refusals
        return
    assert requests_of(one) == requests_of(other)
    assert refusals_of(one).keys() == refusals_of(other).keys()


@pytest.mark.parametrize("plan", PLANS)
def test_rows_that_become_items_are_written_as_rows_are(plan):
    """Rows that are encoded before they are spread are written by the same requests. Rows with refusals stay rows."""
    good = [
        GOOD,
        GOOD | {"sk": {"N": "2"}, "w": {"SS": ["ä", "b"]}},
        GOOD | {"pk": {"S": "other"}, "w": {"NULL": True}},
    ]
    for items in (good, [*good, GOOD | {"pk": {"S": ""}}]):
        batch = from_dynamodb_json(lines_of(items), nulls="keep")
        (row,) = ItemsOfRows(plan).of(batch)
        expected = RowEncoder(batch.schema, plan).encode(batch, 100)
        is_plain = plan.newer_by is None and plan.mode != "delete"
        assert isinstance(row, RawItems) == (is_plain and items is good)
        if isinstance(row, RawItems):
            joined = joined_items([row, row]).take(np.arange(len(row)))
            assert requests_of(RawItemEncoder(plan).encode(joined, 100)) == requests_of(expected)
        else:
            assert row.equals(batch)


BAD = {
    "key_missing": {"sk": {"N": "1"}, "v": {"N": "1"}},
    "key_empty": GOOD | {"pk": {"S": ""}},
    "key_length": GOOD | {"pk": {"S": "x" * 2049}},
    "item_size": GOOD | {"w": {"S": "x" * 409_600}},
    "empty_set": GOOD | {"w": {"NS": []}},
    "duplicate": GOOD | {"w": {"SS": ["a", "a"]}},
    "newer_by": {"pk": {"S": "good"}, "sk": {"N": "1"}},
}


@pytest.mark.parametrize("rule", BAD)
def test_refusals_have_the_same_rules(rule):
    """The attribute and the rule are those of the encoder, and only that row is refused."""
    plan = plan_of(newer_by="v")
    items = [GOOD, BAD[rule], GOOD]
    actual = by_text(items, plan)
    assert refusals_of(actual) == refusals_of(by_columns(items, plan))
    assert [refusal.rule for refusal in actual.refusals] == [rule]
    assert sum(map(len, actual.lanes)) == 2


def test_all_rows_may_have_a_key_of_another_type():
    """If no row has the key's type, each row is refused for it, not the column."""
    actual = by_text([GOOD | {"pk": {"N": "1"}}, GOOD | {"pk": {"NULL": True}}], plan_of())
    messages = ["the key is N, the table's is S", "the key is NULL, the table's is S"]
    assert [refusal.message.rpartition(": ")[2] for refusal in actual.refusals] == messages
    assert sum(map(len, actual.lanes)) == 0


def test_bytes_go_out_as_they_came():
    """Numbers, escapes and the order of attributes are those of the source. Only unusual items are encoded again."""
    items = [{"z": {"N": "1.500"}, **GOOD, "a": {"S": "\u00e9"}}, GOOD | {"w": {"N": "0e5"}}]
    (writes,) = by_text(items, plan_of(lanes=1), separators=(",", ":")).lanes
    parts = {row - 100: writes.part(index) for index, row in enumerate(writes.rows.tolist())}
    assert parts[0] == lines_of(items[:1], separators=(",", ":"))
    assert b'"\\u00e9"' in parts[0]
    assert json.loads(parts[1])["w"] == {"N": canonical_number("0e5")}


def test_spare_memory_is_used_again():
    """Texts are written into returned memory if it is large enough."""
    plan = plan_of(lanes=1)
    read = joined_items(raw_item_reader(plan).decode_batches(lines_of([GOOD] * 9), "items"))
    spare = deque([np.empty(1 << 16, np.uint8)])
    buffer = spare[0]
    (writes,) = RawItemEncoder(plan, spare).encode(read).lanes
    assert writes.texts is buffer


@pytest.mark.parametrize("bad", [{"": {"S": "x"}}, {"x" * 65_536: {"S": "x"}}, {"w": {"M": {"": {"S": "x"}}}}])
def test_a_name_that_no_column_has_is_refused_in_its_row(bad):
    """An empty or a very long name rejects only its item, though it could not be the name of a column."""
    actual = by_text([GOOD, GOOD | bad, GOOD | {"pk": {"S": ""}}], plan_of())
    assert {refusal.row: refusal.rule for refusal in actual.refusals} == {1: "name", 2: "key_empty"}
    assert sum(map(len, actual.lanes)) == 1


def growth_of(steps):
    """Return the growth of Python's memory in the second half of some steps, in bytes."""
    tracemalloc.start()
    try:
        sizes = []
        for step in steps:
            step()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return sizes[-1] - sizes[len(sizes) // 2]


@pytest.mark.nightly
def test_updates_of_ever_new_patterns_of_nulls_take_no_more_memory():
    """Rows with different attributes keep no memory after they are encoded."""
    chance, names = random.Random(1), [f"a{n:02}" for n in range(60)]

    def batch():
        rows = {name: [chance.choice([None, 1]) for _ in range(200)] for name in names}
        return pa.record_batch({"pk": ["x"] * 200, "sk": list(range(200)), **rows})

    batches, encoders = [batch() for _ in range(8)], Encoders(plan_of("update"), deque())
    steps = [lambda batch=batch: encoders.of(batch).encode(batch, 0) for batch in batches]
    assert growth_of(steps) < 100_000


def test_ever_new_columns_take_no_more_memory():
    """For files with different columns only the last encoders are kept, and used again."""
    encoders = Encoders(plan_of(), deque())
    batches = [pa.record_batch({"pk": ["x"], "sk": [1], f"c{n}": [1]}) for n in range(80)]
    first = encoders.of(batches[0])
    held = [encoders.of(batch) for batch in batches]
    assert held[0] is first
    assert encoders.of(batches[-1]) is held[-1]
    assert encoders.of(batches[0]) is not first
    assert len(encoders._encoders) < 20
