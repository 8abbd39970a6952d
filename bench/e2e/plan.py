"""Plans as processes, for tables described by a file and for an existing one, and the speed of item sizes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import data, decoders
from bench.e2e import record
from ddbio.capacity import item_bytes, item_size_bytes
from ddbio.items.batch_size import batch_bytes
from ddbio.items.decode import Decoder
from ddbio.testing import FakeDynamoDB

RUNS = 5
SIZES = {"of 1 GB": 10**9, "of 80 TB": 80 * 10**12}
SIZED_SHAPE = "orders"
# The fake accepts any keys, and botocore requires some.
_KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}


def main() -> None:
    """Append a row; goals: a plan of any table in 2 s, sizes of Arrow rows at 300 MB/s of one core."""
    asked = record.parser("plan").parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeDynamoDB() as server:
        server.load("orders", data.items("orders", 2_000), "order_id:S")
        reach = ["orders", "--endpoint-url", server.endpoint_url, "--region", "us-east-1"]
        plans = {name: take(["planned", "--from-file", described(folder, size)], size) for name, size in SIZES.items()}
        plans["on a server"] = take(reach, None)
    record.append("plan", asked, {"plans": plans, "sizer_mb_per_cpu_second": sizer()})


def described(folder: str, size: int) -> str:
    """Return a file that describes a table of ``size_bytes``."""
    path = Path(folder, f"{size}.json")
    table = {
        "TableName": "planned",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
        "ItemCount": size // 400,
        "TableSizeBytes": size,
    }
    path.write_text(json.dumps({"Table": table, "AverageItemSizeBytes": 400}), "utf-8")
    return str(path)


def take(words: list[str], size: int | None) -> dict[str, Any]:
    """Return the median time of ``ddbio plan scan`` as a process, whose units are checked."""
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        command = [sys.executable, "-m", "ddbio", "plan", "scan", *words, "--json"]
        done = subprocess.run(command, env={**os.environ, **_KEYS}, stdout=subprocess.PIPE, check=True)
        seconds.append(time.perf_counter() - began)
        units = json.loads(done.stdout)["units"]
        assert size is None or abs(units * 8192 / size - 1) < 0.01
    return {"seconds": round(statistics.median(seconds), 3)}


def sizer() -> float:
    """Return MB of Arrow data that one core sizes per second."""
    body = decoders.body_of(SIZED_SHAPE, "export")
    batch = Decoder(decoders.schema_of(SIZED_SHAPE), nulls="keep").decode(body, "export")
    rows = [item_size_bytes(json.loads(line)["Item"]) for line in body.splitlines()[:1000]]
    assert item_bytes(batch).to_pylist()[:1000] == rows
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        item_bytes(batch)
        times.append(time.process_time() - began)
    return round(batch_bytes(batch) / 1e6 / min(times), 1)


if __name__ == "__main__":
    main()
