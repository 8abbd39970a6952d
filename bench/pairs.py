"""Time several ways of doing one thing in rounds, each way once a round, so that disturbances affect all alike."""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Seconds = dict[str, list[float]]


def interleave(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    clock: Callable[[], float] = time.process_time,
    collecting: bool = False,
) -> Seconds:
    """Return every way's seconds, one per round; the order turns from round to round, and garbage is collected between.

    Parameters
    ----------
    collecting
        Whether the garbage collector is on while a way runs, as it is in every program. Off, as in ``timeit``, favours
        the ways that make many objects.
    """
    names = list(ways)
    seconds: Seconds = {name: [] for name in names}
    for number in range(rounds):
        for name in turned(names, number):
            seconds[name].append(_seconds_of(ways[name], clock, collecting=collecting))
    return seconds


def turned(names: list[str], number: int) -> list[str]:
    """Return the order of a round: each begins with the next name."""
    turn = number % max(1, len(names))
    return names[turn:] + names[:turn]


def speed_ratio(seconds: Seconds, way: str, beside: str) -> float:
    """Return how many times as fast one way is as the other: the median over the rounds."""
    return median_ratio(seconds[beside], seconds[way])


def median_ratio(of: list[float], to: list[float]) -> float:
    """Return the median ratio over the rounds: what changes from round to round, as a machine's speed, is in both."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def megabytes_per_second(seconds: Seconds, size_bytes: int) -> dict[str, float]:
    """Return every way's median speed."""
    return {name: size_bytes / 1e6 / statistics.median(times) for name, times in seconds.items()}


def _seconds_of(way: Callable[[], object], clock: Callable[[], float], *, collecting: bool) -> float:
    gc.collect()
    enabled = gc.isenabled()
    if not collecting:
        gc.disable()
    try:
        began = clock()
        result = way()
        ended = clock()
    finally:
        if enabled:
            gc.enable()
    # Freeing what was made is part of nobody's figure.
    del result
    return ended - began
