"""Checked options of every verb, for Python keywords, Spark options and command line flags.

Each verb has one frozen options class. Names are accepted in snake_case, in camelCase and in lower case, as PySpark
passes them to a data source. Values may be text. A mistake raises :class:`~ddbio.errors.OptionError`.

A module is loaded when one of its names is first used.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from typing import Any

from ddbio.verbs import VERBS

# The modules of names that are not the options class of a verb.
_NAMES = {
    "advice.options": "MetricsConnectionOptions PricesRefreshOptions SimulateOptions",
    "cdc.options": "DeliveredOptions StreamEventOptions",
    "load.options": "ImportFilesOptions JsonFormat SourceOptions",
    "options.columns": "ColumnOptions",
    "options.connection": (
        "CatalogConnectionOptions Credentials LocalSession WaitPolicyOptions connection_of export_connection_of"
    ),
    "options.files": "FilesOptions Mode",
    "options.format_names": "Compression",
    "options.limits": "LimitOptions PriceOptions TimeLimitOptions",
    "options.parsing": "Engine camel_case descriptions_of parse_options",
    "scan.options": "AcceptEncoding",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_HOMES |= {verb.options: verb.options_home.partition(":")[0] for verb in VERBS.values()}

__all__ = sorted(["option_names", *_HOMES])  # noqa: PLE0605 - __init__.pyi has the names


@functools.cache
def option_names() -> frozenset[str]:
    """Return the names of all options."""
    classes = [getattr(sys.modules[__name__], name) for name in _HOMES if name.endswith("Options")]
    return frozenset(field.name for cls in classes for field in dataclasses.fields(cls))


def __getattr__(name: str) -> Any:
    """Load a name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ddbio.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
