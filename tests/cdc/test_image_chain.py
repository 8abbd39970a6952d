"""Changes of an item with equal times: their images determine their order."""

from __future__ import annotations

import itertools
import json
from random import Random

import pyarrow as pa
import pytest

import ddbio
from ddbio.cdc import log_order as image_chain
from ddbio.cdc.log_order import chain_order, sequences_of


def test_a_chain_is_found_in_any_order():
    """Shuffled changes of an item that never has a state twice are ordered."""
    random = Random(1)
    for length in range(1, 20):
        chain = [(str(index), str(index + 1)) for index in range(length)]
        shuffled = random.sample(chain, length)
        assert [shuffled[index] for index in chain_order(shuffled)] == chain


def test_a_chain_with_circles_uses_each_change_once():
    """An item that returns to a state has several orders. The result starts and ends correctly."""
    random = Random(2)
    for _ in range(300):
        states = [str(random.randrange(4)) for _ in range(random.randint(2, 12))]
        chain = [value for value in itertools.pairwise(states) if value[0] != value[1]]
        if not chain:
            continue
        shuffled = random.sample(chain, len(chain))
        actual = [shuffled[index] for index in chain_order(shuffled)]
        assert sorted(actual) == sorted(chain)
        assert all(one[1] == two[0] for one, two in itertools.pairwise(actual))
        if chain[0][0] != chain[-1][1]:
            assert (actual[0][0], actual[-1][1]) == (chain[0][0], chain[-1][1])


def test_changes_without_a_chain_keep_their_order():
    """If a change is missing, the given order is kept."""
    assert chain_order([("a", "b"), ("c", "d")]) == [0, 1]


def test_numbers_order_the_changes_of_an_item():
    """A number has the time, the batch and the rank in the chain, regardless of the order of sets and members."""

    def change(before, after):
        images = {"OldImage": before, "NewImage": after}
        members = {name: image for name, image in images.items() if image is not None}
        return {"Keys": {"pk": {"S": "a"}}, **members}

    one = {"pk": {"S": "a"}, "s": {"SS": ["x", "y"]}, "m": {"M": {"k": {"L": [{"N": "1"}]}}}}
    same = {"m": {"M": {"k": {"L": [{"N": "1"}]}}}, "s": {"SS": ["y", "x"]}, "pk": {"S": "a"}}
    two = {**one, "n": {"N": "2"}}
    changes = [change(same, two), change(None, one), change(two, None), change(None, two), change(two, None)]
    times = pa.array([5, 5, 7, 9, 9], pa.timestamp("us", "UTC"))
    rows = pa.table({"_event_time": times, "pk": ["a"] * 5})
    numbers = sequences_of(rows, lambda row: changes[row], ["pk"], 3).to_pylist()
    assert numbers[1] == "0000000000000005000000000003000000"
    assert sorted(range(5), key=lambda index: numbers[index]) == [1, 0, 2, 3, 4]
    # The state before the changes shows that the item returned first.
    changes[3:] = changes[4], changes[3]
    numbers = sequences_of(rows, lambda row: changes[row], ["pk"], 3).to_pylist()
    assert sorted(range(5), key=lambda index: numbers[index]) == [1, 0, 2, 4, 3]


SETTINGS = [
    ("N", pa.int64(), ["1", "2", "3"]),
    ("N", pa.int64(), ["1.5", "2.5", "3.5"]),
    ("N", pa.int64(), ["1", "1.5", "9" * 38]),
    ("N", pa.decimal128(3, 1), ["1.5", "1E+9", "1E+10"]),
    ("S", pa.string(), ["a", "b", "c"]),
    ("S", pa.int64(), ["a", "b", "1"]),
    ("B", pa.binary(), ["AA==", "AQ==", "Ag=="]),
]


@pytest.mark.parametrize(("tag", "arrow", "keys"), SETTINGS)
@pytest.mark.parametrize("each_time", [1, 2, 7, 60])
@pytest.mark.parametrize("by_rank", [False, True])
def test_ties_of_hot_items_are_put_in_order(tag, arrow, keys, each_time, by_rank):
    """Many changes share a time, of items that return to earlier states.

    Each tie continues where the last one ended.
    """
    random, records, changes = Random(each_time), list[dict](), list[tuple[int, str, int, int]]()
    state = dict.fromkeys(keys, -1)
    for number in range(60):
        changed = []
        for key in keys:
            # A counter that also decreases.
            new = state[key] + random.choice([1, 1, 1, -1]) if state[key] > 0 else state[key] + 1
            changed.append((number // each_time, key, state[key], new))
            state[key] = new
        changes += changed
    shuffled = sorted(random.sample(changes, len(changes)), key=lambda value: value[0])
    for _, key, old, new in shuffled:
        own = {"k": {tag: key}}
        images = {name: {**own, "n": {"N": str(n)}} for name, n in (("OldImage", old), ("NewImage", new)) if n >= 0}
        records.append({"Keys": own, **images})
    items = [json.dumps({"Item": record["Keys"]}) for record in records]
    schema = pa.schema([pa.field("k", arrow), pa.field("v", pa.int64())])
    rows = pa.Table.from_batches([ddbio.from_dynamodb_json("\n".join(items).encode(), schema)])
    times = pa.array([1_000 * (1 + value[0]) for value in shuffled], pa.timestamp("us", "UTC"))
    rows = rows.append_column("_event_time", times)
    numbers = sequences_of(rows, records.__getitem__, ["k"], 1, by_rank=by_rank).to_pylist()
    for key in keys:
        own = sorted((number, old, new) for number, (_, k, old, new) in zip(numbers, shuffled, strict=True) if k == key)
        assert own[0][1] == -1
        assert all(one[2] == two[1] for one, two in itertools.pairwise(own))
        assert len({number for number, _, _ in own}) == len(own)
    assert len(set(numbers)) == len(numbers) or not by_rank


def test_a_tie_continues_where_the_previous_tie_ended():
    """The last state of the previous chain is the start of an item that returned to its state."""

    def change(old, new):
        return {"Keys": {"k": {"S": "a"}}, "OldImage": {"n": {"S": old}}, "NewImage": {"n": {"S": new}}}

    # At each time the item changes in a circle, at the second one starting with b.
    changes = [change("a", "c"), change("c", "b"), change("a", "b"), change("b", "a")]
    times = pa.array([1, 1, 2, 2], pa.timestamp("us", "UTC"))
    rows = pa.table({"_event_time": times, "k": ["a"] * 4})
    numbers = sequences_of(rows, changes.__getitem__, ["k"], 1).to_pylist()
    assert sorted(range(4), key=numbers.__getitem__) == [0, 1, 3, 2]


def test_ties_take_linear_time(monkeypatch):
    """The times of all rows are read once for any number of ties, so the work is not quadratic."""
    calls, micros = [], image_chain.event_micros
    monkeypatch.setattr(image_chain, "event_micros", lambda rows: calls.append(1) or micros(rows))
    times = pa.array([number // 2 for number in range(40)], pa.timestamp("us", "UTC"))
    rows = pa.table({"_event_time": times, "k": ["a"] * 40})
    assert len(set(sequences_of(rows, lambda _: {"Keys": {"k": {"S": "a"}}}, ["k"], 1).to_pylist())) == 40
    assert len(calls) == 1
