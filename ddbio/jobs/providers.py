"""Registry of parts that need PySpark. Each is a module of ``ddbio.spark``, imported at its first use."""

from __future__ import annotations

import importlib
from typing import Any, Final

PROVIDERS: Final = {
    "spark": "ddbio.spark.engine",
    "digests of DataFrames": "ddbio.spark.validation",
    "validation of DataFrames": "ddbio.spark.validation",
    "changes in DataFrames": "ddbio.spark.lake",
    "hudi": "ddbio.spark.hudi_writer",
}
"""The module of each part."""


def provider(name: str) -> Any:
    """Return the module of a part.

    Raises
    ------
    ImportError
        If PySpark is not installed.
    """
    return importlib.import_module(PROVIDERS[name])
