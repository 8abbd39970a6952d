"""Decode export lines and one page beside the floor and the peers; goals: ≥ 0.75 × the floor, ≥ 4 × boto3's way."""

from __future__ import annotations

import functools
from typing import Any, get_args

from bench import data, decoders, pairs
from bench.e2e import record


def main() -> None:
    """Append one row with every shape and framing."""
    arguments = record.parser("decode")
    arguments.add_argument("--rounds", type=int, default=9)
    asked = arguments.parse_args()
    figures = {
        f"{shape} {framing}": measure(shape, framing, asked.rounds)
        for shape in get_args(data.Shape)
        for framing in get_args(decoders.Framing)
    }
    record.append("decode", asked, figures)


def measure(shape: data.Shape, framing: decoders.Framing, rounds: int) -> dict[str, Any]:
    """Return speeds, and how many times as fast as each other way ours is."""
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


if __name__ == "__main__":
    main()
