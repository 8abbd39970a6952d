"""Hudi's own writer for Spark, as ``lake_formats/registry.py`` calls it: base loads, merges, services, catalogs."""

from __future__ import annotations

from ddbio.spark.hudi import apply_changes, running_hudi_session
from ddbio.spark.hudi_base import hudi_target
from ddbio.spark.hudi_catalog import publish, require_metastore, spark_schema
from ddbio.spark.hudi_maintain import maintain_table

__all__ = [
    "apply_changes",
    "hudi_target",
    "maintain_table",
    "publish",
    "require_metastore",
    "running_hudi_session",
    "spark_schema",
]
