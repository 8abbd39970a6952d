from __future__ import annotations

import random

import pytest

from ddbio.jobs.file_estimates import PartitionSample, estimate_files

MIB = 1024 * 1024


def sample_of(rows, partitions, row_bytes=100.0, seed=7):
    """Return the sample of rows that are spread evenly over partitions."""
    chosen = random.Random(seed).choices(range(partitions), k=rows)
    return PartitionSample(tuple(chosen.count(each) for each in set(chosen)), row_bytes)


@pytest.mark.parametrize("partitions", [1, 20, 500, 3000])
def test_partitions_that_the_sample_missed_are_estimated(partitions):
    """A sample of 2,000 rows tells the number of partitions within a fifth, also where it saw only half of them."""
    found = estimate_files(sample_of(2000, partitions), 10**7, 1, 256 * MIB)
    assert abs(found.partitions - partitions) <= 0.2 * partitions


def test_small_files_are_warned_of_with_numbers():
    """Many tasks and many partitions make many small files: the warning says how many and how large."""
    found = estimate_files(sample_of(2000, 20), 10**6, 8, 256 * MIB)
    assert (found.partitions, found.files, found.file_bytes) == (20, 160, 625_000)
    advice = "partition by fewer columns, use fewer tasks, or compact the folder afterwards"
    assert found.warnings == (f"about 160 files of 0.60 MiB in 20 partitions: {advice}",)


def test_large_or_few_files_need_no_warning():
    """Partitions of several files count them all; a handful of small files is nobody's trouble."""
    large = estimate_files(sample_of(2000, 10), 10**9, 4, 256 * MIB)
    assert (large.files, large.warnings) == (373, ())
    assert estimate_files(sample_of(100, 3), 100, 4, 256 * MIB).warnings == ()


def test_a_whole_table_needs_no_estimate():
    """If the sample is all there is, its partitions are all partitions."""
    found = estimate_files(PartitionSample((1, 1, 1), 10.0), 3, 4, 256 * MIB)
    assert (found.partitions, found.files) == (3, 3)
