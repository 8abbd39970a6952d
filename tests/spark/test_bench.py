"""``ddbio bench`` on Spark: its tasks measure, and its files are gone afterwards."""

from __future__ import annotations

import ddbio
from ddbio.core.sample_orders import KEY, order_lines


def test_tasks_of_spark_measure(spark, fake, tmp_path):
    """As many tasks as are asked for measure the functions, and the table is scanned; scratch is empty again."""
    fake.load("measured", order_lines(300), KEY)
    scratch = tmp_path / "scratch"
    report = ddbio.bench(
        "measured", items=200, rounds=1, tasks=2, scratch=str(scratch), endpoint_url=fake.endpoint_url,
        region="eu-west-1",
    )  # fmt: skip
    assert (report.engine, report.tasks) == ("spark", 2)
    assert [each["tasks"] for each in report.workers] == [2]
    names = {each.name for each in report.figures}
    assert {"digest of lines, by Spark", "scan to Parquet, by Spark"} <= names
    assert not [each for each in scratch.rglob("*") if each.is_file()]
