"""Let PySpark find the ``dynamodb-export`` data source by itself; hold nothing else."""

from contextlib import suppress

# PySpark imports every module named pyspark_*: one that fails would hide the data sources of all others.
with suppress(Exception):
    from ddbio.spark.source import ExportSource as DefaultSource  # noqa: F401
