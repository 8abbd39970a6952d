from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from item_strategies import ITEMS, meaning_of_item

from ddbio.items.attribute import encode_base64
from ddbio.items.digest import Digest


def digest_of(items):
    """Return the digest of items."""
    digest = Digest()
    digest.add_items(items)
    return digest


@given(st.lists(ITEMS, max_size=6), st.randoms(use_true_random=False))
def test_order_and_partitioning_do_not_matter(items, random):
    """The digest does not depend on the order of items or the number of parts."""
    shuffled = random.sample(items, len(items))
    cut = random.randint(0, len(items))
    parts = digest_of(shuffled[:cut])
    remaining = Digest()
    remaining.add_items(shuffled[cut:])
    parts.merge(pickle.loads(pickle.dumps(remaining)))
    assert parts == digest_of(items) == Digest(*parts.as_tuple())
    assert len(parts.hexdigest()) == 32


@given(ITEMS, ITEMS)
def test_different_items_differ(one, other):
    """Two items have one digest exactly if they are equal."""
    assert (digest_of([one]) == digest_of([other])) == (meaning_of_item(one) == meaning_of_item(other))


@given(ITEMS, ITEMS, st.data())
def test_moved_values_do_not_cancel(one, other, data):
    """Values swapped among attributes, items or levels change the sum of their hashes."""
    assume(one and other)
    here, there = data.draw(st.sampled_from(sorted(one))), data.draw(st.sampled_from(sorted(other)))
    swapped = [{**one, here: other[there]}, {**other, there: one[here]}]
    before = Counter(map(meaning_of_item, [one, other]))
    same = Counter(map(meaning_of_item, swapped)) == before
    assert (digest_of(swapped) == digest_of([one, other])) == same
    within = {here: {"M": {name: value for name, value in one.items() if name != here}}}
    assert (digest_of([within]) == digest_of([one])) == (meaning_of_item(within) == meaning_of_item(one))
    assert digest_of([one, one]).total != digest_of([]).total


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": "1"}, {"N": "1.0"}),
        ({"N": "1e3"}, {"N": "+1000"}),
        ({"N": "0"}, {"N": "-0"}),
        ({"NS": ["2", "1e1"]}, {"NS": ["10", "2.0"]}),
        ({"SS": ["b", "a"]}, {"SS": ["a", "b"]}),
        ({"B": "YR=="}, {"B": "YQ=="}),
        ({"M": {"a": {"N": "1"}, "b": {"L": [{"N": "2.0"}]}}}, {"M": {"b": {"L": [{"N": "2"}]}, "a": {"N": "1"}}}),
    ],
)
def test_spellings_of_one_value_agree(one, other):
    """Texts of numbers and base64, and the order of sets and maps, do not change the digest."""
    assert digest_of([{"a": one}]) == digest_of([{"a": other}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": {"NULL": True}}, {}),
        ({"a": {"N": "1"}}, {"a": {"S": "1"}}),
        ({"a": {"SS": ["a"]}}, {"a": {"L": [{"S": "a"}]}}),
        ({"a": {"L": [{"N": "1"}, {"N": "2"}]}}, {"a": {"L": [{"N": "2"}, {"N": "1"}]}}),
        ({"a": {"BOOL": True}}, {"a": {"BOOL": False}}),
        ({"a": {"M": {}}}, {"a": {"L": []}}),
    ],
)
def test_near_values_differ(one, other):
    """Type, order in a list, and NULL against missing change the digest."""
    assert digest_of([one]) != digest_of([other])


def test_the_digest_is_as_documented():
    """The examples of the page that defines the digest have the documented digests."""
    page = Path(__file__).parents[2] / "docs/digest.md"
    examples = re.findall(r"^\| `(\{.*\})` \| `([0-9a-f]{32})` \|$", page.read_text("utf-8"), re.MULTILINE)
    assert len(examples) > 9
    assert [digest_of([json.loads(item)]).hexdigest() for item, _ in examples] == [digest for _, digest in examples]


def test_every_type_has_its_own_digest():
    """Empty and equal contents of different types, or at different paths, have different digests."""
    alike = [{tag: []} for tag in ("SS", "NS", "BS", "L")] + [{tag: ""} for tag in ("S", "B")]
    alike += [{"M": {}}, {"NULL": True}, {"BOOL": False}, {"BOOL": True}, {"N": "0"}, {"N": "1"}]
    alike += [{tag: ["MQ=="]} for tag in ("SS", "BS")] + [{tag: "MQ=="} for tag in ("S", "B")] + [{"NS": ["1"]}]
    alike += [{"L": [element]} for element in alike] + [{"M": {"a": member}} for member in alike]
    items = [{}] + [{name: value} for name in ("a", "b", "") for value in alike]
    assert len({digest_of([item]).total for item in items}) == len(items)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33])
def test_every_byte_counts(size):
    """Another bit at any position, one zero more or one zero less changes the digest."""
    data = bytes(range(1, size + 1))
    others = [data + b"\0", b"\0" + data, data[:-1] if data else b"x"]
    others += [bytes([*data[:position], data[position] ^ 1, *data[position + 1 :]]) for position in range(size)]
    values = [{"a": {"B": encode_base64(content)}} for content in (data, *others)]
    assert len({digest_of([value]).total for value in values}) == len(set(others)) + 1
