"""Captures that are killed, suspended and overtaken at any step, in schedules drawn from a seed: log = stream."""

from __future__ import annotations

import pytest

from ddbio.errors import GapError, TargetError
from ddbio.storage.job_state import JobState
from tests.cdc.virtual_stream import KilledError, MemoryStore, World

KILLED, OVERTAKEN, MERGED = {"kill": 0.06}, {"kill": 0.03, "overtake": 0.04}, {"kill": 0.05, "merge": 0.5}


def run(seed, chances):
    """Run a capture repeatedly until it is not killed, then to its end. Return the world."""
    world = World(seed, **chances)
    for _ in range(3):
        try:
            world.capture(steps=4)
        except (KilledError, TargetError):
            continue
    world.is_quiet = True
    world.capture(available_now=True)
    return world


@pytest.mark.timeout(3600)
def test_every_change_is_logged_once(seeds):
    """With writers, splits, kills at every step and takeovers, nothing is repeated and nothing is missing."""
    for seed in seeds(300, 2_000):
        world = run(seed, (KILLED, OVERTAKEN, MERGED)[seed % 3])
        logged, count = world.captured()
        assert logged == world.expected(), seed
        assert count == len(logged), seed


@pytest.mark.timeout(3600)
def test_a_capture_of_the_latest_starts_about_now(seeds):
    """A capture that starts at the latest changes has all later ones, even if it is killed before its first batch."""
    for seed in seeds(40, 400):
        world = World(seed, kill=0.0, split=0.0)
        for _ in range(20):
            world.write()
        world.clock.at += 10
        before = world.expected()
        JobState(MemoryStore(world), "job", "capture").begin({"started_at": world.clock.at})
        world.chances |= {"kill": 0.1, "split": 0.05}
        for _ in range(6):
            try:
                world.capture(steps=4, start="latest")
            except KilledError:
                continue
        world.is_quiet = True
        world.capture(available_now=True, start="latest")
        logged, count = world.captured()
        since = {number: value for number, value in world.expected().items() if number not in before}
        assert logged == since, seed
        assert count == len(logged), seed


def test_a_gap_is_reported():
    """Changes trimmed before they are read end the capture. With continues_after_gaps, the gap is recorded instead."""
    world = World(1, kill=0.0, split=0.0)
    world.capture(available_now=True)
    world.is_quiet = True
    for _ in range(20):
        world.write()
    lost = world.expected().keys() - world.captured()[0].keys()
    world.stream.trim(0.0)
    world.write()
    with pytest.raises(GapError, match="are gone: the stream keeps them for a day"):
        world.capture(available_now=True)
    loop = world.capture(available_now=True, continues_after_gaps=True)
    assert loop.gaps
    logged, count = world.captured()
    assert world.expected().items() <= logged.items()
    assert not lost & logged.keys()
    assert count == len(logged)
    records = [value for path, value in world.objects.items() if "/job.capture/" in path]
    assert any(b'"gaps": ["shardId' in record for record in records)


def test_a_shard_that_came_and_went_is_a_gap():
    """Shards that were split and trimmed between two captures are missed, though all remaining ones can be read."""
    world = World(2, kill=0.0, split=0.0)
    world.capture(available_now=True)
    for _ in range(3):
        world.stream.split(1)
        world.clock.at += 60
    for shard in list(world.stream.shards.values())[2:4]:
        del world.stream.shards[shard.shard_id]
    world.is_quiet = True
    with pytest.raises(GapError):
        world.capture(available_now=True)


def test_shards_that_end_without_changes_are_no_gap():
    """A capture remembers the shards of a stream without changes."""
    world = World(3, kill=0.0, split=0.0)
    world.is_quiet = True
    for _ in range(3):
        world.capture(available_now=True)
        world.stream.split(1)
        world.clock.at += 60
    world.capture(available_now=True)
    world.stream.trim(0.0)
    world.write()
    world.capture(available_now=True)
    logged, count = world.captured()
    assert logged == world.expected()
    assert count == 1
