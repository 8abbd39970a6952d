"""Names that libraries keep private and the package uses: a release without one of them fails here first.

numba, llvmlite and isal have caps in pyproject.toml for the same reason; botocore has none, since every boto3 pins it.
"""

from __future__ import annotations

import importlib

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

NAMES = {
    "isal.isal_zlib": ["_GzipReader"],
    "llvmlite.binding": ["get_host_cpu_features", "get_host_cpu_name"],
    "numba._dynfunc": ["make_function"],
    "numba.core.caching": ["NullCache"],
    "numba.core.cgutils": ["gep", "unpack_tuple"],
    "numba.core.codegen": ["JITCodeLibrary._optimize_final_module", "JITCodeLibrary._finalize_dynamic_globals"],
    "numba.core.compiler": [
        "CompileResult._find_referenced_environments",
        "CompileResult._rebuild",
        "CompileResult._reduce",
        "CompilerBase",
        "DefaultPassBuilder.define_nopython_lowering_pipeline",
        "DefaultPassBuilder.define_typed_pipeline",
        "DefaultPassBuilder.define_untyped_pipeline",
    ],
    "numba.core.compiler_machinery": ["PassManager", "register_pass"],
    "numba.core.dispatcher": ["Dispatcher"],
    "numba.core.event": ["Listener", "register"],
    "numba.core.serialize": ["dumps"],
    "numba.core.typed_passes": ["NativeLowering.run_pass"],
    "numba.extending": ["_Intrinsic", "intrinsic"],
}


@pytest.mark.parametrize("path", [f"{module} {name}" for module, names in NAMES.items() for name in names])
def test_private_names_are_there(path):
    """Each name that the package takes from within numba, llvmlite and isal is there."""
    module, _, name = path.partition(" ")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


def test_botocore_keeps_its_private_names():
    """A session's credentials, a client's handlers, and the renewal of credentials are where the package looks."""
    session = botocore.session.Session()
    assert hasattr(session, "_credentials")
    client = boto3.client("dynamodb")
    assert callable(client.meta.events._emitter._handlers.prefix_search)
    assert hasattr(client._request_signer, "_credentials")
    renewing = RefreshableCredentials("key", "secret", "token", None, refresh_using=dict, method="test")
    assert hasattr(renewing, "_frozen_credentials")
    assert callable(renewing._protected_refresh)
