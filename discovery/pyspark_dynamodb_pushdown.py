"""Let PySpark find the ``dynamodb-pushdown`` data source where its jar is not there; hold nothing else."""

import logging

# PySpark imports every module named pyspark_*: one that fails would hide the data sources of all others.
try:
    from ddbio.spark.source import PushdownSource as DefaultSource  # noqa: F401
except Exception as error:  # noqa: BLE001 - any error prevents the import
    logging.getLogger("ddbio").warning(
        "the data source dynamodb-pushdown is not available: %s: %s", type(error).__name__, error
    )
