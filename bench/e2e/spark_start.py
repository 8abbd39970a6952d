"""Start a job on two executors: plain Spark, and ddbio.

Each method is a separate process, whose executors are processes with a separate empty cache. Times are from before the
session starts to the last result. Goal: at most 1.5 s more than plain Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import data, orders
from bench.e2e import record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB

ITEMS = 20_000
BARE, DDBIO = "bare Spark", "ddbio"

_SCRIPT = """
import json, sys, time
began = time.monotonic()
from pyspark.sql import SparkSession
way, master, url, dest = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
# Relative to the folder of each executor.
spark = builder.config("spark.executorEnv.XDG_CACHE_HOME", "cache").getOrCreate()
if way == "bare Spark":
    assert spark.sparkContext.parallelize(range(2), 2).map(lambda number: number).sum() == 1
else:
    import ddbio
    import ddbio.spark
    report = ddbio.scan_to_files(
        "orders", dest, engine="spark", segments=4, tasks=2, shared_paths=True, endpoint_url=url, region="eu-west-1"
    )
    assert report.rows and report.tasks == 2
print(json.dumps(time.monotonic() - began))
spark.stop()
"""


def main() -> None:
    """Append a row: the median seconds of each method."""
    arguments = record.parser("spark_start")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--master", default="local-cluster[2,1,1024]")
    asked = arguments.parse_args()
    isolate()
    count = data.scaled(ITEMS)
    times: dict[str, list[float]] = {BARE: [], DDBIO: []}
    with tempfile.TemporaryDirectory() as folder, FakeDynamoDB(process=True) as fake:
        fake.load("orders", orders.lines("mixed", count), orders.KEY)
        for number in range(asked.rounds):
            for way, run_seconds in times.items():
                dest = str(Path(folder) / f"{way}{number}".replace(" ", "_"))
                run_seconds.append(_take(way, asked.master, fake.endpoint_url, dest, folder))
    seconds = {way: statistics.median(run_seconds) for way, run_seconds in times.items()}
    seconds["ddbio_over_bare"] = seconds[DDBIO] - seconds[BARE]
    record.append("spark_start", asked, {"items": count, "seconds": record.rounded(seconds)})


def _take(*words: str) -> float:
    # asv imports every module, and must not wait for Spark.
    import pyspark  # noqa: PLC0415

    *arguments, folder = words
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYTHONPATH": str(record.ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    earlier = set(home.glob("work/app-*"))
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], env=environment, stdout=subprocess.PIPE, check=True, cwd=folder
    )
    # The executors of a local cluster work below its home.
    for folder_of_app in set(home.glob("work/app-*")) - earlier:
        shutil.rmtree(folder_of_app)
    seconds: Any = json.loads(done.stdout.splitlines()[-1])
    return float(seconds)


if __name__ == "__main__":
    main()
