"""Skew of counts by segment, and estimates from a sample of segments."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.scan.segment_counts import (
    CountInterval,
    SegmentCount,
    estimate_items,
    sampled_segments,
    skew_of,
    student_quantile,
)


# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (5, 2.571), (10, 2.228), (11, 2.201), (29, 2.045), (100, 1.984)]
)
def test_student_quantiles_are_those_of_the_table(degrees, quantile):
    """The quantiles have an error below 0.001."""
    assert student_quantile(degrees) == pytest.approx(quantile, abs=0.001)


def test_a_complete_count_is_exact():
    """All segments, also a single one, leave no uncertainty."""
    assert estimate_items([7], 1) == CountInterval(7, 7, 7)
    assert estimate_items([3, 4, 0], 3) == CountInterval(7, 7, 7)


def test_an_estimate_has_the_textbook_interval():
    """The interval of a sample of 4 from 16: 160 ± 3.182 × 16 × sqrt(0.75 × 16/3 / 4)."""
    assert estimate_items([8, 12, 12, 8], 16) == CountInterval(160, 109, 211)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=50), st.integers(0, 10**6))
def test_an_interval_contains_its_estimate_and_the_counted_items(counts, others):
    """The lower limit is never below the items that were counted."""
    estimate = estimate_items(counts, len(counts) + others)
    assert sum(counts) <= estimate.low <= estimate.items <= estimate.high


def test_most_intervals_contain_the_number_of_items():
    """Over samples of a table of even segments, 95 % of the intervals contain the actual number, give or take 2 %."""
    draw = random.Random(1)
    segments = [sum(draw.random() < 0.5 for _ in range(100)) for _ in range(300)]
    estimates = [estimate_items(draw.sample(segments, 30), 300) for _ in range(2_000)]
    hits = sum(estimate.low <= sum(segments) <= estimate.high for estimate in estimates)
    assert hits / 2_000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("total", "ratio", "size"), [(300, 0.1, 30), (10, 0.01, 2), (1, 0.5, 1), (7, 1.0, 7)])
def test_a_sample_has_at_least_two_segments_if_there_are_two(total, ratio, size):
    """The size is the share of the segments, at least two and at most all."""
    assert sampled_segments(total, ratio) == size


def test_skew_names_the_largest_segments():
    """The largest five segments are listed, equal ones by their number."""
    counts = [5, 0, 9, 5, 1, 2, 6]
    skew = skew_of([SegmentCount(number, items, items) for number, items in enumerate(counts)])
    assert [segment.segment for segment in skew.largest] == [2, 6, 0, 3, 5]
    assert (skew.min_items, skew.median_items, skew.max_items, skew.max_ratio) == (0, 5.0, 9, 2.25)


def test_an_empty_table_has_no_ratio():
    """A mean of 0 has no ratio to the largest count."""
    assert skew_of([SegmentCount(0, 0, 0)]).max_ratio is None
