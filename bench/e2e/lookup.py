"""Look up items by their keys, compared with plain BatchGetItem on the same transport; goal: at most 1.2 × its wall
time.

The plain method sends prepared requests over the light transport, on as many threads as ddbio has lanes, and does not
parse the responses. On Spark a DataFrame of the keys is joined with their items. boto3's client is a peer. All of them
request the same keys, in turns.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa

import ddbio
from bench import data, orders, pairs
from bench.e2e import record
from bench.serving import isolate
from ddbio.aws.client import ClientSpec
from ddbio.aws.transport import open_page_source
from ddbio.items.capacity import BATCH_KEYS
from ddbio.items.json_text import compact_json
from ddbio.items.schema.file import schema_to_json
from ddbio.jobs.engine import available_cores
from ddbio.scan.pages import ReadRequest
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_REGION = "eu-west-1"
KEYS, FEWER = 100_000, 10
LOOKUP, JOIN, BARE = "ddbio.read_table(keys=)", "ddbio.spark.lookup", "bare BatchGetItem"
BOTO3 = "boto3 batch_get_item"
TASKS = 2


def main() -> None:
    """Append a row: wall seconds of each method, and CPU seconds of those in this process."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

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
        session = start_session(f"local[{TASKS}]", {"spark.sql.shuffle.partitions": str(TASKS)})
        ddbio.register(session)
        frame = session.createDataFrame(pa.Table.from_batches([columns])).repartition(TASKS).cache()
        expected = {LOOKUP: count, JOIN: count, BARE: -(-count // BATCH_KEYS), BOTO3: len(keys) // FEWER}
        ways: dict[str, Callable[[], int]] = {
            LOOKUP: lambda: _lookup(fake.endpoint_url, columns),
            JOIN: lambda: _join(fake.endpoint_url, frame),
            BARE: lambda: _bare(fake.endpoint_url, bodies),
            BOTO3: lambda: _boto3(fake.endpoint_url, keys[: len(keys) // FEWER]),
        }
        assert {way: run() for way, run in ways.items()} == expected
        seconds = pairs.interleave(ways, asked.rounds, clock=time.perf_counter, collecting=True)
        # Most of a join's CPU time is in other processes.
        del ways[JOIN]
        cpu_seconds = pairs.interleave(ways, asked.rounds, collecting=True)
        session.stop()
    figures = {
        "seconds": _medians(seconds),
        "seconds_times_bare": round(pairs.speed_ratio(seconds, BARE, LOOKUP), 2),
        "join_seconds_times_bare": round(pairs.speed_ratio(seconds, BARE, JOIN), 2),
        "cpu_seconds": _medians(cpu_seconds),
        "cpu_seconds_times_bare": round(pairs.speed_ratio(cpu_seconds, BARE, LOOKUP), 2),
    }
    record.append("lookup", asked, {"keys": count, **figures})


def _medians(seconds: pairs.Seconds) -> dict[str, float]:
    """Return the median time of each method for all keys."""
    return record.rounded(
        {way: statistics.median(times) * (FEWER if way == BOTO3 else 1) for way, times in seconds.items()}
    )


def _lookup(url: str, keys: pa.RecordBatch) -> int:
    schema = orders.schema_of("mixed")
    table = ddbio.read_table("orders", keys=keys, schema=schema, endpoint_url=url, region=_REGION)
    return int(table.num_rows)


def _join(url: str, frame: DataFrame) -> int:
    """Join all rows with full items, without writing the result. Return the number of rows with an item."""
    from pyspark.sql import Observation, functions  # noqa: PLC0415 - see above

    from ddbio.spark import lookup  # noqa: PLC0415 - see above

    options: Any = {"schema": schema_to_json(orders.schema_of("mixed")), "endpoint_url": url, "region": _REGION}
    joined = lookup(frame, "orders", into="item", **options)
    seen = Observation()
    joined.observe(seen, functions.count("item").alias("found")).write.format("noop").mode("overwrite").save()
    return int(seen.get["found"])


def _bare(url: str, bodies: list[bytes]) -> int:
    lanes = 4 * available_cores()
    source = open_page_source(ClientSpec(endpoint_url=url, region=_REGION), lanes)
    with ThreadPoolExecutor(lanes) as pool:
        answers = pool.map(lambda body: len(source.begin("BatchGetItem", "orders", body).result()), bodies)
        count = sum(length > 0 for length in answers)
    source.close()
    return count


def _boto3(url: str, keys: list[dict[str, Any]]) -> int:
    client: Any = boto3.client("dynamodb", endpoint_url=url, region_name=_REGION)
    count = 0
    for at in range(0, len(keys), BATCH_KEYS):
        reply = client.batch_get_item(RequestItems={"orders": {"Keys": keys[at : at + BATCH_KEYS]}})
        count += len(reply["Responses"]["orders"])
    client.close()
    return count


if __name__ == "__main__":
    main()
