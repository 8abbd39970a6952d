"""Timing of several methods in rounds, each method once per round, so that disturbances affect all equally."""

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
    """Return the seconds of every method per round. The order rotates, and garbage is collected between methods.

    Parameters
    ----------
    collecting
        Whether the garbage collector is enabled during a method, as in every program. Disabled, as in ``timeit``, it
        favours methods that create many objects.
    """
    names = list(ways)
    seconds: Seconds = {name: [] for name in names}
    for number in range(rounds):
        for name in turned(names, number):
            seconds[name].append(_seconds_of(ways[name], clock, collecting=collecting))
    return seconds


def turned(names: list[str], number: int) -> list[str]:
    """Return the order of a round: each round starts with the next name."""
    turn = number % max(1, len(names))
    return names[turn:] + names[:turn]


def speed_ratio(seconds: Seconds, way: str, beside: str) -> float:
    """Return the ratio of the speeds of two methods: the median over the rounds."""
    return median_ratio(seconds[beside], seconds[way])


def median_ratio(of: list[float], to: list[float]) -> float:
    """Return the median ratio over the rounds. Changes between rounds, such as the machine's speed, affect both."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def megabytes_per_second(seconds: Seconds, size_bytes: int) -> dict[str, float]:
    """Return the median speed of every method."""
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
    # Freeing the results is not part of any figure.
    del result
    return ended - began
