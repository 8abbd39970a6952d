from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

import ddbio


def test_tasks_of_spark_rewrite_a_folder(spark, tmp_path):
    """With a running session, its tasks rewrite the groups. Spark reads the live files and the folder equally."""
    for number in range(12):
        folder = tmp_path / "lake" / f"day={number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"pk": [f"{number}-{row}" for row in range(50)]}), folder / f"{number}.parquet")
    report = ddbio.compact(tmp_path / "lake")
    assert (report.engine, report.tasks, report.files_after, report.rows) == ("spark", 2, 3, 600)
    assert report.digest_before == report.digest_after
    ddbio.publish(tmp_path / "lake", tmp_path / "curated")
    read = spark.read.option("basePath", str(tmp_path / "lake")).parquet(*ddbio.list_files(tmp_path / "lake").paths)
    assert read.count() == spark.read.parquet(str(tmp_path / "lake")).count() == 600
    assert spark.read.parquet(*ddbio.list_files(tmp_path / "curated").paths).select("pk").distinct().count() == 600
