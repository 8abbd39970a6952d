"""Decode export lines, one page, and lines of every profile, compared with the peers and the limits.

Goals relative to ``pyarrow.json``: order ≥ 4.3, shuffled ≥ 3.5, wide and sparse ≥ 3; 1 % drifted rows cost ≤ 10 %.
"""

from __future__ import annotations

import functools
from typing import Any, get_args

from bench import data, decoders, pairs, profiles, times
from bench.e2e import record


def main() -> None:
    """Append a row with every shape and framing."""
    arguments = record.parser("decode")
    arguments.add_argument("--rounds", type=int, default=9)
    asked = arguments.parse_args()
    figures = {
        f"{shape} {framing}": measure(shape, framing, asked.rounds)
        for shape in get_args(data.Shape)
        for framing in get_args(decoders.Framing)
    }
    figures["profiles"] = measure_profiles(asked.rounds)
    figures["times"] = measure_times(asked.rounds)
    record.append("decode", asked, figures)


def measure(shape: data.Shape, framing: decoders.Framing, rounds: int) -> dict[str, Any]:
    """Return speeds, and the ratio of ddbio's speed to that of each other method."""
    decoders.check(shape, framing)
    body = decoders.body_of(shape, framing)
    ways = {name: functools.partial(way, body) for name, way in decoders.decoders(shape, framing).items()}
    seconds = pairs.interleave(ways, rounds)
    return {
        "wire_bytes": len(body),
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, len(body)), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, decoders.DDBIO, name) for name in ways if name != decoders.DDBIO}
        ),
    }


def measure_times(rounds: int) -> dict[str, Any]:
    """Return the speeds of declared times, of the same as text, and of text that pyarrow casts without checks."""
    times.check()
    seconds = pairs.interleave(times.ways(), rounds)
    return {
        "wire_bytes": len(times.body()),
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, len(times.body())), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, times.DECLARED, name) for name in (times.TEXT, times.CAST)}
        ),
    }


def measure_profiles(rounds: int) -> dict[str, Any]:
    """Return each profile's speeds and ratios, and the cost of rows with drift relative to the same rows without it."""
    figures = {}
    for profile in profiles.PROFILES:
        profiles.check(profile)
        body = profiles.body_of(profile)
        ways = {name: functools.partial(way, body) for name, way in profiles.ways_of(profile).items()}
        if profile in profiles.DRIFTS:
            settled = profiles.body_of(profiles.BASE)
            ways = {decoders.DDBIO: ways[decoders.DDBIO]}
            ways[profiles.BASE] = functools.partial(profiles.ways_of(profiles.BASE)[decoders.DDBIO], settled)
        # Methods that differ by some percent need more rounds than methods that differ by a factor.
        seconds = pairs.interleave(ways, rounds * (10 if profile in profiles.DRIFTS else 1))
        figures[profile] = {
            "wire_bytes": len(body),
            "items": body.count(b"\n"),
            "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, len(body)), 1),
            "times_as_fast_as": record.rounded(
                {name: pairs.speed_ratio(seconds, decoders.DDBIO, name) for name in ways if name != decoders.DDBIO}
            ),
        }
    return figures


if __name__ == "__main__":
    main()
