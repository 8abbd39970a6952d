from __future__ import annotations

import random

import pytest

from ddbio.jobs.file_estimates import PartitionSample, estimate_files

MIB = 1024 * 1024


def sample_of(rows, partitions, row_bytes=100.0, seed=7):
    """Return the sample of rows that are evenly distributed over partitions."""
    chosen = random.Random(seed).choices(range(partitions), k=rows)
    return PartitionSample(tuple(chosen.count(partition) for partition in set(chosen)), row_bytes)


@pytest.mark.parametrize("partitions", [1, 20, 500, 3000])
def test_partitions_that_the_sample_missed_are_estimated(partitions):
    """A sample of 2,000 rows estimates the number of partitions within 20 %, even if it contains only half of them."""
    estimate = estimate_files(sample_of(2000, partitions), 10**7, 1, 256 * MIB)
    assert abs(estimate.partitions - partitions) <= 0.2 * partitions


def test_small_files_are_warned_of_with_numbers():
    """Many tasks and many partitions write many small files: the warning has their number and size."""
    estimate = estimate_files(sample_of(2000, 20), 10**6, 8, 256 * MIB)
    assert (estimate.partitions, estimate.files, estimate.file_bytes) == (20, 160, 625_000)
    advice = "partition by fewer columns, use fewer tasks, or compact the folder afterwards"
    assert estimate.warnings == (f"about 160 files of 0.60 MiB in 20 partitions: {advice}",)


def test_large_or_few_files_need_no_warning():
    """Partitions with several files count them all. A few small files are harmless."""
    large = estimate_files(sample_of(2000, 10), 10**9, 4, 256 * MIB)
    assert (large.files, large.warnings) == (373, ())
    assert estimate_files(sample_of(100, 3), 100, 4, 256 * MIB).warnings == ()


def test_a_complete_sample_needs_no_estimate():
    """If the sample has all rows, its partitions are all partitions."""
    estimate = estimate_files(PartitionSample((1, 1, 1), 10.0), 3, 4, 256 * MIB)
    assert (estimate.partitions, estimate.files) == (3, 3)
