"""Scan a table over HTTP, compared with the floors and the peers; goal: ≥ 80 × ``client.scan`` per CPU second."""

from __future__ import annotations

import functools
import statistics
from typing import TYPE_CHECKING, Any

import ddbio
from bench import data, pairs, scanners, serving
from bench.e2e import record

if TYPE_CHECKING:
    from collections.abc import Iterable

ITEMS = 300_000
# The slower peers, and the check of all of them, which keeps every Python object, get less data.
FEWER_ITEMS = 60_000
_SLOWER = (scanners.RESOURCE, scanners.AWSWRANGLER)
# Garbage collection is part of a job. A second measurement shows that ddbio's advantage is not only due to it.
_WITHOUT_COLLECTOR = (scanners.DDBIO, scanners.CLIENT)


def main() -> None:
    """Append a row: ddbio's scan with a given schema compared with each other method on the same table, and the
    inference.
    """
    arguments = record.parser("scan")
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    table = serving.serve("orders", data.scaled(ITEMS))
    fewer = serving.serve("orders", data.scaled(FEWER_ITEMS))
    inference = infer(table, asked.rounds)
    for way in scanners.SCANNERS:
        scanners.check(way, fewer)
    # Clients are created once per endpoint.
    assert scanners.drain(scanners.DDBIO, table) == table.count
    figures = measure(table, fewer, asked.rounds)
    serving.stop()
    record.append("scan", asked, {"infer_cpu_seconds": round(inference, 4), **figures})


def infer(table: serving.Table, rounds: int) -> float:
    """Return the cost of inferring the schema, warm, before this process is full of other libraries' objects."""
    way = functools.partial(ddbio.infer_schema, table.name, endpoint_url=table.endpoint_url)
    pairs.interleave({"warm": way}, 3)
    return statistics.median(pairs.interleave({"infer": way}, 2 * rounds + 1, collecting=True)["infer"])


def measure(table: serving.Table, fewer: serving.Table, rounds: int) -> dict[str, Any]:
    """Return speeds in item bytes, and the ratio of ddbio's speed to that of each other method."""
    fast = [way for way in scanners.SCANNERS if way not in _SLOWER]
    seconds = pairs.interleave(ways_over(table, fast), rounds, collecting=True)
    slower = pairs.interleave(ways_over(fewer, (scanners.DDBIO, *_SLOWER)), rounds, collecting=True)
    without = pairs.interleave(ways_over(table, _WITHOUT_COLLECTOR), rounds)
    speeds = pairs.megabytes_per_second(slower, fewer.line_bytes) | pairs.megabytes_per_second(
        seconds, table.line_bytes
    )
    return {
        "items": table.count,
        "item_json_bytes": table.line_bytes,
        "megabytes_per_cpu_second": record.rounded(speeds, 1),
        "times_as_fast_as": record.rounded(ratios(seconds) | ratios(slower)),
        "times_as_fast_as_without_collector": record.rounded(ratios(without)),
    }


def ways_over(table: serving.Table, names: Iterable[str]) -> dict[str, Any]:
    """Return the methods of these names on a table."""
    return {name: functools.partial(scanners.drain, name, table) for name in names}


def ratios(seconds: pairs.Seconds) -> dict[str, float]:
    """Return the ratio of ddbio's speed to that of each other method."""
    return {way: pairs.speed_ratio(seconds, scanners.DDBIO, way) for way in seconds if way != scanners.DDBIO}


if __name__ == "__main__":
    main()
