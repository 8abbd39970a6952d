"""Merges of changes into the rows of a bucket: the result in groups of batches equals that row by row."""

from __future__ import annotations

import random

import pyarrow as pa

from ddbio.lake import bucket_merge as merging
from ddbio.lake.bucket_merge import BucketMerge, Outcome

SCHEMA = pa.schema([("_key", pa.string()), ("_ver", pa.string()), ("_ts_us", pa.int64()), ("_deleted", pa.bool_())])


def rows(states):
    """Return rows of keys, versions and tombstone flags."""
    columns = [[state[index] for state in states] for index in range(3)]
    keys, versions, deleted = columns
    texts = [f"{version:04}" for version in versions]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string()), texts, versions, deleted], schema=SCHEMA)


def test_rows_in_groups_are_merged_like_single_rows(seeds, monkeypatch):
    """For any batches of rows and changes, the newer ones win, and each change is counted once."""
    # Winners are read in small batches.
    monkeypatch.setattr(merging, "_BATCH_ROWS", 3)
    for seed in seeds(20, 1_000):
        chance = random.Random(seed)
        state = {f"k{number}": (chance.randrange(50), chance.random() < 0.3) for number in range(40)}
        numbers = chance.sample(range(60), 25)
        changed = [(f"k{number}", chance.randrange(50), chance.random() < 0.3) for number in numbers]
        table = [(key, *state_of_key) for key, state_of_key in state.items()]
        cuts = sorted(chance.choices(range(41), k=4))
        batches = [rows(table[start:stop]) for start, stop in zip([0, *cuts], [*cuts, 40], strict=True)]
        floor = chance.choice([None, 20])
        merge = BucketMerge(pa.Table.from_batches([rows(changed[:9]), rows(changed[9:])]), floor)
        stays = merge.look_up(batches[:2]).tolist() + merge.look_up(batches[2:]).tolist() + merge.look_up([]).tolist()
        wanted, winners, lost = Outcome(), [], set()
        for key, version, deleted in changed:
            had, was_deleted = state.get(key, (-1 if floor is None else floor, True))
            if version <= had:
                wanted += Outcome(stale=1)
                continue
            winners.append(key)
            lost.add(key)
            if deleted:
                wanted += Outcome(deleted=1)
            elif was_deleted:
                wanted += Outcome(inserted=1)
            else:
                wanted += Outcome(updated=1)
        assert stays == [key not in lost for key in state], seed
        assert merge.outcome() == wanted, seed
        assert [key for batch in merge.winners() for key in batch.column("_key").to_pylist()] == winners, seed
        assert merge.rows_per_lookup >= len(changed), seed
