"""Everything that runs on Spark; no other package imports pyspark."""

from __future__ import annotations

try:
    import pyspark as _  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"ddbio.spark needs {error.name}: pip install 'ddbio[spark]'", name=error.name) from None

from ddbio.spark.file_sizes import sized_files
from ddbio.spark.frames import read_export, scan, write, write_batch
from ddbio.spark.lookup import lookup
from ddbio.spark.pushdown_jar import jar
from ddbio.spark.registration import apply_batch, last_report, register

__all__ = [
    "apply_batch",
    "jar",
    "last_report",
    "lookup",
    "read_export",
    "register",
    "scan",
    "sized_files",
    "write",
    "write_batch",
]
