"""Load the output of ``scan``, and copy a table, into tables of 4 and of 40 partitions; goal: ≥ 0.9 of the tables'
rate.

A scan returns items in the order of their keys' hashes: written in that order, they would fill one partition after
another. Each partition of the fake serves 1,000 units per second. The server records the writes over time. Source and
target are separate processes.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

import ddbio
from bench import data
from bench.e2e import record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = {4: 30.0, 40: 12.0}
"""Seconds that each table is busy if all of its partitions are. In less time keys are not evenly spread over 40."""

UNITS_PER_PARTITION = 1_000
ITEM_UNITS = 10
_ITEM_BYTES = ITEM_UNITS * 1024 - 200
_SOURCE, _TARGET = "source", "target"


def main() -> None:
    """Append a row: load and copy, by number of partitions."""
    arguments = record.parser("spread")
    asked = arguments.parse_args()
    isolate()
    record.append("spread", asked, {str(partitions): measure(partitions) for partitions in PARTITIONS})


def measure(partitions: int) -> dict[str, Any]:
    """Return the units written per second, and their share of the table's capacity."""
    count = data.scaled(round(PARTITIONS[partitions] * partitions * UNITS_PER_PARTITION / ITEM_UNITS))
    with FakeDynamoDB(process=True) as source, tempfile.TemporaryDirectory() as folder:
        source.load(_SOURCE, lines(count), "pk:S")
        files = Path(folder, "files")
        # Files and row groups of a table of some size.
        ddbio.scan_to_files(_SOURCE, files, engine="local", endpoint_url=source.endpoint_url)
        ways: dict[str, Callable[[str], object]] = {
            "load": lambda url: ddbio.load_files(
                files, _TARGET, engine="local", endpoint_url=url, state=f"{folder}/state"
            ),
            "copy": lambda url: ddbio.copy_table(
                _SOURCE, _TARGET, endpoint_url=source.endpoint_url, target_endpoint_url=url
            ),
        }
        return {name: written(way, partitions, count) for name, way in ways.items()}


def written(write: Callable[[str], object], partitions: int, count: int) -> dict[str, Any]:
    """Return the rate of a method into a new table with a number of partitions, by the server's record."""
    with FakeDynamoDB(process=True, partitions=partitions, burst_at_creation=0) as fake:
        client: Any = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        client.create_table(
            TableName=_TARGET,
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        write(fake.endpoint_url)
        described = client.describe_table(TableName=_TARGET)["Table"]
        consumed = [(at, units) for at, _, units in fake.consumed(_TARGET) if units]
    assert described["ItemCount"] == count
    units = sum(consumed_units for _, consumed_units in consumed)
    # An interval is 100 ms, including the last one.
    seconds = consumed[-1][0] - consumed[0][0] + 0.1
    return {
        "items": count,
        "write_units": units,
        "seconds": round(seconds, 2),
        "units_per_second": round(units / seconds),
        "share_of_table": round(units / seconds / (partitions * UNITS_PER_PARTITION), 3),
    }


def lines(count: int) -> list[bytes]:
    """Return items of ten write units: few enough that the server is not the bottleneck."""
    rng = random.Random(data.SEED)
    fill = "x" * (_ITEM_BYTES - 40)
    return [b'{"pk":{"S":"%032x"},"text":{"S":"%b"}}' % (rng.getrandbits(128), fill.encode()) for _ in range(count)]


if __name__ == "__main__":
    main()
