"""The modules through which PySpark finds the data sources."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

MODULES = {
    "pyspark_dynamodb": "dynamodb",
    "pyspark_ddbio": "ddbio",
    "pyspark_dynamodb_pushdown": "dynamodb-pushdown",
    "pyspark_dynamodb_export": "dynamodb-export",
    "pyspark_dynamodb_log": "dynamodb-log",
    "pyspark_dynamodb_streams": "dynamodb-streams",
    "pyspark_dynamodb_kinesis": "dynamodb-kinesis",
}
HEAVY_LIBRARIES = {"boto3", "botocore", "numpy", "pandas", "pyarrow", "pydantic"}


@pytest.mark.parametrize(("module", "name"), MODULES.items())
def test_module_offers_its_source(module, name):
    """Each module has the attribute that PySpark looks for, with a source of the name in the module's name."""
    assert importlib.import_module(module).DefaultSource.name() == name


@pytest.mark.parametrize("module", MODULES)
def test_module_never_raises(module, monkeypatch):
    """Where ddbio cannot be imported, the module is empty: an error would hide the sources of other packages."""
    monkeypatch.setitem(sys.modules, "ddbio.spark.source", None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    assert not hasattr(importlib.import_module(module), "DefaultSource")
    monkeypatch.delitem(sys.modules, module)


def test_modules_load_nothing_heavy():
    """The search for data sources, which PySpark does once per session for every user, loads no library of ours."""
    code = "import sys, pyspark.sql.datasource; before = set(sys.modules)\n"
    code += f"import {', '.join(MODULES)}\n"
    code += "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ddbio" in loaded
    assert not loaded & HEAVY_LIBRARIES
