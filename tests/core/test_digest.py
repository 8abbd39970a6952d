from __future__ import annotations

import json
import pickle
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.core.decode import Decoder
from ddbio.core.digest import Digest, canonical_text
from ddbio.core.schema import infer_schema_of_items


def digest_of(items):
    """Return the digest of items."""
    digest = Digest()
    digest.add_items(items)
    return digest


@given(st.lists(ITEMS, max_size=6), st.randoms(use_true_random=False))
def test_order_and_partitioning_do_not_matter(items, random):
    """Items in any order, in any number of parts, by any way in, have one digest."""
    shuffled = random.sample(items, len(items))
    cut = random.randint(0, len(items))
    parts = digest_of(shuffled[:cut])
    rest = Digest()
    rest.add_page(json.dumps({"Items": shuffled[cut:]}).encode())
    parts.merge(pickle.loads(pickle.dumps(rest)))
    assert parts == digest_of(items) == Digest(*parts.as_tuple())
    assert len(parts.hexdigest()) == 32


@given(st.lists(ITEMS, max_size=6))
def test_a_decoded_batch_has_the_digest_of_its_source(items):
    """What was decoded without loss has the digest of the wire."""
    page = json.dumps({"Items": items}).encode()
    batch = Decoder(infer_schema_of_items(items), nulls="keep").decode(page, "page")
    digest = Digest()
    digest.add_batch(batch)
    assert digest == digest_of(items)


@given(ITEMS, ITEMS)
def test_different_items_differ(one, other):
    """Two items have one digest exactly if they are the same item."""

    def comparable(item):
        return json.loads(canonical_text(item))

    assert (digest_of([one]).total == digest_of([other]).total) == (comparable(one) == comparable(other))


@given(ITEMS)
def test_the_canonical_text_is_plain_json(item):
    """The canonical text is the sorted compact JSON of the item, sets sorted."""

    def plain(value):
        ((tag, content),) = value.items()
        if tag in {"SS", "NS", "BS"}:
            return {tag: sorted(content)}
        if tag == "L":
            return {tag: [plain(element) for element in content]}
        return {tag: {name: plain(member) for name, member in content.items()}} if tag == "M" else value

    members = {name: plain(value) for name, value in item.items()}
    expected = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_text(item) == expected


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
    """Spelling of numbers and base64, and the order of sets and maps, change nothing."""
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
    """The digest of known items is the sum of blake2b-128 of their canonical texts."""
    texts = ['{"a":{"S":"é\\"\\u0001"},"b":{"N":"1000"}}', "{}"]
    total = sum(int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big") for text in texts) % 2**128
    digest = digest_of([{"b": {"N": "1e3"}, "a": {"S": 'é"\x01'}}, {}])
    assert (digest.count, digest.hexdigest()) == (2, f"{total:032x}")
