"""Changes of an item with equal times: their images tell their order."""

from __future__ import annotations

import itertools
from random import Random

import pyarrow as pa

from ddbio.core.capture.image_chain import chain_order, sequences_of


def test_a_chain_is_found_in_any_order():
    """Shuffled changes of an item that never has a state twice come in their order."""
    random = Random(1)
    for length in range(1, 20):
        chain = [(str(place), str(place + 1)) for place in range(length)]
        shuffled = random.sample(chain, length)
        assert [shuffled[place] for place in chain_order(shuffled)] == chain


def test_a_chain_with_circles_uses_each_change_once():
    """An item that comes back to a state has more than one order; the one found begins and ends as it did."""
    random = Random(2)
    for _ in range(300):
        states = [str(random.randrange(4)) for _ in range(random.randint(2, 12))]
        chain = [each for each in itertools.pairwise(states) if each[0] != each[1]]
        if not chain:
            continue
        shuffled = random.sample(chain, len(chain))
        found = [shuffled[place] for place in chain_order(shuffled)]
        assert sorted(found) == sorted(chain)
        assert all(one[1] == two[0] for one, two in itertools.pairwise(found))
        if chain[0][0] != chain[-1][1]:
            assert (found[0][0], found[-1][1]) == (chain[0][0], chain[-1][1])


def test_changes_without_a_chain_keep_their_order():
    """If one is missing, nothing is guessed."""
    assert chain_order([("a", "b"), ("c", "d")]) == [0, 1]


def test_numbers_order_the_changes_of_an_item():
    """The number has the time, the batch and the place in the chain, whatever the order of sets and members is."""

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
    found = sequences_of(rows, lambda row: changes[row], ["pk"], 3).to_pylist()
    assert found[1] == "0000000000000005000000000003000000"
    assert sorted(range(5), key=lambda place: found[place]) == [1, 0, 2, 3, 4]
    # What was there before tells that the item came again first.
    changes[3:] = changes[4], changes[3]
    found = sequences_of(rows, lambda row: changes[row], ["pk"], 3).to_pylist()
    assert sorted(range(5), key=lambda place: found[place]) == [1, 0, 2, 4, 3]
