"""Run the same small jobs on every version of Spark that ``./task versions`` has created an environment for.

Each version is one process with a session of two tasks: a table as a DataFrame, into Parquet by the engine, and a
DataFrame into a table; if there are formats, the table by its format, and one item by push-down. The fake runs in a
separate process. The row shows that they run, and which version differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from bench import serving
from bench.e2e import record
from bench.sample_orders import KEY, order_lines
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from pathlib import Path

ITEMS = 50_000
ENVIRONMENTS = {
    "spark35": ".venv-spark35",
    "spark40": ".venv",
    "spark41": ".venv-spark41",
    "spark42": ".venv-spark42",
    "newest": ".venv-newest",
}

_JOB = """
import json, sys, tempfile, time
began = time.perf_counter()
import pyspark
import ddbio, ddbio.spark
from ddbio.spark.session import start_session
has_formats = hasattr(pyspark.sql.SparkSession, "dataSource")
jars = {"spark.jars": ddbio.spark.jar()} if has_formats else {}
spark = start_session("local[2]", {"spark.driver.memory": "2g", **jars})
spark.range(2).count()
started = time.perf_counter() - began
endpoint = sys.argv[1]
options = {"endpoint_url": endpoint, "region": "eu-west-1"}
def timed(job):
    job()  # imports, caches, the JVM's own compiler
    began = time.perf_counter()
    rows = job()
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 3)}
def frame():
    found = ddbio.spark.scan(spark, "orders", **options)
    found.write.format("noop").mode("overwrite").save()
def files():
    with tempfile.TemporaryDirectory() as folder:
        return ddbio.scan_to_files("orders", folder, mode="append", engine="spark", **options).rows
def write():
    rows = spark.range(5_000).selectExpr("cast(id as string) as pk", "id as n")
    return ddbio.spark.write(rows, "scratch", **options).written
figures = {"frame": timed(frame), "files": timed(files), "write": timed(write)}
if has_formats:
    ddbio.register(spark)
    def source(name):
        return spark.read.format(name).option("endpointUrl", endpoint).option("region", "eu-west-1").load("orders")
    def whole():
        source("dynamodb").write.format("noop").mode("overwrite").save()
    figures["format"] = timed(whole)
    pushed = source("dynamodb-pushdown")
    def one():
        return pushed.where(pushed["order_id"] == sys.argv[2]).count()
    figures["pushdown"] = timed(one)
print(json.dumps({"pyspark": pyspark.__version__, "start_seconds": round(started, 3), **figures}))
spark.stop()
"""


def main() -> None:
    """Append a row, with the figures of each existing environment."""
    arguments = record.parser("versions")
    arguments.add_argument("--items", type=int, default=ITEMS)
    asked = arguments.parse_args()
    serving.isolate()
    record.append("versions", asked, measure(asked.items))


def measure(items: int) -> dict[str, Any]:
    """Return the figures of each environment; for missing ones, the command that creates them."""
    figures: dict[str, Any] = {}
    lines = order_lines(items)
    order_id = json.loads(lines[0])["order_id"]["S"]
    with FakeDynamoDB(process=True) as fake:
        fake.load("orders", lines, KEY)
        for name, folder in ENVIRONMENTS.items():
            python = record.ROOT / folder / "bin/python"
            if not python.exists():
                figures[name] = {"missing": f"./task environment {name}"}
                continue
            fake.load("scratch", b"", "pk:S")
            figures[name] = run(python, fake.endpoint_url, order_id)
    return {"versions": figures}


def run(python: Path, endpoint_url: str, order_id: str) -> dict[str, Any]:
    """Return the figures of one version; its output if it failed."""
    # An environment may be that of another folder: the code of this folder is timed.
    code = os.pathsep.join(map(str, (record.ROOT, record.ROOT / "discovery")))
    variables = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": code}
    command = [str(python), "-c", _JOB, endpoint_url, order_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=record.ROOT)
    if done.returncode:
        sys.stderr.write(done.stderr)
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
