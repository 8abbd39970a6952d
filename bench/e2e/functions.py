"""Spark functions: bodies compared with the kernels, goal ≥ 0.7 ×; queries compared with Spark's own functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, get_args

from bench import data, decoders, functions, pairs
from bench.e2e import processes, record
from bench.e2e.spark_files import WARM_UPS

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 100_000
DECODE_COLUMN, FROM_COLUMN, FROM_JSON = "decode_column", "from_dynamodb_json", "from_json"
ENCODE_COLUMN, TO_COLUMN, TO_JSON = "encode_column", "to_dynamodb_json", "to_json"


def main() -> None:
    """Append a row: bodies of all shapes in this process, then queries of one shape."""
    arguments = record.parser("functions")
    arguments.add_argument("--shape", choices=data.KEYS, default="orders")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--query-rounds", type=int, default=5)
    asked = arguments.parse_args()
    bodies = {shape: measure_bodies(shape, asked.rounds) for shape in get_args(data.Shape)}
    record.append("functions", asked, {"bodies": bodies, "queries": measure_queries(asked)})


def measure_bodies(shape: data.Shape, rounds: int) -> dict[str, Any]:
    """Return the speed of each body relative to its kernel, on one batch of 10,000 rows."""
    functions.Functions.check(shape)
    seconds = pairs.interleave(functions.bodies(shape), rounds)
    kernels = {name: kernel for name, kernel in functions.KERNEL_OF.items() if name in seconds}
    ratios = {name: pairs.speed_ratio(seconds, name, kernel) for name, kernel in kernels.items()}
    return {
        "milliseconds": record.rounded({name: 1000 * min(times) for name, times in seconds.items()}, 2),
        "times_as_fast_as_kernel": record.rounded(ratios),
    }


def measure_queries(asked: Any) -> dict[str, Any]:
    """Return the cost of queries, including JVM and workers, compared with Spark's own functions."""
    from ddbio.spark.session import start_session  # noqa: PLC0415 - asv imports the package, and needs no Spark

    clock = processes.TreeClock()
    session = start_session("local[2]", {})
    try:
        ways = queries(session, asked.shape)
        pairs.interleave(ways, WARM_UPS)
        seconds = pairs.interleave(ways, asked.query_rounds, clock=clock)
    finally:
        session.stop()
    beside = {DECODE_COLUMN: FROM_JSON, FROM_COLUMN: FROM_JSON, ENCODE_COLUMN: TO_JSON, TO_COLUMN: TO_JSON}
    return {
        "rows": data.scaled(ROWS),
        "cpu_seconds": {name: [round(time, 2) for time in times] for name, times in seconds.items()},
        "times_as_fast_as_sparks_own": record.rounded(
            {name: pairs.speed_ratio(seconds, name, other) for name, other in beside.items()}
        ),
    }


def queries(session: Any, shape: data.Shape) -> dict[str, Callable[[], None]]:
    """Return queries over the same rows. Spark's own functions keep the tags, and add none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - see above

    from ddbio.spark import functions as ours  # noqa: PLC0415
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415

    schema = decoders.schema_of(shape)
    options = decoders.parse_options(shape, "export")
    tagged = to_spark_schema(options.explicit_schema.field("Item").type)
    lines = data.lines(shape, data.scaled(ROWS))
    texts = session.createDataFrame([(line.decode(),) for line in lines], "json string").repartition(2)
    # Not in Spark's cache: a repeated query would be answered from it.
    texts = texts.localCheckpoint()
    items = ours.decode_column(texts, "json", schema).localCheckpoint()
    assert texts.count() == items.count() == len(lines)
    own = items.schema["json"].dataType
    made = {
        DECODE_COLUMN: ours.decode_column(texts, "json", schema),
        FROM_COLUMN: texts.select(ours.from_dynamodb_json("json", schema)),
        FROM_JSON: texts.select(sql.from_json("json", tagged)),
        ENCODE_COLUMN: ours.encode_column(items, "json"),
        TO_COLUMN: items.select(ours.to_dynamodb_json("json", own)),
        TO_JSON: items.select(sql.to_json("json")),
    }
    return {name: functools.partial(_run, frame) for name, frame in made.items()}


def _run(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
