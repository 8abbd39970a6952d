"""Prepare a Spark session, or this machine's compiled loops, before the first use."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from ddbio.ops.job.report import WarmReport, WriteReport
from ddbio.ops.warm import warm_all


def register(spark: Any) -> None:
    """Make the formats ``dynamodb``, ``ddbio`` and ``dynamodb-export`` known to a Spark session.

    May be called again. A name that PySpark has found by itself, or that another connector owns, stays as it is. On
    Spark Connect, whose driver is elsewhere, each task gets a static portion of its read's budget.

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


def last_report(spark: Any) -> WriteReport | None:
    """Return what the last write of a DataFrame or a micro-batch into a table did, or None if there was none.

    It is that of the last ``df.write.format("dynamodb")`` since ``register``; on Spark Connect there is none.

    Parameters
    ----------
    spark
        The ``pyspark.sql.SparkSession``.

    Raises
    ------
    ModuleNotFoundError
        PySpark is not installed.
    """
    return importlib.import_module("ddbio.spark").last_report(spark)  # type: ignore[no-any-return]


def warm(to: str | os.PathLike[str] | None = None) -> WarmReport:
    """Compile all loops ahead of their first use, or load those that are stored already.

    Parameters
    ----------
    to
        A folder, or an archive ``….zip``, for loops that every processor of this kind runs, to be shipped; by default
        they are compiled for this one, and stored where the next process of this user looks.

    Raises
    ------
    OptionError
        If the folder or the archive cannot be made.
    """
    began = time.monotonic()
    folder = warm_all(None if to is None else os.fspath(to))
    return WarmReport(round(time.monotonic() - began, 3), None if folder is None else str(folder))
