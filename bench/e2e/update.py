"""Write rows in requests of one row each, as boto3 does; goal: ≥ 6 × its items per CPU second.

Updates are compared with ``update_item``, conditional puts with ``put_item``. The measured time and the endpoint are
those of ``bench.e2e.write``. boto3's requests are prepared before they are timed.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa

import ddbio
from bench.e2e import record, sink
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

_REGION = "eu-west-1"
_CHECKED_ROWS = 300
# The other method takes as long for this fraction of the items.
_FEWER = 8
UPDATE, PUT, UPDATE_ITEM, PUT_ITEM = "ddbio mode=update", "ddbio newer_by", "boto3 update_item", "boto3 put_item"


def main() -> None:
    """Append a row with the median of the rounds, the methods in turns."""
    arguments = record.parser("update")
    arguments.add_argument("--items", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lanes", type=int)
    asked = arguments.parse_args()
    isolate()
    ways: dict[str, Callable[[pa.Table, str], Callable[[], None]]] = {
        UPDATE: lambda rows, url: lambda: _ddbio(rows, url, lanes=asked.lanes, mode="update"),
        PUT: lambda rows, url: lambda: _ddbio(rows, url, lanes=asked.lanes, newer_by="version"),
        UPDATE_ITEM: _update_item,
        PUT_ITEM: _put_item,
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for prepare in ways.values():
        _check(prepare)
    with sink.running() as endpoint:
        # The first round compiles, imports and connects.
        for number in range(asked.rounds + 1):
            for way, prepare in ways.items():
                rows = rows_of(asked.items if way in {UPDATE, PUT} else max(1, asked.items // _FEWER))
                rates[way] += [_rate(len(rows), prepare(rows, endpoint.endpoint_url), endpoint)] * bool(number)
    speed = {way: statistics.median(values) for way, values in rates.items()}
    figures = {
        "items_per_cpu_second": record.rounded(speed, 0),
        "updates_times_as_many_as_boto3": round(speed[UPDATE] / speed[UPDATE_ITEM], 1),
        "puts_times_as_many_as_boto3": round(speed[PUT] / speed[PUT_ITEM], 1),
    }
    record.append("update", asked, figures)


def rows_of(count: int) -> pa.Table:
    """Return rows of a key and seven attributes, of which one in three rows lacks some."""
    return pa.table(
        {
            "pk": [f"customer-{number:010}" for number in range(count)],
            "version": list(range(count)),
            "amount": [number * 7 for number in range(count)],
            "state": [("open", "paid", "sent")[number % 3] for number in range(count)],
            "note": [None if number % 3 else f"note {number} of a customer" for number in range(count)],
            "country": [None if number % 7 == 0 else "PT" for number in range(count)],
            "text": [f"{number:08}" + "x" * 200 for number in range(count)],
            "at": [1_700_000_000 + number for number in range(count)],
        }
    )


def _check(prepare: Callable[[pa.Table, str], Callable[[], None]]) -> None:
    rows = rows_of(_CHECKED_ROWS)
    with FakeDynamoDB(process=True) as fake:
        fake.load("rows", b"", "pk:S")
        prepare(rows, fake.endpoint_url)()
        stored = ddbio.read_table("rows", endpoint_url=fake.endpoint_url, region=_REGION)
    assert stored.select(rows.schema.names).sort_by("pk").to_pylist() == rows.sort_by("pk").to_pylist()


def _rate(count: int, write: Callable[[], None], endpoint: sink.Sink) -> float:
    """Return items per CPU second."""
    before = endpoint.rows
    began = time.process_time()
    write()
    seconds = time.process_time() - began
    assert endpoint.rows - before == count
    return count / seconds


def _ddbio(rows: pa.Table, endpoint_url: str, **options: Any) -> None:
    ddbio.write_table(rows, "rows", endpoint_url=endpoint_url, region=_REGION, **options)


def _update_item(rows: pa.Table, endpoint_url: str) -> Callable[[], None]:
    client = _client(endpoint_url)
    requests = []
    for item in _items(rows):
        key = {"pk": item.pop("pk")}
        absent = [name for name in rows.schema.names if name not in {*item, "pk"}]
        numbers = {name: number for number, name in enumerate([*item, *absent])}
        update = "SET " + ", ".join(f"#n{numbers[name]} = :v{numbers[name]}" for name in item)
        if absent:
            update += " REMOVE " + ", ".join(f"#n{numbers[name]}" for name in absent)
        request = {
            "TableName": "rows",
            "Key": key,
            "UpdateExpression": update,
            "ExpressionAttributeNames": {f"#n{number}": name for name, number in numbers.items()},
            "ExpressionAttributeValues": {f":v{numbers[name]}": value for name, value in item.items()},
        }
        requests.append(request)
    return lambda: _each(client.update_item, requests)


def _put_item(rows: pa.Table, endpoint_url: str) -> Callable[[], None]:
    client = _client(endpoint_url)
    requests = [
        {
            "TableName": "rows",
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#k) OR #n < :v",
            "ExpressionAttributeNames": {"#k": "pk", "#n": "version"},
            "ExpressionAttributeValues": {":v": item["version"]},
        }
        for item in _items(rows)
    ]
    return lambda: _each(client.put_item, requests)


def _each(call: Callable[..., Any], requests: list[dict[str, Any]]) -> None:
    for request in requests:
        call(**request)


def _items(rows: pa.Table) -> list[dict[str, Any]]:
    return [
        {
            name: {"N": str(value)} if isinstance(value, int) else {"S": value}
            for name, value in row.items()
            if value is not None
        }
        for row in rows.to_pylist()
    ]


def _client(endpoint_url: str) -> Any:
    return boto3.client("dynamodb", endpoint_url=endpoint_url, region_name=_REGION)


if __name__ == "__main__":
    main()
