"""Views over a log as SQL for Spark: the newest state of all items, and their history."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.formats.lake_columns import column_name
from tests.lake.test_schedules import expected, items_of
from tests.lake.test_verify_schedules import Past


@pytest.mark.nightly
def test_spark_runs_the_views(spark, tmp_path):
    """The newest states equal the model over the applied part of the log. The history has each change once."""
    folder = tmp_path / "it's"
    past = Past(5, folder, attributes=("a", "b c", "operation"))
    past.apply()
    past.grow()
    base = deltalake.DeltaTable(past.lake).to_pyarrow_table()
    pq.write_table(base.cast(pa.schema([field.remove_metadata() for field in base.schema])), tmp_path / "base.parquet")
    spark.read.parquet(str(tmp_path / "base.parquet")).createOrReplaceTempView("views_base")
    sql = ddbio.latest_view_sql(folder / "log", past.lake, dialect="spark", lake_relation="views_base", name="newest")
    for statement in sql.split(";\n"):
        spark.sql(statement)
    rows = [{**row.asDict(), "_deleted": False} for row in spark.sql("SELECT * FROM newest").collect()]
    assert items_of(rows, {**{name: name for name in rows[0]}, column_name("b c", set()): "b c"}) == expected(
        past.log.model()
    )
    for statement in ddbio.history_view_sql(folder / "log", dialect="spark", name="states").split(";\n"):
        spark.sql(statement)
    assert spark.sql("SELECT * FROM states").count() == len(past.changes())
    ends = spark.sql("SELECT count(*) AS ends FROM states WHERE valid_to IS NULL").collect()[0]["ends"]
    assert ends == len({change.key for change in past.changes()})
    for name in ("newest", "states", "ddbio_log", "views_base"):
        spark.catalog.dropTempView(name)
