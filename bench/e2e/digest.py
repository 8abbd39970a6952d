"""Digest decoded rows, compared with decoding them; goal: ≥ 2 × as fast, for the same bytes of export lines."""

from __future__ import annotations

from typing import Any, get_args

from bench import data, digest, pairs
from bench.e2e import record


def main() -> None:
    """Append a row with every shape."""
    arguments = record.parser("digest")
    arguments.add_argument("--rounds", type=int, default=15)
    asked = arguments.parse_args()
    record.append("digest", asked, {shape: measure(shape, asked.rounds) for shape in get_args(data.Shape)})


def measure(shape: data.Shape, rounds: int) -> dict[str, Any]:
    """Return speeds in bytes of export lines, and the ratio of digesting columns to each other method."""
    subject = digest.DigestColumns()
    subject.setup(shape)
    seconds = pairs.interleave(subject.ways(), rounds)
    return {
        "wire_bytes": len(subject.body),
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, len(subject.body)), 1),
        "times_as_fast_as": record.rounded(
            {name: pairs.speed_ratio(seconds, "digest", name) for name in seconds if name != "digest"}
        ),
    }


if __name__ == "__main__":
    main()
