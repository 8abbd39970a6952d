"""Gaps healed from exports, in worlds drawn from a seed: the log results in the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.cdc.healing import (
    ExportDecoder,
    ExportedKeys,
    LogState,
    find_digests,
    heal_windows,
    image_digests,
    key_digests,
)
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cdc.log_rows import LogDecoder

ITEMS = pa.schema([("pk", pa.string()), ("n", pa.int64())])
BEGAN = 1_793_491_200
LOG, EXPORT = LogDecoder(ITEMS, ("pk",)), ExportDecoder(ITEMS, ("pk",), old_image=False, event_id=False)
KEYS, ATTRIBUTES = ("pk",), ("pk", "n")


class World:
    """A table, its stream, the captured changes, and incremental exports.

    Parameters
    ----------
    elides
        Whether exports leave out items that returned to their state.
    """

    def __init__(self, seed, *, elides):
        self.random, self.elides = Random(seed), elides
        self.table, self.writes = {}, []
        self.at, self.sequence = BEGAN, 10**20 - 40

    def write(self, seconds):
        """Write some items within this number of seconds."""
        for _ in range(self.random.randrange(12)):
            self.at += self.random.random() * seconds / 12
            key = str(self.random.randrange(8))
            old = self.table.get(key)
            # Few values, so that items return to earlier states.
            new = None if self.random.random() < 0.35 else self.random.randrange(2)
            if old == new:
                continue
            self.sequence += self.random.randint(1, 9)
            self.writes.append((self.at, self.sequence, key, old, new))
            self.table.pop(key) if new is None else self.table.update({key: new})
        self.at = max(self.at, BEGAN) + self.random.random()

    def records(self, chosen):
        """Return the rows of the log for some writes. Their times are in seconds and slightly wrong."""
        texts = []
        for at, sequence, key, old, new in chosen:
            change = {"ApproximateCreationDateTime": int(at + self.random.choice([0, 0, -1, 1])),
                      "Keys": {"pk": {"S": key}}, "SequenceNumber": str(sequence), **images(key, old, new)}  # fmt: skip
            kind = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
            texts.append(json.dumps({"eventName": kind, "dynamodb": change}))
        actual = LOG.decode_records("\n".join(texts).encode()) if texts else None
        return LOG.schema.empty_table() if actual is None else pa.Table.from_batches([actual.rows])

    def export(self, start, end):
        """Return the rows of an incremental export."""
        net = {}
        for at, _, key, old, new in self.writes:
            if start <= at < end:
                net[key] = (at, net[key][1] if key in net else old, new)
        lines = []
        for key, (at, old, new) in net.items():
            if (old is None and new is None) or (self.elides and old == new):
                continue
            lines.append(json.dumps({"Metadata": {"WriteTimestampMicros": {"N": str(int(at * 1e6))}},
                                     "Keys": {"pk": {"S": key}}, **images(key, old, new)}))  # fmt: skip
        actual = EXPORT.decode_lines("\n".join(lines).encode()) if lines else None
        return EXPORT.schema.empty_table() if actual is None else pa.Table.from_batches([actual.rows])


def images(key, old, new):
    """Return the images of a change."""
    shown = {"OldImage": old, "NewImage": new}
    return {name: {"pk": {"S": key}, "n": {"N": str(n)}} for name, n in shown.items() if n is not None}


def state_of(rows):
    """Return the items that result from a log: the last row of each item wins."""
    last = last_of_each(in_order(rows), ["pk"]).to_pylist()
    return {row["pk"]: row["n"] for row in last if row["_op"] != "REMOVE"}


def heal(world, parts, since, until, *, is_known):
    """Return the rows that heal the gap between two parts of a log."""
    windows = heal_windows(datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC))
    exports = [world.export(value.start.timestamp(), value.end.timestamp()) for value in windows]
    keys = [ExportedKeys.of([(key_digests(export, KEYS), image_digests(export, ATTRIBUTES))]) for export in exports]
    state = LogState(KEYS, ATTRIBUTES, windows[0].start.timestamp(), windows[-1].end.timestamp(), keys)
    for rows, is_after in zip(parts, (False, True), strict=True):
        state.add(rows, is_after=is_after if is_known else None)
    decided, unsettled = state.decide(1)
    healed = [decided.rows(number, rows, KEYS, "export") for number, rows in enumerate(exports)]
    if unsettled.keys.num_rows:
        lines = [
            json.dumps({"Metadata": {"WriteTimestampMicros": {"N": str(int(until * 1e6))}},
                        "Keys": {"pk": {"S": key}}, **images(key, None, world.table.get(key))})
            for key in unsettled.keys.column("pk").to_pylist()
        ]  # fmt: skip
        actual = pa.Table.from_batches([EXPORT.decode_lines("\n".join(lines).encode()).rows])
        healed.append(unsettled.rows(actual, key_digests(actual, KEYS), image_digests(actual, ATTRIBUTES)))
    return pa.concat_tables(healed, promote_options="permissive")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("elides", [False, True])
def test_a_healed_log_derives_to_the_table(elides, seeds):
    """Lost inserts, changes and deletes, and overlapping windows are healed, with and without returned items."""
    wrong = 0
    for seed in seeds(200, 2_000):
        world = World(seed, elides=elides)
        # The log has everything from before its start, so the table results from it.
        world.write(600)
        world.write(20)
        captured, since = len(world.writes), world.at
        world.write(world.random.choice([30, 1800, 100_000]))
        lost = len(world.writes)
        world.at += 700
        until = world.at
        world.write(1)
        world.at += world.random.choice([0, 2000])
        world.write(2000)
        # Some of the newest changes are captured later.
        late = world.random.randint(lost, len(world.writes))
        parts = [world.records(world.writes[:captured]), world.records(world.writes[lost:late])]
        others = world.records(world.writes[late:])
        is_known = world.random.random() < 0.7
        rows = heal(world, parts, since, until, is_known=is_known)
        full = pa.concat_tables([*parts, others, rows.drop_columns(["_healed_by"])], promote_options="permissive")
        wrong += state_of(pa.concat_tables([*parts, others])) != world.table
        assert state_of(full) == world.table, (seed, is_known)
    assert wrong > 50


def test_windows_begin_before_the_gap_and_are_long_enough():
    """One minute is added before the gap. A short window has 15 minutes, a long one is split by days."""
    at = datetime.fromtimestamp(BEGAN, UTC)
    (only,) = heal_windows(at + timedelta(seconds=1.5), at + timedelta(seconds=90.25))
    assert (only.end, only.end - only.start) == (at + timedelta(seconds=91), timedelta(minutes=15))
    first, second = heal_windows(at, at + timedelta(hours=30))
    assert (first.start, second.start) == (at - timedelta(seconds=60), first.end)
    assert second.end == at + timedelta(hours=30)


def test_operations_follow_what_the_log_had():
    """An item in the log is changed, one deleted in the log is new, and one not in the log is as exported."""
    world = World(1, elides=False)
    base = BEGAN + 10_000
    world.writes = [(base, 100, "a", None, 1), (base, 101, "b", None, 1), (base + 1, 102, "b", 1, None),
                    (base + 5000, 200, "a", 1, 2), (base + 5000, 201, "b", None, 2), (base + 5000, 202, "c", None, 2),
                    (base + 5000, 203, "d", 1, 2), (base + 5000, 204, "e", 1, None)]  # fmt: skip
    parts = [world.records(world.writes[:3]), world.records([])]
    rows = heal(world, parts, base + 2, base + 6000, is_known=True).sort_by("pk")
    healed = {row["pk"]: (row["_op"], row["_sequence"], row["n"]) for row in rows.to_pylist()}
    new = 10**12
    assert healed["a"] == ("MODIFY", "101", 2)
    assert healed["b"] == ("INSERT", "103", 2)
    assert {pk: healed[pk][0] for pk in "cde"} == {"c": "INSERT", "d": "MODIFY", "e": "REMOVE"}
    assert all(int(healed[pk][1]) > new for pk in "cde")
    assert set(rows.column("_healed_by").to_pylist()) == {"export"}
    assert np.all(np.diff(rows.column("_event_time").cast(pa.int64()).to_numpy()) == 0)


# Digests with equal starts, equal ends, or zeros at the end.
DIGESTS = st.builds(bytes.__add__, *[st.sampled_from([bytes(8), b"a" * 8, b"a" * 7 + b"\0", b"\xff" * 8])] * 2)


def array_of(digests):
    """Return digests as an array."""
    return np.array(digests, "S16")


@given(st.lists(DIGESTS, unique=True, max_size=9), st.lists(DIGESTS, max_size=9))
def test_digests_are_found_among_those_with_equal_prefixes(digests, wanted):
    """Each digest is found at its position, and no other digest is found."""
    ordered = sorted(digests)
    indices, is_known = find_digests(array_of(wanted), array_of(ordered))
    assert is_known.tolist() == [value in digests for value in wanted]
    assert [ordered[index] for index in indices[is_known]] == [value for value in wanted if value in digests]


@given(st.lists(DIGESTS, max_size=9))
def test_the_digests_of_an_export_are_in_order(digests):
    """Each keeps its image. Equal ones keep their order."""
    images = [bytes([index + 1]) * 16 for index in range(len(digests))]
    actual = ExportedKeys.of([(array_of(digests), array_of(images))])
    expected = sorted(zip(digests, images, strict=True), key=lambda value: value[0])
    assert actual.keys.tolist() == [value.rstrip(b"\0") for value, _ in expected]
    assert actual.images.tolist() == [value for _, value in expected]
