"""Register the data sources with a session so that each read's budget holds over all its tasks."""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkFiles
from pyspark.errors import AnalysisException

from ddbio.errors import OptionError
from ddbio.spark.lease_server import LeaseServer
from ddbio.spark.session import budget_place, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

log = logging.getLogger(__name__)

_lease_servers: dict[str, LeaseServer] = {}


def register(spark: SparkSession) -> None:
    """Make the formats ``dynamodb``, ``ddbio`` and ``dynamodb-export`` known, with the budgets of reads kept here.

    May be called again. A name that PySpark has found by itself, or that another connector owns, stays as it is. On
    Spark Connect, where the driver is elsewhere, each task gets a static share of its read's budget.

    Raises
    ------
    OptionError
        This Spark has no Python data sources.
    """
    sources = _sources()
    if not is_connect(spark):
        _keep_budgets(spark)
    for source in sources:
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
            log.info("a data source named %r is there already", source.name())


def _sources() -> list[type[DataSource]]:
    try:
        # Spark 3.5 cannot import it.
        from ddbio.spark.source import DdbioSource, DynamoDBSource, ExportSource  # noqa: PLC0415
    except ImportError as error:
        raise OptionError(
            f"Spark {pyspark.__version__} has no Python data sources, they came with 4.0: use engine 'spark' of "
            "scan and export, and ddbio.spark.functions"
        ) from error
    return [DynamoDBSource, DdbioSource, ExportSource]


def _keep_budgets(spark: SparkSession) -> None:
    context = spark.sparkContext
    application = SparkFiles.getRootDirectory()
    if application in _lease_servers:
        return
    try:
        host, bind, ports = budget_place(context)
        _lease_servers[application] = LeaseServer(application, host, context.defaultParallelism, bind=bind, ports=ports)
    except (OSError, AttributeError) as error:
        # No Unix sockets here, or no private folder: what is left is safe, only slower.
        log.warning("each task gets a static share of its read's budget: %s", error)
    else:
        atexit.register(_lease_servers[application].close)
