"""Scan a table over HTTP beside the floors and the peers; goal: ≥ 15 × boto3's ``client.scan`` per CPU-second."""

from __future__ import annotations

import functools
from typing import Any

from bench import data, pairs, scanners, serving
from bench.e2e import record

ITEMS = 96_000
# What a garbage collector adds is part of a job; that we are not faster by it alone is worth a second look.
_WITHOUT_COLLECTOR = (scanners.DDBIO, scanners.CLIENT)


def main() -> None:
    """Append one row: every way over the same table."""
    arguments = record.parser("scan")
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    table = serving.serve("orders", data.scaled(ITEMS))
    for way in scanners.SCANNERS:
        scanners.check(way, table)
    ways = {way: functools.partial(scanners.drain, way, table) for way in scanners.SCANNERS}
    seconds = pairs.interleave(ways, asked.rounds, collecting=True)
    without = pairs.interleave({way: ways[way] for way in _WITHOUT_COLLECTOR}, asked.rounds)
    serving.stop()
    record.append("scan", asked, figures_of(table, seconds, without))


def figures_of(table: serving.Table, seconds: pairs.Seconds, without: pairs.Seconds) -> dict[str, Any]:
    """Return speeds in item bytes, and how many times as fast as each other way ours is."""
    others = [way for way in seconds if way != scanners.DDBIO]
    return {
        "items": table.count,
        "item_json_bytes": table.line_bytes,
        "megabytes_per_cpu_second": record.rounded(pairs.megabytes_per_second(seconds, table.line_bytes), 1),
        "times_as_fast_as": record.rounded({way: pairs.speed_ratio(seconds, scanners.DDBIO, way) for way in others}),
        "times_as_fast_as_without_collector": record.rounded(
            {scanners.CLIENT: pairs.speed_ratio(without, scanners.DDBIO, scanners.CLIENT)}
        ),
    }


if __name__ == "__main__":
    main()
