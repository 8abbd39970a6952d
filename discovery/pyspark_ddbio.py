"""Let PySpark find the ``ddbio`` data source by itself; hold nothing else."""

import logging

# PySpark imports every module named pyspark_*: one that fails would hide the data sources of all others.
try:
    from ddbio.spark.source import DdbioSource as DefaultSource  # noqa: F401
except Exception as error:  # noqa: BLE001 - any error prevents the import
    logging.getLogger("ddbio").warning("the data source ddbio is not available: %s: %s", type(error).__name__, error)
