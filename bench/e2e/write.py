"""Write the same items into the same endpoint as boto3's batch writer does; goal: ≥ 25 × its items a CPU-second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa

import ddbio
from bench.e2e import record
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

ITEM_BYTES = 600
TEXT_BYTES = ITEM_BYTES - 60
_REGION = "eu-west-1"


def main() -> None:
    """Append one row with the median of some rounds, the ways taking turns."""
    arguments = record.parser("write")
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lanes", type=int, default=4)
    asked = arguments.parse_args()
    # The other way takes as long for so many fewer.
    few = max(1, asked.items // 25)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(asked.rounds + 1):
        ours.append(_rate(asked.items, lambda rows, url: _ddbio(rows, url, asked.lanes)))
        theirs.append(_rate(few, _batch_writer))
    # The first round compiles, imports and connects.
    speed = {"ddbio": _median(ours[1:]), "boto3 batch_writer": _median(theirs[1:])}
    figures = {
        "item_bytes": ITEM_BYTES,
        "items_per_cpu_second": record.rounded(speed, 0),
        "times_as_many_as_boto3": round(speed["ddbio"] / speed["boto3 batch_writer"], 1),
    }
    record.append("write", asked, figures)


def rows_of(count: int) -> pa.Table:
    """Return rows of about ``ITEM_BYTES`` each: a key, two numbers and text."""
    return pa.table(
        {
            "pk": [f"customer-{number:010}" for number in range(count)],
            "amount": list(range(count)),
            "version": [number % 7 for number in range(count)],
            "text": [f"{number:08}" + "x" * TEXT_BYTES for number in range(count)],
        }
    )


def _rate(count: int, write: Callable[[pa.Table, str], None]) -> float:
    rows = rows_of(count)
    with FakeDynamoDB(process=True) as fake:
        fake.load("rows", b"", "pk:S")
        began = time.process_time()
        write(rows, fake.endpoint_url)
        seconds = time.process_time() - began
        client: Any = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name=_REGION)
        assert client.describe_table(TableName="rows")["Table"]["ItemCount"] == count
    return count / seconds


def _ddbio(rows: pa.Table, endpoint_url: str, lanes: int) -> None:
    ddbio.write_table(rows, "rows", endpoint_url=endpoint_url, region=_REGION, lanes=lanes)


def _batch_writer(rows: pa.Table, endpoint_url: str) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=endpoint_url, region_name=_REGION)
    with resource.Table("rows").batch_writer() as writer:
        for row in rows.to_pylist():
            writer.put_item(Item=row)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
