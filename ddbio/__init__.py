"""Move data between Amazon DynamoDB and S3, fast and exactly.

Importing this package loads no library: each name is made, or loaded from its module, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from ddbio.verbs import VERBS
from ddbio.version import __version__ as __version__

# The modules of the public names that are neither verbs nor their results.
_NAMES = {
    "ddbio.advice.doctor": "Finding",
    "ddbio.formats.layout": "LayoutSummary",
    "ddbio.items.changes": "ChangeDecoder",
    "ddbio.items.decode": "from_dynamodb_json",
    "ddbio.items.encode": "to_dynamodb_json",
    "ddbio.load.idempotency": "idempotency_key",
    "ddbio.load.plan": "WritePlan",
    "ddbio.jobs.estimate": "Estimate",
    "ddbio.jobs.prices": "Cost CostLine",
    "ddbio.errors": (
        "AccessDeniedError DdbioError DecodeError EncodeError EndpointError ExportIncompleteError GapError "
        "KernelError LimitError NotFoundError OptionError PartialWriteError SchemaError ServiceError TargetError "
        "ThrottledError ValidationError"
    ),
    "ddbio.cdc.gaps": "Gap",
    "ddbio.folders.listing": "ListedFile",
    "ddbio.export.bulk_reports": "BulkSummary",
    "ddbio.jobs.report": "FileReport MisfitReport",
    "ddbio.jobs.watch": "Progress",
    "ddbio.options": "Credentials",
    "ddbio.public": "last_report register",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_HOMES |= {name: module for verb in VERBS.values() for name, module in verb.result_homes.items()}
# The keywords of options classes: ``ScanKeywords`` are those of ``ScanOptions``.
_KEYWORDS = {verb.options.replace("Options", "Keywords") for verb in VERBS.values()} | {"StreamEventKeywords"}

__all__ = sorted(["__version__", *VERBS, *_KEYWORDS, *_HOMES])  # noqa: PLE0605 - __init__.pyi has the names


def __getattr__(name: str) -> Any:
    """Make or load a public name at its first use."""
    if name == "capacity":
        return importlib.import_module("ddbio.capacity")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in VERBS:
        value = importlib.import_module("ddbio.public").public_function(name)
    elif name in _KEYWORDS:
        value = importlib.import_module("ddbio.public").keyword_class(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return [*globals(), *__all__]
