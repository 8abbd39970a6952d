"""Counts of items by segment: their skew, and an estimate of the whole table from a random sample of segments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, mean, median, variance
from typing import TYPE_CHECKING, Any, NamedTuple

from ddbio.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
"""Share of samples whose interval contains the actual number, if the mean of the sampled counts is about normal."""

MIN_SAMPLED_SEGMENTS = 30
"""Minimum number of segments in a sample, unless the number of segments is an option."""

MIN_COUNTED_SEGMENTS = 2
"""Fewer counts have no variance."""

_MAX_LARGEST = 5

# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm: 0.975 quantiles for 1 to 10 degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class SegmentCount(Result):
    """Counted items of a segment or of an item collection.

    Attributes
    ----------
    segment
        Number of the segment, or of the item collection in the order of the condition.
    items
        Items that match the condition; all items without a condition.
    scanned_items
        Items that the service read and charged.
    key
        Tested key of the item collection as DynamoDB JSON, if Queries counted it.
    """

    segment: int
    items: int
    scanned_items: int
    key: dict[str, Any] | None = None


@dataclass(frozen=True)
class SegmentSkew(Result):
    """Distribution of items over the counted segments or item collections.

    Attributes
    ----------
    min_items, median_items, max_items
        Smallest, median and largest count.
    max_ratio
        Largest count over the mean; null if there are no items.
    largest
        The five segments with the most items, largest first.
    """

    min_items: int
    median_items: float
    max_items: int
    max_ratio: float | None
    largest: tuple[SegmentCount, ...]


class CountInterval(NamedTuple):
    """Estimated number of items, and the limits of its 95 % confidence interval."""

    items: int
    low: int
    high: int


def skew_of(segments: Sequence[SegmentCount]) -> SegmentSkew:
    """Return the distribution of items over segments, of which there is at least one."""
    counts = [segment.items for segment in segments]
    average = mean(counts)
    return SegmentSkew(
        min_items=min(counts),
        median_items=float(median(counts)),
        max_items=max(counts),
        max_ratio=max(counts) / average if average else None,
        largest=tuple(sorted(segments, key=lambda segment: (-segment.items, segment.segment))[:_MAX_LARGEST]),
    )


def sampled_segments(total: int, ratio: float) -> int:
    """Return the number of segments in a sample of a share of ``total`` segments."""
    return min(total, max(MIN_COUNTED_SEGMENTS, round(total * ratio)))


def estimate_items(counts: Sequence[int], total: int) -> CountInterval:
    """Return an estimate of the items in ``total`` segments from the counts of a random sample of them.

    The sample is a simple random sample without replacement. The estimate is the mean count times ``total``. The
    interval is Student's, with the finite population correction. Its lower limit is never below the counted items. It
    is too narrow if few segments have most of the items.

    Parameters
    ----------
    counts
        Counts of at least two segments, or of all.

    References
    ----------
    https://online.stat.psu.edu/stat506/lesson/2 (Cochran, Sampling Techniques, chapter 2)
    """
    size, counted = len(counts), sum(counts)
    if size == total:
        return CountInterval(counted, counted, counted)
    items = total * mean(counts)
    margin = student_quantile(size - 1) * total * math.sqrt((1 - size / total) * variance(counts) / size)
    return CountInterval(round(items), max(counted, math.floor(items - margin)), math.ceil(items + margin))


def student_quantile(degrees: int) -> float:
    """Return the 0.975 quantile of Student's t-distribution, with an error below 0.001.

    References
    ----------
    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5
    """
    if degrees <= len(_STUDENT):
        return _STUDENT[degrees - 1]
    normal = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    first = (normal**3 + normal) / 4
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    third = (3 * normal**7 + 19 * normal**5 + 17 * normal**3 - 15 * normal) / 384
    return normal + first / degrees + second / degrees**2 + third / degrees**3
