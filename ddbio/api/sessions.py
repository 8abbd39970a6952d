"""Tell a Spark session what ddbio reads and writes; importing it does not need pyspark."""

from __future__ import annotations

import importlib
from typing import Any


def register(spark: Any) -> None:
    """Make the formats ``dynamodb``, ``ddbio`` and ``dynamodb-export`` known, with the budgets of reads kept here.

    May be called again. A name that PySpark has found by itself, or that another connector owns, stays as it is. On
    Spark Connect, where the driver is elsewhere, each task gets a static share of its read's budget.

    Parameters
    ----------
    spark
        The ``pyspark.sql.SparkSession``.

    Raises
    ------
    OptionError
        This Spark has no Python data sources.
    ModuleNotFoundError
        PySpark is not installed.
    """
    importlib.import_module("ddbio.spark").register(spark)
