"""The set of seen keys: exactly the first of equal keys is new, for any division into batches."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ddbio.items.item_key import Fingerprints, KeySet, key_fingerprints


def prints_of(pairs):
    """Return pairs of words as fingerprints."""
    high, low = zip(*pairs, strict=True)
    return Fingerprints(np.array(high, np.uint64), np.array(low, np.uint64))


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20), max_size=10))
def test_first_of_equal_prints_is_new(stream):
    """A fingerprint is new unless both its words occurred before, even if many share one word."""
    seen, keys = set(), KeySet()
    for pairs in stream:
        expected = []
        for pair in pairs:
            expected.append(pair not in seen)
            seen.add(pair)
        assert keys.add(prints_of(pairs)).tolist() == expected


@given(st.lists(st.integers(0, 500), min_size=1, max_size=200), st.integers(1, 50))
def test_equal_keys_have_equal_prints(values, step):
    """Keys are distinguished by value: the number of new keys is the number of distinct ones."""
    keys, new = KeySet(), 0
    for start in range(0, len(values), step):
        part = values[start : start + step]
        batch = pa.RecordBatch.from_pydict({"pk": [f"k{value % 7}" for value in part], "sk": part})
        new += int(keys.add(key_fingerprints(batch, ["pk", "sk"])).sum())
    assert new == len(set(values))


def test_the_words_of_a_print_differ():
    """The second word is independent of the first."""
    prints = key_fingerprints(pa.RecordBatch.from_pydict({"pk": ["a", "b"]}), ["pk"])
    assert len({*prints.high.tolist(), *prints.low.tolist()}) == 4
