"""Try every feature on a server of Spark Connect, and print what came of each: ``test_connect`` runs it as a process.

A process has either a session of its own or one of Spark Connect, and the tests have the former.
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

# Spark waits ten seconds for a worker of foreachBatch, which a busy machine may need to start Python:
# https://github.com/apache/spark/blob/v4.0.0/core/src/main/scala/org/apache/spark/api/python/PythonWorkerFactory.scala
_UNHURRIED, _ATTEMPTS = "Python worker failed to connect back", 3


def main(given):
    """Print the outcome of each feature as JSON: ``yes``, or the error."""
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    at = {"endpoint_url": given["endpoint_url"], "region": "eu-west-1"}
    found = {}
    for name in FEATURES:
        for attempt in range(_ATTEMPTS):
            place = Path(given["folder"], f"{name}-{attempt}")
            place.mkdir()
            found[name] = _outcome(name, spark, at, place, given)
            if _UNHURRIED not in found[name]:
                break
    print(json.dumps(found))  # noqa: T201 - the answer
    spark.stop()


def _outcome(name, *words):
    try:
        _TRIES[name](*words)
    except DdbioError as error:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever it is, the test shows it
        return "failed: " + traceback.format_exc()
    return YES


def _verbs(spark, at, place, _):
    ddbio.scan_to_files("things", place / "scan", engine="spark", **at)


def _functions(spark, at, _, given):
    for call in (
        lambda: ddbio.spark.read_export(spark, given["export"]),
        lambda: ddbio.spark.write(spark.range(1).selectExpr("cast(id as string) as pk"), "connected", **at),
    ):
        with contextlib.suppress(ddbio.OptionError):
            call()
            raise AssertionError("it was not refused")
    ddbio.spark.scan(spark, "things", **at)


def _formats(spark, at, _, given):
    jobs.read_and_write(spark, "connected", at, given["export"])
    assert ddbio.last_report(spark) is None


def _push_down(spark, at, *_):
    frame = spark.read.format("dynamodb-pushdown").option("endpointUrl", at["endpoint_url"]).load("things")
    asked = frame.where("pk = 'key-0007'").select("pk", "price")
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        asked.explain()
    assert "dynamodb-pushdown columns: [pk, price]" in plan.getvalue(), plan.getvalue()
    assert [row["pk"] for row in asked.collect()] == ["key-0007"]
    jobs.check(frame)


def _apply_batches(spark, _, place, __):
    (place / "refused").mkdir()
    try:
        jobs.apply_batches(spark, place / "refused")
    except Exception as error:  # noqa: BLE001 - Spark's own, with ours in its text
        assert "this is Spark Connect" in str(error), error  # noqa: PT017 - it runs without pytest
    else:
        raise AssertionError("it was not refused")
    jobs.apply_batches(spark, place, engine="local")


_TRIES = {
    "verbs": _verbs,
    "functions": _functions,
    "lookup": lambda spark, at, *_: jobs.look_up(spark, at),
    "formats": _formats,
    "streams": lambda spark, _, place, given: jobs.stream(spark, given["log"], given["changes"], place),
    "pushdown": _push_down,
    "write_batch": lambda spark, at, place, _: jobs.write_batches(spark, "connected-batches", at, place),
    "apply_batch": _apply_batches,
    "frame_functions": lambda spark, *_: jobs.functions_of_frames(spark),
    "column_functions": lambda spark, *_: jobs.functions_of_columns(spark),
    "frames": lambda spark, at, *_: jobs.digest_and_compare(
        spark.read.format("dynamodb").option("endpointUrl", at["endpoint_url"]).load("things"), at
    ),
    "sized_files": lambda spark, _, place, *__: jobs.write_sized_files(spark, place / "out"),
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
