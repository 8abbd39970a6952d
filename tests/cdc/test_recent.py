"""Repeated changes are recognized within the remembered number, in any batch."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from ddbio.cdc.batches import fingerprints_of_ids
from ddbio.items.item_key import KeySet


def test_a_repeated_change_is_recognized():
    """Ids of any length, in any batch, are recognized among the last ones.

    Ids older than twice this number are forgotten.
    """
    chance, recent, count = Random(1), KeySet(400), 0
    seen = dict[str, int]()
    for _ in range(150):
        assert not len(recent.add(fingerprints_of_ids(pa.array([], pa.string()))))
        ids = [f"{chance.getrandbits(chance.choice([16, 128, 130])):x}" for _ in range(chance.randrange(40))]
        ids += [f"{'x' * chance.randrange(80)}", *chance.sample(sorted(seen), min(5, len(seen)))]
        are_new = recent.add(fingerprints_of_ids(pa.array(ids)))
        for value, is_new in zip(ids, are_new.tolist(), strict=True):
            if value not in seen or count - seen[value] > 800:
                assert is_new
            elif count - seen[value] <= 400:
                assert not is_new
            if is_new:
                seen[value], count = count, count + 1
    assert count > 2000
    assert len(recent._runs) < 30
