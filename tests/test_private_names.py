"""Private names of libraries that the package uses: a release without one of them fails here first.

isal has an upper bound in pyproject.toml for the same reason. botocore has none, since every boto3 pins it. numba has
none: it only builds the compiled loops. Without botocore's private names the package uses botocore's own transport, or
does not renew a token early.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import boto3
import pytest

ROOT = Path(__file__).parents[1]
# The modules, and the names that they use.
NAMES = {
    "ddbio/__main__.py": ["atexit _run_exitfuncs"],
    "ddbio/aws/client.py": [
        "botocore.credentials RefreshableCredentials._expiry_time",
        "botocore.credentials RefreshableCredentials._refresh_using",
    ],
    "ddbio/aws/endpoint_route.py": [
        "botocore.credentials RefreshableCredentials._frozen_credentials",
        "botocore.credentials RefreshableCredentials._protected_refresh",
        "botocore.credentials RefreshableCredentials._refresh_lock",
        "botocore.hooks EventAliaser._emitter",
        "botocore.hooks HierarchicalEmitter._handlers",
        "botocore.signers RequestSigner._credentials",
    ],
    "ddbio/items/kernel/compiler/build.py": ["llvmlite.binding get_host_cpu_features"],
    "ddbio/items/kernel/compiler/intrinsics.py": [
        "numba.core.cgutils gep",
        "numba.core.cgutils unpack_tuple",
        "numba.extending intrinsic",
    ],
    "ddbio/items/kernel/compiler/objects.py": [
        "numba.core.cgutils _StructProxy._getvalue",
        "numba.core.codegen JITCodeLibrary._final_module",
        "numba.core.compiler_lock global_compiler_lock",
        "numba.np.arrayobj populate_array",
    ],
    "ddbio/items/kernel/compiler/parts.py": [
        "numba._dynfunc make_function",
        "numba.core.codegen JITCodeLibrary._finalize_dynamic_globals",
        "numba.core.codegen JITCodeLibrary._optimize_final_module",
        "numba.core.compiler CompilerBase",
        "numba.core.compiler DefaultPassBuilder.define_nopython_lowering_pipeline",
        "numba.core.compiler DefaultPassBuilder.define_typed_pipeline",
        "numba.core.compiler DefaultPassBuilder.define_untyped_pipeline",
        "numba.core.compiler_machinery PassManager",
        "numba.core.compiler_machinery register_pass",
        "numba.core.typed_passes NativeLowering.run_pass",
    ],
    "ddbio/formats/decompress.py": ["isal.isal_zlib _GzipReader"],
    "ddbio/spark/column_functions.py": [
        "pyspark.sql.pandas.serializers ArrowStreamPandasUDFSerializer.arrow_to_pandas",
    ],
    "ddbio/spark/engine.py": ["pyspark SparkContext._jsc"],
    "ddbio/spark/hudi.py": ["pyspark SparkContext._jsc"],
    "ddbio/spark/hudi_catalog.py": ["pyspark SparkContext._jsc", "pyspark SparkContext._jvm"],
    "ddbio/spark/session.py": [
        "pyspark SparkContext._accumulatorServer",
        "pyspark SparkContext._active_spark_context",
        "pyspark SparkContext._ensure_initialized",
        "pyspark SparkContext._gateway",
        "pyspark SparkContext._jsc",
        "pyspark SparkContext._jvm",
        "pyspark.java_gateway launch_gateway",
    ],
}

# PySpark 4.1 itself passes Arrow data to functions of columns. The names for older versions are not required of it.
BEFORE_ARROW_FUNCTIONS = ("pyspark.sql.pandas.serializers ArrowStreamPandasUDFSerializer.arrow_to_pandas",)


@pytest.mark.parametrize(("user", "path"), [(user, path) for user, paths in NAMES.items() for path in paths])
def test_private_names_exist(user, path):
    """Each name that a module of the package uses from within a library exists, and the module still needs it."""
    module, _, name = path.partition(" ")
    if module.startswith(("llvmlite", "numba", "pyspark")):
        pytest.importorskip(module.partition(".")[0])
    if path in BEFORE_ARROW_FUNCTIONS and hasattr(importlib.import_module("pyspark.sql.functions"), "arrow_udf"):
        return
    owner, _, attribute = name.partition(".")
    owner_object = getattr(importlib.import_module(module), owner)
    if attribute and not hasattr(owner_object, attribute):
        # An attribute of its instances.
        methods = [function for function in vars(owner_object).values() if inspect.isfunction(function)]
        assert any(attribute in method.__code__.co_names for method in methods)
    assert re.search(rf"\b{attribute or owner}\b", (ROOT / user).read_text("utf-8"))


def test_every_private_name_is_listed():
    """Each private attribute that the linter allows, except the package's own, is in the list above."""
    used = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "ddbio").rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if "SLF001" in line and "its own" not in line
        for name in re.findall(r"(?<!self)\.(_[a-z]\w*)", line, flags=re.IGNORECASE)
    }
    assert used <= {(user, re.split(r"[ .]", path)[-1]) for user, paths in NAMES.items() for path in paths}


def test_a_client_has_the_used_private_attributes():
    """A client's handlers can be searched, and its signer has the credentials."""
    client = boto3.client("dynamodb")
    assert callable(client.meta.events._emitter._handlers.prefix_search)
    assert hasattr(client._request_signer, "_credentials")
