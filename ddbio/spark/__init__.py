"""Run on Spark: the only package that imports pyspark."""

from __future__ import annotations

from ddbio.spark.batches import write_batch
from ddbio.spark.registration import register

__all__ = ["register", "write_batch"]
