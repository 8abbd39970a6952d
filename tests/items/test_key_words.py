"""Words of keys: the part of a row's digest for its key attributes, in columns or rescued."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import BINARIES, NUMBERS, TEXT

from ddbio.errors import DdbioError, SchemaError
from ddbio.items.digest import name_key, value_hash
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.key_hashes import key_words

KEYS = ["pk", "sk"]
ANY_KEY = st.one_of(
    TEXT.map(lambda text: {"S": text}), NUMBERS.map(lambda text: {"N": text}), BINARIES.map(lambda text: {"B": text})
)
SCHEMA = pa.schema(
    [pa.field("pk", pa.string()), pa.field("sk", pa.string(), metadata={"ddb:type": "N"}), pa.field("x", pa.int64()),
     pa.field("_rescue", pa.string())]
)  # fmt: skip


def word_of(pk, sk):
    """Return the word by the definition."""
    return (value_hash(name_key("pk"), pk)[0] + value_hash(name_key("sk"), sk)[0]) % 2**64


def batch_of(rows):
    """Return rows of two keys and a space before their rescued text. Keys are in their columns if they fit."""
    columns = {"pk": [], "sk": [], "x": [], "_rescue": []}
    for number, (pk, sk, blank) in enumerate(rows):
        others = ({} if "S" in pk else {"pk": pk}) | ({} if "N" in sk else {"sk": sk})
        columns["pk"].append(pk.get("S"))
        columns["sk"].append(sk.get("N"))
        columns["x"].append(number)
        columns["_rescue"].append(blank + json.dumps(others) if others else None)
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


@given(st.lists(st.tuples(ANY_KEY, ANY_KEY, st.sampled_from(["", " "])), min_size=1, max_size=8))
def test_words_are_those_of_the_definition(rows):
    """A row's word is that of its key attributes, in their columns or rescued, regardless of other attributes."""
    wanted = [word_of(pk, sk) for pk, sk, _ in rows]
    batch = batch_of(rows)
    assert key_words(batch, KEYS).tolist() == wanted
    assert key_words(batch.slice(1), KEYS).tolist() == wanted[1:]


def test_hashing_a_row_also_gives_the_word_of_its_key():
    """If all keys are in their columns, the words come with the sums. The digest is that of all attributes."""
    batch = batch_of([({"S": "a"}, {"N": "1.0"}, ""), ({"S": "b"}, {"N": "1E1"}, "")])
    with_keys, plain = ColumnDigest(KEYS).add_rows(batch), ColumnDigest().add_rows(batch)
    assert with_keys.keys.tolist() == key_words(batch, KEYS).tolist() == [
        word_of({"S": "a"}, {"N": "1"}), word_of({"S": "b"}, {"N": "10"})
    ]  # fmt: skip
    assert (with_keys.items == plain.items).all()
    assert (with_keys.digest, plain.keys) == (plain.digest, None)
    rescued = batch_of([({"S": "a"}, {"B": "AA=="}, "")])
    assert ColumnDigest(KEYS).add_rows(rescued).keys is None


def test_no_rows_have_no_words():
    """An empty batch has no words."""
    assert key_words(batch_of([]), KEYS).tolist() == []
    assert key_words(batch_of([]), KEYS).dtype == np.uint64


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k": ["a", None]}, "^row 1: k is missing"),
        ({"k": [True]}, "^row 0: k is of type BOOL"),
        ({"j": ["a"]}, "^k: the batch has no such attribute"),
        ({"k": [1, None], "_rescue": [None, '{"k":{"NULL":true}}']}, "^row 1: k is of type NULL"),
    ],
)
def test_rows_without_a_key_are_refused(columns, message):
    """A row without a key attribute, a key of another type and an unknown column are errors.

    The message names the key.
    """
    with pytest.raises(SchemaError, match=message):
        key_words(pa.RecordBatch.from_pydict(columns), ["k"])


def test_rescued_text_that_is_no_item_is_refused():
    """Text of the rescue column that is not an item is an error."""
    batch = pa.RecordBatch.from_pydict({"k": pa.array([None], pa.int64()), "_rescue": pa.array([""])})
    with pytest.raises(DdbioError, match="_rescue: expected one JSON document"):
        key_words(batch, ["k"])
