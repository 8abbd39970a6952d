"""Write the same items into the same endpoint as boto3's batch writer; goal: ≥ 25 × its items per CPU second.

The CPU time of all threads of this process counts. The timed endpoint accepts everything and does nothing, in another
process: a real one is not on the client's machine. Before, a check on the fake ensures that rows arrive completely.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa

import ddbio
from bench import pairs
from bench.e2e import record, sink
from bench.serving import isolate
from ddbio.load.plan import BATCH_LANES
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

ITEM_BYTES = 600
DEFAULT_LANES = BATCH_LANES
TEXT_BYTES = ITEM_BYTES - 60
DDBIO, ALONE, COMPRESSED, BOTO3 = "ddbio", "ddbio lanes=1", "ddbio compress_requests", "boto3 batch_writer"
_REGION = "eu-west-1"
_CHECKED_ROWS = 500


def main() -> None:
    """Append a row with the median of the rounds, the methods in turns."""
    arguments = record.parser("write")
    arguments.add_argument("--items", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lanes", type=int, default=DEFAULT_LANES)
    asked = arguments.parse_args()
    isolate()
    ways: dict[str, Callable[[pa.Table, str], None]] = {
        DDBIO: lambda rows, url: _ddbio(rows, url, lanes=asked.lanes),
        ALONE: lambda rows, url: _ddbio(rows, url, lanes=1),
        COMPRESSED: lambda rows, url: _ddbio(rows, url, lanes=asked.lanes, compress_requests=True),
        BOTO3: _batch_writer,
    }
    rows = _worded_rows(asked.items)
    # The other method takes as long for this fraction of the items.
    share = dict.fromkeys(ways, rows) | {BOTO3: rows.slice(0, max(1, asked.items // 25))}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    bytes_per_item: dict[str, float] = {}
    for write in ways.values():
        _check(write)
    with sink.running() as endpoint:
        # The first round compiles, imports and connects.
        for number in range(asked.rounds + 1):
            for way in pairs.turned(list(ways), number):
                write = ways[way]
                rate, body_bytes = _rate(share[way], write, endpoint)
                bytes_per_item[way] = body_bytes
                rates[way] += [rate] * bool(number)
    speed = {way: _median(values) for way, values in rates.items()}
    figures = {
        "item_bytes": ITEM_BYTES,
        "items_per_cpu_second": record.rounded(speed, 0),
        "body_bytes_per_item": record.rounded(bytes_per_item, 1),
        "times_as_many_as_boto3": round(speed[DDBIO] / speed[BOTO3], 1),
        "times_as_many_as_boto3_by_one_lane": round(speed[ALONE] / speed[BOTO3], 1),
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


def _worded_rows(count: int) -> pa.Table:
    """Return the same rows with words in their texts, which compress like text."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(2000)]
    texts = [" ".join(draw.choices(words, k=TEXT_BYTES // 4))[:TEXT_BYTES] for _ in range(1000)]
    worded = [f"{number:08}{texts[number % len(texts)]}" for number in range(count)]
    rows = rows_of(count)
    return rows.set_column(rows.schema.get_field_index("text"), "text", pa.array(worded))


def _check(write: Callable[[pa.Table, str], None]) -> None:
    rows = _worded_rows(_CHECKED_ROWS)
    with FakeDynamoDB(process=True) as fake:
        fake.load("rows", b"", "pk:S")
        write(rows, fake.endpoint_url)
        stored = ddbio.read_table("rows", endpoint_url=fake.endpoint_url, region=_REGION)
    columns = ["pk", "text"]
    assert stored.select(columns).sort_by("pk").to_pylist() == rows.select(columns).sort_by("pk").to_pylist()


def _rate(rows: pa.Table, write: Callable[[pa.Table, str], None], endpoint: sink.Sink) -> tuple[float, float]:
    """Return items per CPU second, and bytes of request bodies per item."""
    rows_before, bytes_before = endpoint.rows, endpoint.body_bytes
    began = time.process_time()
    write(rows, endpoint.endpoint_url)
    seconds = time.process_time() - began
    assert endpoint.rows - rows_before == len(rows)
    return len(rows) / seconds, (endpoint.body_bytes - bytes_before) / len(rows)


def _ddbio(rows: pa.Table, endpoint_url: str, **options: Any) -> None:
    ddbio.write_table(rows, "rows", endpoint_url=endpoint_url, region=_REGION, **options)


def _batch_writer(rows: pa.Table, endpoint_url: str) -> None:
    resource: Any = boto3.resource("dynamodb", endpoint_url=endpoint_url, region_name=_REGION)
    with resource.Table("rows").batch_writer() as writer:
        for row in rows.to_pylist():
            writer.put_item(Item=row)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
