"""Look up items by their keys, beside bare BatchGetItem on the same wire; goal: at most 1.2 × its wall time.

The bare way sends requests that were made before over the light transport, on as many threads as ddbio has lanes, and
reads nothing of the answers. boto3's resource is a peer. All of them ask for the same keys, in turns.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3

import ddbio
from bench import data, orders, pairs
from bench.e2e import record
from bench.serving import isolate
from ddbio.aws.client import ClientSpec
from ddbio.aws.scan import ReadRequest
from ddbio.aws.transport import open_page_source
from ddbio.core.capacity import BATCH_KEYS
from ddbio.core.text.json_text import compact_json
from ddbio.engine import available_cores
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_REGION = "eu-west-1"
KEYS, FEWER = 100_000, 10
LOOKUP, BARE, BOTO3 = "ddbio.read_table(keys=)", "bare BatchGetItem", "boto3 batch_get_item"


def main() -> None:
    """Append one row: wall and CPU seconds for each way."""
    arguments = record.parser("lookup")
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    isolate()
    count = data.scaled(KEYS)
    items = list(orders.items("mixed", count))
    names = [part.partition(":")[0] for part in orders.KEY.split(",")]
    keys = [{name: item[name] for name in names} for item in items]
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", orders.lines("mixed", count), orders.KEY)
        columns = ddbio.from_dynamodb_json("\n".join(map(compact_json, keys)).encode()).select(names)
        texts = [compact_json(key).encode() for key in keys]
        request = ReadRequest("orders")
        bodies = [request.lookup_body(texts[at : at + BATCH_KEYS]) for at in range(0, len(texts), BATCH_KEYS)]
        ways: dict[str, Callable[[], int]] = {
            LOOKUP: lambda: _lookup(fake.endpoint_url, columns),
            BARE: lambda: _bare(fake.endpoint_url, bodies),
            BOTO3: lambda: _boto3(fake.endpoint_url, keys[: len(keys) // FEWER]),
        }
        for way, found in ((way, run()) for way, run in ways.items()):
            assert found == (
                len(keys) // FEWER if way == BOTO3 else -(-count // BATCH_KEYS) if way == BARE else count
            ), way
        figures = {}
        for name, clock in (("seconds", time.perf_counter), ("cpu_seconds", time.process_time)):
            times = pairs.interleave(ways, asked.rounds, clock=clock, collecting=True)
            per = {way: statistics.median(each) for way, each in times.items()}
            per[BOTO3] *= FEWER
            figures[name] = record.rounded(per)
            figures[f"{name}_times_bare"] = round(per[LOOKUP] / per[BARE], 2)
    record.append("lookup", asked, {"keys": count, **figures})


def _lookup(url: str, keys: pa.RecordBatch) -> int:
    schema = orders.schema_of("mixed")
    table = ddbio.read_table("orders", keys=keys, schema=schema, endpoint_url=url, region=_REGION)
    return int(table.num_rows)


def _bare(url: str, bodies: list[bytes]) -> int:
    lanes = 4 * available_cores()
    source = open_page_source(ClientSpec(endpoint_url=url, region=_REGION), lanes)
    with ThreadPoolExecutor(lanes) as pool:
        answers = pool.map(lambda body: len(source.begin("BatchGetItem", "orders", body).result()), bodies)
        found = sum(length > 0 for length in answers)
    source.close()
    return found


def _boto3(url: str, keys: list[dict[str, Any]]) -> int:
    client: Any = boto3.client("dynamodb", endpoint_url=url, region_name=_REGION)
    found = 0
    for at in range(0, len(keys), BATCH_KEYS):
        reply = client.batch_get_item(RequestItems={"orders": {"Keys": keys[at : at + BATCH_KEYS]}})
        found += len(reply["Responses"]["orders"])
    client.close()
    return found


if __name__ == "__main__":
    main()
