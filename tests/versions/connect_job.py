"""Job that tries every feature on a Spark Connect server, and prints each outcome. ``test_connect`` runs it.

A process has either its own session or one of Spark Connect, and the tests have the former.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

import ddbio
import ddbio.spark
from ddbio.errors import DdbioError
from tests.versions import jobs
from tests.versions.features import FEATURES, YES

# Spark waits 10 s for a worker of foreachBatch. A busy machine may need longer to start Python:
# https://github.com/apache/spark/blob/v4.0.0/core/src/main/scala/org/apache/spark/api/python/PythonWorkerFactory.scala
_UNHURRIED, _ATTEMPTS = "Python worker failed to connect back", 3


def main(options):
    """Print the outcome of each feature as JSON: ``yes``, or the error."""
    spark = SparkSession.builder.remote(options["remote"]).getOrCreate()
    at = {"endpoint_url": options["endpoint_url"], "region": "eu-west-1"}
    outcomes = {}
    for name in FEATURES:
        for attempt in range(_ATTEMPTS):
            folder = Path(options["folder"], f"{name}-{attempt}")
            folder.mkdir()
            outcomes[name] = _outcome(name, spark, at, folder, options)
            if _UNHURRIED not in outcomes[name]:
                break
    print(json.dumps(outcomes))  # noqa: T201 - the answer
    spark.stop()


def _outcome(name, *words):
    try:
        _TRIES[name](*words)
    except DdbioError as error:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the test shows any error
        return "failed: " + traceback.format_exc()
    return YES


def _verbs(spark, at, folder, _):
    ddbio.scan_to_files("things", folder / "scan", engine="spark", **at)


def _functions(spark, at, _, options):
    for call in (
        lambda: ddbio.spark.read_export(spark, options["export"]),
        lambda: ddbio.spark.write(spark.range(1).selectExpr("cast(id as string) as pk"), "connected", **at),
    ):
        with contextlib.suppress(ddbio.OptionError):
            call()
            raise AssertionError("it was not refused")
    ddbio.spark.scan(spark, "things", **at)


def _formats(spark, at, _, options):
    jobs.read_and_write(spark, "connected", at, options["export"])
    assert ddbio.last_report(spark) is None


def _push_down(spark, at, *_):
    frame = spark.read.format("dynamodb-pushdown").option("endpointUrl", at["endpoint_url"]).load("things")
    asked = frame.where("pk = 'key-0007'").select("pk", "price")
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        asked.explain()
    assert "dynamodb-pushdown columns: [pk, price]" in plan.getvalue(), plan.getvalue()
    assert [row["pk"] for row in asked.collect()] == ["key-0007"]
    jobs.check(frame)


def _apply_batches(spark, _, folder, __):
    (folder / "refused").mkdir()
    try:
        jobs.apply_batches(spark, folder / "refused")
    except Exception as error:  # noqa: BLE001 - Spark's own, with ours in its text
        assert "this is Spark Connect" in str(error), error  # noqa: PT017 - it runs without pytest
    else:
        raise AssertionError("it was not refused")
    jobs.apply_batches(spark, folder, engine="local")


_TRIES = {
    "verbs": _verbs,
    "functions": _functions,
    "lookup": lambda spark, at, *_: jobs.look_up(spark, at),
    "formats": _formats,
    "streams": lambda spark, _, folder, options: jobs.stream(spark, options["log"], options["changes"], folder),
    "pushdown": _push_down,
    "write_batch": lambda spark, at, folder, _: jobs.write_batches(spark, "connected-batches", at, folder),
    "apply_batch": _apply_batches,
    "frame_functions": lambda spark, *_: jobs.functions_of_frames(spark),
    "column_functions": lambda spark, *_: jobs.functions_of_columns(spark),
    "frames": lambda spark, at, *_: jobs.digest_and_compare(
        spark.read.format("dynamodb").option("endpointUrl", at["endpoint_url"]).load("things"), at
    ),
    "sized_files": lambda spark, _, folder, *__: jobs.write_sized_files(spark, folder / "out"),
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
