"""Registration of the data sources with a session, whose driver then serves the budget of each read and write."""

from __future__ import annotations

import atexit
import json
import logging
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import SparkFiles
from pyspark.errors import AnalysisException

from ddbio.errors import OptionError
from ddbio.spark.lease_server import LAST_REPORT, LeaseServer
from ddbio.spark.session import budget_endpoint, is_connect, lost_after_seconds, refuse_connect, speculates

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

    from ddbio.jobs.report import WriteReport

log = logging.getLogger(__name__)

# The property with the id of the query, which a checkpoint keeps.
_QUERY = "sql.streaming.queryId"

_lease_servers: dict[str, LeaseServer] = {}


def register(spark: SparkSession) -> None:
    """Register the formats ``dynamodb``, ``ddbio`` and ``dynamodb-…``. This process then serves their budgets.

    Calling it again is harmless. A name that PySpark has already found, or that another connector owns, does not
    change. On
    Spark Connect, whose driver is in another process, each task gets a static portion of its read's budget.

    Raises
    ------
    OptionError
        This Spark has no Python data sources.
    """
    sources = _sources()
    if not is_connect(spark):
        keep_budgets(spark)
    for source in sources:
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
            log.info("a data source named %r already exists", source.name())


def _sources() -> list[type[DataSource]]:
    try:
        # Spark 3.5 cannot import it.
        from ddbio.spark import source  # noqa: PLC0415
    except ImportError as error:
        raise OptionError(
            f"Spark {pyspark.__version__} has no Python data sources, they came with 4.0: use ddbio.spark.scan, "
            "read_export and write, engine 'spark' of scan, load and export, and ddbio.spark.functions"
        ) from error
    return [
        source.DynamoDBSource,
        source.DdbioSource,
        source.PushdownSource,
        source.ExportSource,
        source.LogSource,
        source.StreamsSource,
        source.KinesisSource,
    ]


def keep_budgets(spark: SparkSession) -> None:
    """Serve the budgets of a session's reads and writes from this process. Calling it again is harmless."""
    context = spark.sparkContext
    application = SparkFiles.getRootDirectory()
    if application in _lease_servers:
        return
    try:
        _lease_servers[application] = LeaseServer(
            application,
            budget_endpoint(context),
            context.defaultParallelism,
            alone_seconds=lost_after_seconds(context) / 2,
            speculates=speculates(context),
        )
    except (OSError, AttributeError) as error:
        # No Unix sockets here, or no private folder: the fallback is safe, but slower.
        log.warning("each task gets a static portion of its read's budget: %s", error)
    else:
        atexit.register(_lease_servers[application].close)


def last_report(spark: SparkSession) -> WriteReport | None:
    """Return the report of the session's last write into a table; None if there was none since ``register``.

    For a stream it is the last micro-batch. On Spark Connect, whose driver is in another process, there is none.
    """
    server = None if is_connect(spark) else _lease_servers.get(SparkFiles.getRootDirectory())
    text = None if server is None else server.keep(LAST_REPORT, None)
    if text is None:
        return None
    # PySpark imports this package when it looks for data sources, and must not wait for Arrow.
    from ddbio.jobs.report import WriteReport  # noqa: PLC0415 - see above

    return WriteReport.from_dict(json.loads(text))


def apply_batch(table: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that merges each micro-batch of changes into a lake table.

    The number of the batch is a transaction of the table, under the id of the query: a batch that Spark repeats changes
    nothing.

    Parameters
    ----------
    table
        Folder of the table.
    **options
        The options of :func:`ddbio.apply`. The default of ``engine`` is ``spark``; ``local`` collects the batch. Spark
        Connect needs ``local``, and also ``job_id``, because its query has no id here.
    """

    def merge(frame: DataFrame, batch_id: int) -> None:
        # A reader does not load the merging modules, and a search for data sources loads no options.
        from ddbio.lake.options import ApplyOptions  # noqa: PLC0415
        from ddbio.options import parse_options  # noqa: PLC0415
        from ddbio.spark.lake import apply_frame  # noqa: PLC0415

        settings = {"engine": "spark", "source": "rows", "table": table, **options}
        connect = is_connect(frame.sparkSession)
        refuse_connect(connect=connect and settings["engine"] == "spark")
        query = None if connect else frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
        if "job_id" in settings or query:
            # A new query counts from 0: its batches are not repetitions.
            settings = {"job_id": query, "batch_id": batch_id, **settings}
        apply_frame(frame, parse_options(ApplyOptions, settings))

    return merge
